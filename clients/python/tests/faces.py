"""One way to write a test for all clients: the blocking one, behind the face of the other."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict

from conftest import Server

from nexus3 import client, sync

THREADS = ThreadPoolExecutor(256)


async def aside(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(THREADS, lambda: work(*args, **kwargs))


class Waiting:
    """A `sync.NexusClient` or an agent of one, each of whose calls waits in a thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name == "agent":
            return lambda agent_id: Waiting(attribute(agent_id))
        if name.endswith("_stream") or name == "watch":
            return lambda *args, **kwargs: WaitingStream(attribute(*args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await aside(attribute, *args, **kwargs)

        return call

    async def __aenter__(self) -> Waiting:
        return self

    async def __aexit__(self, *_: object) -> None:
        await aside(self._inner.close)

    aclose = __aexit__


class WaitingStream:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __aiter__(self) -> WaitingStream:
        return self

    async def __anext__(self) -> Any:
        piece = await aside(next, self._inner, None)
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def events(self) -> Any:
        events = self._inner.events()
        while True:
            event = await aside(next, events, None)
            if event is None:
                return
            yield event

    @property
    def request_id(self) -> Any:
        return self._inner.request_id

    @property
    def watch_id(self) -> Any:
        return self._inner.watch_id

    async def result(self) -> Any:
        return await aside(self._inner.result)

    async def cancel(self) -> Any:
        return await aside(self._inner.cancel)

    async def aclose(self) -> None:
        await aside(self._inner.close)

    async def __aenter__(self) -> WaitingStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def over_http(server: Server, **options: Any) -> Any:
    return client.NexusClient(server.url, **options)


def over_socket(server: Server, **options: Any) -> Any:
    return client.NexusClient.over_socket(server.socket, **options)


def over_stdio(server: Server, **options: Any) -> Any:
    return client.NexusClient.over_stdio(env=server.world.env, cwd=server.world.directory, **options)


def blocking_over_http(server: Server, **options: Any) -> Any:
    return Waiting(sync.NexusClient(server.url, **options))


def blocking_over_socket(server: Server, **options: Any) -> Any:
    return Waiting(sync.NexusClient.over_socket(server.socket, **options))


def blocking_over_stdio(server: Server, **options: Any) -> Any:
    return Waiting(sync.NexusClient.over_stdio(env=server.world.env, cwd=server.world.directory, **options))


Connect = Callable[..., Any]
FACES: Dict[str, Connect] = {
    "http": over_http,
    "socket": over_socket,
    "stdio": over_stdio,
    "blocking-http": blocking_over_http,
    "blocking-socket": blocking_over_socket,
    "blocking-stdio": blocking_over_stdio,
}
