//! Lines on standard input and output, for a parent process that may be careless, slow or dead.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::time::Duration;

use nexus_testkit::Reply;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Framed, Setup, Stdio, within};

const VERSION: &str = r#"{"jsonrpc":"2.0","method":"rpc.version","id":1}"#;
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// A call padded to this many bytes.
fn padded(bytes: usize) -> Vec<u8> {
    let mut line = VERSION.as_bytes().to_vec();
    line.resize(bytes, b' ');
    line
}

async fn start() -> Stdio {
    Setup::new().stdio().await
}

#[tokio::test]
async fn standard_output_holds_messages_and_nothing_else() {
    // With everything that could make it talkative: a warning, the full log, an agent that is made, a failing model.
    let mut stdio = Setup::new().arg("-v").arg("--raw-log").stdio().await;
    stdio.model().push(Reply::status(400));
    for line in [VERSION, "nope", "", "   ", r#"{"jsonrpc":"2.0","method":"nope"}"#] {
        stdio.send(line).await;
    }
    stdio.send(request(2, "send", json!({"content": "x"}))).await;
    // Every line of the rest is checked as it is read.
    let mut messages = [stdio.message().await, stdio.message().await, stdio.message().await];
    let (rest, status) = stdio.finish().await;
    assert_eq!((rest.len(), status.code()), (0, Some(0)));
    messages.sort_by_key(|message| message["id"].to_string());
    let of = |n: usize| (messages[n]["id"].clone(), messages[n]["error"]["code"].as_i64());
    assert_eq!(of(0), (json!(1), None));
    assert_eq!(of(1), (json!(2), Some(-32603)));
    assert_eq!(of(2), (Value::Null, Some(-32700)));
    let log = stdio.process.log().complete().await;
    assert!(log.contains("RPC Request"), "the log is on standard error: {log}");
}

#[tokio::test]
async fn lines_may_end_as_they_do_elsewhere_and_the_last_need_not_end() {
    let mut stdio = start().await;
    stdio.write(format!("{VERSION}\r\n").as_bytes()).await;
    assert_eq!(stdio.message().await["id"], 1);
    for piece in format!("{VERSION}\n").as_bytes().chunks(5) {
        stdio.write(piece).await;
    }
    assert_eq!(stdio.message().await["id"], 1);
    stdio.write(VERSION.as_bytes()).await;
    let (rest, status) = stdio.finish().await;
    assert_eq!((rest.len(), &rest[0]["id"], status.code()), (1, &json!(1), Some(0)));
}

/// As shells, editors and those who try it by hand give them to a program.
#[tokio::test]
async fn standard_input_and_output_are_whatever_they_are() {
    let world = Setup::new().world().await;
    std::fs::write(world.work().join("in"), format!("{VERSION}\n")).unwrap();
    for script in [
        r#""$0" --stdio < in > out"#,
        r#"cat in | "$0" --stdio | cat > out"#,
        // Its writer is gone before it begins.
        r#"cat in | (sleep 0.3; "$0" --stdio) > out"#,
        r#"mkfifo f; cat in > f & "$0" --stdio < f > out"#,
    ] {
        let status = within("the end", world.shell(script).status()).await.unwrap();
        assert!(status.success(), "{script}");
        let said = std::fs::read_to_string(world.work().join("out")).unwrap();
        let answer: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(answer["id"], 1, "{script}");
    }
}

/// Others may have the same pipe, and would be told that there is nothing yet.
#[tokio::test]
async fn a_pipe_that_is_shared_blocks_as_before() {
    let world = Setup::new().world().await;
    let (ours, mut to) = std::io::pipe().unwrap();
    let (mut from, theirs) = std::io::pipe().unwrap();
    let mut command = world.command(["--stdio"]);
    command.stdin(ours.try_clone().unwrap()).stdout(theirs.try_clone().unwrap());
    let mut process = command.kill_on_drop(true).spawn().unwrap();
    to.write_all(format!("{VERSION}\n").as_bytes()).unwrap();
    let answered = tokio::task::spawn_blocking(move || from.read(&mut [0; 64]).unwrap());
    assert!(within("an answer", answered).await.unwrap() > 0);
    let blocks = |fd: &dyn AsFd| !fcntl_getfl(fd.as_fd()).unwrap().contains(OFlags::NONBLOCK);
    assert!(blocks(&ours) && blocks(&theirs));
    drop(to);
    assert!(within("the end", process.wait()).await.unwrap().success());
}

#[tokio::test]
async fn a_cancel_reaches_a_send_that_runs() {
    let mut stdio = start().await;
    stdio.model().push(Reply::text("so far").then_hang());
    stdio.send(request(1, "send", json!({"content": "x", "request_id": "r"}))).await;
    stdio.model().wait_for_requests(1).await;
    stdio.send(request(2, "get_context", json!({}))).await;
    assert_eq!(stdio.message().await["id"], 2, "a read does not wait for the turn");
    stdio.send(request(3, "cancel", json!({"request_id": "r"}))).await;
    let mut ids =
        [stdio.message().await, stdio.message().await].map(|answer| answer["id"].as_u64());
    ids.sort();
    assert_eq!(ids, [Some(1), Some(3)]);
}

#[tokio::test]
async fn a_line_of_one_mebibyte_is_taken_and_a_longer_one_is_discarded() {
    let mut stdio = start().await;
    stdio.send(padded(LINE_BYTES_MAX)).await;
    assert_eq!(stdio.message().await["id"], 1);
    for bytes in [LINE_BYTES_MAX + 1, 3 * LINE_BYTES_MAX] {
        stdio.send(padded(bytes)).await;
        let error = json!({"code": -32600, "message": "message is larger than 1048576 bytes"});
        assert_eq!(stdio.message().await, json!({"jsonrpc": "2.0", "id": null, "error": error}));
        stdio.send(VERSION).await;
        assert_eq!(stdio.message().await["result"]["name"], "nexus3");
    }
    // One that never ends is answered when the input does.
    stdio.write(&padded(2 * LINE_BYTES_MAX)).await;
    let (rest, status) = stdio.finish().await;
    assert_eq!((rest.len(), &rest[0]["error"]["code"]), (1, &json!(-32600)));
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn an_answer_has_its_limit() {
    let mut stdio = Setup::new().server(json!({"answer_bytes_max": 5000})).stdio().await;
    let of = |bytes: usize| request("x".repeat(bytes), "rpc.version", json!({}));
    stdio.send(of(0)).await;
    let plain = stdio.line().await.unwrap().len();
    stdio.send(of(5000 - plain)).await;
    assert_eq!(stdio.line().await.unwrap().len(), 5000);
    stdio.send(of(5001 - plain)).await;
    let error = json!({"code": -32603, "message": "The answer is larger than 5000 bytes"});
    assert_eq!(stdio.message().await["error"], error);
}

#[tokio::test]
async fn the_end_of_input_cancels_what_runs_and_answers_it() {
    let mut stdio = start().await;
    stdio.model().push(Reply::text("so far").then_hang());
    stdio.send(request("plain", "send", json!({"content": "x"}))).await;
    stdio.model().wait_for_requests(1).await;
    let queued = json!({"content": "never begins", "stream": true});
    stdio.send(request("streamed", "send", queued)).await;
    assert_eq!(stdio.message().await["method"], "stream_start");
    let (rest, status) = stdio.finish().await;
    assert_eq!(status.code(), Some(0));
    let answer = |id: &str| rest.iter().find(|message| message["id"] == id).unwrap();
    assert_eq!(answer("plain")["result"]["cancelled"], true);
    assert_eq!(answer("streamed")["result"]["cancelled"], true);
    let end = rest.iter().position(|message| message["method"] == "stream_end").unwrap();
    assert!(rest[end..].contains(answer("streamed")), "{rest:?}");
    stdio.model().wait_for_disconnects(1).await;
}

#[tokio::test]
async fn it_ends_with_its_parent() {
    let mut stdio = start().await;
    stdio.model().push(Reply::hang());
    stdio.send(request(1, "send", json!({"content": "x"}))).await;
    stdio.model().wait_for_requests(1).await;
    (stdio.input, stdio.output) = (None, None);
    assert_eq!(stdio.process.exit().await.code(), Some(0));
    stdio.model().wait_for_disconnects(1).await;

    // One that only reads no more is gone as well, as soon as there is something to tell it.
    let mut stdio = start().await;
    stdio.output = None;
    stdio.send(VERSION).await;
    assert_eq!(stdio.process.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_signal_stops_it_and_what_runs_is_answered() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut stdio = Setup::new().server(json!({"shutdown_grace": 0.1})).stdio().await;
        stdio.model().push(Reply::hang());
        stdio.send(request(1, "send", json!({"content": "x"}))).await;
        stdio.model().wait_for_requests(1).await;
        stdio.process.signal(signal);
        assert_eq!(stdio.message().await["result"]["cancelled"], true);
        assert_eq!(stdio.line().await, None);
        assert_eq!(stdio.process.exit().await.code(), Some(0));
    }
}

/// Asks until nobody takes more: every queue between the two is full.
async fn ask_without_reading(stdio: &mut Stdio) {
    let line = format!("{VERSION}\n").repeat(20);
    let taken = async |stdio: &mut Stdio| {
        tokio::time::timeout(Duration::from_millis(300), stdio.write(line.as_bytes())).await.is_ok()
    };
    within("the pipes to be full", async { while taken(stdio).await {} }).await;
}

#[tokio::test]
async fn a_parent_that_does_not_read_hangs_nobody_else() {
    let mut stdio = Setup::new().socket("other.sock").stdio().await;
    stdio.send(VERSION).await;
    stdio.message().await;
    ask_without_reading(&mut stdio).await;
    let mut other = Framed::connect(&stdio.world.path("other.sock")).await;
    other.send(request(1, "send", json!({"content": "x"})).as_bytes()).await;
    assert_eq!(other.message().await["result"]["content"], "Hello from the scripted model.");
    // Nor does it keep the program from ending.
    stdio.process.signal(Signal::TERM);
    assert_eq!(stdio.process.exit().await.code(), Some(0));
    assert!(!stdio.world.path("other.sock").exists());
}

#[tokio::test]
async fn a_parent_that_never_read_can_still_die() {
    let mut stdio = start().await;
    ask_without_reading(&mut stdio).await;
    (stdio.input, stdio.output) = (None, None);
    assert_eq!(stdio.process.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_parent_that_reads_late_gets_everything() {
    const CALLS: usize = 5000;
    let mut stdio = start().await;
    let mut input = stdio.input.take().unwrap();
    let asking = tokio::spawn(async move {
        for id in 0..CALLS {
            let line = request(id, "rpc.version", json!({})) + "\n";
            tokio::io::AsyncWriteExt::write_all(&mut input, line.as_bytes()).await.unwrap();
        }
    });
    let mut seen = vec![false; CALLS];
    for _ in 0..CALLS {
        let id = stdio.message().await["id"].as_u64().unwrap() as usize;
        assert!(!std::mem::replace(&mut seen[id], true), "{id} was answered twice");
    }
    asking.await.unwrap();
    assert_eq!(stdio.finish().await.1.code(), Some(0));
}

#[tokio::test]
async fn a_socket_is_opened_only_when_asked_for() {
    let mut stdio = start().await;
    stdio.send(VERSION).await;
    stdio.message().await;
    assert!(!stdio.world.path("run").exists());
    let listening = stdio.process.log().lines().iter().any(|line| line["message"] == "listening");
    assert!(!listening, "no port either");

    let mut stdio = Setup::new().socket("s.sock").stdio().await;
    stdio.send(request(1, "create_agent", json!({"agent_id": "a"}))).await;
    stdio.message().await;
    let mut other = Framed::connect(&stdio.world.path("s.sock")).await;
    other.send(request(1, "get_context", json!({"agent_id": "a"})).as_bytes()).await;
    assert_eq!(other.message().await["result"]["message_count"], 0, "the same agents");
    assert_eq!(stdio.finish().await.1.code(), Some(0));
    assert!(!stdio.world.path("s.sock").exists());
}
