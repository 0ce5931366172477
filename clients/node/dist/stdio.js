/** Calls to a server of one's own: `nexus3 --stdio`, one message a line, many calls in flight, answers in any order. */
import { spawn } from "node:child_process";
import { Lines } from "./framing.js";
import { decode, textOf } from "./rpc.js";
/** Longest line, without its end; the server's own limit. */
const LINE_BYTES_MAX = 1 << 20;
/** From the end of its input to its own end; then it is killed. */
const EXIT_TIMEOUT_MS = 5_000;
/** Starts the server with the first call, and again with the first one after its end. */
export class StdioTransport {
    hangsUp = false;
    #options;
    #child;
    constructor(options = {}) {
        this.#options = options;
    }
    async exchange(call, onNotification, ending) {
        const { text } = call;
        if (Buffer.byteLength(text) > LINE_BYTES_MAX)
            throw call.error("call", `it is over ${LINE_BYTES_MAX} bytes`);
        if (this.#child === undefined || this.#child.over)
            this.#child = new Child(this.#options);
        const child = this.#child;
        ending.onEnd = (reason) => child.leave(call, reason);
        return child.exchange(call, text, onNotification);
    }
    async close() {
        await this.#child?.close();
    }
}
class Child {
    /** Whether it takes no further calls. */
    over = false;
    #process;
    #exit;
    #waiting = new Map();
    /** Which call each open stream or watch answers. */
    #streams = new Map();
    constructor({ program = "nexus3", args = [], cwd, env, stderr = "inherit" }) {
        this.#process = spawn(program, ["--stdio", ...args], { cwd, env, stdio: ["pipe", "pipe", stderr] });
        const lines = new Lines((line) => line.length > 0 && this.#take(line));
        this.#process.stdout.on("data", (chunk) => {
            try {
                lines.push(chunk);
            }
            catch (error) {
                // Where one line is nonsense, nobody knows what the next ones answer.
                this.#end((call) => call.error("answer", textOf(error), error));
                this.#process.kill("SIGKILL");
            }
        });
        // Its end tells why it does not read any more.
        this.#process.stdin.on("error", () => { });
        this.#process.on("exit", () => (this.over = true));
        this.#exit = new Promise((resolve) => {
            this.#process.on("error", (error) => {
                this.#end((call) => call.error("connect", error.message, error));
                resolve();
            });
            this.#process.on("close", (code, signal) => {
                this.#end((call) => call.error("lost", `the server ended (${signal ?? `exit code ${code}`}) before the answer`));
                resolve();
            });
        });
    }
    exchange(call, text, onNotification) {
        return new Promise((resolve, reject) => {
            this.#waiting.set(call.id, { call, onNotification, resolve, reject });
            this.#holdProgram();
            if (this.#process.pid !== undefined)
                call.sent = true;
            this.#process.stdin.write(`${text}\n`);
        });
    }
    leave(call, error) {
        this.#waiting.get(call.id)?.reject(error);
        // A watch is ended by its name, so its first event is still taken.
        const isNamed = [...this.#streams.values()].includes(call.id);
        if (call.method !== "watch" || !call.stream || isNamed)
            this.#forget(call.id);
    }
    /** The end of its input ends the server. */
    async close() {
        this.#process.ref();
        this.#process.stdin.end();
        const timer = setTimeout(() => this.#process.kill("SIGKILL"), EXIT_TIMEOUT_MS);
        await this.#exit;
        clearTimeout(timer);
    }
    #take(line) {
        const first = this.#waiting.values().next().value;
        if (first === undefined)
            return this.#streams.clear(); // What comes is for calls that were left.
        const message = decode(line, first.call);
        if (message.method !== undefined)
            return this.#notify(message);
        if (message.id == null)
            return this.#unread(message);
        const waiting = this.#waiting.get(message.id);
        this.#forget(message.id);
        waiting?.resolve(message);
    }
    #notify(message) {
        const { stream_id, watch_id, task_id } = message.params ?? {};
        const name = stream_id ?? watch_id;
        // The first one says which call it is for.
        if (task_id != null)
            this.#streams.set(name, task_id);
        const id = this.#streams.get(name);
        if (message.method === "stream_end")
            this.#streams.delete(name);
        if (id !== undefined)
            this.#waiting.get(id)?.onNotification(message);
    }
    /** The server could not read a line, so it does not know whose it was. With one call in flight, we do. */
    #unread(message) {
        const all = [...this.#waiting.values()];
        const why = `the server could not read one of ${all.length} calls in flight: ${message.error?.message}`;
        for (const { call, resolve, reject } of all) {
            this.#forget(call.id);
            if (all.length === 1)
                resolve(message);
            else
                reject(call.error("answer", why));
        }
    }
    #end(errorOf) {
        this.over = true;
        for (const { call, reject } of this.#waiting.values())
            reject(errorOf(call));
        this.#waiting.clear();
    }
    #forget(id) {
        this.#waiting.delete(id);
        for (const [name, of] of this.#streams)
            if (of === id)
                this.#streams.delete(name);
        this.#holdProgram();
    }
    /** A server that waits for its next call does not keep the program running; its input ends with it. */
    #holdProgram() {
        const change = this.#waiting.size > 0 ? "ref" : "unref";
        for (const part of [this.#process, this.#process.stdin, this.#process.stdout]) {
            part[change]?.();
        }
    }
}
