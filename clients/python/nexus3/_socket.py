"""Calls over the framed Unix socket: a length of four bytes, big-endian, and that many bytes of JSON, both ways."""

from __future__ import annotations

import os
import struct
from typing import Optional

from ._io import IO, Connection
from ._reader import Reader
from ._retry import Deadline
from ._rpc import Call, Message, read_message, request_bytes
from ._transport import Exchange, Pool, lost
from .errors import AnswerError, ClientError, ConnectError

# Largest frame, both ways; the server's own limit.
FRAME_BYTES_MAX = 10 << 20


def default_path() -> str:
    """Where a server on this machine opens its socket."""
    path = os.environ.get("ASH_RPC_SOCKET") or "/run/ash/rpc.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if os.path.exists(path) or os.environ.get("ASH_RPC_SOCKET") or not runtime:
        return path
    return os.path.join(runtime, "ash", "rpc.sock")


class SocketTransport:
    """The user of the process is the credential."""

    def __init__(self, io: IO, path: str) -> None:
        self._path = path
        self._pool = Pool(io, path)

    async def begin(self, call: Call, deadline: Deadline) -> Exchange:
        body = request_bytes(call.addressed())
        if len(body) > FRAME_BYTES_MAX:
            raise ClientError(f"the call is over {FRAME_BYTES_MAX} bytes, which is the limit of the socket")
        connection = await self._pool.take(deadline)
        with self._pool.carrying(connection):
            self._check_peer(connection)
            connection.write(struct.pack(">I", len(body)) + body, deadline)
        return Frames(self._pool, connection, Reader(connection.read, deadline))

    def _check_peer(self, connection: Connection) -> None:
        """Where another user could lay a socket before the server did, he would be told everything that is said."""
        uid = connection.peer_uid()
        if uid not in (None, os.geteuid(), 0):
            raise ConnectError(f"no connection to {self._path}: who listens there is another user ({uid})")

    async def close(self) -> None:
        await self._pool.close()


class Frames:
    def __init__(self, pool: Pool, connection: Connection, reader: Reader) -> None:
        self._pool = pool
        self._connection = connection
        self._reader = reader
        self._length: Optional[int] = None

    async def next(self) -> Message:
        try:
            if self._length is None:
                (self._length,) = struct.unpack(">I", await self._reader.exactly(4))
            if self._length > FRAME_BYTES_MAX:
                raise AnswerError(f"not an answer: a frame of {self._length} bytes is over {FRAME_BYTES_MAX}")
            frame = await self._reader.exactly(self._length)
        except (OSError, EOFError) as error:
            raise lost(error) from error
        self._length = None
        return read_message(frame)

    async def finish(self) -> None:
        self._pool.release(self._connection, self._reader.is_empty)

    def abandon(self) -> None:
        self._pool.drop(self._connection)
