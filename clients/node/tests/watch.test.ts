/** Agents that are watched, over every transport. */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { NexusClient, type Agent, type Watch, type WatchedEvent, type WatchEvent } from "../src/index.js";
import { MESSAGE_BYTES_MAX } from "../src/rpc.js";
import { agent, answer, closing, everyWire, idOf, liar, PROGRAM, ROOT, Server, until, World } from "./harness.js";

type Of<Type> = WatchEvent & { event: Extract<WatchedEvent, { type: Type }> };

/** Reads a watch piece by piece, without leaving it. */
class Reader {
  readonly #events: AsyncIterator<WatchEvent>;

  constructor(readonly watch: Watch) {
    this.#events = watch[Symbol.asyncIterator]();
  }

  /** All up to the event of this type, which comes last. */
  async until<Type extends WatchedEvent["type"]>(type: Type): Promise<[...WatchEvent[], Of<Type>]> {
    const told: WatchEvent[] = [];
    for (;;) {
      const { done, value } = await this.#events.next();
      assert.ok(!done, `it ended before ${type}`);
      told.push(value);
      if (value.event.type === type) return told as [...WatchEvent[], Of<Type>];
    }
  }

  async rest(): Promise<WatchEvent[]> {
    const told: WatchEvent[] = [];
    for (let next; !(next = await this.#events.next()).done; ) told.push(next.value);
    return told;
  }
}

async function opened(client: NexusClient, worker: Agent, params: Parameters<NexusClient["watch"]>[0] = {}) {
  const reader = new Reader(client.watch({ agents: [worker.id], ...params }));
  const snapshot = (await reader.until("snapshot")).at(-1) as Of<"snapshot">;
  return { reader, watch: reader.watch, snapshot };
}

function text(told: WatchEvent[]): string {
  return told.map(({ event }) => (event.type === "delta" ? event.text : "")).join("");
}

function indexes(told: WatchEvent[]): number[] {
  return told.flatMap(({ event }) => (event.type === "message" ? [event.index] : []));
}

async function watchers(client: NexusClient): Promise<string[]> {
  for await (const { event } of client.watch()) {
    if (event.type === "snapshot") return event.watchers;
  }
  return [];
}

for (const [wire, client] of await everyWire()) {
  test(`${wire}: a turn is told from its beginning`, async () => {
    const worker = await agent(client);
    const { reader, watch, snapshot } = await opened(client, worker);
    assert.deepEqual(snapshot.event.agents.map(({ agent_id, turns }) => [agent_id, turns]), [[worker.id, []]]);
    await worker.send("say żółć 🦀", { request_id: "t" });
    const told = await reader.until("turn_ended");
    assert.ok(told.every(({ agent_id }) => agent_id === worker.id));
    assert.deepEqual(told.map(({ sequence }) => sequence), told.map((_, index) => index + 2));
    assert.deepEqual(told.slice(0, 2).map(({ event }) => event.type), ["turn_queued", "turn_started"]);
    assert.equal(text(told), "żółć 🦀");
    assert.deepEqual(indexes(told), [0, 1]);
    const ended = told.at(-1) as Of<"turn_ended">;
    assert.deepEqual([ended.request_id, ended.event.status], ["t", "done"]);
    assert.deepEqual(await client.unwatch({ watch_id: watch.watchId! }), { ended: true });
    assert.deepEqual(await reader.rest(), []);
    assert.deepEqual(await watch.result, { watch_id: watch.watchId, reason: "unwatched", events: told.length + 1 });
    assert.equal((await client.call("rpc.version")).name, "nexus3");
  });

  test(`${wire}: who comes in the middle has what was said so far`, async () => {
    const worker = await agent(client);
    const stream = worker.stream("hang", { request_id: "t" });
    for await (const event of stream.events()) {
      if (event.type !== "text") continue;
      const { reader, watch, snapshot } = await opened(client, worker);
      const [entry] = snapshot.event.agents;
      assert.deepEqual([entry!.running_request_id, entry!.queued], ["t", 0]);
      assert.deepEqual(entry!.turns.map(({ status, text, offset }) => [status, text, offset]), [["running", "hanging", 7]]);
      assert.deepEqual((await worker.getContext()).turns, entry!.turns);
      assert.equal((await stream.cancel()).cancelled, true);
      const told = await reader.until("turn_ended");
      assert.deepEqual([text(told), (told.at(-1) as Of<"turn_ended">).event.status], ["", "cancelled"]);
      watch.close();
    }
  });

  test(`${wire}: what was missed comes first`, async () => {
    const worker = await agent(client);
    await worker.send("say one");
    await worker.send("say two");
    const { reader, watch, snapshot } = await opened(client, worker, { after: { [worker.id]: 1 }, deltas: false });
    assert.equal(snapshot.event.agents[0]!.message_count, 4);
    await worker.send("say three");
    const told = await reader.until("turn_ended");
    assert.ok(told.every(({ event }) => event.type !== "delta"));
    assert.deepEqual(indexes(told), [2, 3, 4, 5]);
    watch.close();
    const wrong = client.watch({ agents: [worker.id], after: { [worker.id]: -2 } });
    await assert.rejects(wrong.result, { code: -32602, message: /-1 or more/ });
  });

  test(`${wire}: two watches do not mix`, async () => {
    const workers = [await agent(client), await agent(client)];
    const watches = await Promise.all(workers.map((worker) => opened(client, worker)));
    await Promise.all(workers.map((worker, index) => worker.send(`say ${index}`)));
    for (const [index, { reader }] of watches.entries()) {
      const told = await reader.until("turn_ended");
      assert.ok(told.every(({ agent_id }) => agent_id === workers[index]!.id));
      assert.deepEqual([text(told), told.at(-1)!.sequence], [String(index), told.length + 1]);
    }
    watches[0]!.watch.close();
    await workers[1]!.send("say more");
    assert.equal(text(await watches[1]!.reader.until("turn_ended")), "more");
    watches[1]!.watch.close();
  });

  test(`${wire}: leaving it ends the watch and nothing else`, async () => {
    const worker = await agent(client);
    const name = `pts/${worker.id}`;
    const watch = client.watch({ agents: [worker.id], name });
    let sending;
    for await (const { event } of watch) {
      if (event.type === "snapshot") sending = worker.send("slowly 20");
      if (event.type !== "delta") continue;
      assert.ok((await watchers(client)).includes(name));
      break;
    }
    await assert.rejects(watch.result, { kind: "aborted", message: "the watch was left before its end" });
    await until(async () => !(await watchers(client)).includes(name));
    assert.equal((await sending)!.content.trim().split(" ").length, 20);
  });

  test(`${wire}: closing it ends the iteration, a signal says so`, async () => {
    const worker = await agent(client);
    const { reader, watch } = await opened(client, worker);
    const rest = reader.rest();
    watch.close();
    assert.deepEqual(await rest, []);
    const controller = new AbortController();
    const left = client.watch({ agents: [worker.id] }, { signal: controller.signal });
    await assert.rejects(async () => {
      for await (const _ of left) controller.abort();
    }, { kind: "aborted", message: "the caller left the call" });
  });

  test(`${wire}: it may be quiet for longer than a call may take`, async () => {
    const [quiet, hanging] = [await agent(client), await agent(client)];
    const reader = new Reader(client.watch({ agents: [quiet.id] }, { timeout: 1000 }));
    await reader.until("snapshot");
    const told = reader.until("turn_ended");
    await assert.rejects(hanging.send("hang", { request_id: "t" }, { timeout: 1000 }), { kind: "timeout" });
    await hanging.cancel("t");
    await quiet.send("say at last");
    assert.equal(text(await told), "at last");
    reader.watch.close();
  });

  test(`${wire}: a refusal is the server's`, async () => {
    await assert.rejects(async () => {
      for await (const _ of client.watch({ agents: ["nobody"] }));
    }, { code: -32602, message: "Unknown agent: nobody" });
    await assert.rejects(client.watch({ name: "x".repeat(65) }).result, /at most 64 characters/);
    for await (const { event } of client.watch({ name: "x".repeat(64) })) {
      assert.equal(event.type, "snapshot");
      break;
    }
  });
}

/** A client over each transport, and what ends the server that it calls. */
const ENDINGS: [string, () => Promise<[NexusClient, (signal: NodeJS.Signals) => void]>][] = [
  ["http", async () => ending(await Server.start(), (server) => server.http())],
  ["unix", async () => ending(await Server.start(), (server) => server.unix())],
  ["stdio", async () => {
    const world = await World.make();
    // The shell says which process it becomes.
    const program = join(world.directory, "nexus3");
    const pid = join(world.directory, "pid");
    writeFileSync(program, `#!/bin/sh\necho $$ > ${pid}\nexec ${PROGRAM} "$@"\n`, { mode: 0o700 });
    const client = world.with(NexusClient.stdio({ program, cwd: world.work, env: world.env, stderr: "ignore" }));
    return [client, (signal) => process.kill(Number(readFileSync(pid, "utf8")), signal)];
  }],
];

function ending(server: Server, connect: (server: Server) => NexusClient): [NexusClient, (signal: NodeJS.Signals) => void] {
  return [connect(server), (signal) => void server.process.kill(signal)];
}

for (const [wire, start] of ENDINGS) {
  test(`${wire}: a server that stops says so`, async () => {
    const [client, end] = await start();
    const { reader, watch } = await opened(client, await agent(client));
    end("SIGTERM");
    assert.deepEqual((await reader.rest()).map(({ event }) => event.type), ["server_stopping"]);
    assert.equal((await watch.result).reason, "stopping");
  });

  test(`${wire}: a server that is killed is a connection that was lost`, async () => {
    const [client, end] = await start();
    const { reader } = await opened(client, await agent(client));
    end("SIGKILL");
    await assert.rejects(reader.rest(), { kind: "lost" });
  });
}

function told(sequence: number, event: object): string {
  const params = { watch_id: "watch_1", sequence, at: "", event, ...(sequence === 1 ? { task_id: 1 } : {}) };
  return `data: ${JSON.stringify({ jsonrpc: "2.0", method: "watch_event", params })}\n\n`;
}

function over(body: string): string {
  return answer(body, "200 OK", "text/event-stream");
}

function watching(url: string, timeout?: number): Watch {
  return closing(new NexusClient({ url, token: null, timeout })).watch();
}

/** A server that says nothing to a watch until it is called again, and answers that call with the next line it reads. */
const LATE = `#!${process.execPath}
const lines = [];
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  lines.push(JSON.parse(line));
  const say = (message) => console.log(JSON.stringify({ jsonrpc: "2.0", ...message }));
  const params = { watch_id: "watch_9", sequence: 1, task_id: lines[0].id, at: "", event: { type: "snapshot" } };
  if (lines.length === 2) say({ method: "watch_event", params });
  if (lines.length === 3) say({ id: lines[1].id, result: lines[2] });
});
`;

test("stdio: one that is left before it has a name ends when it has one", async () => {
  const world = await World.make();
  const program = join(world.directory, "late");
  writeFileSync(program, LATE, { mode: 0o700 });
  const client = world.with(NexusClient.stdio({ program, env: world.env, stderr: "ignore" }));
  const watch = client.watch({}, { timeout: 100 });
  await assert.rejects(watch.result, { kind: "timeout" });
  const { method, params } = (await client.call("x")) as { method: string; params: object };
  assert.deepEqual([method, params], ["unwatch", { watch_id: "watch_9" }]);
});

test("what a newer server tells is passed on; comments and other notifications are nothing", async () => {
  const news = `data: {"jsonrpc":"2.0","method":"news","params":{}}\n\n`;
  const { url } = await liar((socket, request) => {
    const last = `data: ${JSON.stringify({ jsonrpc: "2.0", id: idOf(request), result: { reason: "gone" } })}\n\n`;
    socket.write(over(`: quiet\n\n${told(1, { type: "snapshot" })}: quiet\n\n${told(2, { type: "weather", sun: true })}${news}${last}`));
  });
  const watch = watching(url);
  const events = (await new Reader(watch).rest()).map(({ event }) => event);
  assert.deepEqual(events, [{ type: "snapshot" }, { type: "weather", sun: true }]);
  assert.deepEqual(await watch.result, { reason: "gone" });
});

test("it is begun again only before its first event", async () => {
  let requests = 0;
  const { url } = await liar((socket, request) => {
    const error = { code: -32001, message: "No", data: { retry_after_ms: 1 } };
    const full = `data: ${JSON.stringify({ jsonrpc: "2.0", id: idOf(request), error })}\n\n`;
    socket.write(over(++requests === 1 ? full : told(1, { type: "snapshot" }) + full));
  });
  const reader = new Reader(watching(url));
  await reader.until("snapshot");
  await assert.rejects(reader.rest(), { code: -32001 });
  assert.equal(requests, 2);
});

test("a server that does not say how things stand is given up", async () => {
  const { url } = await liar((socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"));
  await assert.rejects(watching(url, 100).result, { kind: "timeout", message: /no answer within 0.1 s/ });
});

for (const [bytes, isLeft] of [[MESSAGE_BYTES_MAX, false], [MESSAGE_BYTES_MAX + 1, true]] as const) {
  test(`${bytes} bytes that nobody reads are ${isLeft ? "too many" : "kept"}`, async () => {
    const bare = { watch_id: "watch_1", sequence: 1, at: "", event: { type: "snapshot", text: "" }, task_id: 1 };
    // In pieces, since one message may not be as long.
    const half = Math.floor(bytes / 2) - JSON.stringify(bare).length;
    const event = (chars: number) => told(1, { type: "snapshot", text: "x".repeat(chars) });
    const { url } = await liar((socket, request) => {
      const last = `data: ${JSON.stringify({ jsonrpc: "2.0", id: idOf(request), result: { reason: "gone" } })}\n\n`;
      socket.write(over(event(half) + event(half + (bytes % 2)) + last));
    });
    const watch = watching(url);
    if (isLeft) await assert.rejects(watch.result, { kind: "aborted", message: `nobody read the watch: over ${MESSAGE_BYTES_MAX} bytes wait` });
    else assert.equal((await watch.result).reason, "gone");
  });
}

test("its events are those of the schema", () => {
  const known: Record<WatchedEvent["type"], true> = {
    snapshot: true, turn_queued: true, turn_started: true, delta: true, reasoning: true, message: true, tool_call: true,
    tool_started: true, tool_output: true, tool_progress: true, tool_result: true, approval_requested: true, approval_decided: true, waiting: true, fallback: true,
    usage: true, turn_ended: true, compacted: true, agent_created: true, agent_ended: true, agent_renamed: true,
    agent_changed: true, agent_left_memory: true, watchers: true, server_stopping: true, gap: true,
  };
  const { $defs } = JSON.parse(readFileSync(join(ROOT, "docs/nexus3.schema.json"), "utf8"));
  const types: string[] = $defs.WatchedEvent.oneOf.map((event: { properties: { type: { const: string } } }) => event.properties.type.const);
  assert.deepEqual(Object.keys(known), types);
});
