"""Says whether request bodies are what a vendor's own types allow. Reads a body a line and prints a line of JSON for
each: what is wrong with it, or nothing.

    validate.py WIRE < bodies

A key that the types do not know is wrong too: most services refuse one, and the others pass it over.
"""

import json
import sys


def main():
    check = {
        "messages": messages,
        "chat": chat,
        "responses": responses,
        "generate_content": generate_content,
        "ollama": ollama,
    }[sys.argv[1]]()
    for line in sys.stdin:
        print(json.dumps(check(json.loads(line))), flush=True)


def verdict(errors, unknown=()):
    return {"errors": list(errors), "unknown": list(unknown)}


def check_with(validated):
    """A check by a function that gives back what the types know of a body, or raises."""
    import warnings

    from pydantic import ValidationError

    def check(body):
        try:
            with warnings.catch_warnings():
                # Google's types take a word they do not know, with a warning.
                warnings.simplefilter("error", UserWarning)
                known = validated(body)
        except ValidationError as error:
            return verdict(dict.fromkeys(nearest(error.errors())))
        except UserWarning as warning:
            return verdict([str(warning)])
        return verdict([], lost(body, known))

    return check


def nearest(errors):
    """Where a value may be one of many types, each says what it lacks: the one that lacks least is what was meant."""
    branches = {}
    for error in errors:
        names = [index for index, key in enumerate(error["loc"]) if is_name_of_type(key)]
        branch = error["loc"][: names[-1] + 1] if names else ()
        branches.setdefault(branch, []).append(error)
    fewest = min(len(told) for told in branches.values())
    # A type that has another word where the kind of the thing stands is not what was meant.
    meant = [told for told in branches.values() if not any(is_other_kind(error) for error in told)]
    for told in meant or [told for told in branches.values() if len(told) == fewest]:
        for error in told:
            keys = [key for key in error["loc"] if not is_name_of_type(key)]
            yield f"{place(keys)}: {error['msg']}"


def is_name_of_type(key):
    return isinstance(key, str) and ("[" in key or key[:1].isupper() or key == "str")


def is_other_kind(error):
    return error["loc"][-1] in ("type", "role") and error["type"] == "literal_error"


def place(keys):
    return ".".join(str(key) for key in keys) or "body"


def lost(body, known, at=()):
    """The places in a body that the types passed over."""
    if isinstance(body, dict) and isinstance(known, dict):
        for key, value in body.items():
            if key not in known:
                yield place((*at, key))
            else:
                yield from lost(value, known[key], (*at, key))
    elif isinstance(body, list) and isinstance(known, list):
        for index, (value, other) in enumerate(zip(body, known)):
            yield from lost(value, other, (*at, index))


def made(value):
    """All of a value whose lists are looked at only when somebody asks for the next element."""
    if isinstance(value, dict):
        return {key: made(member) for key, member in value.items()}
    if value is None or isinstance(value, (str, bytes, int, float)):
        return value
    return [made(element) for element in value]


def by_type(a_type):
    from pydantic import TypeAdapter

    adapter = TypeAdapter(a_type)
    return check_with(lambda body: made(adapter.validate_python(body)))


def messages():
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    return by_type(MessageCreateParamsStreaming)


def chat():
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    return by_type(CompletionCreateParamsStreaming)


def responses():
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    # The types want what the service gave out for items that it keeps. Who keeps them himself has to leave it out.
    given_out = {"reasoning": {"id": "rs_0"}, "message": {"id": "msg_0", "status": "completed"}}

    def with_what_was_given_out(item):
        is_of_model = item.get("role", "assistant") == "assistant"
        return {**(given_out.get(item.get("type"), {}) if is_of_model else {}), **item}

    check = by_type(ResponseCreateParamsStreaming)

    def check_filled(body):
        items = body.get("input")
        if isinstance(items, list):
            body = {**body, "input": [with_what_was_given_out(item) for item in items]}
        return check(body)

    return check_filled


def generate_content():
    from google.genai import types
    from pydantic import BaseModel, ConfigDict, Field

    class Body(BaseModel):
        """The client has no type of the whole body: it makes one of these."""

        model_config = ConfigDict(extra="forbid")
        contents: list[types.Content] = Field(min_length=1)
        systemInstruction: types.Content | None = None
        tools: list[types.Tool] | None = None
        toolConfig: types.ToolConfig | None = None
        generationConfig: types.GenerationConfig | None = None
        safetySettings: list[types.SafetySetting] | None = None
        cachedContent: str | None = None

    # These types refuse what they do not know by themselves.
    def validated(body):
        Body.model_validate_json(json.dumps(body))
        return body

    return check_with(validated)


def ollama():
    from ollama._types import ChatRequest, Message, Options, Tool

    # The server knows more than its client's types: `ChatRequest` and `Message` in its `api/types.go`.
    request_keys = {"truncate", "shift"}
    message_keys = {"tool_call_id"}

    def validated(body):
        known = ChatRequest.model_validate(body).model_dump(exclude_unset=True)
        # There any mapping will do for these.
        if "messages" in body:
            known["messages"] = [message(of) for of in body["messages"]]
        if "tools" in body:
            known["tools"] = [tool(of) for of in body["tools"]]
        if "options" in body:
            known["options"] = dumped(Options, body["options"])
        known.update(chosen(body, request_keys))
        return known

    def message(of):
        images = {"images": [{"value": image} for image in of["images"]]} if "images" in of else {}
        known = {**dumped(Message, {**of, **images}), **chosen(of, message_keys | {"images"})}
        for call, of_call in zip(known.get("tool_calls", []), of.get("tool_calls", [])):
            call.update(chosen(of_call, {"id"}))
            call["function"].update(chosen(of_call["function"], {"index"}))
        return known

    def tool(of):
        known = dumped(Tool, of)
        # A schema may say more than is read of it.
        known["function"].update(chosen(of["function"], {"parameters"}))
        return known

    def dumped(a_type, of):
        return a_type.model_validate(of).model_dump(exclude_unset=True)

    def chosen(of, keys):
        return {key: of[key] for key in keys & of.keys()}

    return check_with(validated)


if __name__ == "__main__":
    main()
