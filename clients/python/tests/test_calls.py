"""What every client does over every transport."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from typing import Any, Awaitable, Callable, List, Set

import pytest
from conftest import Server
from faces import FACES, Connect

from nexus3.client import ClientError, NexusClient, RpcError

Main = Callable[[Any], Awaitable[None]]


@pytest.fixture(params=FACES)
def connect(request: pytest.FixtureRequest) -> Connect:
    return FACES[request.param]


def run(connect: Connect, server: Server, main: Main, **options: Any) -> None:
    async def whole() -> None:
        async with connect(server, **options) as client:
            await main(client)

    asyncio.run(whole())


async def temporary(client: Any) -> Any:
    """An agent of the test's own."""
    return client.agent((await client.create_agent("."))["agent_id"])


async def until_idle(client: Any, agent: Any) -> None:
    while True:
        agents = (await client.list_agents())["agents"]
        if all(entry["status"] == "idle" for entry in agents if entry["agent_id"] == agent_id(agent)):
            return


def agent_id(agent: Any) -> str:
    return str(getattr(agent, "_inner", agent).agent_id)


def test_an_agent_is_talked_to(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        answer = await agent.send("say grüße 🐍")
        assert answer["content"] == "grüße 🐍" and answer["stop_reason"] == "end_turn"
        assert (await agent.get_context())["message_count"] == 2
        assert (await agent.get_messages())["messages"][1]["content"] == "grüße 🐍"
        assert (await client.rpc_version())["name"] == "nexus3"
        assert (await client.call("get_context", agent_id=agent_id(agent)))["message_count"] == 2
        destroyed = await client.destroy_agent(agent_id(agent))
        assert destroyed["destroyed"] == [agent_id(agent)]

    run(connect, server, main)


def test_errors_have_code_message_and_data(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        with pytest.raises(RpcError) as raised:
            await client.agent("nobody").send("Hello")
        assert str(raised.value) == "Unknown agent: nobody (-32602)"
        assert raised.value.code == -32602
        assert raised.value.message == "Unknown agent: nobody"
        assert raised.value.data == {"path": "/agent_id"}
        with pytest.raises(ClientError, match=r"Method not found: nope \(-32601\)"):
            await client.call("nope")
        with pytest.raises(ClientError, match="cannot be written as JSON"):
            await client.call("send", {"content": float("nan")})
        with pytest.raises(ClientError, match="cannot be written as JSON"):
            await client.call("send", {"content": "\ud800"})
        # A name that is none does not become another path.
        with pytest.raises(RpcError):
            await client.agent("../rpc").get_context()

    run(connect, server, main)


def test_many_calls_at_once(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agents = await asyncio.gather(*[temporary(client) for _ in range(20)])
        calls = [agents[number % 20].send(f"say number {number}") for number in range(200)]
        answers = await asyncio.gather(*calls)
        assert [answer["content"] for answer in answers] == [f"number {number}" for number in range(200)]

    run(connect, server, main)


def test_answers_come_in_the_order_in_which_they_are_ready(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        order: List[str] = []

        async def hanging() -> None:
            await agent.send("hang", request_id="slow")
            order.append("slow")

        async def quick() -> None:
            while not (await client.list_agents())["agents"]:
                pass
            order.append("quick")
            while not (await agent.cancel("slow"))["cancelled"]:
                pass

        await asyncio.gather(hanging(), quick())
        assert order == ["quick", "slow"]

    run(connect, server, main)


def test_a_call_of_the_largest_size(connect: Connect, server: Server) -> None:
    """1 MiB over HTTP and stdio, 10 MiB on the socket: one byte more is refused, and the client goes on."""

    async def main(client: Any) -> None:
        limit = 10 << 20 if "socket" in connect.__name__ else 1 << 20
        # As large as the request around it is. Code that is nobody's language is not looked at.
        params = {"code": "", "language": "none"}
        envelope = {"jsonrpc": "2.0", "method": "validate_code", "params": params, "id": 2}
        room = limit - len(json.dumps(envelope, separators=(",", ":")))
        assert (await client.rpc_version())["name"] == "nexus3"
        with pytest.raises(RpcError, match="language|larger|at most") as just_under:
            await client.call("validate_code", {**params, "code": "x" * room})
        assert just_under.value.code == -32602
        with pytest.raises(ClientError, match="larger than 1048576 bytes|over 1048576 bytes|over 10485760 bytes"):
            await client.call("validate_code", {**params, "code": "x" * (room + 1)})
        with pytest.raises(ClientError, match="larger than 1048576 bytes|over 1048576 bytes|over 10485760 bytes"):
            await client.call("validate_code", {**params, "code": "x" * (5 * room)})
        assert (await client.rpc_version())["name"] == "nexus3"

    run(connect, server, main)


def test_a_closed_client_says_so(connect: Connect, server: Server) -> None:
    async def main() -> None:
        client = connect(server)
        agent = await temporary(client)
        waiting = asyncio.ensure_future(agent.send("hang", "r"))
        while (await client.list_agents())["agents"] == []:
            pass
        await client.aclose()
        if "stdio" in connect.__name__:
            # The child answered what it cancelled before it went.
            assert (await waiting)["cancelled"] is True
        else:
            with pytest.raises(ClientError):
                await waiting
            async with NexusClient(server.url) as other:
                await other.destroy_agent(agent_id(agent))
        with pytest.raises(ClientError, match="the client is closed"):
            await client.rpc_version()
        await client.aclose()

    asyncio.run(main())


def open_files() -> Set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # that of the directory itself
            pass
    return found


def test_no_connection_stays_open(connect: Connect, server: Server) -> None:
    before = open_files()

    async def main(client: Any) -> None:
        await asyncio.gather(*[client.rpc_version() for _ in range(20)])
        for _ in range(5):
            async for _piece in (await temporary(client)).send_stream("hang"):
                break

    run(connect, server, main)
    assert open_files() - before == set()


def test_a_key_makes_a_call_once(connect: Connect, server: Server) -> None:
    async def main(client: Any) -> None:
        agent = await temporary(client)
        key, other = str(uuid.uuid4()), str(uuid.uuid4())
        first = await agent.send("say once", idempotency_key=key)
        assert await agent.send("say once", idempotency_key=key) == first
        assert (await agent.get_context())["message_count"] == 2
        stream = agent.send_stream("say twice", idempotency_key=other)
        assert "".join([piece async for piece in stream]) == "twice"
        assert stream.request_id is None
        again = agent.send_stream("say twice", idempotency_key=other)
        assert [piece async for piece in again] == ["twice"]
        assert await again.result() == await stream.result()
        with pytest.raises(RpcError, match="idempotency_key"):
            await agent.send("say other words", idempotency_key=key)

    run(connect, server, main)
