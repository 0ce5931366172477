//! `nexus3 mcp`: the MCP servers whose tools agents may use, added, listed, looked at and tried; and agents as an MCP
//! server.

mod edit;
mod import;
mod serve;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use nexus_client::Target;
use nexus_core::mcp::{
    Eligibility, Program, ServerEntry, ServerError, ServerSource, ServerState, ServerStatus,
    ToolState, Way,
};
use nexus_core::name::DEFAULT_AGENT;
use nexus_mcp::Servers;
use nexus_protocol::Api as _;
use nexus_protocol::mcp::{
    All, McpAccept, McpAuth, McpChange, McpReview, McpReviewParams, McpServerStatus, McpStatus,
    McpStatusParams, McpStatusResult,
};
use nexus_tools::sandbox::Launcher;
use serde_json::{Map, Value, json};

use self::edit::AddArgs;
use self::import::From;
use self::serve::ServeArgs;
use crate::output::{print_json, say};
use crate::rpc::{self, ServerArgs};
use crate::wiring;

#[derive(Args)]
pub struct McpArgs {
    #[command(subcommand)]
    command: McpCommand,
}

/// A server elsewhere: of the configuration, or by its address one that an agent or an editor has for itself.
#[derive(Args)]
struct NamedServer {
    /// Name of the server
    name: String,
    /// Its address, if it is in no configuration: one that an agent or an editor brought along
    url: Option<String>,
    /// The address may be of a network that is not the world's
    #[arg(long, requires = "url")]
    private: bool,
}

#[derive(Subcommand)]
enum McpCommand {
    /// List the servers that are configured here; needs no server of nexus3, and starts nothing
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say how the servers stand in a running server of nexus3
    Status {
        /// Only this one
        name: Option<String>,
        /// As this agent has them
        #[arg(long, value_name = "ID", default_value = DEFAULT_AGENT)]
        agent: String,
        /// Print the answer of mcp_status as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Write a server into mcp.json of the home, use it once, and pin its tools as they are
    ///
    /// A server of nexus3 that runs takes it with its next start. Exit code 1 when it could not be had; the entry stays.
    Add(AddArgs),
    /// Show which servers another program has, and take them over into mcp.json of the home with --write
    ///
    /// Nothing is started, and no value of a variable or a header is shown. What this program has no word for is named and
    /// left out.
    Import {
        /// Whose
        #[arg(value_enum)]
        from: From,
        /// Write down those that can be taken over
        #[arg(long)]
        write: bool,
    },
    /// Take a server out of mcp.json of the home
    Remove {
        /// Name of the server
        name: String,
    },
    /// Log in at a server elsewhere that wants to know who asks
    ///
    /// Prints an address to open in a browser of this machine, and waits for the answer. What the server gives is kept in the
    /// home, closed to others, and renewed when it ends.
    Login {
        #[command(flatten)]
        server: NamedServer,
        /// Wait for the address that the browser was brought to, on standard input: for machines without a browser
        #[arg(long)]
        paste: bool,
    },
    /// Forget the login at a server elsewhere
    Logout {
        #[command(flatten)]
        server: NamedServer,
    },
    /// Show which tools of a server are new or say something else of themselves than they did, and accept them
    ///
    /// Asks a running server of nexus3. Until they are accepted no agent can use them.
    Review {
        /// Name of the server
        name: String,
        /// Accept this tool as it is now, by the server's own name for it; may be given several times
        #[arg(long, value_name = "TOOL")]
        accept: Vec<String>,
        /// Accept all of them
        #[arg(long, conflicts_with = "accept")]
        all: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Start a server, list its tools, call one if it is named, and end the server
    ///
    /// It runs as agents' calls would have it run: in its sandbox, with its variables. Exit code 0 when all of it worked, 1
    /// when not.
    Test {
        /// Name of the server
        name: String,
        /// A tool to call, as the server calls it
        tool: Option<String>,
        /// The tool's arguments, a JSON object; none when absent
        #[arg(requires = "tool")]
        arguments: Option<String>,
    },
    /// Serve agents as tools to an MCP host, on standard input and output
    ///
    /// Through the server of this home where one runs, and without a server otherwise. Nothing but the protocol is written
    /// to standard output.
    Serve(ServeArgs),
}

pub async fn run(args: McpArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        McpCommand::List { json } => list(json),
        McpCommand::Status { name, agent, json, server } => {
            let done = status(name, agent, json, &server).await.map(|()| ExitCode::SUCCESS);
            Ok(rpc::concluded(done, &server))
        }
        McpCommand::Add(args) => {
            let name = edit::add(&wiring::home()?, &args)?;
            test(&name, None, None).await
        }
        McpCommand::Import { from, write } => import::run(from, write),
        McpCommand::Remove { name } => {
            edit::remove(&wiring::home()?, &name)?;
            say(format!("removed: {name}\n")).map(|()| ExitCode::SUCCESS)
        }
        McpCommand::Review { name, accept, all, server } => {
            let done = review(name, accept, all, &server).await.map(|()| ExitCode::SUCCESS);
            Ok(rpc::concluded(done, &server))
        }
        McpCommand::Login { server, paste } => login(&server, paste).await,
        McpCommand::Logout { server } => {
            let name = server.name()?;
            let was = server.servers()?.logout(&name).await.map_err(anyhow::Error::msg)?;
            let done = if was { "logged out" } else { "there was no login" };
            say(format!("{done}: {name}\n")).map(|()| ExitCode::SUCCESS)
        }
        McpCommand::Test { name, tool, arguments } => test(&name, tool, arguments).await,
        McpCommand::Serve(args) => serve::run(args).await,
    }
}

fn list(as_json: bool) -> anyhow::Result<ExitCode> {
    let config = wiring::load_config(&wiring::home()?, None)?;
    if as_json {
        let entry = |entry: &ServerEntry| {
            let mut listed = json!({
                "name": entry.name, "source": entry.source.name(), "transport": entry.way.name(),
                "state": state(entry).0,
            });
            match &entry.way {
                Way::Program(program) => {
                    listed["command"] = json!(program.argv);
                    listed["cwd"] = json!(program.cwd);
                    listed["env"] = json!(program.env.keys().collect::<Vec<_>>());
                }
                Way::Remote(remote) => {
                    listed["url"] = json!(remote.url);
                    listed["headers"] = json!(remote.headers.keys().collect::<Vec<_>>());
                }
            }
            listed
        };
        let servers: Vec<_> = config.mcp_servers.iter().map(entry).collect();
        print_json(format!("{:#}\n", json!({"servers": servers})))?;
        return Ok(ExitCode::SUCCESS);
    }
    if config.mcp_servers.is_empty() {
        say("no MCP server is configured (mcp_servers, mcp.json, .mcp.json)\n")?;
    }
    for entry in &config.mcp_servers {
        let (state, why) = state(entry);
        let (name, source) = (&entry.name, entry.source.name());
        say(format!("{name:<24} {source:<8} {state:<11} {}{why}\n", entry.way.written()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How an entry stands before anything is started, and why.
fn state(entry: &ServerEntry) -> (&'static str, String) {
    match &entry.standing {
        Eligibility::Usable => (ServerState::Configured.name(), String::new()),
        Eligibility::Untrusted => (ServerState::Untrusted.name(), " (nexus3 trust)".into()),
        Eligibility::Disabled => (ServerState::Disabled.name(), String::new()),
        Eligibility::Wrong(why) => (ServerState::Failed.name(), why.clone()),
    }
}

async fn status(
    name: Option<String>,
    agent: String,
    as_json: bool,
    server: &ServerArgs,
) -> anyhow::Result<()> {
    let client = rpc::client(server, None)?;
    let params = McpStatusParams { server: name };
    let found = client.call::<McpStatus>(&Target::Agent(agent.clone()), params).await?;
    if as_json {
        return print_json(format!("{:#}\n", serde_json::to_value(found)?));
    }
    let McpStatusResult { servers } = found;
    if servers.is_empty() {
        return say("no MCP server is configured there\n");
    }
    servers.iter().try_for_each(|server| say(lines(server, &agent)))
}

async fn review(
    name: String,
    accept: Vec<String>,
    all: bool,
    server: &ServerArgs,
) -> anyhow::Result<()> {
    let client = rpc::client(server, None)?;
    let agent = Target::Agent(DEFAULT_AGENT.into());
    if all || !accept.is_empty() {
        let accept = if all { McpAccept::All(All::All) } else { McpAccept::Tools(accept) };
        let params = McpReviewParams { server: name, accept };
        let done = client.call::<McpReview>(&agent, params).await?;
        return say(format!("accepted: {}\n", done.accepted.join(", ")));
    }
    let params = McpStatusParams { server: Some(name) };
    let found = client.call::<McpStatus>(&agent, params).await?;
    let changes: Vec<_> = found.servers.iter().flat_map(|server| &server.changed).collect();
    if changes.is_empty() {
        return say("nothing waits to be looked at\n");
    }
    changes.into_iter().try_for_each(|change| {
        let McpChange { tool, field, before, after } = change;
        // What it says of itself as a whole is of no tool.
        let of = if tool.is_empty() { String::new() } else { format!("{tool}: ") };
        say(format!("{of}{field}\n  - {before}\n  + {after}\n"))
    })
}

fn lines(server: &McpServerStatus, agent: &str) -> String {
    let mut text = format!("{}: {}", server.name, server.state);
    if let Some(info) = &server.server_info {
        let _ = write!(text, ", {} {}", info.name, info.version);
    }
    if let Some(version) = &server.protocol_version {
        let _ = write!(text, ", MCP {version}");
    }
    let McpServerStatus { calls, restarts, in_flight, .. } = server;
    let _ = writeln!(text, "\n  {calls} calls, {in_flight} under way, {restarts} restarts");
    let _ = writeln!(text, "  sandbox: {}", server.sandbox);
    if let Some(auth) = &server.auth {
        let _ = writeln!(text, "  login: {}", login_words(&server.name, auth));
    }
    if let Some(error) = &server.last_error {
        let _ = writeln!(text, "  last error: {error}");
    }
    if !server.tools.is_empty() {
        let _ = writeln!(text, "  to the agent {agent}:");
    }
    for tool in &server.tools {
        let _ = writeln!(text, "    {:<9} {}", tool.state, tool.name);
    }
    text
}

fn login_words(server: &str, auth: &McpAuth) -> String {
    let mut words = match auth.state.as_str() {
        "logged_in" => "logged in".to_owned(),
        "needed" => format!("needed (nexus3 mcp login {server})"),
        other => other.to_owned(),
    };
    if let Some(until) = &auth.expires_at {
        let _ = write!(words, ", until {until} unless it is renewed");
    }
    if !auth.scopes.is_empty() {
        let _ = write!(words, ", for {}", auth.scopes.join(" "));
    }
    words
}

impl NamedServer {
    fn entry(&self) -> anyhow::Result<Option<ServerEntry>> {
        let Some(url) = &self.url else { return Ok(None) };
        let config = Map::from_iter([
            ("url".to_owned(), Value::from(url.as_str())),
            ("private".to_owned(), self.private.into()),
        ]);
        let entry = nexus_config::own_server(&self.name, ServerSource::Agent, &config, None);
        entry.map(Some).map_err(anyhow::Error::msg)
    }

    /// As it is known here.
    fn name(&self) -> anyhow::Result<String> {
        Ok(self.entry()?.map_or_else(|| self.name.clone(), |entry| entry.name))
    }

    /// It, or all that an agent of this home would have.
    fn servers(&self) -> anyhow::Result<Arc<Servers>> {
        let home = wiring::home()?;
        let mut config = wiring::load_config(&home, None)?;
        if let Some(entry) = self.entry()? {
            config.mcp_servers = vec![entry];
        }
        Ok(wiring::mcp_servers(&home, &config, Launcher::own()))
    }
}

async fn login(server: &NamedServer, paste: bool) -> anyhow::Result<ExitCode> {
    let name = server.name()?;
    let login = server.servers()?.login(&name).await.map_err(anyhow::Error::msg)?;
    let done = if paste {
        say(format!(
            "Open this address in a browser, and paste here the one that it ends at:\n{}\n",
            login.url
        ))?;
        let mut address = String::new();
        std::io::stdin().read_line(&mut address)?;
        login.conclude(&address).await
    } else {
        say(format!("Open this address in a browser of this machine:\n{}\n", login.url))?;
        login.wait().await
    };
    done.map_err(anyhow::Error::msg)?;
    say(format!("logged in: {name}\n")).map(|()| ExitCode::SUCCESS)
}

async fn test(
    name: &str,
    tool: Option<String>,
    arguments: Option<String>,
) -> anyhow::Result<ExitCode> {
    let arguments = match arguments.as_deref().map(serde_json::from_str::<Value>).transpose() {
        Ok(None) => Map::new(),
        Ok(Some(Value::Object(arguments))) => arguments,
        Ok(Some(_)) => bail!("the arguments of a tool are a JSON object"),
        Err(error) => return Err(error).context("the arguments are no JSON"),
    };
    let home = wiring::home()?;
    let config = wiring::load_config(&home, None)?;
    let servers = wiring::mcp_servers(&home, &config, Launcher::own());
    let tried = servers.try_out(name, tool.map(|tool| (tool, arguments))).await;
    let ended = servers.let_go(name).await;
    tracing::debug!(ended, "a server was tried");
    let tried = tried.map_err(|error| match &error {
        ServerError::Unknown { login, .. } => anyhow!("{error}\n  Log in: {login}"),
        _ => error.into(),
    })?;
    say(tested(&tried.status))?;
    let entry = config.mcp_servers.iter().find(|entry| entry.name == name);
    for directory in entry.map(|entry| out_of_reach(&entry.way)).unwrap_or_default() {
        let place = directory.display();
        say(format!(
            "note: {place} stands in its arguments, and its sandbox keeps it from there; --read {place} or --write {place} \
             of 'nexus3 mcp add' (sandbox.read, sandbox.write) lets it in\n"
        ))?;
    }
    match tried.answer {
        None => Ok(ExitCode::SUCCESS),
        Some(Ok(answer)) => say(format!("answer:\n{answer}\n")).map(|()| ExitCode::SUCCESS),
        Some(Err(why)) => bail!("the call failed: {why}"),
    }
}

/// Directories among its arguments that its sandbox keeps it from.
fn out_of_reach(way: &Way) -> Vec<&Path> {
    let Way::Program(Program { argv, cwd, sandbox, .. }) = way else { return Vec::new() };
    let within: Vec<&PathBuf> = sandbox.read.iter().chain(&sandbox.write).chain(cwd).collect();
    let is_out = |place: &&Path| within.iter().all(|allowed| !place.starts_with(allowed));
    let places = argv.iter().skip(1).map(Path::new);
    places.filter(|place| place.is_absolute() && place.is_dir()).filter(is_out).collect()
}

fn tested(status: &ServerStatus) -> String {
    let mut text = format!("{}: {}", status.name, status.state.name());
    if let Some((name, version)) = &status.server_info {
        let _ = write!(text, ", {name} {version}");
    }
    if let Some(version) = &status.protocol_version {
        let _ = write!(text, ", MCP {version}");
    }
    let _ = writeln!(text, "\nsandbox: {}", status.sandbox);
    for tool in &status.tools {
        let left_out = match tool.state {
            ToolState::Usable => "",
            ToolState::Disabled => " (left out by tools.allow or tools.deny)",
            ToolState::Quarantined => " (new or changed: nexus3 mcp review)",
        };
        let _ = writeln!(text, "tool: {} as {}{left_out}", tool.tool, tool.name);
    }
    text
}

/// What a person is shown of the servers that a directory brings along, before it is trusted with them.
pub fn shown_for_trust(servers: &[ServerEntry]) -> String {
    let mut text = String::new();
    for entry in servers {
        let _ = writeln!(text, "MCP server {}: {}", entry.name, entry.way.written());
        if let Eligibility::Wrong(why) = &entry.standing {
            let _ = writeln!(text, "  cannot be used: {why}");
        }
        let given = entry.way.given().join(", ");
        match &entry.way {
            Way::Program(program) => {
                if let Some(cwd) = &program.cwd {
                    let _ = writeln!(text, "  in {}", cwd.display());
                }
                if !given.is_empty() {
                    let _ = writeln!(text, "  variables: {given}");
                }
                let network = if program.sandbox.network { "network" } else { "no network" };
                let [read, write] = [&program.sandbox.read, &program.sandbox.write].map(paths);
                let _ = writeln!(text, "  sandbox: reads {read}, writes {write}, {network}");
            }
            Way::Remote(remote) => {
                if !given.is_empty() {
                    let _ = writeln!(text, "  headers: {given}");
                }
                if remote.private {
                    let _ = writeln!(text, "  may be in a network that is not the world's");
                }
            }
        }
        let taken: Vec<_> = entry.way.taken().into_iter().collect();
        if !taken.is_empty() {
            let _ = writeln!(text, "  is told of your environment: {}", taken.join(", "));
        }
    }
    text
}

fn paths(paths: &BTreeSet<PathBuf>) -> String {
    let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
    if paths.is_empty() { "nothing else".to_owned() } else { paths.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nexus_core::mcp::Sandbox;

    use super::*;

    #[test]
    fn directories_in_arguments_are_let_in_or_named() {
        let check = |argv: &[&str], read: &[&str], expected: &[&str]| {
            let read = read.iter().map(PathBuf::from).collect();
            let sandbox = Sandbox { read, write: BTreeSet::new(), network: true, required: false };
            let way = Way::Program(Program {
                argv: argv.iter().map(|it| (*it).to_owned()).collect(),
                cwd: Some("/usr/lib".into()),
                env: BTreeMap::new(),
                env_passthrough: Vec::new(),
                sandbox,
            });
            assert_eq!(out_of_reach(&way), expected.iter().map(Path::new).collect::<Vec<_>>());
        };
        check(&["/usr", "/usr", "/usr/bin", "/usr/lib"], &[], &["/usr", "/usr/bin"]);
        check(&["x", "/usr", "/usr/bin"], &["/usr/bin"], &["/usr"]);
        check(&["x", "/usr", "/usr/bin"], &["/"], &[]);
        check(&["x", "usr", "--dir", "/no/such/place", "/etc/passwd"], &[], &[]);
    }
}
