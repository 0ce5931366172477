//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::acp::AcpArgs;
use crate::check::CheckArgs;
use crate::clients::DoorsArgs;
use crate::conversation::TerminalArgs;
use crate::exec::Approve;
use crate::key::KeyArgs;
use crate::mcp::McpArgs;
use crate::memory::MemoryArgs;
use crate::model::ModelArgs;
use crate::models::ModelsArgs;
use crate::plan::{PlanArgs, RunPlanArgs};
use crate::replay::ReplayArgs;
use crate::rpc::RpcArgs;
use crate::session::SessionArgs;
use crate::sockets::Sockets;
use crate::trace::TraceArgs;

/// Runs many LLM agents and lets any program drive them by JSON-RPC 2.0. Without a command it is a conversation with an
/// agent: on a terminal with you, otherwise one turn of what is piped in.
#[derive(Parser)]
#[command(name = "nexus3", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Run the server without a conversation; as `nexus3 serve`
    #[arg(long, value_name = "PORT", num_args = 0..=1, conflicts_with_all = ["stdio", "TerminalArgs"])]
    pub serve: Option<Option<u16>>,
    /// Serve the parent process: one JSON message per line on standard input and output
    #[arg(long, conflicts_with_all = ["host", "no_auth", "no_socket", "TerminalArgs"])]
    pub stdio: bool,
    #[command(flatten, next_help_heading = "Conversation")]
    pub terminal: TerminalArgs,
    #[command(
        flatten,
        next_help_heading = "Server (one started for the conversation, or that of --serve and --stdio)"
    )]
    pub options: ServeOptions,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run the server: HTTP on loopback and a Unix socket
    Serve(ServeArgs),
    /// Run one turn without a server and print the answer
    ///
    /// Exit code 0 when the turn ended, 1 when it failed, 2 when there is nothing to say, 3 when something was denied that
    /// needs approval, 130 when it was interrupted, 141 when nobody reads the answer any more.
    Exec(ExecArgs),
    /// Ask for a plan, and carry it out with --run, without a server
    ///
    /// Exit code 0 when all of it was done, 1 when not, 130 when it was interrupted.
    Plan(PlanArgs),
    /// Carry out what is not done of a plan
    ///
    /// Exit codes as those of plan.
    RunPlan(RunPlanArgs),
    /// Call a running server; JSON on standard output
    Rpc(RpcArgs),
    /// Print what was said and done in a session of a running server, at the pace at which it was
    Replay(ReplayArgs),
    /// Print what agents of a running server do, while they do it
    Trace(TraceArgs),
    /// Write sessions to files and read them back
    Session(SessionArgs),
    /// Search, change, export and import what is remembered; make tokens for sandboxes
    Memory(MemoryArgs),
    /// Make, list and end the keys by which callers sign their requests
    ///
    /// Needs no server; one that runs knows of it within a second.
    Key(KeyArgs),
    /// List, look at and try the MCP servers whose tools agents may use
    Mcp(McpArgs),
    /// Serve an editor that speaks the Agent Client Protocol (Zed, JetBrains, Neovim): JSON on standard input and output
    ///
    /// Each session is an agent that lasts: it is listed and taken up again here, in the terminal and by RPC. A server of
    /// this home that runs is used; where none does, the home is opened here.
    Acp(AcpArgs),
    /// Print the lines that the settings of other programs need: editors, MCP hosts, OpenAI's clients
    ///
    /// With the addresses of the server of this home, or where it would be. No secret is among them: keys are made with
    /// `nexus3 key create`, and clients read them from their environment.
    Doors(DoorsArgs),
    /// Check code without running it: its syntax, and rules of a linter
    ///
    /// Exit code 0 when the files are valid, 1 when there is an error in one, 2 when one could not be checked.
    Check(CheckArgs),
    /// Manage the weights of models that run in this program
    Model(ModelArgs),
    /// List the models that agents can have, and what is known of them
    ///
    /// Needs no server: it reads the configuration and the table of models that is in the program. What a running server
    /// has learned of windows since is in its method list_models.
    Models(ModelsArgs),
    /// Check the store without changing it, and say what can be saved of a damaged one
    ///
    /// Exit code 0 when the store is whole or what can be read of it was written, 1 when it is damaged.
    Doctor(DoctorArgs),
    /// Print the OpenRPC document of the interface
    Schema(SchemaArgs),
    /// Trust a directory's own configuration
    Trust(TrustArgs),
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
}

#[derive(Args)]
pub struct ServeArgs {
    /// Port to listen on; 8765 unless configured, 0 for a free one
    pub port: Option<u16>,
    /// Get the built-in model if none is configured, say hello to the agent main, print its answer, and go on serving
    #[arg(long)]
    pub greet: bool,
    /// Serve the terminal that started this program, whose socket is standard input, and end with it
    #[arg(long, hide = true, conflicts_with = "greet")]
    pub terminal: bool,
    #[command(flatten)]
    pub options: ServeOptions,
}

#[derive(Args, Clone)]
pub struct ServeOptions {
    /// Host to bind to: localhost (both loopback addresses, the default), 127.0.0.1 or ::1
    #[arg(long)]
    pub host: Option<String>,
    /// Model for agents that name none
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    #[command(flatten)]
    pub sockets: Sockets,
    /// Open no Unix socket but those with a --socket-identity
    #[arg(long)]
    pub no_socket: bool,
    /// Serve without a token; anyone on this machine can then do anything the server can
    #[arg(long)]
    pub no_auth: bool,
    /// Serve figures to Prometheus on this port of 127.0.0.1, without a token; 0 for a free one
    #[arg(long, value_name = "PORT")]
    pub metrics: Option<u16>,
    /// Directory of the agents' logs, closed to agents; logs in NEXUS3_HOME or ~/.nexus3 when absent
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Log more, and keep a verbose log for each agent
    #[arg(short, long)]
    pub verbose: bool,
    /// Keep each agent's raw provider traffic in raw.jsonl
    #[arg(long)]
    pub raw_log: bool,
    /// Form of the server's log; json when standard error is no terminal
    #[arg(long, value_enum, value_name = "FORM")]
    pub log_format: Option<LogFormat>,
}

/// Names the socket where the command line does not.
const SOCKET_VARIABLE: &str = "ASH_RPC_SOCKET";

impl ServeOptions {
    /// With what the environment says; an empty variable says nothing.
    pub fn with_environment(mut self) -> anyhow::Result<Self> {
        let variable = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
        if let Some(path) = variable.filter(|_| self.sockets.own.is_none() && !self.no_socket) {
            let path = PathBuf::from(path);
            nexus_config::check_socket_path(&path)
                .map_err(|why| anyhow::anyhow!("{SOCKET_VARIABLE}: {}: {why}", path.display()))?;
            self.sockets.own = Some(path);
        }
        Ok(self)
    }

    /// The first option that means something to `nexus3 serve` alone.
    pub fn of_serving(&self) -> Option<&'static str> {
        first([
            ("--host", self.host.is_some()),
            ("--socket-identity", !self.sockets.doors.is_empty()),
            ("--metrics", self.metrics.is_some()),
            ("--log-format", self.log_format.is_some()),
        ])
    }

    /// The first option that a terminal tells the server that it starts.
    pub fn of_a_started_server(&self) -> Option<&'static str> {
        first([
            ("--socket", self.sockets.own.is_some()),
            ("--no-socket", self.no_socket),
            ("--no-auth", self.no_auth),
            ("--log-dir", self.log_dir.is_some()),
            ("--verbose", self.verbose),
            ("--raw-log", self.raw_log),
        ])
    }
}

/// The first of these options that is given.
pub fn first<const N: usize>(options: [(&'static str, bool); N]) -> Option<&'static str> {
    options.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    #[default]
    Json,
}

#[derive(Args)]
pub struct ExecArgs {
    /// What to say. What is piped in goes below it, and alone when the prompt is absent or -
    pub prompt: Option<String>,
    /// Model to ask
    #[arg(short, long)]
    pub model: Option<String>,
    /// Permission preset of the agent: sandboxed (the default), worker, trusted, or one from the configuration
    #[arg(long)]
    pub preset: Option<String>,
    /// What is done with what needs approval, such as commands; ask where a person watches, never otherwise
    #[arg(long, value_enum, value_name = "WHEN")]
    pub approve: Option<Approve>,
    /// Working directory of the agent
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Go on with a durable agent of this name, or make it; without a name the agent is gone afterwards
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Image, PDF or text file to show with the prompt, read with the agent's permissions; may be given several times
    #[arg(long, value_name = "FILE")]
    pub attach: Vec<PathBuf>,
    /// Give up after this many seconds
    #[arg(short, long, value_name = "SECONDS")]
    pub timeout: Option<std::num::NonZeroU64>,
    /// Print every event as one line of JSON, the response last
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct DoctorArgs {
    /// Write what can be read to a new database of this name
    #[arg(long, value_name = "FILE")]
    pub salvage: Option<PathBuf>,
}

#[derive(Args)]
pub struct SchemaArgs {
    /// Print the reference as Markdown instead
    #[arg(long)]
    pub markdown: bool,
    /// Print the JSON Schema of every message instead
    #[arg(long, conflicts_with = "markdown")]
    pub json_schema: bool,
}

#[derive(Args)]
pub struct TrustArgs {
    /// The directory; the current one when absent
    pub dir: Option<PathBuf>,
    /// Trust it no longer
    #[arg(long, conflicts_with = "list")]
    pub remove: bool,
    /// List the trusted directories
    #[arg(long)]
    pub list: bool,
}
