//! Server-sent events: bytes in any pieces in, whole events out. Models answer in them, MCP servers do, and so does our
//! own server; no reader may reach another's crate, so their parser has one of its own.

use std::mem;

/// Splits a byte stream into events. Comments are passed over, and for most readers names and ids too: whoever is read
/// there says what an event is inside its data.
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
    /// The first line is still to come: a byte order mark may stand before it.
    at_start: bool,
    data: Vec<u8>,
    has_data: bool,
    head: Head,
    /// `data` and `head` were handed out and are stale.
    taken: bool,
}

/// What stands beside the data of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// What kind of event it is.
    pub event: Option<String>,
    /// From where to go on when the stream breaks off.
    pub id: Option<String>,
    /// After how many milliseconds to come back then.
    pub retry: Option<u64>,
}

/// An event with all that it says.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    pub head: &'a Head,
    /// Some have none: they say where the stream is.
    pub data: Option<&'a [u8]>,
}

/// An event is longer than the decoder takes.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// What stands before the data in a line of it.
const LINE_HEAD: &[u8] = b"data: ";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Decoder {
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            buffer: Vec::new(),
            line_start: 0,
            searched: 0,
            after_cr: false,
            at_start: true,
            data: Vec::new(),
            has_data: false,
            head: Head::default(),
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

    /// The data of the next complete event that has some, `None` when more bytes are needed.
    pub fn next_event(&mut self) -> Result<Option<&[u8]>, TooLong> {
        Ok(self.advance(false)?.then_some(&*self.data))
    }

    /// The next complete event, whatever it says, `None` when more bytes are needed.
    pub fn next_whole(&mut self) -> Result<Option<Event<'_>>, TooLong> {
        if !self.advance(true)? {
            return Ok(None);
        }
        Ok(Some(Event { head: &self.head, data: self.has_data.then_some(&*self.data) }))
    }

    /// Reads on to the end of the next event. Without `whole` only data makes one. False when more bytes are needed.
    fn advance(&mut self, whole: bool) -> Result<bool, TooLong> {
        if mem::take(&mut self.taken) {
            self.data.clear();
            self.has_data = false;
            self.head = Head::default();
        }
        while let Some(line_end) = self.next_line_end() {
            let line = &self.buffer[mem::replace(&mut self.line_start, self.searched)..line_end];
            // However the bytes came: half a line of this length is refused, so the whole is too.
            if line.len() > self.event_bytes_max + LINE_HEAD.len() {
                return Err(TooLong);
            }
            let line = match mem::take(&mut self.at_start) {
                true => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
                false => line,
            };
            if line.is_empty() {
                if self.has_data || self.head != Head::default() {
                    self.taken = true;
                    return Ok(true);
                }
            } else if let Some(value) = value_of(line, b"data") {
                if mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            } else if whole {
                self.head.read(line);
            }
            if self.data.len() > self.event_bytes_max {
                return Err(TooLong);
            }
        }
        let rest = self.buffer.len() - self.line_start;
        if rest > self.event_bytes_max + LINE_HEAD.len() { Err(TooLong) } else { Ok(false) }
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

impl Head {
    /// Takes what a line says that is no data; of two the last counts, and what is unknown or unfit nothing.
    fn read(&mut self, line: &[u8]) {
        let text = |value: &[u8]| Some(String::from_utf8_lossy(value).into_owned());
        if let Some(event) = value_of(line, b"event") {
            self.event = text(event);
        } else if let Some(id) = value_of(line, b"id").filter(|id| !id.contains(&0)) {
            self.id = text(id);
        } else if let Some(retry) = value_of(line, b"retry") {
            let digits = std::str::from_utf8(retry).unwrap_or_default().trim_ascii();
            self.retry = digits.parse().ok().or(self.retry);
        }
    }
}

/// The value of a line of this name; one space after the colon is not part of it.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
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
    fn what_stands_beside_the_data_is_heard_by_those_who_ask() {
        let input = "\u{feff}id: 1\nevent: message\ndata: a\ndata: b\nretry: 30\n\n: still here\n\nid: 2\nid: 3\0\n\n\
                     data\n\nretry: soon\nother: x\n\ndata: cut off\n";
        for pieces in [1, 7, input.len()] {
            let mut decoder = Decoder::new(EVENT_BYTES_MAX);
            let mut heard = Vec::new();
            for piece in input.as_bytes().chunks(pieces) {
                decoder.push(piece);
                while let Some(Event { head, data }) = decoder.next_whole().unwrap() {
                    heard.push((
                        head.clone(),
                        data.map(|it| String::from_utf8_lossy(it).into_owned()),
                    ));
                }
            }
            let text = |text: &str| Some(text.to_owned());
            let first = Head { event: text("message"), id: text("1"), retry: Some(30) };
            let second = Head { id: text("2"), ..Head::default() };
            let expected = [(first, text("a\nb")), (second, None), (Head::default(), text(""))];
            assert_eq!(heard, expected, "in pieces of {pieces}");
        }
        check("\u{feff}data: a\n\n", &["a"]);
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
