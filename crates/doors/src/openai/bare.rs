//! Models without an agent: no history, no tools but the caller's own, nothing kept.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use futures_util::stream::{BoxStream, select_all};
use futures_util::{StreamExt as _, TryStreamExt as _};
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::header::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use nexus_protocol::StreamApi;
use nexus_protocol::usage::Usage;
use serde::Deserialize;
use serde_json::{Map, Number, Value, json};

use super::Visitor;
use super::answer::{Choice, Delta, Finish, Head};
use super::ask::{AnswerSchema, Chat, Fields, Message, Role, Tool};
use super::chat::{random_id, shown};
use super::door::{Door, Reply, json_response, stream_response};
use super::failure::Failure;
use super::stops::Stops;
use super::stream::{self, Gone, Writer};

/// What no method of ours reaches: models as they are, and the built-in embedder.
pub trait Models: Send + Sync + 'static {
    /// Looks at what is asked for. Nothing is sent yet.
    fn prepare(&self, asked: Completion) -> BoxFuture<'static, Result<Ready, Failure>>;

    /// The name of the model that embeds, and the numbers of its vectors.
    fn embedder(&self) -> (String, usize);

    /// One vector for each text. Dropping this ends it.
    fn embed(&self, texts: Vec<String>) -> BoxFuture<'static, Result<Vec<Vec<f32>>, Failure>>;

    /// The text of a list of tokens (cl100k); `None` where some are none.
    fn text_of(&self, tokens: &[u32]) -> Option<String>;
}

/// What is asked of a model.
#[derive(Clone, Debug)]
pub struct Completion {
    pub visitor: Visitor,
    pub model: String,
    /// Somebody watches the answer come.
    pub is_watched: bool,
    pub system: String,
    /// Without instructions. Every call of a tool is answered, and every answer has its call.
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    pub tool_choice: ToolChoice,
    pub schema: Option<AnswerSchema>,
    pub tokens_max: Option<u32>,
    /// How many tokens beside each of the answer are told with their likelihood, where that is asked for.
    pub logprobs: Option<u32>,
    pub stop: Vec<String>,
    /// What else was asked for, in OpenAI's words.
    pub sampling: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    Never,
    Always,
    Named(String),
}

/// A request that can be sent, as often as answers are wanted.
pub struct Ready {
    pub begin: Begin,
    /// Names of what the model's provider does not know.
    pub ignored: Vec<String>,
}

/// Begins an answer, if its caller may have one more. Nothing is sent before what comes of it is waited for.
pub type Begin = Arc<dyn Fn() -> Result<Beginning, Failure> + Send + Sync>;

pub type Beginning = BoxFuture<'static, Result<Pieces, Failure>>;

/// An answer as it comes. Dropping it ends the call.
pub type Pieces = BoxStream<'static, Result<Said, Failure>>;

#[derive(Clone, Debug)]
pub enum Said {
    Text(String),
    /// A piece of what the model thinks.
    Thought(String),
    /// How likely the tokens of the text were that comes next.
    Logprobs(Vec<Value>),
    /// What was used so far.
    Usage(Usage),
    /// The last: what the model wants called, and why it ended.
    Done {
        calls: Vec<Call>,
        reason: &'static str,
        usage: Usage,
    },
}

#[derive(Clone, Debug)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// JSON.
    pub arguments: String,
}

/// What fails within this has a status of its own.
const AT_ONCE: Duration = Duration::from_millis(500);

/// As many as OpenAI takes.
const STOPS_MAX: usize = 4;

/// What is passed on where the provider has a word for it.
pub const SAMPLING: [&str; 8] = [
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "parallel_tool_calls",
];

/// Of what an answer came to.
#[derive(Default)]
struct Told {
    text: String,
    logprobs: Vec<Value>,
    calls: Vec<Call>,
    finish: Option<Finish>,
    usage: Usage,
}

/// What happens in one of several answers.
pub(super) enum Step {
    /// With what is known of its tokens.
    Text(String, Vec<Value>),
    Thought(String),
    End {
        calls: Vec<Call>,
        finish: Finish,
        usage: Usage,
    },
}

/// A model that can be asked.
pub(super) struct Prepared {
    pub begin: Begin,
    pub stop: Vec<String>,
    /// Names of what is not applied.
    pub ignored: Vec<String>,
}

/// Answers that are about to come.
pub(super) type Begun = BoxFuture<'static, Result<Vec<Pieces>, Failure>>;

impl<A: StreamApi + Clone + Send + Sync + 'static> Door<A> {
    pub(super) async fn complete(
        &self,
        visitor: &Visitor,
        mut chat: Chat,
    ) -> Result<Response<Reply>, Failure> {
        let Prepared { begin, stop, ignored } = self.prepared(visitor, &mut chat).await?;
        let id = random_id("v1-")?;
        let head = Head {
            id: format!("chatcmpl-{id}"),
            created: Timestamp::now().as_second(),
            model: chat.model,
        };
        let begun = begun(begin, chat.choices as usize);
        let mut response = match chat.stream {
            false => {
                let told = begun.await?.into_iter().map(|pieces| whole(pieces, stop.clone()));
                let told = try_join_all(told).await?;
                json_response(&completion(&head, told))
            }
            true => {
                let tell = move |mut writer: Writer, begun: Begun| async move {
                    match writer.wait(begun).await? {
                        Ok(answers) => {
                            tell(&mut writer, &head, chat.include_usage, answers, stop).await
                        }
                        Err(failure) => writer.last(&failure.to_json()).await,
                    }
                };
                streamed(begun, tell).await?
            }
        };
        mark(response.headers_mut(), &id, &ignored);
        Ok(response)
    }

    /// Looks at what is asked of a model. Nothing is sent yet.
    pub(super) async fn prepared(
        &self,
        visitor: &Visitor,
        chat: &mut Chat,
    ) -> Result<Prepared, Failure> {
        let stop = stops(&mut chat.rest)?;
        let tool_choice = tool_choice(chat)?;
        let mut sampling = Map::new();
        for name in SAMPLING {
            let fields = &mut chat.rest;
            let value = match name {
                "parallel_tool_calls" => fields.take::<bool>(name)?.map(Value::from),
                "logit_bias" => fields.take::<Map<String, Value>>(name)?.map(Value::from),
                "seed" | "top_k" => fields.take::<i64>(name)?.map(Value::from),
                _ => fields.take::<Number>(name)?.map(Value::from),
            };
            sampling.extend(value.map(|value| (name.to_owned(), value)));
        }
        let (system, messages) = parted(std::mem::take(&mut chat.messages))?;
        let asked = Completion {
            visitor: visitor.clone(),
            model: chat.model.clone(),
            is_watched: chat.stream,
            system,
            messages,
            tools: std::mem::take(&mut chat.tools),
            tool_choice,
            schema: chat.schema.take(),
            tokens_max: chat.tokens_max.map(Into::into),
            logprobs: chat.logprobs,
            stop: stop.clone(),
            sampling,
        };
        let Ready { begin, ignored } = self.models.prepare(asked).await?;
        Ok(Prepared { begin, stop, ignored: [chat.rest.left(), ignored].concat() })
    }
}

pub(super) fn begun(begin: Begin, choices: usize) -> Begun {
    Box::pin(async move {
        // All or none: what cannot be answered whole is not asked for in part.
        let beginnings: Vec<_> = (0..choices).map(|_| begin()).collect::<Result<_, _>>()?;
        try_join_all(beginnings).await
    })
}

/// One answer, when it is over.
async fn whole(mut pieces: Pieces, stop: Vec<String>) -> Result<Told, Failure> {
    let mut told = Told::default();
    let mut steps = std::pin::pin!(steps(&mut pieces, stop));
    while let Some(step) = steps.try_next().await? {
        match step {
            Step::Text(text, logprobs) => {
                told.text.push_str(&text);
                told.logprobs.extend(logprobs);
            }
            Step::Thought(_) => {}
            Step::End { calls, finish, usage } => {
                told = Told { calls, finish: Some(finish), usage, ..told };
            }
        }
    }
    Ok(told)
}

/// What happens in an answer. It ends at a text that ends it, and the call with it.
pub(super) fn steps(
    pieces: &mut Pieces,
    stop: Vec<String>,
) -> impl futures_util::Stream<Item = Result<Step, Failure>> + Send {
    struct State<'a> {
        pieces: &'a mut Pieces,
        stops: Stops,
        usage: Usage,
        /// Of the text that is told next.
        logprobs: Vec<Value>,
        /// What is told next.
        end: Option<Step>,
        is_over: bool,
    }
    let state = State {
        pieces,
        stops: Stops::new(stop),
        usage: Usage::default(),
        logprobs: Vec::new(),
        end: None,
        is_over: false,
    };
    futures_util::stream::try_unfold(state, |mut state| async move {
        loop {
            if let Some(end) = state.end.take() {
                return Ok(Some((end, state)));
            }
            if state.is_over {
                return Ok(None);
            }
            match state.pieces.try_next().await? {
                Some(Said::Usage(usage)) => state.usage = usage,
                Some(Said::Logprobs(entries)) => state.logprobs.extend(entries),
                Some(Said::Thought(piece)) => return Ok(Some((Step::Thought(piece), state))),
                Some(Said::Text(piece)) => {
                    let (text, ends) = state.stops.take(&piece);
                    if ends {
                        let (finish, usage) = (Finish::Stop, state.usage);
                        state.end = Some(Step::End { calls: Vec::new(), finish, usage });
                        state.is_over = true;
                    }
                    if !text.is_empty() {
                        let logprobs = std::mem::take(&mut state.logprobs);
                        return Ok(Some((Step::Text(text, logprobs), state)));
                    }
                }
                Some(Said::Done { calls, reason, usage }) => {
                    let finish = match calls.is_empty() {
                        true => Finish::of(reason),
                        false => Finish::ToolCalls,
                    };
                    state.end = Some(Step::End { calls, finish, usage });
                    state.is_over = true;
                    let rest = state.stops.rest();
                    let logprobs = std::mem::take(&mut state.logprobs);
                    if !rest.is_empty() || !logprobs.is_empty() {
                        return Ok(Some((Step::Text(rest, logprobs), state)));
                    }
                }
                None => return Err(Failure::broken("the model ended without an answer")),
            }
        }
    })
}

fn completion(head: &Head, told: Vec<Told>) -> Value {
    let usage = told.iter().fold(Usage::default(), |sum, it| added(sum, it.usage));
    let choices: Vec<_> = told
        .into_iter()
        .map(|it| Choice {
            text: it.text,
            logprobs: it.logprobs,
            calls: it.calls.iter().map(call_entry).collect(),
            finish: it.finish.unwrap_or(Finish::Stop),
        })
        .collect();
    head.completion(&choices, &usage)
}

/// A response that tells answers as they come.
pub(super) async fn streamed<F>(
    mut begun: Begun,
    tell: impl FnOnce(Writer, Begun) -> F,
) -> Result<Response<Reply>, Failure>
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let at_once = tokio::time::timeout(AT_ONCE, &mut begun).await.ok().transpose()?;
    let begun = match at_once {
        Some(begun) => Box::pin(std::future::ready(Ok(begun))),
        None => begun,
    };
    let (writer, pieces) = stream::open();
    let told = tell(writer, begun);
    // A client that is gone is told nothing more.
    tokio::spawn(async move { drop(told.await) });
    Ok(stream_response(pieces.boxed()))
}

/// Tells answers as they come, one beside the other.
async fn tell(
    writer: &mut Writer,
    head: &Head,
    include_usage: bool,
    mut answers: Vec<Pieces>,
    stop: Vec<String>,
) -> Result<(), Gone> {
    for index in 0..answers.len() {
        writer.data(&head.chunk(index, Delta::BEGIN, include_usage)).await?;
    }
    let mut total = Usage::default();
    let numbered = answers.iter_mut().enumerate();
    let mut all = select_all(numbered.map(|(index, pieces)| {
        Box::pin(steps(pieces, stop.clone()).map(move |step| (index, step)))
    }));
    while let Some((index, step)) = writer.wait(all.next()).await? {
        match step {
            Ok(Step::Text(text, logprobs)) => {
                let chunk = head.chunk(index, Delta::Text { content: &text }, include_usage);
                writer.data(&chunk.logprobs(&logprobs)).await?;
            }
            // Chats have no word for it.
            Ok(Step::Thought(_)) => {}
            Ok(Step::End { calls, finish, usage }) => {
                for (number, call) in calls.iter().enumerate() {
                    let mut entry = call_entry(call);
                    entry["index"] = number.into();
                    let delta = Delta::Call { tool_calls: [entry] };
                    writer.data(&head.chunk(index, delta, include_usage)).await?;
                }
                let chunk = head.chunk(index, Delta::Nothing {}, include_usage);
                writer.data(&chunk.finish(finish)).await?;
                total = added(total, usage);
            }
            Err(failure) => return writer.last(&failure.to_json()).await,
        }
    }
    if include_usage {
        writer.data(&head.usage_chunk(&total)).await?;
    }
    writer.done().await
}

fn call_entry(call: &Call) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

fn added(one: Usage, other: Usage) -> Usage {
    Usage {
        input: one.input + other.input,
        cache_read: one.cache_read + other.cache_read,
        cache_write: one.cache_write + other.cache_write,
        output: one.output + other.output,
        reasoning: one.reasoning + other.reasoning,
        ..one
    }
}

fn stops(fields: &mut Fields) -> Result<Vec<String>, Failure> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "must be a text or a list of texts")]
    enum Written {
        One(String),
        Some(Vec<String>),
    }
    let stop = match fields.take("stop")? {
        None => Vec::new(),
        Some(Written::One(text)) => vec![text],
        Some(Written::Some(texts)) => texts,
    };
    if stop.len() > STOPS_MAX || stop.iter().any(String::is_empty) {
        let message = format!("stop: at most {STOPS_MAX} texts, none of them empty");
        return Err(Failure::invalid("stop", message));
    }
    Ok(stop)
}

fn tool_choice(chat: &mut Chat) -> Result<ToolChoice, Failure> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "none, auto, required, or a function by its name")]
    enum Written {
        Word(String),
        Named {
            function: Named,
        },
        /// As `/v1/responses` says it.
        Flat(Flat),
    }
    #[derive(Deserialize)]
    struct Flat {
        r#type: String,
        name: String,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let wrong = |why: &str| Err(Failure::invalid("tool_choice", format!("tool_choice: {why}")));
    let choice = match chat.rest.take("tool_choice")? {
        None => return Ok(ToolChoice::Auto),
        Some(Written::Word(word)) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::Never,
            "required" => ToolChoice::Always,
            _ => return wrong("none, auto, required, or a function by its name"),
        },
        Some(Written::Named { function: Named { name } }) => ToolChoice::Named(name),
        Some(Written::Flat(Flat { r#type, name })) if r#type == "function" => {
            ToolChoice::Named(name)
        }
        Some(Written::Flat(_)) => return wrong("only functions can be chosen"),
    };
    match &choice {
        ToolChoice::Named(name) if !chat.tools.iter().any(|tool| tool.name == *name) => {
            wrong("there is no tool of this name among tools")
        }
        ToolChoice::Always if chat.tools.is_empty() => wrong("there are no tools"),
        _ => Ok(choice),
    }
}

/// What is to be obeyed, and what is said. Calls of tools and their results belong together.
fn parted(messages: Vec<Message>) -> Result<(String, Vec<Message>), Failure> {
    let (instructions, messages): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| message.role.instructs());
    let wrong = |why: &str| Err(Failure::invalid("messages", format!("messages: {why}")));
    let mut open: Vec<&str> = Vec::new();
    for message in &messages {
        match (message.role, &message.call_id) {
            (Role::Tool, Some(id)) => match open.iter().position(|it| it == id) {
                Some(place) => drop(open.remove(place)),
                None => return wrong("a result of a tool stands behind no call of it"),
            },
            _ if !open.is_empty() => return wrong("a call of a tool has no result behind it"),
            _ => open.extend(message.calls.iter().map(|call| call.id.as_str())),
        }
    }
    if !open.is_empty() {
        return wrong("a call of a tool has no result behind it");
    }
    match messages.last().map(|last| last.role) {
        Some(Role::User | Role::Tool) => {}
        _ => return wrong("the last must be of the user, or of a tool"),
    }
    let instructions: Vec<_> = instructions.iter().map(Message::text).collect();
    Ok((instructions.join("\n\n"), messages))
}

pub(super) fn mark(headers: &mut HeaderMap, id: &str, ignored: &[String]) {
    let shown = Some(shown(ignored)).filter(|_| !ignored.is_empty());
    let said = [("x-request-id", Some(id.to_owned())), ("x-nexus-ignored", shown)];
    for (name, value) in said {
        if let Some(value) = value.and_then(|it| HeaderValue::from_str(&it).ok()) {
            headers.insert(name, value);
        }
    }
}
