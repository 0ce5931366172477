/** JSON-RPC: the bytes of a request, the reading of what comes back, and what a transport has to do. */
import { ClientError, RpcError } from "./errors.js";
import { Signable } from "./signing.js";
/** Largest message that is read. What the server may answer fits; a stranger's endless body does not fill the memory. */
export const MESSAGE_BYTES_MAX = 64 << 20;
/** A call that is ready to be sent, more than once if need be. */
export class Call {
    id;
    method;
    /** Whether the answer is wanted in pieces. */
    stream;
    /** Whether a server may have read it, in any of the tries. Set by the transport. */
    sent = false;
    #text;
    #key;
    #signable;
    /** The one place where the bytes of a request are made. */
    constructor(id, method, params, stream, key) {
        this.id = id;
        this.method = method;
        this.stream = stream;
        try {
            this.#text = JSON.stringify({ jsonrpc: "2.0", method, params, id });
            this.#key = key;
            this.#signable = key && new Signable(this.#text);
        }
        catch (error) {
            if (error instanceof ClientError)
                throw error;
            throw new ClientError("call", `the parameters are not JSON: ${textOf(error)}`, false, error);
        }
    }
    /** The request, to be read once for each time it is sent: where requests are signed, each has a signature of its own. */
    get text() {
        return this.#key && this.#signable ? this.#key.signed(this.#signable) : this.#text;
    }
    error(kind, message, cause) {
        const said = { connect: "no connection", lost: "connection lost", answer: "not an answer", call: "not a call" };
        return new ClientError(kind, `${said[kind]}: ${message}`, this.sent, cause);
    }
}
/** The message in `bytes`, or the error that says what stands there instead. */
export function decode(bytes, call) {
    const text = bytes.toString("utf8");
    let message;
    try {
        message = JSON.parse(text);
    }
    catch (error) {
        throw call.error("answer", `${textOf(error)} in ${JSON.stringify(text.slice(0, 80))}`, error);
    }
    if (typeof message !== "object" || message === null || message.jsonrpc !== "2.0") {
        throw call.error("answer", `no JSON-RPC in ${JSON.stringify(text.slice(0, 80))}`);
    }
    return message;
}
/**
 * The result in a response to `call`. An error may lack the id: what could not be read, or whom the server does not
 * know, is answered with null.
 */
export function resultOf(message, call) {
    if (message.id !== call.id && message.id != null) {
        throw call.error("answer", `it is for call ${message.id}, not ${call.id}`);
    }
    if (message.error)
        throw new RpcError(message.error.code, message.error.message, message.error.data);
    if (message.id == null)
        throw call.error("answer", "it has neither an id nor an error");
    return message.result;
}
export function textOf(error) {
    return error instanceof Error ? error.message : String(error);
}
