/** Calls to a server of one's own: `nexus3 --stdio`, one message a line, many calls in flight, answers in any order. */
import { type Call, type Ending, type Message, type Transport } from "./rpc.js";
export interface StdioOptions {
    /** The program; `nexus3`, which is looked for in `PATH`, when absent. */
    program?: string;
    /** Its further arguments, after `--stdio`. */
    args?: string[];
    cwd?: string;
    /** Its environment; this process's own when absent. */
    env?: NodeJS.ProcessEnv;
    /** What becomes of its log; `inherit` when absent. */
    stderr?: "inherit" | "ignore";
}
/** Starts the server with the first call, and again with the first one after its end. */
export declare class StdioTransport implements Transport {
    #private;
    readonly hangsUp = false;
    constructor(options?: StdioOptions);
    exchange(call: Call, onNotification: (message: Message) => void, ending: Ending): Promise<Message>;
    close(): Promise<void>;
}
