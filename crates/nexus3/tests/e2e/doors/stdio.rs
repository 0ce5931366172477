//! `nexus3 mcp serve`: one host on standard input and output.

use nexus_testkit::Reply;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::host::is_busy;
use crate::harness::{Server, Setup, eventually, within};
use crate::support::{history, names};

struct Host {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    id_last: u64,
}

impl Host {
    fn start(mut command: Command) -> Self {
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, id_last: 0 }
    }

    async fn call(&mut self, method: &str, mut params: Value) -> Value {
        self.id_last += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message =
            json!({"jsonrpc": "2.0", "id": self.id_last, "method": method, "params": params});
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        loop {
            let mut line = String::new();
            within("an answer", self.output.read_line(&mut line)).await.unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == self.id_last {
                return message;
            }
        }
    }

    async fn tool(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.call("tools/call", json!({"name": name, "arguments": arguments})).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// Hangs up, and returns how the process ended.
    async fn finish(mut self) -> Option<i32> {
        self.input = None;
        within("the end", self.child.wait()).await.unwrap().code()
    }
}

#[tokio::test]
async fn without_a_server_the_home_is_opened_here() {
    let world = Setup::new().world().await;
    let mut host = Host::start(world.command(["mcp", "serve", "--preset", "sandboxed"]));
    host.call("server/discover", json!({})).await;
    world.model.push(Reply::text("hello"));
    let answer = host.tool("nexus_send", json!({"content": "hi"})).await;
    assert_eq!(answer["structuredContent"]["content"], "hello", "{answer}");
    let agent = answer["structuredContent"]["agent_id"].as_str().unwrap().to_owned();
    assert!(agent.starts_with("door-work-"), "{agent}");
    assert_eq!(host.finish().await, Some(0));
    // Tomorrow it is the same agent.
    let mut host = Host::start(world.command(["mcp", "serve", "--preset", "sandboxed"]));
    world.model.push(Reply::text("again"));
    let answer = host.tool("nexus_send", json!({"content": "you know me"})).await;
    assert_eq!(answer["structuredContent"]["agent_id"], json!(agent), "{answer}");
    let status = host.tool("nexus_status", json!({"agent_id": agent})).await;
    assert_eq!(status["structuredContent"]["message_count"], 4);
}

#[tokio::test]
async fn where_a_server_of_the_home_runs_it_is_used() {
    let server = Server::start().await;
    let socket = server.socket.clone().unwrap();
    let connect = ["--connect".into(), socket.into_os_string()];
    let args = [["mcp", "serve"].map(Into::into).to_vec(), connect.to_vec()].concat();
    for args in [["mcp", "serve"].map(Into::into).to_vec(), args] {
        let mut host = Host::start(server.world.command(args));
        server.model().push(Reply::text("hello"));
        let answer = host.tool("nexus_send", json!({"content": "hi"})).await;
        let agent = answer["structuredContent"]["agent_id"].as_str().unwrap().to_owned();
        assert!(names(&server.wire()).await.contains(&agent), "{answer}");
        assert!(history(&server.wire(), &agent).await.ends_with(&["assistant: hello".into()]));
        assert_eq!(host.finish().await, Some(0));
        let labels = json!({"method": "send", "door": "mcp"});
        let metrics = server.wire().ok("get_metrics", json!({})).await;
        let metrics = metrics["metrics"].as_array().unwrap();
        let calls = metrics.iter().find(|it| it["name"] == "nexus_rpc_duration_seconds").unwrap();
        let calls = calls["samples"].as_array().unwrap();
        assert!(calls.iter().any(|it| it["labels"] == labels), "{calls:?}");
        assert!(!calls.iter().any(|it| it["labels"] == json!({"method": "send"})), "{calls:?}");
    }
}

#[tokio::test]
async fn an_agent_that_exists_can_be_named() {
    let server = Server::start().await;
    crate::support::create(&server.wire(), "mine").await;
    let mut host = Host::start(server.world.command(["mcp", "serve", "--agent", "mine"]));
    server.model().push(Reply::text("yes"));
    let answer = host.tool("nexus_send", json!({"content": "hi"})).await;
    assert_eq!(answer["structuredContent"]["agent_id"], "mine", "{answer}");
    drop(host);
    let mut host = Host::start(server.world.command(["mcp", "serve", "--agent", "nobody"]));
    let answer = host.tool("nexus_send", json!({"content": "hi"})).await;
    assert_eq!(answer["isError"], json!(true), "{answer}");
}

#[tokio::test]
async fn what_cannot_be_is_said_on_standard_error() {
    let world = Setup::new().world().await;
    let missing = world.path("no.sock");
    let args = ["mcp", "serve", "--connect"].map(Into::into).to_vec();
    let args = [args, vec![missing.clone().into_os_string()]].concat();
    let output = world.command(args).stdin(std::process::Stdio::null()).output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(missing.to_str().unwrap()), "{said}");
    let mut quiet = world.command(["mcp", "serve"]);
    let output = quiet.stdin(std::process::Stdio::null()).output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
}

/// A host that was killed wants nothing any more.
#[tokio::test]
async fn a_host_that_dies_or_hangs_up_cancels_its_turn() {
    for is_killed in [true, false] {
        let server = Server::start().await;
        crate::support::create(&server.wire(), "a").await;
        let mut host = Host::start(server.world.command(["mcp", "serve", "--agent", "a"]));
        host.call("server/discover", json!({})).await;
        server.model().push(Reply::hang());
        let running = async || is_busy(&server, "a").await;
        {
            let sending = host.tool("nexus_send", json!({"content": "x"}));
            tokio::pin!(sending);
            tokio::select! {
                answer = &mut sending => panic!("{answer}"),
                () = eventually("the turn to run", running) => {}
            }
        }
        match is_killed {
            true => host.child.kill().await.unwrap(),
            false => assert_eq!(host.finish().await, Some(0)),
        }
        eventually("the turn to be cancelled", async || !running().await).await;
    }
}
