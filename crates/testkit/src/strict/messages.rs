//! What Anthropic's messages refuse.

use std::collections::HashSet;

use serde_json::Value;

use super::{Given, Rejection};
use crate::prompt::{self, Block, Prefix, Section};
use crate::reply::Step;
use crate::wire;

const MARKS_MAX: usize = 4;

pub(super) fn check(given: &Given, body: &Value) -> Result<(), Rejection> {
    if !body["max_tokens"].is_u64() {
        return Err("max_tokens: Field required".into());
    }
    for sampling in ["temperature", "top_p", "top_k"] {
        if body.get(sampling).is_some() {
            return Err(format!("{sampling}: Extra inputs are not permitted").into());
        }
    }
    let thinks = matches!(body["thinking"]["type"].as_str(), Some("enabled" | "adaptive"));
    if thinks && matches!(body["tool_choice"]["type"].as_str(), Some("any" | "tool")) {
        return Err("Thinking may not be enabled when tool_choice forces tool use.".into());
    }
    check_marks(body)?;
    let messages: Vec<&Value> = prompt::pieces(&body["messages"]).collect();
    for (index, message) in messages.iter().enumerate() {
        check_message(index, message)?;
    }
    check_calls(&messages)?;
    check_thoughts(given, body, &messages)?;
    check_end(given, body, &messages)
}

fn check_marks(body: &Value) -> Result<(), Rejection> {
    let blocks = prompt::blocks(body);
    let marks: Vec<&str> = blocks.iter().filter_map(|block| block.mark).collect();
    if marks.len() > MARKS_MAX {
        let found = marks.len();
        let message = format!(
            "A maximum of {MARKS_MAX} blocks with cache_control may be provided. Found {found}."
        );
        return Err(message.into());
    }
    let is_late = |pair: &[&str]| pair[0] != "1h" && pair[1] == "1h";
    if marks.windows(2).any(is_late) {
        let message = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. \
                       Note that blocks are processed in the following order: `tools`, `system`, `messages`.";
        return Err(message.into());
    }
    Ok(())
}

fn check_message(index: usize, message: &Value) -> Result<(), Rejection> {
    match message["role"].as_str() {
        Some("user" | "assistant") => {}
        Some("system") => {
            return Err(
                format!("messages.{index}: role 'system' is not supported on this model").into()
            );
        }
        role => return Err(format!("messages.{index}.role: unexpected {role:?}").into()),
    }
    let is_empty = match &message["content"] {
        Value::String(text) => text.is_empty(),
        Value::Array(blocks) => blocks.is_empty(),
        _ => true,
    };
    if is_empty {
        return Err(format!("messages.{index}: all messages must have non-empty content").into());
    }
    let is_plain = |id: &str| {
        !id.is_empty() && id.chars().all(|it| it.is_ascii_alphanumeric() || it == '_' || it == '-')
    };
    for (at, block) in prompt::pieces(&message["content"]).enumerate() {
        let place = format!("messages.{index}.content.{at}");
        let kind = block["type"].as_str().unwrap_or("text");
        if block["text"].as_str() == Some("") {
            return Err(format!("{place}: text content blocks must be non-empty").into());
        }
        if kind.ends_with("thinking") && block.get("cache_control").is_some() {
            let message = format!("{place}.{kind}.cache_control: Extra inputs are not permitted");
            return Err(message.into());
        }
        if let Some(name) = block["name"].as_str().filter(|name| !is_plain(name)) {
            let message = format!(
                "{place}.{kind}.name: {name:?}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            );
            return Err(message.into());
        }
        let id = block["id"].as_str().or(block["tool_use_id"].as_str());
        if !id.is_none_or(is_plain) {
            let message =
                format!("{place}.{kind}.id: String should match pattern '^[a-zA-Z0-9_-]+$'");
            return Err(message.into());
        }
    }
    let is_blank =
        |block: &Value| block["text"].as_str().is_some_and(|text| text.trim().is_empty());
    if prompt::pieces(&message["content"]).all(is_blank) {
        return Err("messages: text content blocks must contain non-whitespace text".into());
    }
    Ok(())
}

/// Each call has its result in the next message, and each result its call in the one before. Messages of one role that
/// follow each other are one.
fn check_calls(messages: &[&Value]) -> Result<(), Rejection> {
    let mut turns: Vec<(usize, &Value, Vec<&Value>)> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let blocks = prompt::pieces(&message["content"]);
        match turns.last_mut() {
            Some((_, role, gathered)) if *role == &message["role"] => gathered.extend(blocks),
            _ => turns.push((index, &message["role"], blocks.collect())),
        }
    }
    let ids = |at: Option<usize>, kind: &str, key: &str| -> Vec<&str> {
        let blocks = at.and_then(|at| turns.get(at)).map_or(&[][..], |(_, _, blocks)| blocks);
        let of_kind = blocks.iter().filter(|block| block["type"] == kind);
        of_kind.filter_map(|block| block[key].as_str()).collect()
    };
    let mut seen = HashSet::new();
    for (at, (index, ..)) in turns.iter().enumerate() {
        let calls = ids(Some(at), "tool_use", "id");
        let results = ids(Some(at + 1), "tool_result", "tool_use_id");
        if !calls.iter().all(|call| seen.insert(*call)) {
            return Err("messages: `tool_use` ids must be unique".into());
        }
        if let Some(lost) = calls.iter().find(|call| !results.contains(call)) {
            let message = format!(
                "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {lost}. \
                 Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            );
            return Err(message.into());
        }
        let own = ids(Some(at), "tool_result", "tool_use_id");
        let before = ids(at.checked_sub(1), "tool_use", "id");
        if let Some(stray) = own.iter().find(|id| !before.contains(id)) {
            let message = format!(
                "messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {stray}. Each `tool_result` \
                 block must have a corresponding `tool_use` block in the previous message."
            );
            return Err(message.into());
        }
    }
    Ok(())
}

/// Thoughts come back as they were given out, after exactly what they were thought of.
fn check_thoughts(given: &Given, body: &Value, messages: &[&Value]) -> Result<(), Rejection> {
    let mut prefix = prefix_of_settings(body);
    for (index, message) in messages.iter().enumerate() {
        let section = section(message);
        for (at, block) in prompt::pieces(&message["content"]).enumerate() {
            let kind = block["type"].as_str().unwrap_or_default();
            let key = if kind == "thinking" { "signature" } else { "data" };
            if kind.ends_with("thinking") {
                let sign = block[key].as_str().unwrap_or_default().to_owned();
                let place =
                    format!("messages.{index}.content.{at}: Invalid `{key}` in `{kind}` block");
                if !given.signatures.contains(&sign) {
                    return Err(place.into());
                }
                if !given.bound.contains(&(sign, prefix.digest())) {
                    let message =
                        format!("{place}. The block is bound to a different conversation.");
                    return Err(message.into());
                }
            }
            push(&mut prefix, section, block);
        }
    }
    if body["thinking"]["type"] == "enabled" {
        check_last_thought(given, messages)?;
    }
    Ok(())
}

/// The calls whose results are sent now must stand behind the thought that led to them.
fn check_last_thought(given: &Given, messages: &[&Value]) -> Result<(), Rejection> {
    let Some(index) = messages.iter().rposition(|message| message["role"] == "assistant") else {
        return Ok(());
    };
    let blocks: Vec<&Value> = prompt::pieces(&messages[index]["content"]).collect();
    let was_thought = |block: &&Value| {
        block["id"].as_str().is_some_and(|id| given.thought_calls.contains_key(id))
    };
    let first = blocks.first().and_then(|block| block["type"].as_str()).unwrap_or("text");
    if blocks.iter().any(was_thought) && !first.ends_with("thinking") {
        let message = format!(
            "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When \
             `thinking` is enabled, a final `assistant` message must start with a thinking block."
        );
        return Err(message.into());
    }
    Ok(())
}

fn check_end(given: &Given, body: &Value, messages: &[&Value]) -> Result<(), Rejection> {
    let Some(last) = messages.last() else {
        return Err("messages: at least one message is required".into());
    };
    if last["role"] == "assistant" && !given.paused.contains(&prefix_of(body).digest()) {
        let message = "This model does not support assistant message prefill. The conversation must end with a user message.";
        return Err(message.into());
    }
    Ok(())
}

pub(super) fn remember(given: &mut Given, body: &Value, content: &[Step], pauses: bool) {
    let mut prefix = prefix_of(body);
    for step in content {
        let sign = match step {
            Step::Thought { signature, .. } => Some(signature),
            Step::Redacted(data) => Some(data),
            _ => None,
        };
        if let Some(sign) = sign {
            given.bound.insert((sign.clone(), prefix.digest()));
        }
        // Nobody can send an empty text back.
        if !matches!(step, Step::Text(said) if said.is_empty()) {
            push(&mut prefix, Section::Assistant, &wire::messages_block(step));
        }
    }
    if pauses {
        given.paused.insert(prefix.digest());
    }
}

/// The digest of the whole prompt.
fn prefix_of(body: &Value) -> Prefix {
    let mut prefix = prefix_of_settings(body);
    for message in prompt::pieces(&body["messages"]) {
        for block in prompt::pieces(&message["content"]) {
            push(&mut prefix, section(message), block);
        }
    }
    prefix
}

/// What stands before the messages.
fn prefix_of_settings(body: &Value) -> Prefix {
    let mut prefix = Prefix::default();
    for (section, name) in [(Section::Tools, "tools"), (Section::System, "system")] {
        for piece in prompt::pieces(&body[name]) {
            push(&mut prefix, section, piece);
        }
    }
    prefix
}

fn section(message: &Value) -> Section {
    if message["role"] == "assistant" { Section::Assistant } else { Section::User }
}

fn push(prefix: &mut Prefix, section: Section, block: &Value) {
    prefix.push((section, Block::new(section, block).text));
}
