//! The end of what a server prints beside the protocol.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::lock;

/// Kept of it: a long stack trace.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Of what is said with a failure: its last lines.
const SAID_BYTES_MAX: usize = 2_000;

#[derive(Default)]
pub struct Tail(Mutex<VecDeque<u8>>);

impl Tail {
    /// Takes in everything `stream` has.
    pub async fn fill(&self, mut stream: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 16 << 10];
        // A stream that fails has ended.
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            self.take(&buffer[..read]);
        }
    }

    fn take(&self, bytes: &[u8]) {
        let mut kept = lock(&self.0);
        let bytes = &bytes[bytes.len().saturating_sub(KEPT_BYTES_MAX)..];
        let excess = (kept.len() + bytes.len()).saturating_sub(KEPT_BYTES_MAX);
        kept.drain(..excess);
        kept.extend(bytes);
    }

    /// What is kept, made harmless to look at.
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = lock(&self.0).iter().copied().collect();
        String::from_utf8_lossy(&bytes).chars().filter(|c| crate::clean::is_seen(*c)).collect()
    }

    /// Its last lines.
    pub fn last_lines(&self) -> String {
        let text = self.text();
        let from = text.ceil_char_boundary(text.len().saturating_sub(SAID_BYTES_MAX));
        text[from..].trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let tail = Tail::default();
        tail.take(&vec![b'a'; KEPT_BYTES_MAX]);
        assert_eq!(tail.text().len(), KEPT_BYTES_MAX);
        tail.take(b"bc");
        assert_eq!(tail.text().len(), KEPT_BYTES_MAX);
        assert!(tail.text().ends_with("abc"));
        tail.take(&vec![b'd'; 3 * KEPT_BYTES_MAX]);
        assert_eq!(tail.text(), "d".repeat(KEPT_BYTES_MAX));
        assert_eq!(tail.last_lines().len(), SAID_BYTES_MAX);
    }
}
