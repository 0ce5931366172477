//! Chat completions: OpenAI, OpenRouter, Azure, Ollama and every server that speaks alike.

use async_trait::async_trait;
use nexus_core::message::{Message, Role, ToolCall};
use nexus_core::provider::{EventStream, ModelCall, Provider, ProviderError, ToolSpec, Usage};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bounds::few;
use super::calls::Arguments;
use super::http::Http;
use super::json::Json;
use super::stream::{Complaint, Decode, Heard, Phase};
use super::{
    BuildError, Kind, ProviderSettings, bytes_estimate, endpoint, last_user, unwritable, visible,
};

/// The version of Azure's interface that is asked for when the settings name none: the latest that is not a preview.
const AZURE_API_VERSION: &str = "2024-10-21";

pub(super) struct OpenAi {
    http: Http,
    endpoint: Endpoint,
    /// Services that want `max_completion_tokens` for models that think first.
    knows_completion_tokens: bool,
}

enum Endpoint {
    Fixed(Url),
    /// Azure without a deployment in the settings: the model's id names it.
    PerModel {
        base: Url,
        api_version: String,
    },
}

impl OpenAi {
    pub fn new(settings: &ProviderSettings, base: Url) -> Result<Self, BuildError> {
        Ok(Self {
            http: Http::new(settings, &base, HeaderMap::new())?,
            endpoint: Endpoint::new(settings, &base),
            knows_completion_tokens: matches!(settings.kind, Kind::OpenAi | Kind::Azure),
        })
    }
}

#[async_trait]
impl Provider for OpenAi {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        let body = request_body(&call, self.knows_completion_tokens).map_err(unwritable)?;
        let response = match &self.endpoint {
            Endpoint::Fixed(url) => self.http.post(url, body).await?,
            Endpoint::PerModel { base, api_version } => {
                self.http.post(&azure(base, &call.model_id, api_version), body).await?
            }
        };
        Ok(self.http.events(response, Answer::default()))
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
fn request_body(call: &ModelCall, knows_completion_tokens: bool) -> serde_json::Result<Vec<u8>> {
    let thinks = call.reasoning && knows_completion_tokens;
    let messages = visible(&call.messages);
    let head = Head {
        model: &call.model_id,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        max_tokens: call.max_tokens.filter(|_| !thinks),
        max_completion_tokens: call.max_tokens.filter(|_| thinks),
        response_format: call.schema.as_deref().map(ResponseFormat::of),
    };
    let mut json = Json::open_object(&head, bytes_estimate(call, &messages))?;
    if !call.tools.is_empty() {
        json.raw(",\"tools\":");
        json.list(&*call.tools, write_tool)?;
    }

    let (before, from_last_user) =
        messages.split_at(last_user(&messages).unwrap_or(messages.len()));
    let system = Some(&*call.system).filter(|text| !text.is_empty()).map(WireMessage::system);
    let volatile =
        call.volatile.as_deref().filter(|text| !text.is_empty()).map(WireMessage::system);
    let prefix = system.into_iter().chain(before.iter().map(|message| WireMessage::of(message)));
    let turn =
        volatile.into_iter().chain(from_last_user.iter().map(|message| WireMessage::of(message)));
    json.raw(",\"messages\":");
    json.list(prefix.chain(turn), |json, message| message.write(json))?;
    json.raw("}");
    Ok(json.into_bytes())
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
}

#[derive(Serialize)]
struct ResponseFormat<'a> {
    r#type: &'static str,
    json_schema: NamedSchema<'a>,
}

/// Not `strict`: that takes only a part of JSON Schema and refuses the rest.
#[derive(Serialize)]
struct NamedSchema<'a> {
    name: &'static str,
    schema: &'a Value,
}

impl<'a> ResponseFormat<'a> {
    fn of(schema: &'a Value) -> Self {
        Self { r#type: "json_schema", json_schema: NamedSchema { name: "answer", schema } }
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

struct WireMessage<'a> {
    role: &'static str,
    /// Null beside tool calls without words.
    content: Option<&'a str>,
    tool_calls: &'a [ToolCall],
    tool_call_id: Option<&'a str>,
}

impl<'a> WireMessage<'a> {
    fn of(message: &'a Message) -> Self {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Summary => "system",
        };
        let wordless = message.content.is_empty() && !message.tool_calls.is_empty();
        Self {
            role,
            content: (!wordless).then_some(&message.content),
            tool_calls: &message.tool_calls,
            tool_call_id: message.tool_call_id.as_deref(),
        }
    }

    fn system(text: &'a str) -> Self {
        Self { role: "system", content: Some(text), tool_calls: &[], tool_call_id: None }
    }

    fn write(&self, json: &mut Json) -> serde_json::Result<()> {
        json.raw("{\"role\":\"");
        json.raw(self.role);
        json.raw("\",\"content\":");
        match self.content {
            Some(text) => json.text(text),
            None => json.raw("null"),
        }
        if !self.tool_calls.is_empty() {
            json.raw(",\"tool_calls\":");
            json.list(self.tool_calls, write_call)?;
        }
        if let Some(id) = self.tool_call_id {
            json.raw(",\"tool_call_id\":");
            json.text(id);
        }
        json.raw("}");
        Ok(())
    }
}

/// The arguments are JSON inside a text.
fn write_call(json: &mut Json, call: &ToolCall) -> serde_json::Result<()> {
    json.raw("{\"id\":");
    json.text(&call.id);
    json.raw(",\"type\":\"function\",\"function\":{\"name\":");
    json.text(&call.name);
    json.raw(",\"arguments\":");
    json.text(&serde_json::to_string(&Arguments(&call.arguments))?);
    json.raw("}}");
    Ok(())
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
struct Answer {
    usage: Usage,
}

impl Decode for Answer {
    fn event(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint> {
        if data == b"[DONE]" {
            return Ok(Phase::Over);
        }
        let chunk: Chunk = serde_json::from_slice(data)?;
        if let Some(error) = chunk.error {
            return Err(Complaint::Error(error));
        }
        if let Some(usage) = chunk.usage {
            self.usage = usage.into();
        }
        let mut progress = Phase::Open;
        // Only one answer is asked for; the list has at most one entry.
        for choice in chunk.choices {
            let delta = choice.delta.unwrap_or_default();
            heard.text(delta.content.unwrap_or_default());
            for call in delta.tool_calls {
                let function = call.function.unwrap_or_default();
                heard.calls.add(
                    call.index,
                    call.id,
                    function.name,
                    &function.arguments.unwrap_or_default(),
                );
            }
            if choice.finish_reason.is_some() {
                progress = Phase::Answered;
            }
        }
        Ok(progress)
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default, deserialize_with = "few")]
    choices: Vec<Choice>,
    usage: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
    finish_reason: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Default)]
struct Delta {
    content: Option<String>,
    #[serde(default, deserialize_with = "few")]
    tool_calls: Vec<CallFragment>,
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
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<PromptTokens>,
}

#[derive(Deserialize)]
struct PromptTokens {
    cached_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        let cached = usage
            .prompt_tokens_details
            .and_then(|details| details.cached_tokens)
            .unwrap_or_default();
        Self { input: usage.prompt_tokens, output: usage.completion_tokens, cached }
    }
}
