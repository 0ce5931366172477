/** The face: a client for the server's methods, and its agents. */

import { randomUUID } from "node:crypto";
import type { CallOptions } from "./caller.js";
import { ClientError } from "./errors.js";
import { HttpTransport, type HttpOptions } from "./http.js";
import { AgentMethods, ServerMethods, STREAM_MEMBER, type AgentTable, type CancelResult, type RequestId, type ServerTable, type StreamingMethod, type WatchParams, type WatchResult } from "./methods.js";
import { Again, Limit, retrying } from "./retry.js";
import { Call, resultOf, type Message, type Transport } from "./rpc.js";
import { SigningKey } from "./signing.js";
import { StdioTransport, type StdioOptions } from "./stdio.js";
import { Stream } from "./stream.js";
import { UnixTransport } from "./unix.js";
import { Watch } from "./watch.js";

const TIMEOUT_DEFAULT_MS = 60_000;

/**
 * After so long without a call, the next one waits for a round of the event loop. A program that was busy has not heard
 * yet that its server hung up meanwhile, and would call into a dead connection.
 */
const QUIET_MS = 20;

/** The first of the two comes before anything new is heard, the second after. */
const aRound = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

export interface ClientOptions extends HttpOptions {
  /**
   * Milliseconds that a call may take, its retries included, or that a stream may be silent; 60,000 when absent, 0 for
   * no limit. It ends the waiting; what ends a turn is the parameter `timeout_ms`.
   */
  timeout?: number;
  /** Signs every call with this key, `ID:SECRET`; that of `NEXUS3_SIGNING_KEY` when absent. */
  signingKey?: string;
  /** Another way to the server than HTTP. */
  transport?: Transport;
}

/** Those that are for every way to a server. */
type CommonOptions = Pick<ClientOptions, "timeout" | "signingKey">;

type Table = ServerTable & AgentTable;
type Params<T, M> = M extends keyof T ? (T[M] extends { params: infer P } ? P : never) : object;
type Result<T, M> = M extends keyof T ? (T[M] extends { result: infer R } ? R : never) : unknown;

/** A server. Agent methods go to the agent that `agent_id` names, or to `main`. */
export class NexusClient extends ServerMethods {
  readonly #transport: Transport;
  readonly #timeout: number;
  readonly #key: SigningKey | undefined;
  readonly #live = new Set<Limit>();
  #idLast = 0;
  #calledAt = 0;
  #closed = false;

  /** Over HTTP, to `http://127.0.0.1:8765` and with the token that is found for it, unless told otherwise. */
  constructor(options: ClientOptions = {}) {
    super();
    this.#timeout = options.timeout ?? TIMEOUT_DEFAULT_MS;
    this.#key = SigningKey.find(options.signingKey);
    this.#transport = options.transport ?? new HttpTransport(options);
  }

  /** Over the Unix socket at `path`; without one, where a server puts its socket. */
  static unix(path?: string, options: CommonOptions = {}): NexusClient {
    return new NexusClient({ ...options, transport: new UnixTransport(path) });
  }

  /** With a server of its own, `nexus3 --stdio`, which ends with `close`. */
  static stdio(options: StdioOptions & CommonOptions = {}): NexusClient {
    const { timeout, signingKey, ...rest } = options;
    return new NexusClient({ timeout, signingKey, transport: new StdioTransport(rest) });
  }

  /** One agent's methods. */
  agent(agentId: string): Agent {
    return new Agent(agentId, this.invoke.bind(this), this.open.bind(this));
  }

  /** Calls a method by its name, also one that this client does not know. */
  call<M extends keyof Table | (string & {})>(method: M, params?: Params<Table, M>, options?: CallOptions): Promise<Result<Table, M>> {
    return this.invoke(method, params as object, options);
  }

  /** Calls a method by its name and gives its answer as it is made. */
  callStreaming<M extends StreamingMethod>(method: M, params: Params<Table, M>, options?: CallOptions): Stream<Result<Table, M>> {
    return this.open(method, params as object, options);
  }

  /**
   * Tells all that happens to agents: first how things stand (`snapshot`), then each event as it comes, until it is left.
   * The time limit is for its first event; then it may be quiet for as long as it likes.
   */
  watch(params: WatchParams = {}, options: CallOptions = {}): Watch {
    let limit: Limit | undefined;
    let watchId: string | undefined;
    let wasLeft = false;
    const unwatch = () => {
      // Where there is nothing to hang up it is ended by its name, once that is known.
      if (!wasLeft || watchId === undefined || this.#transport.hangsUp || this.#closed) return;
      void this.unwatch({ watch_id: watchId }).catch(() => {});
    };
    const run = async (onMessage: (message: Message) => void) => {
      const take = (message: Message) => {
        const isFirst = watchId === undefined;
        watchId ??= message.params?.watch_id as string | undefined;
        limit?.quiet();
        if (!wasLeft) onMessage(message);
        else if (isFirst) unwatch();
      };
      const call = this.#start("watch", params, true, options, take);
      limit = call.limit;
      try {
        return (await call.result) as WatchResult;
      } catch (error) {
        wasLeft = isLeft(error);
        unwatch();
        throw error;
      }
    };
    return new Watch({ run, leave: (why) => limit?.end(why) });
  }

  /** Ends what is under way, and the connections. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const limit of this.#live) limit.end("the client was closed");
    await this.#transport.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  protected override async invoke(method: string, params: object = {}, options: CallOptions = {}): Promise<any> {
    return this.#start(method, params, false, options, () => {}).result;
  }

  protected override open(method: string, params: object = {}, options: CallOptions = {}): Stream<any> {
    const asked = streamed(method as StreamingMethod, params);
    const { request_id, agent_id } = asked as { request_id?: RequestId; agent_id?: string };
    let limit: Limit | undefined;
    const cancel = (): Promise<CancelResult> => this.invoke("cancel", { request_id, agent_id });
    const run = async (onMessage: (message: Message) => void) => {
      const call = this.#start(method, asked, true, options, onMessage);
      limit = call.limit;
      try {
        return await call.result;
      } catch (error) {
        const runsOn = isLeft(error) && !this.#transport.hangsUp && !this.#closed && !call.again.keyed;
        if (runsOn && request_id != null) void cancel().catch(() => {});
        throw error;
      }
    };
    const source = { run, leave: (why: string) => limit?.end(why) };
    return new Stream(source, request_id ?? undefined, request_id == null ? undefined : cancel);
  }

  #start(method: string, params: object, stream: boolean, options: CallOptions, onMessage: (message: Message) => void) {
    if (this.#closed) throw new ClientError("call", "the client is closed", false);
    const call = new Call(++this.#idLast, method, params, stream, this.#key);
    const limit = new Limit(call, options.timeout ?? this.#timeout, options.signal);
    const again = new Again(params);
    const onNotification = (message: Message) => {
      again.begun = true;
      limit.heard();
      onMessage(message);
    };
    const attempt = async () => {
      if (performance.now() - this.#calledAt > QUIET_MS) await aRound();
      this.#calledAt = performance.now();
      if (limit.reason !== undefined) throw limit.reason;
      return resultOf(await this.#transport.exchange(call, onNotification, limit), call);
    };
    this.#live.add(limit);
    const result = retrying(attempt, again, limit).finally(() => {
      limit.clear();
      this.#live.delete(limit);
    });
    return { result, limit, again };
  }
}

type Invoke = (method: string, params: object, options?: CallOptions) => Promise<any>;
type Open = (method: string, params: object, options?: CallOptions) => Stream<any>;

/** One agent of a server. */
export class Agent extends AgentMethods<"agent_id"> {
  readonly id: string;
  readonly #invoke: Invoke;
  readonly #open: Open;

  /** Use `NexusClient.agent`. */
  constructor(id: string, invoke: Invoke, open: Open) {
    super();
    // Without a name the calls would go to `main`, and `shutdown` to the server.
    if (typeof id !== "string" || id === "") throw new ClientError("call", "an agent has a name", false);
    this.id = id;
    this.#invoke = invoke;
    this.#open = open;
  }

  protected override invoke(method: string, params?: object, options?: CallOptions): Promise<any> {
    return this.#invoke(method, { ...params, agent_id: this.id }, options);
  }

  protected override open(method: string, params?: object, options?: CallOptions): Stream<any> {
    return this.#open(method, { ...params, agent_id: this.id }, options);
  }
}

/** Whether a call ended because nobody waits for it any more. */
function isLeft(error: unknown): boolean {
  return error instanceof ClientError && ["aborted", "timeout"].includes(error.kind);
}

/**
 * The parameters that ask for a stream. A turn without a name gets one, so that it can be cancelled; not beside an
 * `idempotency_key`, since whoever makes the call again must have the same parameters.
 */
function streamed(method: StreamingMethod, params: object): object {
  const { options, request_id } = params as { options?: object | null; request_id?: RequestId | null };
  if (STREAM_MEMBER[method] === "options") return { ...params, options: { ...options, stream: true } };
  const named = method !== "send" || request_id != null || new Again(params).keyed;
  return { ...params, ...(named ? {} : { request_id: `node-${randomUUID()}` }), stream: true };
}
