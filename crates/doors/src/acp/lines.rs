//! What comes in, line by line. One that is too long is told apart and passed over; the next is read as ever.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Longest message.
pub const LINE_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Whole(Vec<u8>),
    TooLong,
}

pub struct Lines<R> {
    input: BufReader<R>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(64 << 10, input) }
    }

    /// The next line, without its end; `None` after the last.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        let mut is_too_long = false;
        loop {
            let held = self.input.fill_buf().await?;
            if held.is_empty() {
                let has_some = is_too_long || !line.is_empty();
                return Ok(has_some.then(|| ended(line, is_too_long)));
            }
            let end = held.iter().position(|byte| *byte == b'\n');
            let piece = &held[..end.unwrap_or(held.len())];
            is_too_long |= line.len() + piece.len() > LINE_BYTES_MAX;
            match is_too_long {
                true => line = Vec::new(),
                false => line.extend_from_slice(piece),
            }
            let taken = piece.len() + usize::from(end.is_some());
            self.input.consume(taken);
            if end.is_some() {
                return Ok(Some(ended(line, is_too_long)));
            }
        }
    }
}

fn ended(line: Vec<u8>, is_too_long: bool) -> Line {
    match is_too_long {
        true => Line::TooLong,
        false => Line::Whole(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(input: &[u8], expected: &[Line]) {
        let mut lines = Lines::new(input);
        for line in expected {
            assert_eq!(lines.next().await.unwrap().as_ref(), Some(line));
        }
        assert_eq!(lines.next().await.unwrap(), None);
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }

    #[tokio::test]
    async fn lines_are_told_apart() {
        check(b"", &[]).await;
        check(b"a\n\nb\n", &[whole("a"), whole(""), whole("b")]).await;
        check(b"a\nhalf", &[whole("a"), whole("half")]).await;
    }

    #[tokio::test]
    async fn what_is_too_long_costs_itself_alone() {
        let most = "x".repeat(LINE_BYTES_MAX);
        check(format!("{most}\nb\n").as_bytes(), &[whole(&most), whole("b")]).await;
        check(format!("{most}x\nb\n").as_bytes(), &[Line::TooLong, whole("b")]).await;
        check(format!("{most}{most}").as_bytes(), &[Line::TooLong]).await;
    }
}
