//! Chat completions: OpenAI, OpenRouter, Azure, Ollama and every server that speaks alike.

use std::borrow::Cow;
use std::ops::Range;

use async_trait::async_trait;
use nexus_core::message::{Attachment, Message, Part, Role, StopReason, Thought, ToolCall};
use nexus_core::model::{Effort, ThinkingKind};
use nexus_core::provider::{EventStream, ModelCall, Provider, ProviderError, Recurs, ToolSpec};
use nexus_core::usage::{Cost, Usage};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::messages::Marker;
use super::shown::{Shown, UNNAMED, result_text, shown};
use super::{bytes_estimate, effort, is_of_model, payload, turn_start, unwritable, visible};
use crate::bounds::{few, lenient};
use crate::calls::{Arguments, IdForm, plain_name};
use crate::heard::Heard;
use crate::http::Http;
use crate::json::{Body, Json};
use crate::stream::{Complaint, Decode, Phase};
use crate::{BuildError, CacheTtl, Kind, ProviderSettings, endpoint};

/// The version of Azure's interface that is asked for when the settings name none: the latest that is not a preview.
const AZURE_API_VERSION: &str = "2024-10-21";

const OWN_HOST: &str = "api.openai.com";

/// Mistral's host, and by what its models are known elsewhere.
const MISTRAL_HOST: &str = "mistral.ai";
const MISTRAL_NAMES: [&str; 6] =
    ["mistral", "ministral", "magistral", "devstral", "codestral", "pixtral"];

/// What Mistral's models are taken to have said to a result before a user speaks.
const NOTED: &str = "Noted.";

pub(crate) struct Chat {
    http: Http,
    endpoint: Endpoint,
    dialect: Dialect,
}

/// What a service has of its own beside the common format.
pub(super) struct Dialect {
    kind: Kind,
    /// OpenAI itself.
    own_host: bool,
    /// OpenRouter's `provider`.
    routing: Option<Map<String, Value>>,
    /// OpenRouter passes marks for caches on to services that keep nothing without.
    marks: Option<CacheTtl>,
    /// Mistral itself.
    mistral: bool,
}

enum Endpoint {
    Fixed(Url),
    /// Azure without a deployment in the settings: the model's id names it.
    PerModel {
        base: Url,
        api_version: String,
    },
}

impl Chat {
    pub fn new(settings: &ProviderSettings, base: Url) -> Result<Self, BuildError> {
        let dialect = Dialect::of(settings, &base);
        let http = Http::new(settings, &base, HeaderMap::new())?;
        Ok(Self { http, endpoint: Endpoint::new(settings, &base), dialect })
    }
}

#[async_trait]
impl Provider for Chat {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        let body = request_body(&call, &self.dialect).map_err(unwritable)?;
        let response = match &self.endpoint {
            Endpoint::Fixed(url) => self.http.post(url, body, &call).await?,
            Endpoint::PerModel { base, api_version } => {
                let url = azure(base, &call.model.id, api_version);
                self.http.post(&url, body, &call).await?
            }
        };
        let wants_logprobs = call.model.extra_body.contains_key("logprobs");
        Ok(self.http.events(response, Answer { wants_logprobs, ..Answer::default() }, &call))
    }
}

impl Dialect {
    pub(super) fn of(settings: &ProviderSettings, base: &Url) -> Self {
        Self {
            kind: settings.kind,
            own_host: base.host_str() == Some(OWN_HOST),
            routing: settings.routing.clone(),
            marks: Some(settings.cache_ttl)
                .filter(|_| settings.kind == Kind::OpenRouter && settings.prompt_caching),
            mistral: base.host_str().is_some_and(|host| host.ends_with(MISTRAL_HOST)),
        }
    }

    /// Mistral's models want ids of a form of their own, and no word of a user right behind a result.
    fn is_mistral(&self, call: &ModelCall) -> bool {
        let named = |name: &str| {
            let name = name.to_ascii_lowercase();
            MISTRAL_NAMES.iter().any(|known| name.contains(known))
        };
        self.mistral || named(&call.model.provider_name) || named(&call.model.id)
    }

    /// Claude keeps what is marked; others keep what they see again.
    fn marks(&self, call: &ModelCall, messages: &[&Message]) -> Option<Marks> {
        let is_kept = call.recurs != Recurs::Nothing && call.model.id.contains("claude");
        let ttl = Some(self.marks.filter(|_| is_kept)?);
        let last_answer = messages.iter().rposition(|message| message.role == Role::Assistant);
        Some(Marks {
            marker: Marker { ttl, minimum_bytes: call.model.cache_minimum as usize * 4 },
            turn_start: turn_start(messages),
            ends: [last_answer, Some(messages.len())].map(|end| end?.checked_sub(1)),
        })
    }
}

impl Endpoint {
    fn new(settings: &ProviderSettings, base: &Url) -> Self {
        // Azure's newer interface is reached as OpenAI's own.
        if settings.kind == Kind::Azure && !base.path().trim_end_matches('/').ends_with("/v1") {
            let api_version =
                settings.api_version.clone().unwrap_or_else(|| AZURE_API_VERSION.to_owned());
            return match &settings.deployment {
                Some(deployment) => Self::Fixed(azure(base, deployment, &api_version)),
                None => Self::PerModel { base: base.clone(), api_version },
            };
        }
        let mut url = endpoint(base, &["chat", "completions"]);
        if let Some(api_version) = &settings.api_version {
            url.query_pairs_mut().append_pair("api-version", api_version);
        }
        Self::Fixed(url)
    }
}

fn azure(base: &Url, deployment: &str, api_version: &str) -> Url {
    let mut url = endpoint(base, &["openai", "deployments", deployment, "chat", "completions"]);
    url.query_pairs_mut().append_pair("api-version", api_version);
    url
}

/// Writes the body straight from the conversation: a tree of it would double the memory and the time of each call.
pub(super) fn request_body(call: &ModelCall, dialect: &Dialect) -> serde_json::Result<Body> {
    let messages = visible(&call.messages);
    let thinks = !call.reasoning.is_off() || call.model.thinking.kind != ThinkingKind::None;
    let completion = thinks && matches!(dialect.kind, Kind::OpenAi | Kind::Azure);
    let router = dialect.kind == Kind::OpenRouter;
    let effort = effort(call).filter(|_| !router).map(Effort::name);
    let head = Head {
        model: &call.model.id,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        max_tokens: call.max_tokens.filter(|_| !completion),
        max_completion_tokens: call.max_tokens.filter(|_| completion),
        response_format: call.schema.as_deref().map(|it| ResponseFormat::of(it, call.strict)),
        reasoning_effort: effort,
        reasoning: if router { reasoning(call) } else { None },
        prompt_cache_key: Some(&*call.asker.conversation)
            .filter(|key| dialect.own_host && !key.is_empty()),
        provider: dialect.routing.as_ref().filter(|_| router),
        extra: &call.model.extra_body,
    };
    let mut json = Json::open_object(&head, bytes_estimate(call, &messages))?;
    if !call.tools.is_empty() {
        json.raw(",\"tools\":");
        json.list(&*call.tools, write_tool)?;
    }
    let marks = dialect.marks(call, &messages);
    json.raw(",\"messages\":[");
    let mut before = "";
    let mut next = |json: &mut Json| json.raw(std::mem::replace(&mut before, ","));
    if !call.system.is_empty() {
        next(&mut json);
        json.raw("{\"role\":\"system\",\"content\":");
        match &marks {
            Some(Marks { marker, .. }) => {
                marked(&mut json, &call.system, |json| marker.lasting(json))
            }
            None => json.text(&call.system),
        }
        json.raw("}");
    }
    let writing = Writing {
        call,
        marks,
        turn_start: turn_start(&messages),
        mistral: dialect.is_mistral(call),
        turn: messages.last().and_then(|last| last.meta.turn.as_ref()),
    };
    json.begin_blocks();
    let (mut at, mut behind_result) = (0, false);
    // What tools returned beside words, which their own messages cannot hold.
    let mut returned: Vec<&Attachment> = Vec::new();
    // Many templates refuse two messages of a user one after the other.
    for group in messages.chunk_by(|a, b| is_user(a) && is_user(b)) {
        let [first, ..] = group else { continue };
        if first.role == Role::Assistant && !returned.is_empty() {
            next(&mut json);
            writing.user(&mut json, &std::mem::take(&mut returned), None, behind_result);
        }
        let places = at..at + group.len();
        at = places.end;
        next(&mut json);
        match first.role {
            Role::User | Role::Summary => {
                let group = Some((group, places));
                writing.user(&mut json, &std::mem::take(&mut returned), group, behind_result);
            }
            Role::Tool => {
                writing.tool(&mut json, first, &places);
                json.end_block();
                returned.extend(first.attachments().filter(|it| call.model.inputs.take(it.kind)));
            }
            Role::Assistant => {
                writing.assistant(&mut json, first)?;
                json.end_block();
            }
        }
        behind_result = first.role == Role::Tool;
    }
    if !returned.is_empty() {
        next(&mut json);
        writing.user(&mut json, &returned, None, behind_result);
    }
    json.raw("]}");
    Ok(json.into_body())
}

/// Everything but the tools and the messages.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<RouterReasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a Map<String, Value>>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct ResponseFormat<'a> {
    r#type: &'static str,
    json_schema: NamedSchema<'a>,
}

/// `strict` takes only a part of JSON Schema and refuses the rest, so it is said where the caller said it.
#[derive(Serialize)]
struct NamedSchema<'a> {
    name: &'static str,
    schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

impl<'a> ResponseFormat<'a> {
    fn of(schema: &'a Value, strict: bool) -> Self {
        let strict = strict.then_some(true);
        Self { r#type: "json_schema", json_schema: NamedSchema { name: "answer", schema, strict } }
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// How OpenRouter is asked for thinking.
#[derive(Serialize)]
struct RouterReasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
}

fn reasoning(call: &ModelCall) -> Option<RouterReasoning> {
    if call.reasoning.is_off() {
        return None;
    }
    let max_tokens = call.reasoning.budget_tokens();
    let effort =
        call.reasoning.effort().filter(|_| max_tokens.is_none()).map(|effort| match effort {
            Effort::Max => Effort::Xhigh.name(),
            other => other.name(),
        });
    let enabled = (effort.is_none() && max_tokens.is_none()).then_some(true);
    Some(RouterReasoning { enabled, effort, max_tokens })
}

fn is_user(message: &Message) -> bool {
    matches!(message.role, Role::User | Role::Summary)
}

/// What the messages of a body are written with.
struct Writing<'a> {
    call: &'a ModelCall,
    mistral: bool,
    /// The turn that the call belongs to.
    turn: Option<&'a nexus_core::TurnId>,
    turn_start: Option<usize>,
    marks: Option<Marks>,
}

/// What is to be kept in a cache beside the system text, by the places of messages.
struct Marks {
    marker: Marker,
    turn_start: Option<usize>,
    /// Of the previous request, and of this one.
    ends: [Option<usize>; 2],
}

impl Marks {
    fn write(&self, json: &mut Json, places: &Range<usize>) {
        let is_here = |at: &Option<usize>| at.is_some_and(|at| places.contains(&at));
        if is_here(&self.turn_start) {
            self.marker.lasting(json);
        } else if self.ends.iter().any(is_here) {
            self.marker.passing(json);
        }
    }
}

/// A text in the form that bears a mark.
fn marked(json: &mut Json, text: &str, mark: impl FnOnce(&mut Json)) {
    json.raw("[{\"type\":\"text\",\"text\":");
    json.text(text);
    mark(json);
    json.raw("}]");
}

impl Writing<'_> {
    /// Several messages of a user as one, behind what tools returned, which is a block of its own. Where there is nothing
    /// but words it is a text, since some servers take no list.
    fn user(
        &self,
        json: &mut Json,
        returned: &[&Attachment],
        said: Option<(&[&Message], Range<usize>)>,
        behind_result: bool,
    ) {
        if self.mistral && behind_result {
            json.raw("{\"role\":\"assistant\",\"content\":");
            json.text(NOTED);
            json.raw("}");
            json.end_block();
            json.raw(",");
        }
        json.raw("{\"role\":\"user\",\"content\":");
        let (group, places) = said.unwrap_or_default();
        let said = group.iter().flat_map(|message| message.parts.iter());
        let said = said.filter_map(|part| match part {
            Part::Text(text) | Part::Context(text) => Some(Shown::Words(text.as_str().into())),
            Part::Attachment(attachment) => Some(shown(self.call, attachment)),
            Part::Thought(_) | Part::Call(_) => None,
        });
        let attached = |message: &&Message| message.attachments().next().is_some();
        let is_text = returned.is_empty() && self.marks.is_none() && !group.iter().any(attached);
        let mut before = "[";
        if !returned.is_empty() {
            let returned = returned.iter().map(|attachment| shown(self.call, attachment));
            for part in [Shown::Words(RETURNED.into())].into_iter().chain(returned) {
                json.raw(std::mem::replace(&mut before, ","));
                write_shown(json, part);
                json.raw("}");
            }
            // What a user says next comes behind it, in the same message.
            json.end_block();
        }
        if self.turn_start.is_some_and(|start| places.contains(&start)) {
            json.begin_turn();
        }
        if is_text {
            json.text(&words(group));
        } else {
            let mut said = said.peekable();
            while let Some(part) = said.next() {
                json.raw(std::mem::replace(&mut before, ","));
                write_shown(json, part);
                if let (Some(marks), None) = (&self.marks, said.peek()) {
                    marks.write(json, &places);
                }
                json.raw("}");
            }
            json.raw("]");
        }
        json.raw("}");
        if !group.is_empty() {
            json.end_block();
        }
    }

    fn ids(&self) -> IdForm {
        if self.mistral { IdForm::Nine } else { IdForm::Any }
    }

    fn tool(&self, json: &mut Json, message: &Message, places: &Range<usize>) {
        json.raw("{\"role\":\"tool\",\"content\":");
        let text = result_text(message, |it| self.call.model.inputs.take(it.kind));
        match &self.marks {
            Some(marks) => marked(json, &text, |json| marks.write(json, places)),
            None => json.text(&text),
        }
        json.raw(",\"tool_call_id\":");
        json.text(&self.ids().of(message.tool_call_id.as_deref().unwrap_or_default()));
        json.raw("}");
    }

    fn assistant(&self, json: &mut Json, message: &Message) -> serde_json::Result<()> {
        json.raw("{\"role\":\"assistant\",\"content\":");
        let text = message.text();
        match text.is_empty() && message.has_calls() {
            true => json.raw("null"),
            false => json.text(&text),
        }
        // In the next turn some of it is not said again.
        if is_of_model(message, self.call) {
            json.aside(|json| self.thoughts(json, message))?;
        }
        if message.has_calls() {
            json.raw(",\"tool_calls\":");
            json.list(message.calls(), |json, call| self.tool_call(json, call))?;
        }
        json.raw("}");
        Ok(())
    }

    /// What the model thought, under the name it came with. Services want it back while the turn goes on, or always.
    fn thoughts(&self, json: &mut Json, message: &Message) -> serde_json::Result<()> {
        let thoughts: Vec<&Thought> = message
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Thought(thought) => Some(thought),
                _ => None,
            })
            .collect();
        let seals: Vec<Seal> =
            thoughts.iter().filter_map(|thought| payload(thought.payload.as_deref())).collect();
        if let Some(details) = seals.iter().find_map(|seal| seal.reasoning_details.as_ref()) {
            json.raw(",\"reasoning_details\":");
            json.value(details)?;
            return Ok(());
        }
        let this_turn = message.has_calls() && message.meta.turn.as_ref() == self.turn;
        if !(this_turn || self.call.model.thinking.replayed_always) {
            return Ok(());
        }
        if let Some(name) = seals.iter().find_map(|seal| seal.name.as_deref()) {
            let text: String = thoughts.iter().map(|thought| &*thought.text).collect();
            json.raw(",");
            json.text(name);
            json.raw(":");
            json.text(&text);
        }
        Ok(())
    }

    /// The arguments are JSON inside a text.
    fn tool_call(&self, json: &mut Json, call: &ToolCall) -> serde_json::Result<()> {
        json.raw("{\"id\":");
        json.text(&self.ids().of(&call.id));
        json.raw(",\"type\":\"function\",\"function\":{\"name\":");
        json.text(&plain_name(&call.name));
        json.raw(",\"arguments\":");
        json.text(&serde_json::to_string(&Arguments(&call.arguments))?);
        json.raw("}}");
        Ok(())
    }
}

/// What stands before the images of tools.
const RETURNED: &str = "What the tools returned beside their words:";

/// A part of a user's message. Leaves the object open.
fn write_shown(json: &mut Json, shown: Shown<'_>) {
    match shown {
        Shown::Words(words) => {
            json.raw("{\"type\":\"text\",\"text\":");
            json.text(&words);
        }
        Shown::Image { media_type, bytes } => {
            json.raw("{\"type\":\"image_url\",\"image_url\":{\"url\":");
            json.base64(&["data:", media_type, ";base64,"], bytes);
            json.raw("}");
        }
        Shown::Address(url) => {
            json.raw("{\"type\":\"image_url\",\"image_url\":{\"url\":");
            json.text(url);
            json.raw("}");
        }
        Shown::Document { media_type, name, bytes } => {
            json.raw("{\"type\":\"file\",\"file\":{\"filename\":");
            json.text(name.unwrap_or(UNNAMED));
            json.raw(",\"file_data\":");
            json.base64(&["data:", media_type, ";base64,"], bytes);
            json.raw("}");
        }
    }
}

/// What only this wire can read of a thought.
#[derive(Deserialize)]
struct Seal {
    /// The field that the text came in.
    name: Option<String>,
    reasoning_details: Option<Value>,
}

/// What a user said, and what stands around it.
fn words<'a>(group: &[&'a Message]) -> Cow<'a, str> {
    let mut texts =
        group.iter().flat_map(|message| message.parts.iter()).filter_map(|part| match part {
            Part::Text(text) | Part::Context(text) => Some(text.as_str()),
            Part::Thought(_) | Part::Call(_) | Part::Attachment(_) => None,
        });
    let first = texts.next().unwrap_or_default();
    texts.fold(Cow::Borrowed(first), |joined, text| Cow::Owned(format!("{joined}\n\n{text}")))
}

fn write_tool(json: &mut Json, tool: &ToolSpec) -> serde_json::Result<()> {
    json.raw("{\"type\":\"function\",\"function\":{\"name\":");
    json.text(&tool.name);
    json.raw(",\"description\":");
    json.text(&tool.description);
    json.raw(",\"parameters\":");
    json.raw(&tool.parameters);
    json.raw("}}");
    Ok(())
}

/// An answer as it comes in.
#[derive(Default)]
pub(super) struct Answer {
    /// The field in which thoughts came first; some services send them under two names.
    thought_name: Option<&'static str>,
    details: Details,
    wants_logprobs: bool,
}

impl Decode for Answer {
    fn event(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint> {
        if data == b"[DONE]" {
            self.end(heard);
            return Ok(Phase::Over);
        }
        self.take(serde_json::from_slice(data)?, heard)
    }

    fn document(&mut self, data: &[u8], heard: &mut Heard) -> Result<(), Complaint> {
        self.take(serde_json::from_slice(data)?, heard)?;
        self.end(heard);
        Ok(())
    }
}

impl Answer {
    fn take(&mut self, chunk: Chunk, heard: &mut Heard) -> Result<Phase, Complaint> {
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(Complaint::Error(error));
        }
        let mut progress = Phase::Open;
        let mut usage = chunk.usage;
        // Only one answer is asked for.
        for choice in chunk.choices.into_iter().filter(|it| it.index.unwrap_or_default() == 0) {
            usage = usage.or(choice.usage);
            if let Some(Logprobs { content }) = choice.logprobs
                && self.wants_logprobs
                && !content.is_empty()
            {
                heard.logprobs(content.iter().map(|it| json!(it)).collect());
            }
            let delta = choice.delta.or(choice.message).unwrap_or_default();
            self.delta(delta, heard);
            // Some servers write an empty one into every chunk.
            if let Some(word) = choice.finish_reason.filter(|word| !word.is_empty()) {
                stop(&word, heard);
                progress = Phase::Answered;
            }
        }
        if let Some(usage) = usage {
            heard.cost = usage.cost.and_then(|it| Cost::from_usd(it.total())).or(heard.cost);
            heard.usage = usage.into();
        }
        if progress == Phase::Answered {
            self.end(heard);
        }
        Ok(progress)
    }

    fn delta(&mut self, delta: Delta, heard: &mut Heard) {
        let thoughts =
            [("reasoning_content", delta.reasoning_content), ("reasoning", delta.reasoning)];
        for (name, text) in thoughts {
            let Some(Words(text)) = text.filter(|Words(text)| !text.is_empty()) else { continue };
            if *self.thought_name.get_or_insert(name) == name {
                heard.think(text);
            }
        }
        self.details.add(delta.reasoning_details);
        if let Some(Words(text)) = delta.content {
            heard.text(text);
        }
        if let Some(words) = delta.refusal.filter(|words| !words.is_empty()) {
            heard.unsaid(&words);
            heard.stop = Some(StopReason::Refusal.into());
        }
        for call in delta.tool_calls {
            let function = call.function.unwrap_or_default();
            let arguments = match function.arguments {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text,
                // Some services send it as what it is.
                Some(whole) => whole.to_string(),
            };
            heard.call(call.index, call.id, function.name, &arguments);
        }
    }

    /// The model has said all.
    fn end(&mut self, heard: &mut Heard) {
        // Both are taken: what follows the last word ends the answer again, and must not seal it otherwise.
        let (details, name) = (std::mem::take(&mut self.details.0), self.thought_name.take());
        if !details.is_empty() {
            heard.seal_first(&json!({ "reasoning_details": details }));
        } else if let Some(name) = name {
            heard.seal_first(&json!({ "name": name }));
        }
    }
}

/// OpenRouter's account of what was thought, put together from its pieces.
#[derive(Default)]
struct Details(Vec<Map<String, Value>>);

impl Details {
    fn add(&mut self, pieces: Vec<Map<String, Value>>) {
        for piece in pieces {
            let same = |known: &Map<String, Value>| {
                ["type", "index", "id"].iter().all(|key| {
                    let (known, new) = (known.get(*key), piece.get(*key));
                    known == new || (*key == "id" && (known.is_none() || new.is_none()))
                })
            };
            let Some(known) = self.0.last_mut().filter(|known| same(known)) else {
                self.0.push(piece);
                continue;
            };
            for (key, value) in piece {
                match (known.get_mut(&key), value) {
                    (Some(Value::String(text)), Value::String(more))
                        if matches!(&*key, "text" | "summary" | "data") =>
                    {
                        text.push_str(&more);
                    }
                    (Some(known), value) if known.is_null() => *known = value,
                    (None, value) => drop(known.insert(key, value)),
                    (Some(_), _) => {}
                }
            }
        }
    }
}

/// Takes in why the model stopped.
fn stop(word: &str, heard: &mut Heard) {
    match word {
        "stop" | "tool_calls" | "function_call" | "end_turn" | "eos" => {
            heard.stopped(StopReason::EndTurn);
        }
        "length" | "max_tokens" => heard.stopped(StopReason::MaxTokens),
        "content_filter" => heard.stopped(StopReason::ContentFilter),
        "error" => heard.stopped(StopReason::Broken),
        odd => heard.stopped_oddly(odd),
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default, deserialize_with = "few")]
    choices: Vec<Choice>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default, deserialize_with = "lenient")]
    index: Option<u64>,
    delta: Option<Delta>,
    /// In an answer that was not streamed.
    message: Option<Delta>,
    finish_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    logprobs: Option<Logprobs>,
    /// Moonshot says it here.
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize, Default)]
struct Delta {
    content: Option<Words>,
    refusal: Option<String>,
    reasoning_content: Option<Words>,
    reasoning: Option<Words>,
    #[serde(default, deserialize_with = "few")]
    reasoning_details: Vec<Map<String, Value>>,
    #[serde(default, deserialize_with = "few")]
    tool_calls: Vec<CallFragment>,
}

#[derive(Deserialize)]
struct Logprobs {
    #[serde(default, deserialize_with = "few")]
    content: Vec<Logprob>,
}

#[derive(Deserialize, Serialize)]
struct Logprob {
    #[serde(flatten)]
    token: Token,
    #[serde(default, deserialize_with = "few")]
    top_logprobs: Vec<Token>,
}

#[derive(Deserialize, Serialize)]
struct Token {
    token: String,
    logprob: f64,
    bytes: Option<Vec<u8>>,
}

/// A text, or the texts of a list of parts.
#[derive(Default)]
struct Words(String);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Parts(Vec<WordsPart>),
        }
        #[derive(Deserialize)]
        struct WordsPart {
            #[serde(default)]
            text: Option<String>,
        }
        Ok(Self(match Either::deserialize(deserializer)? {
            Either::Text(text) => text,
            Either::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }))
    }
}

#[derive(Deserialize)]
struct CallFragment {
    index: Option<usize>,
    id: Option<String>,
    function: Option<FunctionFragment>,
}

#[derive(Deserialize, Default)]
struct FunctionFragment {
    name: Option<String>,
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default, deserialize_with = "lenient")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    prompt_tokens_details: Option<PromptTokens>,
    #[serde(default, deserialize_with = "lenient")]
    completion_tokens_details: Option<CompletionTokens>,
    /// DeepSeek's name for what came from its cache.
    #[serde(default, deserialize_with = "lenient")]
    prompt_cache_hit_tokens: Option<u64>,
    /// In dollars.
    #[serde(default, deserialize_with = "lenient")]
    cost: Option<Dollars>,
}

/// One number, or (Perplexity) what each part of it cost.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Dollars {
    Total(f64),
    Parts { total_cost: f64 },
}

impl Dollars {
    fn total(self) -> f64 {
        match self {
            Self::Total(total) | Self::Parts { total_cost: total } => total,
        }
    }
}

#[derive(Deserialize)]
struct PromptTokens {
    #[serde(default, deserialize_with = "lenient")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionTokens {
    #[serde(default, deserialize_with = "lenient")]
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        let prompt = usage.prompt_tokens_details;
        let cached = prompt.as_ref().and_then(|details| details.cached_tokens);
        let reasoning = usage.completion_tokens_details.and_then(|it| it.reasoning_tokens);
        Self {
            input: usage.prompt_tokens.unwrap_or_default(),
            cache_read: cached.or(usage.prompt_cache_hit_tokens).unwrap_or_default(),
            cache_write: prompt.and_then(|details| details.cache_write_tokens).unwrap_or_default(),
            output: usage.completion_tokens.unwrap_or_default(),
            reasoning: reasoning.unwrap_or_default(),
            ..Self::default()
        }
    }
}
