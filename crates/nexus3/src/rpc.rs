//! `nexus3 rpc`: a running server's methods from the shell. JSON on stdout, `Error: …` on stderr.

mod approvals;
mod args;
mod keys;
mod output;
mod sessions;
mod settings;
mod watch;

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nexus_client::discovery::PROBE_TIMEOUT;
use nexus_client::token::Environment;
use nexus_client::{
    Detection, NexusClient, StreamItem, Target, detect_server, discover_servers,
    discover_token_ports,
};
use nexus_protocol::Method;
use nexus_protocol::agent::{
    CreateAgent, CreateAgentParams, CreateAgentToken, CreateAgentTokenParams, DestroyAgent,
    DestroyAgentParams, ListAgents, ListAgentsParams,
};
use nexus_protocol::content::{Content, ContentPart};
use nexus_protocol::conversation::{
    Compact, CompactParams, GetContext, GetMessages, GetMessagesParams, GetTokens,
};
use nexus_protocol::params::{BLANK, Bounded, NoParams, NonBlank};
use nexus_protocol::server::ShutdownServer;
use nexus_protocol::settings::{GetAgentSummaries, GetAgentSummariesParams};
use nexus_protocol::turn::{
    Cancel, CancelParams, RequestId, ResumeTurn, ResumeTurnParams, Send as SendMessage, SendParams,
};
use nexus_protocol::usage::{GetUsage, GetUsageParams, UsageBy};
use serde_json::{Map, Value, json};

use crate::input::read_all;
use crate::output::{READER_GONE, ReaderGone, complain};
use args::{CallArgs, CreateArgs, RpcCommand, ScanArgs, SendArgs};
pub use args::{Ports, RpcArgs, ServerArgs, ports};
pub use output::refusal;
use output::{Bar, Output, explain};
pub use watch::note;

/// For what is answered at once.
const QUICK: Duration = Duration::from_secs(30);

/// The server keeps the time limit of a turn and says how it ended; the client only steps in when the server does not.
const TIMEOUT_GRACE: Duration = Duration::from_secs(5);

const DETECT_TIMEOUT: Duration = Duration::from_secs(2);

pub async fn run(args: RpcArgs) -> ExitCode {
    let mut output = Output::stdout();
    let done = execute(&args.server, args.command, &mut output).await;
    concluded(done, &args.server)
}

/// How a command ends that asked this server; what went wrong is said.
pub fn concluded(done: anyhow::Result<ExitCode>, server: &ServerArgs) -> ExitCode {
    done.unwrap_or_else(|error| match error.is::<ReaderGone>() {
        true => ExitCode::from(READER_GONE),
        false => {
            complain(format_args!("Error: {}", explain(&error, server)));
            ExitCode::FAILURE
        }
    })
}

async fn execute<W: Write>(
    server: &ServerArgs,
    command: RpcCommand,
    output: &mut Output<W>,
) -> anyhow::Result<ExitCode> {
    let agent = |id: String| Target::Agent(id);
    let answer = match command {
        RpcCommand::Detect => return detect(server, output).await,
        RpcCommand::Scan(args) => scan(server, args).await?,
        RpcCommand::Send(args) if args.stream => return send_stream(server, args, output).await,
        RpcCommand::Send(args) => send(server, args).await?,
        RpcCommand::Create(args) => create(server, args).await?,
        RpcCommand::Call(args) => call(server, args).await?,
        RpcCommand::Resume { id, timeout, schema } => {
            let params = ResumeTurnParams {
                timeout_ms: turn_timeout(timeout),
                response_schema: schema.as_deref().map(read_schema).transpose()?,
                ..Default::default()
            };
            resume(server, agent(id), timeout, params).await?
        }
        RpcCommand::Status { id: Some(id) } => status(server, id).await?,
        RpcCommand::Status { id: None } => {
            let params =
                GetAgentSummariesParams { include_tokens: Some(true), include_context: None };
            ask::<GetAgentSummaries>(server, &Target::Server, params).await?
        }
        RpcCommand::Sessions(args) => return sessions::run(server, args, output).await,
        RpcCommand::Settings(command) => settings::run(server, command).await?,
        RpcCommand::Approvals(args) => approvals::run(server, args).await?,
        RpcCommand::Watch(args) => return watch::run(server, args, output).await,
        RpcCommand::Keys(args) => keys::run(server, args).await?,
        RpcCommand::Cancel { id, request_id } => cancel(server, agent(id), &request_id).await?,
        RpcCommand::Destroy { id } => return destroy(server, id, output).await,
        RpcCommand::List => {
            ask::<ListAgents>(server, &Target::Server, ListAgentsParams::default()).await?
        }
        RpcCommand::Shutdown => ask::<ShutdownServer>(server, &Target::Server, NoParams {}).await?,
        RpcCommand::Token { id } => {
            let params = CreateAgentTokenParams { agent_id: id };
            ask::<CreateAgentToken>(server, &Target::Server, params).await?
        }
        RpcCommand::Messages { id, offset, from_end, limit, reasoning } => {
            let limit = limit.and_then(Bounded::new);
            let include_reasoning = reasoning.then_some(true);
            let from_end = from_end.then_some(true);
            let params = GetMessagesParams { offset, from_end, limit, include_reasoning };
            ask::<GetMessages>(server, &agent(id), params).await?
        }
        RpcCommand::Usage { id, tree, by, since } => {
            let by = by.map(|by| match by.as_str() {
                "model" => UsageBy::Model,
                "day" => UsageBy::Day,
                _ => UsageBy::Agent,
            });
            let tree = tree.then_some(true);
            let params = GetUsageParams { agent_id: id, tree, by, since };
            ask::<GetUsage>(server, &Target::Server, params).await?
        }
        RpcCommand::Compact { id, if_needed, timeout } => {
            let client = client(server, timeout.map(Duration::from_secs))?;
            let _progress = Bar::start("compacting");
            let params = CompactParams { force: if_needed.then_some(false) };
            ask_on::<Compact>(&client, &agent(id), params).await?
        }
    };
    output.json(&answer)?;
    Ok(ExitCode::SUCCESS)
}

async fn detect<W: Write>(server: &ServerArgs, output: &mut Output<W>) -> anyhow::Result<ExitCode> {
    let detection = detect_server(&server.host, server.port, DETECT_TIMEOUT).await;
    output.json(&json!({"host": server.host, "port": server.port, "result": detection}))?;
    Ok(match detection {
        Detection::NexusServer => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

async fn scan(server: &ServerArgs, args: ScanArgs) -> anyhow::Result<Value> {
    let mut environment = Environment::of_process();
    if let Some(key) = &server.api_key {
        environment.api_key = Some(key.into());
    }
    let ports = match args.ports {
        Some(ports) => ports.0,
        None => {
            let home = environment.home.as_deref().context("there is no home directory")?;
            match discover_token_ports(home) {
                Ok(ports) => ports.into_keys().collect(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(error).context(format!("reading {}", home.display())),
            }
        }
    };
    let _progress = Bar::start(format!("asking {} ports", ports.len()));
    let mut found = discover_servers(&server.host, &ports, PROBE_TIMEOUT, &environment).await;
    if !args.all {
        found.retain(|server| server.detection == Detection::NexusServer);
    }
    Ok(json!({"servers": serde_json::to_value(found)?}))
}

async fn create(server: &ServerArgs, args: CreateArgs) -> anyhow::Result<Value> {
    let write_paths: Vec<_> =
        args.write_paths.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?;
    let params = CreateAgentParams {
        agent_id: args.id,
        preset: args.preset,
        cwd: args.cwd.as_deref().map(absolute).transpose()?,
        allowed_write_paths: (!write_paths.is_empty()).then_some(write_paths),
        model: args.model,
        parent_agent_id: args.parent,
        initial_message: args.message.map(message).transpose()?,
        wait_for_initial_response: args.wait.then_some(true),
        idempotency_key: args.idempotency_key,
        ..CreateAgentParams::default()
    };
    let asked = args.timeout.map(Duration::from_secs);
    let client = client(server, asked.or((!args.wait).then_some(QUICK)))?;
    let _progress = args.wait.then(|| Bar::start("waiting for the answer"));
    ask_on::<CreateAgent>(&client, &Target::Server, params).await
}

async fn send(server: &ServerArgs, args: SendArgs) -> anyhow::Result<Value> {
    let client = client(server, client_timeout(args.timeout))?;
    let target = Target::Agent(args.id.clone());
    let params = args.params()?;
    let _progress = Bar::start("waiting for the answer");
    ask_on::<SendMessage>(&client, &target, params).await
}

/// Prints the answer's text as it comes, and a newline after it.
async fn send_stream<W: Write>(
    server: &ServerArgs,
    args: SendArgs,
    output: &mut Output<W>,
) -> anyhow::Result<ExitCode> {
    let client = client(server, client_timeout(args.timeout))?;
    let id = args.id.clone();
    let params = args.params()?;
    let mut progress = Some(Bar::start("waiting for the answer"));
    let mut stream = client.send_stream(&id, params).await?;
    let mut streamed = false;
    while let Some(item) = stream.next().await {
        match item? {
            StreamItem::Text(text) => {
                progress = None;
                streamed = true;
                output.text(&text)?;
            }
            StreamItem::Done(result) => {
                progress = None;
                // A server that does not stream has said nothing yet.
                let rest = if streamed { "" } else { &result.content };
                output.text(&format!("{rest}\n"))?;
                if result.cancelled {
                    complain("The turn was cancelled.");
                }
                if result.halted_at_iteration_limit {
                    complain("The turn was halted at the iteration limit.");
                }
            }
            StreamItem::Start { .. }
            | StreamItem::Event(_)
            | StreamItem::Unknown(_)
            | StreamItem::End { .. } => {}
        }
    }
    drop(progress);
    Ok(ExitCode::SUCCESS)
}

async fn status(server: &ServerArgs, id: String) -> anyhow::Result<Value> {
    let client = client(server, Some(QUICK))?;
    let target = Target::Agent(id.clone());
    let context = ask_on::<GetContext>(&client, &target, NoParams {}).await?;
    let tokens = ask_on::<GetTokens>(&client, &target, NoParams {}).await?;
    Ok(json!({"agent_id": id, "context": context, "tokens": tokens}))
}

async fn resume(
    server: &ServerArgs,
    target: Target,
    timeout: Option<u64>,
    params: ResumeTurnParams,
) -> anyhow::Result<Value> {
    let client = client(server, client_timeout(timeout))?;
    let _progress = Bar::start("waiting for the answer");
    ask_on::<ResumeTurn>(&client, &target, params).await
}

/// On the wire the request id 7 is not the request id "7", but in a shell they look the same: both are tried.
async fn cancel(server: &ServerArgs, target: Target, request_id: &str) -> anyhow::Result<Value> {
    let client = client(server, Some(QUICK))?;
    if let Ok(number) = request_id.parse() {
        let params = CancelParams { request_id: RequestId::Number(number) };
        let answer = ask_on::<Cancel>(&client, &target, params).await?;
        if answer["cancelled"] == true {
            return Ok(answer);
        }
    }
    let params = CancelParams { request_id: RequestId::Text(request_id.into()) };
    ask_on::<Cancel>(&client, &target, params).await
}

async fn destroy<W: Write>(
    server: &ServerArgs,
    id: String,
    output: &mut Output<W>,
) -> anyhow::Result<ExitCode> {
    let params = DestroyAgentParams { agent_id: id.clone() };
    let answer = ask::<DestroyAgent>(server, &Target::Server, params).await?;
    output.json(&answer)?;
    ensure!(answer["success"] == true, "there is no agent {id}");
    Ok(ExitCode::SUCCESS)
}

async fn call(server: &ServerArgs, args: CallArgs) -> anyhow::Result<Value> {
    let params = match args.params {
        Some(text) => {
            serde_json::from_str(&text_or_stdin(text)?).context("the parameters are not JSON")?
        }
        None => json!({}),
    };
    let target = args.agent.map_or(Target::Server, Target::Agent);
    let client = client(server, args.timeout.map(Duration::from_secs))?;
    let _progress = Bar::start("waiting for the answer");
    Ok(client.call_value(&target, &args.method, &params).await?)
}

/// Calls what is answered at once.
async fn ask<M: Method>(
    server: &ServerArgs,
    target: &Target,
    params: M::Params,
) -> anyhow::Result<Value> {
    ask_on::<M>(&client(server, Some(QUICK))?, target, params).await
}

/// The result as the server wrote it, members included that this program does not know.
async fn ask_on<M: Method>(
    client: &NexusClient,
    target: &Target,
    params: M::Params,
) -> anyhow::Result<Value> {
    Ok(client.call_value(target, M::NAME, &serde_json::to_value(params)?).await?)
}

pub fn client(server: &ServerArgs, timeout: Option<Duration>) -> anyhow::Result<NexusClient> {
    let mut builder = NexusClient::builder().url(server.url());
    if let Some(key) = &server.api_key {
        builder = builder.token(key);
    }
    if let Some(timeout) = timeout {
        builder = builder.timeout(timeout);
    }
    let client = builder.build()?;
    for warning in client.warnings() {
        complain(format_args!("Warning: {warning}"));
    }
    Ok(client)
}

fn client_timeout(seconds: Option<u64>) -> Option<Duration> {
    seconds.map(|seconds| Duration::from_secs(seconds).saturating_add(TIMEOUT_GRACE))
}

fn turn_timeout(seconds: Option<u64>) -> Option<NonZeroU64> {
    seconds.and_then(|seconds| NonZeroU64::new(seconds.saturating_mul(1000)))
}

impl SendArgs {
    fn params(self) -> anyhow::Result<SendParams> {
        let both = self.text == "-" && self.schema.as_deref() == Some(Path::new("-"));
        ensure!(!both, "the message and the schema cannot both come from stdin");
        Ok(SendParams {
            request_id: self.request_id.map(RequestId::Text),
            timeout_ms: turn_timeout(self.timeout),
            idempotency_key: self.idempotency_key,
            response_schema: self.schema.as_deref().map(read_schema).transpose()?,
            ..SendParams::new(with_files(message(self.text)?.into_string(), &self.attach)?)
        })
    }
}

/// The server has another working directory, so a relative path would mean something else there.
fn absolute(path: &Path) -> anyhow::Result<String> {
    let path = std::path::absolute(path).with_context(|| format!("{}", path.display()))?;
    match path.into_os_string().into_string() {
        Ok(path) => Ok(path),
        Err(path) => bail!("{} is not UTF-8, which JSON needs", path.display()),
    }
}

/// What is said to an agent, and the files that are shown with it.
pub fn with_files(text: String, files: &[PathBuf]) -> anyhow::Result<Content> {
    let files = files.iter().map(|file| Ok(ContentPart::file(absolute(file)?)));
    let files: Vec<_> = files.collect::<anyhow::Result<_>>()?;
    match NonBlank::new(text) {
        Some(text) if files.is_empty() => Ok(text.into()),
        text => {
            let text = text.map(|text| ContentPart::text(text.into_string()));
            Ok(Content::Parts(text.into_iter().chain(files).collect()))
        }
    }
}

/// What is said to an agent.
fn message(text: String) -> anyhow::Result<NonBlank> {
    let name = if text == "-" { "stdin" } else { "the message" };
    NonBlank::new(text_or_stdin(text)?).with_context(|| format!("{name} {BLANK}"))
}

fn text_or_stdin(text: String) -> anyhow::Result<String> {
    if text == "-" { read_all(io::stdin(), "stdin") } else { Ok(text) }
}

/// The JSON Schema in a file. What it says is the server's to judge.
fn read_schema(file: &Path) -> anyhow::Result<Map<String, Value>> {
    let (text, name) = match file.to_str() {
        Some("-") => (read_all(io::stdin(), "stdin")?, "stdin".to_string()),
        _ => {
            let name = file.display().to_string();
            let opened = File::open(file).with_context(|| format!("reading {name}"))?;
            (read_all(opened, &name)?, name)
        }
    };
    let schema = serde_json::from_str(&text).with_context(|| format!("{name} is not JSON"))?;
    match schema {
        Value::Object(schema) => Ok(schema),
        _ => bail!("{name} is JSON, but no object, as a JSON Schema is"),
    }
}

#[cfg(test)]
mod tests;
