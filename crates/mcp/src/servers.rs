//! All servers that are configured, and the tools that are known of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures_util::future::join_all;
use nexus_core::AgentId;
use nexus_core::mcp::{
    Accept, LoginState, Lookup, Origin, OwnServer, OwnServers, ServerEntry, ServerError,
    ServerSource, ServerStatus,
};
use nexus_core::tool::{READ_TOOL, SEARCH_TOOL, ServerUser, Tool, ToolSource};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::connection::ServerCall;
use crate::ground::Ground;
use crate::listing::Listed;
use crate::login::Login;
use crate::meaning::Meanings;
use crate::owned::Owned;
use crate::read::{self, Reader};
use crate::result;
use crate::results::Results;
use crate::search::Finder;
use crate::seat::{self, OWN_PROCESSES_MAX};
use crate::server::{Common, Server};
use crate::tool::McpTool;

/// A turn waits so long for servers whose tools nobody knows yet, and then begins without them.
const PREPARE_MAX: Duration = Duration::from_secs(10);

pub struct Servers {
    /// Of the configuration.
    by_name: BTreeMap<String, Arc<Server>>,
    /// Of agents.
    owned: Owned,
    common: Common,
    known: ArcSwap<Known>,
    version: AtomicU64,
    finders: [Arc<dyn Tool>; 2],
    reader: Arc<dyn Tool>,
    meanings: Arc<Meanings>,
    results: Arc<Results>,
    this: Weak<Self>,
    /// Ends what runs, with the last who has this.
    _end: DropGuard,
}

/// The tools that can be called now, by name.
#[derive(Default)]
struct Known {
    tools: Arc<[Arc<dyn Tool>]>,
    by_name: BTreeMap<String, Arc<dyn Tool>>,
}

/// What a trial of a server came to.
pub struct Tried {
    pub status: ServerStatus,
    /// What the called tool answered, if one was called.
    pub answer: Option<Result<String, String>>,
}

impl Servers {
    /// Starts nothing. Reads what is kept of servers that ran before: touches the disk.
    pub fn new(entries: Vec<ServerEntry>, ground: Ground) -> Arc<Self> {
        seat::sweep(&ground.home);
        let ground = Arc::new(ground);
        let stop = CancellationToken::new();
        let place = ground.home.join("mcp").join("meanings");
        let meanings = Arc::new(Meanings::new(ground.embedder.clone(), place));
        let servers = Arc::new_cyclic(|this: &Weak<Self>| {
            let weak = this.clone();
            let changed = move || {
                if let Some(servers) = weak.upgrade() {
                    servers.gather();
                }
            };
            let common = Common {
                ground: ground.clone(),
                changed: Arc::new(changed),
                stop: stop.clone(),
                processes: Arc::new(Semaphore::new(OWN_PROCESSES_MAX)),
            };
            let server =
                |entry: ServerEntry| (entry.name.clone(), Server::new(entry, common.clone()));
            Self {
                by_name: entries.into_iter().map(server).collect(),
                owned: Owned::default(),
                known: ArcSwap::default(),
                version: AtomicU64::new(0),
                finders: [
                    Arc::new(search(this.clone(), OwnServers::default(), meanings.clone())),
                    Arc::new(Finder::call()),
                ],
                reader: Arc::new(Reader::new(this.clone(), OwnServers::default())),
                meanings,
                results: ground.results.clone(),
                this: this.clone(),
                common,
                _end: stop.clone().drop_guard(),
            }
        });
        servers.gather();
        servers
    }

    /// Makes the tools of what the servers are known to have.
    fn gather(&self) {
        let mut by_name: BTreeMap<String, Arc<dyn Tool>> = BTreeMap::new();
        for server in self.by_name.values() {
            for tool in tools_of(server) {
                by_name.entry(tool.spec().name.clone()).or_insert(tool);
            }
        }
        let tools = by_name.values().filter(|tool| !waits(&***tool)).cloned().collect();
        self.known.store(Arc::new(Known { tools, by_name }));
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Starts a server, and calls a tool of it if one is named, for a person who wants to see whether it works.
    pub async fn try_out(
        &self,
        name: &str,
        call: Option<(String, Map<String, Value>)>,
    ) -> Result<Tried, ServerError> {
        let server = self.server(name)?;
        let user = AgentId::default_agent();
        let wait = server.entry.startup_timeout * 2;
        server.connect(&user, wait).await?;
        let answer = match call {
            None => None,
            Some((tool, arguments)) => {
                let cancel = CancellationToken::new();
                let call = ServerCall {
                    user: &user,
                    tool: &tool,
                    arguments,
                    cancel: &cancel,
                    people: &(),
                    ticket: None,
                };
                let called = server.call(call, async |_: &str| (), |_| ()).await;
                Some(match called {
                    Ok(result) => {
                        let text = result::output(&result, &()).await.text;
                        if result.is_error == Some(true) { Err(text) } else { Ok(text) }
                    }
                    Err(error) => Err(error.to_string()),
                })
            }
        };
        Ok(Tried { status: server.status(), answer })
    }

    /// Begins a login at a server elsewhere, for a person who goes to where it leads.
    pub async fn login(&self, name: &str) -> Result<Login, String> {
        let server = self.server(name).map_err(|error| error.to_string())?;
        server.entry.standing.check()?;
        let begun = Login::begin(&server.entry, &server.ground);
        let begun = tokio::time::timeout(server.entry.startup_timeout, begun).await;
        begun.unwrap_or_else(|_| Err(server.not_in_time()))
    }

    /// Forgets a login; whether there was one.
    pub async fn logout(&self, name: &str) -> Result<bool, String> {
        let server = self.server(name).map_err(|error| error.to_string())?;
        server.credentials().forget().await
    }

    /// What is kept of long results of all servers.
    pub fn results(&self) -> &Arc<Results> {
        &self.results
    }

    pub(crate) fn server(&self, name: &str) -> Result<&Arc<Server>, ServerError> {
        self.by_name.get(name).ok_or_else(|| ServerError::NotThere(name.into()))
    }

    /// Ends a server that was tried out.
    pub async fn let_go(&self, name: &str) -> bool {
        match self.by_name.get(name) {
            Some(server) => server.disconnect(&AgentId::default_agent()).await,
            None => false,
        }
    }

    /// One of the configuration, or of the agent that has these.
    pub(crate) fn find(&self, name: &str, own: &OwnServers) -> Result<Arc<Server>, ServerError> {
        if let Ok(server) = self.server(name) {
            return Ok(server.clone());
        }
        let found = own.iter().find(|it| it.name == name);
        let found = found.ok_or_else(|| ServerError::NotThere(name.into()))?;
        Ok(self.owned.get(found, &self.common))
    }

    /// Those of an agent that are in no configuration.
    fn owned(&self, own: &OwnServers) -> Vec<Arc<Server>> {
        let own = own.iter().filter(|it| !self.by_name.contains_key(&it.name));
        own.map(|it| self.owned.get(it, &self.common)).collect()
    }

    fn all(&self, own: &OwnServers) -> impl Iterator<Item = Arc<Server>> {
        self.by_name.values().cloned().chain(self.owned(own))
    }

    /// What serves an agent.
    fn serving(&self, name: &str, user: ServerUser<'_>) -> Result<Arc<Server>, ServerError> {
        let server = self.find(name, user.own)?;
        let unavailable = |why| ServerError::Unavailable { server: name.into(), why };
        server.serving(user).map_err(unavailable)
    }
}

/// All tools that a server is known to have.
fn tools_of(server: &Arc<Server>) -> Vec<Arc<dyn Tool>> {
    let Some(listing) = server.listing() else { return Vec::new() };
    let tool = |listed: &Arc<Listed>| -> Arc<dyn Tool> {
        Arc::new(McpTool::new(server.clone(), listed.clone()))
    };
    listing.chosen().map(tool).collect()
}

/// Whether somebody has to look at a tool before it can be called.
fn waits(tool: &dyn Tool) -> bool {
    tool.origin().is_some_and(|it| it.quarantined)
}

/// The tool that finds those that an agent with these servers of its own is not shown.
fn search(servers: Weak<Servers>, own: OwnServers, meanings: Arc<Meanings>) -> Finder {
    let all = move || match servers.upgrade() {
        Some(servers) => servers.tools(&own),
        None => Arc::from([]),
    };
    Finder::search(Box::new(all), meanings)
}

#[async_trait]
impl ToolSource for Servers {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn tools(&self, own: &OwnServers) -> Arc<[Arc<dyn Tool>]> {
        let known = self.known.load();
        if own.is_empty() {
            return known.tools.clone();
        }
        let own = self.owned(own).into_iter().flat_map(|server| tools_of(&server));
        let mut tools: Vec<_> =
            known.tools.iter().cloned().chain(own.filter(|tool| !waits(&**tool))).collect();
        tools.sort_by(|a, b| a.spec().name.cmp(&b.spec().name));
        tools.into()
    }

    fn get(&self, name: &str, own: &OwnServers) -> Option<Arc<dyn Tool>> {
        if !own.is_empty() && name == SEARCH_TOOL {
            return Some(Arc::new(search(self.this.clone(), own.clone(), self.meanings.clone())));
        }
        if !own.is_empty() && name == READ_TOOL {
            return Some(Arc::new(Reader::new(self.this.clone(), own.clone())));
        }
        let for_servers = self.finders.iter().chain([&self.reader]);
        let found = for_servers.into_iter().find(|tool| tool.spec().name == name).cloned();
        let found = found.or_else(|| self.known.load().by_name.get(name).cloned());
        let of_own = || {
            let mut tools = self.owned(own).into_iter().flat_map(|it| tools_of(&it));
            tools.find(|tool| tool.spec().name == name)
        };
        found.or_else(of_own)
    }

    fn finders(&self) -> Vec<Arc<dyn Tool>> {
        self.finders.to_vec()
    }

    async fn prepare(&self, user: ServerUser<'_>) {
        let own = self.owned(user.own);
        join_all(own.iter().map(|server| server.look_for_kept())).await;
        let reached = |it: &Arc<Server>| user.permissions.mcp.reaches(&it.entry.name);
        let unknown = self.all(user.own).filter(|it| it.listing().is_none() && reached(it));
        let serving: Vec<_> = unknown.filter_map(|it| it.serving(user).ok()).collect();
        let listed = join_all(serving.iter().map(|server| server.get_known()));
        // Those that take longer go on, and their tools come with the next turn.
        let _ = tokio::time::timeout(PREPARE_MAX, listed).await;
    }

    async fn servers(&self, user: ServerUser<'_>) -> Vec<ServerStatus> {
        let own = self.owned(user.own);
        join_all(own.iter().map(|server| server.look_for_kept())).await;
        let number = user.agent.number();
        let mut all: Vec<_> =
            self.all(user.own).map(|server| server.seen_by(number).status()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn own(
        &self,
        source: ServerSource,
        mut config: Map<String, Value>,
    ) -> Result<OwnServer, String> {
        let Some(Value::String(name)) = config.shift_remove("name") else {
            return Err("name is missing: a text".into());
        };
        let entry = self.common.ground.entries.read(&name, source, &config)?;
        entry.standing.check()?;
        Ok(OwnServer::new(entry.name, source, config))
    }

    fn is_configured(&self, server: &str) -> bool {
        self.by_name.contains_key(server)
    }

    async fn forget(&self, own: &OwnServer) {
        self.owned.forget(own).await;
    }

    fn start(&self) {
        for server in self.by_name.values().filter(|server| server.entry.eager) {
            let server = server.clone();
            tokio::spawn(async move { server.get_known().await });
        }
    }

    async fn login_state(&self, server: &str, own: &OwnServers) -> Option<LoginState> {
        self.find(server, own).ok()?.login_state().await
    }

    async fn connect(
        &self,
        server: &str,
        user: ServerUser<'_>,
        shared: Option<bool>,
        wait: Duration,
    ) -> Result<ServerStatus, ServerError> {
        let found = self.find(server, user.own)?;
        let unavailable = |why| ServerError::Unavailable { server: server.into(), why };
        match shared {
            Some(true) if !found.entry.share => return Err(ServerError::NotShared(server.into())),
            Some(true) => drop(found.end_apart(user.agent.number()).await),
            Some(false) => drop(found.set_apart(user).map_err(unavailable)?),
            None => {}
        }
        self.serving(server, user)?.connect(&user.agent.id(), wait).await
    }

    async fn disconnect(&self, server: &str, user: ServerUser<'_>) -> bool {
        let Ok(found) = self.find(server, user.own) else { return false };
        let was_own = found.end_apart(user.agent.number()).await;
        was_own || found.disconnect(&user.agent.id()).await
    }

    fn reader(&self, own: &OwnServers) -> Option<(Arc<dyn Tool>, Vec<Origin>)> {
        let has = |server: &Arc<Server>| server.listing().is_some_and(|it| it.about.has_resources);
        let readable = self.all(own).filter(has).map(|server| read::origin(&server));
        let is_any = !self.by_name.is_empty() || !own.is_empty();
        is_any.then(|| (self.reader.clone(), readable.collect()))
    }

    fn words(&self, server: &str, own: &OwnServers) -> Option<String> {
        self.find(server, own).ok()?.listing()?.about.agreed.clone()
    }

    async fn look_up(
        &self,
        server: &str,
        user: ServerUser<'_>,
        lookup: &Lookup,
    ) -> Result<Value, ServerError> {
        self.serving(server, user)?.look_up(&user.agent.id(), lookup).await
    }

    async fn review(
        &self,
        server: &str,
        own: &OwnServers,
        accept: Accept,
    ) -> Result<Vec<String>, ServerError> {
        let server = self.find(server, own)?;
        server.look_for_kept().await;
        Ok(server.review(accept).await)
    }
}
