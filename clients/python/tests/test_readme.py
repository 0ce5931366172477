"""Every line of Python that the documents show is run, as it stands but for the port."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Server

README = ROOT / "clients" / "python" / "README.md"
GUIDE = ROOT / "docs" / "guide" / "clients.md"
TOUR = ROOT / "README.md"


def blocks(path: Path, language: str) -> "list[str]":
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


SAMPLES = [
    *(pytest.param(block, id=f"readme-{number}") for number, block in enumerate(blocks(README, "python"))),
    *(pytest.param(block, id=f"guide-{number}") for number, block in enumerate(blocks(GUIDE, "python"))),
    *(pytest.param(block, id="tour") for block in blocks(TOUR, "python") if "from nexus3" in block),
]


def test_there_are_samples() -> None:
    assert (len(blocks(README, "python")), len(blocks(GUIDE, "python")), len(SAMPLES)) == (8, 2, 11)


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples(server: Server, sample: str) -> None:
    # They need not know that this server is not on the default port, nor its socket at the usual place.
    sample = sample.replace("NexusClient()", f'NexusClient("{server.url}")')
    sample = sample.replace("NexusClient(timeout", f'NexusClient("{server.url}", timeout')
    sample = sample.replace("over_socket()", f'over_socket("{server.socket}")')
    sample = sample.replace("http://127.0.0.1:8765", server.url)
    sample = sample.replace('"rpc.token"', f'"rpc-{server.port}.token"')
    # The turns that are cancelled have to last.
    sample = re.sub('"(Write a long essay|Count to a million).?"', '"hang"', sample)
    env = {**server.world.env, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", sample]
    done = subprocess.run(command, env=env, cwd=server.world.directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith('{"timestamp"')]
    assert errors == [], done.stderr
    if "error.data" in sample:
        assert done.stdout == "Unknown agent: nobody (-32602) -32602 {'path': '/agent_id'}\n"
    assert done.stdout.strip() != ""
