/** Where the token comes from, and who gets it. */

import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ClientError, findToken, HttpTransport, NexusClient } from "../src/index.js";
import { checkOwner } from "../src/unix.js";
import { answer, closing, idOf, liar } from "./harness.js";

type File = [name: string, mode: number, text: string];

/** Looks a port up among `files`, and tells what was found and what was warned of. */
async function check(apiKey: string | undefined, files: File[], port: number, expected: string) {
  const home = mkdtempSync(join(tmpdir(), "nexus3-client-"));
  for (const [name, mode, text] of files) {
    writeFileSync(join(home, name), text);
    chmodSync(join(home, name), mode);
  }
  const warnings: string[] = [];
  const warned = ({ message }: Error) => warnings.push(message);
  process.on("warning", warned);
  let got: string;
  try {
    got = findToken(port, { NEXUS3_HOME: home, NEXUS3_API_KEY: apiKey }) ?? "none";
  } catch (error) {
    got = (error as ClientError).message;
  }
  await new Promise(setImmediate);
  process.off("warning", warned);
  rmSync(home, { recursive: true });
  assert.equal([got, ...warnings].join(" ").replaceAll(home, "~"), expected);
}

test("the environment comes first, then the port's own file", async () => {
  const files: File[] = [["rpc.token", 0o600, "default\n"], ["rpc-9000.token", 0o600, " nine "]];
  await check("key", files, 9000, "key");
  await check(" key\n", files, 9000, "key");
  await check("", files, 9000, "nine");
  await check(undefined, files, 9000, "nine");
  await check(undefined, files, 8765, "default");
  await check(undefined, files, 9001, "none");
  await check(undefined, [], 9001, "none");
  await check(undefined, [["rpc-8765.token", 0o600, "misnamed"]], 8765, "none");
  await check(undefined, [["rpc-9000.token", 0o600, "\n"]], 9000, "none");
});

test("a file that others may read is skipped with a warning", async () => {
  for (const mode of [0o640, 0o604, 0o660]) {
    const warning = `token file ~/rpc-9000.token skipped: others may read it (mode 0${mode.toString(8)}); make it private with chmod 600`;
    await check(undefined, [["rpc-9000.token", mode, "open"], ["rpc.token", 0o600, "default"]], 9000, `none ${warning}`);
  }
  await check(undefined, [["rpc.token", 0o400, "read-only"]], 8765, "read-only");
  await check(undefined, [["rpc.token", 0o700, "executable"]], 8765, "executable");
});

test("a token is visible ASCII", async () => {
  const refusal = (source: string) =>
    `the token from ${source} is not usable: a token has visible ASCII characters only, like nxk_7Ks9XmN2p…`;
  await check("schlüssel", [], 8765, refusal("NEXUS3_API_KEY"));
  await check("two words", [], 8765, refusal("NEXUS3_API_KEY"));
  await check(undefined, [["rpc.token", 0o600, "a\nb"]], 8765, refusal("~/rpc.token"));
  assert.throws(() => new NexusClient({ token: "zwei\nzeilen" }), { kind: "call", message: refusal("the caller") });
});

/** With which headers a call comes to a server at `host`. At 127.0.0.2 somebody else listens, as on other machines. */
async function authorizationOf(options: { token?: string | null; agentIdentity?: string }, host = "127.0.0.1"): Promise<string> {
  let seen = "";
  const server = await liar((socket, request) => {
    seen = (/authorization: .*/i.exec(request)?.[0] ?? "none") + (/\r\nx-nexus-agent: .*/i.exec(request)?.[0] ?? "").trim();
    socket.write(answer(`{"jsonrpc":"2.0","id":${idOf(request)},"result":{}}`));
  }, host);
  await closing(new NexusClient({ url: server.url, ...options })).rpcVersion();
  return seen;
}

test("a found token goes to the loopback addresses, and nowhere else", async () => {
  process.env.NEXUS3_API_KEY = "nxk_found";
  try {
    assert.equal(await authorizationOf({}), "authorization: Bearer nxk_found");
    assert.equal(await authorizationOf({ token: "nxk_given" }), "authorization: Bearer nxk_given");
    assert.equal(await authorizationOf({ token: null }), "none");
    assert.equal(await authorizationOf({ agentIdentity: "boss" }), "authorization: Bearer nxk_foundx-nexus-agent: boss");
    assert.equal(await authorizationOf({}, "127.0.0.2"), "none");
    assert.equal(await authorizationOf({ token: "nxk_given" }, "127.0.0.2"), "authorization: Bearer nxk_given");
  } finally {
    delete process.env.NEXUS3_API_KEY;
  }
});

test("options that cannot be", () => {
  const check = (options: { url?: string; agentIdentity?: string }, expected: RegExp) =>
    assert.throws(() => new HttpTransport({ token: null, ...options }), (error: ClientError) => error.kind === "call" && expected.test(error.message));
  check({ url: "https://127.0.0.1:8765" }, /it must start with http:/);
  check({ url: "127.0.0.1:8765" }, /it must start with http:/);
  check({ url: "http://127.0.0.1:8765/agent/a" }, /it must not have a path/);
  check({ url: "http://127.0.0.1:8765/?a" }, /it must not have a path/);
  check({ url: "http://u:p@127.0.0.1" }, /it must not have a user/);
  check({ url: "http://" }, /not the URL of a server/);
  check({ url: "http://localhost:99999" }, /not the URL of a server/);
  check({ agentIdentity: "a\nb" }, /not the name of an agent/);
  assert.throws(() => new NexusClient({ token: null }).agent(""), { kind: "call", message: "an agent has a name" });
});

test("a socket is ours or the system's", () => {
  checkOwner(1000, 1000);
  checkOwner(0, 1000);
  assert.throws(() => checkOwner(1001, 1000), /the socket is another user's \(1001\)/);
});
