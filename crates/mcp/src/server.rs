//! One server: started when it is needed, watched over, and ended with all that it started.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use nexus_core::mcp::{
    Eligibility, LoginState, Lookup, ServerEntry, ServerError, ServerState, ServerStatus, Way,
};
use nexus_core::{Agent, AgentId};
use rmcp::model::ProgressNotificationParam;
use serde_json::Value;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::{CallError, Called, Connection, ServerCall};
use crate::credentials::Credentials;
use crate::ground::Ground;
use crate::kept;
use crate::listing::Listing;
use crate::lock;
use crate::place::Place;
use crate::remote::Unknown;
use crate::result;
use crate::results::Keeper;
use crate::seat::Seat;
use crate::start;
use crate::state::{Phase, State};
use crate::tail::Tail;

/// Calls under way at once. More would only wait in the server.
pub const CALLS_MAX: usize = 32;

pub struct Server {
    pub entry: ServerEntry,
    pub(crate) ground: Arc<Ground>,
    pub(crate) state: Mutex<State>,
    /// One for all processes of the server.
    pub(crate) listing: Arc<ArcSwapOption<Listing>>,
    /// What was kept of it has been looked for.
    looked: OnceCell<()>,
    pub(crate) tail: Mutex<Arc<Tail>>,
    pub(crate) unknown: Unknown,
    places: Semaphore,
    /// Told that the list is another.
    pub(crate) changed: Arc<dyn Fn() + Send + Sync>,
    /// Cancelled when this program has no more use for any of its servers, or an agent for its own process.
    pub(crate) stop: CancellationToken,
    /// Of a process that is one agent's.
    pub(crate) seat: Option<Seat>,
    /// Those processes, by the numbers of their agents.
    pub(crate) apart: Mutex<BTreeMap<u64, Arc<Server>>>,
    /// Places for such processes, of all servers.
    pub(crate) processes: Arc<Semaphore>,
    /// Told when there is none of them any more.
    pub(crate) emptied: Option<Box<dyn Fn() + Send + Sync>>,
}

/// What all servers have together.
#[derive(Clone)]
pub struct Common {
    pub ground: Arc<Ground>,
    pub changed: Arc<dyn Fn() + Send + Sync>,
    pub stop: CancellationToken,
    pub processes: Arc<Semaphore>,
}

impl Server {
    /// One of the configuration. Touches the disk.
    pub fn new(entry: ServerEntry, common: Common) -> Arc<Self> {
        let usable = entry.standing == Eligibility::Usable;
        let listing = usable.then(|| kept::read(&common.ground.home, &entry)).flatten();
        let listing = Arc::new(ArcSwapOption::from(listing.map(Arc::new)));
        Arc::new(Self::with(entry, common, listing, None, None))
    }

    /// One that is one agent's, of which nothing is known yet.
    pub fn own(
        entry: ServerEntry,
        common: Common,
        emptied: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self::with(entry, common, Arc::default(), None, Some(emptied)))
    }

    /// The same server, in a process of its own.
    pub(crate) fn seated(&self, seat: Seat) -> Arc<Self> {
        let common = Common {
            ground: self.ground.clone(),
            changed: self.changed.clone(),
            stop: self.stop.child_token(),
            processes: self.processes.clone(),
        };
        Arc::new(Self::with(self.entry.clone(), common, self.listing.clone(), Some(seat), None))
    }

    fn with(
        entry: ServerEntry,
        common: Common,
        listing: Arc<ArcSwapOption<Listing>>,
        seat: Option<Seat>,
        emptied: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Self {
        let Common { ground, changed, stop, processes } = common;
        Self {
            listing,
            looked: OnceCell::new(),
            state: Mutex::default(),
            tail: Mutex::default(),
            unknown: Unknown::default(),
            places: Semaphore::new(CALLS_MAX),
            entry,
            ground,
            changed,
            stop,
            seat,
            apart: Mutex::default(),
            processes,
            emptied,
        }
    }

    /// Looks for what was kept of one that is one agent's.
    pub async fn look_for_kept(self: &Arc<Self>) {
        let look = async || {
            let this = self.clone();
            let kept = move || kept::read(&this.ground.home, &this.entry);
            let kept = tokio::task::spawn_blocking(kept).await.ok().flatten();
            if let Some(kept) = kept
                && self.entry.standing == Eligibility::Usable
                && self.listing().is_none()
            {
                self.listing.store(Some(Arc::new(kept)));
                (self.changed)();
            }
        };
        self.looked.get_or_init(look).await;
    }

    /// What tools it has, as far as that is known.
    pub fn listing(&self) -> Option<Arc<Listing>> {
        self.listing.load_full()
    }

    /// Sees to it that its tools are known, if that can be. What stands in the way shows in its state.
    pub async fn get_known(self: &Arc<Self>) {
        let _ = self.ready().await;
    }

    /// Starts it, unless it runs, and waits so long. Somebody asked for it, so it is tried whatever was before.
    pub async fn connect(
        self: &Arc<Self>,
        user: &AgentId,
        wait: Duration,
    ) -> Result<ServerStatus, ServerError> {
        {
            let mut state = lock(&self.state);
            state.ends.clear();
            state.users.insert(user.clone());
        }
        match tokio::time::timeout(wait, self.ready()).await {
            Ok(Err(why)) => Err(self.unavailable(why)),
            // What is not ready in time goes on.
            Ok(Ok(_)) | Err(_) => Ok(self.status()),
        }
    }

    /// `user` has no more use for it. The last one ends it.
    pub async fn disconnect(&self, user: &AgentId) -> bool {
        let connection = {
            let mut state = lock(&self.state);
            if !state.users.remove(user) {
                return false;
            }
            let connection = match &state.phase {
                Phase::Ready(connection) if state.users.is_empty() => connection.clone(),
                _ => return true,
            };
            // Whoever comes now starts it anew.
            state.phase = Phase::Off;
            connection
        };
        connection.end.cancel();
        let mut obituary = connection.obituary.subscribe();
        // Its task sees to that, whoever waits.
        let _ = obituary.wait_for(Option::is_some).await;
        true
    }

    /// Makes a call. It is never made twice: what was sent may have been done.
    pub(crate) async fn begin_call(
        self: &Arc<Self>,
        call: &mut ServerCall<'_>,
        show: impl FnMut(ProgressNotificationParam),
    ) -> Result<Called, CallError> {
        let begun = call.cancel.run_until_cancelled(self.place(call.user)).await;
        let begun = begun.ok_or(CallError::Cancelled)?;
        let (place, _counted, connection) = begun.map_err(|why| {
            CallError::Refused(format!("the MCP server {} cannot be had: {why}", self.entry.name))
        })?;
        let called = connection.call(call, &self.entry.name, self.entry.timeout, place, show).await;
        match called {
            Err(CallError::Unknown { why, challenge }) => {
                match challenge {
                    // For the next login.
                    Some(challenge) => {
                        let kept = self.credentials();
                        if let Err(error) = kept.change(|it| it.challenge = Some(challenge)).await {
                            tracing::warn!(error, "what a server wants to know was not kept");
                        }
                    }
                    // Whoever logs in is known to the next connection.
                    None => connection.end.cancel(),
                }
                let why = format!("{why}: {}", self.entry.login_line());
                Err(CallError::Refused(why))
            }
            called => called,
        }
    }

    /// Looks at what it has beside tools.
    pub async fn look_up(
        self: &Arc<Self>,
        user: &AgentId,
        lookup: &Lookup,
    ) -> Result<Value, ServerError> {
        let begun = self.place(user).await.map_err(|why| self.unavailable(why))?;
        let (_place, _counted, connection) = begun;
        connection.look_up(lookup, self.entry.timeout).await.map_err(|error| {
            let why = error.to_string();
            match error {
                CallError::Unknown { .. } => self.wants_login(why),
                _ => ServerError::Failed { server: self.entry.name.clone(), why },
            }
        })
    }

    fn unavailable(&self, why: String) -> ServerError {
        match self.unknown.load(Ordering::Relaxed) {
            true => self.wants_login(why),
            false => ServerError::Unavailable { server: self.entry.name.clone(), why },
        }
    }

    fn wants_login(&self, why: String) -> ServerError {
        let (server, login) = (self.entry.name.clone(), self.entry.login_line());
        ServerError::Unknown { server, why, login }
    }

    /// A place among the calls under way, and a connection, which is in use from the moment in which it is had: nobody
    /// ends it as idle; or why there is none.
    async fn place(
        self: &Arc<Self>,
        user: &AgentId,
    ) -> Result<(Place<'_>, Counted<'_>, Arc<Connection>), String> {
        let place = Place::take(&self.places).await;
        let counted = Counted::new(self, user);
        let connection = self.ready().await?;
        lock(&self.state).calls += 1;
        Ok((place, counted, connection))
    }

    /// The beginning and the end of a long text, which is kept for the agent to read on in.
    pub async fn shortened(self: &Arc<Self>, text: String, agent: &Agent) -> String {
        let (this, keeper) = (self.clone(), Keeper::of(agent));
        self.ground.results.follow(agent);
        let shorten = move || {
            let kept = this.ground.results.keep(keeper, &text);
            if let Err(error) = &kept {
                tracing::warn!(%error, "a long result of an MCP server was not kept");
            }
            result::cut(&text, kept.ok().as_deref())
        };
        let shortened = tokio::task::spawn_blocking(shorten).await;
        shortened.unwrap_or_else(|error| error.to_string())
    }

    /// The login at the server.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::of(&self.entry, &self.ground.home)
    }

    /// What is known of the login at it, where it is elsewhere. Another process may have logged in: the file is asked.
    pub async fn login_state(&self) -> Option<LoginState> {
        let Way::Remote(_) = &self.entry.way else { return None };
        let unknown = self.unknown.load(Ordering::Relaxed);
        Some(match self.credentials().read().await {
            // What the server wants now counts for more than what it gave before.
            Ok(kept) if unknown || kept.challenge.is_some() => LoginState::Needed,
            Ok(kept) => kept.state(),
            Err(error) => {
                tracing::warn!(server = self.entry.name, error, "a login cannot be read");
                if unknown { LoginState::Needed } else { LoginState::None }
            }
        })
    }

    pub fn status(&self) -> ServerStatus {
        let (mut status, connection) = {
            let state = lock(&self.state);
            let connection = match &state.phase {
                Phase::Ready(connection) => Some(connection.clone()),
                Phase::Off | Phase::Starting(_) => None,
            };
            let status = ServerStatus {
                name: self.entry.name.clone(),
                source: self.entry.source,
                transport: self.entry.way.name(),
                state: self.state_of(&state),
                shared: self.seat.is_none() && self.entry.share,
                protocol_version: None,
                server_info: None,
                pid: None,
                started_at: None,
                restarts: state.starts.saturating_sub(1),
                in_flight: state.in_flight,
                calls: state.calls,
                last_error: match &self.entry.standing {
                    Eligibility::Wrong(why) => Some(why.clone()),
                    _ => state.last_error.clone(),
                },
                stderr_tail: String::new(),
                sandbox: String::new(),
                tools: Vec::new(),
                changed: Vec::new(),
            };
            (status, connection)
        };
        if let Some(connection) = connection {
            status.protocol_version = Some(connection.protocol_version.clone());
            status.server_info = connection.server_info.clone();
            status.pid = connection.pid;
            status.started_at = Some(connection.started_at);
        }
        status.stderr_tail = self.tail().text();
        status.sandbox = match &self.entry.way {
            Way::Program(program) => {
                let bounds = self.seat.as_ref().map(|seat| seat.bounds());
                start::sandbox(program, &self.ground, bounds.as_ref())
            }
            Way::Remote(_) => "none: it runs elsewhere".into(),
        };
        if let Some(listing) = self.listing() {
            status.tools = listing.standing();
            status.changed = listing.changes();
        }
        status
    }

    fn state_of(&self, state: &State) -> ServerState {
        match (&self.entry.standing, &state.phase) {
            (Eligibility::Untrusted, _) => ServerState::Untrusted,
            (Eligibility::Disabled, _) => ServerState::Disabled,
            (Eligibility::Wrong(_), _) => ServerState::Failed,
            (Eligibility::Usable, Phase::Off | Phase::Ready(_))
                if self.unknown.load(Ordering::Relaxed) =>
            {
                ServerState::NeedsAuth
            }
            (Eligibility::Usable, Phase::Ready(_)) => ServerState::Ready,
            (Eligibility::Usable, Phase::Starting(_)) => ServerState::Starting,
            (Eligibility::Usable, Phase::Off) if state.is_given_up() => ServerState::Failed,
            (Eligibility::Usable, Phase::Off) if state.starts == 0 => ServerState::Configured,
            (Eligibility::Usable, Phase::Off) => ServerState::Idle,
        }
    }

    /// Why it is ended for good.
    pub(crate) fn stopped(&self) -> &'static str {
        match self.seat {
            Some(_) => "it was disconnected",
            None => "the program is stopping",
        }
    }

    pub(crate) fn tail(&self) -> Arc<Tail> {
        lock(&self.tail).clone()
    }

    /// A connection that is ready, once there is one; or why there is none.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<Arc<Connection>, String> {
        loop {
            let (started, closed) = {
                let mut state = lock(&self.state);
                state.last_used = Instant::now();
                match &state.phase {
                    Phase::Ready(connection)
                        if !connection.is_closed() && !connection.awake.has_slept() =>
                    {
                        return Ok(connection.clone());
                    }
                    Phase::Ready(connection) => (None, Some(connection.clone())),
                    Phase::Starting(started) => (Some(started.clone()), None),
                    Phase::Off => (Some(self.begin(&mut state)?), None),
                }
            };
            if let Some(mut started) = started {
                let started = started.wait_for(Option::is_some).await;
                let started = started.map_err(|_| self.stopped().to_owned())?;
                return started.clone().unwrap_or_else(|| Err("it was not started".into()));
            }
            // It has just ended, and is about to be known to have; or the machine slept, and nobody knows.
            if let Some(closed) = closed {
                if !closed.is_closed() {
                    if closed.answers().await {
                        closed.awake.note();
                        continue;
                    }
                    closed.end.cancel();
                }
                let _ = closed.obituary.subscribe().wait_for(Option::is_some).await;
            }
        }
    }
}

/// A call that is under way.
pub(crate) struct Counted<'a>(&'a Server);

impl<'a> Counted<'a> {
    pub fn new(server: &'a Server, user: &AgentId) -> Self {
        let mut state = lock(&server.state);
        state.users.insert(user.clone());
        state.in_flight += 1;
        Self(server)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.in_flight -= 1;
        state.last_used = Instant::now();
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use nexus_core::mcp::{Asks, Defer, Pins, Program, Sandbox, ServerSource, Way};

    use super::*;

    /// One that is never started.
    pub fn entry(name: &str) -> ServerEntry {
        ServerEntry {
            name: name.into(),
            source: ServerSource::User,
            standing: Eligibility::Usable,
            way: Way::Program(Program {
                argv: vec!["/bin/false".into()],
                cwd: None,
                env: BTreeMap::new(),
                env_passthrough: Vec::new(),
                sandbox: Sandbox {
                    read: BTreeSet::new(),
                    write: BTreeSet::new(),
                    network: true,
                    required: true,
                },
            }),
            startup_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(600),
            asks: Asks::Once,
            asks_by: Vec::new(),
            eager: false,
            share: true,
            pins: Pins::Strict,
            defer: Defer::Auto,
            allow: Vec::new(),
            deny: Vec::new(),
            fail_if_no_tools: false,
            elicitation: true,
            sampling: false,
            roots: false,
        }
    }
}
