//! `POST /v1/chat/completions`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Response};
use nexus_protocol::StreamApi;
use nexus_protocol::content::{Content, ContentPart, PartType};
use nexus_protocol::params::NonBlank;
use nexus_protocol::turn::{RequestId, SendParams};

use super::Visitor;
use super::answer::{Choice, Delta, Finish, Head};
use super::ask::{Chat, Message, Part, Role, reading};
use super::conversations::Ask;
use super::door::{Door, Reply, json_response, stream_response};
use super::failure::Failure;
use super::listing::{AGENT, NEW};
use super::repeats;
use super::responses::{Frame, Keeping};
use super::stream::{self, Gone, Writer};
use super::turns::{Errand, Item, Next, Reader, Turn, Wishes};

/// What fails within this has a status of its own. Then the response begins, so that its reader sees that somebody is there.
const AT_ONCE: Duration = Duration::from_millis(500);

/// Longest name of a turn that a caller gives.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Who is asked.
enum Asked {
    Agent(String),
    New(String),
}

/// How a turn is answered.
struct Manner {
    head: Head,
    include_usage: bool,
}

/// A turn that runs, or ran.
pub(super) struct Begun {
    pub turn: Arc<Turn>,
    /// Names of what is not applied.
    pub ignored: Vec<String>,
    /// What was to be obeyed is not, for the agent has instructions of its own.
    pub ignores_instructions: bool,
}

impl<A: StreamApi + Clone + Send + Sync + 'static> Door<A> {
    pub(super) async fn chat(
        &self,
        api: A,
        visitor: &Visitor,
        request: &Request<Bytes>,
    ) -> Result<Response<Reply>, Failure> {
        let mut chat = reading(request.body(), Chat::read).await?;
        // Only conversations of `new:` have names.
        if !chat.model.starts_with(NEW) && session(request.headers(), &chat).is_some() {
            chat.rest.put("nexus_session");
        }
        if !names_agent(&chat.model) {
            return self.complete(visitor, chat).await;
        }
        let (stream, include_usage, model) = (chat.stream, chat.include_usage, chat.model.clone());
        let Begun { turn, mut ignored, ignores_instructions } =
            self.begin(api, visitor, request, chat, |_| None)?;
        ignored.extend(ignores_instructions.then(|| "system messages".into()));
        let id = format!("chatcmpl-{}", turn.id);
        let manner = Manner { head: Head { id, created: turn.created, model }, include_usage };
        let mut response = match stream {
            true => streamed(&turn, |reader, writer| tell(reader, writer, manner)).await?,
            false => {
                let answer = turn.read().outcome().await?;
                let finish = Finish::of(&answer.stop_reason);
                let choice = Choice {
                    text: answer.content.clone(),
                    logprobs: Vec::new(),
                    calls: Vec::new(),
                    finish,
                };
                json_response(&manner.head.completion(&[choice], &answer.usage))
            }
        };
        mark(response.headers_mut(), &turn, &ignored);
        Ok(response)
    }

    /// Begins the turn of an agent that is asked for, or finds the one that was begun. `keep` says where the answer is put.
    pub(super) fn begin(
        &self,
        api: A,
        visitor: &Visitor,
        request: &Request<Bytes>,
        mut chat: Chat,
        keep: impl FnOnce(&Turn) -> Option<(Frame, Keeping)>,
    ) -> Result<Begun, Failure> {
        let asked = match (chat.model.strip_prefix(AGENT), chat.model.strip_prefix(NEW)) {
            (Some(id), _) => Asked::Agent(id.into()),
            (_, preset) => Asked::New(preset.unwrap_or_default().into()),
        };
        check_for_agent(&chat)?;
        let headers = request.headers();
        let path = request.uri().path();
        let repeat = repeats::Request::of(visitor, path, headers, request.body())?;
        let wishes = Wishes {
            goes_on: !chat.stream || repeat.is_keyed,
            events: text(headers, "x-nexus-events") == Some("1"),
        };
        let mut ignored = chat.rest.left();
        let schema = chat.schema.take();
        // What a turn asks of its model is the turn's.
        ignored.extend(schema.as_ref().filter(|it| it.is_strict).map(|_| "strict".into()));
        let id = match text(headers, "x-nexus-request-id") {
            Some(id) if id.len() > REQUEST_ID_BYTES_MAX => {
                let message =
                    format!("X-Nexus-Request-Id must be at most {REQUEST_ID_BYTES_MAX} bytes long");
                return Err(Failure::malformed(message));
            }
            Some(id) => id.to_owned(),
            None => random_id("v1-")?,
        };
        let session = session(headers, &chat);
        let Parted { instructions, past, fresh } = parted(std::mem::take(&mut chat.messages))?;
        let ignores_instructions = matches!(asked, Asked::Agent(_)) && instructions.is_some();
        let params = SendParams {
            request_id: Some(RequestId::Text(id.clone())),
            source: Some(visitor.source.clone()),
            response_schema: schema.map(|it| it.schema),
            max_output_tokens: chat.tokens_max,
            ..SendParams::new(content(&fresh)?)
        };
        let turn = self.repeats.find_or(&repeat, || {
            let turn = Turn::new(id, wishes);
            let keeping = keep(&turn);
            let conversations = self.conversations.clone();
            let (visitor, worker) = (visitor.name.clone(), api.clone());
            turn.begin(api, async move {
                let (agent, place) = match asked {
                    Asked::Agent(agent) => (agent, None),
                    Asked::New(preset) => {
                        let ask = Ask { visitor, preset, session, instructions, past, fresh };
                        let (agent, place) = conversations.agent_for(&worker, &ask).await?;
                        (agent, Some(place))
                    }
                };
                Ok(Errand { agent, params, place, keeping })
            });
            turn
        })?;
        Ok(Begun { turn, ignored, ignores_instructions })
    }
}

/// Whether this is an agent, and no model.
pub(super) fn names_agent(model: &str) -> bool {
    model.starts_with(AGENT) || model.starts_with(NEW)
}

/// The name of the conversation, where it has one.
pub(super) fn session(headers: &HeaderMap, chat: &Chat) -> Option<String> {
    text(headers, "x-nexus-session").map(str::to_owned).or_else(|| chat.session.clone())
}

/// A response that tells a turn as it is made.
pub(super) async fn streamed<F>(
    turn: &Arc<Turn>,
    tell: impl FnOnce(Reader, Writer) -> F,
) -> Result<Response<Reply>, Failure>
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let mut reader = turn.read();
    let _ = tokio::time::timeout(AT_ONCE, reader.ready()).await;
    if let Some(failure) = reader.failed_at_once() {
        return Err(failure);
    }
    let (writer, pieces) = stream::open();
    let told = tell(reader, writer);
    // A client that is gone is told nothing more.
    tokio::spawn(async move { drop(told.await) });
    Ok(stream_response(pieces.boxed()))
}

/// Tells a turn as it is made.
async fn tell(mut reader: Reader, mut writer: Writer, manner: Manner) -> Result<(), Gone> {
    let Manner { head, include_usage } = &manner;
    writer.data(&head.chunk(0, Delta::BEGIN, *include_usage)).await?;
    loop {
        match writer.wait(reader.next()).await? {
            Next::Item(Item::Text(text)) => {
                let delta = Delta::Text { content: &text };
                writer.data(&head.chunk(0, delta, *include_usage)).await?;
            }
            // Chats have no word for it.
            Next::Item(Item::Thought(_)) => {}
            Next::Item(Item::Event(event)) => {
                let chunk = head.chunk(0, Delta::Nothing {}, *include_usage);
                writer.data(&chunk.event(&event)).await?;
            }
            Next::End(Ok(answer)) => {
                let finish = Finish::of(&answer.stop_reason);
                let chunk = head.chunk(0, Delta::Nothing {}, *include_usage);
                writer.data(&chunk.finish(finish)).await?;
                if *include_usage {
                    writer.data(&head.usage_chunk(&answer.usage)).await?;
                }
                return writer.done().await;
            }
            Next::End(Err(failure)) => return writer.last(&failure.to_json()).await,
        }
    }
}

/// What an agent cannot do.
fn check_for_agent(chat: &Chat) -> Result<(), Failure> {
    let refuse = |param: &str, why: &str| Err(Failure::invalid(param, format!("{param}: {why}")));
    if chat.choices > 1 {
        return refuse("n", "an agent gives one answer; a bare model gives several");
    }
    if !chat.tools.is_empty() {
        return refuse("tools", "an agent has tools of its own; a bare model takes yours");
    }
    if chat.logprobs.is_some() {
        return refuse("logprobs", "an agent has none");
    }
    Ok(())
}

/// What a request says, by what it is.
struct Parted {
    /// To be obeyed.
    instructions: Option<String>,
    /// Up to the last that the assistant said.
    past: Vec<Message>,
    /// What is said now.
    fresh: Vec<Message>,
}

fn parted(messages: Vec<Message>) -> Result<Parted, Failure> {
    let (instructions, mut past): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| message.role.instructs());
    let instructions: Vec<_> = instructions.iter().map(Message::text).collect();
    let answered = past.iter().rposition(|message| message.role == Role::Assistant);
    let fresh = past.split_off(answered.map_or(0, |last| last + 1));
    if fresh.is_empty() {
        let why = "messages: nothing follows what the assistant said last";
        return Err(Failure::invalid("messages", why));
    }
    if fresh.iter().any(|message| message.role == Role::Tool) {
        let why = "messages: an agent runs its tools itself, and takes no results of others";
        return Err(Failure::invalid("messages", why));
    }
    let instructions = Some(instructions.join("\n\n")).filter(|it| !it.trim().is_empty());
    Ok(Parted { instructions, past, fresh })
}

/// Messages that follow each other, as one.
fn content(messages: &[Message]) -> Result<Content, Failure> {
    let blank = || Failure::invalid("messages", "messages: what is said last is blank");
    if !messages.iter().any(Message::has_attachments) {
        let texts: Vec<_> = messages.iter().map(Message::text).collect();
        return NonBlank::new(texts.join("\n\n")).map(Content::Text).ok_or_else(blank);
    }
    let parts = messages.iter().flat_map(|message| &message.parts).map(|part| match part {
        Part::Text(text) => ContentPart::text(text),
        Part::Data { media_type, data, name, is_image } => ContentPart {
            r#type: if *is_image { PartType::Image } else { PartType::File },
            data: Some(data.clone()),
            mime_type: Some(media_type.clone()),
            name: name.clone(),
            ..ContentPart::default()
        },
        Part::Address(url) => ContentPart {
            r#type: PartType::Image,
            url: Some(url.clone()),
            ..ContentPart::default()
        },
    });
    Ok(Content::Parts(parts.collect()))
}

/// Says which turn it is, and what of the request was not applied.
pub(super) fn mark(headers: &mut HeaderMap, turn: &Turn, ignored: &[String]) {
    let mut say = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    say("x-nexus-request-id", &turn.id);
    say("x-request-id", &turn.id);
    if let Some(agent) = turn.agent() {
        say("x-nexus-agent", &agent);
    }
    if !ignored.is_empty() {
        say("x-nexus-ignored", &shown(ignored));
    }
}

/// Names that a client gave, as a header can carry them.
pub(super) fn shown(names: &[String]) -> String {
    const NAMES_MAX: usize = 32;
    const CHARS_MAX: usize = 64;
    let plain = |name: &String| -> String {
        let is_plain = |it: &char| it.is_ascii_graphic() && *it != ',' || *it == ' ';
        name.chars().filter(is_plain).take(CHARS_MAX).collect()
    };
    names.iter().take(NAMES_MAX).map(plain).collect::<Vec<_>>().join(", ")
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|it| !it.trim().is_empty())
}

/// A name that nobody guesses.
pub(super) fn random_id(prefix: &str) -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Failure::broken(error.to_string()))?;
    Ok(bytes.iter().fold(prefix.into(), |id, byte| format!("{id}{byte:02x}")))
}
