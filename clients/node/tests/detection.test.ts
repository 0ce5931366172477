/** What listens on a port. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { detectServer, NexusClient, waitForServer } from "../src/index.js";
import { answer, closing, liar, Server } from "./harness.js";

test("a server of ours", async () => {
  const server = await Server.start();
  assert.equal(await detectServer("127.0.0.1", server.port), "nexus_server");
  assert.equal(await detectServer("localhost", server.port), "nexus_server");
  assert.equal(await detectServer("::1", server.port), "nexus_server");
  assert.equal(await waitForServer("127.0.0.1", server.port, 10_000), true);

  // Seed 000's last call: it stops the server.
  assert.deepEqual(await server.http().shutdown(), { success: true });
  await server.kill("SIGTERM");
  assert.equal(await detectServer("127.0.0.1", server.port), "no_server");
  assert.equal(await waitForServer("127.0.0.1", server.port, 150), false);
});

test("a server that is not there yet is waited for", async () => {
  const first = await Server.start();
  await first.kill("SIGKILL");
  const waiting = waitForServer("127.0.0.1", first.port, 100_000);
  await Server.start(first.world, first.port);
  assert.equal(await waiting, true);
});

test("somebody else", async () => {
  const check = async (reply: string, expected: string) => {
    const server = await liar((socket) => socket.write(reply));
    assert.equal(await detectServer("127.0.0.1", server.port), expected, reply);
  };
  await check("SSH-2.0-OpenSSH\r\n", "other_service");
  await check(answer("<html>", "404 Not Found", "text/html"), "other_service");
  await check(answer('{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'), "other_service");
  await check(answer('{"jsonrpc":"2.0","id":1,"result":{"name":"geth"}}'), "other_service");
  await check(answer('{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"no","data":{"type":"AUTHENTICATION_FAILED"}}}'), "nexus_server");
  await check(answer('{"jsonrpc":"2.0","id":1,"result":{"name":"nexus3","protocol":"1"}}'), "nexus_server");
});

test("one that says nothing", async () => {
  const server = await liar(() => {});
  assert.equal(await detectServer("127.0.0.1", server.port, 50), "timeout");
  const client = closing(new NexusClient({ url: server.url, token: null, timeout: 50 }));
  await assert.rejects(client.rpcVersion(), { kind: "timeout", sent: true });
});
