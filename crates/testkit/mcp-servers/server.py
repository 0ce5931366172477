"""An MCP server made with the Python SDK, on a port of its own, which it prints: for those who use one over HTTP.

server.py json|events
"""

import asyncio
import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sdk")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def count(to: int, context: Context) -> str:
    """Counts aloud."""
    for number in range(to):
        await context.report_progress(number + 1, to)
        await asyncio.sleep(0.05)
    return f"counted to {to}"


def main(way: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    app = server.streamable_http_app(json_response=way == "json")
    config = uvicorn.Config(app, log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])


main(*sys.argv[1:])
