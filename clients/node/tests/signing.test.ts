/** Requests that are signed: what is signed of them, with what, and that a server agrees. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { ClientError, NexusClient, RpcError } from "../src/index.js";
import { Call } from "../src/rpc.js";
import { canonical, SigningKey } from "../src/signing.js";
import { agent, answer, closing, liar, PROGRAM, ROOT, Server, World } from "./harness.js";

interface Vector {
  name: string;
  secret: string;
  request: string;
  canonical: string;
  signature: string;
}

const SECRET = "nxs_secret-of-the-tests";
const vectors: Vector[] = JSON.parse(readFileSync(join(ROOT, "docs/signing/vectors.json"), "utf8"));

for (const vector of vectors) {
  test(`vector: ${vector.name}`, () => {
    const form = canonical(JSON.parse(vector.request));
    assert.equal(form, vector.canonical);
    assert.equal(new SigningKey(`a:${vector.secret}`).signature(form), vector.signature);
  });
}

/** Whether a request is signed with the key; and it without the signature. */
function holds(text: string, key: string) {
  const request = JSON.parse(text);
  const { signature, ...auth } = request.auth;
  assert.equal(new SigningKey(key).signature(canonical({ ...request, auth })), signature);
  return { request, auth, signature };
}

test("each time that a request is read it has a signature of its own", () => {
  const call = new Call(1, "m", { b: undefined, a: [1.5, "é", new Date(0)], "10": 1, "9": 2 }, false, new SigningKey(`ci:${SECRET}`));
  const [one, other] = [holds(call.text, `ci:${SECRET}`), holds(call.text, `ci:${SECRET}`)];
  assert.notEqual(one.auth.nonce, other.auth.nonce);
  assert.notEqual(one.signature, other.signature);
  assert.equal(one.auth.key_id, "ci");
  assert.equal(one.auth.nonce.length, 22);
  assert.deepEqual(one.request.params, { a: [1.5, "é", "1970-01-01T00:00:00.000Z"], "10": 1, "9": 2 });
  assert.ok(!("key_id" in holds(new Call(1, "m", {}, false, new SigningKey(`:${SECRET}`)).text, `:${SECRET}`).auth));
});

test("what cannot be signed is not sent", async () => {
  const server = await liar((socket) => socket.destroy());
  const client = closing(new NexusClient({ url: server.url, token: null, signingKey: `ci:${SECRET}` }));
  await assert.rejects(client.call("x", { n: 2n ** 53n + 1n }), { kind: "call", sent: false });
  // An integer that no double is alone, as a program can write it that has a way to.
  const { rawJSON } = JSON as unknown as { rawJSON?: (text: string) => object };
  if (rawJSON !== undefined) {
    await assert.rejects(client.call("x", { n: rawJSON("9007199254740993") }), { kind: "call", sent: false, message: /cannot be signed/ });
  }
  assert.equal(server.connections(), 0);
});

test("a malformed key is refused and not shown", () => {
  for (const key of ["", "ci", SECRET, "ci:", `${"x".repeat(256)}:${SECRET}`]) {
    const malformed = (error: unknown) =>
      error instanceof ClientError && /must be ID:SECRET/.test(error.message) && !inspect(error).includes(SECRET);
    assert.throws(() => new NexusClient({ signingKey: key }), malformed);
    assert.throws(() => NexusClient.unix("/nowhere", { signingKey: key }), malformed);
    assert.throws(() => NexusClient.stdio({ signingKey: key }), malformed);
    if (key !== "") assert.throws(() => SigningKey.find(undefined, { NEXUS3_SIGNING_KEY: key }), malformed);
  }
  assert.equal(SigningKey.find(undefined, {}), undefined);
  assert.equal(SigningKey.find(undefined, { NEXUS3_SIGNING_KEY: " " }), undefined);
  assert.ok(SigningKey.find(undefined, { NEXUS3_SIGNING_KEY: ` ci:${SECRET}\n` }));
});

test("the secret is in no text", () => {
  const key = new SigningKey(`ci:${SECRET}`);
  const call = new Call(1, "m", {}, false, key);
  const client = closing(new NexusClient({ token: null, signingKey: `ci:${SECRET}` }));
  for (const text of [inspect(key), String(key), JSON.stringify(key), inspect(call), call.text, inspect(client)]) {
    assert.ok(!text.includes(SECRET), text);
  }
});

for (const [code, status] of [[-32001, "503 Service Unavailable"], [-32002, "429 Too Many Requests"]] as const) {
  test(`each try after ${code} is signed anew`, async () => {
    const sent: string[] = [];
    const server = await liar((socket, request) => {
      const body = request.slice(request.indexOf("\r\n\r\n") + 4);
      sent.push(body);
      const { id } = JSON.parse(body);
      const busy = { jsonrpc: "2.0", id, error: { code, message: "No", data: { retry_after_ms: 1 } } };
      const done = { jsonrpc: "2.0", id, result: 7 };
      socket.write(sent.length < 3 ? answer(JSON.stringify(busy), status) : answer(JSON.stringify(done)));
    });
    const client = closing(new NexusClient({ url: server.url, token: null, signingKey: `ci:${SECRET}` }));
    assert.equal(await client.call("x", { idempotency_key: "k" }), 7);
    const nonces = sent.map((text) => holds(text, `ci:${SECRET}`).auth.nonce);
    assert.equal(new Set(nonces).size, 3);
  });
}

const world = await World.make({ auth: { hmac: { mode: "required" } } });
const server = await Server.start(world);
const made = spawnSync(PROGRAM, ["key", "create", "ci"], { cwd: world.work, env: world.env, encoding: "utf8" });
const key = `ci:${JSON.parse(made.stdout).key}`;

type Connect = (signingKey?: string) => NexusClient;
const stdio = { program: PROGRAM, cwd: world.work, env: world.env, stderr: "ignore" as const };
const wires: [string, Connect][] = [
  ["http", (signingKey) => server.http({ signingKey })],
  ["unix", (signingKey) => server.unix({ signingKey })],
  ["stdio", (signingKey) => world.with(NexusClient.stdio({ ...stdio, signingKey }))],
];

for (const [wire, connect] of wires) {
  test(`${wire}: a server takes what is signed`, async () => {
    const client = connect(key);
    assert.equal((await client.call("rpc.version")).name, "nexus3");
    const worker = await agent(client);
    assert.equal((await worker.send("say grüße 🐍")).content, "grüße 🐍");
    const stream = worker.stream("say one two three");
    const pieces: string[] = [];
    for await (const text of stream) pieces.push(text);
    assert.equal(pieces.join(""), "one two three");
    // Who breaks out cancels the turn, with a call that is signed as well.
    for await (const _ of worker.stream("hang")) break;
    assert.equal((await worker.send("say again")).content, "again");
    // Once carried out, and asked for again with another signature.
    for (let time = 0; time < 2; time++) {
      assert.equal((await worker.send("say once", { idempotency_key: "k" })).content, "once");
    }
    assert.equal((await worker.getContext()).message_count, 10);
  });

  test(`${wire}: a server takes nothing else`, async () => {
    for (const wrong of [undefined, `ci:${SECRET}`, key.replace("ci:", "nobody:"), key.replace("ci:", ":")]) {
      const error = await connect(wrong).call("rpc.version").catch((error: unknown) => error);
      assert.ok(error instanceof RpcError && error.code === -32003, inspect(error));
      assert.ok(!inspect(error).includes(key.slice(3)));
    }
  });

  test(`${wire}: two hundred signed calls at once`, async () => {
    const client = connect(key);
    const versions = await Promise.all(Array.from({ length: 200 }, () => client.call("rpc.version")));
    assert.ok(versions.every(({ name }) => name === "nexus3"));
  });
}
