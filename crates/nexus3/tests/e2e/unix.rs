//! The framed socket: frames good and bad, and the life of its file.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Framed, Server, Setup, eventually};

const VERSION: &str = r#"{"jsonrpc":"2.0","method":"rpc.version","id":1}"#;
const FRAME_BYTES_MAX: usize = 10 * 1024 * 1024;

/// A call padded to this many bytes.
fn padded(bytes: usize) -> Vec<u8> {
    let mut message = VERSION.as_bytes().to_vec();
    message.resize(bytes, b' ');
    message
}

async fn answers(connection: &mut Framed) {
    connection.send(VERSION.as_bytes()).await;
    assert_eq!(connection.message().await["result"]["name"], "nexus3");
}

/// The connection is told that its message was too large, and closed.
async fn refused_and_closed(connection: &mut Framed) {
    let error = json!({"code": -32600, "message": "message is larger than 10485760 bytes"});
    let expected = json!({"jsonrpc": "2.0", "id": null, "error": error});
    assert_eq!(connection.message().await, expected);
    assert_eq!(connection.frame().await, None);
}

#[tokio::test]
async fn a_frame_of_ten_mebibytes_is_taken_and_a_byte_more_is_not() {
    let server = Server::start().await;
    let mut connection = server.unix().await;
    connection.send(&padded(FRAME_BYTES_MAX)).await;
    assert_eq!(connection.message().await["result"]["name"], "nexus3");

    // Whoever sends all of it before reading gets the answer too.
    connection.send(&padded(FRAME_BYTES_MAX + 1)).await;
    refused_and_closed(&mut connection).await;
    answers(&mut server.unix().await).await;
}

#[tokio::test]
async fn a_length_that_is_only_announced_costs_no_memory() {
    let server = Server::start().await;
    answers(&mut server.unix().await).await;
    let before = server.memory_peak_bytes();
    let announced =
        [&[0xff; 4][..], &[0x00, 0xa0, 0x00, 0x01], b"GET / HTTP/1.1\r\n\r\n", &[0x80, 0, 0, 0]];
    for bytes in announced {
        let mut connection = server.unix().await;
        connection.write(bytes).await;
        refused_and_closed(&mut connection).await;
    }
    // Within the limit it is waited for, but nothing is set aside.
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut connection = server.unix().await;
        connection.write(&(FRAME_BYTES_MAX as u32).to_be_bytes()).await;
        waiting.push(connection);
    }
    answers(&mut server.unix().await).await;
    let grown = server.memory_peak_bytes() - before;
    assert!(grown < 16 * 1024 * 1024, "{grown} bytes");
}

#[tokio::test]
async fn what_is_no_json_is_answered_and_the_connection_goes_on() {
    let server = Server::start().await;
    let mut connection = server.unix().await;
    for garbage in [&b""[..], b" ", b"nope", b"\xff\xfe", &[0; 100]] {
        connection.send(garbage).await;
        let answer = connection.message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)));
        answers(&mut connection).await;
    }
}

#[tokio::test]
async fn silence_costs_only_that_connection() {
    let server = Setup::new().server(json!({"socket_idle_timeout": 0.5})).start().await;
    server.model().push(Reply::hang());
    let mut busy = server.unix().await;
    busy.send(request(1, "send", json!({"content": "x", "request_id": "r"})).as_bytes()).await;
    server.model().wait_for_requests(1).await;

    let mut silent = Vec::new();
    for bytes in [&b""[..], &[0], &[0, 0], &[0, 0, 0, 9], &[0, 0, 0, 9, b'{']] {
        let mut connection = server.unix().await;
        connection.write(bytes).await;
        silent.push(connection);
    }
    answers(&mut server.unix().await).await;
    for mut connection in silent {
        assert_eq!(connection.frame().await, None);
    }
    // A peer that waits for its own call is not silent.
    server.wire().ok("cancel", json!({"request_id": "r"})).await;
    assert_eq!(busy.message().await["result"]["cancelled"], true);
}

#[tokio::test]
async fn a_frame_may_come_in_pieces_and_several_in_one() {
    let server = Server::start().await;
    let mut connection = server.unix().await;
    let frame =
        |message: &str| [&(message.len() as u32).to_be_bytes(), message.as_bytes()].concat();
    for piece in frame(VERSION).chunks(3) {
        connection.write(piece).await;
    }
    assert_eq!(connection.message().await["id"], 1);

    server.model().set_default(Reply::echo());
    let mut all = Vec::new();
    for id in 0..30 {
        // Turns, writes and reads take different times.
        let (method, params) = match id % 3 {
            0 => ("send", json!({"content": "x"})),
            1 => ("create_agent", json!({"agent_id": format!("a{id}")})),
            _ => ("rpc.version", json!({})),
        };
        all.extend(frame(&request(id, method, params)));
    }
    connection.write(&all).await;
    for id in 0..30 {
        let answer = connection.message().await;
        assert_eq!((&answer["id"], answer.get("error")), (&json!(id), None));
    }
}

#[tokio::test]
async fn header_and_body_leave_in_one_write() {
    let server = Server::start().await;
    let mut connection = server.unix().await;
    // Two writes would now and then be seen as two by a reader that is quick.
    for _ in 0..300 {
        connection.send(VERSION.as_bytes()).await;
        let bytes = connection.read_once(64 * 1024).await;
        let length = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert_eq!(bytes.len(), 4 + length);
    }
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let server = Setup::new().server(json!({"max_connections": 4})).start().await;
    let mut kept = Vec::new();
    for _ in 0..4 {
        let mut connection = server.unix().await;
        answers(&mut connection).await;
        kept.push(connection);
    }
    let mut refused = server.unix().await;
    let error = refused.message().await["error"].take();
    assert_eq!(error["code"], -32001);
    assert!(error["data"]["retry_after_ms"].is_u64());
    assert_eq!(refused.frame().await, None);

    // The others go on, and a place that is given back is taken again.
    answers(&mut kept[0]).await;
    kept.pop();
    eventually("the place to be free", async || {
        let mut connection = server.unix().await;
        connection.send(VERSION.as_bytes()).await;
        connection.message().await.get("result").is_some()
    })
    .await;
}

#[tokio::test]
async fn many_connections_are_served_at_once() {
    /// As many as are sent to a provider at a time.
    const CALLS: usize = 16;
    let server = Server::start().await;
    let gate = nexus_testkit::Gate::new();
    server.model().set_default(Reply::text("done").held_by(&gate));
    let mut connections = Vec::new();
    for n in 0..100 {
        let mut connection = server.unix().await;
        if n < CALLS {
            let create = request(n, "create_agent", json!({"agent_id": format!("a{n}")}));
            connection.send(create.as_bytes()).await;
            connection.message().await;
            let send = request(n, "send", json!({"agent_id": format!("a{n}"), "content": "x"}));
            connection.send(send.as_bytes()).await;
        } else {
            connection.send(request(n, "rpc.version", json!({})).as_bytes()).await;
        }
        connections.push(connection);
    }
    server.model().wait_for_requests(CALLS).await;
    for (n, connection) in connections.iter_mut().enumerate().skip(CALLS) {
        assert_eq!(connection.message().await["id"], n);
    }
    gate.release();
    for (n, connection) in connections.iter_mut().enumerate().take(CALLS) {
        assert_eq!(connection.message().await["id"], n);
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_replaced_by_an_error() {
    let server = Server::start().await;
    // On the wire each of these characters is six bytes.
    let text = "\u{1}".repeat(FRAME_BYTES_MAX / 60 + 1);
    server.model().push(Reply::chunks(vec![text; 10]));
    let mut connection = server.unix().await;
    for (id, method) in [("first", "send"), ("second", "get_messages")] {
        let params = if method == "send" { json!({"content": "x"}) } else { json!({"offset": 1}) };
        connection.send(request(id, method, params).as_bytes()).await;
        let answer = connection.message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32603)));
        assert_eq!(answer["error"]["message"], "The answer is larger than 10485760 bytes");
    }
    answers(&mut connection).await;
    // Nothing but the answers is lost.
    connection.send(request(3, "get_context", json!({})).as_bytes()).await;
    assert_eq!(connection.message().await["result"]["message_count"], 2);
}

#[tokio::test]
async fn a_socket_that_cannot_be_had_gives_its_reason_once() {
    let setup = Setup::new();
    let world = setup.world().await;
    let file = world.path("file");
    fs::write(&file, "").unwrap();
    let output = setup.socket(file.join("rpc.sock")).fails_in(&world).await;
    assert_eq!(output.code, Some(1));
    assert_eq!(output.stderr.matches("os error").count(), 1, "{}", output.stderr);
    assert!(output.stderr.contains("no socket can be had at"), "{}", output.stderr);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_socket_and_the_directory_made_for_it_are_private() {
    let server = Server::start().await;
    let path = server.world.socket();
    assert_eq!(server.socket.as_ref(), Some(&path));
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    // What was there before keeps its mode, and nothing else is left in it.
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    let world = Setup::new().world().await;
    fs::create_dir(world.path("run")).unwrap();
    fs::set_permissions(world.path("run"), fs::Permissions::from_mode(0o755)).unwrap();
    let _server = Setup::new().start_in(&world).await;
    assert_eq!((mode(&world.socket()), mode(&world.path("run"))), (0o600, 0o755));
}

#[tokio::test]
async fn the_environment_or_the_configuration_may_say_where_it_is() {
    let world = Setup::new().world().await;
    let path = world.path("by-env.sock");
    let server = Setup::new().unsaid_socket().env("ASH_RPC_SOCKET", &path).start_in(&world).await;
    assert_eq!(server.socket.as_ref(), Some(&path));
    answers(&mut server.unix().await).await;
    let configured = Setup::new().server(json!({"socket": "~/configured.sock"})).unsaid_socket();
    let server = configured.start().await;
    assert_eq!(server.socket, Some(server.world.path("configured.sock")));
    let server = Setup::new().no_socket().start().await;
    assert_eq!(server.socket, None);
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on_is_replaced() {
    let world = Setup::new().world().await;
    fs::create_dir(world.path("run")).unwrap();
    drop(UnixListener::bind(world.socket()).unwrap());
    assert!(world.socket().exists(), "left behind");
    let server = Setup::new().start_in(&world).await;
    answers(&mut server.unix().await).await;
    // As after a crash.
    let server = server.restart().await;
    answers(&mut server.unix().await).await;
}

#[tokio::test]
async fn a_socket_that_somebody_listens_on_is_not_touched() {
    let server = Server::start().await;
    let output = Setup::new().fails_in(&server.world).await;
    assert_eq!(output.code, Some(1));
    let path = server.world.socket();
    let expected = format!("another server is listening on {}", path.display());
    assert!(output.stderr.contains(&expected), "{}", output.stderr);
    answers(&mut server.unix().await).await;
    // The one that gave up left nothing of its own behind.
    let tokens = fs::read_dir(server.world.home()).unwrap();
    let tokens =
        tokens.filter(|file| file.as_ref().unwrap().path().extension() == Some("token".as_ref()));
    assert_eq!(tokens.count(), 1);
}

#[tokio::test]
async fn what_is_no_socket_is_not_touched() {
    let world = Setup::new().world().await;
    fs::create_dir(world.path("run")).unwrap();
    fs::write(world.socket(), "mine").unwrap();
    let target = world.path("target");
    std::os::unix::fs::symlink(&target, world.path("link")).unwrap();
    fs::create_dir(world.path("directory")).unwrap();
    for path in [world.socket(), world.path("link"), world.path("directory")] {
        let output = Setup::new().socket(&path).fails_in(&world).await;
        assert_eq!(output.code, Some(1), "{}", path.display());
        let expected = format!("{} exists and is not a socket", path.display());
        assert!(output.stderr.contains(&expected), "{}", output.stderr);
    }
    assert_eq!(fs::read_to_string(world.socket()).unwrap(), "mine");
    assert!(fs::symlink_metadata(world.path("link")).unwrap().is_symlink() && !target.exists());
    assert!(world.path("directory").is_dir());
}

#[tokio::test]
async fn a_socket_that_took_our_place_is_left_there() {
    let mut server = Server::start().await;
    let path = server.world.socket();
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    assert_eq!(server.terminate().await.code(), Some(0));
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
}
