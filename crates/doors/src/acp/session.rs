//! A session: an agent, and the prompts to it, one after another.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol_schema::v1::{AvailableCommand, ContentBlock};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub struct Session {
    /// The agent's name.
    pub id: String,
    pub cwd: PathBuf,
    /// It has something in it that is worth keeping.
    has_prompt: AtomicBool,
    /// Cancels what runs and waits now, and nothing that comes later.
    now: Mutex<CancellationToken>,
    /// The commands that the editor was told of last.
    offered: Mutex<Vec<AvailableCommand>>,
    /// The agent's model, and how many tokens it takes.
    window: Mutex<Option<(String, u64)>>,
    /// Cancelled when it was closed and all that was asked in it is over.
    pub over: CancellationToken,
    /// Absent when it was closed.
    jobs: Mutex<Option<mpsc::UnboundedSender<Job>>>,
}

/// A prompt that waits for its turn.
pub struct Job {
    /// Of the request.
    pub id: Box<RawValue>,
    pub session: Arc<Session>,
    pub prompt: Vec<ContentBlock>,
    pub cancel: CancellationToken,
}

impl Session {
    pub fn new(
        id: String,
        cwd: PathBuf,
        has_prompt: bool,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Job>) {
        let (jobs, waiting) = mpsc::unbounded_channel();
        let (has_prompt, now) = (AtomicBool::new(has_prompt), Mutex::default());
        let (jobs, offered) = (Mutex::new(Some(jobs)), Mutex::default());
        let over = CancellationToken::new();
        let window = Mutex::default();
        (Arc::new(Self { id, cwd, has_prompt, now, offered, window, over, jobs }), waiting)
    }

    /// Lets a prompt wait for those before it. `None` when the session was closed.
    pub fn line_up(
        self: &Arc<Self>,
        id: Box<RawValue>,
        prompt: Vec<ContentBlock>,
    ) -> Option<CancellationToken> {
        let cancel = lock(&self.now).child_token();
        let job = Job { id, session: self.clone(), prompt, cancel: cancel.clone() };
        lock(&self.jobs).as_ref()?.send(job).ok()?;
        Some(cancel)
    }

    /// Cancels all that was asked until now.
    pub fn cancel(&self) {
        std::mem::take(&mut *lock(&self.now)).cancel();
    }

    /// Cancels all, and takes no more.
    pub fn close(&self) {
        *lock(&self.jobs) = None;
        self.cancel();
    }

    /// True where these are others than those before.
    pub fn offers(&self, commands: &[AvailableCommand]) -> bool {
        let mut offered = lock(&self.offered);
        let is_new = *offered != commands;
        *offered = commands.to_vec();
        is_new
    }

    /// How many tokens a model takes, where that is known.
    pub fn window_of(&self, model: &str) -> Option<u64> {
        let window = lock(&self.window);
        window.as_ref().filter(|(name, _)| name == model).map(|(_, tokens)| *tokens)
    }

    pub fn has_window(&self, model: &str, tokens: u64) {
        *lock(&self.window) = Some((model.into(), tokens));
    }

    pub fn has_prompt(&self) -> bool {
        self.has_prompt.load(Ordering::Relaxed)
    }

    /// True the first time.
    pub fn prompted(&self) -> bool {
        !self.has_prompt.swap(true, Ordering::Relaxed)
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
