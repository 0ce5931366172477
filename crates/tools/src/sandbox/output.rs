//! What a command prints, however much it is: the start and the end are kept.

use std::fmt;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::live::Printed;

/// Kept of the start and of the end of each stream: together about what a model can make use of in one answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const TAIL_BYTES_MAX: usize = 16 * 1024;

/// As large as a pipe, so that one read empties it.
const READ_BYTES: usize = 64 * 1024;

/// The start and the end of a stream.
#[derive(Debug, Default)]
pub struct Kept {
    head: Vec<u8>,
    tail: Vec<u8>,
    bytes: u64,
}

impl Kept {
    /// Takes in everything `stream` has, and lets others see it.
    pub(super) async fn fill(&mut self, mut stream: impl AsyncRead + Unpin, mut seen: Printed<'_>) {
        let mut buffer = vec![0; READ_BYTES];
        // A stream that fails has ended.
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            self.take(&buffer[..read]);
            seen.put(&buffer[..read]);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let to_head = bytes.len().min(HEAD_BYTES_MAX - self.head.len());
        self.head.extend_from_slice(&bytes[..to_head]);
        let rest = &bytes[to_head..];
        self.tail.extend_from_slice(&rest[rest.len().saturating_sub(TAIL_BYTES_MAX)..]);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES_MAX);
        self.tail.drain(..excess);
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = self.bytes - (self.head.len() + self.tail.len()) as u64;
        if cut == 0 {
            // A character may lie across the two.
            let whole = [self.head.as_slice(), &self.tail].concat();
            return f.write_str(&String::from_utf8_lossy(&whole));
        }
        let (head, tail) =
            (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&self.tail));
        write!(f, "{head}\n[… {cut} bytes cut …]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(chunks: &[&[u8]]) -> Kept {
        let mut kept = Kept::default();
        chunks.iter().for_each(|chunk| kept.take(chunk));
        kept
    }

    #[test]
    fn just_what_is_kept_is_whole_and_one_byte_more_is_cut() {
        let most = vec![b'a'; HEAD_BYTES_MAX + TAIL_BYTES_MAX];
        assert_eq!(kept(&[&most]).to_string(), "a".repeat(most.len()));
        let cut = kept(&[&most, b"b"]).to_string();
        assert!(cut.contains("\n[… 1 bytes cut …]\n") && cut.ends_with("ab"), "{}", cut.len());
    }

    #[test]
    fn what_is_no_text_is_shown_as_far_as_it_is() {
        assert_eq!(kept(&[b"a\xffb"]).to_string(), "a\u{fffd}b");
        let split = "é".as_bytes();
        let before = vec![b'a'; HEAD_BYTES_MAX - 1];
        assert!(kept(&[&before, &split[..1], &split[1..]]).to_string().ends_with("aé"));
    }

    proptest! {
        #[test]
        fn how_it_arrives_makes_no_difference(chunks in prop::collection::vec(0usize..20_000, 0..8)) {
            let all: Vec<u8> = (0..chunks.iter().sum::<usize>()).map(|at| b'a' + (at % 23) as u8).collect();
            let mut rest = all.as_slice();
            let mut pieces = Kept::default();
            for bytes in chunks {
                let (piece, after) = rest.split_at(bytes);
                pieces.take(piece);
                rest = after;
            }
            prop_assert_eq!(pieces.to_string(), kept(&[&all]).to_string());
        }
    }
}
