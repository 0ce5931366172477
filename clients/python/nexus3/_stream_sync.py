"""The answer to a call as it is made, for threads that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, Optional, TypeVar, cast

from ._base import BaseStream
from ._io import run

if TYPE_CHECKING:
    from .events import Event
    from .types import CancelResult

R = TypeVar("R")


class Stream(BaseStream[R]):
    """As `nexus3.client.Stream`. Iterated by one thread; `cancel` may be called by another."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            event = self._next()
            if event is None:
                raise StopIteration
            if event["type"] == "text":
                return event["text"]

    def events(self) -> Iterator[Event]:
        """The text, and what happens between its pieces."""
        return iter(self._next, None)

    def result(self) -> R:
        """Waits for the end and returns the answer, which has all of the text."""
        while self._next() is not None:
            pass
        return self._answer()

    def cancel(self) -> CancelResult:
        """Cancels the turn; the stream then ends with what there is."""
        return cast("CancelResult", run(self._streaming.cancel()))

    def close(self) -> None:
        self._streaming.abandon()

    def _next(self) -> Optional[Event]:
        return cast("Optional[Event]", run(self._streaming.next()))

    def __enter__(self) -> Stream[R]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._streaming.abandon()
