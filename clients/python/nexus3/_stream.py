"""The answer to a call as it is made, and what happens to agents as it happens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Generic, Optional, TypeVar, cast

from ._base import BaseAnswer, BaseStream, BaseWatch

if TYPE_CHECKING:
    from .events import Event
    from .types import CancelResult, WatchEvent, WatchResult

R = TypeVar("R")
A = TypeVar("A", bound="Answer[Any]")


class Answer(BaseAnswer[R]):
    """Whoever lets go of it before its end hangs up. `async with` says when; without it that happens when the last name
    for it is gone."""

    _loop: Optional[asyncio.AbstractEventLoop] = None

    async def result(self) -> R:
        """Waits for the end and returns the answer."""
        while await self._next() is not None:
            pass
        return self._answer()

    async def aclose(self) -> None:
        self._opened.abandon()

    async def _next(self) -> Optional[Dict[str, Any]]:
        self._loop = asyncio.get_running_loop()
        return await self._opened.next()

    async def __aenter__(self: A) -> A:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._loop is not None and not self._opened.done:
            try:
                self._loop.call_soon_threadsafe(self._opened.abandon)  # this may be any thread
            except RuntimeError:
                pass  # the loop is gone, and its connections with it


class Stream(Answer[R], BaseStream[R]):
    """Iterate over it for the pieces of text, or over `events()` for all that happens; `result()` is the whole answer,
    with all of the text.

    Whoever lets go of it before its end hangs up, which cancels the turn (unless the call has an `idempotency_key`).
    `async with` says when; without it that happens when the last name for it is gone."""

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while True:
            event = cast("Optional[Event]", await self._next())
            if event is None:
                raise StopAsyncIteration
            if event["type"] == "text":
                return event["text"]

    def events(self) -> AsyncIterator[Event]:
        """The text, and what happens between its pieces."""
        return Events(self)

    async def cancel(self) -> CancelResult:
        """Cancels the turn; the stream then ends with what there is."""
        return cast("CancelResult", await self._streaming.cancel())


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
        return cast("Event", event)


class Watch(Answer["WatchResult"], BaseWatch):
    """Iterate over it for all that happens; how things stand comes first. It may be quiet for as long as it likes. When
    it has ended by itself, `result()` says why.

    Whoever lets go of it hangs up, which ends the watch and nothing else. `async with` says when, or another task's
    `aclose()`, which ends the iteration; without them that happens when the last name for it is gone."""

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        event = await self._next()
        if event is None:
            raise StopAsyncIteration
        return cast("WatchEvent", event)
