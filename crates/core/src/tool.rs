//! What a model may call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::approval::Announce;
use crate::authority::Action;
use crate::events::TurnOutcome;
use crate::footprint::Footprint;
use crate::inquiry::People;
use crate::lifecycle::AgentSpec;
use crate::mcp::{
    Accept, LoginState, Lookup, Origin, OwnServer, OwnServers, ServerError, ServerSource,
    ServerStatus,
};
use crate::memory::Memories;
use crate::message::Attachment;
use crate::name::AgentId;
use crate::permission::{Level, Permissions, ToolClass};
use crate::preview::{FileChange, Preview};
use crate::progress::ToolProgress;
use crate::provider::ToolSpec;
use crate::store::StoreError;

/// Something the model may call. The [gate](crate::gate) is the one way to it.
#[async_trait]
pub trait Tool: Send + Sync {
    fn spec(&self) -> &ToolSpec;

    fn class(&self) -> ToolClass;

    /// The server that it comes from, if it does.
    fn origin(&self) -> Option<&Origin> {
        None
    }

    /// Makes what `needs` needs and what takes long, off the async threads.
    async fn prepare(&self) {}

    /// What a call with these arguments would touch. An error says how the arguments do not fit the tool's schema.
    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, String>;

    /// What a call would do, for the person who is asked for leave. It looks and changes nothing. `access` is what the
    /// agent has without that leave: it sees its own approvals, and must learn nothing from them.
    async fn preview(&self, _arguments: &Value, _access: Access) -> Option<Preview> {
        None
    }

    /// Runs a call that the gate let through. What comes back, well or not, is for the model: a failure is a text
    /// that says what to do instead.
    ///
    /// When `cancel` says so it ends by itself, with all that it started, and returns what it came to; after
    /// [`ENDING_MAX`] it is dropped.
    async fn run(&self, call: Invocation) -> Result<ToolOutput, String>;
}

/// What a tool hands to the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    pub text: String,
    /// What the text cannot say: images, for models that can see them.
    pub attachments: Vec<Attachment>,
    /// For people: what became of the file that it changed, where somebody looks on and it was one.
    pub change: Option<FileChange>,
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// How long a tool that was told to end may take for it: longer than a command that has to be killed, and whose output
/// has to be drained.
pub const ENDING_MAX: Duration = Duration::from_secs(8);

/// One thing a call touches. Paths are as the model wrote them, relative to the agent's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    Read(String),
    Write(String),
    /// Run a program, in this directory; without one, in the agent's.
    Command(CommandKind, Option<String>),
    /// What only agents of this level, or a higher one, may do: which thing that is.
    Level(Level, String),
    /// Make, watch or end agents.
    ManageAgents,
    /// Give this agent a message.
    Message(AgentId),
    /// Have a server do this.
    Server(Origin),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Fixed by the tool and known to change nothing, as `git log`.
    ReadOnly,
    Any,
}

/// A call on its way to its tool.
pub struct Invocation {
    pub agent: Agent,
    /// The call's own id.
    pub id: String,
    /// What it had begun elsewhere before its turn was cut off, as [`keep_ticket`](Self::keep_ticket) was told. Then nothing
    /// is begun again.
    pub ticket: Option<String>,
    pub arguments: Value,
    pub access: Access,
    /// Cancelled with the turn, and when the call's time is over.
    pub cancel: CancellationToken,
    /// For tools that start turns of other agents.
    pub announce: Announce,
    pub onlookers: Arc<dyn Onlookers>,
    pub people: Arc<dyn People>,
    pub colleagues: Arc<dyn Colleagues>,
    pub memories: Arc<Memories>,
}

impl Invocation {
    /// Writes down what the call began elsewhere. After a crash the turn that is resumed comes back with it.
    pub async fn keep_ticket(&self, what: String) -> Result<(), StoreError> {
        self.agent.keep_ticket(self.id.clone(), what).await
    }
}

/// Those who see what a call does, while it does it. To find that there are none costs a load.
pub trait Onlookers: Send + Sync {
    /// Whether somebody sees what becomes of files. It may change while a call runs.
    fn want_changes(&self) -> bool;

    /// Whether somebody sees what is printed as it is printed. It may change while a call runs.
    fn want_output(&self) -> bool;

    /// Shows a piece of what is printed.
    fn show_output(&self, text: String);

    /// Whether somebody sees how far a call is. It may change while a call runs.
    fn want_progress(&self) -> bool {
        false
    }

    /// Shows how far the call is. Whoever shows it does so a few times a second at most.
    fn show_progress(&self, _: ToolProgress) {}
}

/// Nobody looks on.
impl Onlookers for () {
    fn want_changes(&self) -> bool {
        false
    }

    fn want_output(&self) -> bool {
        false
    }

    fn show_output(&self, _: String) {}
}

/// What an agent can do with others, in its own name: the same checks as for any other caller. Errors are for the model.
#[async_trait]
pub trait Colleagues: Send + Sync {
    async fn create(&self, own: &Agent, spec: AgentSpec) -> Result<Agent, String>;

    async fn find(&self, own: &Agent, id: &AgentId, action: Action) -> Result<Agent, String>;

    /// Sends `content` and waits for the answer. A cancelled wait cancels the asked turn, and waits for its end.
    async fn ask(
        &self,
        own: &Agent,
        id: &AgentId,
        content: String,
        cancel: &CancellationToken,
        announce: Announce,
    ) -> Result<TurnOutcome, String>;

    async fn destroy(&self, own: &Agent, id: &AgentId) -> Result<Vec<AgentId>, String>;
}

/// By which a model calls a tool that it is not shown: `{"tool": NAME, "arguments": {…}}`. The turn puts the tool itself in
/// its place, so that it is judged, shown and remembered by its own name.
pub const CALL_TOOL: &str = "mcp_call";

/// Finds tools that the model is not shown.
pub const SEARCH_TOOL: &str = "tool_search";

/// Reads resources of MCP servers.
pub const READ_TOOL: &str = "mcp_read";

/// Whether a name is that of a tool of an MCP server, or of one for them: this program's own begin otherwise.
pub fn is_of_servers(name: &str) -> bool {
    name.starts_with("mcp_") || name == SEARCH_TOOL
}

/// Who uses servers, and within what.
#[derive(Clone, Copy)]
pub struct ServerUser<'a> {
    pub agent: &'a Agent,
    /// What the agent may do: processes that are its own may do no more.
    pub permissions: &'a Permissions,
    /// Its servers that are in no configuration.
    pub own: &'a OwnServers,
}

/// Tools that are not fixed at the start: those of MCP servers, which are started when they are needed.
#[async_trait]
pub trait ToolSource: Send + Sync {
    /// Another number whenever the tools are others.
    fn version(&self) -> u64;

    /// All that are known and can be called by an agent with these servers of its own, by name.
    fn tools(&self, own: &OwnServers) -> Arc<[Arc<dyn Tool>]>;

    /// Also one that waits to be looked at, which the gate refuses.
    fn get(&self, name: &str, own: &OwnServers) -> Option<Arc<dyn Tool>>;

    /// Tools by which those are found and called that the model is not shown. It is shown these instead.
    fn finders(&self) -> Vec<Arc<dyn Tool>>;

    /// The tool that reads resources, and for each server that has some, what that is to permissions.
    fn reader(&self, own: &OwnServers) -> Option<(Arc<dyn Tool>, Vec<Origin>)>;

    /// What a server says that models should know of it, once somebody agreed to it.
    fn words(&self, server: &str, own: &OwnServers) -> Option<String>;

    /// Asks a server for what it has beside tools. The answer has MCP's shape.
    async fn look_up(
        &self,
        server: &str,
        user: ServerUser<'_>,
        lookup: &Lookup,
    ) -> Result<Value, ServerError>;

    /// Finds out which tools there are for `user`, as far as that is not known, and waits a moment for it.
    async fn prepare(&self, user: ServerUser<'_>);

    /// The servers that the tools come from, by name, as they stand for `user`.
    async fn servers(&self, user: ServerUser<'_>) -> Vec<ServerStatus>;

    /// Whether an entry can be a server of one agent, and how that is named; or what is wrong with it. Values of it are
    /// not repeated.
    fn own(&self, source: ServerSource, config: Map<String, Value>) -> Result<OwnServer, String>;

    /// Whether a server of that name is configured.
    fn is_configured(&self, server: &str) -> bool;

    /// Ends all processes of a server of one agent, which is its no more.
    async fn forget(&self, own: &OwnServer);

    /// Starts those servers that are not to wait until they are needed.
    fn start(&self);

    /// What is known of the login at a server; `None` where nobody logs in: at a program, or at a server that is not there.
    async fn login_state(&self, server: &str, own: &OwnServers) -> Option<LoginState>;

    /// Starts a server, unless it runs, and waits so long until it is ready. What comes back is how it stands then.
    /// `shared` says otherwise than its entry whether the process is the user's own.
    async fn connect(
        &self,
        server: &str,
        user: ServerUser<'_>,
        shared: Option<bool>,
        wait: Duration,
    ) -> Result<ServerStatus, ServerError>;

    /// `user` has no more use for a server, which ends with its last user. False when it had none.
    async fn disconnect(&self, server: &str, user: ServerUser<'_>) -> bool;

    /// Takes tools of a server as they are now. Which those were that had waited for it.
    async fn review(
        &self,
        server: &str,
        own: &OwnServers,
        accept: Accept,
    ) -> Result<Vec<String>, ServerError>;
}

/// There are no such tools.
#[async_trait]
impl ToolSource for () {
    fn version(&self) -> u64 {
        0
    }

    fn tools(&self, _: &OwnServers) -> Arc<[Arc<dyn Tool>]> {
        Arc::from([])
    }

    fn get(&self, _: &str, _: &OwnServers) -> Option<Arc<dyn Tool>> {
        None
    }

    fn finders(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn reader(&self, _: &OwnServers) -> Option<(Arc<dyn Tool>, Vec<Origin>)> {
        None
    }

    fn words(&self, _: &str, _: &OwnServers) -> Option<String> {
        None
    }

    async fn look_up(
        &self,
        server: &str,
        _: ServerUser<'_>,
        _: &Lookup,
    ) -> Result<Value, ServerError> {
        Err(ServerError::NotThere(server.into()))
    }

    async fn prepare(&self, _: ServerUser<'_>) {}

    async fn servers(&self, _: ServerUser<'_>) -> Vec<ServerStatus> {
        Vec::new()
    }

    fn own(&self, _: ServerSource, _: Map<String, Value>) -> Result<OwnServer, String> {
        Err("there are no MCP servers here".into())
    }

    fn is_configured(&self, _: &str) -> bool {
        false
    }

    async fn forget(&self, _: &OwnServer) {}

    fn start(&self) {}

    async fn login_state(&self, _: &str, _: &OwnServers) -> Option<LoginState> {
        None
    }

    async fn connect(
        &self,
        server: &str,
        _: ServerUser<'_>,
        _: Option<bool>,
        _: Duration,
    ) -> Result<ServerStatus, ServerError> {
        Err(ServerError::NotThere(server.into()))
    }

    async fn disconnect(&self, _: &str, _: ServerUser<'_>) -> bool {
        false
    }

    async fn review(
        &self,
        server: &str,
        _: &OwnServers,
        _: Accept,
    ) -> Result<Vec<String>, ServerError> {
        Err(ServerError::NotThere(server.into()))
    }
}

/// Within what a call runs. Tools enforce it on what they open, and the kernel on what they start.
#[derive(Clone, Debug)]
pub struct Access {
    pub cwd: PathBuf,
    /// Where a command of this call runs: the directory that the gate decided on and an approval named, whatever the
    /// call's own words lead to by now.
    pub command_dir: PathBuf,
    /// What the agent holds, with its grants and what was approved for this call.
    pub permissions: Permissions,
    /// Told of each file before it is changed, where somebody keeps account of that.
    pub footprint: Option<Arc<Footprint>>,
}
