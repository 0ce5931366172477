//! `nexus3 replay` and `nexus3 trace`, against a running server.

use std::process::Stdio;

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout};

use crate::harness::{Output, Server, within};
use crate::support::{create, say};

/// Runs a printer to its end.
async fn printed(server: &Server, args: &[&str]) -> Output {
    let port = server.address.port().to_string();
    server.cli(args.iter().map(ToString::to_string).chain(["-p".into(), port])).await
}

/// A printer that goes on, line by line.
struct Printer {
    child: Child,
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Printer {
    fn start(server: &Server, args: &[&str]) -> Self {
        let mut command = server.world.command(args.iter().copied());
        command.args(["-p", &server.address.port().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// All lines up to one that has this in it.
    async fn until(&mut self, text: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let line = within(text, self.lines.next_line()).await.unwrap();
            let line = line.unwrap_or_else(|| panic!("{text} was not printed: {seen:#?}"));
            seen.push(line);
            if seen.last().is_some_and(|line| line.contains(text)) {
                return seen;
            }
        }
    }
}

/// What is printed without the times.
fn said(output: &Output) -> String {
    assert_eq!(output.code, Some(0), "{output:?}");
    let lines = output.stdout.lines().filter(|line| !line.starts_with("──"));
    let is_stamp = |text: &str| {
        text.len() == 9 && text.bytes().all(|it| it.is_ascii_digit() || b": ".contains(&it))
    };
    let bare = |line: &str| match line.get(..9).is_some_and(is_stamp) {
        true => line[9..].to_string(),
        false => line.to_string(),
    };
    lines.map(bare).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_session_is_printed_as_it_went_and_stays_as_it_is() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let call = Reply::tool_call("list_directory", json!({"path": "."}));
    server.model().push(call);
    server.model().push(Reply::text("empty \u{1b}]0;evil\u{7}"));
    say(&wire, "a", "what is here?").await;
    let before = wire.ok("get_messages", json!({"agent_id": "a"})).await;
    let replayed = printed(&server, &["replay", "a", "--speed", "0"]).await;
    let text = said(&replayed);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "you> what is here?");
    assert!(lines[1].starts_with("● list_directory {\"path\":\".\"}  ["), "{text}");
    assert!(lines[2].starts_with("  └ ["), "{text}");
    assert_eq!(*lines.last().unwrap(), "a> empty ␛]0;evil␇");
    assert!(replayed.stdout.starts_with("── 2"), "the day comes first: {text}");
    assert_eq!(wire.ok("get_messages", json!({"agent_id": "a"})).await, before);
    // At any speed it is the same.
    assert_eq!(said(&printed(&server, &["replay", "a", "--speed", "1000"]).await), text);

    let unknown = printed(&server, &["replay", "nobody"]).await;
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.starts_with("Error: "), "{}", unknown.stderr);
    assert_eq!(printed(&server, &["replay", "a", "--speed", "-1"]).await.code, Some(2));
}

#[tokio::test]
async fn long_sessions_are_read_page_by_page() {
    let server = Server::start().await;
    let wire = server.wire();
    for turn in 0..101 {
        say(&wire, "main", &format!("turn {turn}.")).await;
    }
    let text = said(&printed(&server, &["replay", "main", "--speed", "0"]).await);
    for turn in 0..101 {
        assert_eq!(text.matches(&format!("you> turn {turn}.")).count(), 1);
    }
    assert_eq!(text.matches("main> ").count(), 101);
}

#[tokio::test]
async fn agents_are_followed_while_they_work() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    create(&wire, "b").await;
    let mut all = Printer::start(&server, &["trace"]);
    let mut one = Printer::start(&server, &["trace", "a"]);
    let mut json_lines = Printer::start(&server, &["trace", "a", "--json"]);
    all.until("b idle").await;
    one.until("a idle").await;
    let first: Value = serde_json::from_str(&json_lines.until("snapshot").await[0]).unwrap();
    assert_eq!(first["event"]["type"], "snapshot");
    server.model().push(Reply::text("of b"));
    say(&wire, "b", "x").await;
    let call = Reply::text("I look.").then_tool_call("list_directory", json!({"path": "."}));
    server.model().push(call);
    server.model().push(Reply::text("of \u{1b}[2Ja"));
    say(&wire, "a", "y").await;
    let seen = one.until("■ done").await.join("\n");
    for part in ["a ▶", "y", "● list_directory", "└ [", "of ␛[2Ja"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    assert!(!seen.contains("of b"));
    let at = |part: &str| seen.find(part).unwrap();
    assert!(
        at("a I look.") < at("a ● list_directory"),
        "a call stands behind what was said: {seen}"
    );
    let seen = all.until("of ␛[2Ja").await.join("\n");
    assert!(seen.contains("b of b"), "{seen}");
    json_lines.until("turn_ended").await;
    // It ends with what it follows, and with the server.
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    for printer in [&mut one, &mut json_lines] {
        printer.until("ended").await;
        assert!(within("its end", printer.child.wait()).await.unwrap().success());
    }
    wire.ok("shutdown_server", json!({})).await;
    all.until("server is stopping").await;
    assert!(within("its end", all.child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn how_things_stand_is_printed_once() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "kid", "parent_agent_id": "top"})).await;
    let gate = Gate::new();
    server.model().push(Reply::text("so far ").then_gate(&gate).then_text("done"));
    let look = async {
        server.model().wait_for_requests(1).await;
        crate::harness::eventually("the text so far", async || {
            printed(&server, &["trace", "kid", "--once"]).await.stdout.contains("so far")
        })
        .await;
        let now = printed(&server, &["trace", "kid", "--once"]).await;
        assert!(now.stdout.contains("kid running"), "{}", now.stdout);
        assert!(now.stdout.contains("  running: hello"), "{}", now.stdout);
        let tree = printed(&server, &["trace", "--tree", "--once"]).await;
        assert_eq!(tree.stdout, "top idle · 0 tokens\n  kid running · 0 tokens\n\n");
        let raw = printed(&server, &["trace", "--json", "--once"]).await;
        let raw: Value = serde_json::from_str(raw.stdout.trim()).unwrap();
        assert_eq!(raw["event"]["agents"].as_array().unwrap().len(), 2);
        gate.release();
    };
    tokio::join!(say(&wire, "kid", "hello"), look);
    assert_eq!(printed(&server, &["trace", "top", "--tree"]).await.code, Some(2));
    let unknown = printed(&server, &["trace", "nobody", "--once"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
}
