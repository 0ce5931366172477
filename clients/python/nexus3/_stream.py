"""The answer to a call as it is made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, AsyncIterator, Generic, Optional, TypeVar, cast

from ._base import BaseStream

if TYPE_CHECKING:
    from .events import Event
    from .types import CancelResult

R = TypeVar("R")


class Stream(BaseStream[R]):
    """Iterate over it for the pieces of text, or over `events()` for all that happens; `result()` is the whole answer.

    Whoever lets go of it before its end hangs up, which cancels the turn (unless the call has an `idempotency_key`).
    `async with` says when; without it that happens when the last name for it is gone."""

    _loop: Optional[asyncio.AbstractEventLoop] = None

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while True:
            event = await self._next()
            if event is None:
                raise StopAsyncIteration
            if event["type"] == "text":
                return event["text"]

    def events(self) -> AsyncIterator[Event]:
        """The text, and what happens between its pieces."""
        return Events(self)

    async def result(self) -> R:
        """Waits for the end and returns the answer, which has all of the text."""
        while await self._next() is not None:
            pass
        return self._answer()

    async def cancel(self) -> CancelResult:
        """Cancels the turn; the stream then ends with what there is."""
        return cast("CancelResult", await self._streaming.cancel())

    async def aclose(self) -> None:
        self._streaming.abandon()

    async def _next(self) -> Optional[Event]:
        self._loop = asyncio.get_running_loop()
        return cast("Optional[Event]", await self._streaming.next())

    async def __aenter__(self) -> Stream[R]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._loop is not None and not self._streaming.done:
            try:
                self._loop.call_soon_threadsafe(self._streaming.abandon)  # this may be any thread
            except RuntimeError:
                pass  # the loop is gone, and its connections with it


class Events(Generic[R]):
    """Keeps hold of its stream."""

    def __init__(self, stream: Stream[R]) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._stream._next()
        if event is None:
            raise StopAsyncIteration
        return event
