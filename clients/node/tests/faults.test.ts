/** Servers that die, lie, dawdle or come back as somebody else. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { ClientError, NexusClient, type SendResult } from "../src/index.js";
import { agent, answer, closing, idOf, liar, PROGRAM, Server, stdio, until, World } from "./harness.js";

const SSE = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
const event = (message: object) => `data: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`;
const piece = (chunk: string) => event({ method: "stream_data", params: { stream_id: "s", chunk, sequence: 1 } });
const start = event({ method: "stream_start", params: { stream_id: "s", task_id: 1 } });

/** What a call comes to that is answered with `bytes`, after which the server hangs up if it is told to. */
async function check(bytes: string, expected: Partial<ClientError>, hangUp = false) {
  const server = await liar((socket, request) => {
    socket.write(bytes.replaceAll("ID", String(idOf(request))));
    if (hangUp) socket.destroySoon();
  });
  const client = closing(new NexusClient({ url: server.url, token: null }));
  await assert.rejects(client.listAgents(), (error: ClientError) => {
    assert.ok(error instanceof ClientError);
    for (const [name, value] of Object.entries(expected)) assert.equal(error[name as keyof ClientError], value);
    return true;
  });
  assert.equal(server.connections(), 1);
}

test("answers that are none", async () => {
  await check("SSH-2.0-OpenSSH\r\n", { kind: "answer", message: "not an answer: no HTTP: Parse Error: Expected HTTP/, RTSP/ or ICE/" });
  await check(answer("<html>", "502 Bad Gateway"), { kind: "answer", sent: true });
  await check(answer("", "202 Accepted"), { kind: "answer", message: "not an answer: HTTP 202 without a body" });
  await check(answer("[1]"), { kind: "answer", message: 'not an answer: no JSON-RPC in "[1]"' });
  await check(answer('{"jsonrpc":"2.0","id":99,"result":1}'), { kind: "answer", message: "not an answer: it is for call 99, not 1" });
  await check(answer('{"jsonrpc":"2.0","result":1}'), { kind: "answer", message: "not an answer: it has neither an id nor an error" });
  await check(answer('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}'), { kind: "rpc", message: "no" });
});

test("a server that hangs up before its answer, or in the middle of it", async () => {
  await check("", { kind: "lost", message: "connection lost: socket hang up", sent: true }, true);
  await check("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"json", { kind: "lost", message: "connection lost: aborted" }, true);
});

test("nobody there", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  const client = closing(new NexusClient({ url: `http://127.0.0.1:${port}` }));
  const message = `no connection: connect ECONNREFUSED 127.0.0.1:${port}`;
  await assert.rejects(client.send("Hello"), { name: "ClientError", kind: "connect", sent: false, message });
  await assert.rejects(closing(NexusClient.unix("/nonexistent/rpc.sock")).send("Hello"), { kind: "connect", sent: false });
  await assert.rejects(closing(NexusClient.stdio({ program: "/nonexistent/nexus3" })).send("Hello"), { kind: "connect", sent: false });
});

test("an answer that comes a byte at a time is an answer", async () => {
  const server = await liar(async (socket, request) => {
    for (const byte of Buffer.from(answer(`{"jsonrpc":"2.0","id":${idOf(request)},"result":{"content":"ż🦀"}}`))) {
      socket.write(Buffer.of(byte));
      await new Promise(setImmediate);
    }
  });
  assert.equal((await closing(new NexusClient({ url: server.url, token: null })).send("x")).content, "ż🦀");
});

test("a stream in one chunk, and one a byte at a time", async () => {
  let asked = 0;
  const server = await liar(async (socket, request) => {
    const bytes = Buffer.from(SSE + start + piece("ż") + piece("🦀") + event({ id: idOf(request), result: { content: "ż🦀" } }));
    if (++asked === 1) return socket.end(bytes);
    for (const byte of bytes) {
      socket.write(Buffer.of(byte));
      await new Promise(setImmediate);
    }
    socket.end();
  });
  const client = closing(new NexusClient({ url: server.url, token: null }));
  for (const _ of [1, 2]) {
    let text = "";
    const stream = client.stream("x");
    for await (const piece of stream) text += piece;
    assert.equal(text, "ż🦀");
    assert.equal((await stream.result).content, "ż🦀");
  }
});

/** The pieces of a stream, and what it ended with. */
async function told(client: NexusClient, params?: object): Promise<[string, SendResult | ClientError]> {
  let text = "";
  const stream = client.stream("x", params);
  try {
    for await (const piece of stream) text += piece;
    return [text, await stream.result];
  } catch (error) {
    return [text, error as ClientError];
  }
}

test("a stream that breaks off tells what came, and that it broke", async () => {
  const server = await liar((socket) => socket.end(SSE + start + piece("so far")));
  const [text, error] = await told(closing(new NexusClient({ url: server.url, token: null })));
  assert.equal(text, "so far");
  assert.equal((error as ClientError).message, "connection lost: the stream ended before the answer");
  assert.equal(server.connections(), 1);
});

test("a stream that turns to nonsense", async () => {
  const server = await liar((socket) => socket.write(SSE + start + piece("so far") + "data: {nonsense\n\n"));
  const [text, error] = await told(closing(new NexusClient({ url: server.url, token: null })));
  assert.equal(text, "so far");
  assert.equal((error as ClientError).kind, "answer");
});

test("with a key a stream that breaks off goes on, and tells nothing twice", async () => {
  let asked = 0;
  const server = await liar((socket, request) => {
    const end = piece("so far, so good") + event({ id: idOf(request), result: { content: "so far, so good" } });
    socket.end(SSE + start + (++asked === 1 ? piece("so ") + piece("far") : end));
  });
  const [text, result] = await told(closing(new NexusClient({ url: server.url, token: null })), { idempotency_key: "k" });
  assert.equal(text, "so far, so good");
  assert.equal((result as SendResult).content, "so far, so good");
  assert.equal(asked, 2);
});

test("with a key a call that was not answered is made again, the same to the letter", async () => {
  const bodies: string[] = [];
  const server = await liar((socket, request) => {
    bodies.push(request.slice(request.indexOf("\r\n\r\n")));
    if (bodies.length === 1) return socket.destroy();
    socket.write(answer(`{"jsonrpc":"2.0","id":${idOf(request)},"result":{"agent_id":"a","url":"/agent/a"}}`));
  });
  const client = closing(new NexusClient({ url: server.url, token: null }));
  assert.equal((await client.createAgent({ agent_id: "a", idempotency_key: "k" })).agent_id, "a");
  assert.equal(bodies.length, 2);
  assert.equal(bodies[0], bodies[1]);
});

test("64 MiB of a stream may wait for their reader, not more", async () => {
  const mebibyte = piece("a".repeat(1 << 20));
  const server = await liar((socket, request) => {
    socket.write(SSE + start + mebibyte.repeat(64) + (idOf(request) === 1 ? "" : piece("a")));
    socket.end(event({ id: idOf(request), result: { content: "" } }));
  });
  const client = closing(new NexusClient({ url: server.url, token: null }));
  await client.stream("x").result;
  await assert.rejects(client.stream("x").result, { message: "nobody read the stream: over 67108864 bytes wait" });
  let length = 0;
  for await (const text of client.stream("x")) length += text.length;
  assert.equal(length, (64 << 20) + 1);
});

test("a server that accepts no connection", async () => {
  // It listens and never looks again; when its queue is full, whoever connects waits.
  const world = await World.make();
  const script = `require("net").createServer().listen({ port: 0, host: "127.0.0.1", backlog: 1 }, function () {
    require("fs").writeSync(1, this.address().port + "\\n"); for (;;) {} });`;
  const child = world.start(process.execPath, ["--eval", script]);
  const [port] = await once(createInterface({ input: child.stdout! }), "line");
  const clients = Array.from({ length: 6 }, () => closing(new NexusClient({ url: `http://127.0.0.1:${port}`, token: null, timeout: 500 })));
  const ends = await Promise.allSettled(clients.map((client) => client.rpcVersion()));
  const errors = ends.map((end) => (end as PromiseRejectedResult).reason as ClientError);
  assert.ok(errors.every(({ kind }) => kind === "timeout"));
  assert.deepEqual([...new Set(errors.map(({ sent, message }) => `${sent} ${message}`))].sort(), [
    "false no answer within 0.5 s: nobody was reached, nothing has run",
    "true no answer within 0.5 s: the call was sent, and may have run or run still",
  ]);
});

test("an answer of 64 MiB is read, one byte more is not", async () => {
  const head = '{"jsonrpc":"2.0","id":1,"result":"';
  const size = (64 << 20) - head.length - 2;
  const server = await liar((socket, request) => {
    const more = idOf(request) - 1;
    const body = `${head.replace('"id":1', `"id":${more + 1}`)}${"a".repeat(size + more)}"}`;
    socket.write(answer(body));
  });
  const client = closing(new NexusClient({ url: server.url, token: null }));
  assert.equal(((await client.rpcDiscover()) as string).length, size);
  await assert.rejects(client.rpcDiscover(), { kind: "answer", message: "not an answer: it is over 67108864 bytes" });
});

test("an answer of 8 MiB", async () => {
  const server = await Server.start();
  const [http, unix] = [server.http(), server.unix()];
  const content = "b".repeat(65_000);
  const user_id = "ann";
  await Promise.all(Array.from({ length: 130 }, (_, index) => http.memoryAdd({ content: `${index}${content}`, user_id })));
  for (const client of [http, unix]) {
    const all = await client.memoryList({ limit: 1000, user_id });
    assert.equal(all.length, 130);
    assert.ok(all.every((memory) => memory.content.endsWith(content)));
  }
});

for (const wire of ["http", "unix"] as const) {
  test(`${wire}: a server that is killed in mid-stream, and one that comes back`, async () => {
    const server = await Server.start();
    process.env.NEXUS3_HOME = server.world.home;
    const client = wire === "http" ? server.http({ token: undefined }) : server.unix();
    const stream = client.stream("hang");
    await assert.rejects(async () => {
      for await (const text of stream) {
        assert.equal(text, "hanging");
        await server.kill("SIGKILL");
      }
    }, (error: ClientError) => error.kind === "lost" && error.sent);
    await assert.rejects(client.send("anybody?"), { kind: "connect", sent: false });

    const before = server.token;
    const again = await Server.start(server.world, server.port);
    assert.notEqual(again.token, before);
    // The token is looked for again; of many calls at once by each that was refused.
    const calls = Array.from({ length: 20 }, () => client.getTokens());
    await Promise.all(calls);
    assert.equal((await client.stream("say back").result).content, "back");
    await again.kill("SIGTERM");
  });
}

test("a token that was given is not looked for again", async () => {
  const server = await Server.start();
  process.env.NEXUS3_HOME = server.world.home;
  const client = server.http({ token: "nxk_wrong" });
  await assert.rejects(client.send("hi"), { code: -32003, message: "Authentication failed" });
});

for (const wire of ["http", "unix"] as const) {
  test(`${wire}: a program that was busy while its server died does not call into the dead connection`, async () => {
    const server = await Server.start();
    const client = server[wire]();
    await client.getTokens();
    const { pid } = server.process;
    // All in one go, so that no event is heard meanwhile: the end of the server is not either.
    // Its connections are closed when the last of its threads is gone.
    const gone = `grep -q ') Z' /proc/${pid}/stat && [ $(ls /proc/${pid}/task | wc -l) = 1 ]`;
    spawnSync("sh", ["-c", `kill -9 ${pid}; until ${gone}; do :; done`]);
    await assert.rejects(client.getTokens(), { kind: "connect", sent: false });
  });
}

/** The process that serves this one over stdio. */
function childOfStdio(): number {
  const children = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, "utf8").trim().split(" ");
  const found = children.find((id) => readFileSync(`/proc/${id}/cmdline`, "utf8").includes("--stdio"));
  return Number(found);
}

test("stdio: a server that is killed, and the next one", async () => {
  const client = await stdio();
  const stream = client.stream("hang");
  await assert.rejects(async () => {
    for await (const _ of stream) process.kill(childOfStdio(), "SIGKILL");
  }, { kind: "lost", message: "connection lost: the server ended (SIGKILL) before the answer" });
  assert.equal((await client.send("say back")).content, "back");
});

test("stdio: a line that the server cannot read is the one call's in flight", async () => {
  const client = await stdio();
  let deep: unknown[] = [];
  for (let depth = 0; depth < 200; depth++) deep = [deep];
  await assert.rejects(client.call("no.such_method", { deep }), { code: -32700 });
  const other = client.send("hang");
  await until(async () => (await client.listAgents()).agents.some(({ status }) => status === "running"));
  const both = await Promise.allSettled([client.call("no.such_method", { deep }), other]);
  for (const { reason } of both as PromiseRejectedResult[]) {
    assert.match(reason.message, /^not an answer: the server could not read one of 2 calls in flight: /);
  }
});

/** A call of a method that does not exist, of exactly so many bytes. */
async function callOf(client: NexusClient, bytes: number, id: number): Promise<ClientError> {
  const padding = bytes - JSON.stringify({ jsonrpc: "2.0", method: "x", params: { p: "" }, id }).length;
  return client.call("x", { p: "a".repeat(padding) }).then(() => assert.fail(), (error: ClientError) => error);
}

test("the longest line and the longest frame are sent, one byte more is not", async () => {
  const lines = await stdio();
  assert.equal((await callOf(lines, 1 << 20, 1)).message, "Method not found: x");
  assert.equal((await callOf(lines, (1 << 20) + 1, 2)).message, "not a call: it is over 1048576 bytes");
  const frames = (await Server.start()).unix();
  assert.equal((await callOf(frames, 10 << 20, 1)).message, "Method not found: x");
  assert.equal((await callOf(frames, (10 << 20) + 1, 2)).message, "not a call: it is over 10485760 bytes");
});

/** A program that is no server, told what to do with each line by `script`, a function's body over `line` and `out`. */
async function impostor(script: string): Promise<NexusClient> {
  const world = await World.make();
  const program = join(world.directory, "impostor");
  const body = `const out = (text) => process.stdout.write(text);
require("readline").createInterface({ input: process.stdin }).on("line", (line) => { const { id } = JSON.parse(line); ${script} });`;
  writeFileSync(program, `#!${process.execPath}\n${body}`);
  chmodSync(program, 0o755);
  return world.with(NexusClient.stdio({ program }));
}

test("stdio: two answers in one chunk, in any order, and one of 8 MiB", async () => {
  const client = await impostor(`
    const answer = (id, result) => JSON.stringify({ jsonrpc: "2.0", id, result }) + "\\n";
    if (id === 2) out(answer(2, "second") + answer(1, "first"));
    if (id === 3) out(answer(3, "a".repeat(8 << 20)));`);
  const both = await Promise.all([client.rpcDiscover(), client.rpcDiscover()]);
  assert.deepEqual(both, ["first", "second"]);
  assert.equal(((await client.rpcDiscover()) as string).length, 8 << 20);
});

test("stdio: nonsense ends what is in flight, and the program", async () => {
  const client = await impostor(`out("Welcome!\\n");`);
  await assert.rejects(client.rpcDiscover(), { kind: "answer" });
});

test("stdio: a program that does not end with its input is killed", async () => {
  const client = await impostor(`setInterval(() => {}, 1000); out('{"jsonrpc":"2.0","id":1,"result":null}\\n');`);
  assert.equal(await client.rpcDiscover(), null);
  await client.close();
});

test("a stream that is left closes its connection", async () => {
  const server = await Server.start();
  const client = server.http();
  for await (const _ of client.stream("hang")) {
    assert.equal(server.connections(), 1);
    break;
  }
  await until(() => server.connections() === 0);
});

test("1,000 streams at once", async () => {
  const world = await World.make({ server: { max_concurrent: 64 } });
  const client = (await Server.start(world)).http({ timeout: 0 });
  const workers = await Promise.all(Array.from({ length: 50 }, () => agent(client)));
  const streams = Array.from({ length: 1000 }, async (_, index) => {
    let text = "";
    for await (const piece of workers[index % 50]!.stream(`say the number ${index}`)) text += piece;
    assert.equal(text, `the number ${index}`);
  });
  await Promise.all(streams);
});

test("a program that closes nothing still ends", async () => {
  const { world, url, socket, token } = await Server.start();
  const library = new URL("../src/index.js", import.meta.url).href;
  const options = JSON.stringify({ program: PROGRAM, stderr: "ignore" });
  const script = `import { NexusClient } from ${JSON.stringify(library)};
    const clients = [new NexusClient({ url: ${JSON.stringify(url)} }), NexusClient.unix(${JSON.stringify(socket)}), NexusClient.stdio(${options})];
    for (const client of clients) console.log((await client.rpcVersion()).name);`;
  const child = world.start(process.execPath, ["--input-type=module", "--eval", script]);
  child.stdin!.end();
  let out = "";
  child.stdout!.on("data", (bytes) => (out += bytes));
  child.stderr!.on("data", (bytes) => (out += bytes));
  const [code] = await once(child, "close");
  assert.deepEqual([out, code], ["nexus3\nnexus3\nnexus3\n", 0]);
  assert.ok(token);
});
