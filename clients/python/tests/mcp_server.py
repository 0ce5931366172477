"""A small MCP server: it has one tool and answers what it is asked, one message a line."""

import json
import sys

TOOL = {"name": "a1", "description": "Says nothing.", "inputSchema": {"type": "object"}}

for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), None
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "small", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "ping":
        result = {}
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        else:
            answer["result"] = result
        print(json.dumps(answer), flush=True)
