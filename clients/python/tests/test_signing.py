"""Requests that are signed: what is signed of them, with what, and that a server agrees."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any, Callable, Dict, Iterator, List

import pytest
from conftest import BIN, ROOT, RawServer, Server, World, error, http, result
from faces import FACES, Connect

from nexus3 import client, sync
from nexus3._rpc import Call, request_bytes
from nexus3._signing import SigningKey, canonical
from nexus3.client import ClientError, RpcError

VECTORS = json.loads((ROOT / "docs" / "signing" / "vectors.json").read_text())
SECRET = "nxs_secret-of-the-tests"


@pytest.mark.parametrize("vector", VECTORS, ids=lambda it: it["name"])
def test_the_vectors_are_signed_as_they_should_be(vector: Dict[str, str]) -> None:
    form = canonical(json.loads(vector["request"]))
    assert form == vector["canonical"]
    assert SigningKey("a:" + vector["secret"]).signature(form) == vector["signature"]


def test_numbers_are_written_as_in_javascript() -> None:
    for value, form in (
        (0.1, "0.1"),
        (-0.0, "0"),
        (100.0, "100"),
        (-1.5, "-1.5"),
        (123456789.125, "123456789.125"),
        (1e21, "1e+21"),
        (1.5e21, "1.5e+21"),
        (1e20, "100000000000000000000"),
        (123e18, "123000000000000000000"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (1e16, "10000000000000000"),
        (12345678901234567.0, "12345678901234568"),
        (2**53, "9007199254740992"),
        (-(2**53), "-9007199254740992"),
        (10**20, "100000000000000000000"),
    ):
        assert canonical(value) == form
        assert float(form) == value


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**60, 10**21, 10**400])
def test_an_integer_that_no_double_is_alone_is_not_sent(
    number: int, raw_server: Callable[..., RawServer]
) -> None:
    peer = raw_server(lambda connection, request: connection.sendall(http(result(request, 1))))
    with sync.NexusClient(peer.url, token="", signing_key=f"ci:{SECRET}") as caller:
        with pytest.raises(ClientError, match="cannot be signed"):
            caller.call("x", {"deep": [{"n": number}]})
        assert peer.requests == []
        with pytest.raises(ClientError, match="cannot be written as JSON"):
            caller.call("x", {"n": float("nan")})
        assert peer.requests == []
    with sync.NexusClient(peer.url, token="") as caller:
        assert caller.call("x", {"n": number}) == 1


def test_what_json_makes_of_a_value_is_signed() -> None:
    call = Call(1, "m", {"t": (1, 2.0), "o": {1: True, None: None}}, key=SigningKey(f":{SECRET}"))
    request = json.loads(request_bytes(call))
    assert request["params"] == {"t": [1, 2], "o": {"1": True, "null": None}}
    assert "key_id" not in request["auth"]
    signature = request["auth"].pop("signature")
    assert SigningKey(f":{SECRET}").signature(canonical(request)) == signature


@pytest.mark.parametrize("key", ["", "ci", SECRET, "ci:", "x" * 256 + ":" + SECRET])
def test_a_malformed_key_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (client.NexusClient, sync.NexusClient):
        for make in (kind, kind.over_socket, kind.over_stdio):
            with pytest.raises(ClientError, match="must be ID:SECRET") as raised:
                make(signing_key=key)
            assert SECRET not in str(raised.value)
    monkeypatch.setenv("NEXUS3_SIGNING_KEY", key)
    if key:
        with pytest.raises(ClientError, match="must be ID:SECRET"):
            client.NexusClient()
    else:
        client.NexusClient()


def test_the_secret_is_in_no_text() -> None:
    key = SigningKey(f"ci:{SECRET}")
    assert SECRET not in repr(key) + str(key) + repr(Call(1, "m", {}, key=key))
    assert SECRET.encode() not in request_bytes(Call(1, "m", {}, key=key))


def bodies(peer: RawServer) -> List[Any]:
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in peer.requests]


@pytest.mark.parametrize("code, status", [(-32001, "503 Service Unavailable"), (-32002, "429 Too Many Requests")])
def test_each_try_is_signed_anew(
    code: int, status: str, raw_server: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(connection: Any, request: bytes) -> None:
        busy = http(error(request, code, {"retry_after_ms": 1}), status)
        connection.sendall(busy if len(peer.requests) < 3 else http(result(request, 7)))

    peer = raw_server(twice)
    monkeypatch.setenv("NEXUS3_SIGNING_KEY", f" ci:{SECRET}\n")
    with sync.NexusClient(peer.url, token="") as caller:
        assert caller.call("x", {"idempotency_key": "k"}) == 7
    sent = bodies(peer)
    assert len(sent) == 3
    assert len({it["auth"]["nonce"] for it in sent}) == 3
    assert len({it["auth"]["signature"] for it in sent}) == 3
    for request in sent:
        signature = request["auth"].pop("signature")
        assert SigningKey(f"ci:{SECRET}").signature(canonical(request)) == signature
        assert request["auth"]["key_id"] == "ci" and len(request["auth"]["nonce"]) == 22


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes nothing unsigned."""
    world = World(tmp_path_factory.mktemp("signing"), auth={"hmac": {"mode": "required"}})
    server = Server(world)
    yield server
    server.stop()
    world.close()


@pytest.fixture(scope="module")
def key(strict: Server) -> str:
    command = [str(BIN / "nexus3"), "key", "create", "ci"]
    made = subprocess.run(command, env=strict.world.env, capture_output=True, text=True, check=True)
    return "ci:{}".format(json.loads(made.stdout)["key"])


@pytest.fixture(params=FACES)
def connect(request: pytest.FixtureRequest, strict: Server, monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setenv("NEXUS3_HOME", str(strict.world.home))
    return FACES[request.param]


def test_a_server_takes_what_is_signed(connect: Connect, strict: Server, key: str) -> None:
    async def main() -> None:
        async with connect(strict, signing_key=key) as caller:
            assert (await caller.rpc_version())["name"] == "nexus3"
            made = await caller.create_agent(".")
            agent = caller.agent(made["agent_id"])
            assert (await agent.send("say grüße 🐍"))["content"] == "grüße 🐍"
            stream = agent.send_stream("say one two three")
            assert "".join([piece async for piece in stream]) == "one two three"
            assert (await stream.result())["stop_reason"] == "end_turn"
            # Who breaks out cancels the turn, with a call that is signed as well.
            stream = agent.send_stream("hang")
            async for _ in stream:
                break
            await stream.aclose()
            assert (await agent.send("say again"))["content"] == "again"
            # Once carried out, and asked for again with another signature.
            for _ in range(2):
                assert (await agent.send("say once", idempotency_key="k"))["content"] == "once"
            assert (await agent.get_context())["message_count"] == 10
            await caller.destroy_agent(made["agent_id"])

    asyncio.run(main())


def test_a_server_takes_nothing_else(connect: Connect, strict: Server, key: str) -> None:
    async def main() -> None:
        for wrong in (None, "ci:" + SECRET, "nobody" + key[2:], key[2:]):
            async with connect(strict, signing_key=wrong) as caller:
                with pytest.raises(RpcError) as raised:
                    await caller.rpc_version()
                assert raised.value.code == -32003
                assert key[3:] not in str(raised.value) + repr(raised.value)

    asyncio.run(main())


def test_two_hundred_at_once(connect: Connect, strict: Server, key: str) -> None:
    async def main() -> None:
        async with connect(strict, signing_key=key) as caller:
            versions = await asyncio.gather(*(caller.rpc_version() for _ in range(200)))
            assert all(version["name"] == "nexus3" for version in versions)

    asyncio.run(main())
