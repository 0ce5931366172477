//! The way of every call to one provider with one key.
//!
//! A lane lets as many calls through at a time as the provider takes ([`room`]), keeps to what it says is left of its
//! limits ([`limits`]), stops altogether when it wants to be left alone ([`pause`]) or keeps failing ([`breaker`]), and
//! says who of those that wait is next ([`queue`]). All of it lies behind one lock that is held for a moment: a call that
//! need not wait starts no task and sends no message.

mod breaker;
mod bucket;
mod limits;
mod pause;
mod queue;
mod room;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use nexus_core::provider::{Asker, Pauses, ProviderError, Waiting};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::calls::random;
use super::errors::{Failure, wait};
use super::{Kind, ProviderSettings};
use breaker::{Breaker, Verdict};
use limits::Limits;
use pause::Pause;
use queue::{Entry, Queue, WAITING_MAX};
use room::Room;

/// The longest wait that is slept through: somebody waits for the turn. One that is longer is an answer.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);

/// Of a lane, this part is never one tree's: who hangs on all its calls would hold up everybody else's.
const RESERVE: u32 = 8;

/// The longest wait of our own choosing between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

pub(super) struct Lane {
    /// Stable, and tells nothing of the key.
    name: String,
    queue_timeout: Duration,
    retry_backoff: Duration,
    pauses: Option<Arc<dyn Pauses>>,
    state: Mutex<State>,
}

struct State {
    in_flight: u32,
    /// How many of them are of each tree.
    of_roots: HashMap<Arc<str>, u32>,
    room: Room,
    pause: Pause,
    breaker: Breaker,
    limits: Limits,
    queue: Queue,
    next_id: u64,
    /// The latest pause of other processes that was heeded, or of ours that was told them.
    heeded: Option<Timestamp>,
    /// When those that wait are looked at again, and where that is waited for.
    armed: Option<Instant>,
    runtime: Option<Handle>,
}

/// What a call that may go was given.
#[derive(Debug)]
struct Granted {
    /// Whose call it is.
    root: Arc<str>,
    /// Which pause was the latest.
    wave: u64,
    /// Its number among the calls of its model.
    number: u64,
    /// Whether others wait for what comes of it: after a pause, and after a rest.
    probes_pause: bool,
    probes_rest: bool,
}

/// Why a call has to wait, and until when if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Blocked {
    until: Option<Instant>,
    reason: &'static str,
}

/// A call that waits for the reason it had before says so when it is by more than this longer than it was told.
const LONGER_MIN: Duration = Duration::from_secs(10);

const RATE_LIMIT: &str = "rate_limit";
const OVERLOADED: &str = "overloaded";
const FULL: &str = "full";

/// A call waits before it is sent again, since it failed and others may not.
pub(super) const RETRY: &str = "retry";

impl Lane {
    pub fn new(settings: &ProviderSettings, base_url: &str) -> Self {
        let now = Instant::now();
        let state = State {
            in_flight: 0,
            of_roots: HashMap::new(),
            room: Room::new(settings.max_concurrent_calls),
            pause: Pause::new(),
            breaker: Breaker::new(),
            limits: Limits::new(
                settings.requests_per_minute,
                settings.tokens_per_minute,
                settings.kind != Kind::Anthropic,
                now,
            ),
            queue: Queue::default(),
            next_id: 0,
            heeded: None,
            armed: None,
            runtime: None,
        };
        Self {
            name: name(settings, base_url),
            queue_timeout: settings.queue_timeout,
            retry_backoff: settings.retry_backoff,
            pauses: settings.pauses.clone(),
            state: Mutex::new(state),
        }
    }

    /// A place for a call that reads about so many tokens.
    pub fn place<'a>(self: &Arc<Self>, asker: &'a Asker, model: &str, tokens: u64) -> Place<'a> {
        let (mut state, now) = self.locked();
        state.next_id += 1;
        Place {
            lane: self.clone(),
            id: state.next_id,
            asker,
            model: model.into(),
            tokens: state.limits.taken(&asker.conversation, tokens, now),
            deadline: now + self.queue_timeout,
            was_sent: false,
            told: None,
        }
    }

    /// The wait before the next attempt of a call that failed so often.
    pub fn backoff(&self, failures: u32) -> Duration {
        let doubled = self.retry_backoff.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let base = doubled.min(BACKOFF_MAX);
        // Up to as much again, so that those that failed together do not come back together.
        base + base.mul_f64((random() % 1024) as f64 / 1024.0)
    }

    /// The state, which heeds what other processes were told meanwhile.
    fn locked(&self) -> (MutexGuard<'_, State>, Instant) {
        let elsewhere = self.pauses.as_ref().and_then(|pauses| pauses.until(&self.name));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(at) = elsewhere
            && state.heeded.is_none_or(|heeded| heeded < at)
        {
            state.heeded = Some(at);
            let wait = wait::until(at, Timestamp::now()).min(WAIT_MAX);
            if !wait.is_zero() {
                state.pause.stop(now + wait, RATE_LIMIT);
            }
        }
        (state, now)
    }

    /// Lets go who may.
    fn dispatch(self: &Arc<Self>, state: &mut State, now: Instant) {
        while !state.queue.is_empty() {
            if let Some(resting) = state.resting(now) {
                state.turn_away(&mut |_| true, &resting);
                return;
            }
            let mut wait = state.lane_blocked(now).map(|blocked| blocked.until);
            if wait.is_none() {
                // Who is next decides for the configured limits: smaller calls do not slip by a large one for ever.
                let mut short = None;
                let mut earliest = None;
                let (of_tree_max, of_roots) = (state.of_tree_max(), &state.of_roots);
                let limits = &mut state.limits;
                let next = state.queue.next(&mut |entry| {
                    if short.is_some() || has_share(of_roots, &entry.root, of_tree_max) {
                        return false;
                    }
                    if let Some(at) = limits.figures_wait(&entry.model, entry.tokens, now) {
                        earliest = Some(earliest.map_or(at, |known: Instant| known.min(at)));
                        return false;
                    }
                    short = limits.configured_wait(entry.tokens, now);
                    short.is_none()
                });
                match next {
                    Some(entry) => {
                        let granted = state.grant(&entry.root, &entry.model, entry.tokens, now);
                        if let Err(Ok(granted)) = entry.answer.send(Ok(granted)) {
                            state.release(&granted);
                        }
                        continue;
                    }
                    None => wait = Some(short.or(earliest)),
                }
            }
            let Some(at) = wait.flatten() else { return };
            // Whoever stood behind one that is gone may be next.
            if !state.turn_impatient_away(at, now) {
                self.arm(state, at);
                return;
            }
        }
    }

    /// Looks again at `at`. Only those that wait need it, so it is no part of the usual way.
    fn arm(self: &Arc<Self>, state: &mut State, at: Instant) {
        if state.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        let Some(runtime) = &state.runtime else { return };
        let lane: Weak<Self> = Arc::downgrade(self);
        runtime.spawn(async move {
            sleep_until(at).await;
            if let Some(lane) = lane.upgrade() {
                let (mut state, now) = lane.locked();
                if state.armed == Some(at) {
                    state.armed = None;
                }
                lane.dispatch(&mut state, now);
            }
        });
        state.armed = Some(at);
    }
}

impl State {
    /// Why no call at all may go now.
    fn lane_blocked(&mut self, now: Instant) -> Option<Blocked> {
        if let Err(blocked) = self.pause.check(now) {
            return Some(blocked);
        }
        (self.in_flight >= self.room.now()).then_some(Blocked { until: None, reason: FULL })
    }

    /// Calls that one tree may have under way.
    fn of_tree_max(&self) -> u32 {
        let room = self.room.now();
        room - room / RESERVE
    }

    /// Why this one may not.
    fn blocked(&mut self, root: &str, model: &str, tokens: u64, now: Instant) -> Option<Blocked> {
        let is_full = has_share(&self.of_roots, root, self.of_tree_max());
        let full = is_full.then_some(Blocked { until: None, reason: FULL });
        self.lane_blocked(now).or(full).or_else(|| {
            let figures = self.limits.figures_wait(model, tokens, now);
            let until = figures.max(self.limits.configured_wait(tokens, now))?;
            Some(Blocked { until: Some(until), reason: RATE_LIMIT })
        })
    }

    fn resting(&self, now: Instant) -> Option<ProviderError> {
        match self.breaker.verdict(now) {
            Verdict::Rest { retry_after, why } => {
                let message = format!("it failed again and again; the last time: {why}");
                Some(ProviderError::Resting { message, retry_after })
            }
            Verdict::Pass | Verdict::Probe => None,
        }
    }

    fn grant(&mut self, root: &Arc<str>, model: &Arc<str>, tokens: u64, now: Instant) -> Granted {
        self.in_flight += 1;
        *self.of_roots.entry(root.clone()).or_default() += 1;
        let probes_rest = self.breaker.verdict(now) == Verdict::Probe;
        if probes_rest {
            self.breaker.probe_sent(now);
        }
        Granted {
            root: root.clone(),
            wave: self.pause.wave(),
            number: self.limits.sent(model, tokens, now),
            probes_pause: self.pause.sent(now),
            probes_rest,
        }
    }

    fn release(&mut self, granted: &Granted) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(theirs) = self.of_roots.get_mut(&granted.root) {
            *theirs -= 1;
            if *theirs == 0 {
                self.of_roots.remove(&granted.root);
            }
        }
        if granted.probes_pause {
            self.pause.probe_lost();
        }
        if granted.probes_rest {
            self.breaker.probe_lost();
        }
    }

    /// Lets nothing through for so long, and answers calls that do not wait that long.
    fn stop(&mut self, wait: Duration, reason: &'static str, why: &ProviderError, now: Instant) {
        self.pause.stop(now + wait, reason);
        self.turn_away(&mut |entry| entry.wait_max.is_some_and(|most| wait > most), why);
    }

    /// Answers calls that do not wait as long as they have to, which is until `at` at least. Whether there were any.
    fn turn_impatient_away(&mut self, at: Instant, now: Instant) -> bool {
        let limits = &mut self.limits;
        let mut wait = |entry: &Entry| {
            let figures = limits.figures_wait(&entry.model, entry.tokens, now);
            figures.map_or(at, |figures| figures.max(at)).saturating_duration_since(now)
        };
        let impatient =
            self.queue.take(&mut |entry| entry.wait_max.is_some_and(|most| wait(entry) > most));
        let any = !impatient.is_empty();
        for entry in impatient {
            let error = too_long(wait(&entry));
            // Who has left meanwhile does not mind.
            let _ = entry.answer.send(Err(error));
        }
        any
    }

    /// Answers calls that wait for what will not come.
    fn turn_away(&mut self, meant: &mut dyn FnMut(&Entry) -> bool, error: &ProviderError) {
        for entry in self.queue.take(meant) {
            // Who has left meanwhile does not mind.
            let _ = entry.answer.send(Err(error.clone()));
        }
    }
}

/// A call's place in the lane, which it keeps until it is answered or given up.
pub(super) struct Place<'a> {
    lane: Arc<Lane>,
    id: u64,
    asker: &'a Asker,
    model: Arc<str>,
    tokens: u64,
    deadline: Instant,
    was_sent: bool,
    /// What was said last of its waiting.
    told: Option<Waiting>,
}

enum Entered {
    Passed(Granted),
    TurnedAway(ProviderError),
    Waits(oneshot::Receiver<Result<Granted, ProviderError>>, Blocked),
}

impl Place<'_> {
    /// Waits until the call may be sent. One that was sent before stands before all that were not.
    pub async fn pass(&mut self) -> Result<Permit, ProviderError> {
        let (answer, blocked) = match self.enter() {
            Entered::Passed(granted) => return Ok(self.permit(granted)),
            Entered::TurnedAway(error) => return Err(error),
            Entered::Waits(answer, blocked) => (answer, blocked),
        };
        let mut waiter = Waiter { place: self, answer };
        let wait = blocked.until.map(|at| at.saturating_duration_since(Instant::now()));
        waiter.place.tell(blocked.reason, wait);
        let answer = timeout_at(waiter.place.deadline, &mut waiter.answer).await;
        drop(waiter);
        match answer {
            Ok(Ok(granted)) => granted.map(|granted| self.permit(granted)),
            // The lane sends an answer to all it takes out, and this call holds the lane.
            Ok(Err(_)) => Err(ProviderError::Crowded("the lane is gone".to_owned())),
            Err(_) => Err(self.crowded()),
        }
    }

    /// Tells who asks that the call waits, where that is news.
    pub fn tell(&mut self, reason: &'static str, wait: Option<Duration>) {
        let Some(listener) = &self.asker.waiting else { return };
        let is_longer = |told: Option<Duration>| {
            wait.unwrap_or_default() > told.unwrap_or_default() + LONGER_MIN
        };
        let is_known = |told: &Waiting| told.reason == reason && !is_longer(told.wait);
        if !self.told.as_ref().is_some_and(is_known) {
            let waiting = Waiting { reason, wait };
            self.told = Some(waiting.clone());
            listener(waiting);
        }
    }

    /// From now on the call waits until then at most.
    pub fn give_up_at(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn enter(&self) -> Entered {
        let (mut state, now) = self.lane.locked();
        if let Some(error) = state.limits.refusal(&self.model, now).or_else(|| state.resting(now)) {
            return Entered::TurnedAway(error);
        }
        let blocked = state.blocked(&self.asker.root, &self.model, self.tokens, now);
        if state.queue.is_empty() && blocked.is_none() {
            return Entered::Passed(state.grant(&self.asker.root, &self.model, self.tokens, now));
        }
        if let Some(at) = blocked.and_then(|blocked| blocked.until)
            && self.asker.wait_max.is_some_and(|most| at - now > most)
        {
            return Entered::TurnedAway(too_long(at - now));
        }
        if state.queue.len() >= WAITING_MAX {
            let why = format!("{WAITING_MAX} calls wait already");
            let crowded = ProviderError::Crowded(why);
            match state.queue.make_room(&self.asker.root) {
                // Who has left meanwhile does not mind.
                Some(newest) => drop(newest.answer.send(Err(crowded))),
                None => return Entered::TurnedAway(crowded),
            }
        }
        let (sender, mut answer) = oneshot::channel();
        let entry = Entry {
            id: self.id,
            root: self.asker.root.clone(),
            agent: self.asker.agent.clone(),
            urgency: self.asker.urgency,
            model: self.model.clone(),
            tokens: self.tokens,
            wait_max: self.asker.wait_max,
            answer: sender,
        };
        if self.was_sent {
            state.queue.push_returning(entry)
        } else {
            state.queue.push(entry)
        }
        state.runtime = Some(Handle::current());
        self.lane.dispatch(&mut state, now);
        match answer.try_recv() {
            Ok(Ok(granted)) => Entered::Passed(granted),
            Ok(Err(error)) => Entered::TurnedAway(error),
            Err(_) => {
                Entered::Waits(answer, blocked.unwrap_or(Blocked { until: None, reason: FULL }))
            }
        }
    }

    fn permit(&mut self, granted: Granted) -> Permit {
        self.was_sent = true;
        Permit { lane: self.lane.clone(), model: self.model.clone(), granted, was_heard: false }
    }

    fn crowded(&self) -> ProviderError {
        let seconds = self.lane.queue_timeout.as_secs_f32();
        let (state, _) = self.lane.locked();
        ProviderError::Crowded(format!(
            "it waited {seconds} s; {} calls are under way and {} wait",
            state.in_flight,
            state.queue.len()
        ))
    }
}

/// A call while it waits. Whoever goes away leaves no place behind, and no permit.
struct Waiter<'a, 'b> {
    place: &'a mut Place<'b>,
    answer: oneshot::Receiver<Result<Granted, ProviderError>>,
}

impl Drop for Waiter<'_, '_> {
    fn drop(&mut self) {
        let Place { lane, id, asker, .. } = &*self.place;
        let (mut state, now) = lane.locked();
        state.queue.remove(*id, &asker.root, &asker.agent, asker.urgency);
        self.answer.close();
        if let Ok(Ok(granted)) = self.answer.try_recv() {
            state.release(&granted);
            lane.dispatch(&mut state, now);
        }
    }
}

/// Leave for one call, which it holds until its answer is over.
pub(super) struct Permit {
    lane: Arc<Lane>,
    model: Arc<str>,
    granted: Granted,
    was_heard: bool,
}

impl Permit {
    /// The provider answered, well or not.
    pub fn told(&mut self, status: StatusCode, headers: &HeaderMap) {
        let (mut state, now) = self.lane.locked();
        state.limits.told(&self.model, self.granted.number, headers, now);
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return;
        }
        let room = state.room.now();
        let is_probe = std::mem::take(&mut self.granted.probes_pause);
        state.pause.answered(self.granted.wave, is_probe, room, now);
        if !status.is_success() {
            // It is there, and has something to say.
            state.breaker.succeeded();
            self.granted.probes_rest = false;
        }
        self.lane.dispatch(&mut state, now);
    }

    /// Something of the answer could be read.
    pub fn heard(&mut self) {
        if !std::mem::replace(&mut self.was_heard, true) {
            self.granted.probes_rest = false;
            self.lane.locked().0.breaker.succeeded();
        }
    }

    /// The answer is complete.
    pub fn finished(&mut self) {
        let (mut state, now) = self.lane.locked();
        state.room.succeeded(now);
    }

    /// The call failed, before its answer or within it.
    pub fn failed(&mut self, failure: &Failure) {
        let (mut state, now) = self.lane.locked();
        let mut is_news = true;
        if failure.is_overload {
            is_news = state.pause.refused(self.granted.wave);
            let others = state.in_flight.saturating_sub(1);
            state.room.refused(others, is_news, now);
        }
        let reason = match failure.error {
            ProviderError::RateLimited { .. } => RATE_LIMIT,
            _ => OVERLOADED,
        };
        let mut shared = None;
        match failure.retry_after {
            // A limit that lasts says so to each who meets it: it may be one of this call's model or size alone.
            _ if !failure.retryable => {}
            Some(wait) if wait > WAIT_MAX => {
                state.limits.refuse(&self.model, failure.error.clone(), wait, now);
                state.turn_away(&mut |entry| entry.model == self.model, &failure.error);
            }
            Some(wait) => {
                state.stop(wait, reason, &failure.error, now);
                let at = Timestamp::now() + wait;
                state.heeded = state.heeded.max(Some(at));
                shared = Some(at);
            }
            None if failure.is_overload && is_news => {
                let wait = self.lane.backoff(state.pause.strikes());
                state.stop(wait, reason, &failure.error, now);
            }
            None => {}
        }
        if failure.counts_for_breaker && is_news {
            let is_probe = std::mem::take(&mut self.granted.probes_rest);
            if state.breaker.failed(failure.reason(), is_probe, now)
                && let Some(resting) = state.resting(now)
            {
                state.turn_away(&mut |_| true, &resting);
            }
        }
        drop(state);
        if let (Some(pauses), Some(at)) = (&self.lane.pauses, shared) {
            pauses.pause(&self.lane.name, at);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let (mut state, now) = self.lane.locked();
        state.release(&self.granted);
        self.lane.dispatch(&mut state, now);
    }
}

/// Whether a tree has as many calls under way as it may. Those of the administrator are no tree's.
fn has_share(of_roots: &HashMap<Arc<str>, u32>, root: &str, most: u32) -> bool {
    !root.is_empty() && of_roots.get(root).is_some_and(|it| *it >= most)
}

/// What a call is answered that does not wait as long as it would have to.
fn too_long(wait: Duration) -> ProviderError {
    let seconds = wait.as_secs_f32();
    ProviderError::Crowded(format!("it would wait {seconds:.0} s"))
}

/// The same for every process that uses this provider with this key, and no way back to the key.
fn name(settings: &ProviderSettings, base_url: &str) -> String {
    let key = settings.api_key.as_deref().unwrap_or_default();
    let mut digest = Sha256::new();
    for part in [settings.kind.name(), base_url, key] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
