//! What several modules say of agents and their conversations, in few words.

use nexus_testkit::RecordedRequest;
use serde_json::{Value, json};

use crate::harness::{Server, Wire, eventually};

/// The conversation of an agent, a line for each message: `user: Hi`, `assistant: Hel (interrupted)`.
pub async fn history(wire: &Wire, agent: &str) -> Vec<String> {
    let page = wire.ok("get_messages", json!({"agent_id": agent})).await;
    let messages = page["messages"].as_array().unwrap();
    assert_eq!(page["total"], messages.len());
    let line = |message: &Value| {
        let cut = if message["meta"]["interrupted"] == true { " (interrupted)" } else { "" };
        let text = |name: &str| message[name].as_str().unwrap().to_string();
        format!("{}: {}{cut}", text("role"), text("content"))
    };
    messages.iter().map(line).collect()
}

/// What a model was shown of the conversation, without the prompt and what changes from turn to turn: a line for each
/// message, `user: Hi`.
pub fn shown(request: &RecordedRequest) -> Vec<String> {
    let messages = request.body["messages"].as_array().expect("a request has messages");
    let text = |content: &Value| match content {
        Value::Array(blocks) => blocks.last().unwrap()["text"].as_str().unwrap().to_string(),
        // On one wire the time is the first line of what a user says, behind a summary where there is one.
        text => match text.as_str().unwrap_or_default() {
            text if text.contains("Current time: ") => {
                let (_, line) = text.split_once("Current time: ").unwrap();
                line.split_once("\n\n").unwrap().1.to_string()
            }
            text => text.to_string(),
        },
    };
    let said = messages.iter().filter(|message| message["role"] != "system");
    said.map(|message| {
        format!("{}: {}", message["role"].as_str().unwrap(), text(&message["content"]))
    })
    .collect()
}

/// The system prompt a model was given.
pub fn prompt(request: &RecordedRequest) -> String {
    request.body["messages"][0]["content"].as_str().expect("the first message is the prompt").into()
}

/// What an answer of `send` begins with, for a turn of one step with the scripted model's usual counts.
pub fn answered(content: &str, request_id: &Value) -> Value {
    json!({
        "content": content, "request_id": request_id, "halted_at_iteration_limit": false,
        "stop_reason": "end_turn",
        "usage": {"input": 10, "cache_read": 0, "cache_write": 0, "output": 5, "reasoning": 0},
        "cost_usd": null, "model": "scripted", "steps": 1,
    })
}

/// Says `content` to the agent and returns the answer's text.
pub async fn say(wire: &Wire, agent: &str, content: &str) -> String {
    let answer = wire.ok("send", json!({"agent_id": agent, "content": content})).await;
    assert_eq!(answer.get("cancelled"), None, "{answer}");
    answer["content"].as_str().unwrap().into()
}

pub async fn create(wire: &Wire, agent: &str) {
    wire.ok("create_agent", json!({"agent_id": agent})).await;
}

/// The entries of `list_agents`, by the order of the list.
pub async fn list(wire: &Wire) -> Vec<Value> {
    wire.ok("list_agents", json!({})).await["agents"].as_array().unwrap().clone()
}

/// The names in `list_agents`.
pub async fn names(wire: &Wire) -> Vec<String> {
    list(wire).await.iter().map(|entry| entry["agent_id"].as_str().unwrap().into()).collect()
}

/// The entry of one agent in `list_agents`.
pub async fn entry(wire: &Wire, agent: &str) -> Value {
    let mut agents = list(wire).await;
    agents.retain(|entry| entry["agent_id"] == agent);
    agents.pop().unwrap_or_else(|| panic!("{agent} is not listed"))
}

/// Waits until the agent has so many messages on disk.
pub async fn has_messages(wire: &Wire, agent: &str, count: u64) {
    eventually("messages to be written", async || {
        wire.ok("get_context", json!({"agent_id": agent})).await["message_count"] == count
    })
    .await;
}

/// Calls a method at the agent's own path, and returns the status and the answer.
pub async fn at_path(server: &Server, agent: &str, method: &str, params: Value) -> (u16, Value) {
    let request = crate::harness::wire::request(1, method, params);
    let response = server.ask(server.post(request).path(format!("/agent/{agent}"))).await;
    (response.status, response.answer())
}

/// Calls a method as the agent `who`, and returns the result or the error's code and message.
pub async fn as_agent(
    server: &Server,
    who: &str,
    method: &str,
    params: Value,
) -> Result<Value, (i64, String)> {
    let body = crate::harness::wire::request(1, method, params);
    let response = server.ask(server.post(body).header("X-Nexus-Agent", who)).await;
    let mut answer = response.answer();
    match answer.get("error") {
        None => Ok(answer["result"].take()),
        Some(error) => {
            let data = error["data"]["details"].as_str();
            let text = data.or(error["message"].as_str()).unwrap().to_string();
            Err((error["code"].as_i64().unwrap(), text))
        }
    }
}

/// The names in `list_sessions`, in alphabetical order.
pub async fn sessions(wire: &Wire) -> Vec<String> {
    let page = wire.ok("list_sessions", json!({})).await;
    let entries = page["sessions"].as_array().unwrap().iter();
    let mut names: Vec<_> = entries.map(|it| it["name"].as_str().unwrap().to_string()).collect();
    assert_eq!(page["total"], names.len());
    names.sort();
    names
}

/// The approval that waits, as soon as one does.
pub async fn waiting(wire: &Wire) -> Value {
    eventually("an approval waits", async || {
        let listed = wire.ok("list_approvals", json!({})).await;
        listed["approvals"].as_array().is_some_and(|list| !list.is_empty())
    })
    .await;
    wire.ok("list_approvals", json!({})).await["approvals"][0].clone()
}
