"""Servers that die, talk nonsense or keep still: each client says what happened and, where the rules allow, goes on."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, List, Tuple

import pytest
from conftest import RawServer, error, http, result
from faces import Waiting

from nexus3 import client, sync
from nexus3._http import HEAD_BYTES_MAX
from nexus3._io import UNREAD_BYTES_MAX, AsyncConnection
from nexus3._reader import ANSWER_BYTES_MAX
from nexus3._retry import Deadline, Tries
from nexus3._socket import default_path
from nexus3._transport import IDLE_MAX
from nexus3.client import (
    AnswerError,
    CallTimeout,
    ClientError,
    ConnectError,
    ConnectionLost,
    NexusClient,
    RpcError,
)

Start = Callable[..., RawServer]


@pytest.fixture(params=["async", "blocking"])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A client of a URL, of a path, or of a child that is this Python program."""

    def connect(where: Any, **options: Any) -> Any:
        kind: Any = client.NexusClient if request.param == "async" else sync.NexusClient
        if isinstance(where, Path):
            made = kind.over_socket(where, **options)
        elif where.startswith("http"):
            made = kind(where, **options)
        else:
            made = kind.over_stdio([sys.executable, "-c", where], **options)
        return made if request.param == "async" else Waiting(made)

    return connect


def ask(make: Callable[..., Any], where: Any, count: int = 1, **options: Any) -> Any:
    """The results of so many calls, one after another."""

    async def main() -> List[Any]:
        async with make(where, **options) as caller:
            return [await caller.call("x") for _ in range(count)]

    results = asyncio.run(main())
    return results[0] if count == 1 else results


def stream(make: Callable[..., Any], where: Any, **params: Any) -> Tuple[List[str], Any]:
    async def main() -> Tuple[List[str], Any]:
        async with make(where) as caller:
            made = caller.send_stream("Hello", **params)
            pieces = [piece async for piece in made]
            return pieces, await made.result()

    return asyncio.run(main())


def one_at_a_time(data: bytes) -> Callable[[socket.socket], None]:
    def send(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in data:
            connection.sendall(bytes([byte]))

    return send


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def notification(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}, ensure_ascii=False).encode()


def streamed(request: bytes, text: str, content: str) -> List[bytes]:
    """The messages of a stream of one chunk."""
    return [
        notification("stream_start", stream_id="s", task_id=1),
        notification("stream_data", stream_id="s", chunk=text, sequence=1),
        notification("stream_end", stream_id="s", total_chunks=1),
        result(request, {"content": content}),
    ]


def chunked(pieces: List[bytes], kind: str, end: bool = True) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    body = b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces)
    return head + body + (b"0\r\n\r\n" if end else b"")


def events(messages: List[bytes]) -> List[bytes]:
    return [b"data: " + message + b"\n\n" for message in messages]


# Split and joined


def test_answers_byte_by_byte(raw_server: Start, make: Callable[..., Any], tmp_path: Path) -> None:
    value = "grüße 🐍 " * 3
    over_http = raw_server(lambda peer, request: one_at_a_time(http(result(request, value)))(peer))
    assert ask(make, over_http.url) == value
    in_chunks = raw_server(
        lambda peer, request: one_at_a_time(chunked([bytes([b]) for b in result(request, value)], "application/json"))(peer)
    )
    assert ask(make, in_chunks.url, 2) == [value, value]
    sse = raw_server(
        lambda peer, request: one_at_a_time(chunked(events(streamed(request, value, value)), "text/event-stream"))(peer)
    )
    assert stream(make, sse.url) == ([value], {"content": value})

    def bytewise(peer: socket.socket, request: bytes) -> None:
        for byte in frame(result(request, value)):
            peer.sendall(bytes([byte]))

    framed = raw_server(bytewise, tmp_path / "s")
    assert ask(make, tmp_path / "s", 2) == [value, value] and framed.requests


def test_answers_split_at_every_byte(raw_server: Start, make: Callable[..., Any]) -> None:
    position = 0

    def halves(peer: socket.socket, request: bytes) -> None:
        nonlocal position
        answer = chunked(events(streamed(request, "grüße 🐍", "grüße 🐍")), "text/event-stream")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(answer[:position])
        peer.sendall(answer[position:])
        position += 1

    server = raw_server(halves)

    async def main() -> None:
        async with make(server.url) as caller:
            while position < 700:
                assert [piece async for piece in caller.send_stream("Hello")] == ["grüße 🐍"]

    asyncio.run(main())


def test_chunks_that_cut_events(raw_server: Start, make: Callable[..., Any]) -> None:
    def server(peer: socket.socket, request: bytes) -> None:
        whole = b": a comment\r\n\r\nevent: x\r\n" + b"".join(events(streamed(request, "äöü", "äöü")))
        peer.sendall(chunked([whole[at : at + 3] for at in range(0, len(whole), 3)], "text/event-stream"))

    assert stream(make, raw_server(server).url) == (["äöü"], {"content": "äöü"})


def test_two_answers_in_one_piece(make: Callable[..., Any]) -> None:
    child = """
import json, sys
lines = [json.loads(sys.stdin.readline()) for _ in range(2)]
answers = [json.dumps({"jsonrpc": "2.0", "id": line["id"], "result": line["params"]["n"]}) for line in lines]
sys.stdout.write("\\n".join(reversed(answers)) + "\\n")
sys.stdout.flush()
sys.stdin.read()
"""

    async def main() -> None:
        async with make(child) as caller:
            calls = [caller.call("x", {"n": number}) for number in (1, 2)]
            assert await asyncio.gather(*calls) == [1, 2]

    asyncio.run(main())


def test_an_answer_of_a_child_byte_by_byte(make: Callable[..., Any]) -> None:
    child = """
import json, sys
for line in sys.stdin:
    answer = json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": "grüße 🐍"}, ensure_ascii=False)
    for byte in answer.encode() + b"\\n":
        sys.stdout.buffer.write(bytes([byte]))
        sys.stdout.buffer.flush()
"""
    assert ask(make, child, 2) == ["grüße 🐍", "grüße 🐍"]


# Large


def test_an_answer_of_8_mib(raw_server: Start, make: Callable[..., Any], tmp_path: Path) -> None:
    text = "ä" * (4 << 20)
    whole = raw_server(lambda peer, request: peer.sendall(http(result(request, text))))
    assert ask(make, whole.url, 2) == [text, text]

    def sse(peer: socket.socket, request: bytes) -> None:
        answer = b"".join(events(streamed(request, text, text)))
        peer.sendall(chunked([answer[at : at + 65536] for at in range(0, len(answer), 65536)], "text/event-stream"))

    assert stream(make, raw_server(sse).url) == ([text], {"content": text})
    raw_server(lambda peer, request: peer.sendall(frame(result(request, text))), tmp_path / "s")
    assert ask(make, tmp_path / "s") == text
    child = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": "x" * (8 << 20)}), flush=True)
"""
    assert ask(make, child) == "x" * (8 << 20)


@pytest.mark.parametrize("extra", [0, 1])
def test_the_largest_answer(raw_server: Start, make: Callable[..., Any], tmp_path: Path, extra: int) -> None:
    def padded(request: bytes, size: int) -> bytes:
        empty = result(request, "")
        return empty[:-2] + b"x" * (size - len(empty)) + empty[-2:]

    def check(where: Any, limit: int) -> None:
        if extra:
            with pytest.raises(AnswerError, match=f"over {limit}"):
                ask(make, where)
        else:
            assert len(ask(make, where)) > limit - 100

    check(raw_server(lambda peer, it: peer.sendall(http(padded(it, ANSWER_BYTES_MAX + extra)))).url, ANSWER_BYTES_MAX)

    def in_chunks(peer: socket.socket, request: bytes) -> None:
        peer.sendall(chunked([padded(request, ANSWER_BYTES_MAX + extra)], "application/json"))

    check(raw_server(in_chunks).url, ANSWER_BYTES_MAX)
    raw_server(lambda peer, request: peer.sendall(frame(padded(request, (10 << 20) + extra))), tmp_path / "s")
    check(tmp_path / "s", 10 << 20)


@pytest.mark.parametrize("extra", [0, 1])
def test_the_largest_head(raw_server: Start, make: Callable[..., Any], extra: int) -> None:
    def server(peer: socket.socket, request: bytes) -> None:
        body = result(request, 1)
        length = f"content-length: {len(body)}\r\n"
        header = "x: " + "y" * (HEAD_BYTES_MAX - len(length.strip()) - len("x: ") + extra) + "\r\n"
        peer.sendall(f"HTTP/1.1 200 OK\r\n{length}{header}\r\n".encode() + body)

    if extra:
        with pytest.raises(AnswerError, match="over 65536 bytes"):
            ask(make, raw_server(server).url)
    else:
        assert ask(make, raw_server(server).url) == 1


# Death


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", http(b"x" * 99)[:-1], chunked([b"{"], "a", end=False)])
def test_a_server_that_dies_before_its_answer(raw_server: Start, make: Callable[..., Any], sent: bytes) -> None:
    def die(peer: socket.socket, _: bytes) -> None:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_RDWR)

    server = raw_server(die)
    with pytest.raises(ConnectionLost, match="the connection ended before the answer.*may have been carried out"):
        ask(make, server.url)
    assert len(server.requests) == 1


def test_a_server_that_dies_in_mid_stream(raw_server: Start, make: Callable[..., Any], tmp_path: Path) -> None:
    def sse(peer: socket.socket, request: bytes) -> None:
        peer.sendall(chunked(events(streamed(request, "half", ""))[:2], "text/event-stream", end=False))
        peer.shutdown(socket.SHUT_RDWR)

    def framed(peer: socket.socket, request: bytes) -> None:
        peer.sendall(b"".join(frame(message) for message in streamed(request, "half", "")[:2]) + b"\x00")
        peer.shutdown(socket.SHUT_RDWR)

    child = """
import json, sys
sys.stdin.readline()
print('{"jsonrpc":"2.0","method":"stream_start","params":{"stream_id":"s","task_id":1}}')
print('{"jsonrpc":"2.0","method":"stream_data","params":{"stream_id":"s","chunk":"half","sequence":1}}')
"""
    raw_server(framed, tmp_path / "s")

    async def main(where: Any) -> None:
        async with make(where) as caller:
            made = caller.send_stream("Hello")
            assert await made.__anext__() == "half"
            with pytest.raises(ConnectionLost, match="the connection ended before the answer"):
                await made.__anext__()
            with pytest.raises(ClientError, match="ended before its answer"):
                await made.result()

    for where in (raw_server(sse).url, tmp_path / "s", child):
        asyncio.run(main(where))


def test_a_child_that_dies_is_started_again(make: Callable[..., Any], tmp_path: Path) -> None:
    child = f"""
import json, pathlib, sys
line = json.loads(sys.stdin.readline())
if pathlib.Path({str(tmp_path / "second")!r}).exists():
    print(json.dumps({{"jsonrpc": "2.0", "id": line["id"], "result": "back"}}), flush=True)
    sys.stdin.read()
pathlib.Path({str(tmp_path / "second")!r}).touch()
sys.exit(3)
"""

    async def main() -> None:
        async with make(child) as caller:
            with pytest.raises(ConnectionLost, match="python.* ended with 3; the call may have been carried out"):
                await caller.call("x")
            assert await caller.call("x") == "back"

    asyncio.run(main())


def test_a_child_that_cannot_be_started(make: Callable[..., Any]) -> None:
    with pytest.raises(ClientError, match="/nonexistent/nexus3 cannot be started: .*No such file"):
        with sync.NexusClient.over_stdio(["/nonexistent/nexus3"]) as caller:
            caller.rpc_version()


def test_a_child_that_does_not_end_is_killed(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus3._stdio.END_TIMEOUT_SECONDS", 0.1)
    child = """
import json, signal, sys
line = json.loads(sys.stdin.readline())
print(json.dumps({"jsonrpc": "2.0", "id": line["id"], "result": 1}), flush=True)
signal.pause()
"""
    assert ask(make, child) == 1


def test_a_connection_that_was_closed_meanwhile(raw_server: Start, make: Callable[..., Any], tmp_path: Path) -> None:
    """The server may end a connection that waits for its next call; that call gets another one."""

    def once(peer: socket.socket, request: bytes) -> None:
        body = result(request, 1)
        peer.sendall(http(body) if request.startswith(b"POST") else frame(body))
        peer.shutdown(socket.SHUT_RDWR)

    server = raw_server(once)
    raw_server(once, tmp_path / "s")

    async def main(where: Any) -> None:
        async with make(where) as caller:
            for _ in range(5):
                assert await caller.call("x") == 1
                time.sleep(0.01)  # while the loop cannot see the end

    asyncio.run(main(server.url))
    asyncio.run(main(tmp_path / "s"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_client_of_two_loops(raw_server: Start) -> None:
    """What the first loop left open is of no use in the second, and Python says that it was left open."""
    server = raw_server(lambda peer, request: peer.sendall(http(result(request, 1))))
    caller = NexusClient(server.url)
    for _ in range(2):
        assert asyncio.run(caller.call("x")) == 1
    asyncio.run(caller.aclose())
    del caller
    gc.collect()


# Nonsense


@pytest.mark.parametrize(
    "answer, problem",
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no HTTP in 'SSH-2.0-OpenSSH_9.6 '"),
        (http(b"<html>"), "in '<html>' .*HTTP 200"),
        (http(b"<html>", "502 Bad Gateway", "text/html"), "in '<html>' .*HTTP 502"),
        (http(b"", "204 No Content"), "HTTP 204 without a body"),
        (http(b"[1]"), r"not an answer: '\[1\]'"),
        (http(b"\xff\xfe"), "not an answer"),
        (http(b"[" * 100_000), "not an answer"),
        (http(b"{}"), "neither an id nor an error"),
        (http(b'{"id":77,"result":1}'), "it is for call 77, not 1"),
        (http(b'{"id":"1","result":1}'), "it is for call '1', not 1"),
        (http(b'{"id":true,"result":1}'), "it is for call True, not 1"),
        (http(b'{"id":1,"error":"no"}'), "its error is 'no'"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "its length is '-1'"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "a chunk's size is 'zz'"),
        (b"HTTP/1.1 abc\r\n\r\n", "no HTTP in"),
    ],
)
def test_nonsense_over_http(raw_server: Start, make: Callable[..., Any], answer: bytes, problem: str) -> None:
    server = raw_server(lambda peer, _: peer.sendall(answer))
    with pytest.raises(AnswerError, match=problem):
        ask(make, server.url)
    assert len(server.requests) == 1


def test_nonsense_in_a_stream(raw_server: Start, make: Callable[..., Any]) -> None:
    for message in (b"{", b"[]", b'{"method":"stream_data","params":7}', b'{"id":9,"result":1}'):
        server = raw_server(lambda peer, _: peer.sendall(chunked(events([message]), "text/event-stream")))
        with pytest.raises(AnswerError):
            stream(make, server.url)
    unknown = [b'{"method":"stream_news","params":{}}', b'{"method":"stream_event","params":{"event":7}}']
    server = raw_server(
        lambda peer, request: peer.sendall(chunked(events(unknown + [result(request, "end")]), "text/event-stream"))
    )
    assert stream(make, server.url) == ([], "end")


def test_nonsense_of_a_child(make: Callable[..., Any]) -> None:
    with pytest.raises(AnswerError, match="in 'Welcome!'"):
        ask(make, "import sys; print('Welcome!', flush=True); sys.stdin.read()")


def test_other_ways_to_end_a_body(raw_server: Start, make: Callable[..., Any]) -> None:
    def until_closed(peer: socket.socket, request: bytes) -> None:
        peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + result(request, 1))
        peer.shutdown(socket.SHUT_RDWR)

    assert ask(make, raw_server(until_closed).url, 2) == [1, 1]

    def with_preliminaries(peer: socket.socket, request: bytes) -> None:
        body = b"5;a=b\r\n" + result(request, 1)[:5] + b"\r\n"
        rest = result(request, 1)[5:]
        body += f"{len(rest):X}\r\n".encode() + rest + b"\r\n0\r\ntrailer: x\r\n\r\n"
        head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        peer.sendall(head + body)

    assert ask(make, raw_server(with_preliminaries).url, 2) == [1, 1]


# Silence


def test_a_slow_server_is_given_up(raw_server: Start, make: Callable[..., Any], tmp_path: Path) -> None:
    silent = raw_server(lambda peer, request: None)
    raw_server(lambda peer, request: None, tmp_path / "s")
    child = "import sys; sys.stdin.read()"
    for where in (silent.url, tmp_path / "s", child):
        with pytest.raises(CallTimeout, match="no answer to x within 0.1 s; it was sent and may have been carried out"):
            ask(make, where, timeout=0.1)
    assert len(silent.requests) == 1


def test_what_a_timeout_says_of_a_turn(raw_server: Start, make: Callable[..., Any]) -> None:
    silent = raw_server(lambda peer, request: None)

    async def main() -> None:
        async with make(silent.url, timeout=0.1) as caller:
            with pytest.raises(CallTimeout, match=r"the turn may go on: cancel\('r'\) ends it, get_messages\(\)"):
                await caller.send("Hello", request_id="r")

    asyncio.run(main())


def test_slow_headers(raw_server: Start, make: Callable[..., Any]) -> None:
    server = raw_server(lambda peer, request: peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-le"))
    with pytest.raises(CallTimeout):
        ask(make, server.url, timeout=0.1)


def test_a_server_that_does_not_accept(make: Callable[..., Any], tmp_path: Path) -> None:
    """Its queue is full, so that nothing was sent."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        with socket.create_connection(address):
            with pytest.raises(ConnectError, match="no connection to .* within 0.2 s; nothing was sent"):
                ask(make, "http://{}:{}".format(*address), timeout=0.2)


def test_the_usual_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exists = {"/run/ash/rpc.sock"}
    monkeypatch.setattr("os.path.exists", lambda path: path in exists)
    assert default_path() == "/run/ash/rpc.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert default_path() == "/run/ash/rpc.sock"
    exists.clear()
    assert default_path() == "/run/user/7/ash/rpc.sock"
    monkeypatch.setenv("ASH_RPC_SOCKET", "/elsewhere")
    assert default_path() == "/elsewhere"


def test_no_socket(make: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="no connection to .*/none: No such file"):
        ask(make, tmp_path / "none")


def test_a_socket_of_another_user(
    raw_server: Start, make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = raw_server(lambda peer, request: peer.sendall(frame(result(request, 1))), tmp_path / "s")
    for kind in ("AsyncConnection", "BlockingConnection"):
        monkeypatch.setattr(f"nexus3._io.{kind}.peer_uid", lambda _: 12345)
    with pytest.raises(ConnectError, match=r"who listens there is another user \(12345\)"):
        ask(make, tmp_path / "s")
    assert server.requests == []


# Waiting and keeping


def test_a_stream_whose_end_does_not_come(raw_server: Start, make: Callable[..., Any]) -> None:
    """The answer is there, so it is given; the connection is not used again."""

    def server(peer: socket.socket, request: bytes) -> None:
        peer.sendall(chunked(events(streamed(request, "a", "a")), "text/event-stream", end=False))

    assert stream(make, raw_server(server).url) == (["a"], {"content": "a"})


def test_what_waits_for_a_reader_is_bounded() -> None:
    class Paused:
        paused = False

        def pause_reading(self) -> None:
            self.paused = True

        def resume_reading(self) -> None:
            self.paused = False

    async def main() -> None:
        connection, transport = AsyncConnection(), Paused()
        connection.connection_made(transport)  # type: ignore[arg-type]
        connection.data_received(b"x" * UNREAD_BYTES_MAX)
        assert not transport.paused
        connection.data_received(b"y")
        assert transport.paused
        assert len(await connection.read(Deadline(1.0))) == UNREAD_BYTES_MAX
        assert not transport.paused
        assert await connection.read(Deadline(1.0)) == b"y"

    asyncio.run(main())


@pytest.mark.parametrize("count, kept", [(IDLE_MAX, IDLE_MAX), (IDLE_MAX + 1, IDLE_MAX)])
def test_so_many_connections_are_kept(raw_server: Start, count: int, kept: int) -> None:
    together = threading.Barrier(count)

    def server(peer: socket.socket, request: bytes) -> None:
        together.wait()
        peer.sendall(http(result(request, 1)))

    started = raw_server(server)

    async def main() -> None:
        async with NexusClient(started.url) as caller:
            await asyncio.gather(*[caller.call("x") for _ in range(count)])
            pool = caller._core.transport._pool  # type: ignore[attr-defined]
            assert len(pool._idle) == len(pool._open) == kept

    asyncio.run(main())


def test_errors_can_be_pickled() -> None:
    raised = pickle.loads(pickle.dumps(RpcError(-32602, "No", {"path": "/a"})))
    assert (str(raised), raised.code, raised.data) == ("No (-32602)", -32602, {"path": "/a"})
    assert str(pickle.loads(pickle.dumps(ConnectionLost("gone")))) == "gone"


# Once more


def tries_of(raised: ClientError, keyed: bool = False, timeout: Any = None) -> Tuple[int, float]:
    """How often a call that always fails is tried, and how long it waits in between."""
    tries, waited, made = Tries(keyed, Deadline(timeout)), 0.0, 1
    while True:
        try:
            waited += tries.wait_after(raised)
            made += 1
        except ClientError as final:
            assert final is raised
            return made, waited


def test_what_has_not_run_is_tried_four_times() -> None:
    for raised in (
        ConnectError("refused"),
        RpcError(-32001, "full", {"retry_after_ms": 0}),
        RpcError(-32002, "slow down"),
        RpcError(-32002, "slow down", {"scope": "server"}),
    ):
        made, waited = tries_of(raised)
        assert made == 4 and waited <= 0.7


def test_what_may_have_run_is_tried_once() -> None:
    for raised in (
        ConnectionLost("closed"),
        CallTimeout("late"),
        AnswerError("garbage"),
        RpcError(-32603, "Oops"),
        RpcError(-32001, "No provider"),
        RpcError(-32003, "Not allowed"),
        RpcError(-32002, "", {"scope": "upstream", "retry_after_ms": 5}),
        RpcError(-32001, "", {"scope": "upstream", "retry_after_ms": 5}),
    ):
        assert tries_of(raised) == (1, 0.0)


def test_with_a_key_a_lost_answer_is_asked_for_again() -> None:
    assert tries_of(ConnectionLost("closed"), keyed=True)[0] == 4
    for raised in (RpcError(-32603, "Oops"), CallTimeout("late"), AnswerError("garbage")):
        assert tries_of(raised, keyed=True)[0] == 1


def test_the_server_says_how_long_to_wait() -> None:
    made, waited = tries_of(RpcError(-32001, "full", {"retry_after_ms": 5000}))
    assert made == 4 and 15.0 <= waited <= 15.7
    assert tries_of(RpcError(-32001, "", {"retry_after_ms": 60_000}))[0] == 4
    assert tries_of(RpcError(-32001, "", {"retry_after_ms": 62_001})) == (1, 0.0)
    # A wait that would pass the caller's deadline is not begun.
    assert tries_of(RpcError(-32001, "", {"retry_after_ms": 5000}), timeout=4.0) == (1, 0.0)


def test_turned_away_and_taken(raw_server: Start, make: Callable[..., Any]) -> None:
    def server(peer: socket.socket, request: bytes) -> None:
        if len(started.requests) < 3:
            peer.sendall(http(error(request, -32001, {"retry_after_ms": 1}), "503 Service Unavailable"))
        else:
            peer.sendall(http(result(request, "taken")))

    started = raw_server(server)
    assert ask(make, started.url) == "taken"
    assert len(started.requests) == 3


def test_a_lost_call_is_made_again_with_a_key(raw_server: Start, make: Callable[..., Any]) -> None:
    def server(peer: socket.socket, request: bytes) -> None:
        if len(started.requests) < 3:
            peer.shutdown(socket.SHUT_RDWR)
        else:
            peer.sendall(http(result(request, {"content": "once"})))

    for options in ({"idempotency_key": "k"}, {"options": {"idempotency_key": "k"}}):
        started = raw_server(server)

        async def main() -> None:
            async with make(started.url) as caller:
                assert await caller.call("send", {"content": "Hello", **options}) == {"content": "once"}

        asyncio.run(main())
        # To the byte: another call would not be known again.
        assert len(set(started.requests)) == 1 and len(started.requests) == 3


def test_a_lost_stream_goes_on_with_a_key(raw_server: Start, make: Callable[..., Any]) -> None:
    """What it is told again, the caller is not."""

    def server(peer: socket.socket, request: bytes) -> None:
        if len(started.requests) == 1:
            peer.sendall(chunked(events(streamed(request, "grüße ", ""))[:2], "text/event-stream", end=False))
            peer.shutdown(socket.SHUT_RDWR)
        else:
            peer.sendall(chunked(events(streamed(request, "grüße 🐍!", "grüße 🐍!")), "text/event-stream"))

    started = raw_server(server)
    assert stream(make, started.url, idempotency_key="k") == (["grüße ", "🐍!"], {"content": "grüße 🐍!"})
    started = raw_server(server)
    with pytest.raises(ConnectionLost):
        stream(make, started.url)
    assert len(started.requests) == 1
