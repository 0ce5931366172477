//! Ollama's own chat: a line of JSON for each piece of an answer, and a window that the request decides on.

use async_trait::async_trait;
use nexus_core::message::{Attachment, Message, Role, StopReason, ToolCall};
use nexus_core::model::Effort;
use nexus_core::provider::{EventStream, ModelCall, Provider, ProviderError, ToolSpec};
use nexus_core::usage::Usage;
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::shown::{Shown, in_text, result_text, shown};
use super::{
    bytes_estimate, earlier, effort, is_of_model, schema_in_words, turn_start, unwritable, visible,
};
use crate::bounds::{few, lenient};
use crate::calls::{Arguments, plain_name};
use crate::heard::Heard;
use crate::http::Http;
use crate::json::{Body, Json};
use crate::stream::{Complaint, Decode, Phase};
use crate::{BuildError, ProviderSettings, endpoint};

/// How long a model stays in memory after a call unless somebody says otherwise. To load one takes longer than most
/// pauses between two turns.
const KEEP_ALIVE: &str = "30m";

/// Levels of models that are known to have them though nobody says so.
const LEVELS: [Effort; 3] = [Effort::Low, Effort::Medium, Effort::High];

pub(crate) struct Ollama {
    http: Http,
    url: Url,
    keep_alive: String,
}

impl Ollama {
    pub fn new(settings: &ProviderSettings, base: &Url) -> Result<Self, BuildError> {
        Ok(Self {
            http: Http::new(settings, base, HeaderMap::new())?,
            url: endpoint(&root(base), &["api", "chat"]),
            keep_alive: settings.keep_alive.clone().unwrap_or_else(|| KEEP_ALIVE.to_owned()),
        })
    }
}

/// The address without what stands there for the interfaces that it has beside its own.
fn root(base: &Url) -> Url {
    let path = base.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").or_else(|| path.strip_suffix("/api")).unwrap_or(path);
    let mut root = base.clone();
    root.set_path(path);
    root
}

#[async_trait]
impl Provider for Ollama {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        let body = request_body(&call, &self.keep_alive).map_err(unwritable)?;
        let response = self.http.post(&self.url, body, &call).await?;
        Ok(self.http.events(response, Answer, &call))
    }
}

/// Writes the body straight from the conversation: a tree of it would double the memory and the time of each call.
pub(super) fn request_body(call: &ModelCall, keep_alive: &str) -> serde_json::Result<Body> {
    let messages = visible(&call.messages);
    // A model that is held to a schema cannot write a call.
    let (held, asked) = match call.schema.as_deref() {
        Some(schema) if call.tools.is_empty() => (Some(schema), None),
        schema => (None, schema.map(schema_in_words)),
    };
    let head = Head {
        model: &call.model.id,
        stream: true,
        // Otherwise the oldest messages vanish in silence when the window is full.
        truncate: false,
        shift: false,
        keep_alive,
        think: Think::of(call),
        format: held,
        options: Options { num_ctx: call.model.context_window, num_predict: call.max_tokens },
        extra: &call.model.extra_body,
    };
    let mut json = Json::open_object(&head, bytes_estimate(call, &messages))?;
    if !call.tools.is_empty() {
        json.raw(",\"tools\":");
        json.list(&*call.tools, write_tool)?;
    }
    json.raw(",\"messages\":[");
    let system = [Some(&*call.system).filter(|text| !text.is_empty()), asked.as_deref()];
    let system: Vec<&str> = system.into_iter().flatten().collect();
    let mut before = "";
    if !system.is_empty() {
        json.raw("{\"role\":\"system\",\"content\":");
        json.text(&system.join("\n\n"));
        json.raw("}");
        before = ",";
    }
    let writing = Writing {
        call,
        turn: messages.last().and_then(|last| last.meta.turn.as_ref()),
        earlier: earlier(call),
        messages,
    };
    json.begin_blocks();
    let turn_start = turn_start(&writing.messages);
    for at in 0..writing.messages.len() {
        if Some(at) == turn_start {
            json.begin_turn();
        }
        json.raw(before);
        writing.message(&mut json, at)?;
        json.end_block();
        before = ",";
    }
    json.raw("]}");
    Ok(json.into_body())
}

/// Everything but the tools and the messages.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    stream: bool,
    truncate: bool,
    shift: bool,
    keep_alive: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<Think>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a Value>,
    options: Options,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

/// The window is the model's as it was configured or found: without it, the server takes a small one of its own.
#[derive(Serialize)]
struct Options {
    num_ctx: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
}

/// What is asked of the model's thinking.
#[derive(Serialize)]
#[serde(untagged)]
enum Think {
    Whether(bool),
    Level(&'static str),
}

impl Think {
    fn of(call: &ModelCall) -> Option<Self> {
        if call.reasoning.is_off() {
            return None;
        }
        let level = match call.reasoning.effort() {
            Some(Effort::None) => return Some(Self::Whether(false)),
            // Older servers refuse a level of a model that has none.
            _ if !call.model.thinking.efforts.is_empty() => effort(call),
            asked if call.model.id.contains("gpt-oss") => asked.map(|it| it.lowered(&LEVELS)),
            _ => None,
        };
        Some(level.map_or(Self::Whether(true), |effort| match effort {
            Effort::None => Self::Whether(false),
            Effort::Minimal | Effort::Low => Self::Level("low"),
            Effort::Medium => Self::Level("medium"),
            Effort::High => Self::Level("high"),
            Effort::Xhigh | Effort::Max => Self::Level("max"),
        }))
    }
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

/// What the messages of a body are written with.
struct Writing<'a> {
    call: &'a ModelCall,
    messages: Vec<&'a Message>,
    /// The turn that the call belongs to.
    turn: Option<&'a nexus_core::TurnId>,
    /// How many of `messages` belong to earlier epochs.
    earlier: usize,
}

impl Writing<'_> {
    fn message(&self, json: &mut Json, at: usize) -> serde_json::Result<()> {
        let message = self.messages[at];
        match message.role {
            Role::User | Role::Summary => {
                json.raw("{\"role\":\"user\",\"content\":");
                json.text(&in_text(message, "\n\n", |it| self.image(it).is_some()));
                self.images(json, message)?;
            }
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                json.raw("{\"role\":\"tool\",\"content\":");
                json.text(&result_text(message, |it| self.image(it).is_some()));
                self.images(json, message)?;
                json.raw(",\"tool_name\":");
                json.text(&plain_name(self.name_of(at, id)));
                json.raw(",\"tool_call_id\":");
                json.text(id);
            }
            Role::Assistant => self.assistant(json, at)?,
        }
        json.raw("}");
        Ok(())
    }

    fn images(&self, json: &mut Json, message: &Message) -> serde_json::Result<()> {
        let images: Vec<_> = message.attachments().filter_map(|it| self.image(it)).collect();
        if images.is_empty() {
            return Ok(());
        }
        json.raw(",\"images\":");
        json.list(images, |json, bytes| {
            json.base64(&[], bytes);
            Ok(())
        })
    }

    /// The bytes of an attachment that the model can look at. Nothing but images is taken, and nothing is fetched.
    fn image<'b>(&self, attachment: &'b Attachment) -> Option<&'b [u8]> {
        match shown(self.call, attachment) {
            Shown::Image { bytes, .. } => Some(bytes),
            Shown::Document { .. } | Shown::Address(_) | Shown::Words(_) => None,
        }
    }

    /// The name of the call that this result belongs to.
    fn name_of(&self, at: usize, id: &str) -> &str {
        let asking = self.messages[..at].iter().rev().find(|it| it.role == Role::Assistant);
        let call = asking.and_then(|message| message.calls().find(|call| call.id == id));
        call.map_or("", |call| &call.name)
    }

    fn assistant(&self, json: &mut Json, at: usize) -> serde_json::Result<()> {
        let message = self.messages[at];
        json.raw("{\"role\":\"assistant\",\"content\":");
        json.text(&message.text());
        // In the next turn some of it is not said again.
        json.aside(|json| {
            if at >= self.earlier && self.is_thought_over(message) {
                let thoughts: String = message.thoughts().collect();
                if !thoughts.is_empty() {
                    json.raw(",\"thinking\":");
                    json.text(&thoughts);
                }
            }
        });
        if message.has_calls() {
            json.raw(",\"tool_calls\":");
            json.list(message.calls(), write_call)?;
        }
        Ok(())
    }

    /// Whether the model gets back what it thought. Templates want it while the turn goes on, or always.
    fn is_thought_over(&self, message: &Message) -> bool {
        let this_turn = message.has_calls() && message.meta.turn.as_ref() == self.turn;
        is_of_model(message, self.call) && (this_turn || self.call.model.thinking.replayed_always)
    }
}

fn write_call(json: &mut Json, call: &ToolCall) -> serde_json::Result<()> {
    json.raw("{\"id\":");
    json.text(&call.id);
    json.raw(",\"function\":{\"name\":");
    json.text(&plain_name(&call.name));
    json.raw(",\"arguments\":");
    json.value(&Arguments(&call.arguments))?;
    json.raw("}}");
    Ok(())
}

/// An answer as it comes in. Every line says all there is to know of it.
pub(super) struct Answer;

impl Decode for Answer {
    const LINES: bool = true;

    fn event(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint> {
        let line: Line = serde_json::from_slice(data)?;
        if let Some(error) = line.error.filter(|error| !error.is_null()) {
            return Err(Complaint::Error(error));
        }
        let message = line.message.unwrap_or_default();
        heard.think(message.thinking.unwrap_or_default());
        heard.text(message.content.unwrap_or_default());
        for WireCall { id, function } in message.tool_calls {
            // Calls come whole, so that no arguments are none.
            let arguments = function.arguments.map_or("{}", RawValue::get);
            let arguments = if arguments == "null" { "{}" } else { arguments };
            heard.call(Some(heard.calls.len()), id, function.name, arguments);
        }
        if !line.done {
            return Ok(Phase::Open);
        }
        heard.usage = Usage {
            input: line.prompt_eval_count.unwrap_or_default(),
            output: line.eval_count.unwrap_or_default(),
            ..Usage::default()
        };
        match line.done_reason.as_deref() {
            None | Some("" | "stop") => heard.stopped(StopReason::EndTurn),
            Some("length") => heard.stopped(StopReason::MaxTokens),
            // The model was only put into memory, or taken out of it.
            Some("load" | "unload") => heard.stopped(StopReason::Empty),
            Some(odd) => heard.stopped_oddly(odd),
        }
        Ok(Phase::Over)
    }

    fn document(&mut self, data: &[u8], heard: &mut Heard) -> Result<(), Complaint> {
        match self.event(data, heard)? {
            Phase::Over => Ok(()),
            Phase::Open | Phase::Answered => Err(Complaint::endless()),
        }
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    message: Option<WireMessage<'a>>,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    prompt_eval_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    eval_count: Option<u64>,
    error: Option<Value>,
}

#[derive(Deserialize, Default)]
struct WireMessage<'a> {
    content: Option<String>,
    thinking: Option<String>,
    #[serde(default, borrow, deserialize_with = "few")]
    tool_calls: Vec<WireCall<'a>>,
}

#[derive(Deserialize)]
struct WireCall<'a> {
    id: Option<String>,
    #[serde(borrow)]
    function: WireFunction<'a>,
}

#[derive(Deserialize)]
struct WireFunction<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}
