"""The client for asyncio. `nexus3.sync` has the same for threads that wait."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from . import _detection
from ._base import Client
from ._detection import Detection
from ._io import AsyncIO
from ._methods import AgentMethods, ServerMethods
from ._stream import Stream, Watch
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
    """Calls a server, by as many tasks at once as there are. The methods of an agent go to the agent `main`, those of
    `agent(name)` to another; `shutdown()` here stops the server."""

    _IO = AsyncIO

    def agent(self, agent_id: str) -> Agent:
        """The methods of one agent."""
        return Agent(self, agent_id)

    async def call(self, method: str, params: Optional[Mapping[str, Any]] = None, *, agent_id: Optional[str] = None) -> Any:
        """Calls a method by its name."""
        return await self._core.call(method, params or {}, agent_id)

    async def aclose(self) -> None:
        """Ends the connections, and what is under way on them with an error."""
        await self._core.transport.close()

    async def __aenter__(self) -> NexusClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _call(self, method: str, params: Dict[str, Any]) -> Any:
        return await self._core.call(method, params)

    def _stream(self, method: str, params: Dict[str, Any]) -> Stream[Any]:
        return Stream(self._core, method, params)

    def _watch(self, params: Dict[str, Any]) -> Watch:
        return Watch(self._core, params)


class Agent(AgentMethods):
    """One agent of a server."""

    def __init__(self, client: NexusClient, agent_id: str) -> None:
        self._core = client._core
        self.agent_id = agent_id

    async def _call(self, method: str, params: Dict[str, Any]) -> Any:
        return await self._core.call(method, params, self.agent_id)

    def _stream(self, method: str, params: Dict[str, Any]) -> Stream[Any]:
        return Stream(self._core, method, params, self.agent_id)


async def detect_server(host: str = "127.0.0.1", port: int = 8765, timeout: float = 2.0) -> Detection:
    """What listens there. Sends no token."""
    return await _detection.detect(AsyncIO(), host, port, timeout)


async def wait_for_server(host: str = "127.0.0.1", port: int = 8765, timeout: float = 30.0) -> bool:
    """Waits until a server answers; false when none did in time."""
    return await _detection.wait(AsyncIO(), host, port, timeout)
