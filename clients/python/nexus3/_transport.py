"""What carries calls: the interface, and what the transports with a connection for each call share."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Iterator, List, Optional, Protocol, Set

from ._io import IO, TIMEOUTS, Address, Connection
from ._retry import Deadline
from ._rpc import Call, Message
from .errors import ClientError, ConnectError, ConnectionLost

# A server on this machine accepts at once or not at all.
CONNECT_TIMEOUT_SECONDS = 5.0
# Connections kept for the next calls; more may be in use.
IDLE_MAX = 64


class Exchange(Protocol):
    """A call under way: what the server says of it, the answer last."""

    async def next(self) -> Message: ...

    async def finish(self) -> None:
        """The answer was there: the connection may be used again."""

    def abandon(self) -> None:
        """Nobody wants the answer any more. Who streams a turn and hangs up cancels it."""


class Transport(Protocol):
    async def begin(self, call: Call, deadline: Deadline) -> Exchange:
        """Sends the call. A `ConnectError` says that it was not sent; after an `OutOfTime` it may have been."""

    async def close(self) -> None: ...


class Pool:
    """Connections that carry one call at a time, so that calls made side by side each have their own, and a `cancel`
    does not wait behind its `send`."""

    def __init__(self, io: IO, address: Address) -> None:
        self._io = io
        self._address = address
        self._idle: List[Connection] = []
        self._open: Set[Connection] = set()
        self._closed = False

    async def take(self, deadline: Deadline) -> Connection:
        if self._closed:
            raise ClientError("the client is closed")
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.is_quiet():
                return connection
            self.drop(connection)
        return await self._connect(deadline)

    async def _connect(self, deadline: Deadline) -> Connection:
        left = deadline.left()
        limit = CONNECT_TIMEOUT_SECONDS if left is None else min(left, CONNECT_TIMEOUT_SECONDS)
        name = self._address if isinstance(self._address, str) else "{}:{}".format(*self._address)
        try:
            connection = await self._io.connect(self._address, Deadline(limit))
        except TIMEOUTS:
            # The caller's own limit where that was the shorter, not what was left of it.
            said = limit if limit == CONNECT_TIMEOUT_SECONDS else deadline.seconds
            raise ConnectError(f"no connection to {name} within {said:g} s; nothing was sent") from None
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ConnectError(f"no connection to {name}: {why}") from error
        self._open.add(connection)
        return connection

    @contextmanager
    def carrying(self, connection: Connection) -> Iterator[None]:
        """What goes wrong while a call is under way ends its connection."""
        try:
            yield
        except (OSError, EOFError) as error:
            self.drop(connection)
            raise lost(error) from error
        except BaseException:
            self.drop(connection)
            raise

    def release(self, connection: Connection, reusable: bool) -> None:
        if reusable and len(self._idle) < IDLE_MAX and not self._closed:
            self._idle.append(connection)
        else:
            self.drop(connection)

    def drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()

    async def close(self) -> None:
        self._closed = True
        self._idle.clear()
        for connection in list(self._open):
            self.drop(connection)
        await self._io.sleep(0)  # lets asyncio close the sockets


def lost(error: Optional[BaseException]) -> ConnectionLost:
    why = f": {error}" if error is not None and str(error) else ""
    return ConnectionLost(f"the connection ended before the answer{why}; the call may have been carried out")

