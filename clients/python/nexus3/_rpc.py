"""JSON-RPC 2.0: the bytes of a call, and what a message that comes back says."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Dict, Optional

from ._signing import SigningKey
from .errors import AnswerError, ClientError, RpcError

Message = Dict[str, Any]

# How much of a strange message an error shows.
SHOWN_CHARS_MAX = 80


@dataclass
class Call:
    """One call, as often as it is tried. Without `agent_id` it is for the server."""

    id: Optional[int]
    method: str
    params: Dict[str, Any]
    agent_id: Optional[str] = None
    stream: bool = False
    key: Optional[SigningKey] = None

    @property
    def keyed(self) -> bool:
        """Whether it has an `idempotency_key`, by which the server knows it again."""
        options = self.params.get("options") or {}
        return isinstance(self.params.get("idempotency_key") or options.get("idempotency_key"), str)

    def addressed(self) -> Call:
        """For transports with one endpoint: the agent is named in the parameters."""
        if self.agent_id is None:
            return self
        return replace(self, params={**self.params, "agent_id": self.agent_id}, agent_id=None)


def request_bytes(call: Call) -> bytes:
    """The request as it leaves, on every transport and in every try: one that is signed is signed anew. Without an id it
    is a notification."""
    request: Message = {"jsonrpc": "2.0", "method": call.method, "params": call.params}
    if call.id is not None:
        request["id"] = call.id
    try:
        body = json.dumps(request, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # Read again, so that what is signed is what JSON makes of it: names that were numbers, lists that were tuples.
        return (body if call.key is None else call.key.signed(json.loads(body))).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ClientError(f"the parameters of {call.method} cannot be written as JSON: {error}") from error


def read_message(data: bytes) -> Message:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"not an answer: {error} in {shown(data)}") from None
    if not isinstance(message, dict):
        raise AnswerError(f"not an answer: {shown(data)}")
    return message


def result_of(answer: Message, call_id: Optional[int]) -> Any:
    """The result in an answer. An error may lack the id: what could not be read, or from whom, is answered so."""
    answered = answer.get("id")
    if answered is not None and (answered != call_id or isinstance(answered, bool)):
        raise AnswerError(f"not an answer: it is for call {answered!r}, not {call_id}")
    error = answer.get("error")
    if error is not None:
        raise rpc_error(error)
    if answered is None:
        raise AnswerError("not an answer: it has neither an id nor an error")
    return answer.get("result")


def rpc_error(error: Any) -> ClientError:
    if isinstance(error, dict) and isinstance(error.get("code"), int):
        return RpcError(error["code"], str(error.get("message", "")), error.get("data"))
    return AnswerError(f"not an answer: its error is {str(error)[:SHOWN_CHARS_MAX]!r}")


def shown(data: bytes) -> str:
    return repr(data[: 4 * SHOWN_CHARS_MAX].decode("utf-8", "replace")[:SHOWN_CHARS_MAX])
