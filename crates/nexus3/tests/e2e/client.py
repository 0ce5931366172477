"""A stranger's client: plain HTTP from Python's standard library, as in seed 001.

    python3 client.py PORT TOKEN_FILE

Makes an agent, talks to it, cancels a turn in mid-answer, lists and destroys it. The model must answer the first
message and hang in the middle of its second answer. Prints one line of JSON per answer; the first thing that is not
as expected ends it with a traceback and exit code 1.
"""

import http.client
import json
import pathlib
import sys
import threading

TIMEOUT_SECONDS = 30


class Server:
    def __init__(self, port, token):
        self.port = port
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.next_id = 0

    def post(self, path, method, **params):
        """Returns the HTTP status and the whole answer."""
        self.next_id += 1
        request = {"jsonrpc": "2.0", "method": method, "params": params, "id": self.next_id}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("POST", path, json.dumps(request), self.headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        assert answer["jsonrpc"] == "2.0", answer
        return response.status, answer

    def call(self, path, method, **params):
        status, answer = self.post(path, method, **params)
        assert status == 200 and "error" not in answer, (method, status, answer)
        print(json.dumps({"method": method, "result": answer["result"]}), flush=True)
        return answer["result"]


def main():
    port, token_file = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    server = Server(port, token_file.read_text())

    made = server.call("/rpc", "create_agent", agent_id="snake", preset="trusted")
    assert made == {"agent_id": "snake", "url": "/agent/snake"}, made
    path = made["url"]

    answer = server.call(path, "send", content="Hello from Python: äöü 🐍")
    assert answer["content"] and answer["request_id"].startswith("req_"), answer
    assert answer["halted_at_iteration_limit"] is False, answer

    (listed,) = server.call("/rpc", "list_agents")["agents"]
    assert listed["agent_id"] == "snake" and listed["message_count"] == 2, listed
    assert listed["permission_level"] == "TRUSTED" and listed["status"] == "idle", listed

    cancelled = cancel_in_mid_answer(Server(port, token_file.read_text()), server, path)
    assert cancelled["cancelled"] is True and cancelled["request_id"] == 7, cancelled

    missed = server.call(path, "cancel", request_id="never")
    assert missed == {
        "cancelled": False, "request_id": "never", "reason": "not_found_or_completed",
    }, missed

    ended = server.call("/rpc", "destroy_agent", agent_id="snake")
    assert ended == {"success": True, "agent_id": "snake", "destroyed": ["snake"]}, ended
    status, answer = server.post(path, "get_context")
    assert status == 404 and answer["error"]["code"] == -32602, (status, answer)
    assert server.call("/rpc", "list_agents") == {"agents": []}


def cancel_in_mid_answer(sender, server, path):
    """Sends from a thread of its own and cancels until the send answers."""
    answers = []
    send = lambda: answers.append(sender.call(path, "send", content="Go on for ever", request_id=7))
    thread = threading.Thread(target=send)
    thread.start()
    while not server.call(path, "cancel", request_id=7)["cancelled"] and thread.is_alive():
        pass
    thread.join()
    (answer,) = answers
    return answer


main()
