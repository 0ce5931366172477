//! Commands as they are typed, against a server that answers what the test says.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::output::explain;
use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    rpc: RpcArgs,
}

/// What a command asked of the server, and what it printed.
struct Ran {
    requests: Vec<(String, Value)>,
    stdout: String,
    error: Option<String>,
}

/// Runs `nexus3 rpc LINE…` against a server that gives `answers` (the `result` or `error` member) in turn.
async fn run(line: &[&str], answers: &[&str]) -> Ran {
    let answers: Vec<_> = answers.iter().map(|answer| (false, answer.to_string())).collect();
    run_against(line, answers).await
}

/// As `run`; an answer marked true is an event stream as it stands.
async fn run_against(line: &[&str], answers: Vec<(bool, String)>) -> Ran {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let line = [&["rpc", "-p", &port, "--api-key", "nxk_test"], line].concat();
    let args = Cli::try_parse_from(line).unwrap_or_else(|error| panic!("{error}")).rpc;
    let serving = tokio::spawn(serve(listener, answers));
    let mut stdout = Vec::new();
    let done = execute(&args.server, args.command, &mut Output::to(&mut stdout)).await;
    let error = done.err().map(|error| explain(&error, &args.server));
    let requests = serving.await.unwrap();
    Ran { requests, stdout: String::from_utf8(stdout).unwrap(), error }
}

/// Serves one connection; returns the path and body of each request.
async fn serve(listener: TcpListener, answers: Vec<(bool, String)>) -> Vec<(String, Value)> {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = BufReader::new(stream);
    let mut requests = Vec::new();
    for (is_stream, answer) in answers {
        let (mut path, mut length, mut authorized) = (String::new(), 0, false);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let line = line.trim_end();
            if let Some(rest) = line.strip_prefix("POST ") {
                path = rest.split(' ').next().unwrap().into();
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            }
            authorized |= line == "authorization: Bearer nxk_test";
            if line.is_empty() {
                break;
            }
        }
        assert!(authorized);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let id = &body["id"];
        let (kind, text) = match is_stream {
            true => ("text/event-stream", answer.replace("ID", &id.to_string())),
            false => ("application/json", format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#)),
        };
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}", text.len());
        stream.write_all(format!("{head}\r\n\r\n{text}").as_bytes()).await.unwrap();
        requests.push((format!("{path} {}", body["method"]), body["params"].clone()));
    }
    requests
}

#[track_caller]
fn assert_asked(ran: &Ran, expected: &[(&str, Value)]) {
    let got: Vec<_> =
        ran.requests.iter().map(|(call, params)| (call.replace('"', ""), params)).collect();
    let got: Vec<_> = got.iter().map(|(call, params)| (call.as_str(), (*params).clone())).collect();
    assert_eq!(got, expected);
}

#[tokio::test]
async fn each_command_is_a_call() {
    let check = async |line: &[&str], call: &str, params: Value| {
        let ran = run(line, &[r#""result":{"success":true,"new":1}"#]).await;
        assert_asked(&ran, &[(call, params)]);
        assert_eq!(ran.stdout, "{\"success\":true,\"new\":1}\n");
        assert_eq!(ran.error, None);
    };
    check(&["list"], "/rpc list_agents", json!({})).await;
    check(&["shutdown"], "/rpc shutdown_server", json!({})).await;
    check(&["destroy", "a"], "/rpc destroy_agent", json!({"agent_id": "a"})).await;
    check(&["token", "a"], "/rpc create_agent_token", json!({"agent_id": "a"})).await;
    check(&["compact", "a"], "/agent/a compact", json!({})).await;
    check(&["compact", "a", "--if-needed"], "/agent/a compact", json!({"force": false})).await;
    let page = ["messages", "a", "--offset", "5", "--limit", "2000"];
    check(&page, "/agent/a get_messages", json!({"offset": 5, "limit": 2000})).await;
    check(&["call", "rpc.version"], "/rpc rpc.version", json!({})).await;
    let call = ["call", "set_cwd", r#"{"cwd":"/"}"#, "--agent", "a"];
    check(&call, "/agent/a set_cwd", json!({"cwd": "/"})).await;
    let summaries = json!({"include_tokens": true});
    check(&["status"], "/rpc get_agent_summaries", summaries).await;
    check(&["sessions", "list"], "/rpc list_sessions", json!({})).await;
    let page = ["sessions", "list", "--offset", "5", "--limit", "1000", "--temp"];
    let params = json!({"offset": 5, "limit": 1000, "include_temp": true});
    check(&page, "/rpc list_sessions", params).await;
    let params = json!({"agent_id": "a", "session_name": "s"});
    check(&["sessions", "save", "a", "s"], "/rpc save_session", params).await;
    check(&["sessions", "load", "s"], "/rpc load_session", json!({"session_name": "s"})).await;
    let load = ["sessions", "load", "s", "--as", "b", "--preset", "worker", "-m", "fast"];
    let params = json!({"session_name": "s", "agent_id": "b", "preset": "worker", "model": "fast"});
    check(&load, "/rpc load_session", params).await;
    let params = json!({"src_session": "s", "dest_session": "t"});
    check(&["sessions", "clone", "s", "t"], "/rpc clone_session", params).await;
    let params = json!({"old_name": "s", "new_name": "t"});
    check(&["sessions", "rename", "s", "t"], "/rpc rename_session", params).await;
    check(&["permissions", "a"], "/agent/a get_permissions", json!({})).await;
    let set = ["permissions", "a", "--preset", "worker", "--disable", "x", "--disable", "y"];
    let params = json!({"preset": "worker", "disable_tools": ["x", "y"], "enable_tools": ["z"]});
    check(&[&set[..], &["--enable", "z"]].concat(), "/agent/a set_permissions", params).await;
    check(&["cwd", "a", "/"], "/agent/a set_cwd", json!({"cwd": "/"})).await;
    check(&["prompt", "a"], "/agent/a get_system_prompt", json!({})).await;
    let params = json!({"system_prompt": "Be brief."});
    check(&["prompt", "a", "Be brief."], "/agent/a set_system_prompt", params).await;
    check(&["model", "a"], "/agent/a get_model", json!({})).await;
    check(&["model", "a", "fast"], "/agent/a set_model", json!({"model": "fast"})).await;
    check(&["send", "a", "hello"], "/agent/a send", json!({"content": "hello"})).await;
    let here = std::env::current_dir().unwrap().join("b.pdf");
    let parts = json!([
        {"type": "text", "text": "look"},
        {"type": "file", "path": "/x/a.png"},
        {"type": "file", "path": here},
    ]);
    let send = ["send", "a", "look", "--attach", "/x/a.png", "--attach", "b.pdf"];
    check(&send, "/agent/a send", json!({"content": parts})).await;
    let send = ["send", "a", "-t", "2", "--request-id", "7", "--", "-x"];
    let params = json!({"content": "-x", "request_id": "7", "timeout_ms": 2000});
    check(&send, "/agent/a send", params).await;
}

#[tokio::test]
async fn relative_paths_are_the_callers() {
    let line = ["create", "a", "--preset", "trusted", "--cwd", "sub", "--write-path", "out"];
    let line = [&line[..], &["--write-path", "/abs", "-m", "fast", "-M", "go", "--parent", "p"]];
    let ran = run(&[line.concat(), vec!["--wait"]].concat(), &[r#""result":{}"#]).await;
    let here = std::env::current_dir().unwrap();
    let params = json!({
        "agent_id": "a",
        "preset": "trusted",
        "cwd": here.join("sub"),
        "allowed_write_paths": [here.join("out"), "/abs"],
        "model": "fast",
        "parent_agent_id": "p",
        "initial_message": "go",
        "wait_for_initial_response": true,
    });
    assert_asked(&ran, &[("/rpc create_agent", params)]);
    let ran = run(&["create"], &[r#""result":{}"#]).await;
    assert_asked(&ran, &[("/rpc create_agent", json!({}))]);
}

#[tokio::test]
async fn status_is_two_answers_in_one() {
    let ran = run(&["status", "a"], &[r#""result":{"c":1}"#, r#""result":{"t":2}"#]).await;
    let expected = [("/agent/a get_context", json!({})), ("/agent/a get_tokens", json!({}))];
    assert_asked(&ran, &expected);
    assert_eq!(ran.stdout, "{\"agent_id\":\"a\",\"context\":{\"c\":1},\"tokens\":{\"t\":2}}\n");
}

#[tokio::test]
async fn a_request_id_of_digits_may_be_either() {
    let (no, yes) = (r#""result":{"cancelled":false}"#, r#""result":{"cancelled":true}"#);
    let (number, text) = (json!({"request_id": 7}), json!({"request_id": "7"}));
    let ran = run(&["cancel", "a", "7"], &[yes]).await;
    assert_asked(&ran, &[("/agent/a cancel", number.clone())]);
    let ran = run(&["cancel", "a", "7"], &[no, yes]).await;
    assert_asked(&ran, &[("/agent/a cancel", number), ("/agent/a cancel", text)]);
    let ran = run(&["cancel", "a", "r1"], &[no]).await;
    assert_asked(&ran, &[("/agent/a cancel", json!({"request_id": "r1"}))]);
    assert_eq!((ran.stdout.as_str(), ran.error), ("{\"cancelled\":false}\n", None));
}

#[tokio::test]
async fn destroying_nobody_is_a_failure() {
    let ran = run(&["destroy", "a"], &[r#""result":{"success":false}"#]).await;
    assert_eq!(ran.stdout, "{\"success\":false}\n");
    assert_eq!(ran.error.as_deref(), Some("there is no agent a"));
}

#[tokio::test]
async fn a_streamed_answer_is_its_text() {
    let event = |message: &str| format!("data: {message}\n\n");
    let data = |chunk: &str| {
        let params = json!({"stream_id": "s", "chunk": chunk, "sequence": 1});
        event(&json!({"method": "stream_data", "params": params}).to_string())
    };
    let result = json!({
        "content": "one\ntwo", "request_id": "r", "halted_at_iteration_limit": false, "stop_reason": "end_turn",
        "usage": {"input": 1, "cache_read": 0, "cache_write": 0, "output": 2, "reasoning": 0}, "cost_usd": null,
        "model": "m", "steps": 1,
    });
    let done = event(&format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{result}}}"#));
    let answer = [data("one\n"), data("two"), done].concat();
    let ran = run_against(&["send", "a", "x", "--stream"], vec![(true, answer)]).await;
    assert_asked(&ran, &[("/agent/a send", json!({"content": "x", "stream": true}))]);
    assert_eq!((ran.stdout.as_str(), ran.error), ("one\ntwo\n", None));
    // A server that answers in one piece says the same.
    let ran = run(&["send", "a", "x", "--stream"], &[&format!(r#""result":{result}"#)]).await;
    assert_eq!(ran.stdout, "one\ntwo\n");
}

#[tokio::test]
async fn errors_say_what_can_be_done() {
    let check = async |error: nexus_protocol::RpcError, expected: &str| {
        let answer = format!(r#""error":{}"#, serde_json::to_string(&error).unwrap());
        let ran = run(&["list"], &[&answer]).await;
        assert_eq!((ran.stdout.as_str(), ran.error.as_deref()), ("", Some(expected)));
    };
    let error = nexus_protocol::RpcError::unavailable("Not now", "It rains.", &["Wait."]);
    check(error, "Not now (-32001): It rains.\n  Wait.").await;
    let error = nexus_protocol::RpcError::timeout("It took 2 s.");
    let expected = "Execution timeout (-32000): It took 2 s.\n  \
                    Give it more time with -t SECONDS, or none to wait without a limit.";
    check(error, expected).await;
}

#[tokio::test]
async fn detecting() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let server = ServerArgs { port, host: "127.0.0.1".into(), api_key: None };
    let mut stdout = Vec::new();
    let code = execute(&server, RpcCommand::Detect, &mut Output::to(&mut stdout)).await.unwrap();
    let expected = format!("{{\"host\":\"127.0.0.1\",\"port\":{port},\"result\":\"no_server\"}}\n");
    assert_eq!(String::from_utf8(stdout).unwrap(), expected);
    assert_eq!(code, ExitCode::FAILURE);
}

#[test]
fn usage() {
    Cli::command().debug_assert();
    let check = |line: &[&str], expected: ErrorKind| {
        let error = Cli::try_parse_from(["rpc"].iter().chain(line)).unwrap_err();
        assert_eq!(error.kind(), expected, "{line:?}: {error}");
    };
    check(&["create", "a", "--wait"], ErrorKind::MissingRequiredArgument);
    check(&["send", "a"], ErrorKind::MissingRequiredArgument);
    check(&["send", "a", "x", "-t", "0"], ErrorKind::ValueValidation);
    check(&["send", "a", "x", "-t", "86401"], ErrorKind::ValueValidation);
    check(&["messages", "a", "--limit", "0"], ErrorKind::ValueValidation);
    check(&["messages", "a", "--limit", "2001"], ErrorKind::ValueValidation);
    check(&["call", "m", "[1]"], ErrorKind::ValueValidation);
    check(&["call", "m", "{"], ErrorKind::ValueValidation);
    check(&["scan", "9005-9000"], ErrorKind::ValueValidation);
    check(&["list", "-p", "0"], ErrorKind::ValueValidation);
    let args = Cli::try_parse_from(["rpc", "list", "-p", "9000", "--host", "::1"]).unwrap();
    assert_eq!(args.rpc.server.url(), "http://[::1]:9000");
}
