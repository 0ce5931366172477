"""What a call costs over this client, and over bare httpx and http.client in the same run; and a thousand streams at
once.

    python clients/python/bench/overhead.py

Needs httpx beside the client, and the programs of the directory that NEXUS3_BIN names (target/debug when absent). The
calls are of `rpc.version`, which the server answers in some microseconds. Rounds take turns, and the median of each is
compared, so that what else the machine does meets both alike."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Awaitable, Callable, Dict, List

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from conftest import Server, World

from nexus3 import sync
from nexus3.client import NexusClient

ROUNDS, CALLS, STREAMS = 20, 200, 1000
# The goal: at most this much more than bare httpx.
OVERHEAD_MAX_MICROSECONDS = 150


async def main(server: Server) -> None:
    token = (server.world.home / f"rpc-{server.port}.token").read_text().strip()
    headers, url, ids = {"authorization": f"Bearer {token}"}, f"{server.url}/rpc", itertools.count(1)

    def request() -> Dict[str, Any]:
        return {"jsonrpc": "2.0", "method": "rpc.version", "id": next(ids)}

    async with NexusClient(server.url) as ours, httpx.AsyncClient(headers=headers, trust_env=False) as bare:

        async def bare_call() -> None:
            (await bare.post(url, json=request())).json()["result"]

        await compare("async", ours.rpc_version, bare_call)
        await streams(ours)
    with sync.NexusClient(server.url) as waiting, httpx.Client(headers=headers, trust_env=False) as bare_waiting:

        async def waiting_call() -> None:
            waiting.rpc_version()

        async def bare_waiting_call() -> None:
            bare_waiting.post(url, json=request()).json()["result"]

        await compare("blocking", waiting_call, bare_waiting_call)
        library = http.client.HTTPConnection("127.0.0.1", server.port)

        async def library_call() -> None:
            library.request("POST", "/rpc", json.dumps(request()), headers)
            json.loads(library.getresponse().read())["result"]

        await compare("blocking", waiting_call, library_call, "http.client")
        library.close()


Calls = Callable[[], Awaitable[Any]]


async def compare(name: str, ours: Calls, bare: Calls, library: str = "httpx") -> None:
    times: Dict[str, List[float]] = {"client": [], library: []}
    for turn in range(ROUNDS + 1):
        for kind, call in (("client", ours), (library, bare)):
            start = time.perf_counter()
            for _ in range(CALLS):
                await call()
            if turn > 0:  # the first one is for warming up
                times[kind].append((time.perf_counter() - start) / CALLS * 1e6)
    client, other = (statistics.median(times[kind]) for kind in ("client", library))
    over = client - other
    verdict = "ok" if over < OVERHEAD_MAX_MICROSECONDS else f"over the goal of {OVERHEAD_MAX_MICROSECONDS} µs"
    line = f"{name}: client {client:.0f} µs, {library} {other:.0f} µs"
    print(f"{line}: {over:+.0f} µs a call, {client / other:.2f} times; {verdict}")


async def streams(client: NexusClient) -> None:
    start, there, all_there = time.perf_counter(), 0, asyncio.Event()

    async def one() -> None:
        nonlocal there
        agent = client.agent((await client.create_agent("."))["agent_id"])
        async with agent.send_stream("hang") as stream:
            await stream.__anext__()
            there += 1
            if there == STREAMS:
                all_there.set()
            await all_there.wait()

    await asyncio.gather(*[one() for _ in range(STREAMS)])
    print(f"{STREAMS} streams open at once: all have their first piece after {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory), {"max_concurrent": STREAMS, "max_queued": 4 * STREAMS, "max_connections": 3 * STREAMS})
        started = Server(world)
        os.environ["NEXUS3_HOME"] = str(world.home)
        try:
            asyncio.run(main(started))
        finally:
            started.stop()
            world.close()
