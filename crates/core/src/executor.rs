//! One task, carried out by a temporary agent: its permissions, tools, limits and cancellation are those of any other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::attach::{AttachError, Attacher, Given, Piece, Wanted};
use crate::authority::Requester;
use crate::events::{EventSink, TurnOutcome};
use crate::footprint::{FileChanges, Footprint};
use crate::lifecycle::{AgentSpec, CreateError, Lifecycle};
use crate::message::{Content, StopReason};
use crate::on_thread;
use crate::plan::{TaskOutput, TaskType};
use crate::store::{Store, StoreError};
use crate::turn::{TurnError, TurnInput, Turns};
use crate::usage::Bill;

/// How long a task of a plan waits before it asks again for a place among the turns.
const CROWDED: Duration = Duration::from_millis(200);

/// With this begins the line by which an executor says what it left undone.
const INCOMPLETE: &str = "INCOMPLETE:";

/// Which models plan and carry out. The server's default where none is named.
#[derive(Clone, Debug, Default)]
pub struct TaskModels {
    pub planner: Option<String>,
    pub executor: Option<String>,
    /// For some kinds of tasks another than `executor`.
    pub by_type: BTreeMap<TaskType, String>,
}

pub struct Executor {
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) attacher: Arc<Attacher>,
    pub(crate) models: TaskModels,
    pub(crate) store: Arc<dyn Store>,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct TaskOrder {
    pub kind: TaskType,
    pub prompt: String,
    /// What else the model is told, before the task.
    pub background: Vec<String>,
    pub terms: Terms,
}

/// Where and how a task is done. All tasks of a run have it in common.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Read for the model, within the directory.
    pub files: Vec<String>,
    /// Where the task works, and beyond which it sees nothing. The server's when absent.
    pub directory: Option<String>,
    pub dependencies: Vec<String>,
    pub constraints: Vec<String>,
    pub language: Option<String>,
    pub framework: Option<String>,
    pub style_guide: Option<String>,
    /// Whether it may change files.
    pub write: bool,
    pub model: Option<String>,
}

/// How a task is carried out.
pub struct Work {
    /// Keeps account of the files.
    pub footprint: Arc<Footprint>,
    pub cancel: CancellationToken,
    pub deadline: Option<Instant>,
    /// A task that finds no place waits for one, where it has nobody to tell.
    pub patient: bool,
    pub sink: Option<Box<dyn EventSink>>,
}

/// What a task came to.
#[derive(Clone, Debug)]
pub struct TaskReport {
    pub output: TaskOutput,
    /// What is left undone, and why.
    pub undone: Option<String>,
    pub model: String,
    pub stop: StopReason,
    pub steps: u32,
    pub bill: Bill,
}

/// A task that came to nothing, but perhaps to changes.
#[derive(Clone, Debug)]
pub struct TaskFailure {
    pub error: TaskError,
    pub output: TaskOutput,
    pub bill: Bill,
}

#[derive(Clone, Debug, Error)]
pub enum TaskError {
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Files(#[from] AttachError),
    #[error(transparent)]
    Turn(#[from] TurnError),
    #[error("its time was over")]
    Timeout,
    #[error("it was cancelled")]
    Cancelled,
}

impl From<TaskError> for TaskFailure {
    fn from(error: TaskError) -> Self {
        Self { error, output: TaskOutput::default(), bill: Bill::default() }
    }
}

impl Executor {
    /// Carries a task out. What it started is over when this returns; nobody has to wait for that.
    pub async fn execute(
        self: &Arc<Self>,
        requester: &Requester,
        order: TaskOrder,
        work: Work,
    ) -> Result<TaskReport, TaskFailure> {
        let (spec, footprint) = (self.spec(&order), work.footprint.clone());
        let (this, asking) = (self.clone(), requester.clone());
        let carry_out = move |agent: Agent| {
            async move { this.carry_out(&asking, &agent, &order, work).await }.boxed()
        };
        let lent = self.lifecycle.lend(requester, spec, carry_out).await;
        let (ended, agent) = lent.map_err(TaskError::from)?;
        let now = agent.snapshot();
        let (bill, cwd) = (now.bill, now.settings.cwd.clone());
        let (changes, refused) =
            on_thread(move || (footprint.changes(), footprint.refused())).await;
        let outcome = match ended {
            Ok(outcome) if !outcome.cancelled => outcome,
            ended => {
                let error = ended.err().unwrap_or(TaskError::Cancelled);
                let output = output("", &changes, &cwd);
                return Err(TaskFailure { error, output, bill });
            }
        };
        let undone = undone(&outcome).or(refused);
        Ok(TaskReport {
            output: output(&outcome.content, &changes, &cwd),
            undone,
            model: outcome.model,
            stop: outcome.stop.reason,
            steps: outcome.steps,
            bill,
        })
    }

    /// What planners and executors are all told. The administrator's: an agent, which may not read it, could have it told.
    pub(crate) async fn shared_context(
        &self,
        requester: &Requester,
    ) -> Result<Option<String>, StoreError> {
        match requester {
            Requester::Administrator => Ok(self.store.shared_context().await?.for_prompt()),
            Requester::Agent(_) => Ok(None),
        }
    }

    /// What the agent is that carries a task out.
    fn spec(&self, order: &TaskOrder) -> AgentSpec {
        let by_type = self.models.by_type.get(&order.kind);
        let terms = &order.terms;
        let model = terms.model.as_ref().or(by_type).or(self.models.executor.as_ref());
        AgentSpec {
            name: Some(".".into()),
            preset: Some(if terms.write { "sandboxed" } else { "worker" }.into()),
            cwd: terms.directory.clone(),
            write_paths: if terms.write { vec![".".into()] } else { Vec::new() },
            model: model.cloned(),
            ..AgentSpec::default()
        }
    }

    async fn carry_out(
        &self,
        requester: &Requester,
        agent: &Agent,
        order: &TaskOrder,
        mut work: Work,
    ) -> Result<TurnOutcome, TaskError> {
        let shared = self.shared_context(requester).await.map_err(TurnError::Store)?;
        let mut pieces: Vec<_> = order.terms.files.iter().map(|path| file(path)).collect();
        pieces.push(Piece::Text(order.words(shared)));
        let content = self.attacher.take(requester, agent, pieces).await?;
        let asked_by = requester.into();
        let input = |content: Content, sink| TurnInput {
            content,
            source: Some("task".into()),
            asked_by,
            footprint: Some(work.footprint.clone()),
            sink,
            ..TurnInput::default()
        };
        let turn = loop {
            let begun = self.turns.start(agent, input(content.clone(), work.sink.take())).await;
            match begun {
                Err(TurnError::Overloaded | TurnError::Exceeded(_)) if work.patient => {}
                begun => break begun?,
            }
            tokio::select! {
                () = work.cancel.cancelled() => return Err(TaskError::Cancelled),
                () = tokio::time::sleep(CROWDED) => {}
            }
            if work.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(TaskError::Timeout);
            }
        };
        let left = work.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match turn.wait_or_cancel(&work.cancel, left).await {
            Err(TurnError::Timeout) => Err(TaskError::Timeout),
            ended => Ok(ended?),
        }
    }
}

fn file(path: &str) -> Piece {
    let (name, given) = (Some(path.to_owned()), Given::Path(path.to_owned()));
    Piece::Attached { wanted: Wanted::Any, name, given }
}

impl TaskOrder {
    /// What the executor is told.
    fn words(&self, shared: Option<String>) -> String {
        let Terms { language, framework, style_guide, dependencies, constraints, .. } = &self.terms;
        let mut words = String::new();
        for background in shared.iter().chain(&self.background) {
            let _ = writeln!(words, "{background}\n");
        }
        words.push_str(match self.kind {
            TaskType::CodeGeneration => "Your task is to write code.",
            TaskType::Refactoring => {
                "Your task is to change existing code without changing what it does."
            }
            TaskType::Analysis => "Your task is to find something out. Change no files.",
            TaskType::Testing => "Your task is to write tests.",
        });
        words.push_str(match self.terms.write {
            true => {
                " Change the files that have to be changed with your tools, and say in a few sentences what you did and why."
            }
            false => " You cannot change files: give all code in your answer, in fenced blocks.",
        });
        let _ = writeln!(
            words,
            " If anything of it remains undone, end your answer with a line that begins with {INCOMPLETE} and says what, and why.\n"
        );
        let named =
            [("Language", language), ("Framework", framework), ("Style guide", style_guide)];
        for (what, value) in named {
            if let Some(value) = value {
                let _ = writeln!(words, "{what}: {value}");
            }
        }
        let lists = [("Dependencies", dependencies), ("Constraints", constraints)];
        for (what, values) in lists {
            if !values.is_empty() {
                let _ = writeln!(words, "{what}:\n- {}", values.join("\n- "));
            }
        }
        let _ = write!(words, "\n{}", self.prompt);
        words
    }
}

/// What an outcome leaves undone.
fn undone(outcome: &TurnOutcome) -> Option<String> {
    let details = || match &outcome.stop.details {
        Some(details) => format!(": {details}"),
        None => String::new(),
    };
    let why = match outcome.stop.reason {
        StopReason::EndTurn => {
            let last = outcome.content.trim_end().lines().next_back()?;
            let said = last.trim_start_matches(['*', '_', ' ']).strip_prefix(INCOMPLETE)?;
            let said = said.trim_matches(['*', '_', ' ']);
            return Some(if said.is_empty() { "not all of it was done" } else { said }.into());
        }
        StopReason::MaxTokens => "the answer was cut at the limit of its length",
        StopReason::ContextWindow => "the model's window was full",
        StopReason::Refusal => "the model refused",
        StopReason::ContentFilter => "the provider's filter stopped the answer",
        StopReason::IterationLimit => "the limit of steps was reached",
        StopReason::Empty => "the model said nothing",
        StopReason::Broken => "the answer broke off",
        StopReason::Budget => "the budget was used up",
        StopReason::Pause | StopReason::Cancelled | StopReason::Other => "the model stopped early",
    };
    Some(format!("{why}{}", details()))
}

fn output(text: &str, changes: &FileChanges, cwd: &Path) -> TaskOutput {
    let (code, explanation) = split(text);
    let relative = |paths: &[std::path::PathBuf]| {
        let shown = |path: &std::path::PathBuf| {
            path.strip_prefix(cwd).unwrap_or(path).to_string_lossy().into_owned()
        };
        paths.iter().map(shown).collect()
    };
    TaskOutput {
        text: text.into(),
        code,
        explanation,
        files_modified: relative(&changes.modified),
        files_created: relative(&changes.created),
        files_deleted: relative(&changes.deleted),
    }
}

/// The code of an answer, which stands in fences, and the rest of it.
fn split(text: &str) -> (String, String) {
    let (mut code, mut rest) = (Vec::new(), Vec::new());
    // The fence that has to close what is open, and its code so far.
    let mut open: Option<(&str, Vec<&str>)> = None;
    for line in text.lines() {
        let fence = fence(line);
        match &mut open {
            None => match fence {
                Some((fence, _)) => open = Some((fence, Vec::new())),
                None => rest.push(line),
            },
            Some((opened, lines)) => {
                let closes =
                    fence.is_some_and(|(fence, alone)| alone && fence.starts_with(*opened));
                match closes {
                    true => {
                        code.push(lines.join("\n"));
                        open = None;
                    }
                    false => lines.push(line),
                }
            }
        }
    }
    // An answer that was cut has code too.
    code.extend(open.map(|(_, lines)| lines.join("\n")));
    (code.join("\n\n"), rest.join("\n").trim().into())
}

/// The fence that a line is, and whether it is nothing else.
fn fence(line: &str) -> Option<(&str, bool)> {
    let line = line.trim();
    let sign = line.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let length = line.chars().take_while(|c| *c == sign).count();
    let (fence, rest) = line.split_at(length);
    (length >= 3 && !rest.contains(sign)).then_some((fence, rest.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_stands_in_fences() {
        let text = "Here:\n```rust\nfn a() {}\n\n// ```not a fence` ``\n```\nand\n~~~~\n```\nb\n```\n~~~~\ndone";
        let (code, rest) = split(text);
        assert_eq!(code, "fn a() {}\n\n// ```not a fence` ``\n\n```\nb\n```");
        assert_eq!(rest, "Here:\nand\ndone");
        assert_eq!(split("no code"), (String::new(), "no code".into()));
        assert_eq!(split("```\ncut"), ("cut".into(), String::new()));
    }

    #[test]
    fn what_is_undone_is_said() {
        let said = |content: &str| {
            undone(&TurnOutcome { content: content.into(), ..TurnOutcome::default() })
        };
        assert_eq!(said("All done.\nINCOMPLETE is a word."), None);
        assert_eq!(said("Half.\nINCOMPLETE: no tests").as_deref(), Some("no tests"));
        assert_eq!(said("**INCOMPLETE: no tests**\n").as_deref(), Some("no tests"));
        assert_eq!(said("INCOMPLETE:").as_deref(), Some("not all of it was done"));
        let stop = StopReason::Refusal.into();
        let refused = TurnOutcome { stop, ..TurnOutcome::default() };
        assert_eq!(undone(&refused).as_deref(), Some("the model refused"));
    }
}
