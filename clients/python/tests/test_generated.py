"""What is written from the OpenRPC document, and what is promised of all of it."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple, get_args, get_type_hints

import pytest
from conftest import BIN, ROOT

from nexus3 import client, sync, types

PACKAGE = ROOT / "clients" / "python" / "nexus3"
GENERATED = ("types.py", "_methods.py", "_methods_sync.py")


@pytest.fixture(scope="module")
def document() -> str:
    return subprocess.run([BIN / "nexus3", "schema"], capture_output=True, text=True, check=True).stdout


def test_it_is_not_stale(document: str, tmp_path: Path) -> None:
    generate = ROOT / "clients" / "python" / "generate.py"
    subprocess.run([sys.executable, generate, tmp_path], input=document, text=True, check=True)
    for name in GENERATED:
        command = "make docs"
        same = (tmp_path / name).read_text() == (PACKAGE / name).read_text()
        assert same, f"{name} is stale; write it anew: {command}"


def test_every_method_can_be_called(document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its parameters, on the client, and on an agent where it is an agent's."""
    called: List[Tuple[str, Dict[str, Any], Any]] = []

    async def note(_: Any, method: str, params: Dict[str, Any], agent_id: Any = None) -> None:
        called.append((method, params, agent_id))

    monkeypatch.setattr("nexus3._core.Core.call", note)
    for method in json.loads(document)["methods"]:
        name = method["name"].replace(".", "_")
        known = {param["name"] for param in method["params"]} - {"stream"}
        if method["x-scope"] == "agent":
            known -= {"agent_id"}
        asynchronous, waiting = client.NexusClient(), sync.NexusClient()
        targets = [(asynchronous, waiting, None)]
        if method["x-scope"] == "agent":
            targets.append((asynchronous.agent("a"), waiting.agent("a"), "a"))  # type: ignore[arg-type]
        for one, other, agent_id in targets:
            assert set(inspect.signature(getattr(one, name)).parameters) == known
            given = {param: f"<{param}>" for param in known}
            if method["x-kind"] == "watch":
                for watch in (one.watch(**given), other.watch(**given)):  # type: ignore[arg-type]
                    assert (watch._opened.call.method, watch._opened.call.params) == (name, given)
                continue
            asyncio.run(getattr(one, name)(**given))
            getattr(other, name)(**given)
            assert called[-2:] == [(method["name"], given, agent_id)] * 2


def test_the_events_of_a_watch_are_those_of_the_schema() -> None:
    defs = json.loads((ROOT / "docs" / "nexus3.schema.json").read_text())["$defs"]
    told = [event["properties"]["type"]["const"] for event in defs["WatchedEvent"]["oneOf"]]
    known = [get_args(get_type_hints(event)["type"])[0] for event in get_args(types.WatchedEvent)]
    assert known == told and len(set(known)) == len(known)


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_it_is_python_3_9(path: Path) -> None:
    """The syntax, and that annotations which a newer one could evaluate are never evaluated."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 9))
    assert not any(isinstance(node, getattr(ast, "Match", ())) for node in ast.walk(tree))
    if path.name != "__init__.py":
        assert "from __future__ import annotations" in source


def test_the_two_clients_are_the_same() -> None:
    def face(kind: Any) -> Dict[str, List[str]]:
        names = [name for name in dir(kind) if not name.startswith("_")]
        found = {name: getattr(kind, name) for name in names if callable(getattr(kind, name))}
        return {name.replace("aclose", "close"): list(inspect.signature(it).parameters) for name, it in found.items()}

    for name in ("NexusClient", "Agent", "Stream", "Watch"):
        assert face(getattr(client, name)) == face(getattr(sync, name))
    assert client.__all__ == sync.__all__
