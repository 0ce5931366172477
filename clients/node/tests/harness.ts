/**
 * What the tests stand on: a real server beside a scripted model, each test file with its own, in a directory of its own.
 *
 * The programs are found in the directory that `NEXUS3_BIN` names, `target/debug` when absent: `nexus3`, and
 * `scripted-model`, which answers what the last message of the user orders (`say TEXT`, `slowly N`, `hang`,
 * `call TOOL JSON`, `status N`, anything else comes back).
 */

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { NexusClient, type ClientOptions } from "../src/index.js";

/** The repository; the tests are started there. */
export const ROOT = process.cwd();
const BIN = resolve(process.env.NEXUS3_BIN ?? join(ROOT, "target/debug"));
export const PROGRAM = join(BIN, "nexus3");

/** A directory for the server's home and the model it asks; gone after the test, or the file, that made it. */
export class World {
  readonly directory = mkdtempSync(join(tmpdir(), "nexus3-client-"));
  readonly home = join(this.directory, ".nexus3");
  readonly work = join(this.directory, "work");
  /** Nothing of the developer's own configuration is seen. */
  readonly env = { HOME: this.directory, NEXUS3_HOME: this.home, OLLAMA_HOST: "127.0.0.1:1", PATH: process.env.PATH };
  readonly #children: ChildProcess[] = [];
  readonly #clients: NexusClient[] = [];

  static async make(config: { server?: object; permissions?: object; auth?: object; model?: object } = {}): Promise<World> {
    const world = new World();
    after(() => world.end());
    mkdirSync(world.home, { mode: 0o700 });
    mkdirSync(world.work);
    const model = world.start(join(BIN, "scripted-model"), []);
    const [base_url] = await once(createInterface({ input: model.stdout! }), "line");
    const { model: scripted, ...rest } = config;
    const providers = { scripted: { type: "openai", base_url, models: { scripted: { context_window: 200_000, ...scripted } } } };
    writeFileSync(join(world.home, "config.json"), JSON.stringify({ providers, ...rest }));
    return world;
  }

  /** Starts a program, to be ended by its id with the world. */
  start(program: string, args: string[]): ChildProcess {
    const child = spawn(program, args, { cwd: this.work, env: this.env, stdio: ["pipe", "pipe", "pipe"] });
    this.#children.push(child);
    return child;
  }

  /** A client that is closed before the world ends. */
  with(client: NexusClient): NexusClient {
    this.#clients.push(client);
    return client;
  }

  async end(): Promise<void> {
    for (const client of this.#clients) await client.close();
    for (const child of this.#children) {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGKILL");
        await once(child, "close");
      }
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** A running `nexus3 serve`. */
export class Server {
  private constructor(
    readonly world: World,
    readonly url: string,
    readonly socket: string,
    readonly process: ChildProcess,
  ) {}

  static async start(world?: World, port = 0): Promise<Server> {
    world ??= await World.make();
    const socket = join(world.directory, "run", "rpc.sock");
    const child = world.start(PROGRAM, ["serve", String(port), "--socket", socket]);
    const log: string[] = [];
    const url = await new Promise<string | undefined>((resolve) => {
      const lines = createInterface({ input: child.stderr! });
      lines.on("line", (line) => {
        log.push(line);
        if (line.includes('"listening"')) resolve(JSON.parse(line).data.url);
      });
      lines.on("close", () => resolve(undefined));
    });
    if (url === undefined) throw new Error(`the server did not start:\n${log.join("\n")}`);
    return new Server(world, url, socket, child);
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  get token(): string {
    return readFileSync(join(this.world.home, `rpc-${this.port}.token`), "utf8").trim();
  }

  http(options: ClientOptions = {}): NexusClient {
    return this.world.with(new NexusClient({ url: this.url, token: this.token, ...options }));
  }

  unix(options: Parameters<typeof NexusClient.unix>[1] = {}): NexusClient {
    return this.world.with(NexusClient.unix(this.socket, options));
  }

  async kill(signal: NodeJS.Signals): Promise<void> {
    this.process.kill(signal);
    if (this.process.exitCode === null && this.process.signalCode === null) await once(this.process, "close");
  }

  /** How many connections lead to the server's port, as the kernel tells. */
  connections(): number {
    const port = `:${this.port.toString(16).toUpperCase().padStart(4, "0")}`;
    const rows = readFileSync("/proc/net/tcp", "utf8").split("\n").map((row) => row.trim().split(/\s+/));
    return rows.filter(([, , remote, state]) => remote?.endsWith(port) && state === "01").length;
  }
}

/** `nexus3 --stdio` in a world of its own. */
export async function stdio(options: { timeout?: number } = {}): Promise<NexusClient> {
  const world = await World.make();
  return world.with(NexusClient.stdio({ program: PROGRAM, cwd: world.work, env: world.env, stderr: "ignore", ...options }));
}

/** A client of no world, closed after the test. */
export function closing(client: NexusClient): NexusClient {
  after(() => client.close());
  return client;
}

/** A client over each transport, by its name. */
export async function everyWire(config?: Parameters<typeof World.make>[0]): Promise<[string, NexusClient][]> {
  const server = await Server.start(await World.make(config));
  return [["http", server.http()], ["unix", server.unix()], ["stdio", await stdio()]];
}

let agentsMade = 0;

/** A fresh temporary agent. */
export async function agent(client: NexusClient) {
  const { agent_id } = await client.createAgent({ agent_id: `.test-${process.pid}-${++agentsMade}` });
  return client.agent(agent_id);
}

/** A server that says what no honest one would: `onRequest` has each connection after the first bytes of a request. */
export async function liar(onRequest: (socket: Socket, request: string) => void, host = "127.0.0.1") {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.on("error", () => {});
    let request = "";
    socket.on("data", (bytes) => {
      request += bytes.toString();
      const head = request.indexOf("\r\n\r\n");
      const length = Number(/content-length: (\d+)/i.exec(request)?.[1] ?? NaN);
      if (head < 0 || Buffer.byteLength(request.slice(head + 4)) < length) return;
      const whole = request;
      request = "";
      onRequest(socket, whole);
    });
  });
  server.listen(0, host);
  await once(server, "listening");
  after(() => server.close());
  const { port } = server.address() as AddressInfo;
  return { url: `http://${host}:${port}`, port, connections: () => connections, close: () => server.close() };
}

/** The id of a call, as its HTTP request has it. */
export function idOf(request: string): number {
  return JSON.parse(request.slice(request.indexOf("\r\n\r\n") + 4)).id;
}

/** An HTTP answer. */
export function answer(body: string, status = "200 OK", type = "application/json"): string {
  return `HTTP/1.1 ${status}\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

/** Waits until `holds`; the test runner's own time limit is the end of the waiting. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await sleep(5);
}
