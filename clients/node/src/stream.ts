/** The answer to a call as it is made. */

import { ClientError } from "./errors.js";
import type { ApprovalEntry, CancelResult, RequestId, Usage } from "./methods.js";
import { MESSAGE_BYTES_MAX, type Message } from "./rpc.js";

/** What happens in a streamed turn. A newer server may have further types: pass over those you do not know. */
export type StreamEvent =
  /** The next piece of the answer's text. */
  | { type: "text"; text: string }
  | { type: "tool_call"; id: string; name: string; arguments: unknown }
  /** `refused_by` is the rule that refused the call, as `explain_permission` names it. */
  | { type: "tool_result"; id: string; content: string; refused_by?: string }
  /** The turn waits for `respond_approval`. */
  | { type: "approval_requested"; approval: ApprovalEntry }
  /** A piece of what the model thinks. It is no part of the answer. */
  | { type: "reasoning"; text: string }
  | { type: "reasoning_end"; tokens?: number }
  /** The model's provider lets the turn wait. */
  | { type: "waiting"; reason: string; wait_ms?: number }
  /** Another model takes over for the rest of the turn. */
  | { type: "fallback"; from: string; to: string; reason: string }
  /** What became of a task of a plan. */
  | { type: "task_status"; task_id: string; status: string; attempts: number; error?: string }
  /** What one step used. */
  | ({ type: "usage" } & Usage);

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
export class Stream<Result> implements AsyncIterable<string> {
  /** The response, when all has been said. Reading goes on by itself, also while nobody iterates. */
  readonly result: Promise<Result>;
  /** Names the turn for `cancel`, where the call has such a name. */
  readonly requestId: RequestId | undefined;
  readonly #source: StreamSource<Result>;
  #waiting: StreamEvent[] = [];
  #waitingBytes = 0;
  #over = false;
  /** Resolved, and made anew, when there is something to look at. */
  #news = new News();
  readonly #begun = new News();
  /** Characters of the text that were told, and of those how many this try of the call has told. */
  #told = 0;
  #toldAgain = 0;

  constructor(source: StreamSource<Result>, requestId?: RequestId) {
    this.#source = source;
    this.requestId = requestId;
    this.result = source.run((message) => this.#take(message)).finally(() => {
      this.#over = true;
      this.#begun.tell();
      this.#news.tell();
    });
    // Who iterates is told there; nobody need look at the promise too.
    this.result.catch(() => {});
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, void> {
    for await (const event of this.events()) {
      if (event.type === "text") yield event.text;
    }
  }

  async *events(): AsyncGenerator<StreamEvent, void, void> {
    try {
      for (;;) {
        const events = this.#waiting;
        this.#waiting = [];
        this.#waitingBytes = 0;
        yield* events;
        if (this.#waiting.length > 0) continue;
        if (this.#over) break;
        await this.#news.told;
      }
      await this.result; // Throws what the call ended with.
    } finally {
      this.close();
    }
  }

  /** Cancels the turn by its name. The stream then ends as usual, and its result has `cancelled`. */
  async cancel(): Promise<CancelResult> {
    if (this.#source.cancel === undefined) throw new ClientError("call", "this call has no request_id", false);
    // Before it has begun to answer, the server may not know it yet.
    await this.#begun.told;
    return this.#source.cancel();
  }

  /** Hangs up, if it is not over. */
  close(): void {
    if (!this.#over) this.#source.leave("the stream was left before its end");
  }

  #take({ method, params = {} }: Message): void {
    this.#begun.tell();
    if (method === "stream_start") {
      this.#toldAgain = 0;
    } else if (method === "stream_data") {
      // A call that is made again by its key tells its text from the beginning.
      const chunk = String(params.chunk);
      const fresh = chunk.slice(Math.max(0, this.#told - this.#toldAgain));
      this.#toldAgain += chunk.length;
      this.#told += fresh.length;
      if (fresh !== "") this.#push({ type: "text", text: fresh });
    } else if (method === "stream_event") {
      this.#push(params.event as StreamEvent);
    }
  }

  #push(event: StreamEvent): void {
    const last = this.#waiting.at(-1);
    // Text that waits for its reader is joined.
    if (event.type === "text" && last?.type === "text") last.text += event.text;
    else this.#waiting.push(event);
    this.#waitingBytes += event.type === "text" ? event.text.length : JSON.stringify(event).length;
    if (this.#waitingBytes > MESSAGE_BYTES_MAX) this.#source.leave(`nobody read the stream: over ${MESSAGE_BYTES_MAX} bytes wait`);
    this.#news.tell();
    this.#news = new News();
  }
}

class News {
  tell: () => void = () => {};
  readonly told = new Promise<void>((resolve) => (this.tell = resolve));
}
