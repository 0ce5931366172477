//! What the server writes down of itself and of its agents.

use std::fs;
use std::path::Path;

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use crate::harness::{Server, Setup, Wire};
use crate::support::{create, say};

#[tokio::test]
async fn a_request_leaves_one_line_of_a_fixed_shape() {
    let server = Server::start().await;
    let wire = server.wire();
    for (message, expected) in [
        (
            r#"{"jsonrpc":"2.0","method":"list_agents","id":"ä"}"#,
            r#"{"method":"list_agents","id":"ä","duration_ms":0,"status":"success"}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"get_tokens","id":12345678901234567890}"#,
            r#"{"method":"get_tokens","id":12345678901234567890,"duration_ms":0,"status":"success"}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"nope","id":-1}"#,
            r#"{"method":"nope","id":-1,"duration_ms":0,"status":"error","code":-32601}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"send","params":{},"id":3}"#,
            r#"{"method":"send","id":3,"duration_ms":0,"status":"error","code":-32602}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"rpc.version"}"#,
            r#"{"method":"rpc.version","id":null,"duration_ms":0,"status":"success"}"#,
        ),
        (
            r#"not JSON"#,
            r#"{"method":"","id":null,"duration_ms":0,"status":"error","code":-32700}"#,
        ),
    ] {
        let seen = requests(&server).len();
        server.ask(server.post(message)).await;
        let mut line = nth_request(&server, seen).await;
        let members: Vec<_> = line.as_object().unwrap().keys().cloned().collect();
        assert_eq!(members, ["timestamp", "level", "message", "data"]);
        assert_eq!((&line["level"], &line["message"]), (&json!("INFO"), &json!("RPC Request")));
        line["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().expect("ISO 8601");
        assert!(line["data"]["duration_ms"].as_f64().unwrap() >= 0.0);
        line["data"]["duration_ms"] = 0.into();
        assert_eq!(line["data"].to_string(), expected);
    }
    let seen = requests(&server).len();
    wire.exchange(r#"[{"jsonrpc":"2.0","method":"rpc.version","id":1},{"jsonrpc":"2.0","method":"nope","id":2}]"#).await;
    let batch = [nth_request(&server, seen).await, nth_request(&server, seen + 1).await];
    assert_eq!(batch.map(|line| line["data"]["id"].clone()), [1, 2], "a line for each of a batch");
}

fn requests(server: &Server) -> Vec<Value> {
    let mut lines = server.log().lines();
    lines.retain(|line| line["message"] == "RPC Request");
    lines
}

async fn nth_request(server: &Server, index: usize) -> Value {
    crate::harness::eventually("a line of the log", async || requests(server).len() > index).await;
    requests(server)[index].clone()
}

#[tokio::test]
async fn the_servers_log_holds_no_words_and_no_secrets() {
    let mut server = Setup::new().arg("--verbose").start().await;
    let wire = server.wire();
    let params = json!({"agent_id": "a", "system_prompt": "PROMPT-WORDS", "initial_message": "FIRST-WORDS",
        "wait_for_initial_response": true});
    server.model().push(Reply::text("ANSWER-WORDS"));
    wire.ok("create_agent", params).await;
    say(&wire, "a", "USER-WORDS").await;
    let token = wire.ok("create_agent_token", json!({"agent_id": "a"})).await["token"].clone();
    wire.refused("send", json!({"agent_id": "a", "content": 7, "extra": "REFUSED-WORDS"})).await;
    server.model().push(Reply::status(400).message("no"));
    wire.refused("send", json!({"agent_id": "a", "content": "FAILED-WORDS"})).await;
    server.ask(server.post("{").bearer(Some("WRONG-TOKEN"))).await;
    server.terminate().await;
    let log = server.log().complete().await;
    assert!(log.contains("a model call failed"), "what failed is told: {log}");
    let secrets =
        [server.token.as_deref().unwrap(), token.as_str().unwrap(), "-WORDS", "WRONG-TOKEN"];
    for secret in secrets {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
}

#[tokio::test]
async fn a_person_can_have_the_log_as_text() {
    let mut stdio = Setup::new().arg("--log-format").arg("text").stdio().await;
    stdio.send(r#"{"jsonrpc":"2.0","method":"nope","id":"x"}"#).await;
    stdio.message().await;
    stdio.finish().await;
    let log = stdio.process.log().complete().await;
    let line = log.lines().find(|line| line.contains("RPC Request")).expect(&log);
    assert!(line.contains(r#" INFO  RPC Request method=nope id="x" duration_ms="#), "{line}");
}

#[tokio::test]
async fn what_a_caller_writes_cannot_move_the_terminal() {
    let mut stdio = Setup::new().arg("--log-format").arg("text").stdio().await;
    let foreign = "x\n00:00:00 INFO  forged\u{1b}[2J\u{9b}2J\u{7f}";
    let message = json!({"jsonrpc": "2.0", "method": foreign, "id": foreign}).to_string();
    stdio.send(message).await;
    stdio.message().await;
    stdio.finish().await;
    let log = stdio.process.log().complete().await;
    assert!(log.contains(r"method=x\n00:00:00 INFO  forged\u{1b}[2J\u{9b}2J\u{7f} "), "{log:?}");
    assert!(!log.lines().any(|line| line.contains("forged") && !line.contains("RPC Request")));
    assert!(!log.contains(|c: char| c.is_control() && c != '\n'), "{log:?}");
}

#[tokio::test]
async fn nor_through_a_log_of_json_or_of_a_conversation() {
    let server = Server::start().await;
    let wire = server.wire();
    let foreign = "x\u{1b}[2J\u{9b}2J\u{7f}\u{202e}";
    let message = json!({"jsonrpc": "2.0", "method": foreign, "id": foreign}).to_string();
    let seen = requests(&server).len();
    server.ask(server.post(message)).await;
    let line = nth_request(&server, seen).await;
    assert_eq!((&line["data"]["method"], &line["data"]["id"]), (&json!(foreign), &json!(foreign)));
    create(&wire, "a").await;
    server.model().push(Reply::text(foreign));
    say(&wire, "a", foreign).await;
    let path = server.world.home().join("logs/a/context.md");
    let read = || fs::read_to_string(&path).unwrap_or_default();
    crate::harness::eventually("both words", async || read().matches("[2J").count() == 2).await;
    for text in [read(), server.log().text()] {
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(steers), "{text:?}");
    }
}

#[tokio::test]
async fn the_failure_of_a_model_names_the_agent() {
    let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    for (params, name) in [(json!({"agent_id": "a"}), "a"), (json!({}), "main")] {
        server.model().push(Reply::status(400));
        let mut params = params;
        params["content"] = "x".into();
        wire.refused("send", params).await;
        let told = |line: &Value| {
            line["message"] == "a model call failed" && line["data"]["agent_id"] == name
        };
        server.log().wait_for("whose call failed", told).await;
    }
}

/// The log file of an agent, with every moment taken out.
fn read(dir: &Path, agent: &str, file: &str) -> String {
    let path = dir.join(agent).join(file);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let blur = |line: &str| match line.split_once(" · ") {
        Some((head, moment)) => {
            let (moment, rest) = moment.split_once(' ').unwrap_or((moment, ""));
            moment.parse::<jiff::Timestamp>().expect("a moment");
            format!("{head} · MOMENT{rest}\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(blur).collect()
}

#[tokio::test]
async fn each_agent_has_a_log_that_people_can_read() {
    let mut server = Server::start().await;
    let wire = server.wire();
    for agent in ["a", ".b"] {
        create(&wire, agent).await;
        server.model().push(Reply::echo());
        say(&wire, agent, &format!("I am {agent}\nand say two lines")).await;
    }
    server.model().push(Reply::text("Half").then_error("invalid_request_error", "no"));
    wire.refused("send", json!({"agent_id": "a", "content": "Again"})).await;
    server.terminate().await;
    let logs = server.world.home().join("logs");
    let said = |agent: &str| {
        let words = format!("I am {agent}\nand say two lines");
        format!("## user · MOMENT\n\n{words}\n\n## assistant · MOMENT\n\n{words}\n\n")
    };
    let failed = "## user · MOMENT\n\nAgain\n\n## assistant · MOMENT(interrupted)\n\nHalf\n\n";
    assert_eq!(read(&logs, "a", "context.md"), said("a") + failed);
    assert_eq!(read(&logs, ".b", "context.md"), said(".b"));
    let names = |dir: &Path| {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(&logs.join("a")), ["context.md"], "no more than was asked for");
    assert_eq!(names(&server.world.work()), [""; 0], "nothing where agents work");
}

#[tokio::test]
async fn a_log_that_cannot_be_trusted_is_not_written_and_said_once() {
    let world = Setup::new().world().await;
    let logs = world.path("logs");
    fs::create_dir_all(world.path("elsewhere")).unwrap();
    fs::create_dir_all(&logs).unwrap();
    for agent in ["a", "b"] {
        std::os::unix::fs::symlink(world.path("elsewhere"), logs.join(agent)).unwrap();
    }
    let mut server = Setup::new().arg("--log-dir").arg(&logs).start_in(&world).await;
    let wire = server.wire();
    for agent in ["a", "b", "c"] {
        create(&wire, agent).await;
        say(&wire, agent, "Hi").await;
    }
    server.terminate().await;
    let log = server.log().complete().await;
    assert_eq!(log.matches("agent logs cannot be written").count(), 1, "{log}");
    assert!(log.contains("a link or a file is in the way"), "{log}");
    assert_eq!(fs::read_dir(world.path("elsewhere")).unwrap().count(), 0);
    assert!(logs.join("c/context.md").exists());
}

#[tokio::test]
async fn a_verbose_log_tells_where_words_came_from() {
    let world = Setup::new().world().await;
    let logs = world.path("elsewhere");
    let setup = Setup::new().arg("-v").arg("--log-dir").arg(&logs);
    let mut server = setup.start_in(&world).await;
    let wire = server.wire();
    create(&wire, "a").await;
    server.model().push(Reply::tool_call("no_such_tool", json!({"x": 1})));
    let params = json!({"agent_id": "a", "content": "Hi", "request_id": 7, "source": "slack", "source_agent_id": "boss"});
    wire.ok("send", params).await;
    server.terminate().await;
    let text = read(&logs, "a", "verbose.md");
    let (before, rest) = text.split_once("Current time: ").unwrap();
    let text = format!("{before}Current time: TIME{}", &rest[rest.find('\n').unwrap()..]);
    let start = "## user · MOMENT\n\n- turn: 7\n- source: slack\n- source agent: boss\n\n> Current time: TIME\n\nHi\n\n## assistant · MOMENT\n\n- turn: 7\n\n→ `no_such_tool`";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("```json\n{\n  \"x\": 1\n}\n```"), "{text}");
    assert!(logs.join("a/context.md").exists());
    assert!(!world.home().join("logs").exists(), "nothing where it was not wanted");
}

#[tokio::test]
async fn each_call_of_a_model_is_in_the_log_of_its_agent() {
    let setup = Setup::new().config(json!({"compaction": {"recent_preserve_ratio": 0.01}}));
    let setup = setup.provider_keys(json!({"models": {"scripted": {"context_window": 2048}}}));
    let mut server = setup.arg("--raw-log").start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    create(&wire, "b").await;
    // Both answers arrive in pieces, at the same time.
    let gate = Gate::new();
    server.model().set_default(Reply::echo().held_by(&gate).split_every(16));
    let talk = async |wire: &Wire, agent: &str| {
        for number in 0..5 {
            say(wire, agent, &format!("{agent}-says-{number}")).await;
        }
    };
    let release = async {
        server.model().wait_for_requests(2).await;
        gate.release();
    };
    tokio::join!(talk(&wire, "a"), talk(&wire, "b"), release);
    server.model().push(Reply::text("SUMMARY-OF-A"));
    assert_eq!(wire.ok("compact", json!({"agent_id": "a"})).await["compacted"], true);
    server.terminate().await;
    for (agent, other, calls) in [("a", "b-says", 6), ("b", "a-says", 5)] {
        let path = server.world.home().join("logs").join(agent).join("raw.jsonl");
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
        assert_eq!(of("request").len(), calls, "{agent}: {text}");
        assert_eq!(of("response").len(), calls, "{agent}");
        assert!(of("chunk").len() >= calls, "{agent}");
        assert!(!text.contains(other), "{other} in the log of {agent}");
        let first = of("request")[0];
        let said = first["body"]["messages"][1]["content"].as_str().unwrap();
        assert!(said.ends_with(&format!("\n\n{agent}-says-0")), "{said}");
        assert!(first["endpoint"].as_str().unwrap().ends_with("/v1/chat/completions"));
        assert_eq!(text.contains("SUMMARY-OF-A"), agent == "a");
    }
}
