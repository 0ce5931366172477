//! `nexus3 plan` and `nexus3 run-plan`: plans without a server. They enter through the in-memory transport, as any other
//! caller.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use nexus_core::Requester;
use nexus_core::visible;
use nexus_protocol::envelope::Outgoing;
use nexus_protocol::method::Method;
use nexus_protocol::params::is_blank;
use nexus_protocol::plan::{
    CancelPlan, CreatePlan, CreatePlanResult, GetPlan, OnFailure, PlanEntry, PlanStanding, RunPlan,
    RunPlanResult, TaskStanding,
};
use nexus_protocol::stream::{Event, STREAM_EVENT, StreamEvent};
use nexus_protocol::{Api as _, CallError, RpcError, Target, plan};
use nexus_server::DirectAgentApi;
use nexus_tools::sandbox::Launcher;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::input;
use crate::output::{complain, print_json, say};
use crate::rpc;
use crate::serve;
use crate::signals::Signals;
use crate::streamed::{self, INTERRUPTED, Then};
use crate::wiring::{self, Logs, Wired};

/// A person waits longer than a program; and Ctrl-C is there.
const TIMEOUT_USUAL: NonZeroU64 = NonZeroU64::new(3600).unwrap();

#[derive(Args)]
pub struct PlanArgs {
    /// What is to be planned
    pub request: String,
    /// Carry the plan out
    #[arg(long)]
    pub run: bool,
    /// Tasks the plan may have
    #[arg(long, value_name = "N")]
    pub max_tasks: Option<NonZeroU32>,
    #[command(flatten)]
    pub options: RunArgs,
}

#[derive(Args)]
pub struct RunPlanArgs {
    /// A plan's id, or a file with a plan as JSON
    #[arg(value_name = "FILE|ID")]
    pub plan: String,
    #[command(flatten)]
    pub options: RunArgs,
}

#[derive(Args)]
pub struct RunArgs {
    /// Let tasks change files in their directory
    #[arg(long)]
    pub write: bool,
    /// Directory of the tasks, beyond which they see nothing; the current one when absent
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Tasks that run at once; 4 when absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub max_parallel: Option<u32>,
    /// How often a task is tried
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5))]
    pub attempts: Option<u32>,
    /// Go on with what does not depend on a task that failed
    #[arg(long)]
    pub keep_going: bool,
    /// Model to ask
    #[arg(short, long)]
    pub model: Option<String>,
    /// Give up after this many seconds, an hour when absent; what is done by then stays done
    #[arg(short, long, value_name = "SECONDS")]
    pub timeout: Option<NonZeroU64>,
    /// Print every event as one line of JSON, the response last
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    fn timeout_ms(&self) -> u64 {
        self.timeout.unwrap_or(TIMEOUT_USUAL).get().saturating_mul(1000)
    }

    /// The parameters of a run but for the plan.
    fn params(&self) -> Value {
        let cwd = self.cwd.as_ref().map(|cwd| cwd.display().to_string());
        let on_failure = if self.keep_going { OnFailure::Continue } else { OnFailure::Stop };
        json!({
            "context": {"current_directory": cwd},
            "options": {
                "stream": true, "write": self.write, "max_parallel": self.max_parallel,
                "max_attempts": self.attempts, "on_failure": on_failure, "model": self.model,
                "timeout_ms": self.timeout_ms(),
            },
        })
    }
}

pub async fn plan(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let PlanArgs { request, run, max_tasks, options } = args;
    anyhow::ensure!(!is_blank(&request), "there is nothing to plan: say what is to be done");
    in_process(async |desk| {
        let params = json!({
            "user_request": request,
            "constraints": {"max_tasks": max_tasks},
            "options": {"model": options.model, "timeout_ms": options.timeout_ms()},
        });
        let spinner = desk.spinner("planning", options.json);
        let made = desk.ask::<CreatePlan, CreatePlanResult>(&params, options.json, None).await?;
        drop(spinner);
        let Some(CreatePlanResult { plan, .. }) = desk.heard(made)? else {
            return Ok(ExitCode::FAILURE);
        };
        if !options.json {
            say(described(&plan))?;
        }
        match (run, &plan.plan_id) {
            (true, Some(id)) => desk.run(json!({"plan_id": id}), &plan, &options).await,
            (false, Some(id)) if !options.json => {
                say(format!("\nTo carry it out: nexus3 run-plan {id}\n"))?;
                Ok(ExitCode::SUCCESS)
            }
            _ => Ok(ExitCode::SUCCESS),
        }
    })
    .await
}

pub async fn run_plan(args: RunPlanArgs) -> anyhow::Result<ExitCode> {
    let RunPlanArgs { plan, options } = args;
    let brought = match plan.starts_with("plan_") && !Path::new(&plan).exists() {
        true => None,
        false => Some(read(&plan)?),
    };
    in_process(async |desk| match &brought {
        Some(brought) => desk.run(json!({"plan": brought}), brought, &options).await,
        None => {
            let params = json!({"plan_id": plan});
            let stands = desk.ask::<GetPlan, PlanStanding>(&params, false, None).await?;
            match desk.heard(stands)? {
                Some(stands) => desk.run(params, &stands.plan, &options).await,
                None => Ok(ExitCode::FAILURE),
            }
        }
    })
    .await
}

/// A plan from a file: as `create_plan` answers it, or the plan alone.
fn read(path: &str) -> anyhow::Result<PlanEntry> {
    let file = File::open(path).with_context(|| format!("opening the plan {path}"))?;
    let text = input::read_all(file, path)?;
    let mut value: Value =
        serde_json::from_str(&text).with_context(|| format!("{path} is not JSON"))?;
    for wrapping in ["result", "plan"] {
        if let Some(inner) = value.get_mut(wrapping) {
            value = inner.take();
        }
    }
    serde_json::from_value(value).with_context(|| format!("{path} is not a plan"))
}

/// Does something with an engine of this process.
async fn in_process(
    work: impl AsyncFnOnce(&mut Desk<'_>) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen()?;
    let home = wiring::home()?;
    let config = wiring::load_config(&home, None)?;
    let wired =
        wiring::wire(&home, &wiring::cwd()?, &config, Logs::none(), Launcher::own()).await?;
    let ended = work(&mut Desk { wired: &wired, signals }).await;
    wired.engine.turns.stop(Duration::ZERO).await;
    serve::close(&wired, None).await?;
    ended
}

struct Desk<'a> {
    wired: &'a Wired,
    signals: Signals,
}

/// What a call came to; nothing when Ctrl-C came first.
type Heard<T> = Option<Result<T, RpcError>>;

impl Desk<'_> {
    /// Calls a method, and shows how its plan goes. Ctrl-C ends the plan, and a call without one at once.
    async fn ask<M: Method, T: DeserializeOwned>(
        &mut self,
        params: &Value,
        json: bool,
        mut board: Option<&mut Board>,
    ) -> anyhow::Result<Heard<T>> {
        let show = |message: &[u8]| -> anyhow::Result<()> {
            if json {
                print_json(format!("{}\n", String::from_utf8_lossy(message)))?;
            }
            match &mut board {
                Some(board) => board.notification(message),
                None => Ok(()),
            }
        };
        let (wired, signals) = (self.wired, &mut self.signals);
        let interrupted = async || {
            signals.next().await;
            // The one plan that this process runs.
            let Some(id) = wired.engine.plans.running().pop() else { return Ok(Then::Leave) };
            let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
            let params = plan::CancelPlanParams { plan_id: id.to_string() };
            match api.call::<CancelPlan>(&Target::Server, params).await {
                Ok(_) | Err(CallError::Rpc(_)) => Ok(Then::GoOn),
                Err(error) => Err(error.into()),
            }
        };
        let answer = streamed::call(wired, M::NAME, params, show, interrupted).await?;
        let Some(answer) = answer else { return Ok(None) };
        if json {
            print_json(format!("{}\n", String::from_utf8_lossy(&answer)))?;
        }
        streamed::result(&answer).map(Some)
    }

    /// The result, or nothing when a person was told why there is none.
    fn heard<T>(&self, heard: Heard<T>) -> anyhow::Result<Option<T>> {
        match heard {
            Some(Ok(result)) => Ok(Some(result)),
            Some(Err(error)) => {
                complain(format_args!("Error: {}", rpc::refusal(&error)));
                Ok(None)
            }
            None => Ok(None),
        }
    }

    async fn run(
        &mut self,
        which: Value,
        plan: &PlanEntry,
        options: &RunArgs,
    ) -> anyhow::Result<ExitCode> {
        let mut params = options.params();
        if let (Value::Object(params), Value::Object(which)) = (&mut params, which) {
            params.extend(which);
        }
        let mut board = Board::new(plan, options.json);
        let ran =
            self.ask::<RunPlan, RunPlanResult>(&params, options.json, Some(&mut board)).await?;
        board.close();
        let Some(ran) = self.heard(ran)? else { return Ok(ExitCode::FAILURE) };
        if !options.json {
            say(summed_up(&ran))?;
        }
        Ok(match ran.status.as_str() {
            "success" => ExitCode::SUCCESS,
            "cancelled" => ExitCode::from(INTERRUPTED),
            _ => ExitCode::FAILURE,
        })
    }

    fn spinner(&self, what: &'static str, json: bool) -> Option<ProgressBar> {
        (!json && io::stderr().is_terminal()).then(|| {
            let spinner = ProgressBar::new_spinner().with_message(what);
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        })
    }
}

fn described(plan: &PlanEntry) -> String {
    let mut text = String::new();
    if !plan.explanation.is_empty() {
        text.push_str(&format!("{}\n\n", plan.explanation.trim()));
    }
    for task in &plan.tasks {
        let after = match task.dependencies.is_empty() {
            true => String::new(),
            false => format!(", after {}", task.dependencies.join(", ")),
        };
        let kind = json!(task.kind);
        let kind = kind.as_str().unwrap_or_default();
        text.push_str(&format!("{} ({kind}{after})\n    {}\n", task.id, task.description.trim()));
    }
    text
}

fn summed_up(ran: &RunPlanResult) -> String {
    let mut text = String::new();
    for (id, task) in &ran.tasks {
        text.push_str(&format!("{id}: {}", task.status));
        if let Some(error) = &task.error {
            text.push_str(&format!(" ({error})"));
        }
        text.push('\n');
        text.extend(files(task).map(|line| format!("    {line}\n")));
    }
    let cost = ran.metadata.cost_usd.map_or_else(String::new, |usd| format!(", {usd:.4} USD"));
    let seconds = Duration::from_millis(ran.metadata.execution_time_ms).as_secs_f64();
    let tokens = ran.metadata.tokens_used;
    text.push_str(&format!(
        "{} {}: {tokens} tokens{cost}, {seconds:.1} s\n",
        ran.plan_id, ran.status
    ));
    text
}

fn files(task: &TaskStanding) -> impl Iterator<Item = String> {
    let output = task.output.iter();
    output.flat_map(|output| {
        let signed = |sign: char, files: &[String]| {
            files.iter().map(|file| format!("{sign} {file}")).collect::<Vec<_>>()
        };
        let created = signed('+', &output.files_created);
        created
            .into_iter()
            .chain(signed('~', &output.files_modified))
            .chain(signed('-', &output.files_deleted))
    })
}

/// The tasks of a plan as they go: a tree on a terminal, a line for each change elsewhere.
struct Board {
    lines: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
    quiet: bool,
}

impl Board {
    fn new(plan: &PlanEntry, quiet: bool) -> Self {
        let shown = !quiet && io::stderr().is_terminal();
        let lines = shown.then(|| {
            let all = MultiProgress::new();
            let depths = depths(plan);
            let bar = |task: &plan::PlannedTaskEntry| {
                let line = all.add(ProgressBar::new_spinner());
                if let Ok(style) = ProgressStyle::with_template("{prefix}{spinner} {wide_msg}") {
                    line.set_style(style.tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏·"));
                }
                line.set_prefix("  ".repeat(depths.get(task.id.as_str()).copied().unwrap_or(0)));
                line.set_message(visible::line(&task.id).into_owned());
                (task.id.clone(), line)
            };
            let bars = plan.tasks.iter().map(bar).collect();
            (all, bars)
        });
        Self { lines, quiet }
    }

    fn notification(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let notification: Outgoing = serde_json::from_slice(message)?;
        if self.quiet || notification.method.as_deref() != Some(STREAM_EVENT) {
            return Ok(());
        }
        let params = notification.params.map_or("{}", |params| params.get());
        let StreamEvent { event, .. } = serde_json::from_str(params)?;
        let Event::TaskStatus { task_id, status, attempts, error } = event else { return Ok(()) };
        let again = if attempts > 1 { format!(", attempt {attempts}") } else { String::new() };
        let why = error.map_or_else(String::new, |error| format!(": {error}"));
        let text = format!("{task_id} {status}{again}{why}");
        match self.lines.as_ref().and_then(|(_, bars)| bars.get(&task_id)) {
            None => complain(text),
            Some(line) => {
                line.set_message(visible::line(&text).into_owned());
                match status.as_str() {
                    "running" => line.enable_steady_tick(Duration::from_millis(100)),
                    _ => line.abandon(),
                }
            }
        }
        Ok(())
    }

    /// What comes now is the summary, which says all that the tree did.
    fn close(self) {
        if let Some((all, bars)) = self.lines {
            // One that still ticks would draw itself again.
            bars.values().for_each(ProgressBar::finish_and_clear);
            // A terminal that is gone is no reason to fail.
            let _ = all.clear();
        }
    }
}

/// How many tasks stand before each, one behind the other.
fn depths(plan: &PlanEntry) -> BTreeMap<&str, usize> {
    let mut depths: BTreeMap<&str, usize> = BTreeMap::new();
    // As often as there are tasks is enough, since they form no circle; the server refuses those that do.
    for _ in &plan.tasks {
        for task in &plan.tasks {
            let above = task.dependencies.iter().filter_map(|id| depths.get(id.as_str()));
            let depth = above.max().map_or(0, |depth| depth + 1).min(plan.tasks.len());
            depths.insert(&task.id, depth);
        }
    }
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_as_deep_as_its_longest_way() {
        let task = |id: &str, needs: &[&str]| json!({"id": id, "type": "testing", "description": "x", "dependencies": needs});
        let tasks = [task("c", &["b"]), task("a", &[]), task("b", &["a"]), task("d", &["a", "c"])];
        let plan: PlanEntry = serde_json::from_value(json!({"tasks": tasks})).unwrap();
        let expected = BTreeMap::from([("a", 0), ("b", 1), ("c", 2), ("d", 3)]);
        assert_eq!(depths(&plan), expected);
        // One that is wrong ends too.
        let tasks = [task("a", &["b"]), task("b", &["a"])];
        let circle: PlanEntry = serde_json::from_value(json!({"tasks": tasks})).unwrap();
        assert_eq!(depths(&circle).len(), 2);
    }
}
