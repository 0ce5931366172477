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
    type: "tool_progress";
    id: string;
    progress: number;
    total?: number;
    message?: string;
} | {
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
/** How a stream or a watch reaches its call. */
export interface Source<Result> {
    /** Makes the call. Each message before the response goes to `onMessage`. */
    run(onMessage: (message: Message) => void): Promise<Result>;
    /** Leaves the call: what is waited for rejects. */
    leave(why: string): void;
}
/** A call that is told of things before its response. Each is handed out once, in the order in which they came. */
export declare abstract class Told<Thing, Result> {
    #private;
    /** The response, when all has been said. Reading goes on by itself, also while nobody iterates. */
    readonly result: Promise<Result>;
    /** `name` is what errors call it. */
    constructor(source: Source<Result>, name: string);
    /** Hangs up, if it is not over. */
    close(): void;
    protected get isOver(): boolean;
    protected abstract take(message: Message): void;
    /** All of it; at its end throws what the call ended with. */
    protected things(): AsyncGenerator<Thing, void, void>;
    /** The last of what waits for its reader. */
    protected get latest(): Thing | undefined;
    /** Hands `things` to the reader, where `bytes` more wait now. */
    protected push(bytes: number, ...things: Thing[]): void;
}
/**
 * A streamed answer. Iterate over it for the pieces of text, over `events()` for all that happens, and await `result`
 * for the whole. Leaving an iteration before its end hangs up, which cancels the turn, unless the call has an
 * `idempotency_key`. Each event is handed out once.
 */
export declare class Stream<Result> extends Told<StreamEvent, Result> implements AsyncIterable<string> {
    #private;
    /** Names the turn for `cancel`, where the call has such a name. */
    readonly requestId: RequestId | undefined;
    constructor(source: Source<Result>, requestId?: RequestId, cancel?: () => Promise<CancelResult>);
    [Symbol.asyncIterator](): AsyncGenerator<string, void, void>;
    events(): AsyncGenerator<StreamEvent, void, void>;
    /** Cancels the turn by its name. The stream then ends as usual, and its result has `cancelled`. */
    cancel(): Promise<CancelResult>;
    protected take({ method, params }: Message): void;
}
