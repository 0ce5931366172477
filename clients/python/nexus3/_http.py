"""Calls over HTTP/1.1: as much of it as the server speaks, without a proxy, a redirect or compression."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple
from urllib.parse import quote, urlsplit

from . import _token
from ._io import IO, Connection, OutOfTime
from ._reader import ANSWER_BYTES_MAX, Reader
from ._retry import Deadline
from ._rpc import Call, Message, read_message, request_bytes, shown
from ._transport import Exchange, Pool, lost
from .errors import AnswerError, ClientError

HEAD_BYTES_MAX = 64 << 10
# For the end of a body whose answer is there. Without it the connection is not used again.
FINISH_TIMEOUT_SECONDS = 1.0
FORBIDDEN = -32003


class HttpTransport:
    """`token` None: it is looked for, and only for this machine."""

    def __init__(self, io: IO, url: str, token: Optional[str], identity: Optional[str]) -> None:
        host, self._port = parse_url(url)
        self._pool = Pool(io, (host, self._port))
        self._host = authority(host, self._port)
        self._looks = token is None and _token.is_ours(host)
        self._token = self._find() if token is None else _token.usable(token, "the caller")
        if identity is not None and not (identity.isascii() and identity.isprintable()):
            raise ClientError(f"not the name of an agent: {identity!r}")
        self._identity = identity

    def _find(self) -> Optional[str]:
        return _token.find(self._port) if self._looks else None

    def _request(self, call: Call) -> bytes:
        path = "/rpc" if call.agent_id is None else "/agent/" + quote(call.agent_id, safe="")
        accept = "text/event-stream" if call.stream else "application/json"
        body = request_bytes(call)
        token = f"authorization: Bearer {self._token}\r\n" if self._token else ""
        identity = f"x-nexus-agent: {self._identity}\r\n" if self._identity else ""
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
            f"accept: {accept}\r\n{token}{identity}content-length: {len(body)}\r\n\r\n"
        )
        return head.encode("ascii") + body

    async def begin(self, call: Call, deadline: Deadline) -> Exchange:
        sent = self._token
        exchange, refused = await self._post(call, deadline)
        if refused and self._looks:
            # Refused at the door, so it has not run. A server that was started again has a new token.
            token = self._find()
            if token is not None and token != sent:
                self._token = token
                exchange, _ = await self._post(call, deadline)
        return exchange

    async def _post(self, call: Call, deadline: Deadline) -> Tuple[Exchange, bool]:
        """The exchange, and whether the token was refused."""
        request = self._request(call)
        connection = await self._pool.take(deadline)
        with self._pool.carrying(connection):
            try:
                connection.write(request, deadline)
            except OSError:
                pass  # it may have been answered before it was read whole; the reading tells
            reader = Reader(connection.read, deadline)
            status, headers = await read_head(reader)
            body = Body(reader, headers)
            if headers.get("content-type", "").startswith("text/event-stream"):
                return Events(self._pool, connection, reader, body), False
            message = read_answer(status, await body.whole())
            self._pool.release(connection, body.is_reusable)
        problem = message.get("error")
        refused = status in (401, 403) and isinstance(problem, dict) and problem.get("code") == FORBIDDEN
        return Answered(message), refused

    async def close(self) -> None:
        await self._pool.close()


class Answered:
    """The whole answer was one message."""

    def __init__(self, message: Message) -> None:
        self._message = message

    async def next(self) -> Message:
        return self._message

    async def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class Events:
    """Server-sent events with a message in each."""

    def __init__(self, pool: Pool, connection: Connection, reader: Reader, body: Body) -> None:
        self._pool = pool
        self._connection = connection
        self._reader = reader
        self._body = body
        self._lines = Reader(body.read, reader.deadline)
        self._data: List[bytes] = []

    async def next(self) -> Message:
        try:
            while True:
                line = await self._lines.line()
                if line.startswith(b"data:"):
                    self._data.append(line[5:])
                elif not line and self._data:
                    data, self._data = b"\n".join(self._data), []
                    return read_message(data)
        except (OSError, EOFError) as error:
            raise lost(error) from error

    async def finish(self) -> None:
        self._reader.deadline = Deadline(FINISH_TIMEOUT_SECONDS)
        with self._pool.carrying(self._connection):
            try:
                while await self._body.read():
                    pass
            except (OSError, EOFError, ClientError, OutOfTime):
                pass  # which leaves it unfit for another call
        self._pool.release(self._connection, self._body.is_reusable)

    def abandon(self) -> None:
        self._pool.drop(self._connection)


async def read_head(reader: Reader) -> Tuple[int, Dict[str, str]]:
    """Status and headers of the answer, their names in lower case."""
    while True:
        version, _, rest = (await reader.line(HEAD_BYTES_MAX)).partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise AnswerError(f"not an answer: no HTTP in {shown(version + b' ' + rest)}")
        headers: Dict[str, str] = {}
        left = HEAD_BYTES_MAX
        while True:
            line = await reader.line(HEAD_BYTES_MAX)
            if not line:
                break
            left -= len(line)
            if left < 0:
                raise AnswerError(f"not an answer: its headers are over {HEAD_BYTES_MAX} bytes")
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if version == b"HTTP/1.0":
            headers.setdefault("connection", "close")
        if int(rest[:3]) >= 200:
            return int(rest[:3]), headers


class Body:
    """The body of an answer: chunked, of a length, or up to the end of the connection."""

    def __init__(self, reader: Reader, headers: Dict[str, str], bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._reader = reader
        self._bytes_max = bytes_max
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._closes = headers.get("connection", "").lower() == "close"
        length = headers.get("content-length")
        if length is not None and not (length.isascii() and length.isdigit()):
            raise AnswerError(f"not an answer: its length is {length[:80]!r}")
        # Bytes that are left of this chunk, or of the body; None up to the end of the connection.
        self._left: Optional[int] = 0 if self._chunked else None if length is None else int(length)
        self._ended = False

    @property
    def is_reusable(self) -> bool:
        """Whether the connection can carry another call: it was read to its end, which it said itself."""
        return self._ended and not self._closes and self._left is not None and self._reader.is_empty

    async def whole(self) -> bytes:
        """All of it, in one piece."""
        if not self._chunked and self._left is not None:
            self._check(self._left)
            self._ended = True
            return await self._reader.exactly(self._left)
        pieces: List[bytes] = []
        size = 0
        while True:
            piece = await self.read()
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
            self._check(size)

    def _check(self, size: int) -> None:
        if size > self._bytes_max:
            raise AnswerError(f"not an answer: it is over {self._bytes_max} bytes")

    async def read(self, _: Optional[Deadline] = None) -> bytes:
        """Some bytes; none at its end."""
        if self._chunked and self._left == 0 and not self._ended:
            await self._next_chunk()
        if self._left == 0 or self._ended:
            self._ended = True
            return b""
        try:
            piece = await self._reader.some(self._bytes_max if self._left is None else self._left)
        except EOFError:
            if self._left is not None:
                raise
            self._ended = True
            return b""
        if self._left is not None:
            self._left -= len(piece)
        return piece

    async def _next_chunk(self) -> None:
        # Between two chunks stands an empty line.
        line = await self._reader.line(HEAD_BYTES_MAX) or await self._reader.line(HEAD_BYTES_MAX)
        size = line.partition(b";")[0].strip()
        try:
            self._left = int(size, 16)
        except ValueError:
            raise AnswerError(f"not an answer: a chunk's size is {shown(size)}") from None
        if self._left == 0:
            while await self._reader.line(HEAD_BYTES_MAX):
                pass  # trailers
            self._ended = True


def read_answer(status: int, body: bytes) -> Message:
    if not body:
        raise AnswerError(f"not an answer: HTTP {status} without a body")
    try:
        return read_message(body)
    except AnswerError as error:
        raise AnswerError(f"{error} (HTTP {status})") from None


def parse_url(url: str) -> Tuple[str, int]:
    """Host and port. The name `localhost` means two addresses, of which somebody else may have the other; a server is
    on the first."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError as error:
        raise ClientError(f"not the URL of a server: {url}: {error}") from None
    if parts.scheme != "http":
        problem = "it must start with http://"
    elif not host or not host.isascii() or not host.isprintable() or " " in host:
        problem = "it has no host"
    elif "@" in parts.netloc:
        problem = "it must not have a user; the token goes apart"
    elif parts.path not in ("", "/") or parts.query or parts.fragment:
        problem = "it must not have a path"
    else:
        return ("127.0.0.1" if host == "localhost" else host), port
    raise ClientError(f"not the URL of a server: {url}: {problem}")


def authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
