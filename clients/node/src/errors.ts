/** Why a call has no result. */

/**
 * What a program branches on:
 * - `rpc`: the server answered with an error, an {@link RpcError}.
 * - `connect`: nobody was reached.
 * - `lost`: the connection broke before the answer; whether the call ran is not known.
 * - `timeout`: no answer came in time.
 * - `aborted`: the caller left the call, or closed the client.
 * - `answer`: what came back is not an answer to this call.
 * - `call`: the call cannot be made at all.
 */
export type ErrorKind = "rpc" | "connect" | "lost" | "timeout" | "aborted" | "answer" | "call";

/** Every error of this library. */
export class ClientError extends Error {
  override readonly name: string = "ClientError";
  readonly kind: ErrorKind;
  /** Whether a server may have read the call. While it is false, nothing has run. */
  readonly sent: boolean;

  constructor(kind: ErrorKind, message: string, sent: boolean, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.kind = kind;
    this.sent = sent;
  }
}

/** The server's own error. `code` and `data` are explained in docs/errors. */
export class RpcError extends ClientError {
  override readonly name = "RpcError";
  readonly code: number;
  readonly data: ErrorData | undefined;

  constructor(code: number, message: string, data?: ErrorData) {
    super("rpc", message, true);
    this.code = code;
    this.data = data;
  }
}

/** What an error says beyond its message. Which members there are depends on the code. */
export interface ErrorData {
  type?: string;
  details?: string;
  recovery_suggestions?: string[];
  path?: string;
  scope?: string;
  retry_after_ms?: number;
  [member: string]: unknown;
}
