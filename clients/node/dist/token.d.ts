/** Finding the token that a server on this machine left for its user. */
export declare const PORT_DEFAULT = 8765;
/**
 * The token for the server on `port`: of `NEXUS3_API_KEY`, else of the port's own file. The file of another port is no
 * way out: who listens here would be handed the token of the server there. A file that cannot be trusted is passed over
 * with a warning.
 */
export declare function findToken(port: number, environment?: NodeJS.ProcessEnv): string | undefined;
/** The token in `text`, without the white space around it; none when nothing else is there. */
export declare function readToken(text: string, source: string): string | undefined;
