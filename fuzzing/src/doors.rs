//! The other doors, whose visitors send what they like: hosts of MCP, clients of OpenAI, WebSockets, editors. Each gets an
//! answer in the words of its door, or its connection ends.

use nexus_core::Requester;
use nexus_core::store::Door;
use nexus_doors::acp::{self, Options};
use nexus_server::DirectAgentApi;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::house::{HOUSE, HUNG, TOKEN};
use crate::must;
use crate::wire::{calm, check};

pub const HOSTS: &[&[u8]] = &[
    br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"f","version":"1"}}}"#,
    br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"nexus_list","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
    br#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":"x","_meta":{"progressToken":1}}}"#,
];

/// A message, once as a host of each era sends it.
pub fn mcp(bytes: &[u8]) {
    let eras = [
        "",
        "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: nexus_list\r\n",
    ];
    for era in eras {
        let (status, _) = post("/mcp", era, bytes);
        assert!((200..=503).contains(&status), "{status}");
    }
}

pub const CHATS: &[&[u8]] = &[
    br#"{"model":"m","messages":[{"role":"system","content":"short"},{"role":"user","content":[{"type":"text","text":"hi"}]}],"n":2,"stop":["x"],"logprobs":true,"top_logprobs":2}"#,
    br#"{"model":"new:sandboxed","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"response_format":{"type":"json_object"}}"#,
    br#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"function_call_output","call_id":"c","output":"x"}],"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"reasoning":{"effort":"low"}}"#,
];

/// A body, at each address that takes one. What is refused says why, as OpenAI's clients expect it.
pub fn openai(bytes: &[u8]) {
    let _alone = HOUSE.alone_with_model();
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/embeddings"] {
        let (status, answer) = post(path, "", bytes);
        if status >= 400 {
            let refused: Value = must(serde_json::from_slice(&answer));
            let why = refused["error"]["message"].as_str().unwrap_or_default();
            assert!(!why.trim().is_empty(), "{path}: {status} {refused}");
        }
    }
}

/// The status and the body of the answer to a request.
fn post(path: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let body = calm(body);
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{headers}\
         Content-Length: {}\r\n\r\n",
        HOUSE.http,
        body.len()
    );
    let said = exchange(&[head.as_bytes(), &body].concat(), false);
    let (head, rest) = split(&said);
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer: {head}")), rest.to_vec())
}

/// All that is said on a connection to who sends this and nothing else, and then hangs up or waits for the end.
fn exchange(bytes: &[u8], hangs_up: bool) -> Vec<u8> {
    HOUSE.runtime.block_on(async {
        let mut peer = must(TcpStream::connect(HOUSE.http).await);
        // A server that has seen enough may close before all is sent.
        let _ = peer.write_all(bytes).await;
        if hangs_up {
            let _ = peer.shutdown().await;
        }
        let mut said = Vec::new();
        let _ = must(timeout(HUNG, peer.read_to_end(&mut said)).await);
        said
    })
}

fn split(said: &[u8]) -> (String, &[u8]) {
    let end = said.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let (head, rest) = said.split_at(end.map_or(said.len(), |at| at + 4));
    (String::from_utf8_lossy(head).into_owned(), rest)
}

/// Frames of a client, masked with zeros.
pub const SOCKETS: &[&[u8]] = &[
    b"\x81\xaf\0\0\0\0{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"rpc.version\"}",
    b"\x01\x93\0\0\0\0{\"jsonrpc\":\"2.0\",\"i\x80\x9c\0\0\0\0d\":1,\"method\":\"list_agents\"}",
    b"\x89\x82\0\0\0\0hi\x82\x81\0\0\0\0x\x88\x82\0\0\0\0\x03\xe8",
];

/// What comes after the handshake. Every text that is answered is JSON-RPC.
pub fn websocket(bytes: &[u8]) {
    let head = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        HOUSE.http
    );
    let said = exchange(&[head.as_bytes(), &calm(bytes)].concat(), true);
    // A peer that still sends when the server has closed may be told nothing any more.
    if said.is_empty() {
        return;
    }
    let (head, mut rest) = split(&said);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    while let [first, length, ..] = *rest {
        let (from, length) = match (length, rest) {
            (126, [_, _, a, b, ..]) => (4, usize::from(u16::from_be_bytes([*a, *b]))),
            // Longer than 64 KiB: what follows is not looked at.
            (127, _) => break,
            (length, _) => (2, usize::from(length)),
        };
        let Some(payload) = rest.get(from..from + length) else { break };
        if first == 0x81 {
            check(payload);
        }
        rest = &rest[from + length..];
    }
}

pub const EDITORS: &[&[u8]] = &[
    b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1,\"clientCapabilities\":{\"fs\":{\"readTextFile\":true}}}}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":{\"cwd\":\"/\",\"mcpServers\":[]}}\n",
    b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/prompt\",\"params\":{\"sessionId\":\"acp-x\",\"prompt\":[{\"type\":\"text\",\"text\":\"hi\"},{\"type\":\"resource_link\",\"uri\":\"file:///a\",\"name\":\"a\"}]}}\n{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{\"sessionId\":\"acp-x\"}}\n",
    b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"session/list\",\"params\":{\"cwd\":\"/\",\"cursor\":\"x\"}}\n{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"allow\"}}}\n",
];

/// Lines of an editor, which then hangs up. What it is told is JSON-RPC too.
pub fn acp(bytes: &[u8]) {
    let _alone = HOUSE.alone_with_model();
    let sent = std::io::Cursor::new(calm(bytes));
    HOUSE.runtime.block_on(async {
        let (output, mut told) = tokio::io::duplex(1 << 20);
        let api = DirectAgentApi::new(HOUSE.wired.dispatcher.clone(), Requester::Administrator);
        let api = api.through(Door::Acp);
        let options =
            Options { preset: "sandboxed".into(), model: None, unused: std::sync::Arc::new(()) };
        let served = acp::serve(api, options, CancellationToken::new(), sent, output);
        let mut said = Vec::new();
        let both = async { tokio::join!(served, told.read_to_end(&mut said)) };
        let (served, told) = must(timeout(HUNG, both).await);
        must(served);
        must(told);
        let lines = said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for line in lines {
            let message: Value = must(serde_json::from_slice(line));
            assert_eq!(message["jsonrpc"], "2.0", "{message}");
        }
    });
}
