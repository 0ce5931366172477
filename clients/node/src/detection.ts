/** Is a server there? One question without a token tells: ours answers it, or refuses it in its own words. */

import { setTimeout as sleep } from "node:timers/promises";
import { ClientError } from "./errors.js";
import { HttpTransport } from "./http.js";
import { Limit } from "./retry.js";
import { Call, type Message } from "./rpc.js";

/**
 * What listens on a port: nothing, a server of ours, somebody else, something that did not answer in time, or it could
 * not be found out.
 */
export type Detection = "no_server" | "nexus_server" | "other_service" | "timeout" | "error";

const TIMEOUT_DEFAULT_MS = 2_000;

/** Between two questions of `waitForServer`. */
const POLL_INTERVAL_MS = 100;

export async function detectServer(host: string, port: number, timeout = TIMEOUT_DEFAULT_MS): Promise<Detection> {
  const transport = new HttpTransport({ url: `http://${authority(host, port)}`, token: null });
  const call = new Call(1, "rpc.version", {}, false);
  const limit = new Limit(call, timeout);
  try {
    return isOurs(await transport.exchange(call, () => {}, limit)) ? "nexus_server" : "other_service";
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    if (error.kind === "timeout") return "timeout";
    // Whoever took the connection and does not speak HTTP, or not to the end, is somebody else.
    if (error.kind !== "connect") return "other_service";
    return refused(error.cause) ? "no_server" : "error";
  } finally {
    limit.clear();
    await transport.close();
  }
}

/** Waits until a server of ours answers; false when none did within `timeout` milliseconds. */
export async function waitForServer(host: string, port: number, timeout: number): Promise<boolean> {
  const deadline = performance.now() + timeout;
  for (;;) {
    const left = deadline - performance.now();
    if (left <= 0) return false;
    if ((await detectServer(host, port, left)) === "nexus_server") return true;
    await sleep(Math.min(POLL_INTERVAL_MS, Math.max(0, deadline - performance.now())));
  }
}

/**
 * Other JSON-RPC servers refuse too, but not with this `data.type`. A server that has been asked too often, or has too
 * much to do, is there all the same.
 */
function isOurs({ result, error }: Message): boolean {
  const ours = ["AUTHENTICATION_FAILED", "RATE_LIMITED", "RESOURCE_UNAVAILABLE"];
  if (error) return ours.includes(error.data?.type ?? "");
  const version = result as { name?: unknown; protocol?: unknown } | null | undefined;
  return typeof version?.name === "string" && typeof version.protocol === "string";
}

function refused(cause: unknown): boolean {
  const each = cause instanceof AggregateError ? cause.errors : [cause];
  return each.every((error) => (error as NodeJS.ErrnoException | undefined)?.code === "ECONNREFUSED");
}

/** `host:port` as it stands in a URL, an IPv6 address in brackets. */
function authority(host: string, port: number): string {
  return host.includes(":") && !host.startsWith("[") ? `[${host}]:${port}` : `${host}:${port}`;
}
