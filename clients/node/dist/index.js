/** The client of the nexus3 agent server. */
export { Agent, NexusClient } from "./client.js";
export { detectServer, waitForServer } from "./detection.js";
export { ClientError, RpcError } from "./errors.js";
export { HttpTransport, URL_DEFAULT } from "./http.js";
export { StdioTransport } from "./stdio.js";
export { Stream } from "./stream.js";
export { findToken } from "./token.js";
export { UnixTransport } from "./unix.js";
export { Watch } from "./watch.js";
