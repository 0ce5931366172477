/** Cutting what arrives into messages. A chunk may be half of one, or two. */
/** The message is longer than any that is read. */
export declare class TooLong extends Error {
    constructor(bytesMax: number);
}
/** Lines, without their ends. */
export declare class Lines {
    #private;
    constructor(onLine: (line: Buffer) => void);
    push(chunk: Buffer): void;
}
/** Frames: four bytes of length, the highest first, and that many bytes. */
export declare class Frames {
    #private;
    constructor(bytesMax: number, onFrame: (frame: Buffer) => void);
    push(chunk: Buffer): void;
}
/** Server-sent events: the data of each. Other fields and comments are passed over. */
export declare class Events {
    #private;
    constructor(onEvent: (data: Buffer) => void);
    push(chunk: Buffer): void;
}
