"""The client for threads that wait: the same as `nexus3.client`, without `await`."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from . import _detection
from ._base import Client
from ._detection import Detection
from ._io import BlockingIO, run
from ._methods_sync import AgentMethods, ServerMethods
from ._stream_sync import Stream, Watch
from .errors import AnswerError, CallTimeout, ClientError, ConnectError, ConnectionLost, NexusError, RpcError

__all__ = [
    "Agent",
    "AnswerError",
    "CallTimeout",
    "ClientError",
    "ConnectError",
    "ConnectionLost",
    "Detection",
    "NexusClient",
    "NexusError",
    "RpcError",
    "Stream",
    "Watch",
    "detect_server",
    "wait_for_server",
]


class NexusClient(Client, ServerMethods, AgentMethods):
    """Calls a server, by as many threads at once as there are. The methods of an agent go to the agent `main`, those of
    `agent(name)` to another; `shutdown()` here stops the server."""

    _IO = BlockingIO

    def agent(self, agent_id: str) -> Agent:
        """The methods of one agent."""
        return Agent(self, agent_id)

    def call(self, method: str, params: Optional[Mapping[str, Any]] = None, *, agent_id: Optional[str] = None) -> Any:
        """Calls a method by its name."""
        return run(self._core.call(method, params or {}, agent_id))

    def close(self) -> None:
        """Ends the connections, and what is under way on them with an error."""
        run(self._core.transport.close())

    def __enter__(self) -> NexusClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, params: Dict[str, Any]) -> Any:
        return run(self._core.call(method, params))

    def _stream(self, method: str, params: Dict[str, Any]) -> Stream[Any]:
        return Stream(self._core, method, params)

    def _watch(self, params: Dict[str, Any]) -> Watch:
        return Watch(self._core, params)


class Agent(AgentMethods):
    """One agent of a server."""

    def __init__(self, client: NexusClient, agent_id: str) -> None:
        self._core = client._core
        self.agent_id = agent_id

    def _call(self, method: str, params: Dict[str, Any]) -> Any:
        return run(self._core.call(method, params, self.agent_id))

    def _stream(self, method: str, params: Dict[str, Any]) -> Stream[Any]:
        return Stream(self._core, method, params, self.agent_id)


def detect_server(host: str = "127.0.0.1", port: int = 8765, timeout: float = 2.0) -> Detection:
    """What listens there. Sends no token."""
    return run(_detection.detect(BlockingIO(), host, port, timeout))


def wait_for_server(host: str = "127.0.0.1", port: int = 8765, timeout: float = 30.0) -> bool:
    """Waits until a server answers; false when none did in time."""
    return run(_detection.wait(BlockingIO(), host, port, timeout))
