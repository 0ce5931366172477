"""An MCP host made with the Python SDK: asks an agent something and prints what it learnt, as JSON.

host.py MODE stdio PROGRAM ARGUMENT...    host.py MODE http URL    (the token in NEXUS3_KEY)
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def main(mode: str, way: str, target: str, *arguments: str) -> None:
    if way == "stdio":
        transport = stdio_client(
            StdioServerParameters(command=target, args=list(arguments), env=dict(os.environ), cwd=os.getcwd())
        )
    else:
        headers = {"Authorization": "Bearer " + os.environ["NEXUS3_KEY"]}
        transport = streamable_http_client(target, http_client=create_mcp_http_client(headers=headers))
    async with Client(transport, mode=mode) as client:
        tools = await client.list_tools()
        answer = await client.call_tool("nexus_send", {"content": "Hello?"})
        agent = answer.structured_content["agent_id"]
        resource = await client.read_resource(f"nexus3://agent/{agent}/messages")
        learnt = {
            "version": client.protocol_version,
            "tools": len(tools.tools),
            "content": answer.structured_content["content"],
            "messages": len(json.loads(resource.contents[0].text)["messages"]),
        }
    print(json.dumps(learnt))


asyncio.run(main(*sys.argv[1:]))
