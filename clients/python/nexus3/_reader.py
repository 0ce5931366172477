"""Lines and pieces of a known length, out of bytes that come as they like."""

from __future__ import annotations

from typing import Awaitable, Callable

from ._retry import Deadline
from .errors import AnswerError

# Largest answer that is read. A page of 2,000 long messages fits; a stranger's endless body does not fill the memory.
ANSWER_BYTES_MAX = 64 << 20


class Reader:
    """Reads from anything that returns some bytes, and none at its end. A call that fails or is cancelled has taken
    nothing."""

    def __init__(self, read: Callable[[Deadline], Awaitable[bytes]], deadline: Deadline) -> None:
        self._read = read
        self.deadline = deadline
        self._buffer = bytearray()

    async def line(self, bytes_max: int = ANSWER_BYTES_MAX) -> bytes:
        """The next line, without its end; an `EOFError` when there is none to come."""
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end > bytes_max or (end < 0 and len(self._buffer) > bytes_max):
                raise AnswerError(f"not an answer: a line is over {bytes_max} bytes")
            if end >= 0:
                return self._take(end + 1).rstrip(b"\r\n")
            searched = len(self._buffer)
            await self._fill()

    async def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._fill()
        return self._take(count)

    async def some(self, count_max: int) -> bytes:
        """What is there, at least one byte."""
        if not self._buffer:
            await self._fill()
        return self._take(min(count_max, len(self._buffer)))

    @property
    def is_empty(self) -> bool:
        return not self._buffer

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _fill(self) -> None:
        data = await self._read(self.deadline)
        if not data:
            raise EOFError("the server closed the connection")
        self._buffer += data
