//! The life of a server's process: how it is started, what is done while it runs, and how it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nexus_core::mcp::{Accept, Pins, Program, Remote, Way};
use nexus_tools::sandbox::{End, LaunchError, Living};
use rmcp::RoleClient;
use rmcp::transport::Transport;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::connection::{Connection, Running};
use crate::hub::Offer;
use crate::kept;
use crate::listing::{About, Listing, Said};
use crate::lock;
use crate::login;
use crate::pins::INSTRUCTIONS;
use crate::remote::{self, Address, Http};
use crate::seat::OWN_PROCESSES_MAX;
use crate::server::Server;
use crate::start;
use crate::state::{ENDS_MAX, ENDS_WITHIN, Phase, Started, State};
use crate::tail::Tail;
use crate::tether::Tether;
use crate::transport::{Breach, Pipes};

/// Between two readings of its list: a server may say without end that it has changed. The second follows the first at once,
/// and each later one of those that come close upon each other waits twice as long.
const RELIST_PAUSE_FIRST: Duration = Duration::from_millis(20);
const RELIST_PAUSE_MAX: Duration = Duration::from_secs(1);

/// For how a process ended whose connection is closed already.
const REPORT_MAX: Duration = Duration::from_secs(1);

/// The last of what a process that has ended printed may still be in the pipe.
const DRAIN_MAX: Duration = Duration::from_millis(200);

/// Why a start failed, and whether the process ended by itself.
struct Failure {
    why: String,
    died: bool,
}

impl Failure {
    fn lasting(why: String) -> Self {
        Self { why, died: false }
    }
}

/// Everything of a server that runs.
struct Run {
    connection: Arc<Connection>,
    running: Running,
    tether: Tether,
    listed: Arc<Notify>,
    breach: Breach,
}

impl Server {
    /// Lets it be started, by a task of its own that nobody's going away ends.
    pub(crate) fn begin(
        self: &Arc<Self>,
        state: &mut State,
    ) -> Result<watch::Receiver<Option<Started>>, String> {
        self.entry.standing.check()?;
        state.forget_old_ends();
        if state.is_given_up() {
            let why = state.last_error.as_deref().unwrap_or("it ended");
            return Err(format!(
                "it ended {ENDS_MAX} times within {} minutes and is not started again by itself: {why}",
                ENDS_WITHIN.as_secs() / 60
            ));
        }
        let (sender, started) = watch::channel(None);
        state.phase = Phase::Starting(started.clone());
        tokio::spawn(self.clone().live(state.pause(), sender));
        Ok(started)
    }

    /// The life of one process, from its start to its end.
    async fn live(self: Arc<Self>, pause: Duration, sender: watch::Sender<Option<Started>>) {
        let stop = self.stop.clone();
        // Until it is over.
        let place = self.seat.as_ref().map(|_| self.processes.clone().try_acquire_owned());
        let start = async {
            if let Some(Err(_)) = &place {
                return Err(Failure::lasting(format!(
                    "{OWN_PROCESSES_MAX} processes run that are one agent's each, and there are no more at once"
                )));
            }
            tokio::time::sleep(pause).await;
            self.start().await
        };
        let run = match stop.run_until_cancelled(start).await {
            Some(Ok(run)) => run,
            Some(Err(Failure { why, .. })) => {
                let name = &self.entry.name;
                tracing::warn!(server = name, why, "an MCP server cannot be had");
                self.over(None, Some(why.clone()));
                let _ = sender.send(Some(Err(why)));
                return;
            }
            None => return self.over(None, None),
        };
        let connection = run.connection.clone();
        {
            let mut state = lock(&self.state);
            // What its agent may do may have become less since it was begun. Whoever looks later finds it ready.
            if self.seat.as_ref().is_some_and(|seat| !seat.is_bound()) {
                connection.end.cancel();
            }
            state.phase = Phase::Ready(connection.clone());
        }
        let _ = sender.send(Some(Ok(connection.clone())));
        drop(sender);
        let listening = tokio::spawn(connection.clone().listen(run.listed.clone()));
        let relisting = tokio::spawn(self.clone().relist(connection.clone(), run.listed.clone()));
        let (how, unasked) = self.attend(run).await;
        listening.abort();
        relisting.abort();
        self.over(Some(&connection), unasked.then(|| how.clone()));
        connection.obituary.send_replace(Some(how));
    }

    /// A process is over, or was never there. By then another may be on its way.
    fn over(&self, connection: Option<&Arc<Connection>>, failed: Option<String>) {
        let mut state = lock(&self.state);
        let own = match (&state.phase, connection) {
            (Phase::Starting(_), None) => true,
            (Phase::Ready(ready), Some(connection)) => Arc::ptr_eq(ready, connection),
            _ => false,
        };
        if own {
            state.phase = Phase::Off;
        }
        if failed.is_some() {
            // To be asked who one is, is no failure: after the login it is tried at once.
            if !self.unknown.load(Ordering::Relaxed) {
                state.ends.push_back(Instant::now());
            }
            state.last_error = failed;
        }
    }

    /// Starts the process and speaks with it until it can be used.
    async fn start(self: &Arc<Self>) -> Result<Run, Failure> {
        let legacy = lock(&self.state).legacy;
        match self.attempt(legacy).await {
            // Some servers of the older era end at a question that they do not know.
            Err(Failure { died: true, .. }) if !legacy => {
                let again = self.attempt(true).await;
                lock(&self.state).legacy = again.is_ok();
                again
            }
            done => done,
        }
    }

    async fn attempt(self: &Arc<Self>, legacy: bool) -> Result<Run, Failure> {
        lock(&self.state).starts += 1;
        let until = Instant::now() + self.entry.startup_timeout;
        match &self.entry.way {
            Way::Program(program) => self.launch(program, legacy, until).await,
            Way::Remote(remote) => self.reach(remote, until).await,
        }
    }

    /// Starts a process and speaks with it.
    async fn launch(
        self: &Arc<Self>,
        program: &Program,
        legacy: bool,
        until: Instant,
    ) -> Result<Run, Failure> {
        let (this, program) = (self.clone(), program.clone());
        let command = tokio::task::spawn_blocking(move || {
            start::command(&this.entry.name, &program, &this.ground, this.seat.as_ref())
        });
        let command = command.await.unwrap_or_else(|error| Err(error.to_string()));
        let command = command.map_err(Failure::lasting)?;
        let living = self.ground.launcher.live(&command).await;
        let living = living.map_err(|error| Failure::lasting(error.to_string()))?;
        let Living { stdin, stdout, stderr, leash } = living;
        let tail = Arc::<Tail>::default();
        *lock(&self.tail) = tail.clone();
        tokio::spawn(async move { tail.fill(stderr).await });
        let breach = Breach::default();
        let pipes = Pipes::new(stdout, stdin, breach.clone());
        let mut tether = Tether::Process(leash);
        let pid = tether.pid();
        let spoken = tokio::select! {
            biased;
            spoken = self.speak(pipes, pid, legacy) => Some(spoken),
            end = tether.ended() => return Err(self.ended_early(end).await),
            () = tokio::time::sleep_until(until) => None,
        };
        let why = match spoken {
            Some(Ok((connection, running, listed))) => {
                return Ok(Run { connection, running, tether, listed, breach });
            }
            Some(Err(why)) => {
                // What closes its end of the connection has mostly ended.
                if let Ok(end) = tokio::time::timeout(REPORT_MAX, tether.ended()).await {
                    return Err(self.ended_early(end).await);
                }
                breach.get().unwrap_or(why)
            }
            None => self.not_in_time(),
        };
        tether.end().await;
        Err(Failure::lasting(self.with_last_lines(why).await))
    }

    /// Speaks with a server that somebody else runs.
    async fn reach(self: &Arc<Self>, remote: &Remote, until: Instant) -> Result<Run, Failure> {
        let breach = Breach::default();
        let reach = async {
            let address = Address::new(remote, &self.ground)?;
            let http = Http::new(&address, breach.clone(), self.unknown.clone()).await?;
            let manager =
                login::manager(&address, remote, &self.ground, &self.credentials()).await?;
            self.speak(remote::transport(address, manager, http), None, false).await
        };
        let reached = tokio::time::timeout_at(until, reach).await;
        match reached.unwrap_or_else(|_| Err(self.not_in_time())) {
            Ok((connection, running, listed)) => {
                Ok(Run { connection, running, tether: Tether::Remote, listed, breach })
            }
            Err(why) => Err(Failure::lasting(breach.get().unwrap_or(why))),
        }
    }

    /// Finds out with whom one speaks, and what tools it has.
    async fn speak(
        self: &Arc<Self>,
        transport: impl Transport<RoleClient> + 'static,
        pid: Option<u32>,
        legacy: bool,
    ) -> Result<(Arc<Connection>, Running, Arc<Notify>), String> {
        let (connection, running, listed) =
            Connection::open(transport, pid, legacy, Offer::of(&self.entry)).await?;
        self.take_list(&connection).await?;
        Ok((Arc::new(connection), running, listed))
    }

    pub(crate) fn not_in_time(&self) -> String {
        let seconds = self.entry.startup_timeout.as_secs_f64();
        format!("it was not ready within {seconds} s (startup_timeout)")
    }

    async fn ended_early(&self, end: Result<End, LaunchError>) -> Failure {
        let died = matches!(end, Ok(End::Exited(_) | End::Killed(_)));
        let why = format!("{} before it was ready", words(&end));
        Failure { why: self.with_last_lines(why).await, died }
    }

    /// Takes a list as it is now, keeps it, and tells of it where it is another.
    async fn take_list(self: &Arc<Self>, connection: &Connection) -> Result<(), String> {
        let (tools, _) = connection.list().await?;
        if tools.is_empty() && self.entry.fail_if_no_tools {
            return Err("it has no tools (fail_if_no_tools)".into());
        }
        let about = About {
            has_resources: connection.has_resources(),
            instructions: connection.instructions(),
            agreed: None,
        };
        let this = self.clone();
        let take = move || {
            let said: Vec<Said> = tools.into_iter().map(Said::from).collect();
            // Another process of this home may have accepted some of them meanwhile.
            let kept = kept::read(&this.ground.home, &this.entry).map(Arc::new);
            let kept = kept.or_else(|| this.listing());
            let agreed = match this.entry.pins {
                Pins::Strict => kept.as_ref().and_then(|kept| kept.about.agreed.clone()),
                Pins::Off => about.instructions.clone(),
            };
            let pinned = kept.map(|kept| kept.pinned.clone());
            let listing = Listing::new(&this.entry, said, pinned).with(About { agreed, ..about });
            let same = |known: &Listing| {
                (&known.said, &known.pinned, &known.about)
                    == (&listing.said, &listing.pinned, &listing.about)
            };
            if this.listing().is_some_and(|known| same(&known)) {
                return;
            }
            this.take(listing);
        };
        tokio::task::spawn_blocking(take).await.map_err(|error| error.to_string())
    }

    /// Keeps a list and tells of it. Touches the disk.
    fn take(&self, listing: Listing) {
        if let Err(error) = kept::write(&self.ground.home, &self.entry, &listing) {
            let server = &self.entry.name;
            tracing::warn!(server, %error, "the list of an MCP server's tools was not kept");
        }
        self.listing.store(Some(Arc::new(listing)));
        (self.changed)();
    }

    /// Takes tools as they are now. Which of them had waited for it.
    pub async fn review(self: &Arc<Self>, accept: Accept) -> Vec<String> {
        let this = self.clone();
        let review = move || {
            let Some(known) = this.listing() else { return Vec::new() };
            let mut pinned = known.pinned.clone();
            let mut about = known.about.clone();
            let mut accepted = pinned.accept(&known.said, &accept);
            if accept == Accept::All && about.agreed != about.instructions {
                about.agreed = about.instructions.clone();
                accepted.push(INSTRUCTIONS.into());
            }
            if !accepted.is_empty() {
                let listing = Listing::new(&this.entry, known.said.clone(), Some(pinned));
                this.take(listing.with(about));
            }
            accepted
        };
        tokio::task::spawn_blocking(review).await.unwrap_or_default()
    }

    /// Watches over a server until it ends. How it did, and whether nobody asked for that.
    async fn attend(self: &Arc<Self>, run: Run) -> (String, bool) {
        let Run { connection, running, mut tether, breach, .. } = run;
        let closed = running.waiting();
        tokio::pin!(closed);
        loop {
            let idle_at = lock(&self.state).last_used + self.entry.idle_timeout;
            tokio::select! {
                biased;
                end = tether.ended() => {
                    let why = breach.get().unwrap_or_else(|| words(&end));
                    return (self.with_last_lines(why).await, true);
                }
                () = breach.happened() => {
                    tether.end().await;
                    let why = breach.get().unwrap_or_default();
                    return (self.with_last_lines(why).await, true);
                }
                _ = &mut closed => {
                    let why = match tokio::time::timeout(REPORT_MAX, tether.ended()).await {
                        Ok(end) => words(&end),
                        Err(_) => {
                            tether.end().await;
                            "it closed its connection".into()
                        }
                    };
                    let why = breach.get().unwrap_or(why);
                    return (self.with_last_lines(why).await, true);
                }
                () = connection.end.cancelled() => {
                    tether.end().await;
                    return ("it was disconnected".into(), false);
                }
                () = self.stop.cancelled() => {
                    tether.end().await;
                    return (self.stopped().into(), false);
                }
                () = tokio::time::sleep_until(idle_at) => {
                    if self.is_idle() {
                        tether.end().await;
                        return ("nobody used it (idle_timeout)".into(), false);
                    }
                }
            }
        }
    }

    /// Reads the list again whenever it is said to be another. What goes wrong leaves the tools that were known.
    async fn relist(self: Arc<Self>, connection: Arc<Connection>, listed: Arc<Notify>) {
        let mut pause = Duration::ZERO;
        loop {
            if tokio::time::timeout(RELIST_PAUSE_MAX, listed.notified()).await.is_err() {
                // It was quiet.
                pause = Duration::ZERO;
                listed.notified().await;
            }
            let taken =
                tokio::time::timeout(self.entry.startup_timeout, self.take_list(&connection)).await;
            let late = || Err("its tools were not listed in time".into());
            if let Err(why) = taken.unwrap_or_else(|_| late()) {
                lock(&self.state).last_error = Some(why);
            }
            tokio::time::sleep(pause).await;
            pause = longer(pause);
        }
    }

    /// Whether it may be ended; while calls run, it is used.
    fn is_idle(&self) -> bool {
        let mut state = lock(&self.state);
        if state.in_flight > 0 {
            state.last_used = Instant::now();
            return false;
        }
        let idle = state.last_used.elapsed() >= self.entry.idle_timeout;
        if idle {
            // Whoever comes now starts it anew.
            state.phase = Phase::Off;
            state.users.clear();
        }
        idle
    }

    async fn with_last_lines(&self, why: String) -> String {
        tokio::time::sleep(DRAIN_MAX).await;
        match self.tail().last_lines() {
            lines if lines.is_empty() => why,
            lines => format!("{why}; it last said:\n{lines}"),
        }
    }
}

/// The pause that follows a pause between two readings.
fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(RELIST_PAUSE_FIRST, RELIST_PAUSE_MAX)
}

/// How a process ended.
fn words(end: &Result<End, LaunchError>) -> String {
    match end {
        Ok(End::Exited(code)) => format!("it ended (exit {code})"),
        Ok(End::Killed(signal)) => format!("it was killed (signal {signal})"),
        Ok(End::Exceeded(_)) => {
            "it took more of the machine than commands may and was ended".into()
        }
        Ok(End::TimedOut | End::Cancelled) => "it was ended".into(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_changes_again_and_again_is_read_ever_more_rarely() {
        let pauses = std::iter::successors(Some(Duration::ZERO), |pause| Some(longer(*pause)));
        let millis: Vec<_> = pauses.map(|pause| pause.as_millis()).take(9).collect();
        assert_eq!(millis, [0, 20, 40, 80, 160, 320, 640, 1_000, 1_000]);
    }

    #[test]
    fn how_it_ended_is_said_in_words() {
        assert_eq!(words(&Ok(End::Exited(3))), "it ended (exit 3)");
        assert_eq!(words(&Ok(End::Killed(9))), "it was killed (signal 9)");
        let missing = Err(LaunchError::NotStarted("there is no program x".into()));
        assert_eq!(words(&missing), "there is no program x");
    }
}
