/** The answer to a call as it is made. */
import type { ApprovalEntry, CancelResult, RequestId, Usage } from "./methods.js";
import { type Message } from "./rpc.js";
/** What happens in a streamed turn. A newer server may have further types: pass over those you do not know. */
export type StreamEvent = 
/** The next piece of the answer's text. */
{
    type: "text";
    text: string;
} | {
    type: "tool_call";
    id: string;
    name: string;
    arguments: unknown;
}
/** `refused_by` is the rule that refused the call, as `explain_permission` names it. */
 | {
    type: "tool_result";
    id: string;
    content: string;
    refused_by?: string;
}
/** The turn waits for `respond_approval`. */
 | {
    type: "approval_requested";
    approval: ApprovalEntry;
}
/** A piece of what the model thinks. It is no part of the answer. */
 | {
    type: "reasoning";
    text: string;
} | {
    type: "reasoning_end";
    tokens?: number;
}
/** The model's provider lets the turn wait. */
 | {
    type: "waiting";
    reason: string;
    wait_ms?: number;
}
/** Another model takes over for the rest of the turn. */
 | {
    type: "fallback";
    from: string;
    to: string;
    reason: string;
}
/** What became of a task of a plan. */
 | {
    type: "task_status";
    task_id: string;
    status: string;
    attempts: number;
    error?: string;
}
/** What one step used. */
 | ({
    type: "usage";
} & Usage);
/** How a stream reaches its call. */
export interface StreamSource<Result> {
    /** Makes the call. Each message before the response goes to `onMessage`. */
    run(onMessage: (message: Message) => void): Promise<Result>;
    /** Leaves the call: what is waited for rejects. */
    leave(why: string): void;
    cancel?: () => Promise<CancelResult>;
}
/**
 * A streamed answer. Iterate over it for the pieces of text, over `events()` for all that happens, and await `result`
 * for the whole. Leaving an iteration before its end hangs up, which cancels the turn, unless the call has an
 * `idempotency_key`. Each event is handed out once.
 */
export declare class Stream<Result> implements AsyncIterable<string> {
    #private;
    /** The response, when all has been said. Reading goes on by itself, also while nobody iterates. */
    readonly result: Promise<Result>;
    /** Names the turn for `cancel`, where the call has such a name. */
    readonly requestId: RequestId | undefined;
    constructor(source: StreamSource<Result>, requestId?: RequestId);
    [Symbol.asyncIterator](): AsyncGenerator<string, void, void>;
    events(): AsyncGenerator<StreamEvent, void, void>;
    /** Cancels the turn by its name. The stream then ends as usual, and its result has `cancelled`. */
    cancel(): Promise<CancelResult>;
    /** Hangs up, if it is not over. */
    close(): void;
}
