//! Turns that came through the door. Each lives by itself: a host may leave and ask for it again.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use nexus_protocol::answer::WatchItem;
use nexus_protocol::api::Happenings;
use nexus_protocol::once::IdempotencyKey;
use nexus_protocol::params::NonBlank;
use nexus_protocol::permission::ApprovalEntry;
use nexus_protocol::turn::SendResult;
use nexus_protocol::turn::{Cancel, CancelParams, RequestId, SendParams};
use nexus_protocol::watch::{Event, Happened, WatchParams};
use nexus_protocol::{CallError, RpcError, Target, WatchApi};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::begun;

/// Turns that are remembered, and bytes of their answers. Of those that ended the oldest is forgotten first; the store
/// still has it.
const KEPT_MAX: usize = 256;
const KEPT_BYTES_MAX: usize = 16 << 20;

/// What the end of a turn may take to be told behind its answer.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A watch that ended is opened again after this.
const AGAIN: Duration = Duration::from_millis(100);

/// The turns of one visitor.
pub struct Turns<A> {
    api: A,
    /// Sees approvals, for the person at the host.
    person: A,
    kept: Mutex<VecDeque<Arc<Turn>>>,
}

/// What is to be done.
pub struct Ask {
    pub agent: String,
    pub content: String,
    pub response_schema: Option<Map<String, Value>>,
    pub timeout_s: Option<NonZeroU64>,
    pub source: String,
    /// A person can be asked for leave on the way it came.
    pub has_person: bool,
    /// It goes on when whoever asked hangs up.
    pub is_task: bool,
}

/// One of them.
pub struct Turn {
    pub agent: String,
    /// Its name at the server.
    pub id: String,
    pub began: Timestamp,
    state: watch::Receiver<State>,
}

/// How far it is.
#[derive(Clone, Default)]
pub struct State {
    /// Model calls and tool calls so far, and what the last one was.
    pub steps: u32,
    pub doing: String,
    /// What waits for leave, oldest first.
    pub asked: Vec<ApprovalEntry>,
    /// Tools that were refused.
    pub denied: Vec<String>,
    /// Names of calls, by their ids.
    calls: HashMap<String, String>,
    pub outcome: Option<Arc<Outcome>>,
}

pub type Outcome = Result<SendResult, CallError>;

impl<A: WatchApi + Clone + Send + 'static> Turns<A> {
    pub fn new(api: A, person: A) -> Self {
        Self { api, person, kept: Mutex::default() }
    }

    /// Begins a turn. It is watched before it is begun, so that nothing of it is missed.
    pub async fn begin(&self, ask: Ask) -> Result<Arc<Turn>, CallError> {
        let blank = || RpcError::invalid_param("/content", "content must not be blank");
        let content = NonBlank::new(ask.content).ok_or_else(blank)?;
        let id = random_id()?;
        let key = ask.is_task.then(|| IdempotencyKey::new(id.clone()).map_err(CallError::Call));
        let milliseconds = |seconds: NonZeroU64| seconds.saturating_mul(THOUSAND);
        let params = SendParams {
            request_id: Some(RequestId::Text(id.clone())),
            source: Some(ask.source.clone()),
            response_schema: ask.response_schema,
            timeout_ms: ask.timeout_s.map(milliseconds),
            idempotency_key: key.transpose()?,
            ..SendParams::new(content)
        };
        // Before anything of the agent is looked at in another's name.
        self.api.for_agent(&ask.agent).get_context().await?;
        let watching = Watching {
            api: self.api.clone(),
            eyes: if ask.has_person { self.person.clone() } else { self.api.clone() },
            agent: ask.agent.clone(),
            name: ask.source,
            has_person: ask.has_person,
        };
        // Where no more may be watched, the turn runs all the same, and is looked at as soon as there is room.
        let happenings = watching.open().await.ok();
        let (sender, state) = watch::channel(State::default());
        let turn =
            Arc::new(Turn { agent: ask.agent, id: id.clone(), began: Timestamp::now(), state });
        self.keep(turn.clone());
        tokio::spawn(run(watching, happenings, id, params, sender));
        Ok(turn)
    }

    pub fn find(&self, agent: &str, id: &str) -> Option<Arc<Turn>> {
        self.lock().iter().find(|turn| turn.agent == agent && turn.id == id).cloned()
    }

    /// Cancels it, if it still runs.
    pub async fn cancel(&self, agent: &str, id: &str) -> Result<bool, CallError> {
        let params = CancelParams { request_id: RequestId::Text(id.into()) };
        let target = Target::Agent(agent.into());
        Ok(self.api.call::<Cancel>(&target, params).await?.cancelled)
    }

    fn keep(&self, turn: Arc<Turn>) {
        let mut kept = self.lock();
        make_room(&mut kept);
        kept.push_back(turn);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Turn>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets turns that ended until another can be remembered.
fn make_room(kept: &mut VecDeque<Arc<Turn>>) {
    let mut bytes: usize = kept.iter().map(|turn| turn.answer_bytes()).sum();
    while kept.len() >= KEPT_MAX || bytes > KEPT_BYTES_MAX {
        let ended = kept.iter().position(|turn| turn.is_over());
        let Some(forgotten) = ended.and_then(|place| kept.remove(place)) else { return };
        bytes -= forgotten.answer_bytes();
    }
}

const THOUSAND: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

impl Turn {
    pub fn now(&self) -> State {
        self.state.borrow().clone()
    }

    /// How far it is, told at each change.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    fn is_over(&self) -> bool {
        self.state.borrow().outcome.is_some()
    }

    fn answer_bytes(&self) -> usize {
        let state = self.state.borrow();
        state
            .outcome
            .as_ref()
            .and_then(|it| it.as_ref().as_ref().ok())
            .map_or(0, |it| it.content.len())
    }
}

/// How a turn is looked at while it runs.
struct Watching<A> {
    api: A,
    eyes: A,
    agent: String,
    name: String,
    has_person: bool,
}

impl<A: WatchApi> Watching<A> {
    /// Returns when everything that happens from now on is told.
    async fn open(&self) -> Result<A::Watch, CallError> {
        let params = WatchParams {
            agents: Some(vec![self.agent.clone()]),
            descendants: Some(true),
            deltas: Some(false),
            after: None,
            approver: Some(self.has_person),
            name: Some(self.name.clone()),
        };
        begun::watch(&self.eyes, params).await
    }
}

/// Carries a turn to its end.
async fn run<A: WatchApi + Send + 'static>(
    watching: Watching<A>,
    mut happenings: Option<A::Watch>,
    id: String,
    params: SendParams,
    state: watch::Sender<State>,
) {
    let request = RequestId::Text(id);
    let outcome = {
        let mut sending = pin!(watching.api.send_held(&watching.agent, params));
        loop {
            tokio::select! {
                biased;
                outcome = &mut sending => break outcome,
                told = next(&watching, &mut happenings) => {
                    state.send_modify(|state| { state.take(&watching.agent, &request, told); });
                }
            }
        }
    };
    let rest = async {
        while let Some(Some(Ok(item))) = match &mut happenings {
            Some(watch) => Some(watch.next().await),
            None => None,
        } {
            let WatchItem::Event(event) = item else { return };
            let mut is_last = false;
            state.send_modify(|state| {
                is_last = state.take(&watching.agent, &request, event.happened)
            });
            if is_last {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, rest).await;
    state.send_modify(|state| {
        state.asked.clear();
        state.outcome = Some(Arc::new(outcome));
    });
}

/// What happens next. A watch that was left behind is opened again.
async fn next<A: WatchApi>(watching: &Watching<A>, happenings: &mut Option<A::Watch>) -> Happened {
    loop {
        match happenings {
            Some(watch) => match watch.next().await {
                Some(Ok(WatchItem::Event(event))) => return event.happened,
                Some(Ok(WatchItem::Unknown(_))) => {}
                Some(Ok(WatchItem::Done(_)) | Err(_)) | None => *happenings = None,
            },
            None => {
                tokio::time::sleep(AGAIN).await;
                *happenings = watching.open().await.ok();
            }
        }
    }
}

impl State {
    /// Takes in what happened. True when the turn is over.
    fn take(&mut self, agent: &str, turn: &RequestId, happened: Happened) -> bool {
        let is_own = happened.request_id.as_ref() == Some(turn);
        match happened.event {
            Event::ToolCall(call) if is_own => {
                self.calls.insert(call.id, call.name.clone());
                self.step(call.name);
            }
            Event::ToolProgress { id, message, .. } if is_own => {
                if let Some(name) = self.calls.get(&id) {
                    self.step(message.map_or(name.clone(), |message| format!("{name}: {message}")));
                }
            }
            Event::ToolResult { id, refused_by: Some(_), .. } if is_own => {
                self.denied.extend(self.calls.get(&id).cloned());
            }
            Event::Message { message, .. } if is_own && message.role == "assistant" => {
                self.step("model".into());
            }
            // What the agent asks in a turn of somebody else is his; its children ask for whoever made them work.
            Event::ApprovalRequested { approval }
                if approval.request_id.as_ref() == Some(turn) || approval.agent_id != agent =>
            {
                self.asked.push(approval);
            }
            Event::ApprovalDecided { approval } => {
                self.asked.retain(|asked| asked.approval_id != approval.approval_id);
            }
            Event::TurnEnded { .. } if is_own => return true,
            _ => {}
        }
        false
    }

    fn step(&mut self, doing: String) {
        self.steps += 1;
        self.doing = doing;
    }
}

/// A name that nobody guesses.
fn random_id() -> Result<String, CallError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| CallError::Call(error.to_string()))?;
    Ok(bytes.iter().fold("mcp-".into(), |id, byte| format!("{id}{byte:02x}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One that runs, or one that ended with so many bytes.
    fn turn(id: usize, ended: Option<usize>) -> Arc<Turn> {
        let answer = |bytes: usize| {
            let usage =
                json!({"input": 0, "cache_read": 0, "cache_write": 0, "output": 0, "reasoning": 0});
            let result = json!({
                "content": "x".repeat(bytes), "request_id": "r", "halted_at_iteration_limit": false,
                "stop_reason": "end_turn", "usage": usage, "cost_usd": null, "model": "m", "steps": 1,
            });
            Arc::new(Ok(serde_json::from_value(result).unwrap()))
        };
        let state = State { outcome: ended.map(answer), ..State::default() };
        let (_, state) = watch::channel(state);
        Arc::new(Turn { agent: "a".into(), id: id.to_string(), began: Timestamp::now(), state })
    }

    fn ids(kept: &VecDeque<Arc<Turn>>) -> Vec<&str> {
        kept.iter().map(|turn| turn.id.as_str()).collect()
    }

    #[test]
    fn the_oldest_that_ended_make_room_and_what_runs_stays() {
        let mut kept: VecDeque<_> = (0..KEPT_MAX - 1).map(|id| turn(id, Some(1))).collect();
        make_room(&mut kept);
        assert_eq!(kept.len(), KEPT_MAX - 1);
        kept.push_front(turn(999, None));
        make_room(&mut kept);
        assert_eq!((kept.len(), ids(&kept)[0], ids(&kept)[1]), (KEPT_MAX - 1, "999", "1"));
        let mut running: VecDeque<_> = (0..KEPT_MAX + 1).map(|id| turn(id, None)).collect();
        make_room(&mut running);
        assert_eq!(running.len(), KEPT_MAX + 1);
    }

    #[test]
    fn answers_are_kept_up_to_so_many_bytes() {
        let half = KEPT_BYTES_MAX / 2;
        let mut kept: VecDeque<_> = (0..2).map(|id| turn(id, Some(half))).collect();
        make_room(&mut kept);
        assert_eq!(ids(&kept), ["0", "1"]);
        kept.push_back(turn(2, Some(1)));
        make_room(&mut kept);
        assert_eq!(ids(&kept), ["1", "2"]);
    }
}
