/** What happens to agents, as it happens. */
import type { WatchEvent, WatchResult } from "./methods.js";
import type { Message } from "./rpc.js";
import { Told, type Source } from "./stream.js";
/**
 * A watch. Iterate over it for all that happens; how things stand comes first. It may be quiet for as long as it likes.
 * `result` says why it ended. Leaving the iteration, or `close()`, ends the watch and nothing else. A newer server may
 * have further types of events: pass over those you do not know.
 */
export declare class Watch extends Told<WatchEvent, WatchResult> implements AsyncIterable<WatchEvent> {
    #private;
    constructor(source: Source<WatchResult>);
    /** Its name for `unwatch`, once its first event was told. */
    get watchId(): string | undefined;
    [Symbol.asyncIterator](): AsyncGenerator<WatchEvent, void, void>;
    /** Ends it, and the iteration. */
    close(): void;
    protected take({ method, params }: Message): void;
}
