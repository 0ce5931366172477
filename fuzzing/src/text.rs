//! Readers that are functions: a message's envelope, an event stream's events.

use nexus_protocol::envelope::{self, Incoming};
use nexus_sse::Decoder;

pub const MESSAGES: &[&[u8]] = &[
    br#"{"jsonrpc":"2.0","id":1,"method":"get_context","params":{"agent_id":"a"}}"#,
    br#"[{"jsonrpc":"2.0","id":"x","method":"rpc.version"},{"jsonrpc":"2.0","method":"cancel","params":{"request_id":7}}]"#,
    br#"{"jsonrpc":"2.0","id":2,"method":"create_agent","params":{"agent_id":"b","preset":"trusted","cwd":"/"}}"#,
    br#"{"jsonrpc":"2.0","id":3,"method":"list_agents","params":{"limit":10,"cursor":"a"}}"#,
    br#"{"jsonrpc":"2.0","id":4,"method":"get_messages","params":{"agent_id":"a","limit":5,"offset":0}}"#,
];

/// A message is a request, some requests or an error; an id comes back to the letter.
pub fn envelope(bytes: &[u8]) {
    let requests = match envelope::parse(bytes) {
        Ok(Incoming::Single(request)) => vec![Ok(request)],
        Ok(Incoming::Batch(requests)) => requests,
        Err(_) => return,
    };
    let text = String::from_utf8_lossy(bytes);
    for request in requests.into_iter().flatten() {
        if let Some(id) = request.id {
            assert!(text.contains(id.as_json()), "{} of {text}", id.as_json());
        }
    }
}

/// How a stream is cut changes nothing about its events.
pub fn sse(bytes: &[u8]) {
    let at_once = events(bytes.chunks(bytes.len().max(1)));
    assert_eq!(events(bytes.chunks(1)), at_once);
    assert_eq!(events(bytes.chunks(7)), at_once);
}

const EVENT_BYTES_MAX: usize = 4096;

/// The events of a stream, and whether one was too long.
fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, bool) {
    let (mut decoder, mut found) = (Decoder::new(EVENT_BYTES_MAX), Vec::new());
    for piece in pieces.map(Some).chain([None]) {
        match piece {
            Some(piece) => decoder.push(piece),
            None => decoder.push_end(),
        }
        loop {
            match decoder.next_event() {
                Ok(Some(data)) => found.push(data.to_vec()),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}
