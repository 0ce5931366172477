//! `nexus3 exec`: one turn without a server. It enters through the in-memory transport, as any other caller.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use indicatif::ProgressBar;
use nexus_core::Requester;
use nexus_core::approval::ApprovalMode;
use nexus_core::gate::APPROVAL_RULE;
use nexus_protocol::RpcError;
use nexus_protocol::agent::CreateAgentParams;
use nexus_protocol::api::{Api as _, CallError};
use nexus_protocol::envelope::{Call, Outgoing};
use nexus_protocol::error::INVALID_PARAMS;
use nexus_protocol::stream::{Event, STREAM_DATA, STREAM_EVENT, StreamData, StreamEvent};
use nexus_protocol::turn::{RequestId, SendResult};
use nexus_server::DirectAgentApi;
use nexus_server::transport::memory::MemoryConnection;
use nexus_tools::sandbox::Launcher;
use serde_json::json;

use crate::cli::ExecArgs;
use crate::rpc;
use crate::serve;
use crate::signals::Signals;
use crate::wiring::{self, Logs, Wired};

/// The turn ended, but the agent was denied something that needs somebody's leave.
const DENIED: u8 = 3;

/// As a shell reports a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Most that is read from standard input.
const PROMPT_BYTES_MAX: u64 = 10 << 20;

pub async fn exec(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let prompt = read_prompt(&args.prompt)?;
    let home = wiring::home()?;
    let mut config = wiring::load_config(&home, args.model.clone())?;
    // Nobody could answer: there is no server to call.
    config.permissions.approvals = ApprovalMode::Deny;
    let logs = Logs::none();
    let wired = wiring::wire(&home, &wiring::cwd()?, &config, logs, Launcher::own()).await?;
    let mut printer = Printer::new(args.json);
    let outcome = turn(&wired, &args, &prompt, &mut signals, &mut printer).await;
    wired.engine.stop_turns(Duration::ZERO).await;
    serve::close(&wired, None).await?;
    match outcome? {
        Ok(result) if result.cancelled => Ok(ExitCode::from(INTERRUPTED)),
        Ok(_) if printer.denied => Ok(ExitCode::from(DENIED)),
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("Error: {}", rpc::refusal(&error));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn read_prompt(prompt: &str) -> anyhow::Result<String> {
    if prompt != "-" {
        return Ok(prompt.into());
    }
    let mut text = String::new();
    io::stdin().take(PROMPT_BYTES_MAX).read_to_string(&mut text).context("standard input")?;
    Ok(text)
}

/// Runs the turn, printing what arrives. The outer error is ours, the inner one the turn's.
async fn turn(
    wired: &Wired,
    args: &ExecArgs,
    prompt: &str,
    signals: &mut Signals,
    printer: &mut Printer,
) -> anyhow::Result<Result<SendResult, RpcError>> {
    let agent_id = match agent(wired, args).await {
        Ok(agent_id) => agent_id,
        Err(CallError::Rpc(error)) => return Ok(Err(error)),
        Err(error) => return Err(error.into()),
    };
    let (connection, mut notifications) =
        MemoryConnection::open(wired.dispatcher.clone(), Requester::Administrator);
    let mut params =
        json!({"agent_id": agent_id, "content": prompt, "request_id": REQUEST_ID, "stream": true});
    if let Some(seconds) = args.timeout {
        params["timeout_ms"] = json!(seconds.get().saturating_mul(1000));
    }
    let call = connection.request(serde_json::to_vec(&Call::new(1, "send", &params))?);
    tokio::pin!(call);
    let answer = loop {
        tokio::select! {
            biased;
            Some(notification) = notifications.recv() => printer.notification(&notification)?,
            answer = &mut call => break answer.context("there was no answer")?,
            () = signals.next() => {
                let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
                api.for_agent(&agent_id).cancel(RequestId::Text(REQUEST_ID.into())).await?;
            }
        }
    };
    while let Ok(notification) = notifications.try_recv() {
        printer.notification(&notification)?;
    }
    printer.answer(&answer)?;
    let answer: Outgoing = serde_json::from_slice(&answer)?;
    match (answer.error, answer.result) {
        (Some(error), _) => Ok(Err(error)),
        (None, result) => Ok(Ok(serde_json::from_str(result.context("an empty answer")?.get())?)),
    }
}

/// Names the one turn of this process, so that a signal can cancel it.
const REQUEST_ID: &str = "exec";

/// The agent to ask: a durable one that exists already, or a new one.
async fn agent(wired: &Wired, args: &ExecArgs) -> Result<String, CallError> {
    let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
    if let Some(name) = &args.agent {
        match api.for_agent(name).get_context().await {
            Ok(_) => return Ok(name.clone()),
            // There is none of that name yet.
            Err(CallError::Rpc(error)) if error.code == INVALID_PARAMS => {}
            Err(error) => return Err(error),
        }
    }
    let params = CreateAgentParams {
        agent_id: Some(args.agent.clone().unwrap_or_else(|| ".".into())),
        preset: args.preset.clone(),
        cwd: args.cwd.as_ref().map(|cwd| cwd.display().to_string()),
        ..CreateAgentParams::default()
    };
    Ok(api.create_agent(params).await?.agent_id)
}

/// Shows a turn: its text as it comes, or every event as a line of JSON.
struct Printer {
    json: bool,
    /// Until the first word, where a person watches.
    spinner: Option<ProgressBar>,
    ends_with_newline: bool,
    /// Something that needs leave was denied.
    denied: bool,
}

impl Printer {
    fn new(json: bool) -> Self {
        let spinner = (!json && io::stderr().is_terminal()).then(|| {
            let spinner = ProgressBar::new_spinner().with_message("thinking");
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        Self { json, spinner, ends_with_newline: true, denied: false }
    }

    fn notification(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let notification: Outgoing = serde_json::from_slice(message)?;
        let params = notification.params.map_or("{}", |params| params.get());
        if notification.method.as_deref() == Some(STREAM_EVENT) {
            let StreamEvent { event, .. } = serde_json::from_str(params)?;
            self.event(&event);
        }
        if self.json {
            return self.line(message);
        }
        if notification.method.as_deref() == Some(STREAM_DATA) {
            let data: StreamData = serde_json::from_str(params)?;
            self.text(&data.chunk)?;
        }
        Ok(())
    }

    /// A person is told what was denied; the model was told too and may have gone another way.
    fn event(&mut self, event: &Event) {
        if let Event::ToolResult { content, refused_by, .. } = event
            && refused_by.as_deref() == Some(APPROVAL_RULE)
        {
            self.denied = true;
            eprintln!("{content}");
        }
    }

    fn answer(&mut self, message: &[u8]) -> anyhow::Result<()> {
        if self.json {
            return self.line(message);
        }
        self.text(if self.ends_with_newline { "" } else { "\n" })
    }

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
        if !text.is_empty() {
            self.ends_with_newline = text.ends_with('\n');
        }
        let mut out = io::stdout();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    fn line(&self, message: &[u8]) -> anyhow::Result<()> {
        Ok(io::stdout().write_all(&[message, b"\n"].concat())?)
    }
}
