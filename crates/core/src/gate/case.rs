//! Deciding on a call without carrying it out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::refusal::{Act, Refusal, check_place};
use crate::mcp::{Asks, McpGrants, Origin};
use crate::name::AgentId;
use crate::paths::{self, PathError};
use crate::permission::{Grants, Level, Permissions};
use crate::tool::{Access, CommandKind, Need};

/// What the gate says to a call.
pub enum Ruling {
    Allowed(Access),
    /// Allowed once somebody approves: why, and what such leave for the whole session adds.
    Ask {
        access: Access,
        /// What it has without that.
        before: Box<Access>,
        reason: String,
        grant: Grants,
    },
}

/// What a decision rests on: the agent and its ancestors at one moment.
pub struct Case {
    pub(super) tool: String,
    pub(super) cwd: PathBuf,
    /// Where a command of this call would run.
    pub(super) command_dir: PathBuf,
    /// What the agent may do without asking.
    pub(super) base: Permissions,
    /// What it may be given leave for; `None` when there is no bound.
    pub(super) ceiling: Option<Permissions>,
    pub(super) grants: Grants,
    pub(super) parent: Option<AgentId>,
    /// Of the agents that the call would message, those that descend from this one, or are it.
    pub(super) descendants: BTreeSet<AgentId>,
    /// Whether the kernel can hold commands within an agent's permissions.
    pub(super) confined: bool,
    /// What has to be asked for so far.
    pub(super) reasons: Vec<String>,
    pub(super) asked: Grants,
    pub(super) needs: Vec<Need>,
}

impl Case {
    /// Touches the disk: not for async threads.
    pub fn decide(mut self) -> Result<Ruling, Refusal> {
        let needs = std::mem::take(&mut self.needs);
        if self.base.disabled_tools.contains(&self.tool) {
            return Err(Refusal::Disabled(self.tool));
        }
        for need in &needs {
            self.check_level(need)?;
        }
        for need in &needs {
            self.check_server(need)?;
        }
        for need in &needs {
            self.check_target(need)?;
        }
        for need in &needs {
            self.check_command(need)?;
            self.check_path(need)?;
        }
        Ok(self.ruling())
    }

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
        let confined = self.confined;
        let granted = *kind == CommandKind::ReadOnly || self.grants.allows_command(&self.tool, dir);
        if granted && confined {
            return Ok(());
        }
        let unconfined = if confined { "" } else { " without a kernel sandbox" };
        self.reasons.push(format!(
            "run a command with {} in {}{unconfined}",
            self.tool,
            shown(dir)
        ));
        self.asked.exec_dirs.entry(self.tool.clone()).or_default().insert(dir.clone());
        Ok(())
    }

    /// What a server does is its own affair, within its own bounds: so an agent that can be asked about asks, until the
    /// tool was granted. One that cannot was handed the tool by name.
    fn check_server(&mut self, need: &Need) -> Result<(), Refusal> {
        let Need::Server(origin) = need else { return Ok(()) };
        let Origin { server, tool, .. } = origin;
        if !self.base.mcp.allows(server, tool) {
            return Err(Refusal::Mcp { server: server.clone(), tool: tool.clone() });
        }
        if origin.quarantined {
            return Err(Refusal::Pin { server: server.clone(), tool: tool.clone() });
        }
        let asked_about = self.base.level == Level::Trusted;
        let needs_leave = match origin.asks {
            Asks::Never => false,
            Asks::Once => !self.grants.mcp.allows(origin),
            Asks::Always => true,
        };
        if asked_about && needs_leave {
            self.reasons.push(format!("use the tool {tool} of the MCP server {server}"));
            self.asked.mcp.extend(McpGrants::one(origin));
        }
        Ok(())
    }

    fn check_target(&self, need: &Need) -> Result<(), Refusal> {
        let Need::Message(target) = need else { return Ok(()) };
        let parent = self.parent.as_ref() == Some(target);
        let descendant = self.base.agents && self.descendants.contains(target);
        if parent || descendant { Ok(()) } else { Err(Refusal::Message(target.clone())) }
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
        let Self { cwd, command_dir, base: permissions, .. } = self;
        if self.reasons.is_empty() {
            return Ruling::Allowed(Access { cwd, command_dir, permissions, footprint: None });
        }
        let before = Box::new(Access { cwd, command_dir, permissions, footprint: None });
        let mut access = (*before).clone();
        access.permissions.write =
            access.permissions.write.with(self.asked.write_paths.iter().cloned());
        Ruling::Ask { access, before, reason: self.reasons.join("; "), grant: self.asked }
    }
}

/// A path in a question to a person. A name may hold line breaks and must not pass for words of ours.
fn shown(path: &Path) -> String {
    path.to_string_lossy().replace(char::is_control, "\u{fffd}")
}
