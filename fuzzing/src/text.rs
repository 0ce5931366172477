//! Readers that are functions: a message's envelope, an event stream's events, a context token, what a terminal shows.

use jiff::Timestamp;
use nexus_protocol::envelope::{self, Incoming};
use nexus_server::context_token::ContextTokens;
use nexus_sse::Decoder;
use nexus_terminal::shown::{Shown, Sieve};

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

/// Signed with [`SECRET`], for Ann and her family.
pub const TOKENS: &[&[u8]] = &[
    b"eyJhbGciOiJIUzI1NiIsInR5cCI6IkFTSF9DT05URVhUIiwidmVyIjoxfQ.eyJ2ZXIiOjEsImF1ZCI6Im5leHVzMyIsImlhdCI6MTc2MDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwLCJzdWIiOiJhbm4iLCJjaGF0X2lkIjoiZmFtaWx5In0.ufjDCnFYfRuXJDa-uNAm-bbcStrcQUBHmKghvwYsC6A",
    b"eyJhbGciOiJIUzI1NiIsInR5cCI6IkFTSF9DT05URVhUIiwidmVyIjoxfQ.eyJzdWIiOiJhbm4iLCJjaGF0X2lkIjoiZmFtaWx5IiwiZXhwIjo0MTAyNDQ0ODAwfQ.BGKv_A1plJ7ku6PKMxHouiJm0-8m-9cjehI_Uqa1dSM",
];

const SECRET: &str = "6e657875733320697320667a7a6564";

/// A token that is taken says what was signed.
pub fn token(bytes: &[u8]) {
    let Some(tokens) = ContextTokens::new(SECRET) else { panic!("the secret is none") };
    if let Ok(claims) = tokens.verify(&String::from_utf8_lossy(bytes), Timestamp::now()) {
        let who = (claims.identity.user.as_deref(), claims.identity.chat.as_deref());
        assert_eq!(who, (Some("ann"), Some("family")));
    }
}

pub const SHOWN: &[&[u8]] = &[
    b"plain\r\n\x1b[31mred\x1b[0m \x1b]0;title\x07 \xc2\x9b2J \x08\x7f back",
    "e\u{301}\u{302}\u{200b}\u{202e}turned \u{1f468}\u{200d}\u{1f469} 1\u{fe0f}\u{20e3}".as_bytes(),
    b"\x1bP+q544e\x1b\\ \x1b[6n \x1b[?1049h \x1b[9999;9999H \r over",
];

/// Nothing that is shown steers, and how a text is cut changes nothing about it.
pub fn shown(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let whole = Shown::foreign(&text);
    let steering = |char: &char| char.is_control() && !['\n', '\t'].contains(char);
    assert_eq!(whole.as_str().chars().find(steering), None);
    let (mut sieve, mut pieces) = (Sieve::default(), String::new());
    let mut bytes = [0; 4];
    for char in text.chars() {
        pieces.push_str(&sieve.push(char.encode_utf8(&mut bytes)));
    }
    pieces.push_str(&sieve.finish());
    assert_eq!(pieces, whole.as_str());
}
