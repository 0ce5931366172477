/** What happens to agents, as it happens. */
import { Told } from "./stream.js";
/**
 * A watch. Iterate over it for all that happens; how things stand comes first. It may be quiet for as long as it likes.
 * `result` says why it ended. Leaving the iteration, or `close()`, ends the watch and nothing else. A newer server may
 * have further types of events: pass over those you do not know.
 */
export class Watch extends Told {
    #id;
    #closed = false;
    constructor(source) {
        super(source, "watch");
    }
    /** Its name for `unwatch`, once its first event was told. */
    get watchId() {
        return this.#id;
    }
    async *[Symbol.asyncIterator]() {
        try {
            yield* this.things();
        }
        catch (error) {
            if (!this.#closed)
                throw error;
        }
    }
    /** Ends it, and the iteration. */
    close() {
        this.#closed ||= !this.isOver;
        super.close();
    }
    take({ method, params }) {
        if (method !== "watch_event" || params === undefined)
            return;
        const event = params;
        this.#id ??= event.watch_id;
        this.push(JSON.stringify(event).length, event);
    }
}
