//! What one request may cost, just under and just over.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::json;

use super::VERSION;
use crate::harness::wire::request;
use crate::harness::{HttpRequest, Server, Setup, check};

const MIB: usize = 1024 * 1024;

/// A call padded to this many bytes.
fn padded(bytes: usize) -> Vec<u8> {
    let mut body = VERSION.as_bytes().to_vec();
    body.resize(bytes, b' ');
    body
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn chunked(request: HttpRequest) -> HttpRequest {
    let mut body = Vec::new();
    for chunk in request.body_bytes().chunks(60_000) {
        body.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        body.extend(chunk);
        body.extend(b"\r\n");
    }
    body.extend(b"0\r\n\r\n");
    request.body(body).header("Transfer-Encoding", "chunked")
}

fn packed(request: HttpRequest) -> HttpRequest {
    let body = gzip(request.body_bytes());
    request.body(body).header("Content-Encoding", "gzip")
}

#[tokio::test]
async fn a_body_of_one_mebibyte_is_taken_and_a_byte_more_is_not() {
    let server = Server::start().await;
    for frame in [|request| request, chunked, packed, |request| chunked(packed(request))] {
        let under = server.ask(frame(server.post(padded(MIB)))).await;
        assert_eq!((under.status, &under.answer()["id"]), (200, &json!(1)));
        let over = server.ask(frame(server.post(padded(MIB + 1)))).await;
        assert_eq!(over.refusal(), (413, -32600));
    }
    // Announced is enough: nobody has to send it.
    let announced = server.post("").header("Content-Length", (1_u64 << 40).to_string());
    assert_eq!(server.ask(announced).await.refusal(), (413, -32600));
}

#[tokio::test]
async fn a_client_that_sends_everything_before_it_reads_gets_its_answer() {
    let server = Server::start().await;
    let large = || server.post(vec![b' '; 8 * MIB]);
    for (request, status) in [
        (large(), 413),
        (chunked(large()), 413),
        (large().bearer(None), 401),
        (large().path("/nothing"), 404),
        (large().verb("PUT"), 405),
    ] {
        let mut connection = server.http().await;
        connection.write(&request.bytes()).await;
        assert_eq!(connection.response().await.status, status);
    }
}

#[tokio::test]
async fn the_limit_of_the_body_can_be_set() {
    let server = Setup::new().server(json!({"body_bytes_max": 2000})).start().await;
    assert_eq!(server.ask(server.post(padded(2000))).await.status, 200);
    assert_eq!(server.ask(server.post(padded(2001))).await.refusal(), (413, -32600));
    assert_eq!(server.ask(packed(server.post(padded(2001)))).await.refusal(), (413, -32600));
}

#[tokio::test]
async fn a_bomb_is_never_unpacked() {
    let server = Server::start().await;
    let bomb = server.post(vec![b' '; 128 * MIB]);
    let bomb = packed(bomb);
    assert!(bomb.body_bytes().len() < MIB, "small on the wire");
    let before = server.memory_peak_bytes();
    assert_eq!(server.ask(bomb).await.refusal(), (413, -32600));
    let grown = server.memory_peak_bytes() - before;
    assert!(grown < 16 * MIB, "{grown} bytes for one request");
    assert_eq!(server.ask(server.post(VERSION)).await.status, 200);
}

#[tokio::test]
async fn other_codings_are_refused_and_broken_gzip_is_no_request() {
    let server = Server::start().await;
    for coding in ["br", "deflate", "zstd", "gzip, gzip", "x"] {
        let request = server.post(VERSION).header("Content-Encoding", coding);
        assert_eq!(server.ask(request).await.refusal(), (415, -32600), "{coding}");
    }
    for coding in ["identity", "Identity"] {
        let request = server.post(VERSION).header("Content-Encoding", coding);
        assert_eq!(server.ask(request).await.status, 200, "{coding}");
    }
    for coding in ["gzip", "GZIP", "x-gzip"] {
        let request = packed(server.post(VERSION)).header("Content-Encoding", coding);
        assert_eq!(server.ask(request).await.status, 200, "{coding}");
    }
    let whole = gzip(VERSION.as_bytes());
    for broken in [VERSION.as_bytes(), b"", &whole[..whole.len() - 1], &whole[..12]] {
        let request = server.post(broken).header("Content-Encoding", "gzip");
        assert_eq!(server.ask(request).await.refusal(), (400, -32600));
    }
}

#[tokio::test]
async fn answers_over_eight_kibibytes_are_packed_for_those_who_take_it() {
    let server = Server::start().await;
    // The id is echoed, so its length decides that of the answer.
    let plain = server.ask(server.post(request("", "rpc.version", json!({})))).await.body.len();
    let of =
        |bytes: usize| server.post(request("x".repeat(bytes - plain), "rpc.version", json!({})));

    for accept in ["gzip", "br, gzip;q=0.5", "GZIP"] {
        let under = server.ask(of(8192).header("Accept-Encoding", accept)).await;
        assert_eq!((under.header("content-encoding"), under.body.len()), (None, 8192), "{accept}");
        let over = server.ask(of(8193).header("Accept-Encoding", accept)).await;
        assert_eq!(over.header("content-encoding"), Some("gzip"), "{accept}");
        assert!(over.body.len() < 1000, "{accept}");
        let mut text = String::new();
        GzDecoder::new(&*over.body).read_to_string(&mut text).unwrap();
        assert_eq!(
            (text.len(), &check::message(&text)["result"]["name"]),
            (8193, &json!("nexus3"))
        );
    }
    for accept in ["", "identity", "br", "gzip;q=0", "gzip; q=0.0"] {
        let plain = server.ask(of(20_000).header("Accept-Encoding", accept)).await;
        assert_eq!(
            (plain.header("content-encoding"), plain.body.len()),
            (None, 20_000),
            "{accept}"
        );
    }
    assert_eq!(server.ask(of(20_000)).await.header("content-encoding"), None);
}

#[tokio::test]
async fn a_request_has_at_most_128_headers() {
    let server = Server::start().await;
    let of = |count: usize| {
        let mut request = server.post(VERSION);
        while request.header_count() < count {
            let name = format!("X-{}", request.header_count());
            request = request.header(&name, "x");
        }
        request
    };
    assert_eq!(server.ask(of(128)).await.status, 200);
    assert_eq!(server.ask(of(129)).await.refusal(), (431, -32600));
    assert_eq!(server.ask(of(1000)).await.refusal(), (431, -32600));
}

#[tokio::test]
async fn headers_have_at_most_32_kibibytes() {
    let server = Server::start().await;
    let of = |bytes: usize| {
        let request = server.post(VERSION).header("X-Pad", "");
        let missing = bytes - request.header_bytes();
        request.header("X-Pad", "x".repeat(missing))
    };
    assert_eq!(of(32 * 1024).header_bytes(), 32 * 1024);
    assert_eq!(server.ask(of(32 * 1024)).await.status, 200);
    assert_eq!(server.ask(of(32 * 1024 + 1)).await.refusal(), (431, -32600));
    assert_eq!(server.ask(of(MIB)).await.refusal(), (431, -32600));
}

#[tokio::test]
async fn an_answer_has_its_limit_and_so_has_a_batch_of_them() {
    let server = Setup::new().server(json!({"answer_bytes_max": 5000})).start().await;
    // The id is echoed, so its length decides that of the answer.
    let of = |bytes: usize| request("x".repeat(bytes), "rpc.version", json!({}));
    let plain = server.ask(server.post(of(0))).await.body.len();
    let under = server.ask(server.post(of(5000 - plain))).await;
    assert_eq!((under.body.len(), under.answer().get("error")), (5000, None));
    let over = server.ask(server.post(of(5001 - plain))).await;
    assert_eq!(over.refusal(), (200, -32603));
    assert_eq!(over.answer()["error"]["message"], "The answer is larger than 5000 bytes");

    // Two answers, two brackets and a comma.
    let batch = |second: usize| format!("[{},{}]", of(1000), of(second - plain));
    let whole = 5000 - (plain + 1000) - 3;
    let under = server.ask(server.post(batch(whole))).await;
    assert_eq!(under.body.len(), 5000);
    let over = server.ask(server.post(batch(whole + 1))).await.answer();
    let failed = over.as_array().unwrap().iter().filter_map(|answer| answer.get("error"));
    let messages: Vec<_> = failed.map(|error| error["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["The answers of the batch are together larger than 5000 bytes"]);
}
