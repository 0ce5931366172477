"""Which token is found, and to whom it is sent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple

import pytest
from conftest import RawServer, Server, http, result
from faces import Waiting

from nexus3 import _token, sync
from nexus3._http import HttpTransport
from nexus3._io import AsyncIO
from nexus3.client import ClientError, ConnectionLost, NexusClient, RpcError

Files = List[Tuple[str, int, str]]


def lay(home: Path, files: Files) -> None:
    home.mkdir(exist_ok=True)
    for name, mode, text in files:
        (home / name).write_text(text)
        (home / name).chmod(mode)


BOTH: Files = [("rpc.token", 0o600, "default\n"), ("rpc-9000.token", 0o600, " nine ")]


@pytest.mark.parametrize(
    "key, files, port, expected",
    [
        ("key", BOTH, 9000, "key"),
        (" key\n", BOTH, 9000, "key"),
        ("", BOTH, 9000, "nine"),
        (None, BOTH, 9000, "nine"),
        (None, BOTH, 8765, "default"),
        # The file of another port would hand the token of the server there to whoever listens here.
        (None, BOTH, 9001, None),
        (None, [], 8765, None),
        (None, [("rpc-8765.token", 0o600, "misnamed")], 8765, None),
        (None, [("rpc-9000.token", 0o600, "\n"), BOTH[0]], 9000, None),
        (None, [("rpc.token", 0o400, "read-only")], 8765, "read-only"),
        (None, [("rpc.token", 0o600, "x" * 4096)], 8765, "x" * 4096),
        (None, [("rpc.token", 0o600, "x" * 4097)], 8765, "x" * 4096),
    ],
)
def test_where_it_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: Optional[str],
    files: Files,
    port: int,
    expected: Optional[str],
) -> None:
    lay(tmp_path / ".nexus3", files)
    if key is not None:
        monkeypatch.setenv("NEXUS3_API_KEY", key)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _token.find(port) == expected
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("NEXUS3_HOME", str(tmp_path / ".nexus3"))
    assert _token.find(port) == expected


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_file_that_others_may_read_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    lay(tmp_path, [("rpc-9000.token", mode, "open"), ("rpc.token", 0o600, "default")])
    monkeypatch.setenv("NEXUS3_HOME", str(tmp_path))
    with pytest.warns(UserWarning, match=rf"rpc-9000.token skipped: others may read it \(mode {mode:04o}\)"):
        assert _token.find(9000) is None


def test_a_file_of_another_user_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, [("rpc.token", 0o600, "theirs")])
    monkeypatch.setenv("NEXUS3_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(UserWarning, match="it belongs to another user"):
        assert _token.find(8765) is None


@pytest.mark.parametrize("token", ["schlüssel", "two words", "a\nb", "a\x7fb"])
def test_a_token_is_visible_ascii(token: str) -> None:
    with pytest.raises(ClientError, match="the token from the caller is not usable"):
        NexusClient(token=token)


@pytest.mark.parametrize(
    "url, sent",
    [
        ("http://127.0.0.1:9000", "nine"),
        ("http://localhost:9000/", "nine"),
        ("http://[::1]:9000", "nine"),
        ("http://127.0.0.2:9000", None),
        ("http://10.0.0.1:9000", None),
        ("http://127.0.0.1.example.com:9000", None),
        ("http://0.0.0.0:9000", None),
    ],
)
def test_it_is_sent_to_this_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, sent: Optional[str]
) -> None:
    lay(tmp_path, BOTH)
    monkeypatch.setenv("NEXUS3_HOME", str(tmp_path))
    assert HttpTransport(AsyncIO(), url, None, None)._token == sent
    monkeypatch.setenv("NEXUS3_API_KEY", "key")
    assert HttpTransport(AsyncIO(), url, None, None)._token == ("key" if sent else None)
    # What the caller gives is sent wherever the caller says.
    assert HttpTransport(AsyncIO(), url, "given", None)._token == "given"
    assert HttpTransport(AsyncIO(), url, "", None)._token is None


@pytest.mark.parametrize(
    "url, problem",
    [
        ("https://127.0.0.1:8765", "it must start with http://"),
        ("127.0.0.1:8765", "it must start with http://"),
        ("http://", "it has no host"),
        ("http://127.0.0.1:8765/rpc", "it must not have a path"),
        ("http://127.0.0.1:8765?a=b", "it must not have a path"),
        ("http://user@127.0.0.1:8765", "it must not have a user"),
        ("http://127.0.0.1:99999", "out of range"),
    ],
)
def test_urls_that_are_none(url: str, problem: str) -> None:
    with pytest.raises(ClientError, match=problem):
        NexusClient(url)


def test_what_is_sent(raw_server: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch) -> None:
    server = raw_server(lambda connection, request: connection.sendall(http(result(request, 1))))
    # A proxy of the environment would be handed the token.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    async def main() -> None:
        async with NexusClient(server.url, token="secret", agent_identity="worker") as client:
            await client.agent("a b/c").get_context()
            await client.list_agents()

    asyncio.run(main())
    first, second = server.requests
    assert first.startswith(b"POST /agent/a%20b%2Fc HTTP/1.1\r\n") and second.startswith(b"POST /rpc HTTP/1.1\r\n")
    assert b"\r\nauthorization: Bearer secret\r\n" in first and b"\r\nx-nexus-agent: worker\r\n" in first
    assert b"accept-encoding" not in first
    with pytest.raises(ClientError, match="not the name of an agent"):
        NexusClient(agent_identity="a\r\nb: c")


@pytest.mark.parametrize("make", [NexusClient, lambda url: Waiting(sync.NexusClient(url))], ids=["async", "blocking"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_server_that_is_started_again(own_server: Server, make: Callable[[str], Any], how: int) -> None:
    """It has a new token; the client looks for it, and goes on."""

    async def main() -> None:
        async with make(own_server.url) as client:
            await client.create_agent("worker")
            agent = client.agent("worker")
            await asyncio.gather(*[agent.get_context() for _ in range(5)])
            stream = agent.send_stream("hang" if how == signal.SIGKILL else "say hanging")
            assert await stream.__anext__() == "hanging"
            own_server.restart(how)
            if how == signal.SIGKILL:
                with pytest.raises(ConnectionLost, match="the connection ended before the answer"):
                    await stream.result()
            # All of these find the connection closed and the token wrong.
            await asyncio.gather(*[agent.get_context() for _ in range(5)])
            assert [piece async for piece in agent.send_stream("say back")] == ["back"]

    asyncio.run(main())


def test_a_client_that_was_there_before_its_server(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    home = os.environ["NEXUS3_HOME"]
    monkeypatch.delenv("NEXUS3_HOME")
    client = sync.NexusClient(own_server.url)
    with client:
        with pytest.raises(RpcError, match="Authentication failed"):
            client.list_agents()
        monkeypatch.setenv("NEXUS3_HOME", home)
        assert client.list_agents()["agents"] == []


def test_a_wrong_token_is_looked_for_once(raw_server: Callable[..., RawServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from conftest import error

    server = raw_server(lambda connection, request: connection.sendall(http(error(request, -32003), "403 Forbidden")))
    port = int(server.url.rsplit(":", 1)[1])
    monkeypatch.setenv("NEXUS3_HOME", str(tmp_path))
    lay(tmp_path, [(f"rpc-{port}.token", 0o600, "old")])
    with sync.NexusClient(server.url) as client:
        with pytest.raises(RpcError, match="-32003"):
            client.list_agents()
        assert len(server.requests) == 1
        lay(tmp_path, [(f"rpc-{port}.token", 0o600, "new")])
        with pytest.raises(RpcError, match="-32003"):
            client.list_agents()
    assert [b"Bearer old" in request for request in server.requests] == [True, True, False]


def test_a_forbidden_call_is_not_made_again(server: Server) -> None:
    """Not allowed is another thing than not known: the token stays."""
    with sync.NexusClient(server.url) as client:
        agent = client.create_agent(".")["agent_id"]
        with sync.NexusClient(server.url, agent_identity=agent) as lowered:
            with pytest.raises(RpcError, match="Not allowed"):
                lowered.shutdown_server()


def test_detection(server: Server, raw_server: Callable[..., RawServer]) -> None:
    from nexus3 import client as asynchronous

    def both(port: int, timeout: float = 10.0) -> asynchronous.Detection:
        found = sync.detect_server("localhost", port, timeout)
        assert asyncio.run(asynchronous.detect_server("127.0.0.1", port, timeout)) is found
        return found

    def answering(answer: bytes) -> int:
        return int(raw_server(lambda connection, _: connection.sendall(answer)).url.rsplit(":", 1)[1])

    assert both(server.port) is asynchronous.Detection.NEXUS_SERVER
    assert both(answering(b"220 mail.example.com ESMTP\r\n")) is asynchronous.Detection.OTHER_SERVICE
    assert both(answering(http(b"<html>", kind="text/html"))) is asynchronous.Detection.OTHER_SERVICE
    assert both(answering(http(b'{"jsonrpc":"2.0","id":1,"result":{}}'))) is asynchronous.Detection.OTHER_SERVICE
    refused = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
    assert both(answering(http(refused))) is asynchronous.Detection.OTHER_SERVICE
    ours = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"","data":{"type":"RESOURCE_UNAVAILABLE"}}}'
    assert both(answering(http(ours, "503 Busy"))) is asynchronous.Detection.NEXUS_SERVER
    # As long as an answer may be, and a byte longer.
    for extra, expected in ((0, "NEXUS_SERVER"), (1, "OTHER_SERVICE")):
        padded = ours + b" " * (65536 - len(ours) + extra)
        assert both(answering(http(padded))) is asynchronous.Detection[expected]
    silent = raw_server(lambda connection, request: None)
    assert both(int(silent.url.rsplit(":", 1)[1]), 0.2) is asynchronous.Detection.TIMEOUT
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert both(taken.getsockname()[1]) is asynchronous.Detection.NO_SERVER
        assert sync.wait_for_server("127.0.0.1", taken.getsockname()[1], 0.3) is False
    assert asyncio.run(asynchronous.wait_for_server("127.0.0.1", server.port)) is True
