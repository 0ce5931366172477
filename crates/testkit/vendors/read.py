"""Asks the scripted model at ROOT with a vendor's own client and prints what that understood, a line of JSON for each
question.

    read.py ROOT WIRE QUESTION...

A question is `stream` or `whole`. No client tries again by itself, so each question is one request.
"""

import json
import sys

ROOT, WIRE, QUESTIONS = sys.argv[1], sys.argv[2], sys.argv[3:]
PROMPT = [{"role": "user", "content": "What now?"}]


def main():
    read = {
        "messages": messages,
        "chat": chat,
        "responses": responses,
        "generate_content": generate_content,
        "ollama": ollama,
    }[WIRE]()
    for question in QUESTIONS:
        heard = Heard()
        read(heard, question == "stream")
        print(json.dumps(heard.told(), sort_keys=True), flush=True)


class Heard:
    """What a client understood, in words that hold for every wire. What was not said is left out."""

    def __init__(self):
        self.text, self.thought, self.refusal = "", "", ""
        self.signatures, self.redacted, self.calls = [], [], []
        self.stop, self.details, self.usage, self.error = None, None, None, None

    def told(self):
        return {name: value for name, value in vars(self).items() if value}

    def call(self, id, name, arguments):
        self.calls.append({"id": id, "name": name, "arguments": arguments})

    def count(self, input, output, cache_read=0, cache_write=0, reasoning=0):
        self.usage = {
            "input": input,
            "output": output,
            "cache_read": cache_read or 0,
            "cache_write": cache_write or 0,
            "reasoning": reasoning or 0,
        }

    def fail(self, error, status=None, message=None, wait=None):
        self.error = {"kind": type(error).__name__, "message": message or str(error)}
        if status:
            self.error["status"] = status
        if wait:
            self.error["wait"] = wait


def messages():
    import anthropic
    from anthropic.types import Message, RawMessageStreamEvent
    from pydantic import TypeAdapter

    client = anthropic.Anthropic(api_key="none", base_url=ROOT, max_retries=0)
    an_event = TypeAdapter(RawMessageStreamEvent)
    sent = {"message_start", "message_delta", "content_block_start", "content_block_delta"}
    asked = {"model": "scripted", "max_tokens": 100, "messages": PROMPT}

    def read(heard, streamed):
        reasoning = 0
        try:
            if streamed:
                with client.messages.stream(**asked) as stream:
                    for event in stream:
                        # The client takes what it is given; only its types say whether all of it is there.
                        if event.type in sent:
                            an_event.validate_python(event.to_dict(warnings=False))
                        if event.type == "message_delta" and event.usage.output_tokens_details:
                            reasoning = event.usage.output_tokens_details.thinking_tokens
                    message = stream.get_final_message()
            else:
                message = client.messages.create(**asked)
                Message.model_validate(message.to_dict())
        except anthropic.APIStatusError as error:
            told = error.body.get("error", {}) if isinstance(error.body, dict) else {}
            wait = error.response.headers.get("retry-after")
            heard.fail(error, error.status_code, told.get("message"), wait)
            return
        for block in message.content:
            if block.type == "text":
                heard.text += block.text
            elif block.type == "thinking":
                heard.thought += block.thinking
                heard.signatures.append(block.signature)
            elif block.type == "redacted_thinking":
                heard.redacted.append(block.data)
            elif block.type == "tool_use":
                heard.call(block.id, block.name, block.input)
        heard.stop = message.stop_reason
        if message.stop_details:
            heard.details = message.stop_details.to_dict()
        usage = message.usage
        cached = (usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
        if usage.output_tokens_details:
            reasoning = usage.output_tokens_details.thinking_tokens
        heard.count(usage.input_tokens + sum(cached), usage.output_tokens, *cached, reasoning)

    return read


def openai_client():
    import openai

    return openai, openai.OpenAI(api_key="none", base_url=ROOT + "/v1", max_retries=0)


def failed(heard, error):
    """What one of OpenAI's errors says; one in a stream has no status."""
    response = getattr(error, "response", None)
    wait = response.headers.get("retry-after") if response is not None else None
    told = error.body.get("message") if isinstance(error.body, dict) else None
    heard.fail(error, getattr(error, "status_code", None), told, wait)


def chat():
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    openai, client = openai_client()
    asked = {"model": "scripted", "messages": PROMPT}

    def read(heard, streamed):
        try:
            if streamed:
                options = {"include_usage": True}
                stream = client.chat.completions.create(stream=True, stream_options=options, **asked)
                for chunk in stream:
                    ChatCompletionChunk.model_validate(chunk.to_dict())
                    gather(heard, chunk)
            else:
                completion = client.chat.completions.create(**asked)
                ChatCompletion.model_validate(completion.to_dict())
                take(heard, completion.choices[0].message)
                heard.stop = completion.choices[0].finish_reason
                count(heard, completion.usage)
        except openai.APIError as error:
            failed(heard, error)

    def gather(heard, chunk):
        if chunk.usage:
            count(heard, chunk.usage)
        for choice in chunk.choices:
            heard.stop = choice.finish_reason or heard.stop
            take(heard, choice.delta)

    def take(heard, said):
        heard.text += said.content or ""
        heard.refusal += said.refusal or ""
        heard.thought += (said.model_extra or {}).get("reasoning_content") or ""
        for at, call in enumerate(said.tool_calls or []):
            index = getattr(call, "index", at)
            if index == len(heard.calls):
                heard.call(call.id, call.function.name, "")
            heard.calls[index]["arguments"] += call.function.arguments

    def count(heard, usage):
        read_from, made = usage.prompt_tokens_details, usage.completion_tokens_details
        heard.count(
            usage.prompt_tokens,
            usage.completion_tokens,
            read_from.cached_tokens,
            read_from.cache_write_tokens,
            made.reasoning_tokens,
        )

    return read


def responses():
    from openai.types.responses import Response, ResponseStreamEvent
    from pydantic import TypeAdapter

    openai, client = openai_client()
    an_event = TypeAdapter(ResponseStreamEvent)
    asked = {"model": "scripted", "input": PROMPT, "store": False}

    def read(heard, streamed):
        try:
            if streamed:
                response = None
                with client.responses.stream(**asked) as stream:
                    for event in stream:
                        if event.type != "keepalive":
                            an_event.validate_python(event.to_dict(warnings=False))
                        if event.type == "error":
                            heard.fail(event, message=event.message)
                        if event.type in ("response.completed", "response.incomplete"):
                            response = event.response
                        if event.type == "response.failed":
                            heard.stop = event.response.error.code
                if response is None:
                    return
            else:
                response = client.responses.create(**asked)
                Response.model_validate(response.to_dict())
        except openai.APIError as error:
            failed(heard, error)
            return
        for item in response.output:
            if item.type == "reasoning":
                heard.thought += "".join(part.text for part in item.summary)
                heard.signatures.append(item.encrypted_content)
            elif item.type == "function_call":
                heard.call(item.call_id, item.name, item.arguments)
            elif item.type == "message":
                for part in item.content:
                    if part.type == "output_text":
                        heard.text += part.text
                    else:
                        heard.refusal += part.refusal
        heard.stop = response.status
        if response.incomplete_details:
            heard.stop = response.incomplete_details.reason
        usage = response.usage
        read_from, made = usage.input_tokens_details, usage.output_tokens_details
        heard.count(
            usage.input_tokens,
            usage.output_tokens,
            read_from.cached_tokens,
            read_from.cache_write_tokens,
            made.reasoning_tokens,
        )

    return read


def generate_content():
    import base64

    from google import genai
    from google.genai import errors, types

    options = types.HttpOptions(base_url=ROOT, retry_options=types.HttpRetryOptions(attempts=1))
    client = genai.Client(api_key="none", vertexai=False, http_options=options)
    asked = {"model": "scripted", "contents": "What now?"}

    def read(heard, streamed):
        try:
            if streamed:
                for chunk in client.models.generate_content_stream(**asked):
                    take(heard, chunk)
            else:
                take(heard, client.models.generate_content(**asked))
        except errors.APIError as error:
            details = (error.details or {}).get("error", {}).get("details", [])
            waits = [detail["retryDelay"] for detail in details if "retryDelay" in detail]
            heard.fail(error, error.code, error.message, "".join(waits))

    def take(heard, chunk):
        usage = chunk.usage_metadata
        thoughts = usage.thoughts_token_count or 0
        cached = usage.cached_content_token_count
        output = usage.candidates_token_count + thoughts
        heard.count(usage.prompt_token_count, output, cached, 0, thoughts)
        if chunk.prompt_feedback:
            heard.stop = chunk.prompt_feedback.block_reason.value
        for candidate in chunk.candidates or []:
            if candidate.finish_reason:
                heard.stop = candidate.finish_reason.value
                heard.details = candidate.finish_message
            for part in candidate.content.parts or []:
                if part.thought_signature:
                    heard.signatures.append(base64.b64encode(part.thought_signature).decode())
                if part.function_call:
                    call = part.function_call
                    heard.call(call.id, call.name, call.args)
                elif part.thought:
                    heard.thought += part.text
                else:
                    heard.text += part.text

    return read


def ollama():
    from ollama import Client, ResponseError

    client = Client(host=ROOT)

    def read(heard, streamed):
        try:
            answer = client.chat(model="scripted", messages=PROMPT, stream=streamed)
            for chunk in answer if streamed else [answer]:
                take(heard, chunk)
        except ResponseError as error:
            heard.fail(error, error.status_code, error.error)

    def take(heard, chunk):
        message = chunk.message
        heard.text += message.content or ""
        heard.thought += message.thinking or ""
        for call in message.tool_calls or []:
            # Its types know no id of a call.
            heard.call(None, call.function.name, dict(call.function.arguments))
        if chunk.done:
            heard.stop = chunk.done_reason
            heard.count(chunk.prompt_eval_count, chunk.eval_count)

    return read


if __name__ == "__main__":
    main()
