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
    Accept, LoginState, Lookup, McpReach, Origin, ServerEntry, ServerError, ServerStatus,
};
use nexus_core::tool::{Tool, ToolSource};
use serde_json::{Map, Value};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::connection::Call;
use crate::ground::Ground;
use crate::login::Login;
use crate::meaning::Meanings;
use crate::read::{self, Reader};
use crate::result;
use crate::results::Results;
use crate::search::Finder;
use crate::server::Server;
use crate::tool::McpTool;

/// A turn waits so long for servers whose tools nobody knows yet, and then begins without them.
const PREPARE_MAX: Duration = Duration::from_secs(10);

pub struct Servers {
    by_name: BTreeMap<String, Arc<Server>>,
    known: ArcSwap<Known>,
    version: AtomicU64,
    finders: [Arc<dyn Tool>; 2],
    reader: Arc<dyn Tool>,
    results: Arc<Results>,
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
        let ground = Arc::new(ground);
        let stop = CancellationToken::new();
        let place = ground.home.join("mcp").join("meanings");
        let meanings = Arc::new(Meanings::new(ground.embedder.clone(), place));
        let servers = Arc::new_cyclic(|this: &Weak<Self>| {
            let server = |entry: ServerEntry| {
                let this = this.clone();
                let changed = move || {
                    if let Some(servers) = this.upgrade() {
                        servers.gather();
                    }
                };
                let name = entry.name.clone();
                (name, Server::new(entry, ground.clone(), Box::new(changed), stop.clone()))
            };
            Self {
                by_name: entries.into_iter().map(server).collect(),
                known: ArcSwap::default(),
                version: AtomicU64::new(0),
                finders: finders(this.clone(), meanings),
                reader: Arc::new(Reader::new(this.clone())),
                results: ground.results.clone(),
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
            let Some(listing) = server.listing() else { continue };
            for listed in listing.chosen() {
                let tool = Arc::new(McpTool::new(server.clone(), listed.clone()));
                by_name.entry(listed.spec.name.clone()).or_insert(tool);
            }
        }
        let waits = |tool: &Arc<dyn Tool>| tool.origin().is_some_and(|it| it.quarantined);
        let tools = by_name.values().filter(|tool| !waits(tool)).cloned().collect();
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
                let call = Call {
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

    pub(crate) fn results(&self) -> &Arc<Results> {
        &self.results
    }

    pub(crate) fn server(&self, name: &str) -> Result<&Arc<Server>, ServerError> {
        self.by_name.get(name).ok_or_else(|| ServerError::NotThere(name.into()))
    }
}

/// The tools for tools that the model is not shown.
fn finders(servers: Weak<Servers>, meanings: Arc<Meanings>) -> [Arc<dyn Tool>; 2] {
    let all = move || match servers.upgrade() {
        Some(servers) => servers.tools(),
        None => Arc::from([]),
    };
    [Arc::new(Finder::search(Box::new(all), meanings)), Arc::new(Finder::call())]
}

#[async_trait]
impl ToolSource for Servers {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn tools(&self) -> Arc<[Arc<dyn Tool>]> {
        self.known.load().tools.clone()
    }

    fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let own = self.finders.iter().chain([&self.reader]);
        let own = own.into_iter().find(|tool| tool.spec().name == name).cloned();
        own.or_else(|| self.known.load().by_name.get(name).cloned())
    }

    fn finders(&self) -> Vec<Arc<dyn Tool>> {
        self.finders.to_vec()
    }

    async fn prepare(&self, reach: &McpReach) {
        let unknown = self
            .by_name
            .values()
            .filter(|server| server.listing().is_none() && reach.reaches(&server.entry.name));
        let listed = join_all(unknown.map(|server| server.get_known()));
        // Those that take longer go on, and their tools come with the next turn.
        let _ = tokio::time::timeout(PREPARE_MAX, listed).await;
    }

    fn servers(&self) -> Vec<ServerStatus> {
        self.by_name.values().map(|server| server.status()).collect()
    }

    fn start(&self) {
        for server in self.by_name.values().filter(|server| server.entry.eager) {
            let server = server.clone();
            tokio::spawn(async move { server.get_known().await });
        }
    }

    async fn login_state(&self, server: &str) -> Option<LoginState> {
        self.by_name.get(server)?.login_state().await
    }

    async fn connect(
        &self,
        server: &str,
        user: &AgentId,
        wait: Duration,
    ) -> Result<ServerStatus, ServerError> {
        self.server(server)?.connect(user, wait).await
    }

    async fn disconnect(&self, server: &str, user: &AgentId) -> bool {
        match self.by_name.get(server) {
            Some(server) => server.disconnect(user).await,
            None => false,
        }
    }

    fn reader(&self) -> Option<(Arc<dyn Tool>, Vec<Origin>)> {
        let has = |server: &&Arc<Server>| server.listing().is_some_and(|it| it.about.has_resources);
        let readable = self.by_name.values().filter(has).map(|server| read::origin(server));
        (!self.by_name.is_empty()).then(|| (self.reader.clone(), readable.collect()))
    }

    fn words(&self, server: &str) -> Option<String> {
        self.by_name.get(server)?.listing()?.about.agreed.clone()
    }

    async fn look_up(
        &self,
        server: &str,
        user: &AgentId,
        lookup: &Lookup,
    ) -> Result<Value, ServerError> {
        self.server(server)?.look_up(user, lookup).await
    }

    async fn review(&self, server: &str, accept: Accept) -> Result<Vec<String>, ServerError> {
        Ok(self.server(server)?.review(accept).await)
    }
}
