/** Is a server there? One question without a token tells: ours answers it, or refuses it in its own words. */
import { setTimeout as sleep } from "node:timers/promises";
import { ClientError } from "./errors.js";
import { HttpTransport } from "./http.js";
import { Limit } from "./retry.js";
import { Call } from "./rpc.js";
const TIMEOUT_DEFAULT_MS = 2_000;
/** Between two questions of `waitForServer`. */
const POLL_INTERVAL_MS = 100;
export async function detectServer(host, port, timeout = TIMEOUT_DEFAULT_MS) {
    const transport = new HttpTransport({ url: `http://${authority(host, port)}`, token: null });
    const call = new Call(1, "rpc.version", {}, false);
    const limit = new Limit(call, timeout);
    try {
        return isOurs(await transport.exchange(call, () => { }, limit)) ? "nexus_server" : "other_service";
    }
    catch (error) {
        if (!(error instanceof ClientError))
            throw error;
        if (error.kind === "timeout")
            return "timeout";
        // Whoever took the connection and does not speak HTTP, or not to the end, is somebody else.
        if (error.kind !== "connect")
            return "other_service";
        return refused(error.cause) ? "no_server" : "error";
    }
    finally {
        limit.clear();
        await transport.close();
    }
}
/** Waits until a server of ours answers; false when none did within `timeout` milliseconds. */
export async function waitForServer(host, port, timeout) {
    const deadline = performance.now() + timeout;
    for (;;) {
        const left = deadline - performance.now();
        if (left <= 0)
            return false;
        if ((await detectServer(host, port, left)) === "nexus_server")
            return true;
        await sleep(Math.min(POLL_INTERVAL_MS, Math.max(0, deadline - performance.now())));
    }
}
/**
 * Other JSON-RPC servers refuse too, but not with this `data.type`. A server that has been asked too often, or has too
 * much to do, is there all the same.
 */
function isOurs({ result, error }) {
    const ours = ["AUTHENTICATION_FAILED", "RATE_LIMITED", "RESOURCE_UNAVAILABLE"];
    if (error)
        return ours.includes(error.data?.type ?? "");
    const version = result;
    return typeof version?.name === "string" && typeof version.protocol === "string";
}
function refused(cause) {
    const each = cause instanceof AggregateError ? cause.errors : [cause];
    return each.every((error) => error?.code === "ECONNREFUSED");
}
/** `host:port` as it stands in a URL, an IPv6 address in brackets. */
function authority(host, port) {
    return host.includes(":") && !host.startsWith("[") ? `[${host}]:${port}` : `${host}:${port}`;
}
