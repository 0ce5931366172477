/** Is a server there? One question without a token tells: ours answers it, or refuses it in its own words. */
/**
 * What listens on a port: nothing, a server of ours, somebody else, something that did not answer in time, or it could
 * not be found out.
 */
export type Detection = "no_server" | "nexus_server" | "other_service" | "timeout" | "error";
export declare function detectServer(host: string, port: number, timeout?: number): Promise<Detection>;
/** Waits until a server of ours answers; false when none did within `timeout` milliseconds. */
export declare function waitForServer(host: string, port: number, timeout: number): Promise<boolean>;
