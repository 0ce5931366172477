/** The client that the protocol's document prints, as examples/orchestrator has it. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { PROGRAM, ROOT, World } from "./harness.js";

interface Seed {
  request(method: string, params: object): Promise<Record<string, unknown>>;
  handleResponse(data: string): void;
}

const { JSONRPCClient } = createRequire(import.meta.url)(join(ROOT, "examples/orchestrator/client.js")) as {
  JSONRPCClient: new (process: object) => Seed;
};

/** Fed by lines, as orchestrate.js does it. */
function byLines(client: Seed, input: NodeJS.ReadableStream) {
  createInterface({ input }).on("line", (line) => client.handleResponse(line));
}

test("two answers in one chunk, half an answer, and letters in halves", async () => {
  const [stdin, stdout] = [new PassThrough().resume(), new PassThrough()];
  const client = new JSONRPCClient({ stdin });
  byLines(client, stdout);
  const calls = [1, 2, 3].map(() => client.request("x", {}));
  const answer = (id: number) => Buffer.from(`{"jsonrpc":"2.0","id":${id},"result":{"n":"ż${id}"}}\n`);
  stdout.write(Buffer.concat([answer(2), answer(1)]));
  for (const byte of answer(3)) stdout.write(Buffer.of(byte));
  assert.deepEqual(await Promise.all(calls), [{ n: "ż1" }, { n: "ż2" }, { n: "ż3" }]);
});

test("by itself it takes one message at a time, as the README says", () => {
  const client = new JSONRPCClient({ stdin: new PassThrough().resume() });
  assert.throws(() => client.handleResponse('{"id":1,"result":1}\n{"id":2,"result":2}\n'), SyntaxError);
});

test("many calls at once to the real server", async () => {
  const child = (await World.make()).start(PROGRAM, ["--stdio"]);
  child.stderr!.resume();
  const client = new JSONRPCClient(child);
  byLines(client, child.stdout!);
  const answers = await Promise.all(Array.from({ length: 100 }, () => client.request("rpc.version", {})));
  assert.ok(answers.every(({ name }) => name === "nexus3"));
  await assert.rejects(client.request("nope", {}), { code: -32601 });
  child.stdin!.end();
  assert.deepEqual(await once(child, "close"), [0, null]);
});
