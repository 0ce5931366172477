/** What is tried again: only what has not run, or has a key. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ClientError, NexusClient, RpcError, type ErrorData } from "../src/index.js";
import { Again } from "../src/retry.js";
import { answer, closing, idOf, liar } from "./harness.js";

const rpc = (code: number, data?: ErrorData) => new RpcError(code, "no", data);
const lost = new ClientError("lost", "closed", true);
const connect = new ClientError("connect", "refused", false);

/** The waits, in hundredths of the largest, until the call is given up. */
function check(params: object, error: unknown, expected: number[], begun = false) {
  const again = new Again(params);
  again.begun = begun;
  const waits: number[] = [];
  for (let tries = 1; ; tries++) {
    const wait = again.waitAfter(error, tries, 1);
    if (wait === undefined) break;
    waits.push(wait);
  }
  assert.deepEqual(waits, expected);
}

test("what has not run is tried four times", () => {
  check({}, connect, [100, 200, 400]);
  check({}, rpc(-32001, { retry_after_ms: 0 }), [100, 200, 400]);
  check({}, rpc(-32002, { scope: "server", retry_after_ms: 5_000 }), [5_100, 5_200, 5_400]);
  check({}, rpc(-32002), [100, 200, 400]);
});

test("what may have run is tried once", () => {
  check({}, lost, []);
  check({}, rpc(-32603), []);
  check({}, rpc(-32003), []);
  check({}, rpc(-32001), []);
  check({}, rpc(-32001, { retry_after_ms: 5, scope: "upstream" }), []);
  check({}, rpc(-32002, { retry_after_ms: 5, scope: "upstream" }), []);
  check({}, new ClientError("timeout", "late", true), []);
  check({}, new ClientError("answer", "garbage", true), []);
  check({}, new TypeError("a fault of ours"), []);
  check({}, rpc(-32001, { retry_after_ms: 0 }), [], true);
});

test("with a key a lost answer is asked for again, wherever methods have their key", () => {
  check({ idempotency_key: "k" }, lost, [100, 200, 400]);
  check({ options: { idempotency_key: "k" } }, lost, [100, 200, 400]);
  check({ idempotency_key: "k" }, lost, [100, 200, 400], true);
  check({ idempotency_key: null, options: null }, lost, []);
  check({ data: { idempotency_key: "k" } }, lost, []);
  check({ idempotency_key: "k" }, rpc(-32000), []);
});

test("a wait of a minute is begun, a longer one is not", () => {
  check({}, rpc(-32001, { retry_after_ms: 60_000 }), [60_100, 60_200, 60_400]);
  check({}, rpc(-32001, { retry_after_ms: 60_001 }), []);
});

test("a call that was turned away is made again", async () => {
  const bodies = [
    '"error":{"code":-32001,"message":"full","data":{"retry_after_ms":1}}',
    '"error":{"code":-32002,"message":"slower","data":{"retry_after_ms":1,"scope":"server"}}',
    '"result":{"agents":[]}',
  ];
  let calls = 0;
  const server = await liar((socket, request) => socket.write(answer(`{"jsonrpc":"2.0","id":${idOf(request)},${bodies[calls++]}}`, "503 Busy")));
  const client = closing(new NexusClient({ url: server.url, token: null }));
  assert.deepEqual(await client.listAgents(), { agents: [] });
  assert.equal(calls, 3);
});

test("a server that turned the call away and is gone then was not reached", async () => {
  const server = await liar((socket, request) => {
    socket.end(answer(`{"jsonrpc":"2.0","id":${idOf(request)},"error":{"code":-32001,"message":"stopping","data":{"retry_after_ms":50}}}`));
    server.close();
  });
  const client = closing(new NexusClient({ url: server.url, token: null }));
  await assert.rejects(client.listAgents(), { kind: "connect" });
});

test("a wait that would pass the time limit ends in the error at hand", async () => {
  let calls = 0;
  const server = await liar((socket, request) => {
    calls += 1;
    socket.write(answer(`{"jsonrpc":"2.0","id":${idOf(request)},"error":{"code":-32001,"message":"full","data":{"retry_after_ms":5000}}}`));
  });
  const client = closing(new NexusClient({ url: server.url, token: null, timeout: 4_000 }));
  await assert.rejects(client.listAgents(), { code: -32001 });
  assert.equal(calls, 1);
});

test("a call may be left while it waits for its next try", async () => {
  const server = await liar((socket, request) => {
    socket.write(answer(`{"jsonrpc":"2.0","id":${idOf(request)},"error":{"code":-32001,"message":"full","data":{"retry_after_ms":50000}}}`));
    controller.abort();
  });
  const controller = new AbortController();
  const client = closing(new NexusClient({ url: server.url, token: null, timeout: 0 }));
  await assert.rejects(client.listAgents({}, { signal: controller.signal }), { kind: "aborted" });
  await assert.rejects(client.listAgents({}, { signal: controller.signal }), { kind: "aborted", sent: false });
});
