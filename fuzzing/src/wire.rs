//! Peers that send what they like: every answer is JSON-RPC, and the connection ends when the peer does.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::house::{HOUSE, HUNG};
use crate::must;

pub const FRAMES: &[&[u8]] = &[
    b"\0\0\0\x2f{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"rpc.version\"}",
    b"\0\0\0\x2f{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list_agents\"}\0\0\0\x02[]",
    b"\xff\xff\xff\xff",
];

/// Calls with a signature, of a key that nobody has: whatever becomes of one, it is an answer.
pub const SIGNED: &[&[u8]] = &[
    br#"{"jsonrpc":"2.0","id":1,"method":"list_agents","params":{"limit":5},"auth":{"timestamp":1763500000,"signature":"vKBzE0rFZKJpoaB+vmB7iUqvEJpQHo6r0ZZXuJ0Yh2Y=","key_id":"worker","nonce":"n1"}}"#,
    br#"[{"jsonrpc":"2.0","id":"x","method":"rpc.version","auth":{"timestamp":18446744073709551615,"signature":"","key_id":null}},{"jsonrpc":"2.0","id":2,"method":"rpc.version","params":{"a":1.0e2,"a":"\u00e9\ud83d\ude00"},"auth":{"timestamp":0,"signature":"AA=="}}]"#,
];

const ANSWER_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Lines, as on standard input.
pub fn lines(bytes: &[u8]) {
    let sent = std::io::Cursor::new(calm(bytes));
    HOUSE.runtime.block_on(async {
        let (output, mut answers) = tokio::io::duplex(1 << 20);
        let dispatcher = HOUSE.wired.dispatcher.for_connection();
        let stop = CancellationToken::new();
        let parent =
            nexus_server::transport::stdio::serve(dispatcher, sent, output, ANSWER_BYTES_MAX, stop);
        let mut said = Vec::new();
        must(must(timeout(HUNG, answers.read_to_end(&mut said)).await));
        must(must(timeout(HUNG, parent.answered).await));
        said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(check);
    });
}

/// Frames, as on the socket.
pub fn frames(bytes: &[u8]) {
    HOUSE.runtime.block_on(async {
        let mut peer = must(UnixStream::connect(&HOUSE.socket).await);
        // A server that has seen enough may close before all is sent.
        let _ = peer.write_all(&calm(bytes)).await;
        let _ = peer.shutdown().await;
        let mut said = Vec::new();
        let _ = must(timeout(HUNG, peer.read_to_end(&mut said)).await);
        let mut rest = said.as_slice();
        while let Some((head, body)) = rest.split_first_chunk::<4>() {
            let Some((message, after)) = body.split_at_checked(u32::from_be_bytes(*head) as usize)
            else {
                break;
            };
            check(message);
            rest = after;
        }
    });
}

/// The same bytes, but none that stop the server: that it obeys is another test's.
pub fn calm(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    while let Some(at) = bytes.windows(8).position(|word| word == b"shutdown") {
        bytes[at] = b'S';
    }
    bytes
}

pub fn check(message: &[u8]) {
    let answer: Value = must(serde_json::from_slice(message));
    let one = |answer: &Value| {
        assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
        let (result, error) = (answer.get("result"), answer.get("error"));
        assert!(result.is_some() != error.is_some() || answer.get("method").is_some(), "{answer}");
    };
    match &answer {
        Value::Array(answers) => answers.iter().for_each(one),
        answer => one(answer),
    }
}
