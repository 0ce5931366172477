"""A client made with the Python SDK: asks an agent something, allows what it asks leave for, loads the session again and
prints what it learnt, as JSON.

client.py PROGRAM ARGUMENT...
"""

import asyncio
import json
import os
import sys

from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
from acp.interfaces import Client
from acp.schema import AllowedOutcome, RequestPermissionResponse


class Editor(Client):
    def __init__(self):
        self.kinds, self.said, self.asked = set(), "", 0

    async def session_update(self, session_id, update, **kwargs):
        self.kinds.add(update.session_update)
        if update.session_update == "agent_message_chunk":
            self.said += update.content.text

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        self.asked += 1
        chosen = next(option for option in options if option.kind == "allow_once")
        outcome = AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return RequestPermissionResponse(outcome=outcome)


async def main():
    editor, cwd = Editor(), os.getcwd()
    program, *args = sys.argv[1:]
    async with spawn_agent_process(editor, program, *args, env=dict(os.environ), cwd=cwd) as (agent, process):
        hello = await agent.initialize(protocol_version=PROTOCOL_VERSION)
        opened = await agent.new_session(cwd=cwd, mcp_servers=[])
        session = opened.session_id
        answer = await agent.prompt(session_id=session, prompt=[text_block("Hello?")])
        said, editor.said = editor.said, ""
        await agent.load_session(session_id=session, cwd=cwd, mcp_servers=[])
        listed = await agent.list_sessions()
        learnt = {
            "version": hello.protocol_version,
            "mode": opened.modes.current_mode_id,
            "stop": answer.stop_reason,
            "said": said,
            "again": editor.said,
            "asked": editor.asked,
            "listed": any(it.session_id == session for it in listed.sessions),
            "kinds": sorted(editor.kinds),
        }
    learnt["exit"] = process.returncode
    print(json.dumps(learnt))


asyncio.run(main())
