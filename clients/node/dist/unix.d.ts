/**
 * Calls over the framed Unix socket: the peer's user is the credential. A connection answers one call at a time, so calls
 * made side by side each have their own, and a `cancel` does not wait behind its `send`.
 */
import { type Call, type Ending, type Message, type Transport } from "./rpc.js";
export declare class UnixTransport implements Transport {
    #private;
    readonly hangsUp = true;
    readonly path: string;
    /** Without a path: `ASH_RPC_SOCKET`, else where a server puts its socket. */
    constructor(path?: string);
    exchange(call: Call, onNotification: (message: Message) => void, ending: Ending): Promise<Message>;
    close(): Promise<void>;
}
/** Where another user could lay a socket before the server did, he would be told everything that is said to agents. */
export declare function checkOwner(owner: number, us: number | undefined): void;
