//! A server in this process, reached without any wire: by messages, and by typed calls.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fastrand::Rng;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, poll_fn};
use nexus_config::Config;
use nexus_core::Requester;
use nexus_protocol::agent::{CreateAgent, DestroyAgent};
use nexus_protocol::conversation::Compact;
use nexus_protocol::permission::SetPermissions;
use nexus_protocol::session::{
    CloneSession, DeleteSession, LoadSession, RenameSession, SaveSession,
};
use nexus_protocol::settings::{SetCwd, SetModel, SetSystemPrompt};
use nexus_protocol::turn::{ResumeTurn, Send};
use nexus_protocol::{Api as _, CallError, Id, Method, Scope, Target};
use nexus_server::calls::{CallLog, EndedCall};
use nexus_server::transport::memory::MemoryConnection;
use nexus_server::{DirectAgentApi, Services};
use nexus_tools::sandbox::Launcher;
use nexus3::wiring::{self, Logs, Wired};
use serde_json::{Value, json};

use crate::ended::{Ended, Log, fresh_id};
use crate::fault::{self, Fault};
use crate::place::Place;
use crate::rpc::{Answer, Caller, parse, refusal, request};

/// Temporary agents stay for as long as any run takes.
const TEMPORARY: Duration = Duration::from_secs(3600);

pub struct Inside {
    wired: Wired,
    jobs: Arc<AtomicU64>,
}

impl Inside {
    pub async fn start(place: &Place, fault: Fault) -> anyhow::Result<Self> {
        let (home, work) = (place.home(), place.work());
        let config = Config::load(&home, &work, &|_| None)?;
        let jobs = Arc::new(AtomicU64::new(0));
        let store = fault::open(&home, fault, jobs.clone())?;
        // No agent of a run starts a command.
        let launcher = Launcher::new(std::env::current_exe()?);
        let logs = Logs::none();
        let wired = wiring::wire_on(store, &home, &work, &config, logs, launcher).await?;
        Ok(Self { wired, jobs })
    }

    /// A caller of its own, whose changes are typed calls if it is `typed`.
    pub fn caller(&self, typed: bool) -> Caller {
        let (log, ended) = Log::new();
        let log = Arc::new(CallsLogged(log));
        let (engine, tokens) = (self.wired.engine.clone(), self.wired.agent_tokens.clone());
        let dispatcher = nexus_server::dispatcher(Services::new(engine, tokens, log.clone()));
        let api = DirectAgentApi::new(dispatcher.clone(), Requester::Administrator);
        let (memory, _) = MemoryConnection::open(dispatcher, Requester::Administrator);
        Caller::inside(Connection { memory, api, typed, log, ended })
    }

    /// How many jobs the store was given.
    pub fn jobs(&self) -> u64 {
        self.jobs.load(Ordering::Relaxed)
    }

    /// Lets every agent that does nothing out of memory.
    pub async fn unload(&self) -> usize {
        self.wired.engine.agents.sweep(Duration::ZERO, TEMPORARY).await
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        self.wired.engine.turns.stop(Duration::ZERO).await;
        self.wired.engine.close().await.context("the store does not close")
    }
}

/// The longest a call takes, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a typed call leaves in the log instead of an id.
const TYPED: &str = "typed";

struct CallsLogged(Log);

impl CallLog for CallsLogged {
    fn call(&self, call: &EndedCall<'_>) {
        self.0.note(call.id.map_or(TYPED, Id::as_json));
    }
}

/// A caller inside the process. It makes one call at a time.
pub struct Connection {
    memory: MemoryConnection,
    api: DirectAgentApi,
    typed: bool,
    log: Arc<CallsLogged>,
    ended: Ended,
}

impl Connection {
    pub async fn call(&self, method: &str, params: &Value) -> anyhow::Result<Answer> {
        self.begin(fresh_id(), method, params).1.await
    }

    /// Makes a call and drops it when it has been polled a few times.
    pub async fn call_and_drop(
        &self,
        method: &str,
        params: &Value,
        rng: &mut Rng,
    ) -> anyhow::Result<Answer> {
        let polls = rng.usize(..POLLS_MAX);
        self.log.0.forget(TYPED);
        let (id, call) = self.begin(fresh_id(), method, params);
        match drop_after(polls, call).await {
            Some(answer) => answer,
            None if polls == 0 => Ok(Answer::Unsent),
            // Whatever was begun goes on to its end.
            None if self.ended.wait(&id, PATIENCE).await => Ok(Answer::Dropped),
            None => bail!("{method} was begun, let go of, and never ended"),
        }
    }

    /// The call, and how the log will name it.
    fn begin<'a>(&'a self, id: u64, method: &str, params: &Value) -> (String, Calling<'a>) {
        if self.typed
            && let Some(call) = self.typed(method, params.clone())
        {
            return (TYPED.into(), call);
        }
        let message = request(id, method, params).into_bytes();
        let call = async move {
            let answer = self.memory.request(message).await;
            parse(&answer.context("a call without an answer")?)
        };
        (id.to_string(), call.boxed())
    }

    /// The typed call of a method that changes something.
    fn typed(&self, method: &str, params: Value) -> Option<Calling<'_>> {
        Some(match method {
            CreateAgent::NAME => self.one::<CreateAgent>(params),
            DestroyAgent::NAME => self.one::<DestroyAgent>(params),
            Send::NAME => self.one::<Send>(params),
            ResumeTurn::NAME => self.one::<ResumeTurn>(params),
            Compact::NAME => self.one::<Compact>(params),
            SetSystemPrompt::NAME => self.one::<SetSystemPrompt>(params),
            SetModel::NAME => self.one::<SetModel>(params),
            SetCwd::NAME => self.one::<SetCwd>(params),
            SetPermissions::NAME => self.one::<SetPermissions>(params),
            SaveSession::NAME => self.one::<SaveSession>(params),
            CloneSession::NAME => self.one::<CloneSession>(params),
            LoadSession::NAME => self.one::<LoadSession>(params),
            RenameSession::NAME => self.one::<RenameSession>(params),
            DeleteSession::NAME => self.one::<DeleteSession>(params),
            _ => return None,
        })
    }

    fn one<M: Method>(&self, mut params: Value) -> Calling<'_> {
        let mut target = Target::Server;
        // Part of the address, not of the method.
        if M::SCOPE == Scope::Agent
            && let Some(name) = params.as_object_mut().and_then(|it| it.remove("agent_id"))
        {
            target = Target::Agent(name.as_str().unwrap_or_default().into());
        }
        async move {
            let params = serde_json::from_value(params)?;
            match self.api.call::<M>(&target, params).await {
                Ok(result) => Ok(Answer::Done(serde_json::to_value(result)?)),
                Err(CallError::Rpc(error)) => Ok(Answer::Refused(refusal(&json!(error)))),
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
    }
}

type Calling<'a> = BoxFuture<'a, anyhow::Result<Answer>>;

/// A call that is dropped was polled fewer times than this: most are polled two or three times before they end.
const POLLS_MAX: usize = 4;

/// What a future comes to, unless it is still pending when it was polled so often; then it is dropped.
async fn drop_after<T>(polls: usize, mut future: BoxFuture<'_, T>) -> Option<T> {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match Pin::new(&mut future).poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
