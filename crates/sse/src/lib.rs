//! Server-sent events: bytes in any pieces in, the data of whole events out. Models answer in them, and so does our own
//! server; neither reader may reach the other's crate, so their parser has one of its own.

use std::mem;

/// Splits a byte stream into events. Names, ids and comments are passed over: whoever is read here says what an event is
/// inside its data.
pub struct Decoder {
    /// Longest event taken: one that never ends must not fill the memory.
    event_bytes_max: usize,
    /// Bytes from the start of the first unfinished line.
    buffer: Vec<u8>,
    /// Start of the next line to look at.
    line_start: usize,
    /// Up to here `buffer` holds no line end; kept so that an event in many pieces is searched once.
    searched: usize,
    /// The last line ended in `\r`; a `\n` right after it belongs to that line end.
    after_cr: bool,
    data: Vec<u8>,
    has_data: bool,
    /// `data` was handed out and is stale.
    taken: bool,
}

/// An event is longer than the decoder takes.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// What stands before the data in a line of it.
const LINE_HEAD: &[u8] = b"data: ";

impl Decoder {
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            buffer: Vec::new(),
            line_start: 0,
            searched: 0,
            after_cr: false,
            data: Vec::new(),
            has_data: false,
            taken: false,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        // The rest of an unfinished line moves to the front; on a line that goes on this moves nothing.
        self.buffer.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The body has ended: what stands at its end is an event even without the empty line after it.
    pub fn push_end(&mut self) {
        self.push(b"\n\n");
    }

    /// The data of the next complete event, `None` when more bytes are needed.
    pub fn next_event(&mut self) -> Result<Option<&[u8]>, TooLong> {
        if mem::take(&mut self.taken) {
            self.data.clear();
        }
        while let Some(line_end) = self.next_line_end() {
            let line = &self.buffer[mem::replace(&mut self.line_start, self.searched)..line_end];
            // However the bytes came: half a line of this length is refused, so the whole is too.
            if line.len() > self.event_bytes_max + LINE_HEAD.len() {
                return Err(TooLong);
            }
            if line.is_empty() {
                if mem::take(&mut self.has_data) {
                    self.taken = true;
                    return Ok(Some(&self.data));
                }
            } else if let Some(value) = data_of(line) {
                if mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            if self.data.len() > self.event_bytes_max {
                return Err(TooLong);
            }
        }
        let rest = self.buffer.len() - self.line_start;
        if rest > self.event_bytes_max + LINE_HEAD.len() { Err(TooLong) } else { Ok(None) }
    }

    /// Finds the end of the line at `line_start` and moves `searched` past it.
    fn next_line_end(&mut self) -> Option<usize> {
        if self.after_cr && self.line_start < self.buffer.len() {
            self.after_cr = false;
            if self.buffer[self.line_start] == b'\n' {
                self.line_start += 1;
                self.searched = self.searched.max(self.line_start);
            }
        }
        let found =
            self.buffer[self.searched..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(found) = found else {
            self.searched = self.buffer.len();
            return None;
        };
        let line_end = self.searched + found;
        self.after_cr = self.buffer[line_end] == b'\r';
        self.searched = line_end + 1;
        Some(line_end)
    }
}

/// The value of a `data` line; one space after the colon is not part of it.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"data")?;
    match rest.split_first() {
        None => Some(rest),
        Some((b':', value)) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENT_BYTES_MAX: usize = 1000;

    fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut decoder = Decoder::new(EVENT_BYTES_MAX);
        let mut events = Vec::new();
        let mut take = |decoder: &mut Decoder| {
            while let Some(data) = decoder.next_event().unwrap() {
                events.push(String::from_utf8_lossy(data).into_owned());
            }
        };
        for piece in pieces {
            decoder.push(piece);
            take(&mut decoder);
        }
        decoder.push_end();
        take(&mut decoder);
        events
    }

    #[track_caller]
    fn check(input: &str, expected: &[&str]) {
        assert_eq!(events([input.as_bytes()]), expected, "whole: {input:?}");
        assert_eq!(events(input.as_bytes().chunks(1)), expected, "byte by byte: {input:?}");
    }

    #[test]
    fn events_are_found() {
        check("", &[]);
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check("data:a\n\n", &["a"]);
        check("data:  a \n\n", &[" a "]);
        check("event: x\nid: 7\ndata: a\nretry: 3\n\n", &["a"]);
        check(": a comment\n\n: another\ndata: a\n\n", &["a"]);
        check("data: a\ndata: b\n\n", &["a\nb"]);
        check("data\n\n", &[""]);
        check("data: a\ndata\n\n", &["a\n"]);
        check("dataset: a\n\n", &[]);
        check("\n\n\ndata: a\n\n\n\n", &["a"]);
    }

    #[test]
    fn every_line_end_is_one() {
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("data: a\r\ndata: b\n\r\ndata: c\r\r\n", &["a\nb", "c"]);
    }

    #[test]
    fn the_last_event_needs_no_empty_line() {
        check("data: a\n\ndata: [DONE]", &["a", "[DONE]"]);
        check("data: a\n", &["a"]);
    }

    #[test]
    fn an_event_at_the_limit_passes_and_one_over_it_does_not() {
        let line = |bytes: usize| [b"data:".as_slice(), &vec![b'x'; bytes], b"\n\n"].concat();
        let mut decoder = Decoder::new(EVENT_BYTES_MAX);
        decoder.push(&line(EVENT_BYTES_MAX));
        assert_eq!(decoder.next_event().unwrap().map(<[u8]>::len), Some(EVENT_BYTES_MAX));
        decoder.push(&line(EVENT_BYTES_MAX + 1));
        assert_eq!(decoder.next_event(), Err(TooLong));
        let line_bytes_max = EVENT_BYTES_MAX + LINE_HEAD.len();
        for end in ["", "\n"] {
            let mut decoder = Decoder::new(EVENT_BYTES_MAX);
            decoder.push(&vec![b'x'; line_bytes_max]);
            decoder.push(end.as_bytes());
            assert_eq!(decoder.next_event(), Ok(None));
            let mut decoder = Decoder::new(EVENT_BYTES_MAX);
            decoder.push(&vec![b'x'; line_bytes_max + 1]);
            decoder.push(end.as_bytes());
            assert_eq!(decoder.next_event(), Err(TooLong), "a line that ends with {end:?}");
        }
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_matter(
            lines in proptest::collection::vec("(data: ?[a-zé\\{\\}]{0,5}|:[a-z]{0,3}|event: [a-z]{1,3}|)(\n|\r\n|\r)", 0..20),
            cuts in proptest::collection::vec(1_usize..9, 1..40),
        ) {
            let input = lines.concat();
            let mut rest = input.as_bytes();
            let mut pieces = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            prop_assert_eq!(events(pieces), events([input.as_bytes()]));
        }
    }
}
