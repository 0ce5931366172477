//! The door in the hands of the clients that people use. `make openai-clients` installs them; where they are not, this is
//! passed over, unless `NEXUS3_OPENAI_CLIENTS=required`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nexus_testkit::{Reply, last_user_text};
use serde_json::{Value, json};
use tokio::process::Command;

use super::super::host::is_busy;
use super::{get, json_of};
use crate::harness::{Server, eventually};

pub fn installed() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/openai-clients");
    match target.join("litellm/installed").exists() {
        true => Some(target.canonicalize().unwrap()),
        false => {
            let required =
                std::env::var_os("NEXUS3_OPENAI_CLIENTS").is_some_and(|it| it == "required");
            assert!(!required, "OpenAI's clients are not installed: make openai-clients");
            eprintln!("OpenAI's clients are not installed: passed over");
            None
        }
    }
}

/// LiteLLM alone is loaded for many seconds on a busy machine.
const CLIENT_MAX: Duration = Duration::from_secs(300);

/// What the last message of the user orders, as the scripted model's own program does it.
fn answer(request: &Value) -> Reply {
    let text = last_user_text(request).unwrap_or_default();
    let (order, rest) = text.split_once(' ').unwrap_or((text, ""));
    match order {
        "say" => Reply::chunks(rest.split_inclusive(' ')),
        "slowly" => {
            let count: u32 = rest.parse().unwrap();
            let pause = Duration::from_millis(20);
            Reply::chunks((1..=count).map(|number| format!("{number} "))).chunk_delay(pause)
        }
        "once" if has_result(request) => Reply::text("done"),
        "call" | "once" => {
            let (tool, arguments) = rest.split_once(' ').unwrap();
            Reply::tool_call(tool, serde_json::from_str(arguments).unwrap())
        }
        "fail" => Reply::status(400),
        _ => Reply::text("hanging").then_hang(),
    }
}

/// Whether the last message is a tool's.
fn has_result(request: &Value) -> bool {
    request["messages"].as_array().unwrap().last().is_some_and(|last| last["role"] == "tool")
}

/// Runs a program with a key of its own, and returns what it saw.
async fn run(program: &str, script: &str) -> Option<Vec<String>> {
    let installed = installed()?;
    let server = Server::start().await;
    server.model().set_script(answer);
    let wire = server.wire();
    let key = json!({"name": "k", "doors": ["openai"], "preset": "trusted"});
    let key = wire.ok("create_key", key).await["key"].as_str().unwrap().to_owned();
    for agent in ["a", "b", "c"] {
        let beneath =
            json!({"agent_id": agent, "parent_agent_id": "door-k", "preset": "sandboxed"});
        wire.ok("create_agent", beneath).await;
    }
    let models = json_of(&server.ask(get(&server, "/v1/models")).await);
    let embedder = models["data"].as_array().unwrap().last().unwrap()["id"].clone();
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/openai-clients").join(script);
    let mut command = Command::new(installed.join(program));
    command.arg(script.canonicalize().unwrap()).current_dir(&installed);
    command.env_clear().env("HOME", server.world.path(".")).env("OPENAI_API_KEY", key);
    command.env("OPENAI_BASE_URL", format!("{}/v1", server.url));
    command.env("EMBEDDER", embedder.as_str().unwrap());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(CLIENT_MAX, command.output())
        .await
        .expect("the client hangs")
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // It was asked once, however often the client asked; and nothing runs that nobody waits for.
    // The connection of before may have been idle for longer than the server keeps it.
    let wire = server.wire();
    let messages = wire.ok("get_messages", json!({"agent_id": "b"})).await;
    assert_eq!(messages["total"], 2, "{messages}");
    let messages = wire.ok("get_messages", json!({"agent_id": "c"})).await;
    assert!(messages["total"].as_u64().unwrap() <= 2, "{messages}");
    eventually("the turn to end", async || !is_busy(&server, "a").await).await;
    let said = String::from_utf8(output.stdout).unwrap();
    Some(said.lines().map(str::to_owned).collect())
}

#[tokio::test]
async fn the_python_client_and_langchain() {
    let Some(seen) = run("python/bin/python", "sdk.py").await else { return };
    let expected = [
        "models",
        "chat",
        "headers",
        "stream",
        "structured",
        "conversation",
        "tools",
        "choices",
        "embeddings",
        "retries",
        "errors",
        "cancellation",
        "responses",
        "responses, conversation",
        "responses, tools",
        "responses, cancellation",
        "langchain",
        "langchain, retries",
        "langchain, cancellation",
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn the_node_client_and_the_ai_sdk() {
    let Some(seen) = run("python/bin/node", "sdk.js").await else { return };
    let expected = [
        "models",
        "chat",
        "stream",
        "tools",
        "structured",
        "embeddings",
        "retries",
        "errors",
        "cancellation",
        "responses",
        "responses, conversation",
        "responses, tools",
        "responses, cancellation",
        "ai",
        "ai, responses",
        "ai, retries",
        "ai, cancellation",
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn litellm() {
    let Some(seen) = run("litellm/bin/python", "litellm_sdk.py").await else { return };
    let expected = [
        "chat",
        "stream",
        "tools",
        "structured",
        "conversation",
        "embeddings",
        "retries",
        "errors",
        "cancellation",
        "responses",
    ];
    assert_eq!(seen, expected);
}
