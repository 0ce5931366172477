/** Why a call has no result. */
/** Every error of this library. */
export class ClientError extends Error {
    name = "ClientError";
    kind;
    /** Whether a server may have read the call. While it is false, nothing has run. */
    sent;
    constructor(kind, message, sent, cause) {
        super(message, cause === undefined ? undefined : { cause });
        this.kind = kind;
        this.sent = sent;
    }
}
/** The server's own error. `code` and `data` are explained in docs/errors. */
export class RpcError extends ClientError {
    name = "RpcError";
    code;
    data;
    constructor(code, message, data) {
        super("rpc", message, true);
        this.code = code;
        this.data = data;
    }
}
