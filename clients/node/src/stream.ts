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
  | { type: "tool_progress"; id: string; progress: number; total?: number; message?: string }
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

/** How a stream or a watch reaches its call. */
export interface Source<Result> {
  /** Makes the call. Each message before the response goes to `onMessage`. */
  run(onMessage: (message: Message) => void): Promise<Result>;
  /** Leaves the call: what is waited for rejects. */
  leave(why: string): void;
}

/** A call that is told of things before its response. Each is handed out once, in the order in which they came. */
export abstract class Told<Thing, Result> {
  /** The response, when all has been said. Reading goes on by itself, also while nobody iterates. */
  readonly result: Promise<Result>;
  readonly #source: Source<Result>;
  readonly #name: string;
  #waiting: Thing[] = [];
  #waitingBytes = 0;
  #over = false;
  /** Resolved, and made anew, when there is something to look at. */
  #news = new News();

  /** `name` is what errors call it. */
  constructor(source: Source<Result>, name: string) {
    this.#source = source;
    this.#name = name;
    this.result = source.run((message) => this.take(message)).finally(() => {
      this.#over = true;
      this.#news.tell();
    });
    // Who iterates is told there; nobody need look at the promise too.
    this.result.catch(() => {});
  }

  /** Hangs up, if it is not over. */
  close(): void {
    if (!this.#over) this.#source.leave(`the ${this.#name} was left before its end`);
  }

  protected get isOver(): boolean {
    return this.#over;
  }

  protected abstract take(message: Message): void;

  /** All of it; at its end throws what the call ended with. */
  protected async *things(): AsyncGenerator<Thing, void, void> {
    try {
      for (;;) {
        const things = this.#waiting;
        this.#waiting = [];
        this.#waitingBytes = 0;
        yield* things;
        if (this.#waiting.length > 0) continue;
        if (this.#over) break;
        await this.#news.told;
      }
      await this.result;
    } finally {
      this.close();
    }
  }

  /** The last of what waits for its reader. */
  protected get latest(): Thing | undefined {
    return this.#waiting.at(-1);
  }

  /** Hands `things` to the reader, where `bytes` more wait now. */
  protected push(bytes: number, ...things: Thing[]): void {
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
export class Stream<Result> extends Told<StreamEvent, Result> implements AsyncIterable<string> {
  /** Names the turn for `cancel`, where the call has such a name. */
  readonly requestId: RequestId | undefined;
  readonly #cancel: (() => Promise<CancelResult>) | undefined;
  readonly #begun = new News();
  /** Characters of the text that were told, and of those how many this try of the call has told. */
  #told = 0;
  #toldAgain = 0;

  constructor(source: Source<Result>, requestId?: RequestId, cancel?: () => Promise<CancelResult>) {
    super(source, "stream");
    this.requestId = requestId;
    this.#cancel = cancel;
    const over = () => this.#begun.tell();
    this.result.then(over, over);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, void> {
    for await (const event of this.events()) {
      if (event.type === "text") yield event.text;
    }
  }

  events(): AsyncGenerator<StreamEvent, void, void> {
    return this.things();
  }

  /** Cancels the turn by its name. The stream then ends as usual, and its result has `cancelled`. */
  async cancel(): Promise<CancelResult> {
    if (this.#cancel === undefined) throw new ClientError("call", "this call has no request_id", false);
    // Before it has begun to answer, the server may not know it yet.
    await this.#begun.told;
    return this.#cancel();
  }

  protected override take({ method, params = {} }: Message): void {
    this.#begun.tell();
    if (method === "stream_start") {
      this.#toldAgain = 0;
    } else if (method === "stream_data") {
      // A call that is made again by its key tells its text from the beginning.
      const chunk = String(params.chunk);
      const fresh = chunk.slice(Math.max(0, this.#told - this.#toldAgain));
      this.#toldAgain += chunk.length;
      this.#told += fresh.length;
      if (fresh !== "") this.#say(fresh);
    } else if (method === "stream_event") {
      const event = params.event as StreamEvent;
      this.push(JSON.stringify(event).length, event);
    }
  }

  /** Text that waits for its reader is joined. */
  #say(text: string): void {
    const last = this.latest;
    if (last?.type !== "text") return this.push(text.length, { type: "text", text });
    last.text += text;
    this.push(text.length);
  }
}

class News {
  tell: () => void = () => {};
  readonly told = new Promise<void>((resolve) => (this.tell = resolve));
}
