//! What servers of chat completions refuse: OpenAI, DeepSeek, and the chat templates of open models.

use std::collections::HashSet;

use serde_json::Value;

use super::{Given, Rejection};
use crate::prompt;

pub(super) fn check(given: &Given, body: &Value) -> Result<(), Rejection> {
    let messages: Vec<&Value> = prompt::pieces(&body["messages"]).collect();
    if messages.iter().skip(1).any(|message| message["role"] == "system") {
        return Err("System message must be at the beginning.".into());
    }
    check_calls(&messages)?;
    let turn = messages.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
    let lacks_thought = |message: &&&Value| {
        let mut calls = prompt::pieces(&message["tool_calls"]);
        // What another model thought is not for this one.
        let thought_by = |id: &str| given.thought_calls.get(id);
        calls.any(|call| call["id"].as_str().and_then(thought_by) == Some(&body["model"]))
            && message["reasoning_content"].as_str().is_none_or(str::is_empty)
    };
    if messages[turn.min(messages.len())..].iter().any(|message| lacks_thought(&message)) {
        let message =
            "The `reasoning_content` in the thinking mode must be passed back to the API.";
        return Err(message.into());
    }
    Ok(())
}

/// Each call is answered before anybody speaks again, and no answer stands alone.
fn check_calls(messages: &[&Value]) -> Result<(), Rejection> {
    let mut open: Vec<&str> = Vec::new();
    let mut asked: HashSet<&str> = HashSet::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if !asked.contains(id) {
                let message = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message \
                               with 'tool_calls'.";
                return Err(message.into());
            }
            open.retain(|call| *call != id);
            continue;
        }
        all_answered(&open)?;
        open =
            prompt::pieces(&message["tool_calls"]).filter_map(|call| call["id"].as_str()).collect();
        asked = open.iter().copied().collect();
    }
    all_answered(&open)
}

fn all_answered(open: &[&str]) -> Result<(), Rejection> {
    if open.is_empty() {
        return Ok(());
    }
    let message = format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The \
         following tool_call_ids did not have response messages: {}",
        open.join(", ")
    );
    Err(message.into())
}
