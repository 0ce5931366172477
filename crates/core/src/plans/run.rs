//! Running a plan: what waits for nothing runs at once, and how far each task got is on disk before anything rests on it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{Plans, PlansError, Running, TREE_RUNS_MAX};
use crate::authority::Requester;
use crate::executor::{TaskError, TaskFailure, TaskOrder, TaskReport, Terms, Work};
use crate::footprint::{Footprint, Ground};
use crate::name::AgentId;
use crate::plan::{
    Constraints, Plan, PlanFault, PlanId, PlanStatus, PlannedTask, TaskOutput, TaskRecord,
    TaskStatus,
};
use crate::store::{Begun, PlanRecord, PlanRun, Store, StoreError};
use crate::usage::Bill;
use crate::{detached, lock, on_thread, paths};

/// Tasks of one plan that run at once, unless a run says otherwise, and at most.
pub const PARALLEL_USUAL: usize = 4;
pub const PARALLEL_MAX: usize = 64;

/// What a task is told of one that it depends on, and of all of them together, in bytes.
const HANDED_BYTES_MAX: usize = 16 << 10;
const HANDED_BYTES_ALL: usize = 64 << 10;

/// Of each text that a task came to, and of those of all tasks of a plan: they are kept, and told in one answer.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
const OUTPUT_BYTES_ALL: usize = 2 << 20;

/// After how long a store that failed is told again that a run broke off.
const LEFT_AGAIN_FIRST: Duration = Duration::from_secs(1);
const LEFT_AGAIN_MAX: Duration = Duration::from_secs(60);

/// Which plan is to be run.
#[derive(Clone, Debug)]
pub enum Which {
    Known(String),
    /// A plan that its caller brought along; under its name, where it says that it is one that is kept.
    Brought(Plan, Option<String>),
}

#[derive(Clone, Debug)]
pub struct RunOptions {
    pub max_parallel: usize,
    pub on_failure: OnFailure,
    /// How often a task is tried that does not say itself.
    pub max_attempts: u32,
    /// How long one attempt may take.
    pub task_timeout: Option<Duration>,
    /// What all tasks have in common.
    pub terms: Terms,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Nothing further is begun; what runs may end.
    #[default]
    Stop,
    /// All that does not depend on it is done.
    Continue,
}

/// Told how far a task got.
pub type Tell = Arc<dyn Fn(&str, &TaskRecord) + Send + Sync>;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct RunReport {
    pub id: PlanId,
    pub status: PlanStatus,
    /// In the order of the plan.
    pub tasks: Vec<(String, TaskRecord)>,
    /// All that its tasks used, in this run and before.
    pub bill: Bill,
}

#[derive(Clone, Debug, Error)]
pub enum RunError {
    #[error("the plan cannot be run: {0}")]
    Fault(#[from] PlanFault),
    #[error(
        "the tasks differ from those of plan {0}: leave plan_id out to run them as a plan of its own"
    )]
    Differs(PlanId),
    #[error("plan {id} is being run already (process {pid})")]
    Runs { id: PlanId, pid: u32 },
    #[error(
        "agents of this tree run {TREE_RUNS_MAX} plans, as many as they may at once: wait for one, or end it with cancel_plan"
    )]
    Crowded,
    #[error("the time of the run was over")]
    Timeout(Box<RunReport>),
    #[error(transparent)]
    Plans(#[from] PlansError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Plans {
    /// Runs what is not done of a plan. Goes on when nobody waits for it any more, until `cancel` or `deadline`.
    pub async fn run(
        self: &Arc<Self>,
        requester: &Requester,
        which: Which,
        options: RunOptions,
        cancel: CancellationToken,
        deadline: Instant,
        tell: Option<Tell>,
    ) -> Result<RunReport, RunError> {
        let tree = self.tree(requester).await?;
        let (id, brought) = match which {
            Which::Known(id) => (self.get(requester, &id).await?.record.id, None),
            Which::Brought(plan, None) => {
                plan.check(&Constraints::default())?;
                (PlanId::random(), Some(plan))
            }
            Which::Brought(plan, Some(id)) => {
                let kept = self.get(requester, &id).await?.record;
                if kept.plan.tasks != plan.tasks {
                    return Err(RunError::Differs(kept.id));
                }
                (kept.id, None)
            }
        };
        let (plans, requester) = (self.clone(), requester.clone());
        detached(async move {
            let _place = plans.place(&id, tree.clone(), &cancel)?;
            if let Some(plan) = brought {
                plans.take(&requester, tree, &id, plan).await?;
            }
            let unknown = || PlansError::Unknown(id.to_string());
            let begun = plans.store.begin_plan(&id, crate::now()).await?.ok_or_else(unknown)?;
            let (hold, stored) = match begun {
                Begun::Taken(run, stored) => {
                    (Hold { store: plans.store.clone(), run, ended: false }, stored)
                }
                Begun::Runs { pid } => return Err(RunError::Runs { id, pid }),
            };
            let directory = plans.directory(&requester, &options).await;
            let run = Run {
                hold,
                plans: plans.clone(),
                requester,
                ground: Ground::with(changed_before(&stored.tasks, &directory)),
                plan: stored.record.plan,
                options,
                cancel,
                deadline,
                tell,
            };
            run.carry_out(stored.tasks).await
        })
        .await
    }

    /// Takes the place of the one who runs the plan in this process.
    fn place(
        self: &Arc<Self>,
        id: &PlanId,
        tree: Option<AgentId>,
        cancel: &CancellationToken,
    ) -> Result<Place, RunError> {
        let mut running = lock(&self.running);
        check_room(&running, tree.as_ref())?;
        match running.entry(id.clone()) {
            Entry::Occupied(_) => Err(RunError::Runs { id: id.clone(), pid: std::process::id() }),
            Entry::Vacant(vacant) => {
                vacant.insert(Running { cancel: cancel.clone(), tree });
                Ok(Place { plans: self.clone(), id: id.clone() })
            }
        }
    }

    /// Keeps a plan that its caller brought along.
    async fn take(
        &self,
        requester: &Requester,
        tree: Option<AgentId>,
        id: &PlanId,
        plan: Plan,
    ) -> Result<(), RunError> {
        let maker = self.maker(requester).await?;
        let record = PlanRecord {
            id: id.clone(),
            request: String::new(),
            plan,
            maker,
            tree,
            created_at: crate::now(),
        };
        self.keep(record).await?;
        Ok(())
    }

    /// Where the tasks work. One that cannot be had is refused when the first task begins.
    async fn directory(&self, requester: &Requester, options: &RunOptions) -> PathBuf {
        let base = match requester {
            Requester::Administrator => None,
            Requester::Agent(id) => {
                self.lifecycle.live(id).map(|agent| agent.look().settings.cwd.clone())
            }
        };
        let base = base.unwrap_or_else(|| self.lifecycle.cwd().to_path_buf());
        let Some(asked) = options.terms.directory.clone() else { return base };
        on_thread(move || paths::directory(&base, &asked).unwrap_or_else(|_| base.join(&asked)))
            .await
    }
}

/// Whether the agents of a tree may run one more plan.
fn check_room(running: &HashMap<PlanId, Running>, tree: Option<&AgentId>) -> Result<(), RunError> {
    let Some(tree) = tree else { return Ok(()) };
    let theirs = running.values().filter(|it| it.tree.as_ref() == Some(tree)).count();
    if theirs < TREE_RUNS_MAX { Ok(()) } else { Err(RunError::Crowded) }
}

/// Leave to run a plan here; others may when it is dropped.
struct Place {
    plans: Arc<Plans>,
    id: PlanId,
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.plans.running).remove(&self.id);
    }
}

/// The right to run a plan. Where a run broke off without a word in the store, the word is left as soon as it can be: a
/// plan that nobody runs must not look as if somebody did.
struct Hold {
    store: Arc<dyn Store>,
    run: PlanRun,
    ended: bool,
}

impl Hold {
    async fn end(&mut self, status: PlanStatus) -> Result<(), StoreError> {
        self.store.end_plan(&self.run, status, crate::now()).await?;
        self.ended = true;
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (false, Ok(runtime)) = (self.ended, Handle::try_current()) else { return };
        let (store, run) = (self.store.clone(), self.run.clone());
        runtime.spawn(async move {
            let mut wait = LEFT_AGAIN_FIRST;
            loop {
                match store.end_plan(&run, PlanStatus::Interrupted, crate::now()).await {
                    // Done, or somebody else's by now.
                    Ok(())
                    | Err(StoreError::LeaseLost | StoreError::Ended | StoreError::Closed) => return,
                    Err(_) => tokio::time::sleep(wait).await,
                }
                wait = (wait * 2).min(LEFT_AGAIN_MAX);
            }
        });
    }
}

/// The files that earlier runs changed, and the tasks that did.
fn changed_before(
    tasks: &[(String, TaskRecord)],
    directory: &std::path::Path,
) -> Vec<(PathBuf, Arc<str>)> {
    let mut changed = Vec::new();
    for (id, record) in tasks.iter().filter(|(_, record)| record.status == TaskStatus::Success) {
        let Some(output) = &record.output else { continue };
        let name: Arc<str> = id.as_str().into();
        let files =
            output.files_created.iter().chain(&output.files_modified).chain(&output.files_deleted);
        changed.extend(files.map(|file| (directory.join(file), name.clone())));
    }
    changed
}

/// A plan on its way.
struct Run {
    plans: Arc<Plans>,
    requester: Requester,
    hold: Hold,
    plan: Plan,
    ground: Arc<Ground>,
    options: RunOptions,
    cancel: CancellationToken,
    deadline: Instant,
    tell: Option<Tell>,
}

/// How far the tasks got, by id.
type States = BTreeMap<String, TaskRecord>;

impl Run {
    async fn carry_out(mut self, tasks: Vec<(String, TaskRecord)>) -> Result<RunReport, RunError> {
        let mut states: States = tasks.into_iter().collect();
        for task in &self.plan.tasks {
            let state = states.entry(task.id.clone()).or_default();
            // What is not done is done again.
            if state.status != TaskStatus::Success {
                state.status = TaskStatus::Pending;
            }
        }
        {
            let tasks = self.run_tasks(&mut states);
            tokio::pin!(tasks);
            tokio::select! {
                biased;
                ended = &mut tasks => ended?,
                () = tokio::time::sleep_until(self.deadline.into()) => {
                    self.cancel.cancel();
                    tasks.await?;
                }
            }
        }
        let cancelled = self.cancel.is_cancelled();
        let status = status(&states, cancelled);
        self.hold.end(status).await?;
        let bill = states.values().fold(Bill::default(), |sum, record| sum + record.bill);
        let tasks = self
            .plan
            .tasks
            .iter()
            .map(|task| (task.id.clone(), states.get(&task.id).cloned().unwrap_or_default()));
        let report =
            RunReport { id: self.hold.run.plan.clone(), status, tasks: tasks.collect(), bill };
        match cancelled && self.deadline <= Instant::now() && status == PlanStatus::Cancelled {
            true => Err(RunError::Timeout(Box::new(report))),
            false => Ok(report),
        }
    }

    /// Runs tasks until none is left that could be run.
    async fn run_tasks(&self, states: &mut States) -> Result<(), StoreError> {
        let mut running = FuturesUnordered::new();
        let mut failed: Option<String> = None;
        let mut broken = None;
        loop {
            let stopped = failed.is_some() && self.options.on_failure == OnFailure::Stop;
            while !stopped
                && !self.cancel.is_cancelled()
                && broken.is_none()
                && running.len() < self.options.max_parallel
                && let Some(task) = self.next(states)
            {
                let state = states.entry(task.id.clone()).or_default();
                state.status = TaskStatus::Running;
                let background = self.handed(task, states);
                running.push(self.attempts(task, states[&task.id].clone(), background));
            }
            match running.next().await {
                None => break,
                Some(Ok((id, record))) => {
                    if record.status != TaskStatus::Success {
                        failed.get_or_insert_with(|| id.clone());
                    }
                    states.insert(id, record);
                }
                // What runs is ended, since nothing that it comes to could be kept.
                Some(Err(error)) => {
                    self.cancel.cancel();
                    broken = Some(error);
                }
            }
        }
        match broken {
            Some(error) => Err(error),
            None => self.skip_rest(states, failed.as_deref()).await,
        }
    }

    /// The most urgent of the tasks that wait for nothing; of several the one that stands first.
    fn next(&self, states: &States) -> Option<&PlannedTask> {
        let is = |id: &str, status| states.get(id).is_some_and(|it| it.status == status);
        let ready = |task: &&PlannedTask| {
            is(&task.id, TaskStatus::Pending)
                && task.needs().into_iter().all(|id| is(id, TaskStatus::Success))
        };
        self.plan.tasks.iter().filter(ready).min_by_key(|task| task.priority)
    }

    /// Says of every task that was not begun why.
    async fn skip_rest(&self, states: &mut States, failed: Option<&str>) -> Result<(), StoreError> {
        let mut skipped: Vec<(String, TaskRecord)> = Vec::new();
        for task in &self.plan.tasks {
            let Some(state) = states.get(&task.id) else { continue };
            if state.status != TaskStatus::Pending {
                continue;
            }
            let before = self.plan.before(&task.id);
            let undone = self.plan.tasks.iter().find(|other| {
                let begun = states.get(&other.id).map(|it| it.status);
                let ended = !matches!(begun, Some(TaskStatus::Success | TaskStatus::Pending));
                before.contains(other.id.as_str()) && ended
            });
            let (status, reason) = match (undone, failed) {
                _ if self.cancel.is_cancelled() => {
                    (TaskStatus::Cancelled, "the run was ended before it".to_owned())
                }
                (Some(other), _) => {
                    let id = &other.id;
                    (TaskStatus::Skipped, format!("it depends on task {id}, which is not done"))
                }
                (None, Some(failed)) => {
                    (TaskStatus::Skipped, format!("the run stopped at task {failed}"))
                }
                (None, None) => continue,
            };
            let record = TaskRecord { status, reason: Some(reason), ..state.clone() };
            skipped.push((task.id.clone(), record));
        }
        let notes = skipped.iter().map(|(id, record)| self.note(id, record));
        futures_util::future::try_join_all(notes).await?;
        states.extend(skipped);
        Ok(())
    }

    /// Tries a task until it is done, or may not be tried again.
    async fn attempts(
        &self,
        task: &PlannedTask,
        mut record: TaskRecord,
        handed: Vec<String>,
    ) -> Result<(String, TaskRecord), StoreError> {
        let before = self.plan.before(&task.id).into_iter().map(Arc::from);
        let footprint = Footprint::new(self.ground.clone(), &task.id, before);
        let attempts_max = task.max_attempts.unwrap_or(self.options.max_attempts).max(1);
        for attempt in 1..=attempts_max {
            let mut background = handed.clone();
            if record.attempts > 0 {
                let why = record.reason.as_deref().unwrap_or("it was cut off");
                background.push(format!(
                    "This task was begun before and not finished ({why}). Files may hold parts of that work: look before you write."
                ));
            }
            record.attempts += 1;
            record.status = TaskStatus::Running;
            record.reason = None;
            self.note(&task.id, &record).await?;
            let ended = self.attempt(task, &footprint, background).await;
            let bytes_max = OUTPUT_BYTES_MAX.min(OUTPUT_BYTES_ALL / self.plan.tasks.len());
            let final_one = take_in(&mut record, ended, bytes_max);
            let again = !matches!(record.status, TaskStatus::Success | TaskStatus::Cancelled);
            if final_one || !again || attempt == attempts_max || self.cancel.is_cancelled() {
                break;
            }
        }
        self.note(&task.id, &record).await?;
        Ok((task.id.clone(), record))
    }

    async fn attempt(
        &self,
        task: &PlannedTask,
        footprint: &Arc<Footprint>,
        background: Vec<String>,
    ) -> Result<TaskReport, TaskFailure> {
        let (kind, prompt) = (task.kind, task.description.clone());
        let order = TaskOrder { kind, prompt, background, terms: self.options.terms.clone() };
        let work = Work {
            footprint: footprint.clone(),
            cancel: self.cancel.child_token(),
            deadline: self.options.task_timeout.map(|timeout| Instant::now() + timeout),
            patient: true,
            sink: None,
        };
        self.plans.executor.execute(&self.requester, order, work).await
    }

    /// What a task is told of those that it depends on.
    fn handed(&self, task: &PlannedTask, states: &States) -> Vec<String> {
        let mut left = HANDED_BYTES_ALL;
        let mut handed = Vec::new();
        let needs: BTreeSet<&str> = task.needs();
        for other in self.plan.tasks.iter().filter(|other| needs.contains(other.id.as_str())) {
            let output = states.get(&other.id).and_then(|state| state.output.as_ref());
            let Some(output) = output else { continue };
            let told = words(other, output, HANDED_BYTES_MAX.min(left));
            left = left.saturating_sub(told.len());
            handed.push(told);
        }
        handed
    }

    async fn note(&self, id: &str, record: &TaskRecord) -> Result<(), StoreError> {
        self.plans.store.note_task(&self.hold.run, id.to_owned(), record.clone()).await?;
        if let Some(tell) = &self.tell {
            tell(id, record);
        }
        Ok(())
    }
}

/// Puts what an attempt came to into the record of its task. Whether a further one would come to the same.
fn take_in(
    record: &mut TaskRecord,
    ended: Result<TaskReport, TaskFailure>,
    bytes_max: usize,
) -> bool {
    match ended {
        Ok(report) => {
            record.status = match &report.undone {
                None => TaskStatus::Success,
                Some(_) => TaskStatus::Partial,
            };
            record.bill += report.bill;
            record.reason = report.undone;
            record.model = Some(report.model);
            record.output = Some(report.output.bounded(bytes_max));
            false
        }
        Err(TaskFailure { error, output, bill }) => {
            record.status = match error {
                TaskError::Cancelled => TaskStatus::Cancelled,
                _ => TaskStatus::Failed,
            };
            record.bill += bill;
            let lasting = matches!(error, TaskError::Create(_) | TaskError::Files(_));
            record.reason = Some(error.to_string());
            record.output = (output != TaskOutput::default()).then_some(output);
            lasting
        }
    }
}

/// A task that is done, in words for one that builds on it.
fn words(task: &PlannedTask, output: &TaskOutput, bytes_max: usize) -> String {
    let mut text = format!("Task {}, on which yours depends, is done. It was:\n", task.id);
    text.push_str(&task.description);
    text.push_str("\nIt came to:\n");
    text.push_str(&output.text);
    let lists = [
        ("Files it made", &output.files_created),
        ("Files it changed", &output.files_modified),
        ("Files it removed", &output.files_deleted),
    ];
    let files: String = lists
        .iter()
        .filter(|(_, files)| !files.is_empty())
        .map(|(what, files)| format!("\n{what}: {}", files.join(", ")))
        .collect();
    const CUT: &str = "\n[cut]";
    if text.len() + files.len() > bytes_max {
        let room = bytes_max.saturating_sub(files.len() + CUT.len());
        text.truncate(text.floor_char_boundary(room));
        text.push_str(CUT);
    }
    text.push_str(&files);
    text
}

fn status(states: &States, cancelled: bool) -> PlanStatus {
    let done = states.values().filter(|it| it.status == TaskStatus::Success).count();
    match done {
        done if done == states.len() => PlanStatus::Success,
        _ if cancelled => PlanStatus::Cancelled,
        0 => PlanStatus::Failed,
        _ => PlanStatus::Partial,
    }
}
