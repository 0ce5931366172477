//! Gemini's `generateContent`, with signatures on any part of an answer.
//!
//! A signature stands in a thought of its own before the part that bore it, and goes back with exactly this part: parts that
//! bear one are never joined with others. Calls are known by the ids that the service gave them. Where it gave none, we make
//! one up for ourselves and keep it to ourselves, as we do with the ids of other services: it would refuse the field.

use std::borrow::Cow;

use async_trait::async_trait;
use nexus_core::message::{
    Attachment, Message, Part, Role, Source, Stop, StopReason, Thought, ToolCall,
};
use nexus_core::model::{Effort, ThinkingKind};
use nexus_core::provider::{EventStream, ModelCall, Provider, ProviderError, ToolSpec};
use nexus_core::usage::Usage;
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::shown::{Shown, in_words, result_text, shown};
use super::{
    bytes_estimate, earlier, effort, is_of_model, is_own, payload, schema_in_words, turn_start,
    unwritable, visible,
};
use crate::bounds::{few, lenient};
use crate::calls::{Arguments, plain_name, random};
use crate::heard::Heard;
use crate::http::Http;
use crate::json::{Body, Json};
use crate::stream::{Complaint, Decode, Phase};
use crate::{BuildError, ProviderSettings, endpoint};

/// What the service takes for the signature of a call that it did not make.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// How the ids begin that the service did not give.
const OWN_ID: &str = "unnamed_";

/// Thinking in tokens, for models that are not asked by level. The most that all of them take is that for much.
const BUDGET_LITTLE: i32 = 2_048;
const BUDGET_SOME: i32 = 8_192;
const BUDGET_MUCH: i32 = 24_576;
/// As the model sees fit.
const BUDGET_FREE: i32 = -1;
/// The least for a model that cannot do without.
const BUDGET_LEAST: i32 = 128;

pub(crate) struct GenerateContent {
    http: Http,
    base: Url,
}

impl GenerateContent {
    pub fn new(settings: &ProviderSettings, base: Url) -> Result<Self, BuildError> {
        Ok(Self { http: Http::new(settings, &base, HeaderMap::new())?, base })
    }

    /// The model's id may name a collection beside the usual one.
    fn url(&self, model: &str) -> Url {
        let (collection, name) = model.split_once('/').unwrap_or(("models", model));
        let mut url = endpoint(&self.base, &[collection, &format!("{name}:streamGenerateContent")]);
        url.query_pairs_mut().append_pair("alt", "sse");
        url
    }
}

#[async_trait]
impl Provider for GenerateContent {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        let body = request_body(&call).map_err(unwritable)?;
        let response = self.http.post(&self.url(&call.model.id), body, &call).await?;
        Ok(self.http.events(response, Answer::default(), &call))
    }
}

/// Writes the body straight from the conversation: a tree of it would double the memory and the time of each call.
pub(super) fn request_body(call: &ModelCall) -> serde_json::Result<Body> {
    let messages = visible(&call.messages);
    // Models before Gemini 3 cannot have both.
    let can_hold = call.tools.is_empty() || call.model.thinking.kind != ThinkingKind::Budget;
    let (held, asked) = match call.schema.as_deref() {
        Some(schema) if can_hold => (Some(schema), None),
        schema => (None, schema.map(schema_in_words)),
    };
    let head =
        Head { generation_config: GenerationConfig::of(call, held), extra: &call.model.extra_body };
    let mut json = Json::open_object(&head, bytes_estimate(call, &messages))?;
    if !call.tools.is_empty() {
        separate(&mut json);
        json.raw("\"tools\":[{\"functionDeclarations\":");
        json.list(&*call.tools, write_tool)?;
        json.raw("}]");
    }
    let system = [Some(&*call.system).filter(|text| !text.is_empty()), asked.as_deref()];
    if system != [None, None] {
        separate(&mut json);
        json.raw("\"systemInstruction\":{\"parts\":");
        json.list(system.into_iter().flatten(), write_text)?;
        json.raw("}");
    }
    separate(&mut json);
    json.raw("\"contents\":");
    json.begin_blocks();
    Conversation { call, earlier: earlier(call), messages }.write(&mut json)?;
    json.raw("}");
    Ok(json.into_body())
}

/// Ends the member before the next one of an open object, if there is one.
fn separate(json: &mut Json) {
    if json.len() > 1 {
        json.raw(",");
    }
}

/// Everything but the texts.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_config: Option<GenerationConfig<'a>>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
}

impl<'a> GenerationConfig<'a> {
    fn of(call: &ModelCall, schema: Option<&'a Value>) -> Option<Self> {
        let thinking_config = ThinkingConfig::of(call);
        let says = call.max_tokens.is_some() || schema.is_some() || thinking_config.is_some();
        says.then_some(Self {
            max_output_tokens: call.max_tokens,
            response_mime_type: schema.map(|_| "application/json"),
            response_json_schema: schema,
            thinking_config,
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    /// Refused where nothing is thought.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<i32>,
}

impl ThinkingConfig {
    fn of(call: &ModelCall) -> Option<Self> {
        if call.reasoning.is_off() {
            return None;
        }
        if call.model.thinking.kind == ThinkingKind::Budget {
            let thinking_budget = budget(call);
            let include_thoughts = thinking_budget != Some(0);
            return Some(Self { include_thoughts, thinking_level: None, thinking_budget });
        }
        let thinking_level = effort(call).map(|effort| match effort {
            Effort::None | Effort::Minimal => "MINIMAL",
            Effort::Low => "LOW",
            Effort::Medium => "MEDIUM",
            Effort::High | Effort::Xhigh | Effort::Max => "HIGH",
        });
        Some(Self { include_thoughts: true, thinking_level, thinking_budget: None })
    }
}

fn budget(call: &ModelCall) -> Option<i32> {
    if let Some(tokens) = call.reasoning.budget_tokens() {
        return Some(i32::try_from(tokens).unwrap_or(BUDGET_MUCH).min(BUDGET_MUCH));
    }
    Some(match call.reasoning.effort()? {
        Effort::None if call.model.thinking.always_on => BUDGET_LEAST,
        Effort::None => 0,
        Effort::Minimal | Effort::Low => BUDGET_LITTLE,
        Effort::Medium => BUDGET_SOME,
        Effort::High => BUDGET_MUCH,
        Effort::Xhigh | Effort::Max => BUDGET_FREE,
    })
}

fn write_tool(json: &mut Json, tool: &ToolSpec) -> serde_json::Result<()> {
    json.raw("{\"name\":");
    json.text(&tool.name);
    json.raw(",\"description\":");
    json.text(&tool.description);
    json.raw(",\"parametersJsonSchema\":");
    json.raw(&tool.parameters);
    json.raw("}");
    Ok(())
}

fn write_text(json: &mut Json, text: &str) -> serde_json::Result<()> {
    json.raw("{\"text\":");
    json.text(text);
    json.raw("}");
    Ok(())
}

struct Conversation<'a> {
    call: &'a ModelCall,
    messages: Vec<&'a Message>,
    /// How many of `messages` belong to earlier epochs.
    earlier: usize,
}

/// A part of a content.
enum Block<'a> {
    Text {
        text: &'a str,
        signature: Option<String>,
    },
    Thought {
        text: &'a str,
        signature: Option<String>,
    },
    Call {
        call: &'a ToolCall,
        has_id: bool,
        signature: Option<String>,
    },
    Result {
        result: &'a Message,
        words: Cow<'a, str>,
        name: &'a str,
        has_id: bool,
    },
    Inline {
        media_type: &'a str,
        bytes: &'a [u8],
    },
    /// In place of an attachment.
    Words(String),
    /// As it came, of a kind that is not known.
    Raw(Box<RawValue>),
}

/// Whether an attachment is sent along with the request.
fn is_inline(call: &ModelCall, attachment: &Attachment) -> bool {
    matches!(attachment.source, Source::Blob(_)) && call.model.inputs.take(attachment.kind)
}

/// What only this wire can read of a thought.
#[derive(Serialize, Deserialize, Default)]
struct Seal {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    /// What bore the signature.
    #[serde(default)]
    on: Bearer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw: Option<Box<RawValue>>,
}

#[derive(Clone, Copy, Serialize, Deserialize, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Bearer {
    /// A text without words, which stands here.
    #[default]
    Nothing,
    /// The thought itself.
    Thought,
    /// The text that follows.
    Text,
    /// The call that follows.
    Call,
}

impl<'a> Conversation<'a> {
    /// The results of a step are one content, and so is what a model said without being answered.
    fn write(&self, json: &mut Json) -> serde_json::Result<()> {
        let joins = |a: &&Message, b: &&Message| {
            a.role == b.role && matches!(a.role, Role::Tool | Role::Assistant)
        };
        let (mut end, mut turn_begun) = (0, false);
        let turn_start = turn_start(&self.messages);
        json.list(self.messages.chunk_by(joins), |json, group| {
            let start = end;
            end += group.len();
            json.raw(match group[0].role {
                Role::Assistant => "{\"role\":\"model\",\"parts\":",
                Role::User | Role::Tool | Role::Summary => "{\"role\":\"user\",\"parts\":",
            });
            let blocks = (start..end)
                .flat_map(|at| self.blocks(at).into_iter().map(move |block| (at, block)));
            json.list(blocks, |json, (at, block)| {
                let asks = Some(at) == turn_start;
                if asks && !turn_begun {
                    turn_begun = true;
                    json.begin_turn();
                }
                block.write(json)?;
                json.end_block();
                if asks {
                    json.asked_so_far();
                }
                Ok(())
            })?;
            json.raw("}");
            Ok(())
        })
    }

    fn blocks(&self, at: usize) -> Vec<Block<'a>> {
        let message = self.messages[at];
        match message.role {
            // A result holds words alone; what else came of the call stands behind it.
            Role::Tool => {
                let beside = message.attachments().filter(|it| is_inline(self.call, it));
                [self.result(at)].into_iter().chain(beside.map(|it| self.shown(it))).collect()
            }
            Role::Assistant => self.answer(message, at >= self.earlier),
            Role::User | Role::Summary => {
                let block = |part: &'a Part| match part {
                    Part::Text(text) | Part::Context(text) => {
                        Some(Block::Text { text, signature: None })
                    }
                    Part::Attachment(attachment) => Some(self.shown(attachment)),
                    Part::Thought(_) | Part::Call(_) => None,
                };
                message.parts.iter().filter_map(block).collect()
            }
        }
    }

    fn shown(&self, attachment: &'a Attachment) -> Block<'a> {
        match shown(self.call, attachment) {
            Shown::Image { media_type, bytes } | Shown::Document { media_type, bytes, .. } => {
                Block::Inline { media_type, bytes }
            }
            Shown::Words(words) => Block::Words(words.into_owned()),
            // The service fetches nothing but what it keeps itself.
            Shown::Address(_) => Block::Words(in_words(attachment)),
        }
    }

    /// What a tool answered, under the name of the call before it.
    fn result(&self, at: usize) -> Block<'a> {
        let result = self.messages[at];
        let id = result.tool_call_id.as_deref().unwrap_or_default();
        let asking = self.messages[..at].iter().rev().find(|it| it.role == Role::Assistant);
        let call = asking.and_then(|message| message.calls().find(|call| call.id == id));
        let name = call.map_or("", |call| &call.name);
        let has_id = asking.is_some_and(|message| self.gave_id(message, id));
        let words = result_text(result, |it| is_inline(self.call, it));
        Block::Result { result, words, name, has_id }
    }

    /// Whether this service gave a call its id.
    fn gave_id(&self, message: &Message, id: &str) -> bool {
        is_own(message, self.call) && !id.starts_with(OWN_ID)
    }

    /// What a model said. Another model of the service gets what is signed, and others get nothing but the words.
    fn answer(&self, message: &'a Message, taken: bool) -> Vec<Block<'a>> {
        let (own, same) =
            (taken && is_own(message, self.call), taken && is_of_model(message, self.call));
        let mut blocks = Vec::with_capacity(message.parts.len());
        // What the next part bore.
        let (mut of_text, mut of_call) = (None, None);
        let mut has_called = false;
        for part in &message.parts {
            match part {
                Part::Text(text) | Part::Context(text) => {
                    blocks.push(Block::Text { text, signature: of_text.take() });
                }
                Part::Call(call) => {
                    let mut signature = of_call.take();
                    if signature.is_none() && !has_called {
                        signature = self.foreign_signature();
                    }
                    has_called = true;
                    let has_id = self.gave_id(message, &call.id);
                    blocks.push(Block::Call { call, has_id, signature });
                }
                Part::Thought(Thought { text, payload: sealed }) if own => {
                    let seal: Seal = payload(sealed.as_deref()).unwrap_or_default();
                    blocks.extend(seal.raw.map(Block::Raw));
                    let bears = |bearer| seal.signature.clone().filter(|_| seal.on == bearer);
                    of_text = bears(Bearer::Text);
                    of_call = bears(Bearer::Call);
                    if let signature @ Some(_) = bears(Bearer::Nothing) {
                        blocks.push(Block::Text { text: "", signature });
                    }
                    let signature = bears(Bearer::Thought);
                    if signature.is_some() || (same && !text.is_empty()) {
                        blocks.push(Block::Thought { text, signature });
                    }
                }
                // No model makes attachments.
                Part::Thought(_) | Part::Attachment(_) => {}
            }
        }
        blocks
    }

    /// For the first call of a step that came without one. Models before Gemini 3 ask for none.
    fn foreign_signature(&self) -> Option<String> {
        let asks = self.call.model.thinking.kind != ThinkingKind::Budget;
        asks.then(|| FOREIGN_SIGNATURE.to_owned())
    }
}

impl Block<'_> {
    fn write(&self, json: &mut Json) -> serde_json::Result<()> {
        let signature = match self {
            Self::Text { text, signature } => {
                json.raw("{\"text\":");
                json.text(text);
                signature
            }
            Self::Thought { text, signature } => {
                json.raw("{\"text\":");
                json.text(text);
                json.raw(",\"thought\":true");
                signature
            }
            Self::Call { call, has_id, signature } => {
                json.raw("{\"functionCall\":{");
                write_id(json, has_id.then_some(&call.id));
                json.raw("\"name\":");
                json.text(&plain_name(&call.name));
                json.raw(",\"args\":");
                json.value(&Arguments(&call.arguments))?;
                json.raw("}");
                signature
            }
            Self::Result { result, words, name, has_id } => {
                json.raw("{\"functionResponse\":{");
                write_id(json, result.tool_call_id.as_ref().filter(|_| *has_id));
                json.raw("\"name\":");
                json.text(&plain_name(name));
                json.raw(match result.meta.failed {
                    true => ",\"response\":{\"error\":",
                    false => ",\"response\":{\"output\":",
                });
                json.text(words);
                json.raw("}}");
                &None
            }
            Self::Inline { media_type, bytes } => {
                json.raw("{\"inlineData\":{\"mimeType\":");
                json.text(media_type);
                json.raw(",\"data\":");
                json.base64(&[], bytes);
                json.raw("}");
                &None
            }
            Self::Words(words) => {
                json.raw("{\"text\":");
                json.text(words);
                &None
            }
            Self::Raw(raw) => {
                json.raw(raw.get());
                return Ok(());
            }
        };
        if let Some(signature) = signature {
            json.raw(",\"thoughtSignature\":");
            json.text(signature);
        }
        json.raw("}");
        Ok(())
    }
}

fn write_id(json: &mut Json, id: Option<&String>) {
    if let Some(id) = id {
        json.raw("\"id\":");
        json.text(id);
        json.raw(",");
    }
}

/// An answer as it comes in. It has no end mark: what comes after the reason of its end is usage.
#[derive(Default)]
pub(super) struct Answer {
    usage: WireUsage,
    /// The text that comes next is not to be joined with the last one.
    is_text_closed: bool,
}

impl Decode for Answer {
    fn event(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint> {
        self.chunk(data, heard)
    }

    fn document(&mut self, data: &[u8], heard: &mut Heard) -> Result<(), Complaint> {
        let mut progress = Phase::Open;
        // Without `alt=sse` the same chunks come as a list.
        if data.trim_ascii_start().starts_with(b"[") {
            let chunks: Vec<&RawValue> = serde_json::from_slice(data)?;
            for chunk in chunks {
                progress = progress.max(self.chunk(chunk.get().as_bytes(), heard)?);
            }
        } else {
            progress = self.chunk(data, heard)?;
        }
        if progress == Phase::Open { Err(Complaint::endless()) } else { Ok(()) }
    }
}

impl Answer {
    fn chunk(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint> {
        let chunk: Chunk = serde_json::from_slice(data)?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(Complaint::Error(error));
        }
        self.usage.update(chunk.usage_metadata);
        heard.usage = self.usage.into();
        let mut progress = Phase::Open;
        // Only one answer is asked for.
        if let Some(candidate) = chunk.candidates.into_iter().next() {
            for (at, part) in candidate.content.unwrap_or_default().parts.into_iter().enumerate() {
                match part.is_known() {
                    true => self.part(part, heard),
                    false => keep(data, at, heard)?,
                }
            }
            if let Some(word) = candidate.finish_reason {
                stop(&word, candidate.finish_message, heard);
                progress = Phase::Answered;
            }
        }
        if let Some(PromptFeedback { block_reason: Some(word), block_reason_message }) =
            chunk.prompt_feedback
        {
            explained(StopReason::ContentFilter, &word, block_reason_message, heard);
            progress = Phase::Answered;
        }
        Ok(progress)
    }

    fn part(&mut self, part: WirePart, heard: &mut Heard) {
        let signature = part.thought_signature.filter(|signature| !signature.is_empty());
        if let Some(call) = part.function_call {
            if let Some(signature) = signature {
                seal(signature, Bearer::Call, heard);
            }
            let id = call.id.filter(|id| !id.is_empty());
            let id = id.unwrap_or_else(|| format!("{OWN_ID}{:016x}", random()));
            // Calls come whole, so that no arguments are none.
            let arguments = call.args.map_or("{}", RawValue::get);
            let arguments = if arguments == "null" { "{}" } else { arguments };
            heard.call(Some(heard.calls.len()), Some(id), call.name, arguments);
            return;
        }
        let text = part.text.unwrap_or_default();
        match signature {
            Some(signature) if part.thought == Some(true) => {
                heard.begin_thought();
                heard.think(text);
                heard.seal(&json!(Seal {
                    signature: Some(signature),
                    on: Bearer::Thought,
                    raw: None
                }));
            }
            None if part.thought == Some(true) => heard.think(text),
            Some(signature) if text.is_empty() => seal(signature, Bearer::Nothing, heard),
            Some(signature) => {
                seal(signature, Bearer::Text, heard);
                heard.text(text);
                self.is_text_closed = true;
            }
            None if text.is_empty() => {}
            None => {
                if std::mem::take(&mut self.is_text_closed) {
                    heard.begin_text();
                }
                heard.text(text);
            }
        }
    }
}

/// Notes a signature that something else bears than a thought.
fn seal(signature: String, on: Bearer, heard: &mut Heard) {
    heard.seal_alone(&json!(Seal { signature: Some(signature), on, raw: None }));
}

/// Keeps a part of a kind that is not known as it came.
fn keep(data: &[u8], at: usize, heard: &mut Heard) -> Result<(), Complaint> {
    let chunk: RawChunk = serde_json::from_slice(data)?;
    let parts = chunk.candidates.into_iter().next().and_then(|candidate| candidate.content);
    if let Some(part) = parts.and_then(|content| content.parts.into_iter().nth(at)) {
        let part: Value = serde_json::from_str(part.get())?;
        heard.seal_alone(&json!({ "raw": part }));
    }
    Ok(())
}

/// Takes in why the model stopped.
fn stop(word: &str, message: Option<String>, heard: &mut Heard) {
    match word {
        "STOP" => heard.stopped(StopReason::EndTurn),
        "MAX_TOKENS" => heard.stopped(StopReason::MaxTokens),
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => {
            explained(StopReason::ContentFilter, word, message, heard);
        }
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => {
            explained(StopReason::Empty, word, message, heard);
        }
        "CONTINUATION" => heard.stopped(StopReason::Pause),
        odd => heard.stopped_oddly(odd),
    }
}

/// The model has stopped for a reason that has several words, and perhaps some of its own.
fn explained(reason: StopReason, word: &str, message: Option<String>, heard: &mut Heard) {
    let mut details = json!({ "raw": word });
    if let Some(message) = message {
        details["explanation"] = message.into();
    }
    heard.stop.get_or_insert(Stop { reason, details: Some(details) });
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(default, borrow, deserialize_with = "few")]
    candidates: Vec<Candidate<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage_metadata: Option<WireUsage>,
    prompt_feedback: Option<PromptFeedback>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
    finish_message: Option<String>,
}

#[derive(Deserialize, Default)]
struct Content<'a> {
    #[serde(default, borrow, deserialize_with = "few")]
    parts: Vec<WirePart<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePart<'a> {
    text: Option<String>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    #[serde(borrow)]
    function_call: Option<WireCall<'a>>,
}

impl WirePart<'_> {
    fn is_known(&self) -> bool {
        self.text.is_some() || self.function_call.is_some()
    }
}

#[derive(Deserialize)]
struct WireCall<'a> {
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

/// The same chunk, with its parts as they came.
#[derive(Deserialize)]
struct RawChunk<'a> {
    #[serde(default, borrow, deserialize_with = "few")]
    candidates: Vec<RawCandidate<'a>>,
}

#[derive(Deserialize)]
struct RawCandidate<'a> {
    #[serde(borrow)]
    content: Option<RawContent<'a>>,
}

#[derive(Deserialize)]
struct RawContent<'a> {
    #[serde(default, borrow, deserialize_with = "few")]
    parts: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
    block_reason_message: Option<String>,
}

/// Counts so far; what is left out has not changed.
#[derive(Clone, Copy, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireUsage {
    #[serde(default, deserialize_with = "lenient")]
    prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    cached_content_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    candidates_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    thoughts_token_count: Option<u64>,
}

impl WireUsage {
    fn update(&mut self, newer: Option<Self>) {
        let Some(newer) = newer else { return };
        *self = Self {
            prompt_token_count: newer.prompt_token_count.or(self.prompt_token_count),
            tool_use_prompt_token_count: newer
                .tool_use_prompt_token_count
                .or(self.tool_use_prompt_token_count),
            cached_content_token_count: newer
                .cached_content_token_count
                .or(self.cached_content_token_count),
            candidates_token_count: newer.candidates_token_count.or(self.candidates_token_count),
            thoughts_token_count: newer.thoughts_token_count.or(self.thoughts_token_count),
        };
    }
}

/// The service counts thoughts apart from the rest of the output.
impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        let thoughts = usage.thoughts_token_count.unwrap_or_default();
        let prompt = usage.prompt_token_count.unwrap_or_default();
        let candidates = usage.candidates_token_count.unwrap_or_default();
        Self {
            input: prompt.saturating_add(usage.tool_use_prompt_token_count.unwrap_or_default()),
            cache_read: usage.cached_content_token_count.unwrap_or_default(),
            output: candidates.saturating_add(thoughts),
            reasoning: thoughts,
            ..Self::default()
        }
    }
}
