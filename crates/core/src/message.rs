//! What is said in a conversation.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde_json::Value;

use crate::name::{AgentId, TurnId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    /// The result of a tool call.
    Tool,
    /// A summary that stands for the older part of the conversation; see `context`.
    Summary,
}

/// One entry of a conversation. Messages are written once and never changed, so they are shared by `Arc`.
#[derive(Debug)]
pub struct Message {
    pub role: Role,
    pub content: String,
    /// What the assistant asked for in this message.
    pub tool_calls: Vec<ToolCall>,
    /// On `Role::Tool`: which call this answers.
    pub tool_call_id: Option<String>,
    pub meta: Meta,
    /// Filled when somebody asks for it: counting needs the tokenizer, which costs time and memory to load.
    tokens: OnceLock<u32>,
    /// Filled as well: a call's arguments have to be written out for it.
    text_bytes: OnceLock<usize>,
}

/// Where a message came from and how it ended. Not shown to the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    pub at: Timestamp,
    /// The turn this message belongs to.
    pub turn: Option<TurnId>,
    pub source: Option<String>,
    pub source_agent: Option<AgentId>,
    /// The text was cut short by a cancel, a failure of the provider or a restart.
    pub interrupted: bool,
    /// On `Role::Summary`: how many messages of the history, from its start, the summary stands for.
    pub covers: Option<usize>,
}

/// A tool call as the model asked for it. The arguments are JSON because that is what a model emits.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

impl ToolCall {
    /// Bytes of text the model wrote, or would see.
    pub fn text_bytes(&self) -> usize {
        self.name.len() + self.arguments.to_string().len()
    }
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>, meta: Meta) -> Self {
        Self {
            role,
            content: content.into(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            meta,
            tokens: OnceLock::new(),
            text_bytes: OnceLock::new(),
        }
    }

    pub fn with_tool_calls(mut self, calls: Vec<ToolCall>) -> Self {
        self.tool_calls = calls;
        self
    }

    /// The answer to the tool call `id`.
    pub fn tool_result(id: impl Into<String>, content: impl Into<String>, meta: Meta) -> Self {
        Self { tool_call_id: Some(id.into()), ..Self::new(Role::Tool, content, meta) }
    }

    /// Bytes of text the model would see, counted once: an upper bound on tokens that needs no tokenizer.
    pub fn text_bytes(&self) -> usize {
        *self.text_bytes.get_or_init(|| {
            let calls: usize = self.tool_calls.iter().map(ToolCall::text_bytes).sum();
            self.content.len() + calls
        })
    }

    /// About how much memory the message takes.
    pub fn memory_bytes(&self) -> usize {
        let call = |call: &ToolCall| {
            size_of::<ToolCall>() + call.id.len() + call.name.len() + held_by(&call.arguments)
        };
        let calls: usize = self.tool_calls.iter().map(call).sum();
        size_of::<Self>() + self.content.len() + calls
    }

    /// Tokens of the text, counted once.
    pub fn tokens(&self, counter: &dyn crate::tokens::TokenCounter) -> u32 {
        *self.tokens.get_or_init(|| {
            let calls: u32 = self
                .tool_calls
                .iter()
                .map(|call| counter.count(&call.name) + counter.count(&call.arguments.to_string()))
                .sum();
            counter.count(&self.content) + calls + crate::tokens::PER_MESSAGE
        })
    }
}

/// About what a JSON value holds beside itself. Some are many times as large as their text: `[0,0]` is five bytes.
fn held_by(value: &Value) -> usize {
    let of = |value: &Value| size_of::<Value>() + held_by(value);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(of).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| size_of::<String>() + name.len() + of(value)).sum()
        }
    }
}

/// A shared, unchangeable message.
pub type SharedMessage = Arc<Message>;
