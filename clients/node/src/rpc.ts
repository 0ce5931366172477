/** JSON-RPC: the bytes of a request, the reading of what comes back, and what a transport has to do. */

import { ClientError, RpcError, type ErrorData } from "./errors.js";
import { Signable, type SigningKey } from "./signing.js";

/** Largest message that is read. What the server may answer fits; a stranger's endless body does not fill the memory. */
export const MESSAGE_BYTES_MAX = 64 << 20;

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
export class Call {
  readonly id: number;
  readonly method: string;
  /** Whether the answer is wanted in pieces. */
  readonly stream: boolean;
  /** Whether a server may have read it, in any of the tries. Set by the transport. */
  sent = false;
  readonly #text: string;
  readonly #key: SigningKey | undefined;
  readonly #signable: Signable | undefined;

  /** The one place where the bytes of a request are made. */
  constructor(id: number, method: string, params: object, stream: boolean, key?: SigningKey) {
    this.id = id;
    this.method = method;
    this.stream = stream;
    try {
      this.#text = JSON.stringify({ jsonrpc: "2.0", method, params, id });
      this.#key = key;
      this.#signable = key && new Signable(this.#text);
    } catch (error) {
      if (error instanceof ClientError) throw error;
      throw new ClientError("call", `the parameters are not JSON: ${textOf(error)}`, false, error);
    }
  }

  /** The request, to be read once for each time it is sent: where requests are signed, each has a signature of its own. */
  get text(): string {
    return this.#key && this.#signable ? this.#key.signed(this.#signable) : this.#text;
  }

  error(kind: "connect" | "lost" | "answer" | "call", message: string, cause?: unknown): ClientError {
    const said = { connect: "no connection", lost: "connection lost", answer: "not an answer", call: "not a call" };
    return new ClientError(kind, `${said[kind]}: ${message}`, this.sent, cause);
  }
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
  error?: { code: number; message: string; data?: ErrorData };
}

/** The message in `bytes`, or the error that says what stands there instead. */
export function decode(bytes: Buffer, call: Call): Message {
  const text = bytes.toString("utf8");
  let message: unknown;
  try {
    message = JSON.parse(text);
  } catch (error) {
    throw call.error("answer", `${textOf(error)} in ${JSON.stringify(text.slice(0, 80))}`, error);
  }
  if (typeof message !== "object" || message === null || (message as Message).jsonrpc !== "2.0") {
    throw call.error("answer", `no JSON-RPC in ${JSON.stringify(text.slice(0, 80))}`);
  }
  return message as Message;
}

/**
 * The result in a response to `call`. An error may lack the id: what could not be read, or whom the server does not
 * know, is answered with null.
 */
export function resultOf(message: Message, call: Call): unknown {
  if (message.id !== call.id && message.id != null) {
    throw call.error("answer", `it is for call ${message.id}, not ${call.id}`);
  }
  if (message.error) throw new RpcError(message.error.code, message.error.message, message.error.data);
  if (message.id == null) throw call.error("answer", "it has neither an id nor an error");
  return message.result;
}

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
