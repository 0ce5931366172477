"""What a call can end in, other than its result."""

from __future__ import annotations

from typing import Any, Optional


class NexusError(Exception):
    """Everything that this package raises."""


class ClientError(NexusError):
    """A call without a result. The classes below say why; `code` and `data` are those of the server's error."""

    code: Optional[int] = None
    data: Any = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ConnectError(ClientError):
    """Nobody was reached. Nothing was sent, so nothing was done."""


class ConnectionLost(ClientError):
    """The connection ended after the call was sent and before its answer: it may have been carried out."""


class CallTimeout(ClientError):
    """The answer was not there in time. The call was sent: it may have been carried out, or still be."""


class AnswerError(ClientError):
    """What came back is no answer to the call: garbage, or another protocol's."""


class RpcError(ClientError):
    """The server's own error: `code`, `message`, and `data` where there is some."""

    code: int

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.args = (code, message, data)
        self.code = code
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"
