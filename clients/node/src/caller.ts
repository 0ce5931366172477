/** What the client and its agents have in common: the calls that people make most, and how all calls are made. */

import type { CancelParams, CancelResult, Content, RequestId, SendParams, SendResult } from "./methods.js";
import type { Stream } from "./stream.js";

export interface CallOptions {
  /** Milliseconds for this call, instead of the client's. */
  timeout?: number;
  /** Leaves the call when it is aborted. That cancels a streamed turn; a plain call may run on in the server. */
  signal?: AbortSignal;
}

/** Parameters without those that the object fills in itself. */
export type Unbound<Params, Bound extends string> = Omit<Params, Bound> & { [Name in Bound]?: never };

/** `Bound` names the parameters that the object fills in itself. */
export abstract class Caller<Bound extends string> {
  /** Makes a call whose types the caller knows. */
  protected abstract invoke(method: string, params?: object, options?: CallOptions): Promise<any>;
  protected abstract open(method: string, params?: object, options?: CallOptions): Stream<any>;

  /** Sends a message to the agent and waits for its answer. */
  send(content: Content, params?: Unbound<Omit<SendParams, "content" | "stream">, Bound>, options?: CallOptions): Promise<SendResult> {
    return this.invoke("send", { content, ...params }, options);
  }

  /** Sends a message and gives its answer as it is made. */
  stream(content: Content, params?: Unbound<Omit<SendParams, "content" | "stream">, Bound>, options?: CallOptions): Stream<SendResult> {
    return this.open("send", { content, ...params }, options);
  }

  /** Cancels a turn by the `request_id` of its `send`. */
  cancel(requestId: RequestId, params?: Unbound<Omit<CancelParams, "request_id">, Bound>, options?: CallOptions): Promise<CancelResult> {
    return this.invoke("cancel", { request_id: requestId, ...params }, options);
  }
}
