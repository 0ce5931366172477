//! The files of the Python original: `~/.nexus3/sessions/NAME.json`. Members that it does not know are passed over,
//! because later versions of it added some.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use nexus_core::message::{Message, Meta, Role, SharedMessage, ToolCall};
use serde::Deserialize;
use serde_json::Value;

use super::SessionFile;

/// The one version there is.
const SCHEMA_VERSION: u32 = 1;

#[derive(Deserialize)]
struct File {
    #[serde(default = "first")]
    schema_version: u32,
    agent_id: String,
    created_at: String,
    messages: Vec<Entry>,
    #[serde(default)]
    system_prompt: Option<String>,
    working_directory: PathBuf,
    #[serde(default)]
    model_alias: Option<String>,
    #[serde(default)]
    disabled_tools: Vec<String>,
}

fn first() -> u32 {
    SCHEMA_VERSION
}

#[derive(Deserialize)]
struct Entry {
    role: String,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<CallEntry>>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
struct CallEntry {
    id: String,
    name: String,
    #[serde(default = "none")]
    arguments: Value,
}

fn none() -> Value {
    Value::Object(serde_json::Map::new())
}

pub(super) fn parse(value: Value) -> Result<SessionFile, String> {
    let file: File = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if file.schema_version != SCHEMA_VERSION {
        let found = file.schema_version;
        return Err(format!("its schema_version is {found}; this program knows {SCHEMA_VERSION}"));
    }
    let created_at = time(&file.created_at)?;
    let numbered = file.messages.into_iter().enumerate();
    let messages = numbered
        .map(|(at, entry)| {
            message(entry, created_at).map_err(|error| format!("messages.{at}: {error}"))
        })
        .collect::<Result<_, _>>()?;
    Ok(SessionFile {
        name: file.agent_id,
        created_at,
        model: file.model_alias,
        cwd: file.working_directory,
        system_prompt: file.system_prompt.filter(|prompt| !prompt.is_empty()),
        messages,
        bounds: Vec::new(),
        ceiling: None,
        disabled_tools: file.disabled_tools,
    })
}

/// The original writes local time without a zone, and sometimes one with.
fn time(text: &str) -> Result<Timestamp, String> {
    let zoned = || text.parse::<Timestamp>().ok();
    let local = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::system()).ok();
    zoned()
        .or_else(|| local().map(|at| at.timestamp()))
        .ok_or_else(|| format!("created_at {text:?} is no time"))
}

/// Messages of the original have no time of their own; they get that of their session.
fn message(entry: Entry, at: Timestamp) -> Result<SharedMessage, String> {
    let meta = Meta { at, source: Some("import".into()), ..Meta::default() };
    let content = entry.content.unwrap_or_default();
    let message = match entry.role.as_str() {
        "user" => Message::new(Role::User, content, meta),
        "assistant" => {
            let calls = entry.tool_calls.unwrap_or_default().into_iter();
            let calls = calls.map(|it: CallEntry| ToolCall::new(it.id, it.name, it.arguments));
            Message::new(Role::Assistant, content, meta).with_tool_calls(calls.collect())
        }
        "tool" => {
            let id = entry.tool_call_id.ok_or("a tool's result without tool_call_id")?;
            Message::tool_result(id, content, meta)
        }
        // It stands before the conversation and for nothing in it, so all of that stays in the model's sight.
        "system" => Message::new(Role::Summary, content, Meta { covers: Some(0), ..meta }),
        role => return Err(format!("unknown role {role:?}")),
    };
    Ok(Arc::new(message))
}
