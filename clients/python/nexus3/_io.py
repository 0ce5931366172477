"""All that touches the outside, twice: for asyncio and for threads that wait.

Everything above is written once, as coroutines over `IO`. Nothing of `BlockingIO` ever suspends, so that a coroutine over
it runs to its end in one step (`run`): the blocking client is the same client."""

from __future__ import annotations

import asyncio
import queue
import select
import socket
import struct
import threading
import time
from collections import deque
from typing import Any, Callable, Coroutine, Deque, Generic, Optional, Protocol, Set, Tuple, TypeVar, Union

from ._retry import Deadline

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# A host and a port, or the path of a Unix socket.
Address = Union[Tuple[str, int], str]

READ_BYTES = 256 << 10
# What of a connection waits for its reader before the peer has to wait.
UNREAD_BYTES_MAX = 4 << 20


class OutOfTime(Exception):
    """A deadline passed."""


# Before Python 3.11 these were different classes.
TIMEOUTS = (OutOfTime, TimeoutError, socket.timeout, asyncio.TimeoutError)


class Mailbox(Protocol[T]):
    """Hands things over from whoever has them to the one who waits for them."""

    def put(self, item: T) -> None: ...

    async def get(self, deadline: Deadline) -> T: ...


class Connection(Protocol):
    def write(self, data: bytes, deadline: Deadline) -> None: ...

    async def read(self, deadline: Deadline) -> bytes:
        """Some bytes; none at the end."""

    def close(self) -> None:
        """Hangs up at once, also on whoever reads."""

    def shut(self) -> None:
        """Says that nothing more is written."""

    def is_quiet(self) -> bool:
        """Whether it can carry a call: the peer neither closed it nor said anything unasked."""

    def peer_uid(self) -> Optional[int]:
        """The user at the other end of a Unix socket, where the system tells."""


class Lock(Protocol):
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


class Kept(Protocol[T_co]):
    """Something under way that goes on when whoever waits for it stops waiting."""

    async def outcome(self) -> T_co: ...

    def drop(self, unwanted: Callable[[T_co], None]) -> None:
        """Nobody will wait for it any more: its outcome goes to `unwanted`, unless somebody waits now."""


class IO(Protocol):
    async def connect(self, address: Address, deadline: Deadline) -> Connection: ...

    async def adopt(self, sock: socket.socket) -> Connection:
        """A connection of a socket that is connected already."""

    async def sleep(self, seconds: float) -> None: ...

    async def aside(self, work: Callable[[], T]) -> T:
        """Does what may take long, without holding up others."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Lets it run beside the caller."""

    def keep(self, work: Coroutine[Any, Any, T]) -> Kept[T]:
        """Begins it for whoever waits, and the next one after."""

    def mailbox(self) -> Mailbox[Any]: ...

    def lock(self) -> Lock: ...


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The outcome of a coroutine over `BlockingIO`."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking call was suspended")


def _peer_uid(sock: Any) -> Optional[int]:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    uid: int = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("iII")))[1]
    return uid


def _is_silent(sock: Any) -> bool:
    """Whether it is open and there is nothing to read, not even the end."""
    if sock.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return not poll.poll(0)


# asyncio


class AsyncMailbox(Generic[T]):
    def __init__(self) -> None:
        self._items: Deque[T] = deque()
        self._waiting: Optional[asyncio.Future[None]] = None

    def put(self, item: T) -> None:
        self._items.append(item)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def get(self, deadline: Deadline) -> T:
        while not self._items:
            await self._wait(deadline.left())
        return self._items.popleft()

    async def _wait(self, seconds: Optional[float]) -> None:
        # A timer and a future: `wait_for` would make a task of every read.
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._expire, waiting)
        try:
            await waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()

    @staticmethod
    def _expire(waiting: asyncio.Future[None]) -> None:
        if not waiting.done():
            waiting.set_exception(OutOfTime())


class AsyncConnection(asyncio.Protocol):
    """Bytes are handed over as they come; the end is no bytes, a failure its error."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received: AsyncMailbox[Union[bytes, Exception]] = AsyncMailbox()
        self._unread_bytes = 0
        self._transport: Any = None
        self._ended = False
        self._shut = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received.put(data)
        self._unread_bytes += len(data)
        if self._unread_bytes > UNREAD_BYTES_MAX:
            self._transport.pause_reading()

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._ended = True
        self._received.put(error or b"")

    async def read(self, deadline: Deadline) -> bytes:
        data = await self._received.get(deadline)
        if isinstance(data, Exception) or not data:
            self._received.put(data)  # for whoever asks again
            if isinstance(data, Exception):
                raise data
            return b""
        paused = self._unread_bytes > UNREAD_BYTES_MAX
        self._unread_bytes -= len(data)
        if paused and self._unread_bytes <= UNREAD_BYTES_MAX and not self._ended:
            self._transport.resume_reading()
        return data

    def write(self, data: bytes, deadline: Deadline) -> None:
        if self._shut or self._ended:
            raise BrokenPipeError("the connection is closed")
        self._transport.write(data)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._transport.abort()

    def shut(self) -> None:
        self._shut = True
        if not self._transport.is_closing():
            self._transport.write_eof()

    def is_quiet(self) -> bool:
        # One that an earlier event loop left behind is of no use in this one.
        if self._loop is not asyncio.get_running_loop() or self._ended or self._unread_bytes:
            return False
        return _is_silent(self._transport.get_extra_info("socket"))

    def peer_uid(self) -> Optional[int]:
        return _peer_uid(self._transport.get_extra_info("socket"))


class AsyncLock:
    """Made in the loop that uses it first, since older versions of Python bind it there."""

    def __init__(self) -> None:
        self._lock: Optional[asyncio.Lock] = None

    async def __aenter__(self) -> None:
        if self._lock is None:
            self._lock = asyncio.Lock()
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()


class KeptTask(Generic[T]):
    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._is_awaited = False

    async def outcome(self) -> T:
        self._is_awaited = True
        try:
            return await asyncio.shield(self._task)
        finally:
            self._is_awaited = False

    def drop(self, unwanted: Callable[[T], None]) -> None:
        def ended(task: asyncio.Task[T]) -> None:
            if not task.cancelled() and task.exception() is None:
                unwanted(task.result())

        if not self._is_awaited:
            self._task.add_done_callback(ended)


class AsyncIO:
    def __init__(self) -> None:
        self._tasks: Set[asyncio.Task[None]] = set()

    async def connect(self, address: Address, deadline: Deadline) -> Connection:
        loop = asyncio.get_running_loop()
        if isinstance(address, str):
            made = await asyncio.wait_for(loop.create_unix_connection(AsyncConnection, address), deadline.left())
        else:
            made = await asyncio.wait_for(loop.create_connection(AsyncConnection, *address), deadline.left())
        return made[1]

    async def adopt(self, sock: socket.socket) -> Connection:
        return (await asyncio.get_running_loop().create_unix_connection(AsyncConnection, sock=sock))[1]

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def aside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop itself keeps no hold of it
        task.add_done_callback(self._tasks.discard)

    def keep(self, work: Coroutine[Any, Any, T]) -> Kept[T]:
        return KeptTask(work)

    def mailbox(self) -> Mailbox[Any]:
        return AsyncMailbox()

    def lock(self) -> Lock:
        return AsyncLock()


# Threads


class BlockingMailbox(Generic[T]):
    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()

    def put(self, item: T) -> None:
        self._items.put(item)

    async def get(self, deadline: Deadline) -> T:
        try:
            return self._items.get(timeout=deadline.left())
        except queue.Empty:
            raise OutOfTime from None


class BlockingConnection:
    """The socket itself never blocks, so that one thread can read while another writes, each with its own deadline."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._writing = threading.Lock()

    def _wait(self, for_what: int, deadline: Deadline) -> None:
        poll = select.poll()
        poll.register(self._sock.fileno(), for_what)
        left = deadline.left()
        if not poll.poll(None if left is None else left * 1000):
            raise OutOfTime

    async def read(self, deadline: Deadline) -> bytes:
        while True:
            try:
                self._wait(select.POLLIN, deadline)
                return self._sock.recv(READ_BYTES)
            except BlockingIOError:
                continue
            except ValueError:  # another thread closed it
                return b""

    def write(self, data: bytes, deadline: Deadline) -> None:
        with self._writing:
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[self._sock.send(rest) :]
                except BlockingIOError:
                    self._wait(select.POLLOUT, deadline)

    def close(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes whoever reads
        except OSError:
            pass
        self._sock.close()

    def shut(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def is_quiet(self) -> bool:
        return _is_silent(self._sock)

    def peer_uid(self) -> Optional[int]:
        return _peer_uid(self._sock)


class BlockingLock:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class KeptWork(Generic[T]):
    """Whoever waits does the work, and nobody stops waiting."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    async def outcome(self) -> T:
        return await self._work

    def drop(self, unwanted: Callable[[T], None]) -> None:
        pass


class BlockingIO:
    async def connect(self, address: Address, deadline: Deadline) -> Connection:
        if isinstance(address, str):
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(deadline.left())
                sock.connect(address)
            except BaseException:
                sock.close()
                raise
        else:
            sock = socket.create_connection(address, deadline.left())
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return BlockingConnection(sock)

    async def adopt(self, sock: socket.socket) -> Connection:
        return BlockingConnection(sock)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def aside(self, work: Callable[[], T]) -> T:
        return work()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        threading.Thread(target=run, args=(work,), daemon=True).start()

    def keep(self, work: Coroutine[Any, Any, T]) -> Kept[T]:
        return KeptWork(work)

    def mailbox(self) -> Mailbox[Any]:
        return BlockingMailbox()

    def lock(self) -> Lock:
        return BlockingLock()
