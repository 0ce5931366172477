//! What an editor asks of us, and the methods that answer it.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentCapabilities, AvailableCommandsUpdate, ClientCapabilities, CloseSessionRequest,
    ConfigOptionUpdate, CurrentModeUpdate, DeleteSessionRequest, ElicitationCapabilities, Error,
    Implementation, InitializeResponse, ListSessionsResponse, LoadSessionRequest,
    LoadSessionResponse, McpCapabilities, McpServer, NewSessionRequest, NewSessionResponse,
    PromptCapabilities, PromptRequest, ResumeSessionRequest, ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities, SessionCapabilities, SessionCloseCapabilities,
    SessionConfigOptionValue, SessionDeleteCapabilities, SessionInfo, SessionListCapabilities,
    SessionResumeCapabilities, SessionUpdate, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest,
};
use futures_util::future::join_all;
use jiff::Timestamp;
use nexus_protocol::agent::{CreateAgentParams, UnloadAgent, UnloadAgentParams};
use nexus_protocol::error::INVALID_PARAMS;
use nexus_protocol::params::{Bounded, NoParams};
use nexus_protocol::permission::GetPermissions;
use nexus_protocol::session::{
    DeleteSession, DeleteSessionParams, ListSessions, ListSessionsParams, LoadSession,
    LoadSessionParams, SessionEntry,
};
use nexus_protocol::settings::{SetCwd, SetCwdParams};
use nexus_protocol::{CallError, Target, WatchApi};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::Client;
use super::kept::Kept;
use super::lines::{LINE_BYTES_MAX, Line, Lines};
use super::servers::{Begun, Brought};
use super::session::{Job, Session};
use super::settings::{self, Settings};
use super::{Options, SOURCE, commands, fault, prompt, prompts, replay};
use crate::models;

/// Sessions on a page of the list.
const PAGE: usize = 50;

/// Those that are looked at for it at once.
const LOOKED_AT: u32 = 200;

/// What prompts may take to end when the editor is gone, and then what else is to be put in order.
const ENDING: Duration = Duration::from_millis(1_000);
const TIDYING: Duration = Duration::from_millis(400);

/// Serves one editor until its input ends, it reads no more, or `stop` says so.
pub async fn serve<A, R, W>(
    api: A,
    options: Options,
    stop: CancellationToken,
    input: R,
    output: W,
) -> io::Result<()>
where
    A: WatchApi + Clone + Send + Sync + 'static,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (client, writer) = Client::open(output);
    let door = Arc::new(Door {
        api,
        client: client.clone(),
        options,
        capabilities: OnceLock::new(),
        sessions: Mutex::default(),
        brought: Brought::default(),
        calls: Mutex::default(),
        requests: Mutex::default(),
        workers: Mutex::default(),
        kept_watches: Kept::default(),
    });
    let mut lines = Lines::new(input);
    let read = loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = client.gone() => break Ok(()),
            () = stop.cancelled() => break Ok(()),
        };
        match line {
            Ok(Some(Line::Whole(line))) => door.clone().heard(&line).await,
            Ok(Some(Line::TooLong)) => {
                let why = format!("A message has at most {LINE_BYTES_MAX} bytes");
                client.answer(None, Err(fault::invalid_request(why))).await;
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    door.leave().await;
    drop((door, client));
    let _ = tokio::time::timeout(TIDYING, writer).await;
    read
}

pub struct Door<A> {
    pub api: A,
    pub client: Client,
    options: Options,
    /// What the editor said that it can do.
    capabilities: OnceLock<ClientCapabilities>,
    /// Those that are open here.
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// MCP servers of the editor's settings.
    pub brought: Brought,
    /// Requests that are not answered yet, by their ids to the letter.
    calls: Mutex<HashMap<String, CancellationToken>>,
    requests: Mutex<JoinSet<()>>,
    /// One for each session: its prompts, in their order.
    workers: Mutex<JoinSet<()>>,
    /// Places for watches of sessions in which nothing is asked.
    kept_watches: Kept,
}

/// A message as it comes.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    result: Option<Value>,
    error: Option<Value>,
}

/// The answer to a request, and the session that it opened.
struct Done {
    result: Value,
    opened: Option<(Arc<Session>, Begun)>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Initialize {
    client_capabilities: ClientCapabilities,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct List {
    cwd: Option<PathBuf>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelRequest {
    request_id: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelSession {
    session_id: String,
}

impl<A: WatchApi + Clone + Send + Sync + 'static> Door<A> {
    /// Takes a message. What has an order (prompts, and what cancels them) is put into it before this returns.
    async fn heard(self: Arc<Self>, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let message: Message<'_> = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(error) => return self.client.answer(None, Err(not_a_message(line, &error))).await,
        };
        let id = message.id.filter(|id| id.get() != "null");
        match (message.method, id) {
            (Some(method), Some(id)) => self.request(id, method, message.params).await,
            (Some(method), None) => self.notified(&method, message.params),
            (None, Some(id)) => match (message.result, message.error) {
                (result, None) => self.client.answered(id, Ok(result.unwrap_or_default())),
                (_, Some(error)) => self.client.answered(id, Err(error)),
            },
            (None, None) => {
                let why = "A message has a method, or answers a request";
                self.client.answer(None, Err(fault::invalid_request(why))).await;
            }
        }
    }

    async fn request(self: Arc<Self>, id: &RawValue, method: String, params: Option<&RawValue>) {
        if lock(&self.calls).len() >= fault::IN_FLIGHT_MAX {
            return self.client.answer(Some(id), Err(fault::too_many())).await;
        }
        if method == "initialize" {
            let said: Initialize = read(params).unwrap_or_default();
            let _ = self.capabilities.set(said.client_capabilities);
        } else if self.capabilities.get().is_none() {
            let why = fault::invalid_request("The first request is initialize");
            return self.client.answer(Some(id), Err(why)).await;
        }
        if method == "session/prompt" {
            return match self.line_up(id, params) {
                Ok(()) => {}
                Err(error) => self.client.answer(Some(id), Err(error)).await,
            };
        }
        let cancel = CancellationToken::new();
        lock(&self.calls).insert(id.get().into(), cancel.clone());
        let (door, id) = (self.clone(), id.to_owned());
        let params = params.map(ToOwned::to_owned);
        spawn(&self.requests, async move {
            let done = tokio::select! {
                done = door.done(&method, params.as_deref()) => done,
                // An agent that is being made would be left behind.
                () = cancel.cancelled(), if method != "session/new" => Err(fault::cancelled()),
            };
            lock(&door.calls).remove(id.get());
            let (result, opened) = match done {
                Ok(Done { result, opened }) => (Ok(result), opened),
                Err(error) => (Err(error), None),
            };
            door.client.answer(Some(&id), result).await;
            // The editor knows the session by now.
            if let Some((session, servers)) = opened {
                door.tell_commands(&session).await;
                door.follow_up(&session, servers).await;
            }
        });
    }

    /// Lets a prompt wait behind those that came before it.
    fn line_up(&self, id: &RawValue, params: Option<&RawValue>) -> Result<(), Error> {
        let PromptRequest { session_id, prompt, .. } = read(params)?;
        let session = self.session(&session_id.0)?;
        // Before it can be over.
        let mut calls = lock(&self.calls);
        let cancel = session.line_up(id.to_owned(), prompt);
        calls.insert(id.get().into(), cancel.ok_or_else(|| fault::no_session(&session_id.0))?);
        Ok(())
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "session/cancel" => {
                if let Ok(CancelSession { session_id }) = read(params)
                    && let Ok(session) = self.session(&session_id)
                {
                    session.cancel();
                }
            }
            "$/cancel_request" => {
                if let Ok(CancelRequest { request_id }) = read(params)
                    && let Some(cancel) = lock(&self.calls).get(request_id.get())
                {
                    cancel.cancel();
                }
            }
            // Others are told to whoever knows them.
            _ => {}
        }
    }

    async fn done(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Done, Error> {
        match method {
            "initialize" => answered(self.initialize().await),
            // Nobody has to log in here.
            "authenticate" => answered(json!({})),
            "session/new" => self.new_session(read(params)?).await,
            "session/load" => self.load(read(params)?).await,
            "session/resume" => self.resume(read(params)?).await,
            "session/list" => answered(self.list(read(params)?).await?),
            "session/close" => {
                let CloseSessionRequest { session_id, .. } = read(params)?;
                self.session(&session_id.0)?;
                self.close(&session_id.0).await;
                answered(json!({}))
            }
            "session/delete" => {
                let DeleteSessionRequest { session_id, .. } = read(params)?;
                self.delete(session_id.to_string()).await?;
                answered(json!({}))
            }
            "session/set_mode" => {
                let SetSessionModeRequest { session_id, mode_id, .. } = read(params)?;
                self.session(&session_id.0)?;
                let set = settings::set_mode(&self.api, &session_id.0, &mode_id.0).await;
                set.map_err(refused)?;
                self.tell_settings(&session_id.0).await;
                answered(json!({}))
            }
            "session/set_config_option" => self.set_option(read(params)?).await,
            _ => Err(fault::no_method(method)),
        }
    }

    async fn initialize(&self) -> InitializeResponse {
        let sees = match models::configured(&self.api).await {
            Ok(models) => {
                let asked = self.options.model.as_deref();
                let mut of_sessions = models.iter().filter(|model| match asked {
                    Some(asked) => model.is_named(asked),
                    None => model.default,
                });
                of_sessions.any(|model| model.input.iter().any(|it| it == "image"))
            }
            Err(_) => false,
        };
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new())
            .delete(SessionDeleteCapabilities::new())
            .additional_directories(SessionAdditionalDirectoriesCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(sees).embedded_context(true))
            .mcp_capabilities(McpCapabilities::new().http(true))
            .session_capabilities(sessions);
        let own =
            Implementation::new("nexus3", env!("CARGO_PKG_VERSION")).title("nexus3".to_owned());
        InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .agent_info(own)
    }

    async fn new_session(self: &Arc<Self>, asked: NewSessionRequest) -> Result<Done, Error> {
        let cwd = directory("cwd", &asked.cwd).await?;
        let further = directories(&asked.additional_directories).await?;
        let params = CreateAgentParams {
            agent_id: Some(self.agent_name(&asked.cwd)?),
            preset: Some(self.options.preset.clone()),
            model: self.options.model.clone(),
            cwd: Some(cwd.clone()),
            ..CreateAgentParams::default()
        };
        let name = params.agent_id.clone().unwrap_or_default();
        self.options.unused.note(&name);
        let made = self.api.create_agent(params).await;
        if made.is_err() {
            self.options.unused.forget(&name);
        }
        let agent = made.map_err(refused)?.agent_id;
        if !further.is_empty()
            && let Err(error) = self.move_to(&agent, cwd, further).await
        {
            if self.api.destroy_agent(&agent).await.is_ok() {
                self.options.unused.forget(&agent);
            }
            return Err(error);
        }
        let (session, settings) = self.open(agent, false).await?;
        let result = NewSessionResponse::new(session.id.clone())
            .modes(settings.modes())
            .config_options(settings.options());
        self.opened(&result, session, &asked.mcp_servers).await
    }

    async fn load(self: &Arc<Self>, asked: LoadSessionRequest) -> Result<Done, Error> {
        let further = &asked.additional_directories;
        let (session, settings) = self.restore(&asked.session_id.0, &asked.cwd, further).await?;
        let told = replay::replay(&self.api, &self.client, &session.id, &session.cwd).await;
        told.map_err(refused)?;
        prompt::tell_usage(self, &session).await;
        let result =
            LoadSessionResponse::new().modes(settings.modes()).config_options(settings.options());
        self.opened(&result, session, &asked.mcp_servers).await
    }

    async fn resume(self: &Arc<Self>, asked: ResumeSessionRequest) -> Result<Done, Error> {
        let further = &asked.additional_directories;
        let (session, settings) = self.restore(&asked.session_id.0, &asked.cwd, further).await?;
        let result =
            ResumeSessionResponse::new().modes(settings.modes()).config_options(settings.options());
        self.opened(&result, session, &asked.mcp_servers).await
    }

    /// The answer to a request that opened a session, whose servers are connected.
    async fn opened(
        &self,
        result: &impl Serialize,
        session: Arc<Session>,
        servers: &[McpServer],
    ) -> Result<Done, Error> {
        let result = value(result)?;
        let servers = self.bring(&session, servers).await;
        Ok(Done { result, opened: Some((session, servers)) })
    }

    /// Lets an agent work in a directory, and have these beside it.
    async fn move_to(&self, agent: &str, cwd: String, further: Vec<String>) -> Result<(), Error> {
        let params = SetCwdParams { cwd, additional_directories: Some(further) };
        let moved = self.api.call::<SetCwd>(&Target::Agent(agent.into()), params).await;
        moved.map(drop).map_err(refused)
    }

    /// Takes up a session that exists: an agent, or a session that was saved.
    async fn restore(
        self: &Arc<Self>,
        id: &str,
        cwd: &Path,
        further: &[PathBuf],
    ) -> Result<(Arc<Session>, Settings), Error> {
        let cwd = directory("cwd", cwd).await?;
        let further = directories(further).await?;
        let target = Target::Agent(id.into());
        let mut looked = self.api.call::<GetPermissions>(&target, NoParams {}).await;
        if is_invalid(&looked) {
            let params = LoadSessionParams {
                session_name: id.into(),
                agent_id: None,
                preset: None,
                model: None,
            };
            let loaded = self.api.call::<LoadSession>(&Target::Server, params).await;
            if is_invalid(&loaded) {
                return Err(fault::no_stored(id));
            }
            loaded.map_err(refused)?;
            looked = self.api.call::<GetPermissions>(&target, NoParams {}).await;
        }
        let now = looked.map_err(refused)?.policy;
        if now.cwd != cwd || now.additional_directories != further {
            self.move_to(id, cwd, further).await?;
        }
        self.open(id.into(), true).await
    }

    /// Opens a session of an agent here, if it is not open.
    async fn open(
        self: &Arc<Self>,
        agent: String,
        has_prompt: bool,
    ) -> Result<(Arc<Session>, Settings), Error> {
        let settings = Settings::of(&self.api, &agent).await.map_err(refused)?;
        let mut sessions = lock(&self.sessions);
        if let Some(session) = sessions.get(&agent)
            && session.cwd == settings.cwd
        {
            return Ok((session.clone(), settings));
        }
        let (session, jobs) = Session::new(agent.clone(), settings.cwd.clone(), has_prompt);
        let over = session.over.clone().drop_guard();
        spawn(&self.workers, self.clone().work(jobs, over));
        if let Some(before) = sessions.insert(agent, session.clone()) {
            before.close();
        }
        Ok((session, settings))
    }

    /// Carries out the prompts of a session.
    async fn work(self: Arc<Self>, mut jobs: mpsc::UnboundedReceiver<Job>, _over: DropGuard) {
        // To open a watch costs more than all else in a short prompt, so it stays for the next.
        let (mut watch, mut place) = (None, None);
        loop {
            let job = tokio::select! {
                biased;
                job = jobs.recv() => job,
                () = prompt::pass_over(&mut watch, place.take()) => {
                    watch = None;
                    continue;
                }
            };
            let Some(Job { id, session, prompt, cancel }) = job else { return };
            let outcome = prompt::run(&*self, &session, prompt, &cancel, &mut watch).await;
            lock(&self.calls).remove(id.get());
            let answer = outcome.and_then(|response| value(&response));
            self.client.answer(Some(&id), answer).await;
            place = watch.is_some().then(|| self.kept_watches.take());
        }
    }

    /// What can be said in a session instead of to its model, where that has changed.
    pub async fn tell_commands(&self, session: &Session) {
        let mut all = commands::available();
        all.extend(prompts::available(&self.api, &session.id).await);
        if session.offers(&all) {
            let commands = AvailableCommandsUpdate::new(all);
            self.tell(&session.id, SessionUpdate::AvailableCommandsUpdate(commands)).await;
        }
    }

    /// What an editor did not say that it understands is not said.
    pub async fn tell(&self, session: &str, update: SessionUpdate) {
        let can = self.capabilities.get().and_then(|can| can.session.as_ref());
        let is_understood = match &update {
            SessionUpdate::Notice(_) => self.shows_notices(),
            SessionUpdate::CompactionUpdate(_) => can.is_some_and(|can| can.compaction.is_some()),
            _ => true,
        };
        if is_understood {
            self.client.update(session, update).await;
        }
    }

    /// Whether agents beneath a session are shown as sessions of their own.
    pub fn shows_subagents(&self) -> bool {
        self.capabilities.get().is_some_and(|can| can.subagents.is_some())
    }

    pub fn shows_notices(&self) -> bool {
        let can = self.capabilities.get().and_then(|can| can.session.as_ref());
        can.is_some_and(|can| can.notices.is_some())
    }

    pub fn elicitation(&self) -> Option<ElicitationCapabilities> {
        self.capabilities.get().and_then(|can| can.elicitation.clone())
    }

    /// How a session is set, in both forms that there are for it.
    pub async fn tell_settings(&self, session: &str) {
        let Ok(settings) = Settings::of(&self.api, session).await else { return };
        let mode = CurrentModeUpdate::new(settings.modes().current_mode_id);
        self.tell(session, SessionUpdate::CurrentModeUpdate(mode)).await;
        let options = ConfigOptionUpdate::new(settings.options());
        self.tell(session, SessionUpdate::ConfigOptionUpdate(options)).await;
    }

    async fn set_option(&self, asked: SetSessionConfigOptionRequest) -> Result<Done, Error> {
        let session = self.session(&asked.session_id.0)?;
        let SessionConfigOptionValue::ValueId { value } = &asked.value else {
            return Err(fault::invalid_params("The value is a text"));
        };
        let (api, agent) = (&self.api, session.id.as_str());
        let set = match &*asked.config_id.0 {
            settings::MODE => settings::set_mode(api, agent, &value.0).await,
            settings::MODEL => settings::set_model(api, agent, &value.0).await,
            settings::THOUGHT_LEVEL => settings::set_level(api, agent, &value.0).await,
            other => return Err(fault::invalid_params(format!("There is no option {other:?}"))),
        };
        set.map_err(refused)?;
        let settings = Settings::of(api, agent).await.map_err(refused)?;
        let mode = CurrentModeUpdate::new(settings.modes().current_mode_id);
        self.tell(agent, SessionUpdate::CurrentModeUpdate(mode)).await;
        answered(SetSessionConfigOptionResponse::new(settings.options()))
    }

    /// Those of people that have something in them, the most recently changed first.
    async fn list(&self, List { cwd, cursor }: List) -> Result<ListSessionsResponse, Error> {
        let unknown = |_| fault::invalid_params("The cursor is none that was given");
        let mut offset = cursor.map_or(Ok(0), |cursor| cursor.parse()).map_err(unknown)?;
        let cwd = match cwd {
            Some(cwd) => Some(tokio::fs::canonicalize(&cwd).await.unwrap_or(cwd)),
            None => None,
        };
        let wanted = |entry: &SessionEntry| {
            let is_there = cwd.as_ref().is_none_or(|cwd| Path::new(&entry.cwd) == cwd);
            is_there && entry.message_count > 0 && !entry.is_temp && entry.provenance == "user"
        };
        let mut found: Vec<SessionInfo> = Vec::new();
        loop {
            let params = ListSessionsParams {
                offset: Some(offset),
                limit: Bounded::new(LOOKED_AT),
                include_temp: None,
            };
            let page = self.api.call::<ListSessions>(&Target::Server, params).await;
            let page = page.map_err(refused)?;
            for entry in &page.sessions {
                if found.len() == PAGE {
                    return Ok(ListSessionsResponse::new(found).next_cursor(offset.to_string()));
                }
                offset += 1;
                found.extend(wanted(entry).then(|| info(entry)));
            }
            if page.sessions.is_empty() || offset >= page.total {
                return Ok(ListSessionsResponse::new(found));
            }
        }
    }

    /// Cancels what runs. One that nothing was ever said in is gone.
    async fn close(&self, id: &str) {
        let Some(session) = lock(&self.sessions).remove(id) else { return };
        session.close();
        let _ = tokio::time::timeout(ENDING, session.over.cancelled()).await;
        self.tidy(&session).await;
    }

    /// Lets go of a session's agent, for others to take up, and of what was brought along for it; or ends it, where nothing
    /// was ever said.
    async fn tidy(&self, session: &Session) {
        if session.has_prompt() {
            self.let_go(&session.id).await;
            let params = UnloadAgentParams { agent_id: session.id.clone() };
            let _ = self.api.call::<UnloadAgent>(&Target::Server, params).await;
        } else if self.api.destroy_agent(&session.id).await.is_ok() {
            self.options.unused.forget(&session.id);
        }
    }

    /// Something was said in a session; true the first time.
    pub fn prompted(&self, session: &Session) -> bool {
        let is_first = session.prompted();
        if is_first {
            self.options.unused.forget(&session.id);
        }
        is_first
    }

    /// Also of what was never opened here, and once more of what is gone.
    async fn delete(&self, id: String) -> Result<(), Error> {
        self.close(&id).await;
        let params = DeleteSessionParams { session_name: id };
        self.api.call::<DeleteSession>(&Target::Server, params).await.map_err(refused)?;
        Ok(())
    }

    /// The editor is gone: what runs for it is cancelled, and what it never used is taken back.
    async fn leave(&self) {
        self.brought.stop_waiting();
        for call in lock(&self.calls).values() {
            call.cancel();
        }
        let requests = std::mem::take(&mut *lock(&self.requests));
        end(requests, ENDING / 2).await;
        let sessions: Vec<_> = lock(&self.sessions).drain().map(|(_, session)| session).collect();
        for session in &sessions {
            session.close();
        }
        let workers = std::mem::take(&mut *lock(&self.workers));
        end(workers, ENDING / 2).await;
        let tidying = sessions.iter().map(|session| self.tidy(session));
        let _ = tokio::time::timeout(TIDYING, join_all(tidying)).await;
    }

    pub fn is_open(&self, session: &str) -> bool {
        lock(&self.sessions).contains_key(session)
    }

    fn session(&self, id: &str) -> Result<Arc<Session>, Error> {
        lock(&self.sessions).get(id).cloned().ok_or_else(|| fault::no_session(id))
    }

    /// A name that a person knows again, with the directory in it.
    fn agent_name(&self, cwd: &Path) -> Result<String, Error> {
        let dir = cwd.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let dir: String = dir.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
        let name = self.random_name()?;
        let random = &name[SOURCE.len()..][..13];
        Ok(match dir.is_empty() {
            true => format!("{SOURCE}{random}"),
            false => format!("{SOURCE}-{}{random}", dir.to_ascii_lowercase()),
        })
    }

    /// A name that nobody has.
    pub fn random_name(&self) -> Result<String, Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| fault::internal(error.to_string()))?;
        Ok(bytes.iter().fold(format!("{SOURCE}-"), |name, byte| format!("{name}{byte:02x}")))
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins work, and forgets what is done.
fn spawn(all: &Mutex<JoinSet<()>>, work: impl Future<Output = ()> + Send + 'static) {
    let mut all = lock(all);
    while all.try_join_next().is_some() {}
    all.spawn(work);
}

/// Waits so long for work to end, and then ends it.
async fn end(mut work: JoinSet<()>, longest: Duration) {
    let _ =
        tokio::time::timeout(longest, async { while work.join_next().await.is_some() {} }).await;
}

/// What is wrong with a line.
fn not_a_message(line: &[u8], error: &serde_json::Error) -> Error {
    match serde_json::from_slice::<Value>(line) {
        Ok(Value::Array(_)) => fault::invalid_request("Messages do not come in batches here"),
        Ok(_) => fault::invalid_request(format!("This is no message: {error}")),
        Err(error) => fault::parse(error),
    }
}

fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, Error> {
    serde_json::from_str(params.map_or("{}", RawValue::get))
        .map_err(|error| fault::invalid_params(format!("Invalid params: {error}")))
}

fn value(result: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(result).map_err(|error| fault::internal(error.to_string()))
}

fn answered(result: impl Serialize) -> Result<Done, Error> {
    Ok(Done { result: value(&result)?, opened: None })
}

fn refused(error: CallError) -> Error {
    fault::of(&error)
}

fn is_invalid<T>(outcome: &Result<T, CallError>) -> bool {
    matches!(outcome, Err(CallError::Rpc(error)) if error.code == INVALID_PARAMS)
}

/// A directory as the server names it.
async fn directory(key: &str, path: &Path) -> Result<String, Error> {
    let wrong = |why: String| fault::invalid_params(format!("{key}: {}{why}", path.display()));
    if !path.is_absolute() {
        return Err(wrong(" is not absolute".into()));
    }
    let found = tokio::fs::canonicalize(path).await;
    let found = found.map_err(|why| wrong(format!(": {why}")))?;
    let name = found.to_str().map(str::to_owned);
    name.ok_or_else(|| fault::invalid_params(format!("{key}: a directory's name is not UTF-8")))
}

/// Several, each once and in the server's order.
async fn directories(paths: &[PathBuf]) -> Result<Vec<String>, Error> {
    let mut found = BTreeSet::new();
    for path in paths {
        found.insert(directory("additionalDirectories", path).await?);
    }
    Ok(found.into_iter().collect())
}

fn info(entry: &SessionEntry) -> SessionInfo {
    let updated = Timestamp::from_millisecond((entry.updated_at * 1_000.0) as i64).ok();
    SessionInfo::new(entry.name.clone(), entry.cwd.clone())
        .title(entry.name.clone())
        .updated_at(updated.map(|at| at.to_string()))
}
