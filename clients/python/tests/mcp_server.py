"""A small MCP server: it has one of everything and answers what it is asked, one message a line."""

import json
import sys
from typing import Any, Dict

TOOL = {"name": "a1", "description": "Says nothing.", "inputSchema": {"type": "object"}}

CAPABILITIES: Dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
TEXT = {"type": "text", "text": "Nothing."}
ANSWERS: Dict[str, Any] = {
    "tools/list": {"tools": [TOOL]},
    "prompts/list": {"prompts": [{"name": "a1"}]},
    "prompts/get": {"messages": [{"role": "user", "content": TEXT}]},
    "resources/list": {"resources": [{"uri": "note:///a1", "name": "a1"}]},
    "resources/read": {"contents": [{"uri": "note:///a1", "text": "Nothing."}]},
    "ping": {},
}

for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), None
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "small", "version": "1"}
        result = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info}
    else:
        result = ANSWERS.get(method)
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        else:
            answer["result"] = result
        print(json.dumps(answer), flush=True)
