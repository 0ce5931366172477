/**
 * Calls over the framed Unix socket: the peer's user is the credential. A connection answers one call at a time, so calls
 * made side by side each have their own, and a `cancel` does not wait behind its `send`.
 */
import { existsSync, statSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { ClientError } from "./errors.js";
import { Frames } from "./framing.js";
import { decode, textOf } from "./rpc.js";
/** Largest frame, both ways; the server's own limit. */
const FRAME_BYTES_MAX = 10 << 20;
/** Connections kept for the next call. More calls at once than this are rare on one machine. */
const IDLE_MAX = 8;
const SOCKET_DEFAULT = "/run/ash/rpc.sock";
export class UnixTransport {
    hangsUp = true;
    path;
    #open = new Set();
    #idle = [];
    /** Without a path: `ASH_RPC_SOCKET`, else where a server puts its socket. */
    constructor(path) {
        this.path = path ?? findSocket();
    }
    async exchange(call, onNotification, ending) {
        const body = Buffer.from(call.text);
        if (body.length > FRAME_BYTES_MAX)
            throw call.error("call", `it is over ${FRAME_BYTES_MAX} bytes`);
        const connection = this.#kept() ?? (await this.#connect(call, ending));
        if (ending.reason !== undefined) {
            connection.end();
            throw ending.reason;
        }
        ending.onEnd = (reason) => connection.end(reason);
        const message = await connection.exchange(call, body, onNotification);
        // Only a connection with nothing under way is kept; one whose call was left is closed with it.
        ending.onEnd = undefined;
        if (this.#idle.length < IDLE_MAX)
            this.#idle.push(connection);
        else
            connection.end();
        return message;
    }
    async close() {
        for (const connection of this.#open)
            connection.end();
    }
    #kept() {
        for (let connection; (connection = this.#idle.pop());) {
            if (connection.isOpen)
                return connection;
        }
        return undefined;
    }
    async #connect(call, ending) {
        let socket;
        try {
            checkOwner(statSync(this.path).uid, process.geteuid?.());
            socket = await connected(this.path, ending);
        }
        catch (error) {
            throw error instanceof ClientError ? error : call.error("connect", `${this.path}: ${textOf(error)}`, error);
        }
        const connection = new Connection(socket, () => {
            this.#open.delete(connection);
            this.#idle = this.#idle.filter((kept) => kept !== connection);
        });
        this.#open.add(connection);
        return connection;
    }
}
class Connection {
    #socket;
    #frames = new Frames(FRAME_BYTES_MAX, (frame) => this.#take(frame));
    #waiting;
    constructor(socket, onClose) {
        this.#socket = socket;
        socket.on("data", (chunk) => {
            try {
                this.#frames.push(chunk);
            }
            catch (error) {
                this.end(error instanceof ClientError ? error : this.#waiting?.call.error("answer", textOf(error), error));
            }
        });
        socket.on("error", (error) => this.#fail(error.message));
        socket.on("close", () => {
            onClose();
            this.#fail("the server closed it before the answer");
        });
    }
    get isOpen() {
        return !this.#socket.destroyed && !this.#socket.readableEnded;
    }
    exchange(call, body, onNotification) {
        return new Promise((resolve, reject) => {
            this.#waiting = { call, onNotification, resolve, reject };
            const frame = Buffer.allocUnsafe(4 + body.length);
            frame.writeUInt32BE(body.length);
            body.copy(frame, 4);
            call.sent = true;
            this.#socket.ref();
            this.#socket.write(frame);
        });
    }
    /** Hangs up; the call under way, if there is one, fails with `error`. */
    end(error) {
        const waiting = this.#waiting;
        this.#waiting = undefined;
        this.#socket.destroy();
        waiting?.reject(error ?? waiting.call.error("lost", "the connection was closed"));
    }
    #take(frame) {
        const waiting = this.#waiting;
        if (waiting === undefined)
            return this.end(); // Something was said unasked: nobody knows what it answers.
        const message = decode(frame, waiting.call);
        if (message.method !== undefined)
            return waiting.onNotification(message);
        this.#waiting = undefined;
        // A connection that waits for its next call does not keep the program running.
        this.#socket.unref();
        waiting.resolve(message);
    }
    #fail(why) {
        this.end(this.#waiting?.call.error("lost", why));
    }
}
function connected(path, ending) {
    return new Promise((resolve, reject) => {
        const socket = connect(path);
        ending.onEnd = (reason) => {
            socket.destroy();
            reject(reason);
        };
        socket.once("error", reject);
        socket.once("connect", () => {
            socket.off("error", reject);
            resolve(socket);
        });
    });
}
/** Where another user could lay a socket before the server did, he would be told everything that is said to agents. */
export function checkOwner(owner, us) {
    if (owner !== us && owner !== 0)
        throw new Error(`the socket is another user's (${owner})`);
}
function findSocket() {
    if (process.env.ASH_RPC_SOCKET)
        return process.env.ASH_RPC_SOCKET;
    const runtime = process.env.XDG_RUNTIME_DIR;
    if (!runtime || existsSync(SOCKET_DEFAULT))
        return SOCKET_DEFAULT;
    return join(runtime, "ash", "rpc.sock");
}
