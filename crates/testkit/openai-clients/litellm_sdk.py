"""LiteLLM against a server whose model follows a script.

What is asked for is in the environment: OPENAI_BASE_URL, OPENAI_API_KEY, EMBEDDER. Prints a line for each thing it saw.
"""

import os

# Otherwise it fetches a table of prices first.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from pydantic import BaseModel


# It prints advice among what is seen.
litellm.suppress_debug_info = True


class Number(BaseModel):
    n: int


def said(text):
    return [{"role": "user", "content": text}]


for model in ["openai/agent:a", "openai/new:sandboxed", "openai/scripted"]:
    answer = litellm.completion(model=model, messages=said("say plain"))
    assert answer.choices[0].message.content == "plain" and answer.usage.total_tokens > 0, answer
print("chat")

for model in ["openai/agent:a", "openai/new:sandboxed", "openai/scripted"]:
    chunks = list(litellm.completion(model=model, messages=said("say a b"), stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "a b", chunks
    assert any(getattr(chunk, "usage", None) for chunk in chunks), chunks
print("stream")

tool = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
talk = said('call weather {"city": "Bonn"}')
called = litellm.completion(model="openai/scripted", messages=talk, tools=[tool])
[call] = called.choices[0].message.tool_calls
assert call.function.name == "weather" and called.choices[0].finish_reason == "tool_calls", called
talk += [called.choices[0].message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
talk += said("say sunny")
assert litellm.completion(model="openai/scripted", messages=talk, tools=[tool]).choices[0].message.content == "sunny"
print("tools")

held = litellm.completion(model="openai/agent:a", messages=said('say {"n": 3}'), response_format=Number)
assert Number.model_validate_json(held.choices[0].message.content) == Number(n=3), held
print("structured")

talk = said("say one")
first = litellm.completion(model="openai/new:sandboxed", messages=talk)
talk += [first.choices[0].message.model_dump(exclude_none=True), *said("say two")]
assert litellm.completion(model="openai/new:sandboxed", messages=talk).choices[0].message.content == "two"
print("conversation")

vectors = litellm.embedding(model="openai/" + os.environ["EMBEDDER"], input=["one", "two"])
assert len(vectors.data) == 2 and len(vectors.data[0]["embedding"]) == 384
print("embeddings")

# The client gives up, and asks again by itself: it is one turn all the same.
answer = litellm.completion(model="openai/agent:b", messages=said("slowly 100"), timeout=1.5, max_retries=2)
assert answer.choices[0].message.content, answer
print("retries")

try:
    litellm.completion(model="openai/no-such-model", messages=said("say plain"))
    raise SystemExit("a model that is not there answered")
except litellm.NotFoundError as error:
    assert "no-such-model" in str(error), error
try:
    litellm.completion(model="openai/agent:a", messages=said("say plain"), n=2)
    raise SystemExit("an agent gave two answers")
except litellm.BadRequestError as error:
    assert "an agent gives one answer" in str(error), error
try:
    litellm.completion(model="openai/agent:a", messages=said("say plain"), api_key="nxd_wrong")
    raise SystemExit("a wrong key opened the door")
except (litellm.AuthenticationError, litellm.BadRequestError) as error:
    # It goes by words in the error rather than by the status.
    assert "the API key is missing or wrong" in str(error), error
print("errors")

stream = litellm.completion(model="openai/agent:a", messages=said("hang"), stream=True)
next(iter(stream))
stream.completion_stream.close()
print("cancellation")

answer = litellm.responses(model="openai/agent:a", input="say plain")
assert answer.output[0].content[0].text == "plain", answer
kinds = [event.type for event in litellm.responses(model="openai/scripted", input="say a b", stream=True)]
assert kinds[-1] == "response.completed", kinds
print("responses")
