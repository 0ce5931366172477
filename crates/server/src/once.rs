//! Calls with an `idempotency_key`: carried out once, however often they are made.
//!
//! Who comes while such a call runs in this process waits for its answer; who comes later finds it in the store, where
//! the call was noted before it began (`nexus_core::answers`). The call runs on a task of its own and ends in the store,
//! whoever still waits for it. See docs/decisions/0026.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nexus_core::Requester;
use nexus_core::answers::Answers;
use nexus_core::events::{EventSink as _, TurnEvent};
use nexus_core::lifecycle::AccessError;
use nexus_core::name::DEFAULT_AGENT;
use nexus_core::store::{CallDigest, Earlier};
use nexus_protocol::error::{EXECUTION, INTERNAL_ERROR, RATE_LIMITED, UNAVAILABLE};
use nexus_protocol::once::{IdempotencyKey, Once};
use nexus_protocol::{Id, Method, RpcError, Scope};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::begin::{guarded, worker_died};
use crate::cx::Cx;
use crate::dispatcher::Caller;
use crate::errors::{cut_off, no_room_for_answers, other_params, under_way, wire};
use crate::stream::Stream;

/// What a call says of being made again, without its parameters.
pub(crate) struct Key {
    key: IdempotencyKey,
    path: &'static str,
    text: Option<&'static str>,
}

impl From<Once<'_>> for Key {
    fn from(once: Once<'_>) -> Self {
        Self { key: once.key.clone(), path: once.path, text: once.text }
    }
}

/// Carries out a call unless it was made before, and returns its result either way: the same to the byte.
pub(crate) async fn answer<M: Method, Fut>(
    mut cx: Cx,
    params: M::Params,
    key: Key,
    handler: impl FnOnce(Cx, M::Params) -> Fut + Send + 'static,
) -> Result<Arc<RawValue>, RpcError>
where
    Fut: Future<Output = Result<M::Result, RpcError>> + Send + 'static,
{
    let call = CallDigest { id: identify::<M>(&cx, &key.key).await?, params: digest(&params)? };
    let dispatcher = cx.dispatcher.clone();
    let echo = key.text.map(|text| Echo {
        caller: cx.caller.clone(),
        request_id: cx.request_id.clone(),
        text,
    });
    let (mut waiting, is_first) = match dispatcher.services().once.enter(call) {
        Entry::OtherParams => return Err(other_params(key.path)),
        Entry::Running(waiting) => (waiting, false),
        Entry::First(place) => {
            cx.keyed = true;
            let requester = cx.caller.requester.clone();
            let (waiting, span, dispatcher) =
                (place.done.subscribe(), cx.span::<M>(), dispatcher.clone());
            let work = async move {
                let answers = &dispatcher.services().engine.answers;
                let run = || guarded(M::NAME, async move { handler(cx, params).await });
                place.publish(carry_out(answers, &requester, call, key.path, run).await);
            };
            tokio::spawn(work.instrument(span));
            (waiting, true)
        }
    };
    // Who waits for another's call sees that it does.
    let mut stream = echo.as_ref().filter(|_| !is_first).and_then(Echo::open);
    // It ends without a word when its task does.
    let done = waiting.wait_for(Option::is_some).await.ok().and_then(|done| done.clone());
    let Done { answer, is_new } = done.unwrap_or_else(Done::died);
    if let (Some(echo), Answer::Result(result)) = (&echo, &answer)
        && !(is_first && is_new)
    {
        stream = stream.or_else(|| echo.open());
        stream.iter().for_each(|stream| echo.play(stream, result));
    }
    if let Some(stream) = stream {
        stream.end();
    }
    match answer {
        Answer::Result(result) => Ok(result),
        Answer::Error(error) => Err(error),
    }
}

/// Carries out a call that nobody else in this process is at, if it was not made before.
async fn carry_out<T: Serialize, Fut>(
    answers: &Answers,
    requester: &Requester,
    call: CallDigest,
    path: &str,
    run: impl FnOnce() -> Fut,
) -> Done
where
    Fut: Future<Output = Result<T, RpcError>>,
{
    let earlier = match answers.begin(requester, call).await {
        Ok(Earlier::Nothing) => None,
        Ok(Earlier::Answered(answer)) => Some(read(&answer)),
        Ok(Earlier::OtherParams) => Some(Answer::Error(other_params(path))),
        Ok(Earlier::UnderWay(holder)) => Some(Answer::Error(under_way(&holder))),
        Ok(Earlier::CutOff) => Some(Answer::Error(cut_off())),
        Ok(Earlier::Full) => Some(Answer::Error(no_room_for_answers())),
        Err(error) => Some(Answer::Error(wire(error))),
    };
    if let Some(answer) = earlier {
        return Done { answer, is_new: false };
    }
    let answer = match run().await.and_then(|result| encoded(&result)) {
        Ok(result) => Answer::Result(result),
        Err(error) => Answer::Error(error),
    };
    let written = match answer.is_kept() {
        true => answers.keep(call, written(&answer)).await,
        false => answers.forget(call).await,
    };
    if let Err(error) = written {
        // Whoever makes the call again is told that it was cut off, and it is not carried out twice.
        tracing::error!(%error, "what was answered to a call with an idempotency_key was not kept");
    }
    Done { answer, is_new: true }
}

/// An answer as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Result(Arc<RawValue>),
    Error(RpcError),
}

impl Answer {
    /// Whether it says what came of the call. What was turned away at the door, by its parameters, its caller's rights
    /// or for want of room, was not carried out; what failed behind it (`scope`) may have been.
    fn is_kept(&self) -> bool {
        let Self::Error(error) = self else { return true };
        match error.code {
            EXECUTION | INTERNAL_ERROR => true,
            UNAVAILABLE | RATE_LIMITED => error.scope().is_some_and(|scope| scope != "server"),
            _ => false,
        }
    }
}

fn encoded(result: &impl Serialize) -> Result<Arc<RawValue>, RpcError> {
    to_raw_value(result).map(Arc::from).map_err(|error| {
        tracing::error!(%error, "a result could not be encoded");
        RpcError::internal("The result could not be encoded")
    })
}

fn written(answer: &Answer) -> String {
    // It is made of JSON.
    serde_json::to_string(answer).unwrap_or_default()
}

fn read(answer: &str) -> Answer {
    serde_json::from_str(answer).unwrap_or_else(|error| {
        tracing::error!(%error, "an answer that was kept cannot be read");
        Answer::Error(RpcError::internal("The answer that was kept cannot be read"))
    })
}

/// Says the text of a streamed call to a caller that did not see it being made, as one chunk.
struct Echo {
    caller: Caller,
    request_id: Option<Id>,
    text: &'static str,
}

impl Echo {
    fn open(&self) -> Option<Stream> {
        let stream = Stream::open(&self.caller, self.request_id.as_ref())?;
        stream.announce();
        Some(stream)
    }

    fn play(&self, stream: &Stream, result: &RawValue) {
        let result: Option<Value> = serde_json::from_str(result.get()).ok();
        let text = result.as_ref().and_then(|result| result.pointer(self.text)?.as_str());
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            stream.sink().event(TurnEvent::Text(text));
        }
    }
}

/// Calls with a key that run in this process.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<Mutex<HashMap<[u8; 32], Run>>>);

struct Run {
    params: [u8; 32],
    done: watch::Receiver<Option<Done>>,
}

#[derive(Clone)]
struct Done {
    answer: Answer,
    /// The call was carried out for it, and not earlier.
    is_new: bool,
}

impl Done {
    fn died() -> Self {
        Self { answer: Answer::Error(worker_died()), is_new: true }
    }
}

enum Entry {
    First(Place),
    Running(watch::Receiver<Option<Done>>),
    OtherParams,
}

/// The call that runs under an id. Given up when it is dropped.
struct Place {
    running: Running,
    id: [u8; 32],
    done: watch::Sender<Option<Done>>,
}

impl Running {
    fn enter(&self, call: CallDigest) -> Entry {
        let mut runs = self.lock();
        if let Some(run) = runs.get(&call.id) {
            return match run.params == call.params {
                true => Entry::Running(run.done.clone()),
                false => Entry::OtherParams,
            };
        }
        let (done, receiver) = watch::channel(None);
        runs.insert(call.id, Run { params: call.params, done: receiver });
        Entry::First(Place { running: self.clone(), id: call.id, done })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Run>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whoever comes from here on finds the answer in the store.
    fn publish(self, done: Done) {
        let waiting = self.done.clone();
        drop(self);
        waiting.send_replace(Some(done));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.lock().remove(&self.id);
    }
}

/// Tells a call from all others: who makes it, what it is, where it goes, under which key. An agent is told from others
/// that had its name, on either side, and a socket for one identity from the administrator's.
async fn identify<M: Method>(cx: &Cx, key: &IdempotencyKey) -> Result<[u8; 32], RpcError> {
    let agents = &cx.services().engine.agents;
    let (agent, born) = match &cx.caller.requester {
        Requester::Administrator => (None, None),
        Requester::Agent(id) => {
            let born = agents.born(id).await.map_err(wire)?;
            let born = born.ok_or_else(|| wire(AccessError::Unknown(id.clone())))?;
            (Some(id.as_str()), Some(born.to_string()))
        }
    };
    let door = cx.caller.behalf.as_ref().and_then(|behalf| behalf.door());
    let (address, addressee_born) = match (M::SCOPE, &cx.agent_id) {
        (Scope::Server, _) => (None, None),
        // The default agent may be made by this very call.
        (Scope::Agent, Some(id)) if id.as_str() != DEFAULT_AGENT => {
            (Some(id.as_str()), agents.born(id).await.map_err(wire)?)
        }
        (Scope::Agent, _) => (Some(DEFAULT_AGENT), None),
    };
    let addressee_born = addressee_born.map(|born| born.to_string());
    let mut hash = Sha256::new();
    for part in [
        agent,
        born.as_deref(),
        door.map(|_| "door"),
        door.and_then(|door| door.user.as_deref()),
        door.and_then(|door| door.chat.as_deref()),
        Some(M::NAME),
        address,
        addressee_born.as_deref(),
        Some(key.as_str()),
    ] {
        // No two lists of parts are the same bytes.
        hash.update([u8::from(part.is_some())]);
        hash.update((part.map_or(0, str::len) as u64).to_be_bytes());
        hash.update(part.unwrap_or_default());
    }
    Ok(hash.finalize().into())
}

/// Tells parameters from others, whatever the order of their members.
fn digest(params: &impl Serialize) -> Result<[u8; 32], RpcError> {
    let mut params = serde_json::to_value(params).map_err(|error| {
        tracing::error!(%error, "parameters could not be encoded");
        RpcError::internal("The parameters could not be encoded")
    })?;
    params.sort_all_objects();
    Ok(Sha256::digest(params.to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_comes_back_as_it_was() {
        let text = r#"{"z":1,"a":[1.10,"é\n",18446744073709551615],"b":1e400}"#;
        let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
        let Answer::Result(again) = read(&written(&Answer::Result(raw.into()))) else { panic!() };
        assert_eq!(again.get(), text);
        let error = RpcError::timeout("too long").with("x", json!([1.5]));
        let Answer::Error(again) = read(&written(&Answer::Error(error.clone()))) else { panic!() };
        assert_eq!(again, error);
    }

    #[test]
    fn what_was_turned_away_is_not_kept() {
        let upstream = |error: RpcError| error.with("scope", json!("upstream"));
        for (error, kept) in [
            (RpcError::internal("x"), true),
            (RpcError::timeout("x"), true),
            (RpcError::failed("EXECUTION_ERROR", "x", &[]), true),
            (RpcError::invalid_params("x"), false),
            (RpcError::method_not_found("x"), false),
            (RpcError::not_allowed("x"), false),
            (RpcError::authentication_failed(), false),
            (RpcError::overloaded("x", 5), false),
            (upstream(RpcError::overloaded("x", 5)), true),
            (RpcError::unavailable("x", "", &[]), false),
            (upstream(RpcError::unavailable("x", "", &[])), true),
            (RpcError::rate_limited("x", "server", 5), false),
            (RpcError::rate_limited("x", "upstream", 5), true),
        ] {
            assert_eq!(Answer::Error(error.clone()).is_kept(), kept, "{error:?}");
        }
    }

    #[test]
    fn parameters_are_the_same_in_any_order() {
        let one = json!({"a": {"x": 1, "y": [{"p": 1, "q": 2}]}, "b": 2});
        let other = json!({"b": 2, "a": {"y": [{"q": 2, "p": 1}], "x": 1}});
        assert_eq!(digest(&one).unwrap(), digest(&other).unwrap());
        assert_ne!(digest(&one).unwrap(), digest(&json!({"a": {}, "b": 2})).unwrap());
        assert_ne!(digest(&json!([1, 2])).unwrap(), digest(&json!([2, 1])).unwrap());
    }
}
