//! Conversations of a protocol that has none: every request says all that was said before. What was answered here is found
//! again by it, so that an agent goes on where it was, with all it did; what a request says otherwise is a fork.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nexus_protocol::agent::{CreateAgentParams, PastMessage, PastRole};
use nexus_protocol::params::NonBlank;
use nexus_protocol::session::{CloneSession, CloneSessionParams};
use nexus_protocol::{Api, CallError, Target};

use super::ask::{Message, Part, Role};
use super::chat::random_id;
use super::failure::Failure;
use super::repeats::digest;

/// Answers that are found again; the oldest is forgotten first, and is then taken over as a past that nobody knows.
const POINTS_MAX: usize = 20_000;

/// Limits that fewer agents keep within.
const MADE_ROOM_FOR: [&str; 3] =
    ["server.max_children", "server.max_tree_agents", "server.tree_memory_bytes_max"];

/// Stands for what was left empty in a past that is taken over.
const NOTHING: &str = "(nothing)";

#[derive(Default)]
pub struct Conversations {
    known: Mutex<Known>,
    naming: Naming,
}

/// Names whose agents are looked for: two requests of one name mean one agent, so the second waits. Nobody waits for
/// another's name: to make room, agents may have to end first.
#[derive(Default)]
struct Naming(Mutex<HashMap<Chain, Weak<tokio::sync::Mutex<()>>>>);

impl Naming {
    /// What whoever looks for the agent of this name holds.
    fn of(&self, name: Chain) -> Arc<tokio::sync::Mutex<()>> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(&name).and_then(Weak::upgrade) {
            return known;
        }
        // There are as many as there are requests under way.
        names.retain(|_, held| held.strong_count() > 0);
        let held = Arc::default();
        names.insert(name, Arc::downgrade(&held));
        held
    }
}

#[derive(Default)]
struct Known {
    points: HashMap<Chain, Point>,
    /// The oldest first.
    order: VecDeque<Chain>,
    /// The last answer of each agent, while nobody asks it anything.
    heads: HashMap<String, Chain>,
    /// Agents that were made here.
    made: HashMap<String, Made>,
    /// Counts uses of agents.
    uses: u64,
}

/// An agent that was made for a conversation.
struct Made {
    visitor: String,
    /// Requests that it is held for.
    holders: usize,
    /// The number of its last use.
    used: u64,
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
pub struct ChainEnd {
    held: Held,
    /// Up to what is answered.
    chain: Chain,
}

/// An agent that a request goes on with: until this is dropped, it is not ended to make room for others.
struct Held {
    conversations: Arc<Conversations>,
    agent: String,
}

/// How an agent comes to be.
enum Making {
    /// With a past that was said elsewhere.
    New { history: Vec<PastMessage> },
    /// As another was at this point.
    Fork(Point),
}

impl Making {
    async fn make<A: Api>(&self, api: &A, ask: &Ask, name: String) -> Result<(), CallError> {
        match self {
            Self::New { history } => {
                let params = CreateAgentParams {
                    agent_id: Some(name),
                    preset: Some(ask.preset.clone()),
                    system_prompt: ask.instructions.clone(),
                    history: Some(history.clone()).filter(|history| !history.is_empty()),
                    ..CreateAgentParams::default()
                };
                api.create_agent(params).await.map(drop)
            }
            Self::Fork(point) => {
                let params = CloneSessionParams {
                    src_session: point.agent.clone(),
                    dest_session: name,
                    upto: Some(point.length.saturating_sub(1)),
                };
                api.call::<CloneSession>(&Target::Server, params).await.map(drop)
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut known = self.conversations.lock();
        if let Some(made) = known.made.get_mut(&self.agent) {
            made.holders -= 1;
        }
    }
}

impl Conversations {
    /// The agent that a request goes on with, and where its answer will stand.
    pub async fn agent_for<A: Api>(
        self: &Arc<Self>,
        api: &A,
        ask: &Ask,
    ) -> Result<(String, ChainEnd), Failure> {
        let known = linked(ask.seed(), &ask.past);
        let held = match &ask.session {
            Some(name) => self.named(api, ask, name).await?,
            None => self.found(api, ask, known).await?,
        };
        let agent = held.agent.clone();
        Ok((agent, ChainEnd { held, chain: linked(known, &ask.fresh) }))
    }

    async fn found<A: Api>(
        self: &Arc<Self>,
        api: &A,
        ask: &Ask,
        chain: Chain,
    ) -> Result<Held, Failure> {
        let point = self.lock().points.get(&chain).cloned().filter(|_| !ask.past.is_empty());
        let Some(point) = point else { return self.created(api, ask).await };
        let Some(held) = self.hold(api, &point.agent).await? else {
            return self.created(api, ask).await;
        };
        if self.take_head(&point.agent, chain) {
            return Ok(held);
        }
        match self.made(api, ask, Making::Fork(point), random_name()?).await {
            Ok(copy) => Ok(copy),
            // It ended a moment ago.
            Err(error) if is_unknown(&error) => self.created(api, ask).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn named<A: Api>(
        self: &Arc<Self>,
        api: &A,
        ask: &Ask,
        name: &str,
    ) -> Result<Held, Failure> {
        let key =
            digest(&[b"session", ask.visitor.as_bytes(), ask.preset.as_bytes(), name.as_bytes()]);
        let one = self.naming.of(key);
        let _one = one.lock().await;
        let known = self.lock().points.get(&key).map(|point| point.agent.clone());
        if let Some(agent) = known
            && let Some(held) = self.hold(api, &agent).await?
        {
            return Ok(held);
        }
        let held = self.created(api, ask).await?;
        self.lock().note(key, Point { agent: held.agent.clone(), length: 0 });
        Ok(held)
    }

    /// A new agent, with the past that the request says it had.
    async fn created<A: Api>(self: &Arc<Self>, api: &A, ask: &Ask) -> Result<Held, Failure> {
        let making = Making::New { history: history(&ask.past)? };
        Ok(self.made(api, ask, making, random_name()?).await?)
    }

    /// Makes an agent. Where the visitor has as many as it may, what was quiet for longest makes room.
    async fn made<A: Api>(
        self: &Arc<Self>,
        api: &A,
        ask: &Ask,
        making: Making,
        agent: String,
    ) -> Result<Held, CallError> {
        // Before it is made: whoever asked may be gone when it is.
        let held = self.begin(agent.clone(), &ask.visitor);
        loop {
            match making.make(api, ask, agent.clone()).await {
                Ok(()) => return Ok(held),
                Err(error) if is_full(&error) && self.make_room(api, &ask.visitor).await => {}
                Err(error) => {
                    self.lock().forget(&agent);
                    return Err(error);
                }
            }
        }
    }

    /// Ends the conversation of a visitor in which nothing was asked for longest. False when there is none.
    async fn make_room<A: Api>(&self, api: &A, visitor: &str) -> bool {
        let quiet = self.lock().quiet(visitor);
        for agent in quiet {
            match api.for_agent(&agent).get_context().await {
                Ok(context) if context.turns.is_empty() => {}
                // Somebody works with it who did not come through here.
                Ok(_) => continue,
                Err(error) => {
                    if is_unknown(&error) {
                        self.lock().forget(&agent);
                    }
                    continue;
                }
            }
            let is_quiet_still = self.lock().forget_quiet(&agent);
            if is_quiet_still && api.destroy_agent(agent).await.is_ok() {
                return true;
            }
        }
        false
    }

    fn begin(self: &Arc<Self>, agent: String, visitor: &str) -> Held {
        let mut known = self.lock();
        let used = known.use_next();
        let made = Made { visitor: visitor.into(), holders: 1, used };
        known.made.insert(agent.clone(), made);
        known.forget_surplus();
        Held { conversations: self.clone(), agent }
    }

    /// The agent of this name, if it is still there.
    async fn hold<A: Api>(self: &Arc<Self>, api: &A, agent: &str) -> Result<Option<Held>, Failure> {
        let held = {
            let mut known = self.lock();
            let used = known.use_next();
            let Some(made) = known.made.get_mut(agent) else { return Ok(None) };
            made.holders += 1;
            made.used = used;
            Held { conversations: self.clone(), agent: agent.into() }
        };
        match api.for_agent(agent).get_context().await {
            Ok(_) => Ok(Some(held)),
            Err(error) if is_unknown(&error) => {
                self.lock().forget(agent);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
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

    fn use_next(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Agents of a visitor that nothing is asked of, the one first that was used longest ago.
    fn quiet(&self, visitor: &str) -> Vec<String> {
        let own = self.made.iter().filter(|(_, made)| made.visitor == visitor && made.is_quiet());
        let mut own: Vec<_> = own.map(|(agent, made)| (made.used, agent.clone())).collect();
        own.sort_unstable();
        own.into_iter().map(|(_, agent)| agent).collect()
    }

    fn forget(&mut self, agent: &str) {
        self.made.remove(agent);
        self.heads.remove(agent);
    }

    /// True if nothing is asked of it.
    fn forget_quiet(&mut self, agent: &str) -> bool {
        let is_quiet = self.made.get(agent).is_some_and(Made::is_quiet);
        if is_quiet {
            self.forget(agent);
        }
        is_quiet
    }

    /// Agents end by themselves, too, and nobody says so here.
    fn forget_surplus(&mut self) {
        if self.made.len() > POINTS_MAX
            && let quiet = self.made.iter().filter(|(_, made)| made.is_quiet())
            && let Some((oldest, _)) = quiet.min_by_key(|(_, made)| made.used)
        {
            let oldest = oldest.clone();
            self.forget(&oldest);
        }
    }
}

impl Made {
    fn is_quiet(&self) -> bool {
        self.holders == 0
    }
}

impl ChainEnd {
    /// Notes what was answered. An agent that is gone is not found again.
    pub async fn note<A: Api>(self, api: &A, answer: &str) {
        let Held { conversations, agent } = &self.held;
        let Ok(context) = api.for_agent(agent).get_context().await else { return };
        let chain = answered(self.chain, answer);
        let mut known = conversations.lock();
        known.note(chain, Point { agent: agent.clone(), length: context.message_count });
        known.heads.insert(agent.clone(), chain);
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

fn is_unknown(error: &CallError) -> bool {
    let CallError::Rpc(refused) = error else { return false };
    let path = refused.data.as_ref().and_then(|data| data.get("path")?.as_str());
    matches!(path, Some("/agent_id" | "/src_session"))
}

/// Nobody guesses it. Names that are generated elsewhere are given again, and would be found in place of this one.
fn random_name() -> Result<String, Failure> {
    Ok(format!(".{}", random_id("v1-")?))
}

/// Whether there would be room if there were fewer agents.
fn is_full(error: &CallError) -> bool {
    let CallError::Rpc(refused) = error else { return false };
    let limit = refused.data.as_ref().and_then(|data| data.get("limit")?.as_str());
    limit.is_some_and(|limit| MADE_ROOM_FOR.contains(&limit))
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
    fn a_name_waits_for_itself_alone() {
        let naming = Naming::default();
        let (one, same, other) = (naming.of([1; 32]), naming.of([1; 32]), naming.of([2; 32]));
        let held = one.try_lock();
        assert!(held.is_ok() && same.try_lock().is_err() && other.try_lock().is_ok());
        drop(held);
        assert!(same.try_lock().is_ok());
        drop((one, same, other));
        drop(naming.of([3; 32]));
        assert_eq!(naming.0.lock().unwrap().len(), 1, "names that nobody holds are forgotten");
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
