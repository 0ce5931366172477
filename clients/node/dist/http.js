/** Calls over HTTP. Connections are kept, and shared by the calls. */
import { Agent, request as httpRequest } from "node:http";
import { ClientError } from "./errors.js";
import { Events, TooLong } from "./framing.js";
import { decode, MESSAGE_BYTES_MAX, textOf } from "./rpc.js";
import { findToken, PORT_DEFAULT, readToken } from "./token.js";
export const URL_DEFAULT = `http://127.0.0.1:${PORT_DEFAULT}`;
/** A server on this machine accepts at once or not at all. */
const CONNECT_TIMEOUT_MS = 5_000;
const UNAUTHENTICATED = -32003;
export class HttpTransport {
    hangsUp = true;
    #agent = new Agent({ keepAlive: true });
    #server;
    #identity;
    /** Whether the token was looked for, and may be again. */
    #finds;
    #token;
    constructor(options = {}) {
        this.#server = parseUrl(options.url ?? URL_DEFAULT);
        if (options.agentIdentity !== undefined && !/^[\x21-\x7e]+$/.test(options.agentIdentity)) {
            throw new ClientError("call", `not the name of an agent: ${JSON.stringify(options.agentIdentity)}`, false);
        }
        this.#identity = options.agentIdentity;
        this.#finds = options.token === undefined && this.#server.isOurs;
        this.#token = this.#finds ? findToken(this.#server.port) : readToken(options.token ?? "", "the caller");
    }
    async exchange(call, onNotification, ending) {
        const used = this.#token;
        const message = await this.#post(call, used, onNotification, ending);
        // A server that was started again has another token. It turned the call away at the door.
        if (message.error?.code !== UNAUTHENTICATED || message.id != null || !this.#finds)
            return message;
        if (this.#token === used)
            this.#token = findToken(this.#server.port);
        return this.#token === used ? message : this.#post(call, this.#token, onNotification, ending);
    }
    async close() {
        this.#agent.destroy();
    }
    #post(call, token, onNotification, ending) {
        return new Promise((resolve, reject) => {
            if (ending.reason !== undefined)
                throw ending.reason;
            const body = Buffer.from(call.text);
            const headers = {
                "content-type": "application/json",
                "content-length": body.length,
                accept: call.stream ? "text/event-stream" : "application/json",
            };
            if (token !== undefined)
                headers.authorization = `Bearer ${token}`;
            if (this.#identity !== undefined)
                headers["x-nexus-agent"] = this.#identity;
            const { host, port } = this.#server;
            const request = httpRequest({ agent: this.#agent, host, port, path: "/rpc", method: "POST", headers });
            let over = false;
            const done = (message) => {
                over = true;
                resolve(message);
            };
            let connected = false;
            const fail = (error) => {
                if (over)
                    return;
                over = true;
                request.destroy();
                reject(failure(call, error, connected));
            };
            ending.onEnd = fail;
            request.on("error", fail);
            whenConnected(request, () => (connected = call.sent = true), fail);
            request.on("response", (response) => read(response, call, onNotification, done, fail));
            request.end(body);
        });
    }
}
/** Tells when there is a connection, and gives up on one that is not there in time. */
function whenConnected(request, connected, fail) {
    request.on("socket", (socket) => {
        if (!socket.connecting)
            return connected();
        const late = () => fail(new Error(`not within ${CONNECT_TIMEOUT_MS / 1000} s`));
        const timer = setTimeout(late, CONNECT_TIMEOUT_MS);
        socket.once("connect", connected);
        for (const event of ["connect", "close"])
            socket.once(event, () => clearTimeout(timer));
    });
}
function read(response, call, onNotification, done, fail) {
    let answered = false;
    const take = (bytes) => {
        const message = decode(bytes, call);
        if (message.method !== undefined)
            return onNotification(message);
        answered = true;
        done(message);
    };
    const chunks = [];
    let length = 0;
    const isStream = response.headers["content-type"]?.startsWith("text/event-stream") ?? false;
    const events = new Events((data) => answered || take(data));
    response.on("data", (chunk) => {
        try {
            if (isStream)
                return events.push(chunk);
            chunks.push(chunk);
            if ((length += chunk.length) > MESSAGE_BYTES_MAX)
                throw new TooLong(MESSAGE_BYTES_MAX);
        }
        catch (error) {
            fail(error);
        }
    });
    response.on("end", () => {
        if (answered)
            return;
        if (isStream)
            return fail(call.error("lost", "the stream ended before the answer"));
        if (length === 0)
            return fail(call.error("answer", `HTTP ${response.statusCode} without a body`));
        try {
            take(Buffer.concat(chunks));
        }
        catch (error) {
            fail(error);
        }
    });
    response.on("error", (error) => answered || fail(error));
}
/** In the words of a call, what a connection or the reading of it ended with. */
function failure(call, error, connected) {
    if (error instanceof ClientError)
        return error;
    if (error instanceof TooLong)
        return call.error("answer", error.message);
    if (error.code?.startsWith("HPE_"))
        return call.error("answer", `no HTTP: ${error.message}`, error);
    return call.error(connected ? "lost" : "connect", reasonOf(error), error);
}
/** Of a name with several addresses, each has failed in its own way. */
function reasonOf(error) {
    const each = error instanceof AggregateError ? error.errors : [error];
    return each.map(textOf).join("; ") || error.name;
}
function parseUrl(url) {
    const refuse = (problem) => new ClientError("call", `not the URL of a server: ${url}: ${problem}`, false);
    if (!/^http:\/\//i.test(url))
        throw refuse("it must start with http://");
    let parsed;
    try {
        parsed = new URL(url);
    }
    catch (error) {
        throw refuse(textOf(error));
    }
    if (parsed.pathname !== "/" || parsed.search !== "" || parsed.hash !== "")
        throw refuse("it must not have a path");
    if (parsed.username !== "" || parsed.password !== "")
        throw refuse("it must not have a user; the token goes apart");
    // The name means two addresses, of which somebody else may have the other. A server is on this one.
    const host = parsed.hostname === "localhost" ? "127.0.0.1" : parsed.hostname.replace(/^\[|\]$/g, "");
    return { host, port: Number(parsed.port || 80), isOurs: host === "127.0.0.1" || host === "::1" };
}
