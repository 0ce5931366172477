"""Calls and streams, whatever carries them and whoever waits."""

from __future__ import annotations

import itertools
import os
from typing import Any, Dict, Mapping, Optional

from ._io import IO, Kept, OutOfTime
from ._retry import Deadline, Tries
from ._rpc import Call, Message, result_of
from ._signing import SigningKey
from ._transport import Exchange, Transport
from .errors import AnswerError, CallTimeout, ClientError


class Core:
    """Makes calls, many at once."""

    def __init__(self, io: IO, transport: Transport, timeout: Optional[float], key: Optional[SigningKey]) -> None:
        self.io = io
        self.transport = transport
        self.timeout = timeout
        self._key = key
        self._ids = itertools.count(1)

    def prepare(self, method: str, params: Mapping[str, Any], agent_id: Optional[str], stream: bool = False) -> Call:
        """A parameter that is None is left out."""
        given = {name: value for name, value in params.items() if value is not None}
        return Call(next(self._ids), method, given, agent_id, stream, self._key)

    async def call(self, method: str, params: Mapping[str, Any], agent_id: Optional[str] = None) -> Any:
        call = self.prepare(method, params, agent_id)
        deadline = Deadline(self.timeout)
        tries = Tries(call.keyed, deadline)
        while True:
            try:
                return await self._attempt(call, deadline)
            except ClientError as error:
                await self.io.sleep(tries.wait_after(error))

    async def _attempt(self, call: Call, deadline: Deadline) -> Any:
        try:
            exchange = await self.transport.begin(call, deadline)
            try:
                message = await exchange.next()
                while "method" in message:  # a stream that nobody asked us for
                    message = await exchange.next()
            except BaseException:
                exchange.abandon()
                raise
            await exchange.finish()
        except OutOfTime:
            raise out_of_time(call, deadline) from None
        return result_of(message, call.id)


class OpenCall:
    """A call that is told of what happens before its answer. It begins when its first event is asked for; the deadline
    is for each wait."""

    def __init__(self, core: Core, method: str, params: Mapping[str, Any], agent_id: Optional[str]) -> None:
        self.core = core
        self.call = core.prepare(method, params, agent_id, stream=True)
        self.result: Any = None
        self.done = False
        self._exchange: Optional[Exchange] = None
        self._beginning: Optional[Kept[Exchange]] = None
        self._deadline = Deadline(core.timeout)
        self._tries = Tries(self.call.keyed, self._deadline)

    async def next(self) -> Optional[Dict[str, Any]]:
        """The next event; None at the end, when `result` is there, and once it was let go of."""
        while not self.done:
            try:
                event = await self._read()
            except ClientError as error:
                self._hang_up()
                if self.done:  # another let go of it, which is what ended the reading
                    return None
                try:
                    wait = self._tries.wait_after(error)
                except ClientError:
                    self.done = True
                    raise
                await self.core.io.sleep(wait)
                continue
            if event is not None:
                return event
        return None

    async def _read(self) -> Optional[Dict[str, Any]]:
        try:
            exchange = self._exchange
            if exchange is None:
                exchange = self._exchange = await self._begin()
                if self.done:  # another let go of it meanwhile
                    self._hang_up()
                    return None
                self._begun()
            self._deadline.restart()
            message = await exchange.next()
        except OutOfTime:
            raise out_of_time(self.call, self._deadline) from None
        if "method" in message:
            params = message.get("params")
            if not isinstance(params, dict):
                raise AnswerError("not an answer: a stream's notification has no parameters")
            return self._event(message["method"], params)
        await exchange.finish()
        self._exchange = None
        self.result = result_of(message, self.call.id)
        self.done = True
        return None

    async def _begin(self) -> Exchange:
        """Who stops waiting leaves it to the next: it may have been sent, and must not be sent twice."""
        if self._beginning is None:
            self._deadline.restart()
            self._beginning = self.core.io.keep(self.core.transport.begin(self.call, self._deadline))
        try:
            exchange = await self._beginning.outcome()
        except Exception:
            self._beginning = None
            raise
        self._beginning = None
        return exchange

    def _begun(self) -> None:
        """It was sent, for the first time or again."""

    def _event(self, method: str, params: Message) -> Optional[Dict[str, Any]]:
        """What a notification tells, if anything."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Hangs up, unless it is over."""
        self.done = True
        self._hang_up()

    def _hang_up(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon()
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            beginning.drop(lambda exchange: exchange.abandon())


class Streaming(OpenCall):
    """A streamed call. A turn that goes on may take as long as it likes."""

    def __init__(self, core: Core, method: str, params: Mapping[str, Any], agent_id: Optional[str]) -> None:
        if method == "send" and params.get("request_id") is None and params.get("idempotency_key") is None:
            # So that it can be cancelled. A call with a key has to be the same each time it is made.
            params = {**params, "request_id": f"req_{os.urandom(8).hex()}"}
        super().__init__(core, method, params, agent_id)
        self._chars_given = 0
        self._chars_known = 0

    def _begun(self) -> None:
        # One that is made again is told its text from the beginning.
        self._chars_known = self._chars_given

    def _event(self, method: str, params: Message) -> Optional[Dict[str, Any]]:
        if method == "stream_data":
            chunk = str(params.get("chunk", ""))
            text = chunk[self._chars_known :]
            self._chars_known = max(0, self._chars_known - len(chunk))
            self._chars_given += len(text)
            return {"type": "text", "text": text} if text else None
        event = params.get("event")
        return event if method == "stream_event" and isinstance(event, dict) else None

    async def cancel(self) -> Any:
        return await self.core.call("cancel", {"request_id": self.call.params.get("request_id")}, self.call.agent_id)


class Watching(OpenCall):
    """A watch. How things stand is told at once, or it fails as any call does; then it may be quiet for ever, and is not
    begun anew: who watches again says what he has."""

    def __init__(self, core: Core, params: Mapping[str, Any]) -> None:
        super().__init__(core, "watch", params, None)
        self.watch_id: Optional[str] = None

    def _event(self, method: str, params: Message) -> Optional[Dict[str, Any]]:
        if method != "watch_event" or not isinstance(params.get("event"), dict):
            return None
        if self.watch_id is None:
            self.watch_id = str(params.get("watch_id"))
            self._deadline.seconds = None
            self._tries.end()
        return params


def out_of_time(call: Call, deadline: Deadline) -> CallTimeout:
    left = f"no answer to {call.method} within {deadline.seconds:g} s; it was sent and may have been carried out"
    if call.method == "send" and not (call.stream and not call.keyed):
        request_id = call.params.get("request_id")
        left += "; the turn may go on: " + (f"cancel({request_id!r}) ends it, " if request_id is not None else "")
        left += "get_messages() shows what came of it"
    return CallTimeout(left)
