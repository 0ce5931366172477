/** JSON-RPC: the bytes of a request, the reading of what comes back, and what a transport has to do. */
import { ClientError, type ErrorData } from "./errors.js";
import { type SigningKey } from "./signing.js";
/** Largest message that is read. What the server may answer fits; a stranger's endless body does not fill the memory. */
export declare const MESSAGE_BYTES_MAX: number;
/** One way to a server. */
export interface Transport {
    /**
     * Sends `call` and resolves with its response; what comes before that goes to `onNotification`. When `ending` tells so
     * it leaves the call and rejects with the reason. Many calls may be under way at once.
     */
    exchange(call: Call, onNotification: (message: Message) => void, ending: Ending): Promise<Message>;
    /** Whether leaving a streamed call closes a connection, by which the server knows that nobody reads any more. */
    readonly hangsUp: boolean;
    close(): Promise<void>;
}
/** Tells whoever works on a call that it is to be left. Listening to an `AbortSignal` would cost more than a call. */
export interface Ending {
    readonly reason: ClientError | undefined;
    /** Told once. Set by the one who works on the call now. */
    onEnd: ((reason: ClientError) => void) | undefined;
}
/** A call that is ready to be sent, more than once if need be. */
export declare class Call {
    #private;
    readonly id: number;
    readonly method: string;
    /** Whether the answer is wanted in pieces. */
    readonly stream: boolean;
    /** Whether a server may have read it, in any of the tries. Set by the transport. */
    sent: boolean;
    /** The one place where the bytes of a request are made. */
    constructor(id: number, method: string, params: object, stream: boolean, key?: SigningKey);
    /** The request, to be read once for each time it is sent: where requests are signed, each has a signature of its own. */
    get text(): string;
    error(kind: "connect" | "lost" | "answer" | "call", message: string, cause?: unknown): ClientError;
}
/** A call that was sent, and who waits for its answer. */
export interface Waiting {
    call: Call;
    onNotification: (message: Message) => void;
    resolve: (message: Message) => void;
    reject: (error: unknown) => void;
}
/** What a server sends: a response, or with `method` a notification of a stream. */
export interface Message {
    jsonrpc: "2.0";
    id?: number | string | null;
    method?: string;
    params?: Record<string, unknown>;
    result?: unknown;
    error?: {
        code: number;
        message: string;
        data?: ErrorData;
    };
}
/** The message in `bytes`, or the error that says what stands there instead. */
export declare function decode(bytes: Buffer, call: Call): Message;
/**
 * The result in a response to `call`. An error may lack the id: what could not be read, or whom the server does not
 * know, is answered with null.
 */
export declare function resultOf(message: Message, call: Call): unknown;
export declare function textOf(error: unknown): string;
