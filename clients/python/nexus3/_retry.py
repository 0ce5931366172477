"""Trying again what surely has not run: a connection that was refused, and the two answers with which a server turns a
call away at the door. What may have run is tried again only with an `idempotency_key`, by which the server tells that it
is the same call."""

from __future__ import annotations

import random
import time
from typing import Optional

from .errors import ClientError, ConnectError, ConnectionLost, RpcError

# Four tries bridge a server that is just restarting, and keep the wait for one that is gone under a second.
TRIES_MAX = 4
DELAY_FIRST_SECONDS = 0.1
DELAY_MAX_SECONDS = 2.0
# A server that asks for more patience than this gets its error shown instead.
RETRY_AFTER_MAX_SECONDS = 60.0

UNAVAILABLE = -32001
RATE_LIMITED = -32002


class Deadline:
    """When to give up, if ever."""

    def __init__(self, seconds: Optional[float]) -> None:
        self.seconds = seconds
        self.restart()

    def restart(self) -> None:
        self._at = None if self.seconds is None else time.monotonic() + self.seconds

    def left(self) -> Optional[float]:
        """Seconds, or None for all the time there is."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())


class Tries:
    """The tries of one call. The deadline is for all of them together."""

    def __init__(self, keyed: bool, deadline: Deadline) -> None:
        self._keyed = keyed
        self._deadline = deadline
        self._made = 0

    def wait_after(self, error: ClientError) -> float:
        """Seconds to wait before the next try; raises the error when there is none.

        The waits are anything between nothing and the exponential delay, so that clients turned away together do not
        come back together. One that would pass the deadline is not begun: the error says more than a timeout."""
        self._made += 1
        covered = has_not_run(error) or (self._keyed and isinstance(error, ConnectionLost))
        delay = min(DELAY_FIRST_SECONDS * 2.0 ** (self._made - 1), DELAY_MAX_SECONDS) * random.random()
        wait = delay + (retry_after(error) or 0.0)
        left = self._deadline.left()
        in_time = (left is None or wait < left) and wait <= RETRY_AFTER_MAX_SECONDS + DELAY_MAX_SECONDS
        if covered and in_time and self._made < TRIES_MAX:
            return wait
        raise error

    def end(self) -> None:
        """There is no further one."""
        self._made = TRIES_MAX


def has_not_run(error: ClientError) -> bool:
    """The server says of an unavailable resource when it may be there again (a full queue), and does not where trying
    again is no use (no provider). A limit of the model's provider (`upstream`) is met in the middle of a turn, so that
    call did run."""
    if not isinstance(error, RpcError):
        return isinstance(error, ConnectError)
    of_server = not isinstance(error.data, dict) or error.data.get("scope") != "upstream"
    return of_server and (error.code == RATE_LIMITED or (error.code == UNAVAILABLE and retry_after(error) is not None))


def retry_after(error: ClientError) -> Optional[float]:
    asked = error.data.get("retry_after_ms") if isinstance(error.data, dict) else None
    return asked / 1000 if isinstance(asked, (int, float)) else None
