/**
 * Trying again what surely has not run: a connection that was refused, and the two answers with which a server turns a
 * call away at the door. What may have run is tried again only with an `idempotency_key`, by which the server tells that
 * it is the same call.
 */

import { ClientError, RpcError } from "./errors.js";
import type { Call, Ending } from "./rpc.js";

/** Four tries bridge a server that is just restarting, and keep the wait for one that is gone under a second. */
const TRIES_MAX = 4;
const DELAY_FIRST_MS = 100;
const DELAY_MAX_MS = 2_000;

/** Rate limits count by the minute; a server that asks for more patience than that gets its error shown instead. */
const RETRY_AFTER_MAX_MS = 60_000;

/** Timers count no further than this. */
const TIMER_MAX_MS = 2 ** 31 - 1;

const UNAVAILABLE = -32001;
const RATE_LIMITED = -32002;

/** Runs `attempt` until it succeeds, fails for good, has failed four times, or the limit ends it. */
export async function retrying<T>(attempt: () => Promise<T>, again: Again, limit: Limit): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await attempt();
    } catch (error) {
      const wait = again.waitAfter(error, tries);
      // A wait that would pass the limit ends in the error at hand, which says more than a timeout.
      if (wait === undefined || wait >= limit.left()) throw error;
      await limit.sleep(wait);
    }
  }
}

/** What of a call is tried again. */
export class Again {
  readonly keyed: boolean;
  /** Set when a stream has begun to answer: the call runs, whatever it ends with. */
  begun = false;

  constructor(params: { idempotency_key?: unknown; options?: { idempotency_key?: unknown } | null }) {
    this.keyed = [params.idempotency_key, params.options?.idempotency_key].some((key) => typeof key === "string");
  }

  /** Milliseconds until the next try; none where there is none. */
  waitAfter(error: unknown, tries: number, share = Math.random()): number | undefined {
    if (!(error instanceof ClientError) || tries >= TRIES_MAX || !this.#covers(error)) return undefined;
    const asked = error instanceof RpcError ? (error.data?.retry_after_ms ?? 0) : 0;
    if (asked > RETRY_AFTER_MAX_MS) return undefined;
    // Full jitter: clients that were turned away together do not come back together.
    return asked + share * Math.min(DELAY_FIRST_MS * 2 ** (tries - 1), DELAY_MAX_MS);
  }

  #covers(error: ClientError): boolean {
    return (this.keyed && error.kind === "lost") || (!this.begun && hasNotRun(error));
  }
}

/**
 * The server says of an unavailable resource when it may be there again (a full queue), and does not where trying again
 * is no use (no provider) or the call was under way (a lease that was lost). A limit of the model's provider
 * (`upstream`) is met in the middle of a turn, so that call did run.
 */
function hasNotRun(error: ClientError): boolean {
  if (!(error instanceof RpcError)) return error.kind === "connect";
  if (error.data?.scope === "upstream") return false;
  return error.code === RATE_LIMITED || (error.code === UNAVAILABLE && error.data?.retry_after_ms !== undefined);
}

/** What ends a call before its answer: its time, the caller's signal, or the end of the client. */
export class Limit implements Ending {
  reason: ClientError | undefined;
  onEnd: ((reason: ClientError) => void) | undefined;
  readonly #call: Call;
  readonly #timeout: number;
  readonly #caller: AbortSignal | undefined;
  #timer: NodeJS.Timeout | undefined;
  #deadline = Infinity;

  /** `timeout` in milliseconds is for all tries together; of a stream, for the silence between two messages. */
  constructor(call: Call, timeout: number, caller?: AbortSignal) {
    this.#call = call;
    this.#timeout = timeout;
    this.#caller = caller;
    if (timeout > 0 && timeout <= TIMER_MAX_MS) {
      this.#timer = setTimeout(this.#expire, timeout);
      this.#deadline = performance.now() + timeout;
    }
    caller?.addEventListener("abort", this.#leave);
    if (caller?.aborted) this.#leave();
  }

  left(): number {
    return this.#deadline - performance.now();
  }

  /** A message came: the silence begins anew. */
  heard(): void {
    if (this.#timer === undefined) return;
    this.#timer.refresh();
    this.#deadline = performance.now() + this.#timeout;
  }

  /** From now on it may be silent for as long as it likes. */
  quiet(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#deadline = Infinity;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, ms);
      this.onEnd = (reason) => {
        clearTimeout(timer);
        reject(reason);
      };
    });
  }

  /** Ends the call, as one that its caller left. */
  end(why: string, cause?: unknown): void {
    this.#end(new ClientError("aborted", why, this.#call.sent, cause));
  }

  /** The call is over. */
  clear(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#leave);
  }

  #end(reason: ClientError): void {
    if (this.reason !== undefined) return;
    this.reason = reason;
    this.onEnd?.(reason);
  }

  readonly #leave = () => this.end("the caller left the call", this.#caller?.reason);

  readonly #expire = () => {
    const { sent, stream } = this.#call;
    const done = !sent ? "nobody was reached, nothing has run"
      : stream ? "the stream was silent, and was left"
      : "the call was sent, and may have run or run still";
    this.#end(new ClientError("timeout", `no answer within ${this.#timeout / 1000} s: ${done}`, sent));
  };
}
