//! OpenAI's responses: a list of items each way. The service keeps none of them, so all of them are sent each time, and
//! its reasoning goes back to it encrypted.

use std::borrow::Cow;

use async_trait::async_trait;
use nexus_core::message::{Message, Part, Role, StopReason, Thought, ToolCall};
use nexus_core::model::{Effort, ThinkingKind};
use nexus_core::provider::{EventStream, ModelCall, Provider, ProviderError, ToolSpec};
use nexus_core::usage::Usage;
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::shown::{Shown, UNNAMED, result_text, shown};
use super::{
    bytes_estimate, earlier, effort, is_of_model, is_own, payload, turn_start, unwritable, visible,
};
use crate::bounds::{few, lenient};
use crate::calls::{Arguments, IdForm, plain_name};
use crate::heard::Heard;
use crate::http::Http;
use crate::json::{Body, Json};
use crate::stream::{Complaint, Decode, Phase};
use crate::{BuildError, Kind, ProviderSettings, endpoint};

/// The service refuses a smaller bound on an answer.
const MAX_OUTPUT_TOKENS_LEAST: u32 = 16;

/// Items of one answer. Models make a handful, and an empty one takes more memory than it has bytes on the wire.
const ITEMS_MAX: usize = 1024;

pub(crate) struct Responses {
    http: Http,
    url: Url,
    /// Azure's name for the model.
    deployment: Option<String>,
}

impl Responses {
    pub fn new(settings: &ProviderSettings, base: &Url) -> Result<Self, BuildError> {
        // Azure has it at one place, whichever interface the address is of.
        let path = base.path().trim_end_matches('/');
        let segments: &[&str] = match settings.kind {
            Kind::Azure if path.ends_with("/openai") => &["v1", "responses"],
            Kind::Azure if !path.ends_with("/v1") => &["openai", "v1", "responses"],
            _ => &["responses"],
        };
        let mut url = endpoint(base, segments);
        if let Some(api_version) = &settings.api_version {
            url.query_pairs_mut().append_pair("api-version", api_version);
        }
        let http = Http::new(settings, base, HeaderMap::new())?;
        Ok(Self { http, url, deployment: settings.deployment.clone() })
    }
}

#[async_trait]
impl Provider for Responses {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        let body = request_body(&call, self.deployment.as_deref()).map_err(unwritable)?;
        let response = self.http.post(&self.url, body, &call).await?;
        Ok(self.http.events(response, Answer::default(), &call))
    }
}

/// Writes the body straight from the conversation: a tree of it would double the memory and the time of each call.
pub(super) fn request_body(call: &ModelCall, deployment: Option<&str>) -> serde_json::Result<Body> {
    let messages = visible(&call.messages);
    // Models that do not think refuse to be asked for their thoughts.
    let thinks = !call.reasoning.is_off() || call.model.thinking.kind != ThinkingKind::None;
    let head = Head {
        model: deployment.unwrap_or(&call.model.id),
        stream: true,
        stream_options: StreamOptions { include_obfuscation: false },
        store: false,
        include: if thinks { &["reasoning.encrypted_content"] } else { &[] },
        prompt_cache_key: Some(&*call.asker.conversation).filter(|key| !key.is_empty()),
        max_output_tokens: call.max_tokens.map(|most| most.max(MAX_OUTPUT_TOKENS_LEAST)),
        reasoning: ReasoningAsked::of(call),
        text: call.schema.as_deref().map(|it| TextAsked::of(it, call.strict)),
        extra: &call.model.extra_body,
    };
    let mut json = Json::open_object(&head, bytes_estimate(call, &messages))?;
    if !call.system.is_empty() {
        json.raw(",\"instructions\":");
        json.text(&call.system);
    }
    if !call.tools.is_empty() {
        json.raw(",\"tools\":");
        json.list(&*call.tools, write_tool)?;
    }
    json.raw(",\"input\":");
    json.begin_blocks();
    let (earlier, mut turn_start) = (earlier(call), turn_start(&messages));
    let items = messages.iter().enumerate().flat_map(|(at, message)| match message.role {
        Role::User | Role::Summary => vec![(at, Item::Said(message))],
        Role::Tool => vec![(at, Item::Output(message))],
        Role::Assistant => {
            answer_items(message, call, at >= earlier).into_iter().map(|item| (at, item)).collect()
        }
    });
    json.list(items, |json, (at, item)| {
        if turn_start.take_if(|start| *start == at).is_some() {
            json.begin_turn();
        }
        item.write(json, call)?;
        json.end_block();
        Ok(())
    })?;
    json.raw("}");
    Ok(json.into_body())
}

/// Everything but the texts.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    store: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningAsked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextAsked<'a>>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_obfuscation: bool,
}

#[derive(Serialize)]
struct ReasoningAsked {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

impl ReasoningAsked {
    fn of(call: &ModelCall) -> Option<Self> {
        if call.reasoning.is_off() {
            return None;
        }
        let effort = effort(call);
        let summary = (effort != Some(Effort::None)).then_some("auto");
        Some(Self { effort: effort.map(Effort::name), summary })
    }
}

#[derive(Serialize)]
struct TextAsked<'a> {
    format: Format<'a>,
}

/// `strict` takes only a part of JSON Schema and refuses the rest, so it is said where the caller said it.
#[derive(Serialize)]
struct Format<'a> {
    r#type: &'static str,
    name: &'static str,
    schema: &'a Value,
    strict: bool,
}

impl<'a> TextAsked<'a> {
    fn of(schema: &'a Value, strict: bool) -> Self {
        Self { format: Format { r#type: "json_schema", name: "answer", schema, strict } }
    }
}

fn write_tool(json: &mut Json, tool: &ToolSpec) -> serde_json::Result<()> {
    json.raw("{\"type\":\"function\",\"name\":");
    json.text(&tool.name);
    json.raw(",\"description\":");
    json.text(&tool.description);
    json.raw(",\"parameters\":");
    json.raw(&tool.parameters);
    json.raw(",\"strict\":false}");
    Ok(())
}

/// Something of the conversation, as the service lists it.
enum Item<'a> {
    /// By a user.
    Said(&'a Message),
    Text {
        text: &'a str,
        phase: Option<String>,
    },
    /// As it came.
    Reasoning(Box<RawValue>),
    /// As it came, of a kind that is not known.
    Unknown(Box<RawValue>),
    Call(&'a ToolCall),
    Output(&'a Message),
}

/// What only this wire can read of a thought: an item without its id, or what is said of the text that follows. Ids are
/// looked up among what the service keeps, and it keeps nothing.
#[derive(Deserialize)]
struct Seal {
    reasoning: Option<Box<RawValue>>,
    item: Option<Box<RawValue>>,
    /// Whether the text was the answer or said on the way to it.
    phase: Option<String>,
}

/// What a model said. Its thoughts are left out where another made them, or where they are not `taken` any more.
fn answer_items<'a>(message: &'a Message, call: &ModelCall, taken: bool) -> Vec<Item<'a>> {
    let (own, same) = (is_own(message, call), taken && is_of_model(message, call));
    let mut items = Vec::with_capacity(message.parts.len());
    let mut phase = None;
    for part in &message.parts {
        match part {
            Part::Text(text) | Part::Context(text) => {
                items.push(Item::Text { text, phase: phase.take() });
            }
            Part::Call(call) => items.push(Item::Call(call)),
            Part::Thought(Thought { payload: sealed, .. }) if own => {
                let Some(seal) = payload::<Seal>(sealed.as_deref()) else { continue };
                phase = seal.phase;
                items.extend(seal.reasoning.filter(|_| same).map(Item::Reasoning));
                items.extend(seal.item.filter(|_| same).map(Item::Unknown));
            }
            // No model makes attachments.
            Part::Thought(_) | Part::Attachment(_) => {}
        }
    }
    // The service refuses reasoning that nothing follows.
    while let Some(Item::Reasoning(_)) = items.last() {
        items.pop();
    }
    items
}

impl Item<'_> {
    fn write(&self, json: &mut Json, call: &ModelCall) -> serde_json::Result<()> {
        match self {
            Self::Said(message) => {
                json.raw("{\"role\":\"user\",\"content\":");
                write_parts(json, call, message)?;
            }
            Self::Text { text, phase } => {
                json.raw("{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":");
                json.text(text);
                json.raw(",\"annotations\":[]}]");
                if let Some(phase) = phase {
                    json.raw(",\"phase\":");
                    json.text(phase);
                }
            }
            Self::Reasoning(item) | Self::Unknown(item) => {
                json.raw(item.get());
                return Ok(());
            }
            Self::Call(call) => {
                json.raw("{\"type\":\"function_call\",\"call_id\":");
                json.text(&IdForm::Plain.of(&call.id));
                json.raw(",\"name\":");
                json.text(&plain_name(&call.name));
                json.raw(",\"arguments\":");
                json.text(&serde_json::to_string(&Arguments(&call.arguments))?);
            }
            Self::Output(message) => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                json.raw("{\"type\":\"function_call_output\",\"call_id\":");
                json.text(&IdForm::Plain.of(id));
                json.raw(",\"output\":");
                match message.attachments().any(|it| call.model.inputs.take(it.kind)) {
                    true => write_parts(json, call, message)?,
                    false => json.text(&result_text(message, |_| false)),
                }
            }
        }
        json.raw("}");
        Ok(())
    }
}

/// What is said to the model, part by part.
fn write_parts(json: &mut Json, call: &ModelCall, message: &Message) -> serde_json::Result<()> {
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) | Part::Context(text) => Some(Shown::Words(Cow::Borrowed(text.as_str()))),
        Part::Attachment(attachment) => Some(shown(call, attachment)),
        Part::Thought(_) | Part::Call(_) => None,
    });
    json.list(parts, |json, part| {
        match part {
            Shown::Words(words) => {
                json.raw("{\"type\":\"input_text\",\"text\":");
                json.text(&words);
            }
            Shown::Image { media_type, bytes } => {
                json.raw("{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":");
                json.base64(&["data:", media_type, ";base64,"], bytes);
            }
            Shown::Address(url) => {
                json.raw("{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":");
                json.text(url);
            }
            Shown::Document { media_type, name, bytes } => {
                json.raw("{\"type\":\"input_file\",\"filename\":");
                json.text(name.unwrap_or(UNNAMED));
                json.raw(",\"file_data\":");
                json.base64(&["data:", media_type, ";base64,"], bytes);
            }
        }
        json.raw("}");
        Ok(())
    })
}

/// An answer as it comes in. Items are known by their place in the output: their ids change from event to event with
/// some services.
#[derive(Default)]
pub(super) struct Answer {
    items: Vec<Begun>,
}

/// An item that has begun.
struct Begun {
    index: usize,
    /// Where its thought stands among the pieces.
    place: usize,
    /// A call that has not said yet who it is.
    is_nameless: bool,
    /// The part of a thought that came last, as far as that was said.
    part: Option<Option<u64>>,
    /// Some of what it says has come.
    is_filled: bool,
    /// Nothing more of it is of interest.
    is_settled: bool,
}

impl Decode for Answer {
    fn event(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint> {
        // Some who speak alike end with it, as chat completions do.
        if data == b"[DONE]" {
            return Ok(Phase::Open);
        }
        let event: Event = serde_json::from_slice(data)?;
        let index = event.output_index;
        match &*event.kind {
            "response.output_text.delta" => {
                self.fill(index, "message", heard)?;
                heard.text(event.words()?);
            }
            "response.function_call_arguments.delta" => {
                let index = self.fill(index, "function_call", heard)?.index;
                heard.calls.append(index, &event.words()?);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let part = event.summary_index.or(event.content_index);
                let item = self.fill(index, "reasoning", heard)?;
                if item.part.replace(part).is_some_and(|before| before != part) {
                    heard.think("\n\n".to_owned());
                }
                heard.think(event.words()?);
            }
            "response.refusal.delta" => {
                self.fill(index, "message", heard)?;
                refuse(&event.words()?, heard);
            }
            "response.output_item.added" => {
                if let Some(item) = event.item
                    && self.items.iter().all(|begun| Some(begun.index) != index)
                {
                    self.begin(index, &WireItem::read(item)?, heard)?;
                }
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.settle(index, item, heard)?;
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                let response = event.response.map_or("{}", RawValue::get);
                let status = event.kind.trim_start_matches("response.");
                self.end(Some(status), serde_json::from_str(response)?, heard)?;
                return Ok(Phase::Over);
            }
            "error" => return Err(Complaint::Error(event.error())),
            // What the service may add.
            _ => {}
        }
        Ok(Phase::Open)
    }

    fn document(&mut self, data: &[u8], heard: &mut Heard) -> Result<(), Complaint> {
        self.end(None, serde_json::from_slice(data)?, heard)
    }
}

impl Answer {
    /// Where an item stands among those that have begun.
    fn position(&self, index: Option<usize>) -> Option<usize> {
        match index {
            Some(index) => self.items.iter().rposition(|item| item.index == index),
            None => self.items.len().checked_sub(1),
        }
    }

    /// Something of an item comes in, with which it may begin.
    fn fill(
        &mut self,
        index: Option<usize>,
        kind: &'static str,
        heard: &mut Heard,
    ) -> Result<&mut Begun, Complaint> {
        let at = match self.position(index) {
            Some(at) => at,
            None => {
                self.begin(index, &WireItem { kind: kind.into(), ..WireItem::default() }, heard)?
            }
        };
        self.items[at].is_filled = true;
        Ok(&mut self.items[at])
    }

    fn begin(
        &mut self,
        index: Option<usize>,
        item: &WireItem,
        heard: &mut Heard,
    ) -> Result<usize, Complaint> {
        if self.items.len() == ITEMS_MAX {
            let error = format!("the answer has more than {ITEMS_MAX} items");
            return Err(Complaint::Undecodable(serde_json::Error::custom(error)));
        }
        let index = index.unwrap_or(self.items.len());
        let place = heard.place();
        match &*item.kind {
            "function_call" => {
                heard.call(Some(index), item.call_id.clone(), item.name.clone(), "");
            }
            "message" => {
                // For what is said of the text, if anything.
                heard.begin_thought();
                heard.begin_text();
            }
            _ => heard.begin_thought(),
        }
        self.items.push(Begun {
            index,
            place,
            is_nameless: item.call_id.is_none() || item.name.is_none(),
            part: None,
            is_filled: false,
            is_settled: false,
        });
        Ok(self.items.len() - 1)
    }

    /// An item is complete. What came of it in pieces is not taken again.
    fn settle(
        &mut self,
        index: Option<usize>,
        raw: &RawValue,
        heard: &mut Heard,
    ) -> Result<(), Complaint> {
        let item = WireItem::read(raw)?;
        let at = match self.position(index) {
            Some(at) => at,
            None => self.begin(index, &item, heard)?,
        };
        let begun = &mut self.items[at];
        if begun.is_settled {
            return Ok(());
        }
        let is_new = !std::mem::replace(&mut begun.is_filled, true);
        begun.is_settled = true;
        match &*item.kind {
            "message" => {
                if let Some(phase) = &item.phase {
                    heard.seal_at(begun.place, &json!({ "phase": phase }));
                }
                if is_new {
                    item.say(heard);
                }
            }
            "function_call" => {
                if begun.is_nameless {
                    heard.call(Some(begun.index), item.call_id, item.name, "");
                }
                if is_new {
                    heard.calls.append(begun.index, item.arguments.as_deref().unwrap_or_default());
                }
            }
            "reasoning" => {
                if is_new {
                    heard.think(item.thought());
                }
                match item.is_readable() {
                    true => heard.seal_at(begun.place, &json!({ "reasoning": thinking(raw)? })),
                    // It may come with the end of the answer.
                    false => begun.is_settled = false,
                }
            }
            _ => heard.seal_at(begun.place, &json!({ "item": without_id(raw)? })),
        }
        Ok(())
    }

    fn end(
        &mut self,
        status: Option<&str>,
        response: Response,
        heard: &mut Heard,
    ) -> Result<(), Complaint> {
        if let Some(usage) = response.usage {
            heard.usage = usage.into();
        }
        let error = response.error.filter(|error| !error.is_null());
        let status = status.or(response.status.as_deref());
        let Some(status @ ("completed" | "incomplete")) = status else {
            heard.tell_usage();
            return Err(error.map_or_else(Complaint::endless, Complaint::Error));
        };
        for (index, item) in response.output.into_iter().enumerate() {
            self.settle(Some(index), item, heard)?;
        }
        if status == "completed" {
            heard.stopped(StopReason::EndTurn);
            return Ok(());
        }
        let details = response.incomplete_details.and_then(|details| details.reason);
        match details.as_deref() {
            Some("max_output_tokens") => heard.stopped(StopReason::MaxTokens),
            Some("content_filter") => heard.stopped(StopReason::ContentFilter),
            odd => heard.stopped_oddly(odd.unwrap_or("incomplete")),
        }
        Ok(())
    }
}

/// The model says no.
fn refuse(words: &str, heard: &mut Heard) {
    if !words.is_empty() {
        heard.unsaid(words);
        heard.stop = Some(StopReason::Refusal.into());
    }
}

/// An item as it is sent back.
fn without_id(item: &RawValue) -> serde_json::Result<Map<String, Value>> {
    let mut item: Map<String, Value> = serde_json::from_str(item.get())?;
    item.shift_remove("id");
    Ok(item)
}

/// Reasoning as it is sent back. The service refuses members without a value there, which it sends itself.
fn thinking(item: &RawValue) -> serde_json::Result<Map<String, Value>> {
    let mut item = without_id(item)?;
    item.shift_remove("status");
    item.retain(|_, value| !value.is_null());
    Ok(item)
}

/// Every event in one struct: to branch on the type first would mean to read each event twice.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    output_index: Option<usize>,
    summary_index: Option<u64>,
    content_index: Option<u64>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    error: Option<Value>,
    code: Option<Value>,
    message: Option<Value>,
}

impl Event<'_> {
    fn words(&self) -> serde_json::Result<String> {
        self.delta.map_or(Ok(String::new()), |delta| serde_json::from_str(delta.get()))
    }

    /// The error of an error event: an object in it, or its own members.
    fn error(self) -> Value {
        let own = || json!({ "code": self.code, "message": self.message });
        self.error.filter(Value::is_object).unwrap_or_else(own)
    }
}

#[derive(Deserialize)]
struct ItemKind<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize, Default)]
struct WireItem<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    phase: Option<String>,
    #[serde(default, deserialize_with = "few")]
    content: Vec<ContentPart>,
    #[serde(default, deserialize_with = "few")]
    summary: Vec<ContentPart>,
    encrypted_content: Option<String>,
}

#[derive(Deserialize)]
struct ContentPart {
    text: Option<String>,
    refusal: Option<String>,
}

impl<'a> WireItem<'a> {
    /// Of a kind that is not known, nothing else is.
    fn read(raw: &'a RawValue) -> serde_json::Result<Self> {
        let ItemKind { kind } = serde_json::from_str(raw.get())?;
        match &*kind {
            "message" | "function_call" | "reasoning" => serde_json::from_str(raw.get()),
            _ => Ok(Self { kind, ..Self::default() }),
        }
    }

    /// Says what a message holds.
    fn say(self, heard: &mut Heard) {
        for part in self.content {
            heard.text(part.text.unwrap_or_default());
            refuse(&part.refusal.unwrap_or_default(), heard);
        }
    }

    fn thought(&self) -> String {
        let parts = if self.summary.is_empty() { &self.content } else { &self.summary };
        let texts: Vec<&str> = parts.iter().filter_map(|part| part.text.as_deref()).collect();
        texts.join("\n\n")
    }

    /// Whether the service can read it again.
    fn is_readable(&self) -> bool {
        !self.content.is_empty()
            || self.encrypted_content.as_ref().is_some_and(|text| !text.is_empty())
    }
}

/// The whole answer, or its end.
#[derive(Deserialize)]
struct Response<'a> {
    status: Option<String>,
    #[serde(default, borrow, deserialize_with = "few")]
    output: Vec<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    error: Option<Value>,
    incomplete_details: Option<Incomplete>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default, deserialize_with = "lenient")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    input_tokens_details: Option<InputTokens>,
    #[serde(default, deserialize_with = "lenient")]
    output_tokens_details: Option<OutputTokens>,
}

#[derive(Deserialize)]
struct InputTokens {
    #[serde(default, deserialize_with = "lenient")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputTokens {
    #[serde(default, deserialize_with = "lenient")]
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        let input = usage.input_tokens_details;
        let reasoning = usage.output_tokens_details.and_then(|it| it.reasoning_tokens);
        Self {
            input: usage.input_tokens.unwrap_or_default(),
            cache_read: input.as_ref().and_then(|it| it.cached_tokens).unwrap_or_default(),
            cache_write: input.and_then(|it| it.cache_write_tokens).unwrap_or_default(),
            output: usage.output_tokens.unwrap_or_default(),
            reasoning: reasoning.unwrap_or_default(),
            ..Self::default()
        }
    }
}
