/** The face: a client for the server's methods, and its agents. */
import type { CallOptions } from "./caller.js";
import { type HttpOptions } from "./http.js";
import { AgentMethods, ServerMethods, type AgentTable, type ServerTable, type StreamingMethod, type WatchParams } from "./methods.js";
import { type Transport } from "./rpc.js";
import { type StdioOptions } from "./stdio.js";
import { Stream } from "./stream.js";
import { Watch } from "./watch.js";
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
type Params<T, M> = M extends keyof T ? (T[M] extends {
    params: infer P;
} ? P : never) : object;
type Result<T, M> = M extends keyof T ? (T[M] extends {
    result: infer R;
} ? R : never) : unknown;
/** A server. Agent methods go to the agent that `agent_id` names, or to `main`. */
export declare class NexusClient extends ServerMethods {
    #private;
    /** Over HTTP, to `http://127.0.0.1:8765` and with the token that is found for it, unless told otherwise. */
    constructor(options?: ClientOptions);
    /** Over the Unix socket at `path`; without one, where a server puts its socket. */
    static unix(path?: string, options?: CommonOptions): NexusClient;
    /** With a server of its own, `nexus3 --stdio`, which ends with `close`. */
    static stdio(options?: StdioOptions & CommonOptions): NexusClient;
    /** One agent's methods. */
    agent(agentId: string): Agent;
    /** Calls a method by its name, also one that this client does not know. */
    call<M extends keyof Table | (string & {})>(method: M, params?: Params<Table, M>, options?: CallOptions): Promise<Result<Table, M>>;
    /** Calls a method by its name and gives its answer as it is made. */
    callStreaming<M extends StreamingMethod>(method: M, params: Params<Table, M>, options?: CallOptions): Stream<Result<Table, M>>;
    /**
     * Tells all that happens to agents: first how things stand (`snapshot`), then each event as it comes, until it is left.
     * The time limit is for its first event; then it may be quiet for as long as it likes.
     */
    watch(params?: WatchParams, options?: CallOptions): Watch;
    /** Ends what is under way, and the connections. */
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
    protected invoke(method: string, params?: object, options?: CallOptions): Promise<any>;
    protected open(method: string, params?: object, options?: CallOptions): Stream<any>;
}
type Invoke = (method: string, params: object, options?: CallOptions) => Promise<any>;
type Open = (method: string, params: object, options?: CallOptions) => Stream<any>;
/** One agent of a server. */
export declare class Agent extends AgentMethods<"agent_id"> {
    #private;
    readonly id: string;
    /** Use `NexusClient.agent`. */
    constructor(id: string, invoke: Invoke, open: Open);
    protected invoke(method: string, params?: object, options?: CallOptions): Promise<any>;
    protected open(method: string, params?: object, options?: CallOptions): Stream<any>;
}
export {};
