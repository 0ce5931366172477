//! What others do to the door: a store that is locked or full, models that flood, break off and talk nonsense, bodies that
//! are too much.

use std::process::Stdio;

use nexus_testkit::{Gate, Reply};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::super::host::is_busy;
use super::responses::{RESPONSES, asking};
use super::{CHAT, Streamed, chat, get, json_of, post, refused, said, saying};
use crate::harness::{Server, Setup, eventually, within};
use crate::support::create;

/// The same at both paths.
fn both(model: &str, text: &str) -> [(&'static str, Value); 2] {
    [(CHAT, saying(model, text)), (RESPONSES, asking(model, text))]
}

/// Another process that has locked the database, until it is dropped.
struct Lock(Child);

impl Lock {
    async fn take(server: &Server) -> Self {
        const SCRIPT: &str = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
sys.stdin.read()";
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).arg(server.world.home().join("nexus3.db"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(within("the lock", lines.next_line()).await.unwrap().unwrap(), "locked");
        Self(child)
    }

    async fn release(mut self) {
        drop(self.0.stdin.take());
        within("the other process to end", self.0.wait()).await.unwrap();
    }
}

#[tokio::test]
async fn a_database_that_is_locked_for_a_while_costs_nothing_but_time() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    for (path, body) in both("agent:a", "x") {
        let before = server.model().request_count();
        let lock = Lock::take(&server).await;
        let gate = Gate::new();
        server.model().push(Reply::text("Patience.").held_by(&gate));
        let request = post(&server, path, &body);
        let (response, ()) = tokio::join!(server.ask(request), async {
            let asked = async || server.model().request_count() == before + 1;
            eventually("the model to be asked", asked).await;
            // Models need no store.
            server.model().push(Reply::text("Meanwhile."));
            assert_eq!(said(&chat(&server, &saying("scripted", "x")).await), "Meanwhile.");
            gate.release();
            lock.release().await;
        });
        assert_eq!(response.status, 200, "{:?}", json_of(&response));
        assert!(json_of(&response).to_string().contains("Patience."));
    }
}

/// What cannot be written is refused, whole or streamed, and nothing of it is half there.
#[tokio::test]
async fn a_database_that_stays_locked_is_named() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let lock = Lock::take(&server).await;
    for (path, body) in both("agent:a", "x") {
        let (status, error) = refused(&server, post(&server, path, &body)).await;
        assert!(status >= 500, "{status}: {error}");
    }
    lock.release().await;
    server.model().set_script(|_| Reply::text("Again."));
    assert_eq!(said(&chat(&server, &saying("agent:a", "y")).await), "Again.");
    let messages = server.wire().ok("get_messages", json!({"agent_id": "a"})).await;
    assert_eq!(messages["total"], 2, "{messages}");
}

fn file_bytes_max(server: &Server, bytes: Option<u64>) {
    let pid = Pid::from_raw(server.status("Pid:").parse().unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

#[tokio::test]
async fn a_full_disk_is_named_and_forgotten_when_there_is_room() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().set_script(|_| Reply::text("Hello."));
    file_bytes_max(&server, Some(4_096));
    for (path, body) in both("agent:a", "x") {
        let response = server.ask(post(&server, path, &body)).await;
        let error = json_of(&response)["error"].clone();
        assert!(response.status >= 500, "{error}");
        assert!(error["message"].as_str().unwrap().contains("cannot be written"), "{error}");
        let mut body = body;
        body["stream"] = json!(true);
        assert!(refused(&server, post(&server, path, &body)).await.0 >= 500);
    }
    // A model without an agent writes nothing.
    assert_eq!(said(&chat(&server, &saying("scripted", "x")).await), "Hello.");
    file_bytes_max(&server, None);
    for (path, body) in both("agent:a", "x") {
        assert_eq!(server.ask(post(&server, path, &body)).await.status, 200);
    }
    let messages = server.wire().ok("get_messages", json!({"agent_id": "a"})).await;
    assert_eq!(messages["total"], 4, "{messages}");
}

/// Each ends with an error, in the stream or by its status, and the server goes on.
#[tokio::test]
async fn a_hostile_model_ends_its_own_answer_and_nothing_else() {
    fn flood() -> Reply {
        Reply::chunks(std::iter::repeat_n("x".repeat(64 * 1024), 80))
    }
    hostile("scripted", "a flood", flood).await;
    hostile("scripted", "a wide event", || Reply::text("x".repeat(5 << 20))).await;
    hostile("scripted", "a cut", || Reply::text("So far").then_cut()).await;
    hostile("scripted", "garbage", || Reply::text("So far").then_garbage()).await;
    hostile("scripted", "nonsense", || Reply::raw(["<html>", "no", "</html>"])).await;
    // A turn asks again by itself, with pauses.
    hostile("agent:a", "a flood", flood).await;
}

/// However often it is asked.
async fn hostile(model: &str, name: &str, reply: fn() -> Reply) {
    let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    create(&server.wire(), "a").await;
    server.model().set_script(move |_| reply());
    for (path, body) in both(model, "x") {
        let response = server.ask(post(&server, path, &body)).await;
        assert!(response.status >= 500, "{name} of {model} at {path}: {}", response.status);
        assert!(json_of(&response)["error"]["message"].is_string(), "{name}");
        let mut body = body;
        body["stream"] = json!(true);
        let response = server.ask(post(&server, path, &body)).await;
        let text = String::from_utf8(response.body.clone()).unwrap();
        let last = text.trim_end().rsplit("\n\n").next().unwrap();
        let says_so = last.contains("\"error\":{") || last.contains("response.failed");
        assert!(says_so, "{name} of {model} at {path}: {last:.300}");
    }
    // A provider that failed so often is left alone for a while; everything else goes on.
    assert_eq!(server.ask(get(&server, "/v1/models")).await.status, 200, "{name}");
    eventually("the turns to end", async || !is_busy(&server, "a").await).await;
}

/// A call whose arguments never end, or are none, is not handed on as if it were one.
#[tokio::test]
async fn broken_calls_are_not_handed_on() {
    let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    let tool = json!({"name": "f", "parameters": {"type": "object"}});
    let mut chat = saying("scripted", "x");
    chat["tools"] = json!([{"type": "function", "function": tool}]);
    let mut ask = asking("scripted", "x");
    ask["tools"] = json!([{"type": "function", "name": "f", "parameters": {"type": "object"}}]);
    for (path, body) in [(CHAT, chat), (RESPONSES, ask)] {
        for stream in [false, true] {
            server.model().push(Reply::text("So").then_cut_call("f", "{\"a\": [1, "));
            let mut body = body.clone();
            body["stream"] = stream.into();
            let response = server.ask(post(&server, path, &body)).await;
            let text = String::from_utf8(response.body.clone()).unwrap();
            assert!(!text.contains("{\\\"a\\\": [1"), "{text}");
            assert!(!text.contains("\"tool_calls\":["), "{text}");
            assert!(!text.contains("\"type\":\"function_call\""), "{text}");
        }
    }
}

/// A model that never ends is left when its reader is.
#[tokio::test]
async fn a_call_that_never_ends_is_left_with_its_reader() {
    let server = Server::start().await;
    for (count, (path, body)) in both("scripted", "x").into_iter().enumerate() {
        server.model().push(Reply::text("So").then_hang());
        let mut body = body;
        body["stream"] = json!(true);
        let mut stream = Streamed::open(&server, post(&server, path, &body)).await;
        while !stream.next().await.unwrap().contains("So") {}
        drop(stream);
        eventually("the model to be left", async || server.model().disconnects() == count + 1)
            .await;
    }
}

#[tokio::test]
async fn too_much_is_refused_before_it_is_read() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let url = format!("data:image/png;base64,{}", "A".repeat(20 << 20));
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    let chat = json!({"model": "agent:a", "messages": [{"role": "user", "content": [image]}]});
    let image = json!({"type": "input_image", "image_url": url});
    let ask = asking("agent:a", json!([{"role": "user", "content": [image]}]));
    for (path, body) in [(CHAT, chat), (RESPONSES, ask)] {
        assert_eq!(refused(&server, post(&server, path, &body)).await.0, 413);
    }
    for model in ["agent:a", "scripted"] {
        let mut body = saying(model, "x");
        body["n"] = json!(100);
        let (status, error) = refused(&server, post(&server, CHAT, &body)).await;
        assert_eq!((status, &error["param"]), (400, &json!("n")), "{error}");
    }
    assert_eq!(server.model().request_count(), 0);
}
