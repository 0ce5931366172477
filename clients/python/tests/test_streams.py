"""Answers as they are made, over every transport."""

from __future__ import annotations

import asyncio
from typing import Any, List

import pytest
from conftest import Server
from faces import FACES, Connect
from test_calls import agent_id, run, temporary, until_idle

from nexus3.client import CallTimeout, ClientError, NexusClient, RpcError


@pytest.fixture(params=FACES)
def connect(request: pytest.FixtureRequest) -> Connect:
    return FACES[request.param]


def test_a_whole_stream(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        stream = agent.send_stream("say one two grüße 🐍")
        assert "".join([piece async for piece in stream]) == "one two grüße 🐍"
        result = await stream.result()
        assert result["content"] == "one two grüße 🐍" and result["request_id"] == stream.request_id
        # It is over, and stays so.
        assert [piece async for piece in stream] == []
        # And without a look at its pieces.
        assert (await agent.send_stream("say three").result())["content"] == "three"

    run(connect, server, main)


def test_events(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        events = [event async for event in agent.send_stream('call list_directory {"path": "."}').events()]
        kinds = [event["type"] for event in events]
        assert kinds == ["tool_call", "usage", "tool_result", "text", "usage"]
        assert events[0]["name"] == "list_directory" and events[0]["arguments"] == {"path": "."}
        assert events[2]["id"] == events[0]["id"] and events[3] == {"type": "text", "text": "done"}

    run(connect, server, main)


def test_breaking_out_cancels(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        async for piece in agent.send_stream("hang"):
            assert piece == "hanging"
            break
        await until_idle(client, agent)
        async with agent.send_stream("hang") as stream:
            await stream.__anext__()
        await until_idle(client, agent)
        with pytest.raises(ClientError, match="ended before its answer"):
            await stream.result()
        last = (await agent.get_messages())["messages"][-1]
        assert last["content"] == "hanging" and last["meta"]["interrupted"] is True
        # One that was never begun was never sent.
        agent.send_stream("hang")
        assert (await agent.get_context())["message_count"] == 4

    run(connect, server, main)


def test_cancelling(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        stream = agent.send_stream("hang")
        pieces: List[str] = []
        async for piece in stream:
            pieces.append(piece)
            assert await stream.cancel() == {"cancelled": True, "request_id": stream.request_id}
        result = await stream.result()
        assert pieces == ["hanging"] and result["content"] == "hanging" and result["cancelled"] is True
        named = agent.send_stream("hang", request_id="mine")
        async for _ in named:
            assert (await agent.cancel("mine"))["cancelled"] is True
        assert (await named.result())["cancelled"] is True

    run(connect, server, main)


def test_errors_of_a_stream(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        stream = agent.send_stream("status 400")
        with pytest.raises(RpcError, match="-32603"):
            await stream.result()
        # It does not begin anew.
        assert [piece async for piece in stream] == []
        with pytest.raises(RpcError, match="Unknown agent"):
            async for _ in client.agent("nobody").send_stream("Hello"):
                pass

    run(connect, server, main)


def test_an_agent_is_destroyed_in_mid_stream(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        stream = agent.send_stream("hang")
        assert await stream.__anext__() == "hanging"
        await client.destroy_agent(agent_id(agent))
        try:
            result = await stream.result()
        except RpcError:
            return
        assert result["cancelled"] is True and result["content"] == "hanging"

    run(connect, server, main)


def test_a_silent_stream_is_given_up(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        stream = agent.send_stream("hang")
        with pytest.raises(CallTimeout, match="no answer to send within 0.3 s; it was sent"):
            await stream.result()
        await until_idle(client, agent)
        # One that is not silent may take longer than that.
        assert len((await agent.send_stream("slowly 40").result())["content"].split()) == 40

    run(connect, server, main, timeout=0.3)


def test_streams_of_tasks(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        options = {"timeout_ms": 20_000}
        stream = client.execute_task_stream("analysis", "say looked at it", options=options)
        pieces = [piece async for piece in stream]
        result = await stream.result()
        assert result["output"]["text"] == "".join(pieces) and "stream" not in options

    run(connect, server, main)


def test_a_thousand_streams_at_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from conftest import World

    world = World(tmp_path, {"max_concurrent": 1000, "max_queued": 4000, "max_connections": 3000})
    monkeypatch.setenv("NEXUS3_HOME", str(world.home))
    server = Server(world)
    reached = 0

    async def one(client: NexusClient, all_there: asyncio.Event) -> None:
        nonlocal reached
        agent = client.agent((await client.create_agent("."))["agent_id"])
        async with agent.send_stream("hang") as stream:
            assert await stream.__anext__() == "hanging"
            reached += 1
            if reached == 1000:
                all_there.set()
            await all_there.wait()

    async def main() -> None:
        async with NexusClient(server.url, timeout=None) as client:
            all_there = asyncio.Event()
            await asyncio.gather(*[one(client, all_there) for _ in range(1000)])

    try:
        asyncio.run(main())
    finally:
        server.stop()
        world.close()
    assert reached == 1000


def test_a_stream_survives_an_impatient_reader(server: Server) -> None:
    async def main() -> None:
        async with NexusClient(server.url) as client:
            stream = (await temporary(client)).send_stream("slowly 20")
            pieces: List[str] = []
            while True:
                try:
                    pieces.append(await asyncio.wait_for(stream.__anext__(), 0.001))
                except asyncio.TimeoutError:
                    continue
                except StopAsyncIteration:
                    break
            assert "".join(pieces) == (await stream.result())["content"]

    asyncio.run(main())


def test_a_stream_that_was_not_waited_for_is_begun_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with NexusClient(server.url) as client:
            transport = client._core.transport
            begin, begun = transport.begin, []

            async def slowly(call: Any, deadline: Any) -> Any:
                exchange = await begin(call, deadline)
                begun.append(exchange)
                await asyncio.sleep(0.1)  # it was sent, and nobody has heard of it yet
                return exchange

            monkeypatch.setattr(transport, "begin", slowly)
            agent = await temporary(client)
            begun.clear()
            stream = agent.send_stream("hello")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(stream.__anext__(), 0.01)
            text = "".join([piece async for piece in stream])
            assert text == (await stream.result())["content"]
            assert len(begun) == 1
            # And one that is let go of meanwhile is hung up on when it is there.
            left = agent.send_stream("hello")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(left.__anext__(), 0.01)
            await left.aclose()
            await asyncio.sleep(0.3)
            assert len(begun) == 2
            assert [piece async for piece in left] == []

    asyncio.run(main())
