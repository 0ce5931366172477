/** The face: a client for the server's methods, and its agents. */
import { randomUUID } from "node:crypto";
import { ClientError } from "./errors.js";
import { HttpTransport } from "./http.js";
import { AgentMethods, ServerMethods, STREAM_MEMBER } from "./methods.js";
import { Again, Limit, retrying } from "./retry.js";
import { Call, resultOf } from "./rpc.js";
import { SigningKey } from "./signing.js";
import { StdioTransport } from "./stdio.js";
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
/** A server. Agent methods go to the agent that `agent_id` names, or to `main`. */
export class NexusClient extends ServerMethods {
    #transport;
    #timeout;
    #key;
    #live = new Set();
    #idLast = 0;
    #calledAt = 0;
    #closed = false;
    /** Over HTTP, to `http://127.0.0.1:8765` and with the token that is found for it, unless told otherwise. */
    constructor(options = {}) {
        super();
        this.#timeout = options.timeout ?? TIMEOUT_DEFAULT_MS;
        this.#key = SigningKey.find(options.signingKey);
        this.#transport = options.transport ?? new HttpTransport(options);
    }
    /** Over the Unix socket at `path`; without one, where a server puts its socket. */
    static unix(path, options = {}) {
        return new NexusClient({ ...options, transport: new UnixTransport(path) });
    }
    /** With a server of its own, `nexus3 --stdio`, which ends with `close`. */
    static stdio(options = {}) {
        const { timeout, signingKey, ...rest } = options;
        return new NexusClient({ timeout, signingKey, transport: new StdioTransport(rest) });
    }
    /** One agent's methods. */
    agent(agentId) {
        return new Agent(agentId, this.invoke.bind(this), this.open.bind(this));
    }
    /** Calls a method by its name, also one that this client does not know. */
    call(method, params, options) {
        return this.invoke(method, params, options);
    }
    /** Calls a method by its name and gives its answer as it is made. */
    callStreaming(method, params, options) {
        return this.open(method, params, options);
    }
    /**
     * Tells all that happens to agents: first how things stand (`snapshot`), then each event as it comes, until it is left.
     * The time limit is for its first event; then it may be quiet for as long as it likes.
     */
    watch(params = {}, options = {}) {
        let limit;
        let watchId;
        let wasLeft = false;
        const unwatch = () => {
            // Where there is nothing to hang up it is ended by its name, once that is known.
            if (!wasLeft || watchId === undefined || this.#transport.hangsUp || this.#closed)
                return;
            void this.unwatch({ watch_id: watchId }).catch(() => { });
        };
        const run = async (onMessage) => {
            const take = (message) => {
                const isFirst = watchId === undefined;
                watchId ??= message.params?.watch_id;
                limit?.quiet();
                if (!wasLeft)
                    onMessage(message);
                else if (isFirst)
                    unwatch();
            };
            const call = this.#start("watch", params, true, options, take);
            limit = call.limit;
            try {
                return (await call.result);
            }
            catch (error) {
                wasLeft = isLeft(error);
                unwatch();
                throw error;
            }
        };
        return new Watch({ run, leave: (why) => limit?.end(why) });
    }
    /** Ends what is under way, and the connections. */
    async close() {
        this.#closed = true;
        for (const limit of this.#live)
            limit.end("the client was closed");
        await this.#transport.close();
    }
    [Symbol.asyncDispose]() {
        return this.close();
    }
    async invoke(method, params = {}, options = {}) {
        return this.#start(method, params, false, options, () => { }).result;
    }
    open(method, params = {}, options = {}) {
        const asked = streamed(method, params);
        const { request_id, agent_id } = asked;
        let limit;
        const cancel = () => this.invoke("cancel", { request_id, agent_id });
        const run = async (onMessage) => {
            const call = this.#start(method, asked, true, options, onMessage);
            limit = call.limit;
            try {
                return await call.result;
            }
            catch (error) {
                const runsOn = isLeft(error) && !this.#transport.hangsUp && !this.#closed && !call.again.keyed;
                if (runsOn && request_id != null)
                    void cancel().catch(() => { });
                throw error;
            }
        };
        const source = { run, leave: (why) => limit?.end(why) };
        return new Stream(source, request_id ?? undefined, request_id == null ? undefined : cancel);
    }
    #start(method, params, stream, options, onMessage) {
        if (this.#closed)
            throw new ClientError("call", "the client is closed", false);
        const call = new Call(++this.#idLast, method, params, stream, this.#key);
        const limit = new Limit(call, options.timeout ?? this.#timeout, options.signal);
        const again = new Again(params);
        const onNotification = (message) => {
            again.begun = true;
            limit.heard();
            onMessage(message);
        };
        const attempt = async () => {
            if (performance.now() - this.#calledAt > QUIET_MS)
                await aRound();
            this.#calledAt = performance.now();
            if (limit.reason !== undefined)
                throw limit.reason;
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
/** One agent of a server. */
export class Agent extends AgentMethods {
    id;
    #invoke;
    #open;
    /** Use `NexusClient.agent`. */
    constructor(id, invoke, open) {
        super();
        // Without a name the calls would go to `main`, and `shutdown` to the server.
        if (typeof id !== "string" || id === "")
            throw new ClientError("call", "an agent has a name", false);
        this.id = id;
        this.#invoke = invoke;
        this.#open = open;
    }
    invoke(method, params, options) {
        return this.#invoke(method, { ...params, agent_id: this.id }, options);
    }
    open(method, params, options) {
        return this.#open(method, { ...params, agent_id: this.id }, options);
    }
}
/** Whether a call ended because nobody waits for it any more. */
function isLeft(error) {
    return error instanceof ClientError && ["aborted", "timeout"].includes(error.kind);
}
/**
 * The parameters that ask for a stream. A turn without a name gets one, so that it can be cancelled; not beside an
 * `idempotency_key`, since whoever makes the call again must have the same parameters.
 */
function streamed(method, params) {
    const { options, request_id } = params;
    if (STREAM_MEMBER[method] === "options")
        return { ...params, options: { ...options, stream: true } };
    const named = method !== "send" || request_id != null || new Again(params).keyed;
    return { ...params, ...(named ? {} : { request_id: `node-${randomUUID()}` }), stream: true };
}
