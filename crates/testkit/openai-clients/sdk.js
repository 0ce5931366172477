// OpenAI's own client for Node, and the AI SDK, against a server whose model follows a script.
// What is asked for is in the environment: OPENAI_BASE_URL, OPENAI_API_KEY, EMBEDDER. Prints a line for each thing it saw.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// What is installed lies elsewhere than this file.
const installed = createRequire(pathToFileURL(join(process.cwd(), "x.js")));
const load = (name) => import(pathToFileURL(installed.resolve(name)).href);
const { default: OpenAI } = await load("openai");
const { generateText, streamText, tool, jsonSchema, embedMany, Output, isStepCount } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createOpenAI } = await load("@ai-sdk/openai");

const client = new OpenAI();
const ids = [];
for await (const model of client.models.list()) ids.push(model.id);
assert(ids.includes("agent:a") && ids.includes("scripted"));
assert.equal((await client.models.retrieve("agent:a")).id, "agent:a");
console.log("models");

const said = [{ role: "user", content: "say plain" }];
const answer = await client.chat.completions.create({ model: "agent:a", messages: said });
assert.equal(answer.choices[0].message.content, "plain");
console.log("chat");

const stream = await client.chat.completions.create({
  model: "agent:a", messages: said, stream: true, stream_options: { include_usage: true },
});
let text = "";
let usage;
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, "plain");
assert(usage.total_tokens > 0);
console.log("stream");

const weather = {
  type: "function",
  function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
};
const called = await client.chat.completions.create({
  model: "scripted", messages: [{ role: "user", content: 'call weather {"city": "Bonn"}' }], tools: [weather],
});
assert.equal(called.choices[0].message.tool_calls[0].function.name, "weather");
console.log("tools");

const shape = { type: "object", properties: { n: { type: "integer" } }, required: ["n"], additionalProperties: false };
const held = await client.chat.completions.create({
  model: "agent:a", messages: [{ role: "user", content: 'say {"n": 3}' }],
  response_format: { type: "json_schema", json_schema: { name: "n", strict: true, schema: shape } },
});
assert.deepEqual(JSON.parse(held.choices[0].message.content), { n: 3 });
console.log("structured");

const vectors = await client.embeddings.create({ model: process.env.EMBEDDER, input: ["one", "two"] });
assert.equal(vectors.data[1].embedding.length, 384);
console.log("embeddings");

// The client gives up, and asks again by itself: it is one turn all the same.
const slow = await client.chat.completions.create(
  { model: "agent:b", messages: [{ role: "user", content: "slowly 100" }] }, { timeout: 1500, maxRetries: 2 },
);
assert(slow.choices[0].message.content);
console.log("retries");

await assert.rejects(
  client.chat.completions.create({ model: "no-such-model", messages: said }),
  (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
);
await assert.rejects(
  new OpenAI({ apiKey: "nxd_wrong" }).models.list(),
  (error) => error instanceof OpenAI.AuthenticationError && error.code === "invalid_api_key",
);
console.log("errors");

const hanging = await client.chat.completions.create({
  model: "agent:a", messages: [{ role: "user", content: "hang" }], stream: true,
});
for await (const chunk of hanging) {
  assert.equal(chunk.choices[0].delta.role, "assistant");
  break;
}
console.log("cancellation");

for (const model of ["agent:a", "new:sandboxed", "scripted"]) {
  const whole = await client.responses.create({ model, input: "say plain" });
  assert.equal(whole.output_text, "plain");
  assert.equal((await client.responses.retrieve(whole.id)).output_text, "plain");
  const kinds = [];
  for await (const event of await client.responses.create({ model, input: "say a b", stream: true })) kinds.push(event.type);
  assert.equal(kinds.at(-1), "response.completed");
  assert.ok(kinds.includes("response.output_text.delta"));
  const final = await client.responses.stream({ model, input: "say a b" }).finalResponse();
  assert.equal(final.output_text, "a b");
  const parsed = await client.responses.parse({
    model, input: 'say {"n": 3}', text: { format: { type: "json_schema", name: "n", strict: true, schema: shape } },
  });
  assert.deepEqual(JSON.parse(parsed.output_text), { n: 3 });
  await client.responses.delete(whole.id);
  await assert.rejects(
    client.responses.create({ model, input: "say on", previous_response_id: whole.id }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "previous_response_not_found",
  );
}
console.log("responses");

const first = await client.responses.create({ model: "new:sandboxed", input: "say one" }).withResponse();
const second = await client.responses.create({
  model: "new:sandboxed", input: "say two", previous_response_id: first.data.id,
}).withResponse();
assert.equal(second.data.output_text, "two");
assert.equal(second.response.headers.get("x-nexus-agent"), first.response.headers.get("x-nexus-agent"));
console.log("responses, conversation");

const flat = { type: "function", strict: false, ...weather.function };
const wants = await client.responses.create({ model: "scripted", input: 'call weather {"city": "Bonn"}', tools: [flat] });
assert.deepEqual(JSON.parse(wants.output[0].arguments), { city: "Bonn" });
const sunny = await client.responses.create({
  model: "scripted", tools: [flat], previous_response_id: wants.id,
  input: [
    { type: "function_call_output", call_id: wants.output[0].call_id, output: "sunny" }, { role: "user", content: "say sunny" },
  ],
});
assert.equal(sunny.output_text, "sunny");
console.log("responses, tools");

const left = await client.responses.create({ model: "agent:a", input: "hang", stream: true });
for await (const event of left) {
  assert.equal(event.type, "response.created");
  break;
}
console.log("responses, cancellation");

const nexus = createOpenAICompatible({
  name: "nexus3", baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY, includeUsage: true,
});
assert.equal((await generateText({ model: nexus("agent:a"), prompt: "say ai" })).text, "ai");
const streamed = streamText({ model: nexus("agent:a"), prompt: "say ai" });
let pieces = "";
for await (const piece of streamed.textStream) pieces += piece;
assert.equal(pieces, "ai");
const schema = jsonSchema({ type: "object", properties: { city: { type: "string" } } });
const tools = { weather: tool({ description: "w", inputSchema: schema }) };
const asked = await generateText({ model: nexus("scripted"), prompt: 'call weather {"city": "Ulm"}', tools });
assert.deepEqual(asked.toolCalls[0].input, { city: "Ulm" });
const { embeddings } = await embedMany({ model: nexus.embeddingModel(process.env.EMBEDDER), values: ["one"] });
assert.equal(embeddings[0].length, 384);
console.log("ai");

// The same by /v1/responses. What it said before it names by its items.
const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
for (const model of ["agent:a", "new:sandboxed", "scripted"]) {
  assert.equal((await generateText({ model: openai.responses(model), prompt: "say ai" })).text, "ai");
  const told = streamText({ model: openai.responses(model), prompt: "say a i" });
  let all = "";
  for await (const piece of told.textStream) all += piece;
  assert.equal(all, "a i");
  const object = Output.object({ schema: jsonSchema(shape) });
  const shaped = await generateText({ model: openai.responses(model), prompt: 'say {"n": 5}', output: object });
  assert.deepEqual(shaped.output, { n: 5 });
}
const ran = [];
const runs = {
  weather: tool({ description: "w", inputSchema: schema, execute: (input) => { ran.push(input); return "sunny"; } }),
};
const twoSteps = await generateText({
  model: openai.responses("scripted"), prompt: 'once weather {"city": "Ulm"}', tools: runs, stopWhen: isStepCount(2),
});
assert.deepEqual([ran, twoSteps.text], [[{ city: "Ulm" }], "done"]);
const one = await generateText({ model: openai.responses("new:sandboxed"), prompt: "say one" });
const two = await generateText({
  model: openai.responses("new:sandboxed"), prompt: "say two",
  providerOptions: { openai: { previousResponseId: one.providerMetadata.openai.responseId } },
});
assert.equal(two.text, "two");
console.log("ai, responses");

// It repeats what failed by itself and does not say so: the turn is one all the same.
await assert.rejects(generateText({ model: nexus("agent:c"), prompt: "fail", maxRetries: 2 }), /scripted error 400/);
console.log("ai, retries");

const abort = new AbortController();
const aborted = streamText({ model: nexus("agent:a"), prompt: "hang", abortSignal: abort.signal, onError: () => {} });
for await (const piece of aborted.textStream) {
  assert.equal(piece, "hanging");
  abort.abort();
}
console.log("ai, cancellation");
