//! The JSON-RPC face of the core: the dispatcher and its method table, the handlers, the transports, authentication.

pub mod auth;
mod begin;
pub mod behalf;
pub mod calls;
pub mod context_token;
mod cx;
pub mod descriptors;
pub mod direct;
pub mod dispatcher;
mod errors;
mod freight;
mod handlers;
mod host;
pub mod json_schema;
mod known_keys;
pub mod metrics;
mod once;
pub mod openrpc;
pub mod outbox;
pub mod rates;
mod rpc_server;
pub mod signing;
mod stream;
pub mod terminal;
pub mod transport;
mod watch;

pub use direct::{DirectAgentApi, DirectStream};
pub use dispatcher::{Caller, Dispatcher, Reply, Signer, Target};
pub use handlers::{check_result, key_entry, model_entry, stored_door};
pub use rpc_server::RpcServer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use jiff::Timestamp;
use nexus_core::Engine;
use nexus_core::store::Contact;
use nexus_protocol::agent::AgentEntry;
use nexus_protocol::shared::Shared;
use tokio::sync::Semaphore;

/// What handlers can use beside the parameters of their call.
pub struct Services {
    pub engine: Arc<Engine>,
    pub tokens: auth::AgentTokens,
    pub calls: Arc<dyn calls::CallLog>,
    /// `None` where no secret was given: no token is valid then.
    pub context_tokens: Option<context_token::ContextTokens>,
    /// Pages of conversations that are read from the store at once; each is some megabytes until it is sent.
    pages: Semaphore,
    agent_list: Mutex<Option<AgentList>>,
    once: once::Running,
    /// `None` where calls are not counted.
    rates: Option<rates::Rates>,
    signatures: signing::Signatures,
    /// Attempts to be let in that failed, at whichever door.
    pub failures: Arc<rates::Failures>,
    figures: Arc<metrics::Figures>,
    /// Where this server is.
    pub site: Site,
    /// What started this server, where a terminal did.
    pub terminal: OnceLock<terminal::Terminal>,
}

/// Where a server is, and since when.
pub struct Site {
    pub home: PathBuf,
    pub started_at: Timestamp,
    /// How it is reached, once it is.
    pub contact: OnceLock<Contact>,
}

impl Site {
    pub fn new(home: PathBuf) -> Self {
        Self { home, started_at: Timestamp::now(), contact: OnceLock::new() }
    }
}

/// As many as make a disk busy.
const PAGES_MAX: usize = 8;

/// The administrator's list of agents, and the engine's version it shows.
type AgentList = ((u64, u64), Shared<Vec<AgentEntry>>);

impl Services {
    /// Returns when the key that somebody came with does not open this door any more: never, where there was none.
    pub async fn key_ended(&self, door: nexus_core::store::Door, key: Option<&str>) {
        match key {
            Some(key) => self.signatures.keys.ended(&self.engine, door, key).await,
            None => std::future::pending().await,
        }
    }

    pub fn new(
        engine: Arc<Engine>,
        tokens: auth::AgentTokens,
        calls: Arc<dyn calls::CallLog>,
    ) -> Self {
        let pages = Semaphore::new(PAGES_MAX);
        let agent_list = Mutex::new(None);
        let once = once::Running::default();
        Self {
            engine,
            tokens,
            calls,
            context_tokens: None,
            pages,
            agent_list,
            once,
            rates: None,
            signatures: signing::Signatures::off(),
            failures: Arc::default(),
            figures: Arc::default(),
            site: Site::new(PathBuf::new()),
            terminal: OnceLock::new(),
        }
    }

    /// In this home.
    pub fn with_home(self, home: PathBuf) -> Self {
        Self { site: Site::new(home), ..self }
    }

    /// With tokens by which hosts say for whom calls speak.
    pub fn with_context_tokens(self, tokens: Option<context_token::ContextTokens>) -> Self {
        Self { context_tokens: tokens, ..self }
    }

    /// With callers that sign what they ask for.
    pub fn with_signatures(self, signatures: signing::Signatures) -> Self {
        Self { signatures, ..self }
    }

    /// With a limit to the callers that are told in a minute that they are not let in.
    pub fn with_failures_max(self, per_minute: Option<u32>) -> Self {
        Self { failures: Arc::new(rates::Failures::new(per_minute)), ..self }
    }

    /// With figures that others add to as well: the engine's observer, and the store's.
    pub fn with_figures(self, figures: Arc<metrics::Figures>) -> Self {
        Self { figures, ..self }
    }

    /// With limits to what each caller may ask for in a minute.
    pub fn with_rate_limits(self, limits: rates::RateLimits) -> Self {
        let rates = (limits != rates::RateLimits::default()).then(|| rates::Rates::new(limits));
        Self { rates, ..self }
    }
}

/// The dispatcher with every method of this server.
pub fn dispatcher(services: Services) -> Arc<Dispatcher> {
    Arc::new(Dispatcher::new(table(), services))
}

/// The method table alone, for the documents that are made from it.
pub fn methods() -> Vec<dispatcher::MethodInfo> {
    table().infos()
}

fn table() -> dispatcher::Table {
    let mut table = dispatcher::Table::default();
    handlers::register(&mut table);
    table
}
