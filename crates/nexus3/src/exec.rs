//! `nexus3 exec`: one turn without a server. It calls the typed interface of this process.

mod approve;

use std::io::{self, IsTerminal as _};
use std::num::NonZero;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap::error::ErrorKind;
use indicatif::ProgressBar;
use nexus_core::Requester;
use nexus_core::gate::APPROVAL_RULE;
use nexus_protocol::RpcError;
use nexus_protocol::agent::CreateAgentParams;
use nexus_protocol::answer::StreamItem;
use nexus_protocol::api::{Api as _, CallError};
use nexus_protocol::content::Content;
use nexus_protocol::error::INVALID_PARAMS;
use nexus_protocol::params::is_blank;
use nexus_protocol::permission::ApprovalEntry;
use nexus_protocol::stream::Event;
use nexus_protocol::turn::{RequestId, SendParams, SendResult};
use nexus_server::DirectAgentApi;
use nexus_tools::sandbox::Launcher;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

pub use approve::Approve;
use approve::Approver;

use crate::cli::{Cli, ExecArgs};
use crate::input;
use crate::output::{complain, print_json, say};
use crate::rpc;
use crate::serve;
use crate::signals::Signals;
use crate::streamed::INTERRUPTED;
use crate::wiring::{self, Logs, Wired};

/// The turn ended, but the agent was denied something that needs somebody's leave.
const DENIED: u8 = 3;

pub async fn exec(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let prompt = tokio::select! {
        prompt = prompt(args.prompt.clone()) => prompt?,
        () = signals.next() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    if is_blank(&prompt) && args.attach.is_empty() {
        return nothing_to_say();
    }
    let content = rpc::with_files(prompt, &args.attach)?;
    let home = wiring::home()?;
    let mut config = wiring::load_config(&home, args.model.clone())?;
    let approver = Approver::choose(args.approve);
    config.permissions.approvals = approver.mode();
    let nobody_asked = args.approve.is_none() && matches!(approver, Approver::Nobody);
    let logs = Logs::none();
    let wired = wiring::wire(&home, &wiring::cwd()?, &config, logs, Launcher::own()).await?;
    let (questions, asked) = mpsc::unbounded_channel();
    let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
    let _approving = AbortOnDropHandle::new(tokio::spawn(approver.run(api, asked)));
    let mut printer = Printer::new(args.json, questions);
    let outcome = turn(&wired, &args, &content, &mut signals, &mut printer).await;
    wired.engine.turns.stop(Duration::ZERO).await;
    serve::close(&wired, None).await?;
    match outcome? {
        Ok(result) if result.cancelled => Ok(ExitCode::from(INTERRUPTED)),
        Ok(_) if printer.denied => {
            if nobody_asked {
                complain("To allow such things: --approve ask (on a terminal) or --approve all");
            }
            Ok(ExitCode::from(DENIED))
        }
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            complain(format_args!("Error: {}", rpc::refusal(&error)));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// What is said to the agent: the prompt, and below it what is piped in. A terminal is read only when `-` says so.
async fn prompt(argument: Option<String>) -> anyhow::Result<String> {
    let forced = argument.as_deref() == Some("-");
    let told = argument.filter(|_| !forced).unwrap_or_default();
    if io::stdin().is_terminal() && !forced {
        return Ok(told);
    }
    let read = || input::read_all(io::stdin(), "standard input");
    let piped = tokio::task::spawn_blocking(read).await??;
    Ok(match (is_blank(&told), is_blank(&piped)) {
        (true, _) => piped,
        (false, true) => told,
        (false, false) => format!("{told}\n\n{piped}"),
    })
}

fn nothing_to_say() -> anyhow::Result<ExitCode> {
    let why = "there is nothing to say: give a prompt, or pipe it in";
    let mut command = Cli::command();
    command.build();
    let exec = command.find_subcommand_mut("exec").context("there is no command exec")?;
    exec.error(ErrorKind::MissingRequiredArgument, why).print()?;
    Ok(ExitCode::from(2))
}

/// Runs the turn, printing what arrives. The outer error is ours, the inner one the turn's.
async fn turn(
    wired: &Wired,
    args: &ExecArgs,
    content: &Content,
    signals: &mut Signals,
    printer: &mut Printer,
) -> anyhow::Result<Result<SendResult, RpcError>> {
    let agent_id = match agent(wired, args).await {
        Ok(agent_id) => agent_id,
        Err(CallError::Rpc(error)) => return Ok(Err(error)),
        Err(error) => return Err(error.into()),
    };
    let mut params = SendParams::new(content.clone());
    params.request_id = Some(RequestId::Text(REQUEST_ID.into()));
    params.timeout_ms = args.timeout.and_then(|it| NonZero::new(it.get().saturating_mul(1000)));
    let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
    let mut stream = api.send_stream(&agent_id, params)?;
    loop {
        let item = tokio::select! {
            biased;
            item = stream.next() => item.context("there was no answer")?,
            () = signals.next() => {
                api.for_agent(&agent_id).cancel(RequestId::Text(REQUEST_ID.into())).await?;
                continue;
            }
        };
        if args.json {
            printer.line(stream.raw())?;
        }
        match item {
            Ok(StreamItem::Done(result)) => {
                printer.finish()?;
                return Ok(Ok(result));
            }
            Ok(item) => printer.item(item)?,
            Err(CallError::Rpc(error)) => {
                printer.finish()?;
                return Ok(Err(error));
            }
            Err(error) => return Err(error.into()),
        }
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
    /// To whoever answers for the person.
    questions: mpsc::UnboundedSender<ApprovalEntry>,
}

impl Printer {
    fn new(json: bool, questions: mpsc::UnboundedSender<ApprovalEntry>) -> Self {
        let spinner = (!json && io::stderr().is_terminal()).then(|| {
            let spinner = ProgressBar::new_spinner().with_message("thinking");
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        Self { json, spinner, ends_with_newline: true, denied: false, questions }
    }

    fn item(&mut self, item: StreamItem) -> anyhow::Result<()> {
        match item {
            StreamItem::Text(text) if !self.json => self.text(&text)?,
            StreamItem::Event(event) => self.event(event),
            _ => {}
        }
        Ok(())
    }

    /// A person is told what was denied; the model was told too and may have gone another way.
    fn event(&mut self, event: Event) {
        match event {
            Event::ToolResult { content, refused_by, .. }
                if refused_by.as_deref() == Some(APPROVAL_RULE) =>
            {
                self.denied = true;
                complain(content);
            }
            Event::ApprovalRequested { approval } => {
                self.stop_spinner();
                // Nobody takes it any more when the program is about to end.
                let _ = self.questions.send(*approval);
            }
            _ => {}
        }
    }

    fn stop_spinner(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        if self.json {
            return Ok(());
        }
        self.text(if self.ends_with_newline { "" } else { "\n" })
    }

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        self.stop_spinner();
        if !text.is_empty() {
            self.ends_with_newline = text.ends_with('\n');
        }
        say(text)
    }

    fn line(&self, message: &[u8]) -> anyhow::Result<()> {
        print_json(format!("{}\n", String::from_utf8_lossy(message)))
    }
}
