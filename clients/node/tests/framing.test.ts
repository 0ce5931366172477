/** What arrives is cut into messages wherever the chunks end. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Events, Frames, Lines, TooLong } from "../src/framing.js";
import { MESSAGE_BYTES_MAX } from "../src/rpc.js";

type Reader = { push(chunk: Buffer): void };
type Make = (onMessage: (bytes: Buffer) => void) => Reader;

/** Feeds `bytes` in two pieces for every place between them, and once byte by byte. */
function check(make: Make, bytes: Buffer, expected: string[]) {
  const splits = Array.from({ length: bytes.length + 1 }, (_, at) => [bytes.subarray(0, at), bytes.subarray(at)]);
  for (const pieces of [...splits, Array.from(bytes, (byte) => Buffer.of(byte))]) {
    const seen: string[] = [];
    const reader = make((message) => seen.push(message.toString()));
    for (const piece of pieces) reader.push(piece);
    assert.deepEqual(seen, expected);
  }
}

function frame(text: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(Buffer.byteLength(text));
  return Buffer.concat([length, Buffer.from(text)]);
}

test("lines", () => {
  check((on) => new Lines(on), Buffer.from('{"a":"ż🦀"}\n\n{"b":1}\nrest'), ['{"a":"ż🦀"}', "", '{"b":1}']);
});

test("frames", () => {
  check((on) => new Frames(100, on), Buffer.concat(["ż🦀", "", "second"].map(frame)), ["ż🦀", "", "second"]);
});

test("events", () => {
  const text = ': comment\ndata: {"a":"ż🦀"}\n\nevent: x\ndata:one\ndata: two\n\ndata: three\r\n\r\n\ndata: unfinished';
  check((on) => new Events(on), Buffer.from(text), ['{"a":"ż🦀"}', "one\ntwo", "three"]);
});

test("a frame over the limit is refused by its length", () => {
  const seen: Buffer[] = [];
  const frames = new Frames(6, (bytes) => seen.push(bytes));
  frames.push(frame("sixsix"));
  assert.equal(seen.length, 1);
  assert.throws(() => frames.push(frame("seven..").subarray(0, 4)), new TooLong(6));
});

test("a line over the limit is refused", () => {
  const half = Buffer.alloc(MESSAGE_BYTES_MAX / 2, "a");
  const seen: number[] = [];
  const lines = new Lines((line) => seen.push(line.length));
  for (const chunk of [half, half, Buffer.from("\n")]) lines.push(chunk);
  assert.deepEqual(seen, [MESSAGE_BYTES_MAX]);
  lines.push(half);
  lines.push(half);
  assert.throws(() => lines.push(Buffer.from("a")), /it is over 67108864 bytes/);
});
