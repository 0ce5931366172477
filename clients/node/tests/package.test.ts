/** The package as people get it: what is committed is what the sources make, it installs, and its documents run. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import type { RpcError } from "../src/index.js";
import { agent, PROGRAM, ROOT, Server, World } from "./harness.js";

const PACKAGE = join(ROOT, "clients/node");
const BUILD = join(ROOT, "target/clients/node/build");
const STALE = "it is stale: make docs";
const SCHEMA = execFileSync(PROGRAM, ["schema"], { maxBuffer: 64 << 20 });

test("methods.ts is what the server's methods make", () => {
  const made = execFileSync(process.execPath, [join(PACKAGE, "scripts/generate.mjs")], { input: SCHEMA, maxBuffer: 64 << 20 });
  assert.ok(made.toString() === readFileSync(join(PACKAGE, "src/methods.ts"), "utf8"), STALE);
});

test("dist is what src makes", () => {
  const made = join(BUILD, "src");
  assert.deepEqual(readdirSync(join(PACKAGE, "dist")).sort(), readdirSync(made).sort(), STALE);
  for (const name of readdirSync(made)) {
    assert.ok(readFileSync(join(made, name)).equals(readFileSync(join(PACKAGE, "dist", name))), `${name}: ${STALE}`);
  }
});

test("every method of the document can be called", async () => {
  const client = (await Server.start()).http();
  const worker = await agent(client);
  const methods: { name: string; "x-scope": string; "x-kind": string }[] = JSON.parse(SCHEMA.toString()).methods;
  for (const { name, "x-scope": scope, "x-kind": kind } of methods) {
    const camel = name.replace(/[._](.)/g, (_, letter: string) => letter.toUpperCase());
    const callable = scope === "agent" ? [client, worker] : [client];
    for (const face of callable) {
      const method = (face as unknown as Record<string, (params: object) => Promise<unknown>>)[camel];
      assert.ok(method, `${camel} is missing`);
      if (name.startsWith("shutdown") || kind === "watch") continue; // These end what is called, or never; other tests call them.
      // Without parameters it answers, or says which one is missing; not that there is no such method.
      const error = await method.call(face, {}).then(() => undefined, (error: RpcError) => error);
      assert.notEqual(error?.code, -32601, name);
    }
  }
});

/** A directory of its own, gone after the tests. */
function directory(): string {
  const made = mkdtempSync(join(tmpdir(), "nexus3-client-"));
  after(() => rmSync(made, { recursive: true, force: true }));
  return realpathSync(made);
}

/** The package as git has it, in a directory of its own. */
function cloned(): string {
  const clone = join(directory(), "clients/node");
  const files = execFileSync("git", ["ls-files", "-z", "clients/node"], { cwd: ROOT }).toString().split("\0").filter(Boolean);
  for (const file of files) {
    const to = join(clone, "../..", file);
    mkdirSync(dirname(to), { recursive: true });
    cpSync(join(ROOT, file), to);
  }
  return clone;
}

/** npm without the developer's settings, and without the network: nothing is fetched. */
function npm(cwd: string, ...args: string[]): string {
  const env = { PATH: process.env.PATH, HOME: directory(), npm_config_offline: "true", npm_config_update_notifier: "false" };
  const { status, stdout, stderr } = spawnSync("npm", args, { cwd, env, encoding: "utf8" });
  assert.equal(status, 0, stdout + stderr);
  return stdout;
}

/** An empty project with the package installed as the README says. */
function project(): string {
  const empty = directory();
  const clone = cloned();
  const command = blocks(readme, "sh")[0]!.trim().replace("./clients/node", clone).split(" ");
  npm(empty, ...command.slice(1));
  assert.deepEqual(readdirSync(clone).sort(), readdirSync(PACKAGE).sort(), "npm left something in the clone");
  return empty;
}

/** The code of a document in a language. */
function blocks(document: string, language: string): string[] {
  return [...document.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map((match) => match[1]!);
}

const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
const installed = project();

test("it is installed by its folder, without the network and without a build", () => {
  const script = 'import("nexus3-client").then((it) => console.log(typeof it.NexusClient))';
  assert.equal(execFileSync(process.execPath, ["-e", script], { cwd: installed }).toString(), "function\n");
});

test("a package of it has what it needs, and nothing else", () => {
  const clone = cloned();
  const [tarball] = JSON.parse(npm(clone, "pack", "--json", "--pack-destination", dirname(clone))) as { filename: string; files: { path: string }[] }[];
  const names = tarball!.files.map(({ path }) => path).sort();
  assert.deepEqual(names.filter((name) => !name.startsWith("dist/")), ["README.md", "package.json"]);
  assert.equal(names.length - 2, readdirSync(join(BUILD, "src")).length);
  const empty = directory();
  npm(empty, "install", join(dirname(clone), tarball!.filename));
  const script = 'import("nexus3-client").then((it) => console.log(typeof it.NexusClient))';
  assert.equal(execFileSync(process.execPath, ["-e", script], { cwd: empty }).toString(), "function\n");
  assert.ok(existsSync(join(empty, "node_modules/nexus3-client/dist/index.d.ts")));
});

test("its types hold in a strict program, and refuse what is wrong", () => {
  const program = `
    import { NexusClient, type SendResult, type Stream, type WatchResult } from "nexus3-client";
    const client = new NexusClient({ url: "http://127.0.0.1:8765" });
    export const made: Promise<{ agent_id: string }> = client.createAgent({ agent_id: "." });
    export const stream: Stream<SendResult> = client.agent("a").stream("hi", { max_output_tokens: 5 });
    export const plan: Promise<number> = client.callStreaming("create_plan", { user_request: "x" }).result.then((it) => it.plan.tasks.length);
    export const version: Promise<string> = client.call("rpc.version").then((it) => it.version);
    for await (const { agent_id, event } of client.watch({ agents: ["a"], after: { a: 3 } })) {
      if (event.type === "delta") console.log(agent_id, event.text, event.offset);
      // @ts-expect-error
      if (event.type === "snapshot") console.log(event.text);
    }
    export const watched: Promise<WatchResult> = client.watch().result;
    // @ts-expect-error
    client.watch({ agent: "a" });
    // @ts-expect-error
    client.agent("a").watch();
    export const unknown: Promise<unknown> = client.call("not.known", { any: 1 });
    // @ts-expect-error
    client.createAgent({ agent: "." });
    // @ts-expect-error
    client.destroyAgent();
    // @ts-expect-error
    client.call("destroy_agent", { agent: "a" });
    // @ts-expect-error
    client.agent("a").getTokens({ agent_id: "b" });
    // @ts-expect-error
    client.agent("a").listAgents();
    // @ts-expect-error
    client.callStreaming("list_agents", {});
  `;
  writeFileSync(join(installed, "program.mts"), program);
  const modules = join(ROOT, "target/clients/node/node_modules");
  const flags = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--typeRoots", join(modules, "@types"), "--types", "node"];
  const { stdout } = spawnSync(join(modules, ".bin/tsc"), [...flags, "program.mts"], { cwd: installed, encoding: "utf8" });
  assert.equal(stdout, "");
});

const world = await World.make({ permissions: { approvals: "ask" } });
const server = await Server.start(world);
const stdioWorld = await World.make();

/** Runs code of a document as it stands, but for the port and for what the scripted model is to do. */
function run(code: string): string {
  const orders = { "Write a long essay.": "slowly 1000", "Run ls with the exec tool.": 'call exec {\\"argv\\":[\\"ls\\"]}' };
  let program = code
    .replaceAll("new NexusClient()", `new NexusClient({ url: "${server.url}" })`)
    .replaceAll("new NexusClient({ timeout", `new NexusClient({ url: "${server.url}", timeout`);
  for (const [said, order] of Object.entries(orders)) program = program.replace(said, order);
  writeFileSync(join(installed, "program.mjs"), program);
  const places = code.includes("stdio()") ? stdioWorld.env : { ...world.env, ASH_RPC_SOCKET: server.socket };
  const env = { ...places, PATH: `${dirname(PROGRAM)}:${process.env.PATH}` };
  const { status, stdout, stderr } = spawnSync(process.execPath, ["program.mjs"], { cwd: installed, env, encoding: "utf8" });
  assert.equal(status, 0, `${code}\n${stdout}${stderr}`);
  return stdout;
}

const samples: [title: string, says: RegExp][] = [
  ["The first answer", /^Hello\n$/],
  ["Streams, and cancelling them", /^1 2 3 .* true \d+\n$/s],
  ["Streams: events", /^\[exec \{"argv":\["ls"\]\}\]\ndone$/],
  ["Watching", /^(main says .+\n)+$/],
  ["All methods", /^What is my name\?\n4 \d+\n\d+\.\d+\.\d+\n$/],
  ["The Unix socket", /^Hello\n$/],
  ["A server of your own", /^Hello$/],
  ["Errors", /^-32602 Unknown agent: nobody \{ path: '\/agent_id' \}\n$/],
  ["Keys", /^Water the plants\nWater the plants\n$/],
];

test("the README has a test for each of its samples", () => assert.equal(blocks(readme, "js").length, samples.length));

samples.forEach(([title, says], index) => {
  test(`README: ${title}`, () => assert.match(run(blocks(readme, "js")[index]!), says));
});

for (const name of ["README.md", "docs/guide/clients.md"]) {
  test(`${name}: the samples for Node run`, () => {
    const samples = blocks(readFileSync(join(ROOT, name), "utf8"), "js");
    assert.equal(samples.length, 1);
    for (const sample of samples) assert.match(run(sample), /Hello/);
  });
}

test("the bench runs", () => {
  const [line] = blocks(readme, "sh").slice(-1);
  const [program, ...args] = line!.trim().split(" ");
  const { stdout, status } = spawnSync(program!, args, { cwd: ROOT, encoding: "utf8", env: { ...process.env, ROUNDS: "1", CALLS: "5" } });
  assert.equal(status, 0);
  assert.match(stdout, /^nexus3-client [\d.]+ µs a call\nover bare fetch .* µs, [\d.]+ times\nover bare node:http .*\n$/);
});
