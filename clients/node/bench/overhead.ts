/**
 * What a call costs with this client, beside the same call with `fetch` and with `node:http`, in the same run and against
 * the same server, which answers at once: a real one would hide the difference. Rounds of the three alternate, and the
 * median round counts.
 */

import { once } from "node:events";
import { Agent, createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { NexusClient } from "../src/index.js";

const ROUNDS = Number(process.env.ROUNDS ?? 31);
const CALLS = Number(process.env.CALLS ?? 500);

const answer = (id: number) => JSON.stringify({ jsonrpc: "2.0", id, result: { total: 12, system: 10, tools: 0, messages: 2 } });
const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const body = answer(JSON.parse(Buffer.concat(chunks).toString()).id);
    response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
    response.end(body);
  });
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const { port } = server.address() as AddressInfo;
const url = `http://127.0.0.1:${port}`;
const token = `nxk_${"a".repeat(43)}`;
let idLast = 0;

const body = () => JSON.stringify({ jsonrpc: "2.0", method: "get_tokens", params: { agent_id: "main" }, id: ++idLast });
const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };

async function withFetch() {
  const response = await fetch(`${url}/rpc`, { method: "POST", headers, body: body() });
  return ((await response.json()) as { result: unknown }).result;
}

const agent = new Agent({ keepAlive: true });

function withHttp(): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const text = body();
    const post = request({ agent, host: "127.0.0.1", port, path: "/rpc", method: "POST", headers: { ...headers, "content-length": text.length } });
    post.on("error", reject);
    post.on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("end", () => resolve(JSON.parse(Buffer.concat(chunks).toString()).result));
    });
    post.end(text);
  });
}

const client = new NexusClient({ url, token });
const ways = {
  fetch: withFetch,
  "node:http": withHttp,
  "nexus3-client": () => client.getTokens({ agent_id: "main" }),
};

const rounds: Record<string, number[]> = {};
for (let round = -3; round < ROUNDS; round++) {
  for (const [name, call] of Object.entries(ways)) {
    const start = performance.now();
    for (let index = 0; index < CALLS; index++) await call();
    // The first rounds are for the compiler.
    if (round >= 0) (rounds[name] ??= []).push(((performance.now() - start) / CALLS) * 1000);
  }
}
const median = (name: string) => rounds[name]!.sort((a, b) => a - b)[ROUNDS >> 1]!;
const ours = median("nexus3-client");
console.log(`nexus3-client ${ours.toFixed(1)} µs a call`);
for (const name of ["fetch", "node:http"]) {
  const bare = median(name);
  console.log(`over bare ${name} (${bare.toFixed(1)} µs): ${(ours - bare).toFixed(1)} µs, ${(ours / bare).toFixed(2)} times`);
}
await client.close();
agent.destroy();
server.close();
server.closeAllConnections();
