//! Models without an agent, and the built-in embedder, for the OpenAI door: the same catalogue, providers and lanes as those
//! of turns.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use nexus_core::account::{Account, Exceeded, TurnShare};
use nexus_core::attach::{Shown, Wanted};
use nexus_core::authority::Action;
use nexus_core::embed::{EmbedError, Embedder as _};
use nexus_core::engine::Engine;
use nexus_core::message::{self, Meta, Part, Role, SharedMessage, ToolCall};
use nexus_core::model::ModelInfo;
use nexus_core::provider::{
    Answer, Asker, Model, ModelCall, ModelError, ProviderError, ProviderEvent, ToolSpec, Urgency,
};
use nexus_core::store::Door;
use nexus_core::usage::{Bill, Cost, Usage};
use nexus_core::{AgentId, Requester, message::Message};
use nexus_doors::openai::{
    self, Begin, Call, Completion, Failure, Models, Pieces, Ready, Said, ToolChoice,
};
use nexus_local::LocalEmbedder;
use nexus_models::tokenizer;
use nexus_protocol::usage::Usage as UsageEntry;
use nexus_server::Dispatcher;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Texts that are embedded before somebody looks whether they are still wanted.
const EMBEDDED_AT_ONCE: usize = 16;

/// How long a caller should wait whose tree has as many calls under way as it may.
const SHARE_RETRY_MS: u64 = 1_000;

/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub struct Bare {
    dispatcher: Arc<Dispatcher>,
    embedder: Arc<LocalEmbedder>,
    /// One request is embedded at a time: each keeps a processor busy.
    embedding: Arc<Semaphore>,
}

impl Bare {
    pub fn new(dispatcher: Arc<Dispatcher>) -> Self {
        let embedding = Arc::new(Semaphore::new(1));
        Self { dispatcher, embedder: Arc::new(LocalEmbedder::new()), embedding }
    }
}

impl Models for Bare {
    fn prepare(&self, asked: Completion) -> BoxFuture<'static, Result<Ready, Failure>> {
        let dispatcher = self.dispatcher.clone();
        async move { prepare(dispatcher, asked).await }.boxed()
    }

    fn embedder(&self) -> (String, usize) {
        (self.embedder.model_id().into(), self.embedder.dimensions())
    }

    fn embed(&self, texts: Vec<String>) -> BoxFuture<'static, Result<Vec<Vec<f32>>, Failure>> {
        let (embedder, embedding) = (self.embedder.clone(), self.embedding.clone());
        async move {
            let closed = |_| Failure::broken("the embedder is gone");
            let mut vectors = Vec::with_capacity(texts.len());
            for some in texts.chunks(EMBEDDED_AT_ONCE) {
                let turn = embedding.clone().acquire_owned().await.map_err(closed)?;
                let made = embedded(embedder.clone(), some.to_vec(), turn).await;
                vectors.extend(made.map_err(|error| match error {
                    EmbedError::Refused(_) => Failure::invalid("input", error.to_string()),
                    EmbedError::Failed(_) => Failure::broken(error.to_string()),
                })?);
            }
            Ok(vectors)
        }
        .boxed()
    }

    fn text_of(&self, tokens: &[u32]) -> Option<String> {
        tokenizer::text_of_cl100k(tokens)
    }
}

/// Its turn lasts as long as the work: who hangs up does not end that.
async fn embedded(
    embedder: Arc<LocalEmbedder>,
    texts: Vec<String>,
    turn: OwnedSemaphorePermit,
) -> Result<Vec<Vec<f32>>, EmbedError> {
    let work = async move {
        let made = embedder.embed(texts).await;
        drop(turn);
        made
    };
    tokio::spawn(work).await.unwrap_or_else(|error| Err(EmbedError::Failed(error.to_string())))
}

async fn prepare(dispatcher: Arc<Dispatcher>, asked: Completion) -> Result<Ready, Failure> {
    let engine = dispatcher.services().engine.clone();
    let model = engine.models.resolve(Some(&asked.model)).map_err(|error| match error {
        ModelError::Unknown { .. }
        | ModelError::UnknownProvider { .. }
        | ModelError::NoneConfigured => Failure::no_model(error.to_string()),
        ModelError::Unusable { .. } => Failure::unavailable(error.to_string(), None),
    })?;
    let (extra, ignored) = passed_on(model.wire, &asked)?;
    let messages = messages(&engine, &model, asked.messages).await?;
    let mut info = ModelInfo::clone(&model.info);
    info.extra_body.extend(extra);
    let with_tools = asked.tool_choice != ToolChoice::Never || knows_choices(model.wire);
    let tools = asked.tools.iter().filter(|_| with_tools).map(|tool| ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.to_string().into(),
    });
    let max = info.answer_max();
    let account = account(&engine, &asked.visitor).await?;
    let who: Arc<str> = asked.visitor.name.as_str().into();
    // An agent and its keys share with their tree, as with its turns.
    let root = account.as_ref().map(|account| account.number().to_string());
    let call = ModelCall {
        system: asked.system.as_str().into(),
        tools: tools.collect(),
        max_tokens: asked.tokens_max.map_or(max, |wanted| Some(wanted.min(max.unwrap_or(wanted)))),
        strict: asked.schema.as_ref().is_some_and(|it| it.is_strict),
        schema: asked.schema.map(|it| Arc::new(Value::Object(it.schema))),
        asker: Asker {
            root: root.unwrap_or_default().into(),
            agent: who,
            urgency: if asked.is_watched { Urgency::Watched } else { Urgency::Usual },
            ..Asker::default()
        },
        ..ModelCall::of(Arc::new(info), messages)
    };
    let agent = asked.visitor.agent.as_deref().and_then(|name| AgentId::parse(name).ok());
    let begin: Begin = Arc::new(move || {
        let (engine, model, call) = (engine.clone(), model.clone(), call.clone());
        let meter = Meter::new(engine, agent.clone(), account.as_ref(), call.model.clone())?;
        let (dispatcher, key) = (dispatcher.clone(), asked.visitor.key.clone());
        let revoked =
            async move { dispatcher.services().key_ended(Door::OpenAi, key.as_deref()).await };
        let begun = async move {
            let pieces = begun(&model, call, meter).await?;
            // Whoever waits for more than the end would wait for the key.
            let broken = Err(Failure::broken("the model ended without an answer"));
            let pieces = pieces.chain(stream::once(std::future::ready(broken)));
            let ended = stream::once(revoked.map(|()| Err(Failure::cancelled())));
            Ok(stream::select(pieces, ended).boxed())
        };
        Ok(begun.boxed())
    });
    Ok(Ready { begin, ignored })
}

async fn begun(model: &Model, call: ModelCall, mut meter: Meter) -> Result<Pieces, Failure> {
    let shows_thoughts = call.reasoning.is_shown();
    let events = model.provider.stream(call).await.map_err(failure)?;
    let said = events.filter_map(move |event| {
        let said = match event {
            Ok(ProviderEvent::Text(text)) => Some(Ok(Said::Text(text))),
            Ok(ProviderEvent::Logprobs(entries)) => Some(Ok(Said::Logprobs(entries))),
            Ok(ProviderEvent::Reasoning(text)) => shows_thoughts.then_some(Ok(Said::Thought(text))),
            Ok(ProviderEvent::Usage(usage)) => {
                meter.note(usage, None);
                Some(Ok(Said::Usage(usage_entry(&usage))))
            }
            Ok(ProviderEvent::Done(answer)) => {
                meter.note(answer.usage, answer.cost);
                Some(Ok(done(&answer)))
            }
            Err(error) => Some(Err(failure(error))),
        };
        std::future::ready(said)
    });
    Ok(said.boxed())
}

fn done(answer: &Answer) -> Said {
    let calls = answer.parts.iter().filter_map(|part| match part {
        Part::Call(call) if call.cut.is_none() => Some(Call {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.to_string(),
        }),
        _ => None,
    });
    let (reason, usage) = (answer.stop.reason.name(), usage_entry(&answer.usage));
    Said::Done { calls: calls.collect(), reason, usage }
}

/// The account of the tree in whose name a model is called; `None` for the administrator.
async fn account(
    engine: &Engine,
    visitor: &openai::Visitor,
) -> Result<Option<Arc<Account>>, Failure> {
    let Some(id) = visitor.agent.as_deref().and_then(|name| AgentId::parse(name).ok()) else {
        return Ok(None);
    };
    let requester = Requester::Agent(id.clone());
    let agent = engine.agents.find(&requester, &id, Action::Read).await;
    let agent = agent.map_err(|error| Failure::unavailable(error.to_string(), None))?;
    Ok(Some(agent.account().clone()))
}

/// Notes what a call used, however it ends.
struct Meter {
    engine: Arc<Engine>,
    /// In whose name it was made.
    agent: Option<AgentId>,
    info: Arc<ModelInfo>,
    used: Option<(Usage, Option<Cost>)>,
    /// The call is on its tree's account for as long as it lasts.
    _share: Option<TurnShare>,
}

impl Meter {
    fn new(
        engine: Arc<Engine>,
        agent: Option<AgentId>,
        account: Option<&Arc<Account>>,
        info: Arc<ModelInfo>,
    ) -> Result<Self, Failure> {
        let share = account.map(Account::take_turn).transpose();
        let full = |error: Exceeded| Failure::unavailable(error.to_string(), Some(SHARE_RETRY_MS));
        Ok(Self { engine, agent, info, used: None, _share: share.map_err(full)? })
    }

    fn note(&mut self, usage: Usage, cost: Option<Cost>) {
        self.used = Some((usage, cost));
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let (Some(agent), Some((usage, cost))) = (self.agent.take(), self.used) else { return };
        let priced = || self.info.prices.as_ref().map(|prices| prices.cost(&usage));
        let bill = Bill::of(usage, cost.or_else(priced));
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.spending.charge(&agent, bill).await });
    }
}

/// What a wire has words for, in its own; and the names of what it has none for.
fn passed_on(wire: &str, asked: &Completion) -> Result<(Map<String, Value>, Vec<String>), Failure> {
    let known: &[&str] = match wire {
        "chat" => &openai::SAMPLING,
        "messages" => &["temperature", "top_p", "top_k"],
        "responses" => &["temperature", "top_p", "parallel_tool_calls"],
        _ => &[],
    };
    let mut extra = Map::new();
    let mut ignored = Vec::new();
    for (name, value) in &asked.sampling {
        let is_moot = name == "parallel_tool_calls" && asked.tools.is_empty();
        match known.contains(&name.as_str()) && !is_moot {
            true => drop(extra.insert(name.clone(), value.clone())),
            false => ignored.push(name.clone()),
        }
    }
    let is_strict = asked.schema.as_ref().is_some_and(|it| it.is_strict);
    if is_strict && !matches!(wire, "chat" | "responses") {
        ignored.push("strict".into());
    }
    match wire {
        "chat" if !asked.stop.is_empty() => drop(extra.insert("stop".into(), json!(asked.stop))),
        "messages" if !asked.stop.is_empty() => {
            extra.insert("stop_sequences".into(), json!(asked.stop));
        }
        // The door itself ends the answer there.
        _ => {}
    }
    match (asked.logprobs, wire) {
        (None, _) => {}
        (Some(top), "chat") => {
            extra.insert("logprobs".into(), json!(true));
            extra.insert("top_logprobs".into(), json!(top));
        }
        (Some(_), _) => {
            let message = "logprobs: there are none to be had of this model";
            return Err(Failure::invalid("logprobs", message));
        }
    }
    if let Some(choice) = choice(wire, asked)? {
        extra.insert("tool_choice".into(), choice);
    }
    Ok((extra, ignored))
}

/// Whether a model of this wire can be told when to call tools.
fn knows_choices(wire: &str) -> bool {
    matches!(wire, "chat" | "messages" | "responses")
}

fn choice(wire: &str, asked: &Completion) -> Result<Option<Value>, Failure> {
    if asked.tools.is_empty() {
        return Ok(None);
    }
    Ok(match (wire, &asked.tool_choice) {
        (_, ToolChoice::Auto) => None,
        ("messages", ToolChoice::Never) => Some(json!({"type": "none"})),
        ("messages", ToolChoice::Always) => Some(json!({"type": "any"})),
        ("messages", ToolChoice::Named(name)) => Some(json!({"type": "tool", "name": name})),
        ("chat" | "responses", ToolChoice::Never) => Some(json!("none")),
        ("chat" | "responses", ToolChoice::Always) => Some(json!("required")),
        ("chat", ToolChoice::Named(name)) => {
            Some(json!({"type": "function", "function": {"name": name}}))
        }
        ("responses", ToolChoice::Named(name)) => Some(json!({"type": "function", "name": name})),
        // Without tools it calls none.
        (_, ToolChoice::Never) => None,
        (_, ToolChoice::Always | ToolChoice::Named(_)) => {
            let message = "tool_choice: this model cannot be made to call a tool";
            return Err(Failure::invalid("tool_choice", message));
        }
    })
}

/// A conversation as models are shown it: by turns, whoever says two things in a row says one.
async fn messages(
    engine: &Engine,
    model: &Model,
    said: Vec<openai::Message>,
) -> Result<Vec<SharedMessage>, Failure> {
    let mut messages: Vec<(Role, Option<String>, Vec<Part>)> = Vec::new();
    for message in said {
        let openai::Message { role, parts, calls, call_id } = message;
        let mut shown = Vec::new();
        for part in parts {
            shown.extend(part_of(engine, model, part).await?);
        }
        for call in calls {
            shown.push(Part::Call(call_of(call)?));
        }
        let role = match role {
            openai::Role::Assistant => Role::Assistant,
            openai::Role::Tool => Role::Tool,
            _ => Role::User,
        };
        match messages.last_mut() {
            Some((last, _, before)) if *last == role && role != Role::Tool => {
                let joined = std::mem::take(before).into_iter().chain(shown);
                *before = match role {
                    Role::User => message::Content::new(joined).into_parts(),
                    _ => joined.collect(),
                };
            }
            _ if shown.is_empty() && role == Role::Assistant => {}
            _ => messages.push((role, call_id, shown)),
        }
    }
    let is_blank =
        |(role, _, parts): &(Role, _, Vec<Part>)| *role == Role::User && parts.is_empty();
    if messages.iter().any(is_blank) {
        return Err(Failure::invalid("messages", "messages: what the user says is blank"));
    }
    let whole = |(role, call_id, parts): (Role, Option<String>, Vec<Part>)| {
        Arc::new(match call_id.filter(|_| role == Role::Tool) {
            Some(id) => Message::tool_result(id, texts(&parts), Meta::default()),
            None => Message::of_parts(role, parts, Meta::default()),
        })
    };
    Ok(messages.into_iter().map(whole).collect())
}

fn texts(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

async fn part_of(
    engine: &Engine,
    model: &Model,
    part: openai::Part,
) -> Result<Option<Part>, Failure> {
    let (wanted, name, given) = match part {
        openai::Part::Text(text) if text.trim().is_empty() => return Ok(None),
        openai::Part::Text(text) => return Ok(Some(Part::Text(text))),
        openai::Part::Address(url) => (Wanted::Image, None, Shown::Address(url)),
        openai::Part::Data { data, name, is_image, .. } => {
            let wrong =
                |error| Failure::invalid("messages", format!("messages: no base64: {error}"));
            let wanted = if is_image { Wanted::Image } else { Wanted::Any };
            (wanted, name, Shown::Bytes(BASE64.decode(data).map_err(wrong)?))
        }
    };
    let shown = engine.attacher.show(model, wanted, name, given).await;
    let refused = |error| Failure::invalid("messages", format!("messages: {error}"));
    shown.map(Some).map_err(refused)
}

fn call_of(call: openai::ToolCall) -> Result<ToolCall, Failure> {
    let name = call.function.name;
    let wrong = |error| {
        let message = format!("messages: the arguments of a call of {name} are no JSON: {error}");
        Failure::invalid("messages", message)
    };
    let written = call.function.arguments;
    let arguments = match written.trim().is_empty() {
        true => json!({}),
        false => serde_json::from_str(&written).map_err(wrong)?,
    };
    Ok(ToolCall::new(call.id, name, arguments))
}

fn failure(error: ProviderError) -> Failure {
    let message = error.to_string();
    let milliseconds = |wait: std::time::Duration| u64::try_from(wait.as_millis()).ok();
    match error {
        ProviderError::RateLimited { retry_after, .. } => {
            Failure::rate_limited(message, retry_after.and_then(milliseconds))
        }
        ProviderError::Crowded(_) => Failure::rate_limited(message, None),
        ProviderError::Rejected(_)
        | ProviderError::Filtered(_)
        | ProviderError::Thoughts { .. } => Failure::malformed(message),
        ProviderError::TooLong { .. } => Failure::too_long(message),
        ProviderError::Resting { retry_after, .. } => {
            Failure::unavailable(message, milliseconds(retry_after))
        }
        ProviderError::Unavailable(_) | ProviderError::Broken(_) | ProviderError::Timeout => {
            Failure::unavailable(message, None)
        }
        ProviderError::Credentials(_) => Failure::broken(message),
    }
}

fn usage_entry(usage: &Usage) -> UsageEntry {
    UsageEntry {
        input: usage.input,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        output: usage.output,
        reasoning: usage.reasoning,
        discarded: None,
        estimated: usage.estimated,
    }
}
