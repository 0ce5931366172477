//! Conversations of a protocol that has none: every request says all that was said before. What was answered here is found
//! again by it, so that an agent goes on where it was, with all it did; what a request says otherwise is a fork.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nexus_protocol::agent::{CreateAgentParams, PastMessage, PastRole};
use nexus_protocol::params::NonBlank;
use nexus_protocol::session::{CloneSession, CloneSessionParams};
use nexus_protocol::{Api, CallError, Target};

use super::ask::{Message, Part, Role};
use super::failure::Failure;
use super::repeats::digest;

/// Answers that are found again; the oldest is forgotten first, and is then taken over as a past that nobody knows.
const POINTS_MAX: usize = 20_000;

/// Stands for what was left empty in a past that is taken over.
const NOTHING: &str = "(nothing)";

#[derive(Default)]
pub struct Conversations {
    known: Mutex<Known>,
    /// One conversation is named at a time: two requests of one name mean one agent.
    naming: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    points: HashMap<Chain, Point>,
    /// The oldest first.
    order: VecDeque<Chain>,
    /// The last answer of each agent, while nobody asks it anything.
    heads: HashMap<String, Chain>,
}

/// All that was said up to a message.
type Chain = [u8; 32];

/// An answer, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Point {
    agent: String,
    /// Messages up to it.
    length: u64,
}

/// A request in a conversation.
pub struct Ask {
    pub visitor: String,
    pub preset: String,
    /// Its name, where it has one.
    pub session: Option<String>,
    /// What `system` and `developer` said.
    pub instructions: Option<String>,
    /// Up to the last that the assistant said.
    pub past: Vec<Message>,
    /// What follows.
    pub fresh: Vec<Message>,
}

/// Where an answer stands in its conversation.
pub struct Place {
    conversations: Arc<Conversations>,
    /// Up to what is answered.
    chain: Chain,
}

impl Conversations {
    /// The agent that a request goes on with, and where its answer will stand.
    pub async fn agent_for<A: Api>(
        self: &Arc<Self>,
        api: &A,
        ask: &Ask,
    ) -> Result<(String, Place), Failure> {
        let known = linked(ask.seed(), &ask.past);
        let place = || Place { conversations: self.clone(), chain: linked(known, &ask.fresh) };
        let agent = match &ask.session {
            Some(name) => self.named(api, ask, name).await?,
            None => self.found(api, ask, known).await?,
        };
        Ok((agent, place()))
    }

    async fn found<A: Api>(&self, api: &A, ask: &Ask, chain: Chain) -> Result<String, Failure> {
        let point = self.lock().points.get(&chain).cloned().filter(|_| !ask.past.is_empty());
        let Some(point) = point else { return created(api, ask).await };
        if !is_there(api, &point.agent).await? {
            return created(api, ask).await;
        }
        if self.take_head(&point.agent, chain) {
            return Ok(point.agent);
        }
        let copy = temporary_name()?;
        let params = CloneSessionParams {
            src_session: point.agent,
            dest_session: copy.clone(),
            upto: Some(point.length.saturating_sub(1)),
        };
        match api.call::<CloneSession>(&Target::Server, params).await {
            Ok(_) => Ok(copy),
            // It ended a moment ago.
            Err(error) if is_unknown(&error) => created(api, ask).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn named<A: Api>(&self, api: &A, ask: &Ask, name: &str) -> Result<String, Failure> {
        let key =
            digest(&[b"session", ask.visitor.as_bytes(), ask.preset.as_bytes(), name.as_bytes()]);
        let _one = self.naming.lock().await;
        let known = self.lock().points.get(&key).map(|point| point.agent.clone());
        if let Some(agent) = known
            && is_there(api, &agent).await?
        {
            return Ok(agent);
        }
        let agent = created(api, ask).await?;
        self.lock().note(key, Point { agent: agent.clone(), length: 0 });
        Ok(agent)
    }

    /// Whether this is the last that the agent said, and nobody went on from there. Nobody else does then.
    fn take_head(&self, agent: &str, chain: Chain) -> bool {
        let mut known = self.lock();
        let is_head = known.heads.get(agent) == Some(&chain);
        is_head && known.heads.remove(agent).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn note(&mut self, chain: Chain, point: Point) {
        if self.points.insert(chain, point).is_none() {
            self.order.push_back(chain);
        }
        if self.order.len() > POINTS_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(point) = self.points.remove(&oldest)
            && self.heads.get(&point.agent) == Some(&oldest)
        {
            self.heads.remove(&point.agent);
        }
    }
}

impl Place {
    /// Notes what was answered. An agent that is gone is not found again.
    pub async fn note<A: Api>(self, api: &A, agent: &str, answer: &str) {
        let Ok(context) = api.for_agent(agent).get_context().await else { return };
        let chain = answered(self.chain, answer);
        let mut known = self.conversations.lock();
        known.note(chain, Point { agent: agent.into(), length: context.message_count });
        known.heads.insert(agent.into(), chain);
    }
}

impl Ask {
    /// What is the same in all requests of a conversation.
    fn seed(&self) -> Chain {
        let instructions = self.instructions.as_deref().unwrap_or_default();
        let [visitor, preset] = [&self.visitor, &self.preset].map(String::as_bytes);
        digest(&[b"chain", visitor, preset, instructions.as_bytes()])
    }
}

fn linked(chain: Chain, messages: &[Message]) -> Chain {
    messages.iter().fold(chain, |chain, message| match message.role {
        Role::Assistant => answered(chain, &message.text()),
        _ => {
            let parts = message.parts.iter().map(|part| match part {
                Part::Text(text) => digest(&[b"text", text.trim().as_bytes()]),
                Part::Data { data, .. } => digest(&[b"data", data.as_bytes()]),
                Part::Address(url) => digest(&[b"address", url.as_bytes()]),
            });
            let parts: Vec<Chain> = parts.collect();
            digest(&[b"said", &chain, parts.as_flattened()])
        }
    })
}

/// Clients trim what they keep.
fn answered(chain: Chain, answer: &str) -> Chain {
    digest(&[b"answered", &chain, answer.trim().as_bytes()])
}

/// A new agent, with the past that the request says it had.
async fn created<A: Api>(api: &A, ask: &Ask) -> Result<String, Failure> {
    let history = history(&ask.past)?;
    let params = CreateAgentParams {
        // Names that are generated are given again, and would be found in place of this one.
        agent_id: Some(temporary_name()?),
        preset: Some(ask.preset.clone()),
        system_prompt: ask.instructions.clone(),
        history: Some(history).filter(|history| !history.is_empty()),
        ..CreateAgentParams::default()
    };
    Ok(api.create_agent(params).await?.agent_id)
}

/// What was said elsewhere, in turns: whoever says two things in a row says one.
fn history(past: &[Message]) -> Result<Vec<PastMessage>, Failure> {
    let mut turns: Vec<(PastRole, String)> = Vec::new();
    for message in past {
        if message.role == Role::Tool || !message.calls.is_empty() {
            let why = "calls of tools that another program made cannot be taken over by an agent";
            return Err(Failure::invalid("messages", why));
        }
        let is_answer = message.role == Role::Assistant;
        let role = if is_answer { PastRole::Assistant } else { PastRole::User };
        let text = past_text(message);
        match turns.last_mut() {
            Some((last, said)) if *last == role => *said = format!("{said}\n\n{text}"),
            Some(_) => turns.push((role, text)),
            None => {
                if is_answer {
                    turns.push((PastRole::User, NOTHING.into()));
                }
                turns.push((role, text));
            }
        }
    }
    let said = |text: String| NonBlank::new(text).or_else(|| NonBlank::new(NOTHING));
    let whole = |(role, text)| Some(PastMessage { role, content: said(text)? });
    Ok(turns.into_iter().filter_map(whole).collect())
}

/// Images of a past that is taken over are named, and not shown again.
fn past_text(message: &Message) -> String {
    let parts = message.parts.iter().map(|part| match part {
        Part::Text(text) => text.clone(),
        Part::Data { name: Some(name), .. } => format!("[{name}]"),
        Part::Data { .. } | Part::Address(_) => "[image]".into(),
    });
    parts.collect::<Vec<_>>().join("\n")
}

async fn is_there<A: Api>(api: &A, agent: &str) -> Result<bool, Failure> {
    match api.for_agent(agent).get_context().await {
        Ok(_) => Ok(true),
        Err(error) if is_unknown(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_unknown(error: &CallError) -> bool {
    let CallError::Rpc(refused) = error else { return false };
    let path = refused.data.as_ref().and_then(|data| data.get("path")?.as_str());
    matches!(path, Some("/agent_id" | "/src_session"))
}

/// Nobody guesses it.
fn temporary_name() -> Result<String, Failure> {
    Ok(format!(".{}", super::chat::random_id("v1-")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ask::Chat;
    use super::*;

    fn messages(written: serde_json::Value) -> Vec<Message> {
        let body = json!({"model": "m", "messages": written});
        Chat::read(body.to_string().as_bytes()).unwrap().messages
    }

    fn said(role: &str, text: &str) -> serde_json::Value {
        json!({"role": role, "content": text})
    }

    #[test]
    fn a_chain_is_of_all_that_was_said_in_its_order() {
        let of = |written| linked([0; 32], &messages(written));
        let first = of(json!([said("user", "a"), said("assistant", "b")]));
        assert_eq!(first, of(json!([said("user", " a"), said("assistant", "b\n")])));
        let parts = json!([{"type": "text", "text": "b"}]);
        assert_eq!(first, of(json!([said("user", "a"), {"role": "assistant", "content": parts}])));
        for other in [
            json!([said("user", "a"), said("assistant", "c")]),
            json!([said("assistant", "a"), said("user", "b")]),
            json!([said("user", "ab"), said("assistant", "")]),
            json!([said("user", "a"), said("assistant", "b"), said("user", "c")]),
        ] {
            assert_ne!(first, of(other.clone()), "{other}");
        }
    }

    #[test]
    fn a_past_is_taken_over_in_turns() {
        let past = messages(json!([
            said("assistant", "Hello!"),
            said("user", "a"),
            said("user", "b"),
            said("assistant", ""),
        ]));
        let taken = history(&past).unwrap();
        let taken: Vec<_> =
            taken.into_iter().map(|it| (it.role, it.content.into_string())).collect();
        let expected = [
            (PastRole::User, NOTHING),
            (PastRole::Assistant, "Hello!"),
            (PastRole::User, "a\n\nb"),
            (PastRole::Assistant, NOTHING),
        ];
        assert_eq!(taken, expected.map(|(role, text)| (role, text.to_owned())));
        let call =
            json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let called = json!([{"role": "assistant", "content": null, "tool_calls": [call]}]);
        assert!(history(&messages(called)).is_err());
    }

    #[test]
    fn the_oldest_answer_is_forgotten_first() {
        let mut known = Known::default();
        let chain = |number: usize| digest(&[&number.to_le_bytes()]);
        for number in 0..=POINTS_MAX {
            let agent = format!("a{number}");
            known.note(chain(number), Point { agent: agent.clone(), length: 2 });
            known.heads.insert(agent, chain(number));
        }
        assert_eq!((known.points.len(), known.heads.len()), (POINTS_MAX, POINTS_MAX));
        assert!(!known.points.contains_key(&chain(0)) && known.points.contains_key(&chain(1)));
    }
}
