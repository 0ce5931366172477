"""The answer to a call as it is made, and what happens to agents as it happens, for threads that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, TypeVar, cast

from ._base import BaseAnswer, BaseStream, BaseWatch
from ._io import run

if TYPE_CHECKING:
    from .events import Event
    from .types import CancelResult, WatchEvent, WatchResult

R = TypeVar("R")
A = TypeVar("A", bound="Answer[Any]")


class Answer(BaseAnswer[R]):
    def result(self) -> R:
        """Waits for the end and returns the answer."""
        while self._next() is not None:
            pass
        return self._answer()

    def close(self) -> None:
        self._opened.abandon()

    def _next(self) -> Optional[Dict[str, Any]]:
        return run(self._opened.next())

    def __enter__(self: A) -> A:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._opened.abandon()


class Stream(Answer[R], BaseStream[R]):
    """As `nexus3.client.Stream`. Iterated by one thread; `cancel` may be called by another."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            event = cast("Optional[Event]", self._next())
            if event is None:
                raise StopIteration
            if event["type"] == "text":
                return event["text"]

    def events(self) -> Iterator[Event]:
        """The text, and what happens between its pieces."""
        return cast("Iterator[Event]", iter(self._next, None))

    def cancel(self) -> CancelResult:
        """Cancels the turn; the stream then ends with what there is."""
        return cast("CancelResult", run(self._streaming.cancel()))


class Watch(Answer["WatchResult"], BaseWatch):
    """As `nexus3.client.Watch`. Iterated by one thread; `close`, which ends the iteration, may be called by another."""

    def __iter__(self) -> Iterator[WatchEvent]:
        return self

    def __next__(self) -> WatchEvent:
        event = self._next()
        if event is None:
            raise StopIteration
        return cast("WatchEvent", event)
