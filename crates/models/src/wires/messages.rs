//! Anthropic's messages, with its marks for prompt caching and its signed thoughts.

use std::borrow::Cow;

use async_trait::async_trait;
use nexus_core::message::{Attachment, Message, Part, Role, Stop, StopReason, Thought, ToolCall};
use nexus_core::model::{Effort, ThinkingKind};
use nexus_core::provider::{EventStream, ModelCall, Provider, ProviderError, Recurs, ToolSpec};
use nexus_core::usage::Usage;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::shown::{Shown, result_text, shown};
use super::{
    budget, bytes_estimate, earlier, effort, is_own, payload, turn_start, unwritable, visible,
};
use crate::bounds::{few, lenient};
use crate::calls::{Arguments, IdForm, holds_too_much, plain_name};
use crate::heard::Heard;
use crate::http::Http;
use crate::json::{Body, Json};
use crate::stream::{Complaint, Decode, Phase};
use crate::{BuildError, CacheTtl, ProviderSettings, endpoint};

/// The interface this file is written for, and what servers that speak alike know of it.
const API_VERSION: &str = "2026-10-21";
const API_VERSION_ELSEWHERE: &str = "2023-06-01";

const OWN_HOST: &str = "api.anthropic.com";

/// The service insists on a bound. Of a model nobody knows, this is one that every model there is allows.
const MAX_TOKENS_DEFAULT: u32 = 8192;

/// Thinking in tokens, for models that are not asked by effort.
const BUDGETS: [u32; 3] = [4_096, 16_384, 32_768];
const BUDGET_MAX: u32 = 64_000;
const BUDGET_LEAST: u32 = 1_024;

pub(crate) struct Messages {
    http: Http,
    url: Url,
    marks: Option<CacheTtl>,
}

impl Messages {
    pub fn new(settings: &ProviderSettings, base: Url) -> Result<Self, BuildError> {
        let own = base.host_str() == Some(OWN_HOST);
        let usual = if own { API_VERSION } else { API_VERSION_ELSEWHERE };
        let version = settings.api_version.as_deref().unwrap_or(usual);
        let version = HeaderValue::from_str(version).map_err(|_| BuildError::ApiVersion)?;
        let fixed = HeaderMap::from_iter([(HeaderName::from_static("anthropic-version"), version)]);
        // The service's own programs are configured without the `/v1`.
        let versioned = base.path().trim_end_matches('/').ends_with("/v1");
        let segments: &[&str] = if versioned { &["messages"] } else { &["v1", "messages"] };
        Ok(Self {
            http: Http::new(settings, &base, fixed)?,
            url: endpoint(&base, segments),
            marks: settings.prompt_caching.then_some(settings.cache_ttl),
        })
    }
}

#[async_trait]
impl Provider for Messages {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        let body = request_body(&call, self.marks).map_err(unwritable)?;
        let response = self.http.post(&self.url, body, &call).await?;
        Ok(self.http.events(response, Answer::default(), &call))
    }
}

/// Writes the body straight from the conversation: a tree of it would double the memory and the time of each call.
pub(crate) fn request_body(call: &ModelCall, marks: Option<CacheTtl>) -> serde_json::Result<Body> {
    let messages = visible(&call.messages);
    let max_tokens = call.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT);
    let thinking = thinking(call, max_tokens);
    let head = Head {
        model: &call.model.id,
        max_tokens,
        stream: true,
        output_config: OutputConfig::of(call.schema.as_deref(), thinking.effort),
        thinking: thinking.asked,
        extra: &call.model.extra_body,
    };
    let mut json = Json::open_object(&head, bytes_estimate(call, &messages))?;
    let ttl = marks.filter(|_| call.recurs != Recurs::Nothing);
    let marker = Marker { ttl, minimum_bytes: call.model.cache_minimum as usize * 4 };
    // One of mere spaces is refused.
    let has_system = !call.system.trim().is_empty();
    if let Some((last, others)) = call.tools.split_last() {
        // Where there is a system text, its end covers the tools too.
        let marked = !has_system;
        json.raw(",\"tools\":[");
        for tool in others {
            write_tool(&mut json, tool, None);
            json.raw(",");
        }
        write_tool(&mut json, last, marked.then_some(&marker));
        json.raw("]");
    }
    if has_system {
        json.raw(",\"system\":[{\"type\":\"text\",\"text\":");
        json.text(&call.system);
        marker.lasting(&mut json);
        json.raw("}]");
    }
    json.raw(",\"messages\":");
    json.begin_blocks();
    Conversation::new(call, messages, marker).write(&mut json)?;
    json.raw("}");
    Ok(json.into_body())
}

/// Everything but the texts.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingAsked>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<OutputFormat<'a>>,
}

#[derive(Serialize)]
struct OutputFormat<'a> {
    r#type: &'static str,
    schema: &'a Value,
}

impl<'a> OutputConfig<'a> {
    fn of(schema: Option<&'a Value>, effort: Option<&'static str>) -> Option<Self> {
        let format = schema.map(|schema| OutputFormat { r#type: "json_schema", schema });
        (format.is_some() || effort.is_some()).then_some(Self { effort, format })
    }
}

#[derive(Serialize)]
struct ThinkingAsked {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_tokens: Option<u32>,
}

/// What is asked of the model's thinking.
#[derive(Default)]
struct Thinking {
    asked: Option<ThinkingAsked>,
    effort: Option<&'static str>,
}

fn thinking(call: &ModelCall, max_tokens: u32) -> Thinking {
    let facts = &call.model.thinking;
    if call.reasoning.is_off() {
        return Thinking::default();
    }
    let asked = |r#type, budget_tokens| Some(ThinkingAsked { r#type, budget_tokens });
    if call.reasoning.effort() == Some(Effort::None) && !facts.always_on {
        return Thinking { asked: asked("disabled", None), effort: None };
    }
    if facts.kind == ThinkingKind::Budget {
        // It has to leave room for the answer itself.
        let most = BUDGET_MAX.min(max_tokens / 2);
        let budget = budget(call.reasoning, BUDGETS, most);
        return match budget >= BUDGET_LEAST {
            true => Thinking { asked: asked("enabled", Some(budget)), effort: None },
            false => Thinking::default(),
        };
    }
    let effort = effort(call).map(|effort| match effort {
        Effort::None | Effort::Minimal => Effort::Low.name(),
        other => other.name(),
    });
    Thinking { asked: asked("adaptive", None), effort }
}

fn write_tool(json: &mut Json, tool: &ToolSpec, mark: Option<&Marker>) {
    json.raw("{\"name\":");
    json.text(&tool.name);
    json.raw(",\"description\":");
    json.text(&tool.description);
    json.raw(",\"input_schema\":");
    json.raw(&tool.parameters);
    if let Some(marker) = mark {
        marker.lasting(json);
    }
    json.raw("}");
}

/// Marks where a prefix ends that is worth keeping.
pub(super) struct Marker {
    pub ttl: Option<CacheTtl>,
    /// A prefix of fewer is not kept, and the mark wasted.
    pub minimum_bytes: usize,
}

impl Marker {
    /// Ends what stays for the whole conversation or turn.
    pub fn lasting(&self, json: &mut Json) {
        match self.ttl {
            Some(CacheTtl::OneHour) => {
                self.write(json, ",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}");
            }
            Some(CacheTtl::FiveMinutes) => self.passing(json),
            None => {}
        }
    }

    /// Ends what the next step reads.
    pub fn passing(&self, json: &mut Json) {
        if self.ttl.is_some() {
            self.write(json, ",\"cache_control\":{\"type\":\"ephemeral\"}");
        }
    }

    fn write(&self, json: &mut Json, mark: &str) {
        if json.len() >= self.minimum_bytes {
            json.aside(|json| json.raw(mark));
        }
    }
}

/// A part of a message, as a block.
enum Block<'a> {
    Text(&'a str),
    Thinking {
        text: &'a str,
        signature: String,
    },
    Redacted(String),
    /// Of a kind that is not known.
    Raw(Box<RawValue>),
    Call(&'a ToolCall),
    Result {
        message: &'a Message,
        words: Cow<'a, str>,
        beside: Vec<Shown<'a>>,
    },
    Shown(Shown<'a>),
}

struct Conversation<'a> {
    call: &'a ModelCall,
    messages: Vec<&'a Message>,
    marker: Marker,
    /// The message that began the turn, and the last of the previous request.
    turn_start: Option<usize>,
    previous_end: Option<usize>,
    /// How many of `messages` belong to earlier epochs.
    earlier: usize,
}

/// What only this wire can read of a thought.
#[derive(Deserialize)]
struct Seal {
    signature: Option<String>,
    redacted: Option<String>,
    raw: Option<Box<RawValue>>,
}

impl<'a> Conversation<'a> {
    fn new(call: &'a ModelCall, messages: Vec<&'a Message>, marker: Marker) -> Self {
        let last_answer = messages.iter().rposition(|message| message.role == Role::Assistant);
        Self {
            turn_start: turn_start(&messages),
            previous_end: last_answer.and_then(|at| at.checked_sub(1)),
            earlier: earlier(call),
            call,
            messages,
            marker,
        }
    }

    /// The service wants user and assistant to alternate, so neighbours of one role become one message of many blocks.
    fn write(&self, json: &mut Json) -> serde_json::Result<()> {
        let (mut end, mut turn_begun) = (0, false);
        json.list(self.messages.chunk_by(|a, b| wire_role(a) == wire_role(b)), |json, group| {
            let start = end;
            end += group.len();
            json.raw("{\"role\":\"");
            json.raw(wire_role(group[0]));
            json.raw("\",\"content\":");
            let blocks = (start..end).flat_map(|at| {
                let blocks = self.blocks(at);
                let last = blocks.iter().rposition(Block::takes_mark);
                blocks
                    .into_iter()
                    .enumerate()
                    .map(move |(number, block)| (block, Some(number) == last, at))
            });
            json.list(blocks, |json, (block, last, at)| {
                if Some(at) == self.turn_start && !turn_begun {
                    turn_begun = true;
                    json.begin_turn();
                }
                block.write(json)?;
                json.end_block();
                if Some(at) == self.turn_start {
                    json.asked_so_far();
                }
                if last {
                    self.mark(json, at);
                }
                json.raw("}");
                Ok(())
            })?;
            json.raw("}");
            Ok(())
        })
    }

    /// Four marks at most, with the one on the system text: more are refused.
    fn mark(&self, json: &mut Json, at: usize) {
        if Some(at) == self.turn_start {
            self.marker.lasting(json);
        } else if Some(at) == self.previous_end || at + 1 == self.messages.len() {
            self.marker.passing(json);
        }
    }

    /// The blocks of one message. Empty texts are refused, so there are none.
    fn blocks(&self, at: usize) -> Vec<Block<'a>> {
        let message = self.messages[at];
        if message.role == Role::Tool {
            return vec![self.result(message)];
        }
        let thoughts = at >= self.earlier && is_own(message, self.call);
        let block = |part: &'a Part| match part {
            Part::Text(text) | Part::Context(text) => Some(Block::Text(text)),
            Part::Call(call) => Some(Block::Call(call)),
            Part::Thought(thought) if thoughts => thought_block(thought),
            Part::Attachment(attachment) => Some(Block::Shown(shown(self.call, attachment))),
            Part::Thought(_) => None,
        };
        message.parts.iter().filter_map(block).collect()
    }

    /// The result of a call. One that says of itself that it failed may hold words alone.
    fn result(&self, message: &'a Message) -> Block<'a> {
        let is_shown =
            |it: &Attachment| !message.meta.failed && self.call.model.inputs.take(it.kind);
        let beside = message.attachments().filter(|it| is_shown(it));
        let beside = beside.map(|it| shown(self.call, it)).collect();
        Block::Result { message, words: result_text(message, is_shown), beside }
    }
}

/// What a call came to, where that is more than words.
fn write_result(json: &mut Json, words: &str, beside: &[Shown<'_>]) -> serde_json::Result<()> {
    let words = (!words.is_empty()).then(|| Shown::Words(words.into()));
    json.list(words.iter().chain(beside), |json, part| {
        write_shown(json, part);
        json.raw("}");
        Ok(())
    })
}

/// Leaves the object open.
fn write_shown(json: &mut Json, shown: &Shown<'_>) {
    match shown {
        Shown::Image { media_type, bytes } => {
            json.raw("{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":");
            json.text(media_type);
            json.raw(",\"data\":");
            json.base64(&[], bytes);
            json.raw("}");
        }
        Shown::Document { media_type, name, bytes } => {
            json.raw("{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"media_type\":");
            json.text(media_type);
            json.raw(",\"data\":");
            json.base64(&[], bytes);
            json.raw("}");
            if let Some(name) = name {
                json.raw(",\"title\":");
                json.text(name);
            }
        }
        Shown::Address(url) => {
            json.raw("{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":");
            json.text(url);
            json.raw("}");
        }
        Shown::Words(words) => {
            json.raw("{\"type\":\"text\",\"text\":");
            json.text(words);
        }
    }
}

/// A thought as it came; one that bears no seal of this service's is not taken back.
fn thought_block(thought: &Thought) -> Option<Block<'_>> {
    let seal: Seal = payload(thought.payload.as_deref())?;
    match seal {
        Seal { signature: Some(signature), .. } => {
            Some(Block::Thinking { text: &thought.text, signature })
        }
        Seal { redacted: Some(data), .. } => Some(Block::Redacted(data)),
        Seal { raw, .. } => raw.map(Block::Raw),
    }
}

fn wire_role(message: &Message) -> &'static str {
    match message.role {
        Role::User | Role::Tool | Role::Summary => "user",
        Role::Assistant => "assistant",
    }
}

impl Block<'_> {
    /// Thoughts take none.
    fn takes_mark(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Call(_) | Self::Result { .. } | Self::Shown(_))
    }

    /// Leaves the object open.
    fn write(&self, json: &mut Json) -> serde_json::Result<()> {
        match self {
            Self::Text(text) => {
                json.raw("{\"type\":\"text\",\"text\":");
                json.text(text);
            }
            Self::Thinking { text, signature } => {
                json.raw("{\"type\":\"thinking\",\"thinking\":");
                json.text(text);
                json.raw(",\"signature\":");
                json.text(signature);
            }
            Self::Redacted(data) => {
                json.raw("{\"type\":\"redacted_thinking\",\"data\":");
                json.text(data);
            }
            Self::Raw(raw) => json.raw(raw.get().trim_end().strip_suffix('}').unwrap_or("{")),
            Self::Call(call) => {
                json.raw("{\"type\":\"tool_use\",\"id\":");
                json.text(&IdForm::Plain.of(&call.id));
                json.raw(",\"name\":");
                json.text(&plain_name(&call.name));
                json.raw(",\"input\":");
                json.value(&Arguments(&call.arguments))?;
            }
            Self::Shown(shown) => write_shown(json, shown),
            Self::Result { message, words, beside } => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                json.raw("{\"type\":\"tool_result\",\"tool_use_id\":");
                json.text(&IdForm::Plain.of(id));
                json.raw(",\"content\":");
                match beside.is_empty() {
                    true => json.text(words),
                    false => write_result(json, words, beside)?,
                }
                if message.meta.failed {
                    json.raw(",\"is_error\":true");
                }
            }
        }
        Ok(())
    }
}

/// An answer as it comes in.
#[derive(Default)]
pub(super) struct Answer {
    usage: WireUsage,
    /// What the block that is open is.
    open: Open,
}

#[derive(Default)]
enum Open {
    #[default]
    Nothing,
    Text,
    Thinking {
        signature: String,
    },
    Call,
    /// Of a kind that is not known.
    Unknown(Unknown),
}

/// A block that goes back as it came, whatever it is: how it began, and what was added since.
struct Unknown {
    /// `None` where it holds more than is read.
    block: Option<Map<String, Value>>,
    /// What it is given, as it is told in pieces.
    input: String,
}

impl Decode for Answer {
    fn event(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint> {
        let event: Event = serde_json::from_slice(data)?;
        match &*event.kind {
            "content_block_delta" => {
                self.delta(event.index, event.delta.unwrap_or_default(), heard)
            }
            "content_block_start" => {
                self.end_block(heard);
                if let Some(block) = event.content_block {
                    self.begin_block(event.index, block, heard)?;
                }
            }
            "content_block_stop" => self.end_block(heard),
            "message_start" => {
                self.usage.update(event.message.and_then(|message| message.usage));
                heard.usage = self.usage.into();
            }
            "message_delta" => {
                self.usage.update(event.usage);
                heard.usage = self.usage.into();
                let delta = event.delta.unwrap_or_default();
                if let Some(reason) = delta.stop_reason {
                    self.end_block(heard);
                    stop(&reason, delta.stop_details, heard);
                    return Ok(Phase::Answered);
                }
            }
            "message_stop" => return Ok(Phase::Over),
            "error" => return Err(Complaint::Error(event.error.unwrap_or_default())),
            // Pings, and what the service may add: its own rule is to pass over what one does not know.
            _ => {}
        }
        Ok(Phase::Open)
    }

    fn document(&mut self, data: &[u8], heard: &mut Heard) -> Result<(), Complaint> {
        let document: Document = serde_json::from_slice(data)?;
        if let Some(error) = document.error {
            return Err(Complaint::Error(error));
        }
        for (index, block) in document.content.into_iter().enumerate() {
            self.begin_block(Some(index), block, heard)?;
            self.end_block(heard);
        }
        self.usage.update(document.usage);
        heard.usage = self.usage.into();
        stop(&document.stop_reason.unwrap_or_default(), document.stop_details, heard);
        Ok(())
    }
}

impl Answer {
    /// A block may begin with some of what it holds, or with all of it.
    fn begin_block(
        &mut self,
        index: Option<usize>,
        block: &RawValue,
        heard: &mut Heard,
    ) -> Result<(), Complaint> {
        let begun: ContentBlock = serde_json::from_str(block.get())?;
        self.open = match &*begun.kind {
            "text" => {
                heard.begin_text();
                heard.text(begun.text.unwrap_or_default());
                Open::Text
            }
            "thinking" => {
                heard.begin_thought();
                heard.think(begun.thinking.unwrap_or_default());
                Open::Thinking { signature: begun.signature.unwrap_or_default() }
            }
            "redacted_thinking" => {
                heard.seal_alone(&json!({ "redacted": begun.data }));
                Open::Nothing
            }
            "tool_use" => {
                let whole =
                    begun.input.filter(|input| !matches!(input.get(), "{}" | "null" | "\"\""));
                let arguments = whole.map_or("", RawValue::get);
                heard.call(index, begun.id, begun.name, arguments);
                Open::Call
            }
            _ => {
                let block = Some(block.get()).filter(|block| !holds_too_much(block));
                let block = block.map(serde_json::from_str).transpose()?;
                Open::Unknown(Unknown { block, input: String::new() })
            }
        };
        Ok(())
    }

    fn delta(&mut self, index: Option<usize>, delta: Delta, heard: &mut Heard) {
        if let Open::Unknown(unknown) = &mut self.open {
            heard.held_bytes += unknown.add(delta);
            return;
        }
        heard.text(delta.text.unwrap_or_default());
        if let Some(text) = delta.thinking {
            if !matches!(self.open, Open::Thinking { .. }) {
                heard.begin_thought();
                self.open = Open::Thinking { signature: String::new() };
            }
            heard.think(text);
        }
        if let (Some(more), Open::Thinking { signature }) = (delta.signature, &mut self.open) {
            heard.held_bytes += more.len();
            signature.push_str(&more);
        }
        if let (Some(index), Some(fragment)) = (index, delta.partial_json) {
            heard.calls.append(index, &fragment);
        }
    }

    fn end_block(&mut self, heard: &mut Heard) {
        heard.held_bytes = 0;
        match std::mem::take(&mut self.open) {
            Open::Thinking { signature } if !signature.is_empty() => {
                heard.seal(&json!({ "signature": signature }));
            }
            Open::Unknown(unknown) => {
                if let Some(block) = unknown.whole() {
                    heard.seal_alone(&json!({ "raw": block }));
                }
            }
            Open::Thinking { .. } | Open::Nothing | Open::Text | Open::Call => {}
        }
    }
}

impl Unknown {
    /// How many bytes were added.
    fn add(&mut self, delta: Delta) -> usize {
        let input = delta.partial_json.unwrap_or_default();
        self.input.push_str(&input);
        let mut bytes = input.len();
        let texts =
            [("text", delta.text), ("thinking", delta.thinking), ("signature", delta.signature)];
        for (name, more) in texts {
            let Some(more) = more else { continue };
            bytes += more.len();
            let Some(block) = &mut self.block else { continue };
            match block.get_mut(name) {
                Some(Value::String(text)) => text.push_str(&more),
                _ => drop(block.insert(name.to_owned(), Value::String(more))),
            }
        }
        bytes
    }

    /// The block as it would have come in one piece; `None` when its end is missing, which nobody could make up, and when
    /// it holds too much.
    fn whole(self) -> Option<Map<String, Value>> {
        let mut block = self.block?;
        if !self.input.is_empty() {
            if holds_too_much(&self.input) {
                return None;
            }
            block.insert("input".to_owned(), serde_json::from_str(&self.input).ok()?);
        }
        Some(block)
    }
}

/// Takes in why the model stopped.
fn stop(word: &str, details: Option<Value>, heard: &mut Heard) {
    let reason = match word {
        "end_turn" | "tool_use" | "stop_sequence" => StopReason::EndTurn,
        "max_tokens" => StopReason::MaxTokens,
        "model_context_window_exceeded" => StopReason::ContextWindow,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Pause,
        odd => return heard.stopped_oddly(odd),
    };
    let details = details.filter(|details| !details.is_null());
    heard.stop.get_or_insert(Stop { reason, details });
}

/// Every event in one struct: to branch on the type first would mean to read each event twice.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    index: Option<usize>,
    delta: Option<Delta>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    message: Option<MessageStart>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Deserialize, Default)]
struct Delta {
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
    stop_details: Option<Value>,
}

#[derive(Deserialize)]
struct ContentBlock<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    id: Option<String>,
    name: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// A whole answer.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(default, borrow, deserialize_with = "few")]
    content: Vec<&'a RawValue>,
    stop_reason: Option<String>,
    stop_details: Option<Value>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct MessageStart {
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
}

/// Counts so far; what is left out has not changed.
#[derive(Clone, Copy, Deserialize, Default)]
struct WireUsage {
    #[serde(default, deserialize_with = "lenient")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Clone, Copy, Deserialize, Default)]
struct OutputDetails {
    #[serde(default, deserialize_with = "lenient")]
    thinking_tokens: Option<u64>,
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
            output_tokens_details: newer.output_tokens_details.or(self.output_tokens_details),
        };
    }
}

/// The service counts what went through its cache apart from the rest of the input.
impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        let cache_read = usage.cache_read_input_tokens.unwrap_or_default();
        let cache_write = usage.cache_creation_input_tokens.unwrap_or_default();
        let read = usage.input_tokens.unwrap_or_default();
        Self {
            input: read.saturating_add(cache_write).saturating_add(cache_read),
            cache_read,
            cache_write,
            output: usage.output_tokens.unwrap_or_default(),
            reasoning: usage
                .output_tokens_details
                .and_then(|details| details.thinking_tokens)
                .unwrap_or_default(),
            ..Self::default()
        }
    }
}
