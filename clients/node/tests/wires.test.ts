/** What holds over every transport, with the real server. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ClientError, RpcError, type StreamEvent } from "../src/index.js";
import { agent, everyWire } from "./harness.js";

for (const [wire, client] of await everyWire()) {
  test(`${wire}: seed 000's own call sequence`, async () => {
    const before = (await client.getContext()).message_count;
    const result = await client.send("Hello!");
    assert.equal(result.content, "Hello!");
    await client.send("My name is Alice");
    assert.equal((await client.send("say Alice.", { request_id: 7 })).request_id, 7);
    assert.equal((await client.cancel(7)).reason, "not_found_or_completed");
    assert.ok(((await client.getTokens()).total as number) > 0);
    assert.equal((await client.getContext()).message_count, before + 6);
  });

  test(`${wire}: an agent's methods go to the agent`, async () => {
    const worker = await agent(client);
    assert.equal((await worker.send("say hi")).content, "hi");
    assert.equal((await worker.getContext()).message_count, 2);
    assert.equal((await client.getContext({ agent_id: worker.id })).message_count, 2);
    assert.deepEqual(await worker.shutdown(), { success: true });
    assert.equal((await client.destroyAgent({ agent_id: worker.id })).success, true);
  });

  test(`${wire}: an error has the server's code, message and data`, async () => {
    const error = await client.agent("nobody").send("hi").catch((error: unknown) => error);
    assert.ok(error instanceof RpcError && error instanceof ClientError);
    assert.equal(error.code, -32602);
    assert.equal(error.message, "Unknown agent: nobody");
    assert.deepEqual(error.data, { path: "/agent_id" });
    await assert.rejects(client.call("no.such_method"), { code: -32601, kind: "rpc" });
  });

  test(`${wire}: the pieces of a stream joined are its text`, async () => {
    const stream = (await agent(client)).stream("slowly 20");
    const pieces: string[] = [];
    for await (const text of stream) pieces.push(text);
    const { content } = await stream.result;
    assert.ok(pieces.length > 1, `${pieces.length}`);
    assert.equal(pieces.join(""), content);
    assert.equal(content, Array.from({ length: 20 }, (_, index) => `${index + 1} `).join(""));
  });

  test(`${wire}: a stream tells of tool calls and usage`, async () => {
    const stream = (await agent(client)).stream('call list_directory {"path":"."}');
    const events: StreamEvent[] = [];
    for await (const event of stream.events()) events.push(event);
    assert.deepEqual(events.map(({ type }) => type), ["tool_call", "usage", "tool_result", "text", "usage"]);
    assert.deepEqual(events.filter(({ type }) => type === "text"), [{ type: "text", text: "done" }]);
    assert.equal((await stream.result).steps, 2);
  });

  test(`${wire}: the result comes without anybody iterating`, async () => {
    assert.equal((await (await agent(client)).stream("say all of it").result).content, "all of it");
  });

  test(`${wire}: leaving a stream cancels its turn`, async () => {
    const worker = await agent(client);
    const stream = worker.stream("hang");
    for await (const text of stream) {
      assert.equal(text, "hanging");
      break;
    }
    await assert.rejects(stream.result, { kind: "aborted", message: "the stream was left before its end" });
    // A turn that went on would keep this one waiting for ever.
    assert.equal((await worker.send("say next")).content, "next");
    const { messages } = await worker.getMessages();
    assert.ok(JSON.stringify(messages).includes("hanging"));
  });

  test(`${wire}: a stream is cancelled by its name, and ends as usual`, async () => {
    const worker = await agent(client);
    const stream = worker.stream("hang", { request_id: "essay" });
    for await (const text of stream) {
      assert.equal(text, "hanging");
      assert.deepEqual(await worker.cancel("essay"), { cancelled: true, request_id: "essay" });
    }
    assert.equal((await stream.result).cancelled, true);
  });

  test(`${wire}: a stream knows its own name, also while it waits for its turn`, async () => {
    const worker = await agent(client);
    const first = worker.stream("hang");
    // Two calls have two connections: only one that has begun is before the other for certain.
    await first.events().next();
    const second = worker.stream("say never");
    assert.equal((await second.cancel()).cancelled, true);
    assert.equal((await first.cancel()).cancelled, true);
    assert.equal((await second.result).content, "");
    assert.equal((await first.result).cancelled, true);
  });

  test(`${wire}: a signal leaves the stream`, async () => {
    const worker = await agent(client);
    const controller = new AbortController();
    const stream = worker.stream("hang", {}, { signal: controller.signal });
    await assert.rejects(async () => {
      for await (const _ of stream) controller.abort(new Error("enough"));
    }, (error: ClientError) => error.kind === "aborted" && (error.cause as Error).message === "enough");
    assert.equal((await worker.send("say next")).content, "next");
  });

  test(`${wire}: a stream whose agent is destroyed ends`, async () => {
    const worker = await agent(client);
    const stream = worker.stream("hang");
    const told: string[] = [];
    for await (const text of stream) {
      told.push(text);
      await client.destroyAgent({ agent_id: worker.id });
    }
    assert.deepEqual(told, ["hanging"]);
    assert.equal((await stream.result).cancelled, true);
  });

  test(`${wire}: a call that is not answered in time says so`, async () => {
    const worker = await agent(client);
    const late = worker.send("hang", { request_id: "late" }, { timeout: 100 });
    await assert.rejects(late, (error: ClientError) => {
      assert.equal(error.kind, "timeout");
      assert.equal(error.message, "no answer within 0.1 s: the call was sent, and may have run or run still");
      return error.sent;
    });
    assert.equal((await worker.cancel("late")).cancelled, true);
  });

  test(`${wire}: a stream may take longer than its silences`, async () => {
    const worker = await agent(client);
    const stream = worker.stream("slowly 30", {}, { timeout: 500 });
    assert.equal((await stream.result).content.split(" ").length, 31);
    const silent = worker.stream("hang", {}, { timeout: 100 });
    await assert.rejects(silent.result, { kind: "timeout", message: "no answer within 0.1 s: the stream was silent, and was left" });
    assert.equal((await worker.send("say next")).content, "next");
  });

  test(`${wire}: 200 calls at once`, async () => {
    const workers = await Promise.all(Array.from({ length: 20 }, () => agent(client)));
    const calls = Array.from({ length: 200 }, async (_, index) => {
      const { content } = await workers[index % 20]!.send(`say number ${index}`);
      assert.equal(content, `number ${index}`);
    });
    await Promise.all(calls);
  });

  test(`${wire}: 200 streams at once`, async () => {
    const workers = await Promise.all(Array.from({ length: 20 }, () => agent(client)));
    const streams = Array.from({ length: 200 }, async (_, index) => {
      let text = "";
      for await (const piece of workers[index % 20]!.stream(`say the number ${index}`)) text += piece;
      assert.equal(text, `the number ${index}`);
    });
    await Promise.all(streams);
  });

  test(`${wire}: with a key a call is carried out once`, async () => {
    const worker = await agent(client);
    const [first, second] = [
      await worker.send("once", { idempotency_key: `${worker.id}-1` }),
      await worker.send("once", { idempotency_key: `${worker.id}-1` }),
    ];
    assert.deepEqual(first, second);
    assert.equal((await worker.getContext()).message_count, 2);
    const other = worker.send("twice", { idempotency_key: `${worker.id}-1` });
    await assert.rejects(other, { code: -32602 });
  });

  test(`${wire}: with a key a stream is told again, and leaving it does not cancel it`, async () => {
    const worker = await agent(client);
    const key = { idempotency_key: `${worker.id}-2` };
    for await (const _ of worker.stream("slowly 30", key)) break;
    const stream = worker.stream("slowly 30", key);
    let text = "";
    for await (const piece of stream) text += piece;
    assert.equal(text, (await stream.result).content);
    assert.ok(text.endsWith("30 "));
    assert.equal((await worker.getContext()).message_count, 2);
  });

  test(`${wire}: tasks stream too`, async () => {
    const stream = client.callStreaming("execute_task", { task_type: "analysis", prompt: "say looked at it" });
    let text = "";
    for await (const piece of stream) text += piece;
    assert.equal((await stream.result).status, "success");
    assert.ok(text.length > 0);
    await assert.rejects(stream.cancel(), { kind: "call" });
  });

  test(`${wire}: letters of several bytes arrive whole`, async () => {
    const said = "say żółć 漢字 🦀 ".repeat(200).trim();
    assert.equal((await (await agent(client)).stream(said).result).content, said.slice("say ".length));
  });

  test(`${wire}: parameters that are no JSON are not sent`, async () => {
    const circle: { self?: unknown } = {};
    circle.self = circle;
    await assert.rejects(client.call("memory.add", circle as never), { kind: "call", sent: false });
  });

  test(`${wire}: what is under way ends when the client is closed, and nothing begins after`, async () => {
    const worker = await agent(client);
    const stream = worker.stream("hang");
    for await (const _ of stream.events()) {
      await client.close();
      break;
    }
    await assert.rejects(stream.result, { kind: "aborted", message: "the client was closed" });
    await assert.rejects(worker.send("hi"), { kind: "call", message: "the client is closed" });
  });
}
