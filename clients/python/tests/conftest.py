"""Real servers for the tests, and raw ones for what no honest server does.

A server lives in a world of its own: a temporary directory that is its home, and a scripted model that answers what the
last message orders (`say TEXT`, `slowly N`, `hang`, `call TOOL JSON`, `status N`; anything else comes back). It listens
on port 0 and on a socket in the world. The programs are those of the directory that `NEXUS3_BIN` names."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("NEXUS3_BIN", ROOT / "target" / "debug"))


class World:
    """A directory, and a model."""

    def __init__(self, directory: Path, server_keys: Optional[Dict[str, Any]] = None, **keys: Any) -> None:
        self.directory = directory
        self.home = directory / ".nexus3"
        self.home.mkdir(mode=0o700)
        self.model = subprocess.Popen(
            [BIN / "scripted-model"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.model.stdout is not None
        provider = {
            "type": "openai",
            "base_url": self.model.stdout.readline().strip(),
            "models": {"scripted": {"context_window": 200_000}},
            "max_retries": 0,
            "max_concurrent_calls": 1024,
        }
        config = {"providers": {"scripted": provider}, "server": server_keys or {}, **keys}
        (self.home / "config.json").write_text(json.dumps(config))

    @property
    def env(self) -> Dict[str, str]:
        """All that a program in this world knows of its environment."""
        path = f"{BIN}:{os.environ['PATH']}"
        return {"HOME": str(self.directory), "NEXUS3_HOME": str(self.home), "PATH": path}

    def close(self) -> None:
        self.model.communicate()


class Server:
    def __init__(self, world: World) -> None:
        self.world = world
        self.socket = world.directory / "rpc.sock"
        self._start(0)

    def _start(self, port: int) -> None:
        command = [str(BIN / "nexus3"), "serve", str(port), "--socket", str(self.socket), "--log-format", "json"]
        self.process = subprocess.Popen(
            command, env=self.world.env, cwd=self.world.directory, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.log: List[str] = []
        for line in self.process.stderr:
            self.log.append(line)
            if json.loads(line)["message"] == "listening":
                self.url: str = json.loads(line)["data"]["url"]
                break
        else:
            raise AssertionError("".join(self.log))
        self.port = int(self.url.rsplit(":", 1)[1])
        # Nobody else reads its log, and it must not wait for that.
        self._reader = threading.Thread(target=lambda log, stream: log.extend(stream), args=(self.log, self.process.stderr))
        self._reader.start()

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def restart(self, how: int = signal.SIGTERM) -> None:
        """On the same port, with another token."""
        self.stop(how)
        self._start(self.port)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a token nor a socket of the developer's own can be reached."""
    for name in ("NEXUS3_API_KEY", "NEXUS3_HOME", "NEXUS3_SIGNING_KEY", "ASH_RPC_SOCKET", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("world"))
    server = Server(world)
    yield server
    server.stop()
    world.close()


@pytest.fixture
def server(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """One that all tests share, whose token is found. Tests make agents of their own."""
    monkeypatch.setenv("NEXUS3_HOME", str(shared_server.world.home))
    return shared_server


@pytest.fixture
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """One that a test may stop, and start again."""
    world = World(tmp_path)
    server = Server(world)
    monkeypatch.setenv("NEXUS3_HOME", str(world.home))
    yield server
    if server.process.poll() is None:
        server.stop()
    else:
        server._reader.join()
        assert server.process.stderr is not None
        server.process.stderr.close()
    world.close()


Handler = Callable[[socket.socket, bytes], None]


class RawServer:
    """Takes connections and does with each request what it is told to, in a thread for each."""

    def __init__(self, handler: Handler, path: Optional[Path] = None) -> None:
        self._handler = handler
        self._listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self._listener.bind(str(path) if path else ("127.0.0.1", 0))
        self._listener.listen(64)
        self.url = "" if path else "http://127.0.0.1:{}".format(self._listener.getsockname()[1])
        self.requests: List[bytes] = []
        self._open: List[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while True:
                    request = read_request(connection)
                    if not request:
                        return
                    self.requests.append(request)
                    self._handler(connection, request)
            except OSError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join()


def read_request(connection: socket.socket) -> bytes:
    """A whole HTTP request, or a frame without its length."""
    data = b""
    while True:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
        if not data.startswith(b"POST"):
            if len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
                return data[4:]
            continue
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(body) >= length:
                return data


@pytest.fixture
def raw_server() -> Iterator[Callable[..., RawServer]]:
    servers: List[RawServer] = []

    def start(handler: Handler, path: Optional[Path] = None) -> RawServer:
        servers.append(RawServer(handler, path))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def id_of(request: bytes) -> Any:
    body = request.partition(b"\r\n\r\n")[2] if request.startswith(b"POST") else request
    return json.loads(body)["id"]


def http(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def result(request: bytes, value: Any) -> bytes:
    """The answer to a request, as JSON."""
    return json.dumps({"jsonrpc": "2.0", "id": id_of(request), "result": value}, ensure_ascii=False).encode()


def error(request: bytes, code: int, data: Any = None) -> bytes:
    problem = {"code": code, "message": "No", **({} if data is None else {"data": data})}
    return json.dumps({"jsonrpc": "2.0", "id": id_of(request), "error": problem}).encode()
