//! `POST /v1/responses`: the same agents and models as those of chats, in the shape of OpenAI's newer interface. What was
//! answered can be asked for again and gone on from by its name.

mod ask;
mod kept;
mod told;

use std::pin::pin;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use hyper::{Method, Request, Response};
use jiff::Timestamp;
use nexus_protocol::StreamApi;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::Visitor;
use super::ask::{Chat, MESSAGES_MAX, Message, Role, reading};
use super::bare::{self, Begun, Prepared, Step, steps};
use super::chat::{self, names_agent, random_id};
use super::door::{Door, Reply, json_response};
use super::failure::Failure;
use super::listing::NEW;
use super::stream::{Gone, Writer};
use super::turns::{Item, Next, Reader};
use ask::Ask;
use told::{Output, Telling, whole};

pub use kept::{Keeping, Kept};
pub use told::{Frame, of_turn};

/// Below the base.
pub const PATH: &str = "/responses";

impl<A: StreamApi + Clone + Send + Sync + 'static> Door<A> {
    pub(super) async fn respond(
        &self,
        api: A,
        visitor: &Visitor,
        request: &Request<Bytes>,
    ) -> Result<Response<Reply>, Failure> {
        let responded = self.responded(api, visitor, request).await;
        responded.map_err(Failure::of_response)
    }

    async fn responded(
        &self,
        api: A,
        visitor: &Visitor,
        request: &Request<Bytes>,
    ) -> Result<Response<Reply>, Failure> {
        let (kept, name) = (self.kept.clone(), visitor.name.clone());
        let referred = move |id: &str| kept.item(&name, id);
        let Ask { mut chat, mut instructions, previous, store, echo } =
            reading(request.body(), move |body| Ask::read(body, referred)).await?;
        let mut said = std::mem::take(&mut chat.messages);
        let mut goes_on_elsewhere = false;
        if let Some(id) = previous {
            if chat::session(request.headers(), &chat).is_some() {
                let message = "previous_response_id: the conversation is named already";
                return Err(Failure::invalid("previous_response_id", message));
            }
            let before = self.kept.find(&visitor.name, &id);
            let before = before.ok_or_else(|| Failure::no_previous(&id))?;
            goes_on_elsewhere = before.response["model"] != chat.model;
            said.splice(0..0, before.said.iter().cloned());
            // They are the agent's: with others, or none, it would be another one.
            if instructions.is_none() && chat.model.starts_with(NEW) {
                instructions.clone_from(&before.instructions);
            }
        }
        if said.len() > MESSAGES_MAX {
            let message = format!("input: a conversation has at most {MESSAGES_MAX} messages");
            return Err(Failure::invalid("input", message));
        }
        let told_first = instructions.iter().map(|text| Message::of(Role::System, text));
        chat.messages = told_first.chain(said.iter().cloned()).collect();
        let keeping = store.then(|| Keeping {
            kept: self.kept.clone(),
            visitor: visitor.name.clone(),
            tree: visitor.tree.clone(),
            instructions,
            said,
        });
        let (model, echo) = (chat.model.clone(), echo.into());
        if !names_agent(&model) {
            let frame = |id: &str| Frame::new(id, Timestamp::now().as_second(), &model, echo);
            return self.model_responds(visitor, chat, frame, keeping).await;
        }
        let (stream, is_known) = (chat.stream, model.starts_with(NEW) || !goes_on_elsewhere);
        let frame =
            |id: &str, created| Frame::new(id, created, &model, std::sync::Arc::clone(&echo));
        let begun = self.begin(api, visitor, request, chat, |turn| {
            Some((frame(&turn.id, turn.created), keeping?))
        })?;
        let (turn, mut ignored) = (begun.turn, begun.ignored);
        ignored.extend(begun.ignores_instructions.then(|| "instructions".into()));
        ignored.extend((!is_known).then(|| "previous_response_id".into()));
        let frame = frame(&turn.id, turn.created);
        let mut response = match stream {
            true => chat::streamed(&turn, |reader, writer| tell(reader, writer, frame)).await?,
            false => {
                let answer = turn.read().outcome().await?;
                json_response(&of_turn(&frame, &turn.items(), &answer).0)
            }
        };
        chat::mark(response.headers_mut(), &turn, &ignored);
        Ok(response)
    }

    async fn model_responds(
        &self,
        visitor: &Visitor,
        mut chat: Chat,
        frame: impl FnOnce(&str) -> Frame,
        keeping: Option<Keeping>,
    ) -> Result<Response<Reply>, Failure> {
        let Prepared { begin, stop, ignored } = self.prepared(visitor, &mut chat).await?;
        let id = random_id("v1-")?;
        let frame = frame(&id);
        let begun = bare::begun(begin, 1);
        let mut response = match chat.stream {
            true => {
                let tell = |writer, begun| tell_model(writer, begun, stop, frame, keeping);
                bare::streamed(begun, tell).await?
            }
            false => json_response(&heard(begun, stop, &frame, keeping).await?),
        };
        bare::mark(response.headers_mut(), &id, &ignored);
        Ok(response)
    }

    /// An answer that was given: shown again, or forgotten.
    pub(super) fn kept_response(
        &self,
        visitor: &Visitor,
        request: &Request<Bytes>,
        path: &str,
    ) -> Result<Response<Reply>, Failure> {
        let (id, verb) = path.split_once('/').map_or((path, None), |(id, verb)| (id, Some(verb)));
        let id = percent_decode_str(id).decode_utf8_lossy();
        let found = self.kept.find(&visitor.name, &id).ok_or_else(|| Failure::no_response(&id));
        match (request.method(), verb) {
            (&Method::GET, None) => {
                let asks_for_stream = |pair: &str| pair == "stream=true";
                if request.uri().query().is_some_and(|query| query.split('&').any(asks_for_stream))
                {
                    let message =
                        "stream: an answer that was given is not told again piece by piece";
                    return Err(Failure::invalid("stream", message));
                }
                Ok(json_response(&found?.response))
            }
            (&Method::DELETE, None) => {
                found?;
                self.kept.forget(&visitor.name, &id);
                Ok(json_response(&json!({"id": id, "object": "response", "deleted": true})))
            }
            (_, None) => Err(Failure::wrong_verb("GET or DELETE")),
            (&Method::POST, Some("cancel")) => {
                found?;
                let message = "only what runs in the background can be cancelled so: hang up the stream, or call cancel";
                Err(Failure::malformed(message))
            }
            _ => Err(Failure::no_path(request.method(), request.uri().path())),
        }
    }
}

/// Tells a turn as it is made.
async fn tell(mut reader: Reader, writer: Writer, frame: Frame) -> Result<(), Gone> {
    let mut telling = Telling::begin(writer, frame).await?;
    loop {
        let events = match telling.wait(reader.next()).await? {
            Next::Item(Item::Text(text)) => telling.output.text(&text, &[]),
            Next::Item(Item::Thought(text)) => telling.output.thought(&text),
            Next::Item(Item::Event(event)) => {
                vec![json!({"type": "nexus_event", "nexus_event": &*event})]
            }
            Next::End(Ok(answer)) => {
                let finish = super::answer::Finish::of(&answer.stop_reason);
                return telling.end(finish, &answer.usage, |_, _| {}).await;
            }
            Next::End(Err(failure)) => return telling.fail(&failure.of_response()).await,
        };
        telling.all(events).await?;
    }
}

/// Tells what a model says as it says it.
async fn tell_model(
    writer: Writer,
    begun: Begun,
    stop: Vec<String>,
    frame: Frame,
    keeping: Option<Keeping>,
) -> Result<(), Gone> {
    let mut telling = Telling::begin(writer, frame).await?;
    let mut answers = match telling.wait(begun).await? {
        Ok(answers) => answers,
        Err(failure) => return telling.fail(&failure.of_response()).await,
    };
    let ended = || Failure::broken("the model ended without an answer");
    let Some(pieces) = answers.first_mut() else { return telling.fail(&ended()).await };
    let mut steps = pin!(steps(pieces, stop));
    loop {
        let events = match telling.wait(steps.try_next()).await? {
            Ok(Some(Step::Text(text, logprobs))) => telling.output.text(&text, &logprobs),
            Ok(Some(Step::Thought(text))) => telling.output.thought(&text),
            Ok(Some(Step::End { calls, finish, usage })) => {
                let called = calls.iter().flat_map(|call| telling.output.call(call)).collect();
                telling.all(called).await?;
                return telling
                    .end(finish, &usage, |response, said| note(keeping, response, said))
                    .await;
            }
            Ok(None) => return telling.fail(&ended()).await,
            Err(failure) => return telling.fail(&failure.of_response()).await,
        };
        telling.all(events).await?;
    }
}

/// What a model says, when it is over.
async fn heard(
    begun: Begun,
    stop: Vec<String>,
    frame: &Frame,
    keeping: Option<Keeping>,
) -> Result<Value, Failure> {
    let mut answers = begun.await?;
    let ended = || Failure::broken("the model ended without an answer");
    let mut steps = pin!(steps(answers.first_mut().ok_or_else(ended)?, stop));
    let mut output = Output::new(frame);
    while let Some(step) = steps.try_next().await? {
        match step {
            Step::Text(text, logprobs) => drop(output.text(&text, &logprobs)),
            Step::Thought(text) => drop(output.thought(&text)),
            Step::End { calls, finish, usage } => {
                calls.iter().for_each(|call| drop(output.call(call)));
                let (response, said) = whole(frame, output, finish, &usage);
                note(keeping, &response, said);
                return Ok(response);
            }
        }
    }
    Err(ended())
}

fn note(keeping: Option<Keeping>, response: &Value, said: Message) {
    if let Some(keeping) = keeping {
        keeping.note(response, said);
    }
}
