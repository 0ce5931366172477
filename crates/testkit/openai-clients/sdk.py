"""OpenAI's own client for Python, and LangChain on it, against a server whose model follows a script.

What is asked for is in the environment: OPENAI_BASE_URL, OPENAI_API_KEY, EMBEDDER. Prints a line for each thing it saw.
"""

import os

import openai
from langchain_core.messages import HumanMessage, ToolMessage
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

for model in ["agent:a", "new:sandboxed", "scripted"]:
    answer = client.responses.create(model=model, input="say plain")
    assert answer.output_text == "plain" and answer.status == "completed", answer
    assert answer.usage.total_tokens > 0 and answer.usage.input_tokens_details.cached_tokens == 0
    assert client.responses.retrieve(answer.id) == answer
    kinds = [event.type for event in client.responses.create(model=model, input="say a b", stream=True)]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert "response.output_text.delta" in kinds, kinds
    with client.responses.stream(model=model, input="say a b") as stream:
        assert "".join(event.delta for event in stream if event.type == "response.output_text.delta") == "a b"
        assert stream.get_final_response().output_text == "a b"
    parsed = client.responses.parse(model=model, input='say {"n": 3}', text_format=Number)
    assert parsed.output_parsed == Number(n=3), parsed
    client.responses.delete(answer.id)
    try:
        client.responses.create(model=model, input="say on", previous_response_id=answer.id)
        raise SystemExit("an answer that was forgotten was gone on from")
    except openai.BadRequestError as error:
        assert error.code == "previous_response_not_found", error
print("responses")

first = client.responses.with_raw_response.create(model="new:sandboxed", input="say one")
second = client.responses.with_raw_response.create(
    model="new:sandboxed", input="say two", previous_response_id=first.parse().id
)
assert second.headers["x-nexus-agent"] == first.headers["x-nexus-agent"]
assert second.parse().output_text == "two"
print("responses, conversation")

flat = {"type": "function", "strict": False, **tool["function"]}
asked = [{"role": "user", "content": 'call weather {"city": "Bonn"}'}]
called = client.responses.create(model="scripted", input=asked, tools=[flat])
[call] = called.output
assert call.type == "function_call" and call.arguments == '{"city":"Bonn"}', call
result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
on = [result, {"role": "user", "content": "say sunny"}]
went_on = client.responses.create(model="scripted", input=on, tools=[flat], previous_response_id=called.id)
assert went_on.output_text == "sunny", went_on
asked += called.output + on
assert client.responses.create(model="scripted", input=asked, tools=[flat]).output_text == "sunny"
with client.responses.stream(model="scripted", input='call weather {"city": "Ulm"}', tools=[flat]) as stream:
    kinds = [event.type for event in stream]
    assert "response.function_call_arguments.done" in kinds, kinds
    assert stream.get_final_response().output[0].name == "weather"
print("responses, tools")

with client.responses.create(model="agent:a", input="hang", stream=True) as stream:
    assert next(iter(stream)).type == "response.created"
print("responses, cancellation")

chat = ChatOpenAI(model="agent:a")
assert chat.invoke("say chain").content == "chain"
assert "".join(piece.content for piece in chat.stream("say chain")) == "chain"
bound = ChatOpenAI(model="scripted").bind_tools([tool])
assert bound.invoke('call weather {"city": "Ulm"}').tool_calls[0]["args"] == {"city": "Ulm"}
assert ChatOpenAI(model="agent:a").with_structured_output(Number).invoke('say {"n": 4}') == Number(n=4)
responses = ChatOpenAI(model="agent:a", use_responses_api=True)
assert responses.invoke("say chain").text == "chain"
assert "".join(piece.text for piece in responses.stream("say chain")) == "chain"
assert responses.with_structured_output(Number).invoke('say {"n": 4}') == Number(n=4)
bound = ChatOpenAI(model="scripted", use_responses_api=True).bind_tools([tool])
called = bound.invoke('call weather {"city": "Ulm"}')
assert called.tool_calls[0]["args"] == {"city": "Ulm"}
result = ToolMessage("sunny", tool_call_id=called.tool_calls[0]["id"])
talk = [HumanMessage('call weather {"city": "Ulm"}'), called, result, HumanMessage("say sunny")]
assert bound.invoke(talk).text == "sunny"
new = ChatOpenAI(model="new:sandboxed", use_previous_response_id=True)
first = new.invoke("say one")
assert new.invoke([HumanMessage("say one"), first, HumanMessage("say two")]).text == "two"
# Otherwise it sends tokens, and fetches the table of them first.
vectors = OpenAIEmbeddings(model=embedder, check_embedding_ctx_length=False).embed_documents(["one", "two"])
assert len(vectors) == 2 and len(vectors[0]) == 384
print("langchain")

# The client gives up, and asks again by itself: it is one turn all the same.
patient = ChatOpenAI(model="agent:c", timeout=1.5, max_retries=2)
assert patient.invoke("slowly 100").content
print("langchain, retries")

for chunk in ChatOpenAI(model="agent:a").stream("hang"):
    break
print("langchain, cancellation")
