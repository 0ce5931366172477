//! Bytes that nobody meant to send: damaged messages on the HTTP body path, packed and plain. Whatever comes, the answer
//! is JSON-RPC and the server goes on. The envelope and the configuration have targets of their own, beside their code.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};

use crate::harness::{Server, check};

/// Bodies to try. Each costs a round trip; a longer hunt sets `NEXUS3_FUZZ_CASES`.
const CASES: usize = 600;

#[tokio::test]
async fn any_body_is_answered_and_the_server_goes_on() {
    let server = Server::start().await;
    let cases = std::env::var("NEXUS3_FUZZ_CASES").ok().and_then(|text| text.parse().ok());
    let mut runner = TestRunner::new(Config::default());
    let mut connection = server.http().await;
    for _ in 0..cases.unwrap_or(CASES) {
        let (body, packed) = body().new_tree(&mut runner).unwrap().current();
        let mut request = server.post(body.clone());
        if packed {
            request = request.header("content-encoding", "gzip");
        }
        connection.write(&request.bytes()).await;
        let Some(response) = connection.response_or_close().await else {
            panic!("no answer to {body:?}")
        };
        match response.status {
            202 => assert!(response.body.is_empty(), "{body:?}"),
            200 | 400 | 413 => drop(check::message(str::from_utf8(&response.body).unwrap())),
            status => panic!("{status} to {body:?}"),
        }
        if response.header("connection") == Some("close") {
            connection = server.http().await;
        }
    }
    server.wire().ok("rpc.version", serde_json::json!({})).await;
}

/// A good message with some damage, perhaps packed, perhaps with the package damaged as well.
fn body() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let seeds = [
        r#"{"jsonrpc":"2.0","method":"get_context","id":1}"#,
        r#"{"jsonrpc":"2.0","method":"get_messages","params":{"offset":0,"limit":2000},"id":"a\"\u00e4"}"#,
        r#"{"jsonrpc":"2.0","method":"cancel","params":{"agent_id":"main","request_id":-1},"id":99999999999999999999}"#,
        r#"[{"jsonrpc":"2.0","method":"list_agents","id":null},{"jsonrpc":"2.0","method":"nope","id":2},7]"#,
        r#"{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"a","allowed_write_paths":["/x"]},"id":3}"#,
    ];
    let plain = (prop::sample::select(seeds.to_vec()), damage())
        .prop_map(|(seed, damage)| apply(seed.as_bytes().to_vec(), &damage));
    (plain, any::<bool>(), damage(), any::<bool>()).prop_map(|(plain, packed, damage, hurt)| {
        if !packed {
            return (plain, false);
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&plain).unwrap();
        let package = encoder.finish().unwrap();
        (if hurt { apply(package, &damage) } else { package }, true)
    })
}

type Damage = Vec<(prop::sample::Index, u8, u8)>;

fn damage() -> impl Strategy<Value = Damage> {
    prop::collection::vec((any::<prop::sample::Index>(), 0..6_u8, any::<u8>()), 0..4)
}

fn apply(mut bytes: Vec<u8>, damage: &Damage) -> Vec<u8> {
    for (at, kind, value) in damage {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match kind {
            0 => bytes[at] = *value,
            1 => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, b"{}[]\",:\\"[usize::from(*value) % 8]),
            4 => {
                bytes.splice(at..at, std::iter::repeat_n(b'[', usize::from(*value))).for_each(drop)
            }
            _ => {
                let copy = bytes[at..].to_vec();
                bytes.extend(copy);
            }
        }
    }
    bytes
}
