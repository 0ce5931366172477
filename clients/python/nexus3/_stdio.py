"""Calls to a server that is our child, one message per line: many under way at once, answered in any order."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from ._io import IO, Connection, Mailbox
from ._reader import Reader
from ._retry import Deadline
from ._rpc import Call, Message, read_message, request_bytes
from ._transport import Exchange, lost
from .errors import AnswerError, ClientError

# The server's own limit.
LINE_BYTES_MAX = 1 << 20
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
        # Who waits for messages, by the id of the call and by the name of its stream.
        self._calls: Dict[int, Mailbox[Any]] = {}
        self._streams: Dict[str, Mailbox[Any]] = {}
        self._over: Mailbox[None] = io.mailbox()
        self.ended = False

    def begin(self, call: Call, line: bytes, deadline: Deadline) -> Exchange:
        mailbox: Mailbox[Any] = self._io.mailbox()
        assert call.id is not None
        self._calls[call.id] = mailbox
        exchange = Lines(self, call, mailbox, deadline)
        try:
            self._connection.write(line, deadline)
        except OSError as error:
            exchange.forget()
            raise lost(error) from error
        except BaseException:
            exchange.forget()
            raise
        if self.ended:  # and nobody may have seen that this call waits
            mailbox.put(lost(None))
        return exchange

    def forget(self, call_id: int, mailbox: Mailbox[Any]) -> None:
        self._calls.pop(call_id, None)
        for name in [name for name, waiting in list(self._streams.items()) if waiting is mailbox]:
            self._streams.pop(name, None)

    def cancel(self, call: Call) -> None:
        """Lets the child know, without waiting for it."""
        params = {"request_id": call.params["request_id"]}
        cancel = Call(None, "cancel", params, call.agent_id, key=call.key)
        self._io.spawn(self._tell(request_bytes(cancel.addressed()) + b"\n"))

    async def _tell(self, line: bytes) -> None:
        try:
            self._connection.write(line, Deadline(None))
        except OSError:
            pass  # it is gone, and so is the turn

    async def listen(self) -> None:
        """Hands every message to the call that it is for, up to the child's end."""
        try:
            error = await self._read()
            self.ended = True
            for mailbox in list(self._calls.values()):
                mailbox.put(error)
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
                self._deliver(read_message(await reader.line()))
        except AnswerError as garbage:
            return garbage
        except (OSError, EOFError):
            # The end of its output: it is gone, or about to go.
            await self._io.aside(self._wait_or_kill)
            return lost(ChildProcessError(f"{self._name} ended with {self._process.returncode}"))

    def _deliver(self, message: Message) -> None:
        params = message.get("params")
        if "method" not in message:
            mailbox = self._calls.get(message.get("id") or 0)
        elif not isinstance(params, dict):
            return
        elif message["method"] == "stream_start":
            mailbox = self._calls.get(params.get("task_id") or 0)
            if mailbox is not None:
                self._streams[params["stream_id"]] = mailbox
        else:
            mailbox = self._streams.get(params.get("stream_id") or "")
        if mailbox is not None:
            mailbox.put(message)

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


class Lines:
    def __init__(self, child: Child, call: Call, mailbox: Mailbox[Any], deadline: Deadline) -> None:
        self._child = child
        self._call = call
        self._mailbox = mailbox
        self._deadline = deadline

    async def next(self) -> Message:
        message = await self._mailbox.get(self._deadline)
        if isinstance(message, ClientError):
            raise message
        result: Message = message
        return result

    async def finish(self) -> None:
        self.forget()

    def abandon(self) -> None:
        """There is no connection to hang up, so that a streamed turn is cancelled by its name."""
        self.forget()
        call = self._call
        if call.stream and call.params.get("request_id") is not None and not call.keyed:
            self._child.cancel(call)

    def forget(self) -> None:
        assert self._call.id is not None
        self._child.forget(self._call.id, self._mailbox)

