/** The answer to a call as it is made. */
import { ClientError } from "./errors.js";
import { MESSAGE_BYTES_MAX } from "./rpc.js";
/** A call that is told of things before its response. Each is handed out once, in the order in which they came. */
export class Told {
    /** The response, when all has been said. Reading goes on by itself, also while nobody iterates. */
    result;
    #source;
    #name;
    #waiting = [];
    #waitingBytes = 0;
    #over = false;
    /** Resolved, and made anew, when there is something to look at. */
    #news = new News();
    /** `name` is what errors call it. */
    constructor(source, name) {
        this.#source = source;
        this.#name = name;
        this.result = source.run((message) => this.take(message)).finally(() => {
            this.#over = true;
            this.#news.tell();
        });
        // Who iterates is told there; nobody need look at the promise too.
        this.result.catch(() => { });
    }
    /** Hangs up, if it is not over. */
    close() {
        if (!this.#over)
            this.#source.leave(`the ${this.#name} was left before its end`);
    }
    get isOver() {
        return this.#over;
    }
    /** All of it; at its end throws what the call ended with. */
    async *things() {
        try {
            for (;;) {
                const things = this.#waiting;
                this.#waiting = [];
                this.#waitingBytes = 0;
                yield* things;
                if (this.#waiting.length > 0)
                    continue;
                if (this.#over)
                    break;
                await this.#news.told;
            }
            await this.result;
        }
        finally {
            this.close();
        }
    }
    /** The last of what waits for its reader. */
    get latest() {
        return this.#waiting.at(-1);
    }
    /** Hands `things` to the reader, where `bytes` more wait now. */
    push(bytes, ...things) {
        this.#waiting.push(...things);
        this.#waitingBytes += bytes;
        if (this.#waitingBytes > MESSAGE_BYTES_MAX) {
            this.#source.leave(`nobody read the ${this.#name}: over ${MESSAGE_BYTES_MAX} bytes wait`);
        }
        this.#news.tell();
        this.#news = new News();
    }
}
/**
 * A streamed answer. Iterate over it for the pieces of text, over `events()` for all that happens, and await `result`
 * for the whole. Leaving an iteration before its end hangs up, which cancels the turn, unless the call has an
 * `idempotency_key`. Each event is handed out once.
 */
export class Stream extends Told {
    /** Names the turn for `cancel`, where the call has such a name. */
    requestId;
    #cancel;
    #begun = new News();
    /** Characters of the text that were told, and of those how many this try of the call has told. */
    #told = 0;
    #toldAgain = 0;
    constructor(source, requestId, cancel) {
        super(source, "stream");
        this.requestId = requestId;
        this.#cancel = cancel;
        const over = () => this.#begun.tell();
        this.result.then(over, over);
    }
    async *[Symbol.asyncIterator]() {
        for await (const event of this.events()) {
            if (event.type === "text")
                yield event.text;
        }
    }
    events() {
        return this.things();
    }
    /** Cancels the turn by its name. The stream then ends as usual, and its result has `cancelled`. */
    async cancel() {
        if (this.#cancel === undefined)
            throw new ClientError("call", "this call has no request_id", false);
        // Before it has begun to answer, the server may not know it yet.
        await this.#begun.told;
        return this.#cancel();
    }
    take({ method, params = {} }) {
        this.#begun.tell();
        if (method === "stream_start") {
            this.#toldAgain = 0;
        }
        else if (method === "stream_data") {
            // A call that is made again by its key tells its text from the beginning.
            const chunk = String(params.chunk);
            const fresh = chunk.slice(Math.max(0, this.#told - this.#toldAgain));
            this.#toldAgain += chunk.length;
            this.#told += fresh.length;
            if (fresh !== "")
                this.#say(fresh);
        }
        else if (method === "stream_event") {
            const event = params.event;
            this.push(JSON.stringify(event).length, event);
        }
    }
    /** Text that waits for its reader is joined. */
    #say(text) {
        const last = this.latest;
        if (last?.type !== "text")
            return this.push(text.length, { type: "text", text });
        last.text += text;
        this.push(text.length);
    }
}
class News {
    tell = () => { };
    told = new Promise((resolve) => (this.tell = resolve));
}
