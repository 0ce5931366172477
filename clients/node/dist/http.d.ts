/** Calls over HTTP. Connections are kept, and shared by the calls. */
import { type Call, type Ending, type Message, type Transport } from "./rpc.js";
export declare const URL_DEFAULT = "http://127.0.0.1:8765";
export interface HttpOptions {
    /** `http://host:port`; the server speaks plain HTTP on loopback. */
    url?: string;
    /** The token to send, whatever the URL; `null` sends none. Without it one is looked for, for this machine only. */
    token?: string | null;
    /** Makes every call with the rights of this agent only (`X-Nexus-Agent`). */
    agentIdentity?: string;
}
export declare class HttpTransport implements Transport {
    #private;
    readonly hangsUp = true;
    constructor(options?: HttpOptions);
    exchange(call: Call, onNotification: (message: Message) => void, ending: Ending): Promise<Message>;
    close(): Promise<void>;
}
