//! The lines that the seeds print, sent as they stand with the token added: with `curl`, and by hand to the letter.

use std::process::Stdio;

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{HttpRequest, Server, Setup, within};
use crate::support::{history, names};

const HELLO: &str = r#"{"jsonrpc":"2.0","method":"send","params":{"content":"Hello"},"id":1}"#;
const HI: &str = r#"{"jsonrpc":"2.0","method":"send","params":{"content":"Hi"},"id":1}"#;
const ALICE: &str =
    r#"{"jsonrpc":"2.0","method":"send","params":{"content":"My name is Alice"},"id":1}"#;
const NAME: &str =
    r#"{"jsonrpc":"2.0","method":"send","params":{"content":"What is my name?"},"id":2}"#;
const SHUTDOWN: &str = r#"{"jsonrpc":"2.0","method":"shutdown","id":2}"#;
const TOKENS: &str = r#"{"jsonrpc":"2.0","method":"get_tokens","id":3}"#;
const UNKNOWN: &str = r#"{"jsonrpc":"2.0","method":"unknown","id":4}"#;
const INVALID: &str = r#"{"jsonrpc":"2.0","method":"send","params":{},"id":5}"#;
const ESSAY: &str = r#"{"jsonrpc":"2.0","method":"send","params":{"content":"Write a long essay about the history of computing","request_id":"my-req-1"},"id":1}"#;
const CANCEL: &str =
    r#"{"jsonrpc":"2.0","method":"cancel","params":{"request_id":"my-req-1"},"id":2}"#;
const CREATE: &str =
    r#"{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"worker"},"id":1}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","method":"list_agents","id":1}"#;

/// How a line reaches the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The program itself, on the name `localhost` as the seeds have it.
    Curl,
    /// The bytes that `curl -d` sends without a content type of its own.
    ByHand,
}

/// Whether `program` can be run here.
async fn has(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    version.status().await.is_ok_and(|status| status.success())
}

/// Both ways, where curl is on the machine. Without it nothing goes unproven: the other way sends the same bytes.
async fn ways() -> Vec<Way> {
    if has("curl").await {
        return vec![Way::ByHand, Way::Curl];
    }
    eprintln!("curl is not on this machine: its lines are sent by hand only");
    vec![Way::ByHand]
}

/// Posts `body` to `path` and returns the status and the answer. `json` adds the content type, as some lines do.
async fn post(way: Way, server: &Server, path: &str, json: bool, body: &str) -> (u16, Value) {
    if way == Way::ByHand {
        let kind = if json { "application/json" } else { "application/x-www-form-urlencoded" };
        let request: HttpRequest = server.post(body).path(path).header("Content-Type", kind);
        let response = server.ask(request.header("Accept", "*/*")).await;
        return (response.status, response.answer());
    }
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*", "--write-out", "\n%{http_code}"]);
    curl.args(["-X", "POST", &format!("http://localhost:{}{path}", server.address.port())]);
    curl.args(["-H", &format!("Authorization: Bearer {}", server.token.as_ref().unwrap())]);
    if json {
        curl.args(["-H", "Content-Type: application/json"]);
    }
    let output = within("curl", curl.args(["-d", body]).kill_on_drop(true).output()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (answer, status) = text.rsplit_once('\n').unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    (status.parse().unwrap(), crate::harness::check::message(answer))
}

#[tokio::test]
async fn every_line_of_seed_000() {
    for way in ways().await {
        let mut server = Server::start().await;
        let ask = async |body: &str| {
            let (status, answer) = post(way, &server, "/", false, body).await;
            assert_eq!(status, 200, "{way:?} {body}: {answer}");
            answer
        };
        let model = server.model();
        model.push(Reply::text("Hello! How can I help you?"));
        let (status, hello) = post(way, &server, "/", true, HELLO).await;
        assert_eq!(
            (status, &hello["result"]["content"]),
            (200, &json!("Hello! How can I help you?"))
        );
        assert!(hello["result"]["request_id"].as_str().unwrap().starts_with("req_"));

        model.push(Reply::text("Nice to meet you, Alice!"));
        assert_eq!(ask(ALICE).await["result"]["content"], "Nice to meet you, Alice!");
        model.push(Reply::text("Your name is Alice."));
        let named = ask(NAME).await;
        assert_eq!(
            (&named["id"], &named["result"]["content"]),
            (&json!(2), &json!("Your name is Alice."))
        );
        assert!(model.last_request().body.to_string().contains("My name is Alice"), "it remembers");

        let tokens = ask(TOKENS).await["result"].clone();
        for member in ["system", "tools", "messages", "total", "budget", "available"] {
            assert!(tokens[member].is_u64(), "{member} in {tokens}");
        }
        assert!(
            tokens["available"].as_u64() < tokens["budget"].as_u64(),
            "as in the seed: {tokens}"
        );
        assert_eq!(
            ask(UNKNOWN).await,
            json!({"jsonrpc": "2.0", "id": 4, "error": {"code": -32601, "message": "Method not found: unknown"}})
        );
        let error = ask(INVALID).await["error"].clone();
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-32602), &json!("Missing required parameter: content"))
        );

        // Terminal 1 and terminal 2.
        let gate = Gate::new();
        model.push(Reply::text("It began ").then_gate(&gate));
        let asked = model.request_count();
        let second = async {
            model.wait_for_requests(asked + 1).await;
            ask(CANCEL).await
        };
        let (essay, cancelled) = tokio::join!(ask(ESSAY), second);
        assert_eq!(cancelled["result"], json!({"cancelled": true, "request_id": "my-req-1"}));
        assert_eq!(
            (&essay["result"]["cancelled"], &essay["result"]["request_id"]),
            (&json!(true), &json!("my-req-1"))
        );
        let late = ask(CANCEL).await["result"].clone();
        assert_eq!((&late["cancelled"], &late["request_id"]), (&json!(false), &json!("my-req-1")));

        assert!(ask(HI).await["result"]["content"].is_string());
        assert_eq!(names(&server.wire()).await, ["main"], "all of it went to one agent");
        assert_eq!(
            ask(SHUTDOWN).await,
            json!({"jsonrpc": "2.0", "id": 2, "result": {"success": true}})
        );
        assert_eq!(server.exit().await.code(), Some(0));
    }
}

#[tokio::test]
async fn every_curl_line_of_seed_001() {
    for way in ways().await {
        let server = Server::start().await;
        let made = post(way, &server, "/rpc", true, CREATE).await;
        let result = json!({"agent_id": "worker", "url": "/agent/worker"});
        assert_eq!(made, (200, json!({"jsonrpc": "2.0", "id": 1, "result": result})));
        let (status, answer) = post(way, &server, "/agent/worker", true, HELLO).await;
        assert_eq!(
            (status, &answer["result"]["content"]),
            (200, &json!("Hello from the scripted model."))
        );
        let (status, listed) = post(way, &server, "/rpc", true, LIST).await;
        assert_eq!((status, &listed["result"]["agents"][0]["agent_id"]), (200, &json!("worker")));
        assert_eq!(history(&server.wire(), "worker").await.len(), 2);
    }
}

/// Set by those who test without Python. A machine that merely lacks it must not pass in silence.
const WITHOUT_PYTHON: &str = "NEXUS3_TEST_WITHOUT_PYTHON";

#[tokio::test]
async fn a_python_program_can_do_all_of_it() {
    if std::env::var_os(WITHOUT_PYTHON).is_some() {
        return eprintln!("{WITHOUT_PYTHON} is set: tests/e2e/client.py was not run");
    }
    assert!(
        has("python3").await,
        "this test runs tests/e2e/client.py with python3, which is not here; install it or set {WITHOUT_PYTHON}=1"
    );
    let server = Setup::new().start().await;
    server.model().push(Reply::text("Hello, Python."));
    server.model().push(Reply::text("So far ").then_hang());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/client.py");
    let mut python = Command::new("python3");
    python
        .arg(script)
        .arg(server.address.port().to_string())
        .arg(server.token_file.as_ref().unwrap());
    let output = within("the script", python.kill_on_drop(true).output()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(server.model().requests()[0].last_user_text(), Some("Hello from Python: äöü 🐍"));
    assert_eq!(names(&server.wire()).await, [""; 0]);
}
