//! Bytes that are nearly right: those that get past the first check.

use fastrand::Rng;

/// What readers stumble over.
const WORDS: [&[u8]; 16] = [
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\"",
    b"\\",
    b"{",
    b"[",
    b"}",
    b"]",
    b"\n",
    b"\r\n\r\n",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"null",
    b"@@ -1,9 +1,9 @@\n",
];

/// Most places that are damaged.
const WOUNDS_MAX: usize = 4;

/// A damaged copy of a seed.
pub fn damaged(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..rng.usize(1..=WOUNDS_MAX) {
        wound(&mut bytes, rng);
    }
    bytes
}

fn wound(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let from = rng.usize(..=bytes.len());
    let to = from + rng.usize(..=(bytes.len() - from).min(32));
    match rng.u8(..6) {
        0 => drop(bytes.drain(from..to)),
        1 => bytes.truncate(from),
        2 => {
            let word = WORDS[rng.usize(..WORDS.len())];
            bytes.splice(from..to, word.iter().copied());
        }
        3 => {
            // The same again, up to many times: what is quadratic shows.
            let piece = bytes[from..to].repeat(1 << rng.u32(..10));
            bytes.splice(from..from, piece);
        }
        4 => bytes[from..to].iter_mut().for_each(|byte| *byte ^= 1 << rng.u8(..8)),
        _ => bytes[from..to].iter_mut().for_each(|byte| *byte = rng.u8(..)),
    }
}
