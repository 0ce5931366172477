/** What happens to agents, as it happens. */

import type { WatchEvent, WatchResult } from "./methods.js";
import type { Message } from "./rpc.js";
import { Told, type Source } from "./stream.js";

/**
 * A watch. Iterate over it for all that happens; how things stand comes first. It may be quiet for as long as it likes.
 * `result` says why it ended. Leaving the iteration, or `close()`, ends the watch and nothing else. A newer server may
 * have further types of events: pass over those you do not know.
 */
export class Watch extends Told<WatchEvent, WatchResult> implements AsyncIterable<WatchEvent> {
  #id: string | undefined;
  #closed = false;

  constructor(source: Source<WatchResult>) {
    super(source, "watch");
  }

  /** Its name for `unwatch`, once its first event was told. */
  get watchId(): string | undefined {
    return this.#id;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<WatchEvent, void, void> {
    try {
      yield* this.things();
    } catch (error) {
      if (!this.#closed) throw error;
    }
  }

  /** Ends it, and the iteration. */
  override close(): void {
    this.#closed ||= !this.isOver;
    super.close();
  }

  protected override take({ method, params }: Message): void {
    if (method !== "watch_event" || params === undefined) return;
    const event = params as unknown as WatchEvent;
    this.#id ??= event.watch_id;
    this.push(JSON.stringify(event).length, event);
  }
}
