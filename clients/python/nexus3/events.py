"""What happens in a stream. A newer server may have events of other types: pass over what you do not know."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union

from .types import ApprovalEntry


class TextEvent(TypedDict):
    """The next piece of the answer's text."""

    type: Literal["text"]
    text: str


class ToolCallEvent(TypedDict):
    type: Literal["tool_call"]
    id: str
    name: str
    arguments: Any


class _ToolProgress(TypedDict):
    type: Literal["tool_progress"]
    id: str
    progress: float


class ToolProgressEvent(_ToolProgress, total=False):
    """How far the call of a tool of an MCP server is."""

    total: float
    message: str


class _ToolResult(TypedDict):
    type: Literal["tool_result"]
    id: str
    content: str


class ToolResultEvent(_ToolResult, total=False):
    # The rule, where the gate refused the call.
    refused_by: str


class ApprovalRequestedEvent(TypedDict):
    """The turn waits for `respond_approval`."""

    type: Literal["approval_requested"]
    approval: ApprovalEntry


class ReasoningEvent(TypedDict):
    """A piece of what the model thinks."""

    type: Literal["reasoning"]
    text: str


class _ReasoningEnd(TypedDict):
    type: Literal["reasoning_end"]


class ReasoningEndEvent(_ReasoningEnd, total=False):
    tokens: int


class _Waiting(TypedDict):
    type: Literal["waiting"]
    # `rate_limit`, `overloaded`, `full`, or `retry` before a call that failed is sent again.
    reason: str


class WaitingEvent(_Waiting, total=False):
    """The model's provider lets the turn wait."""

    wait_ms: int


# `from` is a word of the language.
FallbackEvent = TypedDict("FallbackEvent", {"type": Literal["fallback"], "from": str, "to": str, "reason": str})


class _Usage(TypedDict):
    type: Literal["usage"]
    input: int
    cache_read: int
    cache_write: int
    output: int
    reasoning: int


class UsageEvent(_Usage, total=False):
    """What one step used."""

    discarded: int
    estimated: bool


class _TaskStatus(TypedDict):
    type: Literal["task_status"]
    task_id: str
    status: str
    attempts: int


class TaskStatusEvent(_TaskStatus, total=False):
    """How far a task of `run_plan` got."""

    error: str


Event = Union[
    TextEvent,
    ToolCallEvent,
    ToolProgressEvent,
    ToolResultEvent,
    ApprovalRequestedEvent,
    ReasoningEvent,
    ReasoningEndEvent,
    WaitingEvent,
    FallbackEvent,
    UsageEvent,
    TaskStatusEvent,
]
