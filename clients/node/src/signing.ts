/** Signed requests: what of a request is signed, and with what. */

import { createHmac, randomBytes } from "node:crypto";
import { ClientError } from "./errors.js";

/** Stands before what is signed, so that a signature of ours is one of nothing else. */
const DOMAIN = "jsonrpc-hmac-v1\n";

const ID_BYTES_MAX = 255;
const NONCE_BYTES = 16;

/** What a client signs its requests with. Its secret is in no text that is made of it. */
export class SigningKey {
  readonly #id: string;
  readonly #secret: string;

  /** `ID:SECRET`; without the ID it is the server's own secret. */
  constructor(text: string) {
    const key = text.trim();
    const colon = key.indexOf(":");
    this.#id = key.slice(0, Math.max(colon, 0));
    this.#secret = key.slice(colon + 1);
    if (colon < 0 || this.#secret === "" || Buffer.byteLength(this.#id) > ID_BYTES_MAX) {
      throw new ClientError("call", "a signing key must be ID:SECRET, or :SECRET for the server's own", false);
    }
  }

  /** The key that was given, else that of `NEXUS3_SIGNING_KEY`, if there is one. */
  static find(given: string | undefined, environment = process.env): SigningKey | undefined {
    const text = given ?? (environment.NEXUS3_SIGNING_KEY?.trim() || undefined);
    return text === undefined ? undefined : new SigningKey(text);
  }

  /** The request with its signature, for one time that it is sent: a server takes a signature once. */
  signed(request: Signable): string {
    const auth = {
      timestamp: Math.floor(Date.now() / 1000),
      nonce: randomBytes(NONCE_BYTES).toString("base64url"),
      ...(this.#id === "" ? {} : { key_id: this.#id }),
    };
    return request.with({ ...auth, signature: this.signature(request.with(auth)) });
  }

  /** That of a request in canonical form. */
  signature(form: string): string {
    return createHmac("sha256", this.#secret).update(DOMAIN).update(form).digest("base64");
  }
}

/** A request without `auth`, in canonical form. */
export class Signable {
  readonly #rest: string;

  /** `text` is the request as JSON. */
  constructor(text: string) {
    const request: unknown = JSON.parse(text);
    // Only what its writer put there by another way than numbers can be lost here, such as JSON.rawJSON.
    if (JSON.stringify(request) !== text) {
      const why = "a number among the parameters cannot be signed: no double is it and no other; write it as text";
      throw new ClientError("call", why, false);
    }
    this.#rest = canonical(request).slice(1);
  }

  /** `auth` comes first in the order of the members. */
  with(auth: object): string {
    return `{"auth":${canonical(auth)},${this.#rest}`;
  }
}

/**
 * The one form of a value, that of RFC 8785: no blanks, members by the UTF-16 of their names, which is how JavaScript
 * sorts, and numbers and strings as JavaScript writes them.
 */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join(",")}}`;
}
