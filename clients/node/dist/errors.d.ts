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
export declare class ClientError extends Error {
    readonly name: string;
    readonly kind: ErrorKind;
    /** Whether a server may have read the call. While it is false, nothing has run. */
    readonly sent: boolean;
    constructor(kind: ErrorKind, message: string, sent: boolean, cause?: unknown);
}
/** The server's own error. `code` and `data` are explained in docs/errors. */
export declare class RpcError extends ClientError {
    readonly name = "RpcError";
    readonly code: number;
    readonly data: ErrorData | undefined;
    constructor(code: number, message: string, data?: ErrorData);
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
