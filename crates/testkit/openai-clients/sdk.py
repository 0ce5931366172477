"""OpenAI's own client for Python, and LangChain on it, against a server whose model follows a script.

What is asked for is in the environment: OPENAI_BASE_URL, OPENAI_API_KEY, EMBEDDER. Prints a line for each thing it saw.
"""

import os

import openai
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel


class Number(BaseModel):
    n: int


client = openai.OpenAI(max_retries=2)
ids = [model.id for model in client.models.list()]
assert "agent:a" in ids and "scripted" in ids, ids
assert client.models.retrieve("agent:a").id == "agent:a"
print("models")

said = [{"role": "user", "content": "say plain"}]
answer = client.chat.completions.create(model="agent:a", messages=said)
assert answer.choices[0].message.content == "plain", answer
assert answer.choices[0].finish_reason == "stop" and answer.usage.total_tokens > 0
print("chat")

raw = client.chat.completions.with_raw_response.create(model="agent:a", messages=said, seed=1)
assert raw.headers["x-nexus-ignored"] == "seed" and raw.headers["x-nexus-request-id"]
print("headers")

stream = client.chat.completions.create(
    model="agent:a", messages=said, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == "plain" and chunks[-1].usage.total_tokens > 0, chunks
print("stream")

parsed = client.chat.completions.parse(
    model="agent:a", messages=[{"role": "user", "content": 'say {"n": 3}'}], response_format=Number
)
assert parsed.choices[0].message.parsed == Number(n=3), parsed
print("structured")

talk = [{"role": "user", "content": "say one"}]
first = client.chat.completions.with_raw_response.create(model="new:sandboxed", messages=talk)
talk.append(first.parse().choices[0].message.model_dump(exclude_none=True))
talk.append({"role": "user", "content": "say two"})
second = client.chat.completions.with_raw_response.create(model="new:sandboxed", messages=talk)
assert second.headers["x-nexus-agent"] == first.headers["x-nexus-agent"]
assert second.parse().choices[0].message.content == "two"
print("conversation")

tool = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
call = [{"role": "user", "content": 'call weather {"city": "Bonn"}'}]
called = client.chat.completions.create(model="scripted", messages=call, tools=[tool])
assert called.choices[0].finish_reason == "tool_calls", called
message = called.choices[0].message
assert message.tool_calls[0].function.name == "weather"
call.append(message.model_dump(exclude_none=True))
call.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"})
call.append({"role": "user", "content": "say sunny"})
assert client.chat.completions.create(model="scripted", messages=call, tools=[tool]).choices[0].message.content == "sunny"
print("tools")

both = client.chat.completions.create(model="scripted", messages=said, n=2)
assert [choice.message.content for choice in both.choices] == ["plain", "plain"]
print("choices")

embedder = os.environ["EMBEDDER"]
vectors = client.embeddings.create(model=embedder, input=["one", "two"])
assert len(vectors.data) == 2 and len(vectors.data[0].embedding) == 384
print("embeddings")

# The client gives up, and asks again by itself: it is one turn all the same.
slow = [{"role": "user", "content": "slowly 100"}]
answer = client.with_options(timeout=1.5, max_retries=2).chat.completions.create(model="agent:b", messages=slow)
assert answer.choices[0].message.content, answer
print("retries")

try:
    client.chat.completions.create(model="no-such-model", messages=said)
    raise SystemExit("a model that is not there answered")
except openai.NotFoundError as error:
    assert error.code == "model_not_found" and error.param == "model", error
try:
    client.chat.completions.create(model="agent:a", messages=said, n=2)
    raise SystemExit("an agent gave two answers")
except openai.BadRequestError as error:
    assert error.param == "n", error
try:
    openai.OpenAI(api_key="nxd_wrong").models.list()
    raise SystemExit("a wrong key opened the door")
except openai.AuthenticationError as error:
    assert error.code == "invalid_api_key", error
print("errors")

with client.chat.completions.create(
    model="agent:a", messages=[{"role": "user", "content": "hang"}], stream=True
) as stream:
    assert next(iter(stream)).choices[0].delta.role == "assistant"
print("cancellation")

chat = ChatOpenAI(model="agent:a")
assert chat.invoke("say chain").content == "chain"
assert "".join(piece.content for piece in chat.stream("say chain")) == "chain"
bound = ChatOpenAI(model="scripted").bind_tools([tool])
assert bound.invoke('call weather {"city": "Ulm"}').tool_calls[0]["args"] == {"city": "Ulm"}
assert ChatOpenAI(model="agent:a").with_structured_output(Number).invoke('say {"n": 4}') == Number(n=4)
# Otherwise it sends tokens, and fetches the table of them first.
vectors = OpenAIEmbeddings(model=embedder, check_embedding_ctx_length=False).embed_documents(["one", "two"])
assert len(vectors) == 2 and len(vectors[0]) == 384
print("langchain")
