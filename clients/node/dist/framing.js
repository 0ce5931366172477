/** Cutting what arrives into messages. A chunk may be half of one, or two. */
import { MESSAGE_BYTES_MAX } from "./rpc.js";
const NEWLINE = 0x0a;
/** Bytes that wait for the rest of their message; joined once, when it is there. */
class Pile {
    #chunks = [];
    length = 0;
    push(chunk) {
        if (chunk.length === 0)
            return;
        this.#chunks.push(chunk);
        this.length += chunk.length;
    }
    take(count) {
        const all = this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks);
        this.#chunks = count < all.length ? [all.subarray(count)] : [];
        this.length -= count;
        return all.subarray(0, count);
    }
}
/** The message is longer than any that is read. */
export class TooLong extends Error {
    constructor(bytesMax) {
        super(`it is over ${bytesMax} bytes`);
    }
}
/** Lines, without their ends. */
export class Lines {
    #pile = new Pile();
    #onLine;
    constructor(onLine) {
        this.#onLine = onLine;
    }
    push(chunk) {
        let rest = chunk;
        for (let end; (end = rest.indexOf(NEWLINE)) >= 0; rest = rest.subarray(end + 1)) {
            this.#add(rest.subarray(0, end));
            this.#onLine(this.#pile.take(this.#pile.length));
        }
        this.#add(rest);
    }
    #add(bytes) {
        if (this.#pile.length + bytes.length > MESSAGE_BYTES_MAX)
            throw new TooLong(MESSAGE_BYTES_MAX);
        this.#pile.push(bytes);
    }
}
/** Frames: four bytes of length, the highest first, and that many bytes. */
export class Frames {
    #pile = new Pile();
    #onFrame;
    #bytesMax;
    #awaited;
    constructor(bytesMax, onFrame) {
        this.#bytesMax = bytesMax;
        this.#onFrame = onFrame;
    }
    push(chunk) {
        this.#pile.push(chunk);
        for (;;) {
            if (this.#awaited === undefined) {
                if (this.#pile.length < 4)
                    return;
                this.#awaited = this.#pile.take(4).readUInt32BE();
                if (this.#awaited > this.#bytesMax)
                    throw new TooLong(this.#bytesMax);
            }
            if (this.#pile.length < this.#awaited)
                return;
            const frame = this.#pile.take(this.#awaited);
            this.#awaited = undefined;
            this.#onFrame(frame);
        }
    }
}
/** Server-sent events: the data of each. Other fields and comments are passed over. */
export class Events {
    #lines;
    #data = [];
    constructor(onEvent) {
        this.#lines = new Lines((line) => {
            if (line.at(-1) === 0x0d)
                line = line.subarray(0, -1);
            if (line.length === 0 && this.#data.length > 0) {
                const data = this.#data.length === 1 ? this.#data[0] : Buffer.concat(this.#data);
                this.#data = [];
                onEvent(data);
            }
            else if (line.subarray(0, 5).equals(DATA)) {
                if (this.#data.length > 0)
                    this.#data.push(Buffer.of(NEWLINE));
                this.#data.push(line.subarray(line[5] === 0x20 ? 6 : 5));
            }
        });
    }
    push(chunk) {
        this.#lines.push(chunk);
    }
}
const DATA = Buffer.from("data:");
