/** Finding the token that a server on this machine left for its user. */

import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { ClientError } from "./errors.js";
import { textOf } from "./rpc.js";

export const PORT_DEFAULT = 8765;

/** Largest token file that is read. A token has 47 characters; whatever is longer than this is something else. */
const FILE_BYTES_MAX = 4096;

/**
 * The token for the server on `port`: of `NEXUS3_API_KEY`, else of the port's own file. The file of another port is no
 * way out: who listens here would be handed the token of the server there. A file that cannot be trusted is passed over
 * with a warning.
 */
export function findToken(port: number, environment = process.env): string | undefined {
  const given = readToken(environment.NEXUS3_API_KEY ?? "", "NEXUS3_API_KEY");
  if (given !== undefined) return given;
  const home = environment.NEXUS3_HOME || join(homedir(), ".nexus3");
  const path = join(home, port === PORT_DEFAULT ? "rpc.token" : `rpc-${port}.token`);
  let text: string;
  try {
    text = readPrivate(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") {
      process.emitWarning(`token file ${path} skipped: ${textOf(error)}`, "NexusWarning");
    }
    return undefined;
  }
  return readToken(text, path);
}

/** The token in `text`, without the white space around it; none when nothing else is there. */
export function readToken(text: string, source: string): string | undefined {
  const token = text.trim();
  if (/[^\x21-\x7e]/.test(token)) {
    const rule = "a token has visible ASCII characters only, like nxk_7Ks9XmN2p…";
    throw new ClientError("call", `the token from ${source} is not usable: ${rule}`, false);
  }
  return token === "" ? undefined : token;
}

/**
 * The file's text, if it is ours and none but us may read it. Owner and mode are those of the opened file, so that no
 * other can be put in its place between the check and the reading.
 */
function readPrivate(path: string): string {
  const file = openSync(path, "r");
  try {
    const found = fstatSync(file);
    if (found.uid !== process.geteuid?.()) throw new Error(`it belongs to another user (${found.uid})`);
    const mode = found.mode & 0o777;
    if (mode & 0o077) {
      const shown = mode.toString(8).padStart(4, "0");
      throw new Error(`others may read it (mode ${shown}); make it private with chmod 600`);
    }
    const bytes = Buffer.alloc(FILE_BYTES_MAX);
    return bytes.toString("utf8", 0, readSync(file, bytes));
  } finally {
    closeSync(file);
  }
}
