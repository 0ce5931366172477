//! The options of `nexus3 rpc`.

use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};
use nexus_client::detection::authority;
use nexus_client::{PORT_DEFAULT, parse_port_spec};
use nexus_protocol::once::IdempotencyKey;

use super::approvals::ApprovalsArgs;
use super::sessions::SessionsArgs;
use super::settings::SettingsCommand;
use super::watch::WatchArgs;
use crate::key::KeyArgs;

/// Longest time limit: a day. Far beyond any turn, and far from where milliseconds overflow.
const TIMEOUT_SECONDS_MAX: u64 = 86_400;

/// Calls a running server and prints what it answers as JSON.
///
/// The output is indented on a terminal and one line otherwise. Exit code: 0 when the call succeeded, 1 when it did
/// not ("Error: …" on stderr says why), 2 when the command line is wrong, 141 when nobody reads the output any more.
#[derive(Debug, Args)]
pub struct RpcArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(subcommand)]
    pub command: RpcCommand,
}

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Port of the server.
    #[arg(short, long, global = true, help_heading = "Server", default_value_t = PORT_DEFAULT, value_parser = value_parser!(u16).range(1..))]
    pub port: u16,
    /// Host of the server. Only a server on this machine is sent a token that was not given with --api-key.
    #[arg(long, global = true, help_heading = "Server", default_value = "127.0.0.1")]
    pub host: String,
    /// Token of the server or of an agent. Without it: the variable NEXUS3_API_KEY, else the port's own file,
    /// rpc-PORT.token (rpc.token for port 8765) in NEXUS3_HOME or ~/.nexus3. Other users can see a command line while
    /// it runs; they cannot see the variable or the file.
    #[arg(long, global = true, help_heading = "Server", value_name = "TOKEN")]
    pub api_key: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum RpcCommand {
    /// Tells what listens on the port: nexus_server, no_server, other_service, timeout or error.
    ///
    /// Exit code 0 when it is a server of ours, 1 when it is not. Needs no token.
    Detect,
    /// Lists the agents.
    List,
    /// Makes an agent.
    Create(CreateArgs),
    /// Sends a message to an agent and prints its answer.
    Send(SendArgs),
    /// Prints the state of an agent's context and its tokens, or a summary of every agent.
    Status {
        /// Name of the agent; all of them when absent.
        id: Option<String>,
    },
    /// Goes on with the turn that was cut off last, from its last finished step; prints the answer.
    Resume {
        /// Name of the agent.
        id: String,
        /// Cancels the turn when it takes longer than so many seconds; no limit when absent.
        #[arg(short, long, value_name = "SECONDS", value_parser = seconds())]
        timeout: Option<u64>,
        /// Has the answer be JSON that satisfies the JSON Schema in this file; "-" reads it from stdin.
        #[arg(long, value_name = "FILE")]
        schema: Option<PathBuf>,
    },
    /// Lists, saves, loads, copies, renames and deletes sessions.
    Sessions(SessionsArgs),
    #[command(flatten)]
    Settings(SettingsCommand),
    /// Lists what waits for somebody's leave, allows it and denies it.
    Approvals(ApprovalsArgs),
    /// Prints what happens to agents as it happens, a line of JSON each.
    Watch(WatchArgs),
    /// Makes, lists and ends the keys by which callers sign; as nexus3 key, through the server.
    Keys(KeyArgs),
    /// Cancels a turn that runs or waits; the turn's own call answers with what had been generated.
    Cancel {
        /// Name of the agent.
        id: String,
        /// The turn's request id: what --request-id gave it, or the initial_request_id that create printed.
        request_id: String,
    },
    /// Summarises the older part of an agent's conversation, so that its context gets shorter.
    Compact {
        /// Name of the agent.
        id: String,
        /// Only when the context is near its limit.
        #[arg(long)]
        if_needed: bool,
        /// Gives up after so many seconds; no limit when absent.
        #[arg(short, long, value_name = "SECONDS", value_parser = seconds())]
        timeout: Option<u64>,
    },
    /// Prints an agent's conversation, oldest message first.
    Messages {
        /// Name of the agent.
        id: String,
        /// Index of the first message; 0 when absent. With --from-end: how many at the end to leave out.
        #[arg(long, value_name = "INDEX")]
        offset: Option<u64>,
        /// Print the last messages instead of the first.
        #[arg(long)]
        from_end: bool,
        /// Most messages to print, 1 to 2000; 200 when absent.
        #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=2000))]
        limit: Option<u32>,
        /// Print what the model thought, too.
        #[arg(long)]
        reasoning: bool,
    },
    /// Prints what model calls used and cost: of one agent, of its tree, or of all agents.
    Usage {
        /// Name of the agent; all agents when absent.
        id: Option<String>,
        /// Its descendants too, those that are gone included.
        #[arg(long, requires = "id")]
        tree: bool,
        /// Rows by this, the dearest first.
        #[arg(long, value_parser = ["model", "agent", "day"])]
        by: Option<String>,
        /// Only since this moment, ISO 8601.
        #[arg(long, value_name = "MOMENT")]
        since: Option<String>,
    },
    /// Ends an agent and its descendants for good.
    ///
    /// Exit code 1 when there is no such agent.
    Destroy {
        /// Name of the agent.
        id: String,
    },
    /// Stops the server. Running turns get a grace period; everything is on disk before it exits.
    Shutdown,
    /// Makes a token that can act only as one agent, for a program that works on the agent's behalf.
    Token {
        /// Name of the agent.
        id: String,
    },
    /// Calls any method.
    Call(CallArgs),
    /// Looks for servers on many ports of the host and lists them with their agents.
    ///
    /// Tries the token of each port's own file, else that of --api-key or NEXUS3_API_KEY, and none on another machine. "auth" tells how the server
    /// took it: ok, required (there was none), invalid_token, or disabled (it asks for none).
    Scan(ScanArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the agent; generated when absent. A name that starts with "." is temporary; "." alone asks for a
    /// generated temporary name.
    pub id: Option<String>,
    /// Permission preset: sandboxed (the default), worker, trusted, or one from the configuration.
    #[arg(long)]
    pub preset: Option<String>,
    /// Working directory, relative to yours; the parent's or the server's when absent.
    #[arg(long, value_name = "DIRECTORY")]
    pub cwd: Option<PathBuf>,
    /// Directory it may write to without asking, relative to yours. May be given several times.
    #[arg(long = "write-path", value_name = "DIRECTORY")]
    pub write_paths: Vec<PathBuf>,
    /// Model by alias; the default model when absent.
    #[arg(short, long)]
    pub model: Option<String>,
    /// Message to send to it at once; "-" reads it from stdin.
    #[arg(short = 'M', long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Waits for the answer to the message and prints it too.
    #[arg(long, requires = "message")]
    pub wait: bool,
    /// The agent it belongs to; it can never do more than that one.
    #[arg(long, value_name = "ID")]
    pub parent: Option<String>,
    /// Names the call, so that it can be made again and is carried out once.
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub idempotency_key: Option<IdempotencyKey>,
    /// Gives up after so many seconds; 30 when absent, no limit with --wait.
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds())]
    pub timeout: Option<u64>,
}

#[derive(Debug, Args)]
pub struct SendArgs {
    /// Name of the agent.
    pub id: String,
    /// The message; "-" reads it from stdin. Put "--" before a message that starts with "-".
    pub text: String,
    /// Image, PDF or text file of the server's machine to show with the message, relative to your directory. It is read
    /// with the agent's permissions. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub attach: Vec<PathBuf>,
    /// Cancels the turn when it takes longer than so many seconds; no limit when absent.
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds())]
    pub timeout: Option<u64>,
    /// Prints the answer's text as it comes, instead of JSON at the end.
    #[arg(long)]
    pub stream: bool,
    /// Names the turn, for cancel.
    #[arg(long, value_name = "NAME")]
    pub request_id: Option<String>,
    /// Names the call, so that it can be made again and is carried out once.
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub idempotency_key: Option<IdempotencyKey>,
    /// Has the answer be JSON that satisfies the JSON Schema in this file; "-" reads it from stdin.
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CallArgs {
    /// Name of the method, such as rpc.version.
    pub method: String,
    /// Its parameters as a JSON object; "-" reads them from stdin. None when absent.
    #[arg(value_name = "JSON", value_parser = json_object)]
    pub params: Option<String>,
    /// Calls the method of this agent; of the server when absent.
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Gives up after so many seconds; no limit when absent.
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds())]
    pub timeout: Option<u64>,
}

#[derive(Debug, Args)]
pub struct ScanArgs {
    /// Ports and ranges, as in 8765,9000-9005; those that have a token file when absent.
    #[arg(value_parser = ports)]
    pub ports: Option<Ports>,
    /// Lists every port asked, whatever is there.
    #[arg(long)]
    pub all: bool,
}

fn key(text: &str) -> Result<IdempotencyKey, String> {
    IdempotencyKey::new(text)
}

#[derive(Clone, Debug)]
pub struct Ports(pub Vec<u16>);

impl ServerArgs {
    pub fn url(&self) -> String {
        format!("http://{}", self.authority())
    }

    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }
}

fn seconds() -> clap::builder::RangedU64ValueParser {
    value_parser!(u64).range(1..=TIMEOUT_SECONDS_MAX)
}

pub fn ports(text: &str) -> Result<Ports, String> {
    parse_port_spec(text).map(Ports).map_err(|error| error.to_string())
}

fn json_object(text: &str) -> Result<String, String> {
    match serde_json::from_str::<serde_json::Value>(text) {
        _ if text == "-" => Ok(text.into()),
        Ok(value) if value.is_object() => Ok(text.into()),
        Ok(_) => Err("parameters are named: {\"name\": value}".into()),
        Err(error) => Err(error.to_string()),
    }
}
