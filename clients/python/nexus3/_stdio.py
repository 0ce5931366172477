"""Calls to a server that is our child, one message per line: many under way at once, answered in any order."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._io import IO, Connection, Mailbox
from ._reader import ANSWER_BYTES_MAX, Reader
from ._retry import Deadline
from ._rpc import Call, Message, read_message, request_bytes
from ._transport import Exchange, lost
from .errors import AnswerError, ClientError

# The server's own limit.
LINE_BYTES_MAX = 1 << 20
# What of one call waits for its reader.
UNREAD_BYTES_MAX = ANSWER_BYTES_MAX
# For a child that was told to end, before it is killed.
END_TIMEOUT_SECONDS = 10.0


class StdioTransport:
    """The child is started by the first call, and again by the first one after it died."""

    def __init__(
        self,
        io: IO,
        command: Sequence[str],
        cwd: Union[str, os.PathLike[str], None],
        env: Optional[Mapping[str, str]],
    ) -> None:
        self._io = io
        self._command = list(command)
        self._cwd = cwd
        self._env = {**os.environ, **(env or {})}
        self._starting = io.lock()
        self._child: Optional[Child] = None
        self._closed = False

    async def begin(self, call: Call, deadline: Deadline) -> Exchange:
        line = request_bytes(call.addressed())
        if len(line) > LINE_BYTES_MAX:
            raise ClientError(f"the call is over {LINE_BYTES_MAX} bytes, which is the limit of a line")
        async with self._starting:
            if self._closed:
                raise ClientError("the client is closed")
            if self._child is None or self._child.ended:
                self._child = await self._start()
            child = self._child
        return child.begin(call, line + b"\n", deadline)

    async def _start(self) -> Child:
        # One socket is both its standard input and output, so that it is read and written as every other connection.
        ours, theirs = socket.socketpair()
        try:
            pipe = theirs.fileno()
            process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, cwd=self._cwd, env=self._env)
        except OSError as error:
            ours.close()
            raise ClientError(f"{self._command[0]} cannot be started: {error}") from error
        finally:
            theirs.close()
        child = Child(self._io, self._command[0], process, await self._io.adopt(ours))
        self._io.spawn(child.listen())
        return child

    async def close(self) -> None:
        async with self._starting:
            self._closed = True
            child, self._child = self._child, None
        if child is not None:
            await child.end()


class Child:
    def __init__(self, io: IO, name: str, process: subprocess.Popen[bytes], connection: Connection) -> None:
        self._io = io
        self._name = name
        self._process = process
        self._connection = connection
        # Who waits for messages, by the id of the call and by the name of its stream or watch.
        self._calls: Dict[int, Inbox] = {}
        self._streams: Dict[str, Inbox] = {}
        # Watches that were let go of before their names were known.
        self._left: Dict[int, Call] = {}
        self._over: Mailbox[None] = io.mailbox()
        self.ended = False

    def begin(self, call: Call, line: bytes, deadline: Deadline) -> Exchange:
        inbox = Inbox(self._io)
        assert call.id is not None
        self._calls[call.id] = inbox
        exchange = Lines(self, call, inbox, deadline)
        try:
            self._connection.write(line, deadline)
        except OSError as error:
            exchange.forget()
            raise lost(error) from error
        except BaseException:
            exchange.forget()
            raise
        if self.ended:  # and nobody may have seen that this call waits
            inbox.fail(lost(None))
        return exchange

    def forget(self, call_id: int, inbox: Inbox) -> List[str]:
        """Nobody waits for it any more. Returns the names that it had."""
        self._calls.pop(call_id, None)
        names = [name for name, waiting in list(self._streams.items()) if waiting is inbox]
        for name in names:
            self._streams.pop(name, None)
        return names

    def cancel(self, call: Call) -> None:
        self._let_know("cancel", {"request_id": call.params["request_id"]}, call)

    def leave(self, call: Call, inbox: Inbox) -> None:
        """Ends a watch, as soon as its name is known."""
        assert call.id is not None
        self._left[call.id] = call
        for watch_id in self.forget(call.id, inbox):
            self._unwatch(watch_id, call.id)

    def _unwatch(self, watch_id: str, call_id: int) -> None:
        call = self._left.pop(call_id, None)
        if call is not None:
            self._let_know("unwatch", {"watch_id": watch_id}, call)

    def _let_know(self, method: str, params: Dict[str, Any], of: Call) -> None:
        """Tells the child, without waiting for it."""
        call = Call(None, method, params, of.agent_id, key=of.key)
        self._io.spawn(self._tell(request_bytes(call.addressed()) + b"\n"))

    async def _tell(self, line: bytes) -> None:
        try:
            self._connection.write(line, Deadline(None))
        except OSError:
            pass  # it is gone, and so is what it was to end

    async def listen(self) -> None:
        """Hands every message to the call that it is for, up to the child's end."""
        try:
            error = await self._read()
            self.ended = True
            for inbox in list(self._calls.values()):
                inbox.fail(error)
            self._connection.close()
            await self._io.aside(self._wait_or_kill)
        finally:
            self.ended = True
            self._over.put(None)

    async def _read(self) -> ClientError:
        """What ended it."""
        reader = Reader(self._connection.read, Deadline(None))
        try:
            while True:
                line = await reader.line()
                self._deliver(read_message(line), len(line))
        except AnswerError as garbage:
            return garbage
        except (OSError, EOFError):
            # The end of its output: it is gone, or about to go.
            await self._io.aside(self._wait_or_kill)
            return lost(ChildProcessError(f"{self._name} ended with {self._process.returncode}"))

    def _deliver(self, message: Message, size: int) -> None:
        params = message.get("params")
        if "method" not in message:
            call_id = message.get("id") or 0
            self._left.pop(call_id, None)
            inbox = self._calls.get(call_id)
        elif not isinstance(params, dict):
            return
        else:
            name = str(params.get("stream_id") or params.get("watch_id") or "")
            # The first notification of a stream or a watch says which call it is for.
            if isinstance(params.get("task_id"), int):
                self._named(name, params["task_id"])
            inbox = self._streams.get(name)
        if inbox is not None:
            inbox.put(message, size)

    def _named(self, name: str, call_id: int) -> None:
        inbox = self._calls.get(call_id)
        if inbox is not None:
            self._streams[name] = inbox
        if call_id not in self._calls:  # another thread may have let go of it just now
            self._streams.pop(name, None)
            self._unwatch(name, call_id)

    async def end(self) -> None:
        """The end of its input ends it."""
        self._connection.shut()
        await self._io.aside(self._wait_or_kill)
        self._connection.close()
        await self._over.get(Deadline(None))

    def _wait_or_kill(self) -> None:
        try:
            self._process.wait(END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Inbox:
    """What waits to be read of one call. One thread may put while another takes, so each counts for itself."""

    def __init__(self, io: IO) -> None:
        self._mailbox: Mailbox[Tuple[Union[Message, ClientError], int]] = io.mailbox()
        self._put_bytes = 0
        self._taken_bytes = 0
        self._full = False

    def put(self, message: Message, size: int) -> None:
        """What nobody reads does not fill the memory: the rest is dropped, and the reader told so."""
        if self._full:
            return
        if self._put_bytes - self._taken_bytes > UNREAD_BYTES_MAX:
            self._full = True
            self.fail(ClientError(f"nobody read what was told: over {UNREAD_BYTES_MAX} bytes wait"))
            return
        self._put_bytes += size
        self._mailbox.put((message, size))

    def fail(self, error: ClientError) -> None:
        self._mailbox.put((error, 0))

    async def get(self, deadline: Deadline) -> Message:
        message, size = await self._mailbox.get(deadline)
        self._taken_bytes += size
        if isinstance(message, ClientError):
            raise message
        return message


class Lines:
    def __init__(self, child: Child, call: Call, inbox: Inbox, deadline: Deadline) -> None:
        self._child = child
        self._call = call
        self._inbox = inbox
        self._deadline = deadline

    async def next(self) -> Message:
        return await self._inbox.get(self._deadline)

    async def finish(self) -> None:
        self.forget()

    def abandon(self) -> None:
        """There is no connection to hang up, so that a streamed turn is cancelled by its name, and a watch ended by its."""
        call = self._call
        if call.method == "watch" and call.stream:
            self._child.leave(call, self._inbox)
        else:
            self.forget()
            if call.stream and call.params.get("request_id") is not None and not call.keyed:
                self._child.cancel(call)
        self._inbox.fail(lost(None))  # for whoever waits for it still

    def forget(self) -> None:
        assert self._call.id is not None
        self._child.forget(self._call.id, self._inbox)

