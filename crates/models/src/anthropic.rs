//! Anthropic's messages, with its marks for prompt caching.

use std::borrow::Cow;

use async_trait::async_trait;
use nexus_core::message::{Message, Role, ToolCall};
use nexus_core::provider::{EventStream, ModelCall, Provider, ProviderError, ToolSpec, Usage};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::calls::Arguments;
use super::http::Http;
use super::json::Json;
use super::stream::{Complaint, Decode, Heard, Phase};
use super::{
    BuildError, ProviderSettings, bytes_estimate, endpoint, last_user, unwritable, visible,
};

/// The interface this file is written for.
const API_VERSION: &str = "2023-06-01";

/// The service insists on a bound. High enough for any answer, and every model there is allows it.
const MAX_TOKENS_DEFAULT: u32 = 8192;

pub(super) struct Anthropic {
    http: Http,
    url: Url,
    prompt_caching: bool,
}

impl Anthropic {
    pub fn new(settings: &ProviderSettings, base: Url) -> Result<Self, BuildError> {
        let version = settings.api_version.as_deref().unwrap_or(API_VERSION);
        let version = HeaderValue::from_str(version).map_err(|_| BuildError::ApiVersion)?;
        let fixed = HeaderMap::from_iter([(HeaderName::from_static("anthropic-version"), version)]);
        // The service's own programs are configured without the `/v1`.
        let versioned = base.path().trim_end_matches('/').ends_with("/v1");
        let segments: &[&str] = if versioned { &["messages"] } else { &["v1", "messages"] };
        Ok(Self {
            http: Http::new(settings, &base, fixed)?,
            url: endpoint(&base, segments),
            prompt_caching: settings.prompt_caching,
        })
    }
}

#[async_trait]
impl Provider for Anthropic {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        let body = request_body(&call, self.prompt_caching).map_err(unwritable)?;
        let response = self.http.post(&self.url, body).await?;
        Ok(self.http.events(response, Answer::default()))
    }
}

/// Writes the body straight from the conversation: a tree of it would double the memory and the time of each call.
///
/// The cache marks end what does not change: the tools, the system prompt, and the messages before the last user's.
fn request_body(call: &ModelCall, prompt_caching: bool) -> serde_json::Result<Vec<u8>> {
    let mark = prompt_caching.then_some(CacheControl { kind: "ephemeral" });
    let messages = visible(&call.messages);
    let head = Head {
        model: &call.model_id,
        max_tokens: call.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT),
        stream: true,
        output_config: call.schema.as_deref().map(OutputConfig::of),
    };
    let mut json = Json::open_object(&head, bytes_estimate(call, &messages))?;
    if let Some((last, others)) = call.tools.split_last() {
        let tools = others.iter().map(|tool| (tool, None)).chain([(last, mark)]);
        json.raw(",\"tools\":");
        json.list(tools, |json, (tool, mark)| write_tool(json, tool, mark))?;
    }
    if !call.system.is_empty() {
        json.raw(",\"system\":[");
        Block { what: What::Text(&call.system), mark }.write(&mut json)?;
        json.raw("]");
    }
    let volatile = call.volatile.as_deref().filter(|text| !text.is_empty());
    let conversation = Conversation { last_user: last_user(&messages), messages, volatile, mark };
    json.raw(",\"messages\":");
    conversation.write(&mut json)?;
    json.raw("}");
    Ok(json.into_bytes())
}

/// Everything but the texts.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    format: OutputFormat<'a>,
}

#[derive(Serialize)]
struct OutputFormat<'a> {
    r#type: &'static str,
    schema: &'a Value,
}

impl<'a> OutputConfig<'a> {
    fn of(schema: &'a Value) -> Self {
        Self { format: OutputFormat { r#type: "json_schema", schema } }
    }
}

fn write_tool(
    json: &mut Json,
    tool: &ToolSpec,
    mark: Option<CacheControl>,
) -> serde_json::Result<()> {
    json.raw("{\"name\":");
    json.text(&tool.name);
    json.raw(",\"description\":");
    json.text(&tool.description);
    json.raw(",\"input_schema\":");
    json.raw(&tool.parameters);
    if let Some(mark) = mark {
        json.raw(",\"cache_control\":");
        json.value(&mark)?;
    }
    json.raw("}");
    Ok(())
}

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
}

struct Conversation<'a> {
    messages: Vec<&'a Message>,
    last_user: Option<usize>,
    volatile: Option<&'a str>,
    mark: Option<CacheControl>,
}

impl Conversation<'_> {
    /// The service wants user and assistant to alternate, so neighbours of one role become one message of many blocks.
    fn write(&self, json: &mut Json) -> serde_json::Result<()> {
        let mut end = 0;
        json.list(self.messages.chunk_by(|a, b| wire_role(a) == wire_role(b)), |json, group| {
            let start = end;
            end += group.len();
            json.raw("{\"role\":\"");
            json.raw(wire_role(group[0]));
            json.raw("\",\"content\":");
            json.list((start..end).flat_map(|at| self.blocks(at)), |json, block| {
                block.write(json)
            })?;
            json.raw("}");
            Ok(())
        })
    }

    /// The blocks of one message; before the last user's words what changes from turn to turn. Empty texts are
    /// refused, so there are none.
    fn blocks(&self, at: usize) -> impl Iterator<Item = Block<'_>> {
        let message = self.messages[at];
        let ends_prefix = self.last_user.is_some_and(|last_user| at + 1 == last_user);
        let mark = self.mark.filter(|_| ends_prefix);
        let volatile = self.volatile.filter(|_| Some(at) == self.last_user);
        let volatile = volatile.map(|text| Block { what: What::Text(text), mark: None });

        let last_call = message.tool_calls.len().checked_sub(1);
        let said = match (message.role, message.tool_call_id.as_deref()) {
            (Role::Tool, Some(id)) => Some(What::Result { id, content: &message.content }),
            _ if message.content.is_empty() => None,
            _ => Some(What::Text(&message.content)),
        };
        let said = said.map(|what| Block { what, mark: mark.filter(|_| last_call.is_none()) });
        let calls = message.tool_calls.iter().enumerate();
        let calls = calls.map(move |(at, call)| Block {
            what: What::Call(call),
            mark: mark.filter(|_| Some(at) == last_call),
        });
        volatile.into_iter().chain(said).chain(calls)
    }
}

fn wire_role(message: &Message) -> &'static str {
    match message.role {
        Role::User | Role::Tool | Role::Summary => "user",
        Role::Assistant => "assistant",
    }
}

/// A content block, and whether the cached prefix ends with it.
struct Block<'a> {
    what: What<'a>,
    mark: Option<CacheControl>,
}

enum What<'a> {
    Text(&'a str),
    Call(&'a ToolCall),
    Result { id: &'a str, content: &'a str },
}

impl Block<'_> {
    fn write(&self, json: &mut Json) -> serde_json::Result<()> {
        match &self.what {
            What::Text(text) => {
                json.raw("{\"type\":\"text\",\"text\":");
                json.text(text);
            }
            What::Call(call) => {
                json.raw("{\"type\":\"tool_use\",\"id\":");
                json.text(&call.id);
                json.raw(",\"name\":");
                json.text(&call.name);
                json.raw(",\"input\":");
                json.value(&Arguments(&call.arguments))?;
            }
            What::Result { id, content } => {
                json.raw("{\"type\":\"tool_result\",\"tool_use_id\":");
                json.text(id);
                json.raw(",\"content\":");
                json.text(content);
            }
        }
        if let Some(mark) = &self.mark {
            json.raw(",\"cache_control\":");
            json.value(mark)?;
        }
        json.raw("}");
        Ok(())
    }
}

/// An answer as it comes in.
#[derive(Default)]
struct Answer {
    usage: WireUsage,
}

impl Decode for Answer {
    fn event(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint> {
        let event: Event = serde_json::from_slice(data)?;
        match &*event.kind {
            "content_block_delta" => {
                let delta = event.delta.unwrap_or_default();
                heard.text(delta.text.unwrap_or_default());
                if let (Some(index), Some(fragment)) = (event.index, delta.partial_json) {
                    heard.calls.append(index, &fragment);
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block.filter(|block| block.kind == "tool_use") {
                    heard.calls.add(event.index, block.id, block.name, "");
                }
            }
            "message_start" => self.usage.update(event.message.and_then(|message| message.usage)),
            "message_delta" => {
                self.usage.update(event.usage);
                if event.delta.is_some_and(|delta| delta.stop_reason.is_some()) {
                    return Ok(Phase::Answered);
                }
            }
            "message_stop" => return Ok(Phase::Over),
            "error" => return Err(Complaint::Error(event.error.unwrap_or_default())),
            // Pings, ends of blocks, and what the service may add: its own rule is to pass over what one does not know.
            _ => {}
        }
        Ok(Phase::Open)
    }

    fn usage(&self) -> Usage {
        self.usage.into()
    }
}

/// Every event in one struct: to branch on the type first would mean to read each event twice.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    index: Option<usize>,
    delta: Option<Delta>,
    content_block: Option<ContentBlock>,
    message: Option<MessageStart>,
    usage: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Deserialize, Default)]
struct Delta {
    text: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct ContentBlock {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct MessageStart {
    usage: Option<WireUsage>,
}

/// Counts so far; what is left out has not changed.
#[derive(Clone, Copy, Deserialize, Default)]
struct WireUsage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl WireUsage {
    fn update(&mut self, newer: Option<Self>) {
        let Some(newer) = newer else { return };
        *self = Self {
            input_tokens: newer.input_tokens.or(self.input_tokens),
            cache_creation_input_tokens: newer
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
            cache_read_input_tokens: newer.cache_read_input_tokens.or(self.cache_read_input_tokens),
            output_tokens: newer.output_tokens.or(self.output_tokens),
        };
    }
}

/// The service counts what went through its cache apart from the rest of the input.
impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        let cached = usage.cache_read_input_tokens.unwrap_or_default();
        let written = usage.cache_creation_input_tokens.unwrap_or_default();
        let read = usage.input_tokens.unwrap_or_default();
        let input = read.saturating_add(written).saturating_add(cached);
        Self { input, output: usage.output_tokens.unwrap_or_default(), cached }
    }
}
