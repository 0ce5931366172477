//! The agent domain as one value: its parts, wired together. Each does one thing and knows only those below it.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::account::Bounds;
use crate::agent::Hooks;
use crate::answers::Answers;
use crate::approval::{ApprovalMode, Approvals};
use crate::attach::{Attacher, Intake};
use crate::authority::{Denied, Requester};
use crate::briefing::Briefing;
use crate::code::{Checker, Checks};
use crate::compact::{CompactionSettings, Compactor};
use crate::delegate::Delegation;
use crate::directory::Directory;
use crate::executor::{Executor, TaskModels};
use crate::gate::Gate;
use crate::keys::Keys;
use crate::kin::Kin;
use crate::lifecycle::{Lifecycle, Rules};
use crate::logs::AgentLogs;
use crate::memory::Memories;
use crate::observe::Observer;
use crate::permission::{Preset, ToolClass};
use crate::plans::Plans;
use crate::prompt::Prompts;
use crate::provider::Models;
use crate::rights::Permits;
use crate::sampling::Sampler;
use crate::servers::Servers;
use crate::session::Sessions;
use crate::settings::Tuning;
use crate::shared_context::ContextKeeper;
use crate::spending::Spending;
use crate::store::{Store, StoreError};
use crate::tokens::TokenCounter;
use crate::tool::Colleagues;
use crate::toolbox::Toolbox;
use crate::turn::{Slots, TurnLimits, Turns};
use crate::waits::Waits;
use crate::watch::Watches;
use crate::watching::Watching;

pub struct Engine {
    pub store: Arc<dyn Store>,
    pub models: Arc<dyn Models>,
    /// Making, finding, listing and ending agents.
    pub agents: Arc<Lifecycle>,
    /// What agents may do.
    pub permits: Permits,
    /// Directories, prompts and models.
    pub tuning: Arc<Tuning>,
    pub sessions: Arc<Sessions>,
    /// What model calls used.
    pub spending: Arc<Spending>,
    pub approvals: Arc<Approvals>,
    /// What is remembered about people and chats.
    pub memories: Arc<Memories>,
    /// What all planners and executors share.
    pub context: ContextKeeper,
    /// What was answered to calls that are carried out once.
    pub answers: Answers,
    /// What callers sign with.
    pub keys: Keys,
    pub gate: Arc<Gate>,
    /// Making something of what comes with messages.
    pub attacher: Arc<Attacher>,
    pub executor: Arc<Executor>,
    pub plans: Arc<Plans>,
    /// Looking at code without running it.
    pub checks: Checks,
    /// The MCP servers whose tools agents use.
    pub servers: Servers,
    pub compactor: Arc<Compactor>,
    pub turns: Arc<Turns>,
    /// Those who are told what happens.
    pub watching: Watching,
    /// What holds commands within their agent's permissions, in words.
    pub sandbox: String,
    /// What each command may take, in words.
    pub limits: String,
    /// What agents do with each other. The gate has it too, weakly: it reaches turns, which reach the gate.
    pub colleagues: Arc<dyn Colleagues>,
}

/// The traits of the core, filled.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub models: Arc<dyn Models>,
    pub prompts: Arc<dyn Prompts>,
    pub logs: Arc<dyn AgentLogs>,
    pub counter: Arc<dyn TokenCounter>,
    pub toolbox: Toolbox,
    pub intake: Arc<dyn Intake>,
    pub checker: Arc<dyn Checker>,
    pub observer: Arc<dyn Observer>,
}

pub struct Settings {
    /// Where agents work that were given no directory.
    pub cwd: PathBuf,
    /// Never open to any agent: the program's own files, with which one could become the administrator.
    pub protected: BTreeSet<PathBuf>,
    pub default_preset: String,
    /// Presets of the configuration, beside the built-in ones.
    pub presets: HashMap<String, Preset>,
    pub max_tool_iterations: u32,
    pub max_concurrent_tools: usize,
    /// Tool calls that a model may make in one step.
    pub max_calls_per_step: usize,
    /// How long one tool call may take.
    pub tool_timeout: Duration,
    pub approvals: ApprovalMode,
    /// How long a question waits for somebody who said that they would answer it, whatever is done with others.
    pub approval_timeout: Duration,
    /// Whether agents below `yolo` may have the network at all.
    pub network: bool,
    /// Whether the kernel can hold commands within an agent's permissions.
    pub commands_confined: bool,
    /// What does that, in words.
    pub sandbox: String,
    /// What each command may take, in words.
    pub limits: String,
    pub compaction: CompactionSettings,
    /// Whether addresses of images are handed to providers.
    pub allow_urls: bool,
    /// Memories that are put before a turn; none when 0.
    pub recall: u32,
    /// Which models plan and carry out tasks.
    pub tasks: TaskModels,
    /// Turns that run at once.
    pub max_concurrent: usize,
    /// Turns that may wait beside those that run.
    pub max_queued: usize,
    /// What each tree of agents may take.
    pub tree: Bounds,
}

/// What an engine is busy with, of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Agents in memory.
    pub agents: usize,
    /// Turns that run or wait.
    pub turns: usize,
    /// Those of them that wait: behind another turn of their agent, or for a slot.
    pub turns_queued: usize,
    /// Questions that somebody has to answer.
    pub approvals: usize,
}

impl Engine {
    /// Wires the parts. Nothing is read before it is asked for.
    pub fn new(parts: Parts, settings: Settings) -> Arc<Self> {
        let Parts { store, models, prompts, logs, counter, toolbox, intake, checker, observer } =
            parts;
        let toolbox = Arc::new(toolbox);
        let directory = Arc::new(Directory::new(settings.tree));
        let watches = Arc::<Watches>::default();
        let network = settings.network;
        let kin = Arc::new(Kin {
            directory: directory.clone(),
            store: store.clone(),
            network,
            protected: settings.protected.clone(),
        });
        let spending = Arc::new(Spending {
            directory: directory.clone(),
            kin: kin.clone(),
            store: store.clone(),
        });
        // Weakly: the directory has the agents, and would be kept by their tasks.
        let lost = Arc::downgrade(&directory);
        let agents = Arc::new(Lifecycle {
            hooks: Hooks {
                store: store.clone(),
                logs: logs.clone(),
                version: directory.version().clone(),
                watches: watches.clone(),
                gone: Arc::new(move |id, number| {
                    if let Some(directory) = lost.upgrade() {
                        directory.forget(id, number);
                    }
                }),
            },
            directory: directory.clone(),
            kin: kin.clone(),
            spending: spending.clone(),
            store: store.clone(),
            models: models.clone(),
            rules: Rules {
                cwd: settings.cwd,
                protected: settings.protected,
                default_preset: settings.default_preset,
                presets: settings.presets,
                write_tools: toolbox.names(ToolClass::Write),
            },
            released: AtomicU64::new(0),
            stop: CancellationToken::new(),
        });
        let briefing = Arc::new(Briefing {
            prompts,
            toolbox: toolbox.clone(),
            kin: kin.clone(),
            store: store.clone(),
        });
        let compactor = Arc::new(Compactor::new(
            models.clone(),
            counter,
            briefing.clone(),
            settings.compaction,
            observer.clone(),
            watches.clone(),
        ));
        let approvals = Arc::new(Approvals {
            store: store.clone(),
            kin: kin.clone(),
            mode: settings.approvals,
            timeout: settings.approval_timeout,
            waiting: Mutex::default(),
            watches: watches.clone(),
        });
        let memories =
            Arc::new(Memories { store: store.clone(), kin: kin.clone(), meaning: OnceLock::new() });
        let gate = Arc::new(Gate {
            kin: kin.clone(),
            toolbox: toolbox.clone(),
            approvals: approvals.clone(),
            memories: memories.clone(),
            sampler: Arc::new(Sampler { models: models.clone(), observer: observer.clone() }),
            tool_timeout: settings.tool_timeout,
            commands_confined: settings.commands_confined,
            colleagues: OnceLock::new(),
        });
        let attacher = Arc::new(Attacher {
            gate: gate.clone(),
            models: models.clone(),
            intake,
            allow_urls: settings.allow_urls,
        });
        let turns = Arc::new(Turns {
            directory,
            models: models.clone(),
            gate: gate.clone(),
            briefing: briefing.clone(),
            compactor: compactor.clone(),
            memories: memories.clone(),
            recall: settings.recall,
            slots: Slots::new(settings.max_concurrent, settings.max_queued),
            limits: TurnLimits {
                max_tool_iterations: settings.max_tool_iterations,
                max_concurrent_tools: settings.max_concurrent_tools,
                max_calls_per_step: settings.max_calls_per_step,
            },
            observer,
            watches: watches.clone(),
        });
        let planner_model = settings.tasks.planner.clone();
        let executor = Arc::new(Executor {
            lifecycle: agents.clone(),
            turns: turns.clone(),
            attacher: attacher.clone(),
            models: settings.tasks,
            store: store.clone(),
        });
        let plans = Arc::new(Plans {
            executor: executor.clone(),
            lifecycle: agents.clone(),
            turns: turns.clone(),
            toolbox: toolbox.clone(),
            store: store.clone(),
            planner_model,
            running: Mutex::default(),
        });
        let colleagues: Arc<dyn Colleagues> = Arc::new(Delegation {
            lifecycle: agents.clone(),
            turns: turns.clone(),
            waits: Waits::default(),
            tool_timeout: settings.tool_timeout,
        });
        let _ = gate.colleagues.set(Arc::downgrade(&colleagues));
        let tuning = Arc::new(Tuning {
            lifecycle: agents.clone(),
            models: models.clone(),
            briefing,
            compactor: compactor.clone(),
        });
        let sessions = Arc::new(Sessions {
            lifecycle: agents.clone(),
            kin: kin.clone(),
            tuning: tuning.clone(),
            store: store.clone(),
            logs,
        });
        let watching =
            Watching { lifecycle: agents.clone(), approvals: approvals.clone(), watches };
        Arc::new(Self {
            watching,
            servers: Servers { kin: kin.clone(), toolbox },
            permits: Permits { kin, lifecycle: agents.clone() },
            context: ContextKeeper { store: store.clone() },
            answers: Answers { store: store.clone() },
            keys: Keys::new(store.clone()),
            store,
            models,
            agents,
            tuning,
            sessions,
            spending,
            approvals,
            memories,
            gate,
            attacher,
            executor,
            plans,
            checks: Checks::new(checker),
            compactor,
            turns,
            sandbox: settings.sandbox,
            limits: settings.limits,
            colleagues,
        })
    }

    /// Refuses whoever may not see what all agents do and spend together.
    pub fn authorize_metrics(&self, requester: &Requester) -> Result<(), Denied> {
        requester.administrator_only("see the server's metrics")
    }

    /// What the engine is busy with.
    pub fn load(&self) -> Load {
        let (turns, turns_queued) = self.turns.in_flight();
        let agents = self.agents.directory.len();
        Load { agents, turns, turns_queued, approvals: self.approvals.waiting_count() }
    }

    /// Whether the kernel can hold commands within an agent's permissions.
    pub fn commands_confined(&self) -> bool {
        self.gate.commands_confined
    }

    /// Flushes the store and gives its leases back. Comes last, when nobody calls any more.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}
