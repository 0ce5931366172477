/**
 * Trying again what surely has not run: a connection that was refused, and the two answers with which a server turns a
 * call away at the door. What may have run is tried again only with an `idempotency_key`, by which the server tells that
 * it is the same call.
 */
import { ClientError } from "./errors.js";
import type { Call, Ending } from "./rpc.js";
/** Runs `attempt` until it succeeds, fails for good, has failed four times, or the limit ends it. */
export declare function retrying<T>(attempt: () => Promise<T>, again: Again, limit: Limit): Promise<T>;
/** What of a call is tried again. */
export declare class Again {
    #private;
    readonly keyed: boolean;
    /** Set when a stream has begun to answer: the call runs, whatever it ends with. */
    begun: boolean;
    constructor(params: {
        idempotency_key?: unknown;
        options?: {
            idempotency_key?: unknown;
        } | null;
    });
    /** Milliseconds until the next try; none where there is none. */
    waitAfter(error: unknown, tries: number, share?: number): number | undefined;
}
/** What ends a call before its answer: its time, the caller's signal, or the end of the client. */
export declare class Limit implements Ending {
    #private;
    reason: ClientError | undefined;
    onEnd: ((reason: ClientError) => void) | undefined;
    /** `timeout` in milliseconds is for all tries together; of a stream, for the silence between two messages. */
    constructor(call: Call, timeout: number, caller?: AbortSignal);
    left(): number;
    /** A message came: the silence begins anew. */
    heard(): void;
    /** From now on it may be silent for as long as it likes. */
    quiet(): void;
    sleep(ms: number): Promise<void>;
    /** Ends the call, as one that its caller left. */
    end(why: string, cause?: unknown): void;
    /** The call is over. */
    clear(): void;
}
