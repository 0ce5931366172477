"""The server against its own JSON Schema (docs/nexus3.schema.json).

Instances of every request are made by walking its schema: what it asks for and what it only allows, each word of a list,
the bounds of each number, text and list, and each of these wrong in every way. A validator that is not ours says which of
them the schema accepts; the server must say the same. What the schema refuses gets -32602, or -32600 for the envelope, and
the parameter is named. What it accepts may fail for what it means, in one of the ways of `MEANT`, but not for its shape.
Whatever the server sends on the way is held against its schema too, and every method has to have answered."""

from __future__ import annotations

import copy
import functools
import http.client
import json
import re
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
from conftest import ROOT, Server, World
from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped]

DOCUMENT = json.loads((ROOT / "docs" / "nexus3.schema.json").read_text())
DEFS: Dict[str, Any] = DOCUMENT["$defs"]
METHODS = sorted(name[: -len(".request")] for name in DEFS if name.endswith(".request"))

# What may be wrong with parameters that are as the schema wants them: with what is not there, or there already, or not
# allowed. A refusal that is not among these has to be in the schema, or is put here by somebody who knows why it cannot be.
MEANT = re.compile(
    "|".join(
        (
            r"^Unknown (agent|plan|session|preset|approval|provider|parent|model)\b",
            r"^language .* is not known",
            r"exists already|is live|was decided|was cut off|is in flight|cannot be resumed",
            r"no such file or directory|is a directory|is not a directory|lies outside",
            r"ceiling is exceeded|same idempotency_key came with other parameters",
            r"can be resumed|depends? on|tasks differ|is no address that is taken|is not base64|at most 20 attachments",
            # Those that were named before count too.
            r"at most 1000 may be named",
            r"^if_version is|^There is no \w+ .* to modify",
            r"^since must be a moment|needs a chat_id",
            r"is past its end|^message is said with a denial only|^scope is given with allow_session only",
            r"^approvals goes with stream",
            r"^content is given with accept only|^cursor is of use only with its server",
            r"^There is no MCP server|has no (such )?tool",
            r"^give server or config|^source goes with config|^shared: |^config: |of the configuration, which the agent",
            r"^Additional_directories: ",
            r"is of an agent that is made, and none is|is not for methods",
            r"^History: |^The copy of a temporary agent is temporary|^The name of a session may not start with '\.'",
        )
    )
)

# One value of each JSON type.
KINDS: Dict[str, Any] = {
    "null": None,
    "boolean": True,
    "integer": 7,
    "number": 1.5,
    "string": "a1",
    "array": [],
    "object": {},
}

# Texts that one pattern or another refuses. None ends with a line break: before that `$` holds in Python, unlike elsewhere.
ODD_TEXTS = ("", " ", "\t", "\0", "a\0b", "a b", "é", "..", ".", "a..b", "/a", "../a", "./.", "-a", "a\u0085")


@functools.lru_cache(None)
def validator(name: str) -> Draft202012Validator:
    schema = {"$schema": DOCUMENT["$schema"], "$ref": f"#/$defs/{name}", "$defs": DEFS}
    return Draft202012Validator(schema)


def resolved(schema: Any) -> Dict[str, Any]:
    if schema is True:
        return {}
    if "$ref" in schema:
        return {**resolved(DEFS[schema["$ref"].rsplit("/", 1)[1]]), **{k: v for k, v in schema.items() if k != "$ref"}}
    return dict(schema)


def merged(one: Any, other: Any) -> Dict[str, Any]:
    """A schema of what satisfies both. Where they differ in a word, the other is the narrower."""
    one, other = resolved(one), resolved(other)
    both = {**one, **other}
    both["required"] = [*one.get("required", ()), *(it for it in other.get("required", ()) if it not in one.get("required", ()))]
    names = {**one.get("properties", {}), **other.get("properties", {})}
    if names:
        both["properties"] = {
            name: merged(one.get("properties", {}).get(name, True), other.get("properties", {}).get(name, True))
            for name in names
        }
    return both


def cases(schema: Any) -> List[Dict[str, Any]]:
    """The ways in which an object can satisfy its conditions, each as a schema without them."""
    schema = resolved(schema)
    found = [{name: value for name, value in schema.items() if name not in ("allOf", "oneOf", "anyOf")}]
    for keyword in ("oneOf", "anyOf"):
        if keyword in schema:
            found = [merged(it, case) for it in found for branch in schema[keyword] for case in cases(branch)]
    conditions = [it for it in schema.get("allOf", ()) if "if" in it]
    for part in schema.get("allOf", ()):
        if "if" not in part:
            found = [merged(it, case) for it in found for case in cases(part)]
    if not conditions:
        return found
    return [
        merged(merged(it, when), then)
        for it in found
        for condition in conditions
        for when in cases(condition["if"])
        for then in cases(condition["then"])
    ]


def types(schema: Dict[str, Any]) -> List[str]:
    kind = schema.get("type", ())
    if "properties" in schema and not kind:
        return ["object"]
    return [kind] if isinstance(kind, str) else list(kind)


class Maker:
    """Makes instances. `known` has values by the names of parameters: those that mean something to the server."""

    def __init__(self, known: Dict[str, Any]) -> None:
        self.known = known

    def good(self, schema: Any, name: str = "") -> Iterator[Any]:
        """The first is the plainest."""
        schema = resolved(schema)
        if "const" in schema:
            yield schema["const"]
        elif "enum" in schema:
            yield from schema["enum"]
        elif "object" not in types(schema) and any(keyword in schema for keyword in ("anyOf", "oneOf")):
            for branch in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
                yield from self.good(branch, name)
        elif not types(schema):
            yield from ({"a": [1]}, *KINDS.values())
        for kind in types(schema) if "const" not in schema and "enum" not in schema else ():
            yield from getattr(self, f"good_{kind}")(schema, name)

    def good_null(self, _: Any, __: str) -> Iterator[Any]:
        yield None

    def good_boolean(self, _: Any, __: str) -> Iterator[Any]:
        yield from (True, False)

    def good_integer(self, schema: Any, name: str) -> Iterator[Any]:
        least, most = schema.get("minimum", 0), schema.get("maximum", 2**70)
        yield min(max(self.known.get(name, 1000), least), most)
        yield from (least, most)

    def good_number(self, schema: Any, _: str) -> Iterator[Any]:
        yield from (1.5, schema.get("minimum", 0.001), schema.get("maximum", 1e300))

    def good_string(self, schema: Any, name: str) -> Iterator[Any]:
        yield self.known.get(name, "a1")
        yield "a" * max(schema.get("minLength", 0), 1)
        if "maxLength" in schema:
            yield "a" * schema["maxLength"]

    def good_array(self, schema: Any, name: str) -> Iterator[Any]:
        items = list(self.good(schema.get("items", True), name))
        yield items[:1]
        yield []
        for item in items[1:]:
            yield [item]
        if "maxItems" in schema:
            yield self.several(items[0], schema["maxItems"])

    def good_object(self, schema: Any, _: str) -> Iterator[Any]:
        for case, members in self.differing(schema):
            plain, all_members = self.plain(case), case.get("properties", {})
            yield plain
            yield {**plain, **{name: self.first(member, name) for name, member in all_members.items()}}
            for name, member in members.items():
                for value in self.good(member, name):
                    yield {**plain, name: value}
            if not all_members:
                yield {"a1": [{}]}
            if isinstance(case.get("additionalProperties"), dict):
                values = list(self.good(case["additionalProperties"]))
                yield from ({**plain, "a1": value} for value in values)
                yield {**plain, **{f"a{number}": values[0] for number in range(case.get("maxProperties", 2))}}

    def differing(self, schema: Any) -> Iterator[Tuple[Dict[str, Any], Dict[str, Any]]]:
        """The cases of an object, each with those of its members that the cases before it do not have in the same way."""
        seen = set()
        for case in cases(schema):
            fresh = {}
            for name, member in case.get("properties", {}).items():
                text = name + json.dumps(resolved(member), sort_keys=True)
                if text not in seen:
                    seen.add(text)
                    fresh[name] = member
            yield case, fresh

    def plain(self, case: Any) -> Dict[str, Any]:
        """What it asks for and nothing else."""
        members = case.get("properties", {})
        return {name: self.first(members.get(name, True), name) for name in case.get("required", ())}

    def first(self, schema: Any, name: str) -> Any:
        return next(self.good(schema, name))

    def several(self, item: Any, count: int) -> List[Any]:
        """Items that differ where they have names."""
        if not isinstance(item, dict) or "id" not in item:
            return [item] * count
        return [{**item, "id": f"t{number}"} for number in range(count)]

    def bad(self, schema: Any, name: str = "") -> Iterator[Any]:
        """With some that are right after all: the validator says which."""
        schema = resolved(schema)
        yield from KINDS.values()
        if "const" in schema or "enum" in schema:
            yield "no-such-word"
            return
        if "object" not in types(schema):
            for branch in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
                yield from self.bad(branch, name)
        for kind in types(schema):
            yield from getattr(self, f"bad_{kind}")(schema, name)

    def bad_null(self, _: Any, __: str) -> Iterator[Any]:
        yield from ()

    bad_boolean = bad_null

    def bad_integer(self, schema: Any, _: str) -> Iterator[Any]:
        if "minimum" in schema:
            yield schema["minimum"] - 1
        if "maximum" in schema:
            yield schema["maximum"] + 1

    def bad_number(self, schema: Any, name: str) -> Iterator[Any]:
        yield from self.bad_integer(schema, name)
        if "exclusiveMinimum" in schema:
            yield schema["exclusiveMinimum"]

    def bad_string(self, schema: Any, _: str) -> Iterator[Any]:
        if schema.get("minLength", 0) > 1:
            yield "a" * (schema["minLength"] - 1)
        if "maxLength" in schema:
            yield "a" * (schema["maxLength"] + 1)
        if any(keyword in schema for keyword in ("pattern", "minLength", "not")):
            yield from ODD_TEXTS

    def bad_array(self, schema: Any, name: str) -> Iterator[Any]:
        items = schema.get("items", True)
        yield []
        if "maxItems" in schema:
            yield self.several(self.first(items, name), schema["maxItems"] + 1)
        for item in self.bad(items, name):
            yield [item]

    def bad_object(self, schema: Any, _: str) -> Iterator[Any]:
        for case, members in self.differing(schema):
            plain = self.plain(case)
            for name in case.get("required", ()):
                yield {other: value for other, value in plain.items() if other != name}
            if case.get("additionalProperties") is False:
                yield {**plain, "no_such_member": 1}
            if isinstance(case.get("additionalProperties"), dict):
                value = self.first(case["additionalProperties"], "")
                yield from ({**plain, "a1": bad} for bad in self.bad(case["additionalProperties"]))
                yield from ({**plain, name: value} for name in ODD_TEXTS if "propertyNames" in case)
                yield {**plain, **{f"a{number}": value for number in range(case.get("maxProperties", 2) + 1)}}
            for name, member in members.items():
                for value in self.bad(member, name):
                    yield {**plain, name: value}


# Where parameters stand for each other none of them is required, and what is made of the schema says too little or too much.
WHOLE: Dict[str, Any] = {"mcp_connect": {"server": "a1", "agent_id": "a1"}}


def requests(maker: Maker, method: str) -> Iterator[Any]:
    """Requests that differ in their parameters."""
    params = DEFS[f"{method}.request"]["properties"]["params"]
    whole = [WHOLE[method]] if method in WHOLE else []
    for value in [*whole, *maker.good(params), *maker.bad(params)]:
        yield {"jsonrpc": "2.0", "method": method, "params": value, "id": 1}


def envelopes(maker: Maker, method: str) -> Iterator[Any]:
    """Requests that differ in what is around their parameters."""
    request = DEFS[f"{method}.request"]
    request = {**request, "properties": {**request["properties"], "params": {"const": {}}}}
    yield from maker.good(request)
    for value in maker.bad(request):
        # With an id it is answered.
        yield {"id": 1, **value} if isinstance(value, dict) else value


def distinct(made: Iterator[Any]) -> Iterator[Any]:
    seen = set()
    for value in made:
        text = json.dumps(value, sort_keys=True)
        if text not in seen:
            seen.add(text)
            yield value


def faults(error: ValidationError) -> Iterator[str]:
    """Where the schema finds a fault, as JSON pointers into the parameters."""
    if error.context:
        for inner in error.context:
            yield from faults(inner)
        return
    names: List[Any] = [""]
    if error.validator == "required":
        names = [name for name in error.validator_value if name not in error.instance]
    elif error.validator == "additionalProperties":
        names = [name for name in error.instance if name not in error.schema.get("properties", {})]
    at = "".join(f"/{part}" for part in list(error.absolute_path)[1:])
    yield from (f"{at}/{name}" if name else at for name in names)


class Peer:
    """Speaks HTTP to a server that is started again whenever it was told to stop, and checks all that it says."""

    def __init__(self, world: World) -> None:
        self.server = Server(world)
        self.message = validator("ServerMessage")
        self.connect()

    def connect(self) -> None:
        token = (self.server.world.home / f"rpc-{self.server.port}.token").read_text().strip()
        self.headers = {"Authorization": f"Bearer {token}"}
        self.connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)

    def another(self) -> Peer:
        """A second connection to the same server."""
        peer = copy.copy(self)
        peer.connect()
        return peer

    def exchange(self, request: Any, stream: bool = False) -> List[Dict[str, Any]]:
        """All that is answered, the response last; nothing for a notification. A watch is ended once it has begun."""
        headers = {**self.headers, **({"Accept": "text/event-stream"} if stream else {})}
        self.connection.request("POST", "/rpc", json.dumps(request).encode(), headers)
        answer = self.connection.getresponse()
        if not answer.getheader("content-type", "").startswith("text/event-stream"):
            body = answer.read()
            return [] if answer.status == 202 else [json.loads(body)]
        messages: List[Dict[str, Any]] = []
        for line in answer:
            if line.startswith(b"data: "):
                messages.append(json.loads(line[len("data: ") :]))
                if messages[-1].get("params", {}).get("event", {}).get("type") == "snapshot":
                    self.unwatch(messages[-1]["params"]["watch_id"])
        return messages

    def unwatch(self, watch_id: str) -> None:
        other = self.another()
        other.call("unwatch", watch_id=watch_id)
        other.connection.close()

    def call(self, method: str, **params: Any) -> Any:
        return self.exchange({"jsonrpc": "2.0", "method": method, "params": params, "id": 1})[-1].get("result")

    def revive(self) -> None:
        """Waits for a server that was asked to stop, and starts it again."""
        self.connection.close()
        self.server.process.wait(60)
        self.server.restart()
        self.connect()

    def close(self) -> None:
        self.connection.close()
        self.server.stop()


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    # A schema allows longer texts than a body may have by default.
    limits = {"body_bytes_max": 8 << 20}
    # One that has the name that texts have here. Python's own files are not beside a virtual environment's program.
    tests = ROOT / "clients" / "python" / "tests"
    small = {
        "command": [sys.executable, str(tests / "mcp_server.py")],
        "sandbox": {"read": [str(tests), sys.base_prefix], "network": False},
    }
    world = World(
        tmp_path_factory.mktemp("schemas"),
        limits,
        permissions={"approvals": "ask"},
        auth={"hmac": {"mode": "optional"}},
        mcp_servers={"a1": small},
    )
    peer = Peer(world)
    yield peer
    peer.close()
    world.close()


def known(peer: Peer) -> Dict[str, Any]:
    """What there is on the server, under the names of the parameters that ask for it."""
    peer.call("create_agent", agent_id="a1", mcp={"a1": ["*"]})
    task = {"id": "t1", "type": "analysis", "description": "Look"}
    return {
        "model": "scripted",
        "preset": "sandboxed",
        "cwd": ".",
        "language": "python",
        "tool": "read_file",
        "provider": "scripted",
        "since": "2026-01-01T00:00:00Z",
        "current_directory": str(peer.server.world.directory),
        "uri": "file:///a1",
        "new_name": "b1",
        "dest_session": "c1",
        "plan_id": peer.call("run_plan", plan={"tasks": [task]})["plan_id"],
        "memory_id": peer.call("memory.add", content="Water is wet")["id"],
    }


def waiting_approval(peer: Peer) -> str:
    """The id of what waits for somebody's leave."""
    directory = peer.server.world.directory
    peer.call("create_agent", agent_id="p1", preset="trusted", cwd=str(directory / ".nexus3" / "logs"))
    order = json.dumps({"path": str(directory / "a1.txt"), "content": "x"})

    def ask() -> None:
        other = peer.another()
        other.call("send", agent_id="p1", content=f"call write_file {order}")
        other.connection.close()

    threading.Thread(target=ask, daemon=True).start()
    while not (waiting := peer.call("list_approvals")["approvals"]):
        time.sleep(0.005)
    return str(waiting[0]["approval_id"])


def cut_turn(peer: Peer) -> None:
    """A turn of the default agent that can be resumed."""
    peer.call("send", content="slowly 3", timeout_ms=30, request_id="a1")


# What has to be there before each call of a method so that it can be answered.
BEFORE: Dict[str, Callable[[Peer], None]] = {"resume_turn": cut_turn}


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(DOCUMENT)


@pytest.mark.parametrize("method", METHODS)
def test_the_server_agrees(method: str, peer: Peer) -> None:
    there = known(peer)
    if "approval_id" in DEFS[f"{method}.params"]["properties"]:
        there["approval_id"] = waiting_approval(peer)
    agree(peer, method, requests(Maker(there), method))


def test_the_server_agrees_on_the_envelope(peer: Peer) -> None:
    agree(peer, "rpc.version", envelopes(Maker({}), "rpc.version"))


def agree(peer: Peer, method: str, made: Iterator[Any]) -> None:
    request, response = validator(f"{method}.request"), validator(f"{method}.response")
    disagreements: List[str] = []
    accepts = refuses = answers = 0
    for instance in distinct(made):
        if method in BEFORE:
            BEFORE[method](peer)
        text = json.dumps(instance)
        errors = list(request.iter_errors(instance))
        messages = peer.exchange(instance, stream=method == "watch" or '"stream": true' in text)
        for notification in messages[:-1]:
            validator(notification["method"]).validate(notification)
        if messages:
            response.validate(messages[-1])
            answers += "result" in messages[-1]
        error = messages[-1].get("error", {}) if messages else {}
        accepts, refuses = accepts + (not errors), refuses + bool(errors)
        if errors and not is_refused(error, errors) or not errors and is_malformed(error):
            verdict = "; ".join(sorted({it.message[:200] for it in errors})) or "accepted"
            disagreements.append(f"{text[:300]}\n  schema: {verdict}\n  server: {error}")
        if method.startswith("shutdown") and not error and not (instance["params"] or {}).get("agent_id"):
            peer.revive()
    print(f"{method}: {accepts} accepted, {refuses} refused, {answers} answered")
    assert not disagreements, f"{len(disagreements)} disagreements\n" + "\n".join(disagreements[:40])
    assert accepts and refuses and answers


def is_malformed(error: Dict[str, Any]) -> bool:
    """Whether a request was refused for its shape."""
    code = error.get("code")
    return code in (-32700, -32600, -32601) or (code == -32602 and not MEANT.search(error["message"]))


def is_refused(error: Dict[str, Any], errors: List[ValidationError]) -> bool:
    """Whether a request was refused for what the schema finds wrong with it."""
    if any(list(it.absolute_path)[:1] != ["params"] for it in errors):
        return error.get("code") in (-32600, -32601)
    if error.get("code") not in (-32600, -32602):
        return False
    found = {pointer for it in errors for pointer in faults(it)}
    path = error.get("data", {}).get("path", "")
    # What is no object lacks whatever is wanted of it.
    if found == {""} and not isinstance(errors[0].instance, dict):
        return True
    return any(pointer == path or pointer.startswith(f"{path}/") for pointer in found)
