//! The gate: the one place, and the one order, in which a tool call is let through or refused.
//!
//! known → schema → enabled → level → target agent → every path → approval → run. What is decided here on paths is for
//! the refusal's sake: tools open what they were allowed beneath an opened root, so nothing that changes between the
//! decision and the act can widen it.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::approval::{Announce, Question, Verdict};
use crate::authority::{Action, Requester};
use crate::engine::Engine;
use crate::message::ToolCall;
use crate::name::AgentId;
use crate::paths::{self, PathError};
use crate::permission::{Grants, Level, Permissions};
use crate::tool::{Access, Call, CommandKind, Need, Tool};

/// The rule that refuses what nobody gave leave for.
pub const APPROVAL_RULE: &str = "approval";

/// Why a call is refused. The sentence names the rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("there is no tool named {0}")]
    UnknownTool(String),
    #[error("the arguments do not fit the tool: {0}")]
    Arguments(String),
    #[error("the tool {0} is disabled for this agent")]
    Disabled(String),
    #[error("this agent's level ({}) allows no commands", .0.name())]
    Commands(Level),
    #[error("{what} is refused below the level {}", .least.name())]
    Level { what: String, least: Level },
    #[error("this agent's permissions exclude agent management")]
    Agents,
    #[error(
        "this agent may not message agent {0}: an agent may message its parent and, if it manages agents, its descendants"
    )]
    Message(AgentId),
    #[error("{0}")]
    Path(#[from] PathError),
    #[error("{0} is a blocked path")]
    Blocked(String),
    #[error("{0} belongs to the kernel (/proc, /sys, /dev), which no tool opens")]
    Kernel(String),
    #[error(
        "{0} lies in a {CONFIGURATION} directory: below the level yolo only a person changes what configures this server"
    )]
    Configuration(String),
    #[error(
        "{0} lies in a .git directory, where git finds programs to run: use git, or have the write approved"
    )]
    Repository(String),
    #[error("{0} lies outside what this agent may read")]
    Read(String),
    #[error("{0} lies outside what this agent may write")]
    Write(String),
    #[error("{0}")]
    Approval(&'static str),
}

impl Refusal {
    /// The rule's name, for programs.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::UnknownTool(_) => "known",
            Self::Arguments(_) => "schema",
            Self::Disabled(_) => "enabled",
            Self::Commands(_) | Self::Level { .. } | Self::Agents => "level",
            Self::Message(_) => "target_agent",
            Self::Path(_)
            | Self::Blocked(_)
            | Self::Kernel(_)
            | Self::Configuration(_)
            | Self::Repository(_)
            | Self::Read(_)
            | Self::Write(_) => "path",
            Self::Approval(_) => APPROVAL_RULE,
        }
    }
}

/// The directories that configure a server, each in its project. What they hold takes effect at the next start: other
/// providers, wider presets, programs to run.
pub const CONFIGURATION: &str = ".nexus3";

/// What a call does with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Read,
    Write,
}

/// The rule on one place, absolute and without links. The gate asks it of what a call names, and a tool again of what
/// it then finds there. `blocked` is what the permissions block, each also where it leads.
pub fn check_place<'a>(
    permissions: &Permissions,
    blocked: impl IntoIterator<Item = &'a PathBuf>,
    place: &Path,
    act: Act,
    text: &str,
) -> Result<(), Refusal> {
    if blocked.into_iter().any(|blocked| place.starts_with(blocked)) {
        return Err(Refusal::Blocked(text.into()));
    }
    // Some file systems do not tell cases apart.
    let named = |part: Component<'_>, name: &str| part.as_os_str().eq_ignore_ascii_case(name);
    let configures = || place.components().any(|part| named(part, CONFIGURATION));
    if act == Act::Write && permissions.level < Level::Yolo && configures() {
        return Err(Refusal::Configuration(text.into()));
    }
    let writable = permissions.write.contains(place);
    if act == Act::Write && writable && permissions.level < Level::Yolo {
        // Hooks and settings there run as whoever next uses git in that repository: a person, an agent with more rights.
        let of_git = |rest: &Path| rest.components().any(|part| named(part, ".git"));
        if permissions.write.below(place).all(of_git) {
            return Err(Refusal::Repository(text.into()));
        }
    }
    match act {
        Act::Read if writable || permissions.read.contains(place) => Ok(()),
        Act::Write if writable => Ok(()),
        Act::Read => Err(Refusal::Read(text.into())),
        Act::Write => Err(Refusal::Write(text.into())),
    }
}

/// What a tool call came to.
pub(crate) struct ToolOutcome {
    /// For the model.
    pub content: String,
    /// The rule that refused it, where one did.
    pub refused_by: Option<&'static str>,
}

/// What the gate says to a call.
pub enum Ruling {
    Allowed(Access),
    /// Allowed once somebody approves: why, and what such leave for the whole session adds.
    Ask {
        access: Access,
        reason: String,
        grant: Grants,
    },
}

/// What a decision rests on: the agent's state at one moment.
struct Case<'a> {
    engine: &'a Engine,
    agent: &'a Agent,
    tool: &'a str,
    cwd: PathBuf,
    /// Where a command of this call would run.
    command_dir: PathBuf,
    /// What the agent may do without asking.
    base: Permissions,
    /// What it may be given leave for; `None` when there is no bound.
    ceiling: Option<Permissions>,
    grants: Grants,
    /// What has to be asked for so far.
    reasons: Vec<String>,
    asked: Grants,
}

impl Engine {
    /// Carries out a tool call, or says why not. The text is for the model. Returns soon after a cancel, when what it
    /// leaves behind is written down.
    pub(crate) async fn call_tool(
        self: &Arc<Self>,
        agent: &Arc<Agent>,
        call: &ToolCall,
        cancel: CancellationToken,
        announce: Announce,
    ) -> ToolOutcome {
        let let_through = self.let_through(agent, call, &cancel, &announce).await;
        let (tool, access) = match let_through {
            Ok(through) => through,
            Err(refusal) => {
                let content = format!("Refused: {refusal}.");
                return ToolOutcome { content, refused_by: Some(refusal.rule()) };
            }
        };
        let arguments = call.arguments.clone();
        let (engine, agent, cancelled) = (self.clone(), agent.clone(), cancel.clone());
        let call = Call { engine, agent, arguments, access, cancel, announce };
        let done = tokio::select! {
            biased;
            () = cancelled.cancelled() => None,
            () = self.slots.cancel_all.cancelled() => None,
            done = tokio::time::timeout(self.settings.tool_timeout, tool.run(call)) => Some(done),
        };
        let content = match done {
            Some(Ok(Ok(result))) => result,
            Some(Ok(Err(failure))) => format!("Failed: {failure}"),
            Some(Err(_)) => {
                let seconds = self.settings.tool_timeout.as_secs();
                format!("Failed: the tool took longer than {seconds} s")
            }
            None => "Interrupted: the turn was cancelled.".into(),
        };
        ToolOutcome { content, refused_by: None }
    }

    async fn let_through(
        self: &Arc<Self>,
        agent: &Arc<Agent>,
        call: &ToolCall,
        cancel: &CancellationToken,
        announce: &Announce,
    ) -> Result<(Arc<dyn Tool>, Access), Refusal> {
        let (tool, ruling) = self.decide_on_thread(agent, call).await?;
        let (reason, grant) = match ruling {
            Ruling::Allowed(access) => return Ok((tool, access)),
            Ruling::Ask { reason, grant, .. } => (reason, grant),
        };
        let question = Question {
            agent: agent.id(),
            tool: call.name.clone(),
            arguments: call.arguments.clone(),
            reason,
            grant: grant.clone(),
        };
        match self.ask(question, cancel, announce).await {
            Ok(Verdict::Allowed) => {}
            Ok(Verdict::Denied(why)) => return Err(Refusal::Approval(why)),
            Err(error) => {
                tracing::error!(%error, "an approval could not be stored");
                return Err(Refusal::Approval("the request for approval could not be stored"));
            }
        }
        // It may have waited for minutes: the agent may be trusted less by now, or a link lead elsewhere.
        match self.decide_on_thread(agent, call).await? {
            (tool, Ruling::Allowed(access)) => Ok((tool, access)),
            (tool, Ruling::Ask { access, grant: now, .. }) if now == grant => Ok((tool, access)),
            _ => Err(Refusal::Approval("it would touch something else by now than was approved")),
        }
    }

    /// Resolving paths touches the disk.
    async fn decide_on_thread(
        self: &Arc<Self>,
        agent: &Arc<Agent>,
        call: &ToolCall,
    ) -> Result<(Arc<dyn Tool>, Ruling), Refusal> {
        let (engine, agent, call) = (self.clone(), agent.clone(), call.clone());
        tokio::task::spawn_blocking(move || engine.decide(&agent, &call.name, &call.arguments))
            .await
            .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// Decides on a call without carrying it out. Touches the disk: not for async threads.
    pub fn decide(
        &self,
        agent: &Agent,
        name: &str,
        arguments: &Value,
    ) -> Result<(Arc<dyn Tool>, Ruling), Refusal> {
        let tool = self.parts.toolbox.get(name).ok_or_else(|| Refusal::UnknownTool(name.into()))?;
        let needs = tool.needs(arguments).map_err(Refusal::Arguments)?;
        let mut case = Case {
            engine: self,
            agent,
            tool: name,
            cwd: agent.cwd(),
            command_dir: agent.cwd(),
            base: self.effective_permissions(agent),
            ceiling: agent.ceiling().map(|ceiling| self.below_ancestors(agent, ceiling)),
            grants: agent.grants(),
            reasons: Vec::new(),
            asked: Grants::default(),
        };
        if case.base.disabled_tools.contains(name) {
            return Err(Refusal::Disabled(name.into()));
        }
        for need in &needs {
            case.check_level(need)?;
        }
        for need in &needs {
            case.check_target(need)?;
        }
        for need in &needs {
            case.check_command(need)?;
            case.check_path(need)?;
        }
        Ok((tool.clone(), case.ruling()))
    }
}

impl Case<'_> {
    fn check_level(&self, need: &Need) -> Result<(), Refusal> {
        match need {
            Need::Command(CommandKind::Any, _) if !self.base.commands => {
                Err(Refusal::Commands(self.base.level))
            }
            Need::Level(least, what) if self.base.level < *least => {
                Err(Refusal::Level { what: what.clone(), least: *least })
            }
            Need::ManageAgents if !self.base.agents => Err(Refusal::Agents),
            _ => Ok(()),
        }
    }

    /// Below `yolo` a command needs leave, unless it changes nothing or was granted where it would run; and every command
    /// does where the kernel cannot hold it within the agent's permissions.
    fn check_command(&mut self, need: &Need) -> Result<(), Refusal> {
        let Need::Command(kind, dir) = need else { return Ok(()) };
        if let Some(dir) = dir {
            let found = paths::directory(&self.cwd, dir);
            self.command_dir = found.map_err(|error| self.within(dir, Act::Read, error))?;
        }
        if self.base.level == Level::Yolo {
            return Ok(());
        }
        let dir = &self.command_dir;
        let confined = self.engine.settings.commands_confined;
        let granted = *kind == CommandKind::ReadOnly || self.grants.allows_command(self.tool, dir);
        if granted && confined {
            return Ok(());
        }
        let unconfined = if confined { "" } else { " without a kernel sandbox" };
        self.reasons.push(format!(
            "run a command with {} in {}{unconfined}",
            self.tool,
            shown(dir)
        ));
        self.asked.exec_dirs.entry(self.tool.into()).or_default().insert(dir.clone());
        Ok(())
    }

    fn check_target(&self, need: &Need) -> Result<(), Refusal> {
        let Need::Message(target) = need else { return Ok(()) };
        let requester = Requester::Agent(self.agent.id());
        let allowed = match self.base.agents {
            true => self.engine.authorize(&requester, Action::Send, target).is_ok(),
            false => self.agent.parent().as_ref() == Some(target),
        };
        if allowed { Ok(()) } else { Err(Refusal::Message(target.clone())) }
    }

    fn check_path(&mut self, need: &Need) -> Result<(), Refusal> {
        let (text, act) = match need {
            Need::Read(text) => (text, Act::Read),
            Need::Write(text) => (text, Act::Write),
            _ => return Ok(()),
        };
        let place = paths::place(&self.cwd, text);
        let place = place.map_err(|error| self.within(text, act, error))?;
        // Leave can be given only within the ceiling, and only to an agent that may be asked about.
        let may_ask = self.base.level >= Level::Trusted
            && self.ceiling.as_ref().is_none_or(|ceiling| ceiling.write.contains(&place));
        let asks = match check_place(&self.base, &self.base.blocked, &place, act, text) {
            Ok(()) => false,
            Err(Refusal::Write(_) | Refusal::Repository(_)) if may_ask => true,
            Err(refusal) => return Err(refusal),
        };
        if paths::of_kernel(&place) {
            return Err(Refusal::Kernel(text.clone()));
        }
        if asks {
            self.reasons.push(format!("write {}", shown(&place)));
            self.asked.write_paths.insert(place);
        }
        Ok(())
    }

    /// Why a path cannot be followed, unless that would tell of places the agent may not see.
    fn within(&self, text: &str, act: Act, error: PathError) -> Refusal {
        let lexical = paths::lexical(&self.cwd.join(text));
        let refusal = check_place(&self.base, &self.base.blocked, &lexical, act, text).err();
        match refusal {
            Some(hidden @ (Refusal::Blocked(_) | Refusal::Read(_))) => hidden,
            Some(hidden @ Refusal::Write(_)) if !self.base.read.contains(&lexical) => hidden,
            _ => error.into(),
        }
    }

    fn ruling(self) -> Ruling {
        let Self { cwd, command_dir, base: mut permissions, .. } = self;
        if self.reasons.is_empty() {
            return Ruling::Allowed(Access { cwd, command_dir, permissions });
        }
        permissions.write = permissions.write.with(self.asked.write_paths.iter().cloned());
        let access = Access { cwd, command_dir, permissions };
        Ruling::Ask { access, reason: self.reasons.join("; "), grant: self.asked }
    }
}

/// A path in a question to a person. A name may hold line breaks and must not pass for words of ours.
fn shown(path: &Path) -> String {
    path.to_string_lossy().replace(char::is_control, "\u{fffd}")
}
