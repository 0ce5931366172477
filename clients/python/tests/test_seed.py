"""The first Python client's own call sequence, as its document has it."""

from __future__ import annotations

import asyncio
import socket
from typing import List

import pytest
from conftest import Server

from nexus3.client import ClientError, NexusClient, NexusError


def test_the_call_sequence_of_the_first_client(own_server: Server) -> None:
    said: List[str] = []

    async def main() -> None:
        async with NexusClient(url=own_server.url, timeout=60.0) as client:
            result = await client.send("Hello!")
            said.append(result["content"])
        async with NexusClient(own_server.url) as client:
            await client.send("My name is Alice")
            result = await client.send("What is my name?", request_id=7)
            assert result["request_id"] == 7
            context = await client.get_context()
            assert context["message_count"] == 6 and context["system_prompt"] is True
            tokens = await client.get_tokens()
            assert tokens["total"] >= tokens["messages"] > 0 and tokens["budget"] > 0
            assert await client.cancel(8) == {
                "cancelled": False,
                "request_id": 8,
                "reason": "not_found_or_completed",
            }
            try:
                await client.send("")
            except ClientError as e:
                said.append(f"Error: {e}")
            sending = asyncio.create_task(client.send("hang", 9))
            while not (await client.cancel(request_id=9))["cancelled"]:
                pass
            cancelled = await sending
            assert cancelled["cancelled"] is True and cancelled["request_id"] == 9
            assert await client.shutdown() == {"success": True}

    asyncio.run(main())
    assert said == ["Hello!", "Error: content must not be blank (-32602)"]
    assert own_server.process.wait() == 0


def test_no_server() -> None:
    # The port is taken, so that nobody else can have it, and nobody listens.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:{}".format(taken.getsockname()[1])

        async def main() -> None:
            async with NexusClient(url) as client:
                await client.send("Hello")

        with pytest.raises(ClientError, match="no connection to 127.0.0.1:.*refused") as raised:
            asyncio.run(main())
        assert isinstance(raised.value, NexusError)
        assert (raised.value.code, raised.value.data) == (None, None)
