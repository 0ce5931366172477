/** Signed requests: what of a request is signed, and with what. */
/** What a client signs its requests with. Its secret is in no text that is made of it. */
export declare class SigningKey {
    #private;
    /** `ID:SECRET`; without the ID it is the server's own secret. */
    constructor(text: string);
    /** The key that was given, else that of `NEXUS3_SIGNING_KEY`, if there is one. */
    static find(given: string | undefined, environment?: NodeJS.ProcessEnv): SigningKey | undefined;
    /** The request with its signature, for one time that it is sent: a server takes a signature once. */
    signed(request: Signable): string;
    /** That of a request in canonical form. */
    signature(form: string): string;
}
/** A request without `auth`, in canonical form. */
export declare class Signable {
    #private;
    /** `text` is the request as JSON. */
    constructor(text: string);
    /** `auth` comes first in the order of the members. */
    with(auth: object): string;
}
/**
 * The one form of a value, that of RFC 8785: no blanks, members by the UTF-16 of their names, which is how JavaScript
 * sorts, and numbers and strings as JavaScript writes them.
 */
export declare function canonical(value: unknown): string;
