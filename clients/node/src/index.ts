/** The client of the nexus3 agent server. */

export type { CallOptions } from "./caller.js";
export { Agent, NexusClient, type ClientOptions } from "./client.js";
export { detectServer, waitForServer, type Detection } from "./detection.js";
export { ClientError, RpcError, type ErrorData, type ErrorKind } from "./errors.js";
export { HttpTransport, URL_DEFAULT, type HttpOptions } from "./http.js";
export type * from "./methods.js";
export type { Call, Ending, Message, Transport } from "./rpc.js";
export { StdioTransport, type StdioOptions } from "./stdio.js";
export { Stream, type StreamEvent } from "./stream.js";
export { findToken } from "./token.js";
export { UnixTransport } from "./unix.js";
export { Watch } from "./watch.js";
