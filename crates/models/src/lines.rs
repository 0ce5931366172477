//! A body that is one JSON value a line.

/// A line is longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Cuts a body into lines, which come in any pieces.
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// Where what was not given out yet begins.
    start: usize,
    /// Up to where no end of a line was found.
    searched: usize,
    bytes_max: usize,
    ended: bool,
}

impl Lines {
    pub fn new(bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, searched: 0, bytes_max, ended: false }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Nothing follows: what has no end ends here.
    pub fn push_end(&mut self) {
        self.ended = true;
    }

    /// The next line that says something.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, TooLong> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            let (end, next) = match found {
                Some(at) => (self.searched + at, self.searched + at + 1),
                None if self.ended && self.start < self.buffer.len() => {
                    (self.buffer.len(), self.buffer.len())
                }
                None => {
                    self.searched = self.buffer.len();
                    let waiting = self.buffer.len() - self.start;
                    return if waiting > self.bytes_max { Err(TooLong) } else { Ok(None) };
                }
            };
            let start = std::mem::replace(&mut self.start, next);
            self.searched = next;
            if end - start > self.bytes_max {
                return Err(TooLong);
            }
            if !self.buffer[start..end].trim_ascii().is_empty() {
                return Ok(Some(self.buffer[start..end].trim_ascii()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `text` when it comes in pieces of so many bytes.
    fn lines(text: &str, piece: usize, bytes_max: usize) -> Result<Vec<String>, TooLong> {
        let mut lines = Lines::new(bytes_max);
        let mut found = Vec::new();
        let mut take = |lines: &mut Lines| {
            while let Some(line) = lines.next_line()? {
                found.push(String::from_utf8_lossy(line).into_owned());
            }
            Ok(())
        };
        for piece in text.as_bytes().chunks(piece) {
            lines.push(piece);
            take(&mut lines)?;
        }
        lines.push_end();
        take(&mut lines)?;
        Ok(found)
    }

    #[test]
    fn lines_are_found_however_they_come() {
        for piece in 1..12 {
            assert_eq!(lines("{1}\r\n\n{22}\n  \n{3}", piece, 9).unwrap(), ["{1}", "{22}", "{3}"]);
        }
        assert_eq!(lines("", 1, 9).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_line_just_under_and_just_over() {
        for piece in [1, 3, 100] {
            assert_eq!(lines("12345\n1", piece, 5).unwrap(), ["12345", "1"]);
            assert_eq!(lines("123456\n1", piece, 5), Err(TooLong));
            assert_eq!(lines("123456", piece, 5), Err(TooLong));
        }
    }
}
