"""Agents that are watched, over every transport."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Any, Callable, Dict, List

import pytest
from conftest import RawServer, Server, error, result
from faces import FACES, Connect
from test_calls import agent_id, run, temporary
from test_faults import chunked, events, make, notification  # noqa: F401 (a fixture)

from nexus3 import client as asynchronous
from nexus3 import sync
from nexus3._io import BlockingIO, OutOfTime
from nexus3._io import run as blocking
from nexus3._retry import Deadline
from nexus3._stdio import UNREAD_BYTES_MAX, Inbox
from nexus3.client import CallTimeout, ClientError, ConnectionLost, RpcError
from nexus3.types import WatchEvent


@pytest.fixture(params=FACES)
def connect(request: pytest.FixtureRequest) -> Connect:
    return FACES[request.param]


async def until(watch: Any, kind: str) -> List[Dict[str, Any]]:
    """All up to the event of this type, which comes last."""
    told: List[Dict[str, Any]] = []
    while not told or told[-1]["event"]["type"] != kind:
        told.append(await watch.__anext__())
    return told


def kinds(told: List[Dict[str, Any]]) -> List[str]:
    return [event["event"]["type"] for event in told]


def text(told: List[Dict[str, Any]]) -> str:
    return "".join(event["event"]["text"] for event in told if event["event"]["type"] == "delta")


async def watchers(client: Any) -> List[str]:
    async with client.watch() as watch:
        names: List[str] = (await watch.__anext__())["event"]["watchers"]
        return names


def test_a_turn_from_its_beginning(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        watch = client.watch([agent_id(agent)])
        assert watch.watch_id is None
        (first,) = await until(watch, "snapshot")
        assert [entry["agent_id"] for entry in first["event"]["agents"]] == [agent_id(agent)]
        assert first["event"]["agents"][0]["turns"] == [] and first["watch_id"] == watch.watch_id
        await agent.send("say grüße 🐍", request_id="t")
        told = await until(watch, "turn_ended")
        assert {event["agent_id"] for event in told} == {agent_id(agent)}
        assert told[0]["request_id"] == told[-1]["request_id"] == "t"
        assert [event["sequence"] for event in told] == list(range(2, 2 + len(told)))
        assert kinds(told)[:2] == ["turn_queued", "turn_started"] and text(told) == "grüße 🐍"
        messages = [event["event"]["message"] for event in told if event["event"]["type"] == "message"]
        assert messages == (await agent.get_messages())["messages"]
        assert told[-1]["event"]["status"] == "done"
        assert await client.unwatch(watch.watch_id) == {"ended": True}
        assert [event async for event in watch] == []
        ended = {"watch_id": watch.watch_id, "reason": "unwatched", "events": 1 + len(told)}
        assert await watch.result() == ended
        # What carried it carries the next call.
        assert (await client.rpc_version())["name"] == "nexus3"

    run(connect, server, main)


def test_coming_in_the_middle(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        stream = agent.send_stream("hang", request_id="t")
        assert await stream.__anext__() == "hanging"
        async with client.watch([agent_id(agent)]) as watch:
            entry = (await watch.__anext__())["event"]["agents"][0]
            assert (entry["running_request_id"], entry["queued"]) == ("t", 0)
            (turn,) = entry["turns"]
            assert (turn["status"], turn["text"], turn["offset"]) == ("running", "hanging", 7)
            assert (await agent.get_context())["turns"] == [turn]
            assert (await agent.cancel("t"))["cancelled"] is True
            told = await until(watch, "turn_ended")
            assert text(told) == "" and told[-1]["event"]["status"] == "cancelled"
        await stream.result()

    run(connect, server, main)


def test_what_was_missed_comes_first(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        await agent.send("say one")
        await agent.send("say two")
        async with client.watch([agent_id(agent)], after={agent_id(agent): 1}, deltas=False) as watch:
            assert (await watch.__anext__())["event"]["agents"][0]["message_count"] == 4
            await agent.send("say three")
            told = await until(watch, "turn_ended")
        assert "delta" not in kinds(told)
        assert [event["event"]["index"] for event in told if event["event"]["type"] == "message"] == [2, 3, 4, 5]
        with pytest.raises(RpcError, match="-1 or more"):
            await client.watch([agent_id(agent)], after={agent_id(agent): -2}).result()

    run(connect, server, main)


def test_two_watches_do_not_mix(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agents = [await temporary(client) for _ in range(2)]
        watches = [client.watch([agent_id(agent)]) for agent in agents]
        for watch in watches:
            await until(watch, "snapshot")
        await asyncio.gather(*(agent.send(f"say {number}") for number, agent in enumerate(agents)))
        for number, watch in enumerate(watches):
            told = await until(watch, "turn_ended")
            assert {event["agent_id"] for event in told} == {agent_id(agents[number])}
            assert text(told) == str(number) and told[-1]["sequence"] == 1 + len(told)
        assert watches[0].watch_id != watches[1].watch_id
        await watches[0].aclose()
        await agents[1].send("say more")
        assert text(await until(watches[1], "turn_ended")) == "more"
        await watches[1].aclose()

    run(connect, server, main)


def test_hanging_up_ends_the_watch_and_nothing_else(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        name = f"pts/{agent_id(agent)}"
        sending = asyncio.ensure_future(agent.send("slowly 20"))
        async with client.watch([agent_id(agent)], name=name) as watch:
            async for event in watch:
                if event["event"]["type"] == "delta":
                    break
            assert name in await watchers(client)
        assert [event async for event in watch] == []
        with pytest.raises(ClientError, match="the watch was ended before its answer"):
            await watch.result()
        while name in await watchers(client):
            pass
        assert len((await sending)["content"].split()) == 20

    run(connect, server, main)


def test_another_closes_it(connect: Connect, server: Server) -> None:
    """Which ends the waiting of whoever iterates."""

    async def main(client: Any) -> None:
        agent = await temporary(client)
        watch = client.watch([agent_id(agent)])
        await until(watch, "snapshot")
        waiting = asyncio.ensure_future(watch.__anext__())
        await client.rpc_version()
        await watch.aclose()
        with pytest.raises(StopAsyncIteration):
            await waiting

    run(connect, server, main)


def test_quiet_for_longer_than_a_call_may_take(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        quiet, hanging = await temporary(client), await temporary(client)
        async with client.watch([agent_id(quiet)]) as watch:
            await until(watch, "snapshot")
            waiting = asyncio.ensure_future(until(watch, "turn_ended"))
            with pytest.raises(CallTimeout):
                await hanging.send("hang", request_id="t")
            await hanging.cancel("t")
            assert not waiting.done()
            await quiet.send("say at last")
            assert text(await waiting) == "at last"

    run(connect, server, main, timeout=1)


def test_refusals(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        with pytest.raises(RpcError, match="Unknown agent: nobody"):
            async for _ in client.watch(["nobody"]):
                pass
        with pytest.raises(RpcError, match="name has at most 64 characters"):
            await client.watch(name="x" * 65).result()
        async with client.watch(name="x" * 64) as watch:
            await until(watch, "snapshot")

    run(connect, server, main)


def child_of(client: Any) -> int:
    """The id of the server's process, where it is the client's own."""
    pid: int = getattr(client, "_inner", client)._core.transport._child._process.pid
    return pid


def test_a_server_that_stops(connect: Connect, own_server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        watch = client.watch([agent_id(agent)])
        await until(watch, "snapshot")
        stops = child_of(client) if "stdio" in connect.__name__ else own_server.process.pid
        os.kill(stops, signal.SIGTERM)
        assert kinds([event async for event in watch]) == ["server_stopping"]
        assert (await watch.result())["reason"] == "stopping"

    run(connect, own_server, main)


def test_a_server_that_is_killed(connect: Connect, own_server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        watch = client.watch([agent_id(agent)])
        await until(watch, "snapshot")
        if "stdio" in connect.__name__:
            os.kill(child_of(client), signal.SIGKILL)
        else:
            own_server.process.kill()
        with pytest.raises(ConnectionLost, match="the connection ended before the answer"):
            await watch.__anext__()
        assert [event async for event in watch] == []

    run(connect, own_server, main)


def told(kind: str, sequence: int, **members: Any) -> bytes:
    first = {"task_id": 1} if sequence == 1 else {}
    event = {"type": kind, **members}
    return notification("watch_event", watch_id="watch_1", sequence=sequence, at="", event=event, **first)


def test_what_a_newer_server_tells_is_passed_on(raw_server: Callable[..., RawServer], make: Callable[..., Any]) -> None:
    """Events of other types, and not other notifications; comments are nothing."""

    def serve(peer: socket.socket, request: bytes) -> None:
        first, newer = events([told("snapshot", 1, agents=[]), told("weather", 2, sun=True)])
        strange, last = events([notification("news", event={}), result(request, {"reason": "gone"})])
        peer.sendall(chunked([b": quiet\n\n", first, b": quiet\n\n", newer, strange, last], "text/event-stream"))

    async def main() -> None:
        async with make(raw_server(serve).url) as client:
            watch = client.watch()
            assert [event["event"] async for event in watch] == [
                {"type": "snapshot", "agents": []},
                {"type": "weather", "sun": True},
            ]
            assert await watch.result() == {"reason": "gone"}

    asyncio.run(main())


def test_it_is_begun_again_only_before_its_first_event(raw_server: Callable[..., RawServer], make: Callable[..., Any]) -> None:
    def serve(peer: socket.socket, request: bytes) -> None:
        full = error(request, -32001, {"retry_after_ms": 1})
        messages = [full] if len(server.requests) == 1 else [told("snapshot", 1), full]
        peer.sendall(chunked(events(messages), "text/event-stream"))

    server = raw_server(serve)

    async def main() -> None:
        async with make(server.url) as client:
            watch = client.watch()
            assert (await watch.__anext__())["event"] == {"type": "snapshot"}
            with pytest.raises(RpcError, match="-32001"):
                await watch.__anext__()

    asyncio.run(main())
    assert len(server.requests) == 2


def test_a_server_that_does_not_say_how_things_stand(raw_server: Callable[..., RawServer], make: Callable[..., Any]) -> None:
    server = raw_server(lambda peer, _: peer.sendall(chunked([], "text/event-stream", end=False)))

    async def main() -> None:
        async with make(server.url, timeout=0.1) as client:
            with pytest.raises(CallTimeout, match="no answer to watch within 0.1 s"):
                await client.watch().result()

    asyncio.run(main())


def test_a_watch_that_is_left_before_it_has_a_name(make: Callable[..., Any]) -> None:
    """On a connection that other calls share, it is ended when its name is known."""
    child = """
import json, sys
sys.stdin.readline()
call = json.loads(sys.stdin.readline())
event = {"watch_id": "watch_9", "sequence": 1, "task_id": 1, "at": "", "event": {"type": "snapshot"}}
print(json.dumps({"jsonrpc": "2.0", "method": "watch_event", "params": event}), flush=True)
answer = {"jsonrpc": "2.0", "id": call["id"], "result": json.loads(sys.stdin.readline())}
print(json.dumps(answer), flush=True)
sys.stdin.read()
"""

    async def main() -> None:
        async with make(child, timeout=2) as client:
            with pytest.raises(CallTimeout):
                await client.watch().result()
            told = await client.call("x")
            assert (told["method"], told["params"]) == ("unwatch", {"watch_id": "watch_9"}) and "id" not in told

    asyncio.run(main())


@pytest.mark.parametrize("waiting_bytes, kept", [(UNREAD_BYTES_MAX, 2), (UNREAD_BYTES_MAX + 1, 1)])
def test_what_nobody_reads_does_not_fill_the_memory(waiting_bytes: int, kept: int) -> None:
    """Nothing on this connection can be made to wait, so what is too much is dropped, and said to be."""
    inbox = Inbox(BlockingIO())
    for size in (waiting_bytes, 1, 1):
        inbox.put({"size": size}, size)
    for _ in range(kept):
        blocking(inbox.get(Deadline(0)))
    with pytest.raises(ClientError, match="nobody read what was told: over 67108864 bytes wait"):
        blocking(inbox.get(Deadline(0)))
    inbox.put({}, 1)
    with pytest.raises(OutOfTime):
        blocking(inbox.get(Deadline(0)))


def test_the_types_of_events() -> None:
    """For mypy: what is known of each event by its type."""

    def shown(told: WatchEvent) -> str:
        event = told["event"]
        if event["type"] == "delta":
            return event["text"]
        if event["type"] == "snapshot":
            return ", ".join(agent["agent_id"] for agent in event["agents"])
        return event["model"] or "" if event["type"] == "turn_started" else ""

    def by_thread(client: sync.NexusClient) -> str:
        with client.watch() as watch:
            return "".join(shown(event) for event in watch) + watch.result()["reason"]

    async def by_task(client: asynchronous.NexusClient) -> str:
        async with client.watch() as watch:
            return "".join([shown(event) async for event in watch]) + (await watch.result())["reason"]

    assert shown({"watch_id": "w", "sequence": 1, "at": "", "event": {"type": "delta", "step": 1, "offset": 0, "text": "a"}}) == "a"
    assert callable(by_thread) and callable(by_task)
