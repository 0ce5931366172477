//! Server-sent events, as far as our server speaks them: the data of each event, whole.

use bytes::BytesMut;
use nexus_protocol::CallError;

/// Largest event. The last one is the whole answer, so this is as much as an answer may be.
const EVENT_BYTES_MAX: usize = crate::http::ANSWER_BYTES_MAX;

/// Cuts a byte stream into events.
#[derive(Default)]
pub(crate) struct Events {
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end, so that a long line is searched once.
    searched: usize,
    data: Vec<u8>,
}

impl Events {
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() + self.data.len() > EVENT_BYTES_MAX {
            return Err(CallError::Answer(format!("an event is over {EVENT_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    /// The data of the next event that has come in full. Comments and other fields are passed over.
    pub fn next(&mut self) -> Option<Vec<u8>> {
        while let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
            let line = self.buffer.split_to(self.searched + end + 1);
            self.searched = 0;
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() && !self.data.is_empty() {
                return Some(std::mem::take(&mut self.data));
            }
            if let Some(value) = line.strip_prefix(b"data:") {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            }
        }
        self.searched = self.buffer.len();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of `text`, whether it comes at once or byte by byte.
    fn check(text: &str, expected: &[&str]) {
        for piece_bytes in [1, text.len()] {
            let mut events = Events::default();
            let mut got = Vec::new();
            for piece in text.as_bytes().chunks(piece_bytes) {
                events.push(piece).unwrap();
                while let Some(data) = events.next() {
                    got.push(String::from_utf8(data).unwrap());
                }
            }
            assert_eq!(got, expected, "{text:?} by {piece_bytes}");
        }
    }

    #[test]
    fn events() {
        check("data: a\n\ndata:b\n\n", &["a", "b"]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\ndata: b\n\n", &["a\nb"]);
        check(": ping\n\nevent: message\nid: 1\ndata: a\n\n\n", &["a"]);
        check("data: unfinished\n", &[]);
    }

    #[test]
    fn an_event_has_a_largest_size() {
        let mut events = Events::default();
        events.push(&vec![b'x'; EVENT_BYTES_MAX]).unwrap();
        assert!(events.push(b"x").is_err());
    }
}
