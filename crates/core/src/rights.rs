//! Reading and changing what an agent may do.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::agent::{Agent, Settings};
use crate::authority::{Denied, Requester};
use crate::create::CreateError;
use crate::engine::Engine;
use crate::gate::{Refusal, Ruling};
use crate::permission::{Grants, Level, Permissions, Preset, Reach};

/// What is asked of `set_permissions`.
#[derive(Clone, Debug, Default)]
pub struct PermissionChange {
    pub preset: Option<String>,
    pub disable_tools: Vec<String>,
    pub enable_tools: Vec<String>,
}

/// What the gate would say to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    Allowed,
    NeedsApproval(String),
    Refused(Refusal),
}

impl Engine {
    /// What the agent may do now, without asking: what it holds and was granted, met with what its ancestors hold and
    /// what the server allows. So whoever narrows an agent narrows its descendants with it.
    pub fn effective_permissions(&self, agent: &Agent) -> Permissions {
        let mut permissions = agent.permissions();
        permissions.write = permissions.write.with(agent.grants().write_paths);
        permissions.network &= self.settings.network || permissions.level == Level::Yolo;
        self.below_ancestors(agent, permissions)
    }

    /// `permissions`, as far as every ancestor of the agent has them too.
    pub(crate) fn below_ancestors(&self, agent: &Agent, permissions: Permissions) -> Permissions {
        let ancestors = self.pool.ancestor_permissions(&agent.id());
        ancestors.iter().fold(permissions, |met, ancestor| met.meet(ancestor))
    }

    /// Ancestors and the administrator may; an agent may not change its own: one without a ceiling could give itself
    /// anything.
    pub fn may_change_permissions(
        &self,
        requester: &Requester,
        agent: &Agent,
    ) -> Result<(), Denied> {
        match requester {
            Requester::Agent(id) if *id == agent.id() => Err(Denied::OwnPermissions(id.clone())),
            _ => Ok(()),
        }
    }

    /// Changes what the agent may do. The result is never above its ceiling: what exceeds it is refused, not cut. What
    /// was granted under the old permissions is taken back with them.
    pub async fn set_permissions(
        &self,
        agent: &Arc<Agent>,
        change: PermissionChange,
    ) -> Result<(), CreateError> {
        let preset = match &change.preset {
            None => None,
            Some(name) => Some(linked(self.preset(Some(name))?).await),
        };
        let change = |settings: &mut Settings| {
            if let Some(preset) = &preset {
                settings.permissions = self.switched(preset, &settings.cwd, &settings.permissions);
            }
            for tool in &change.enable_tools {
                settings.permissions.disabled_tools.remove(tool);
            }
            settings.permissions.disabled_tools.extend(change.disable_tools);
            settings.grants = Grants::default();
            match &settings.ceiling {
                Some(ceiling) => Ok(settings.permissions.within(ceiling)?),
                None => Ok(()),
            }
        };
        agent.change(&*self.parts.store, change).await
    }

    /// What another preset gives an agent. Where it could write before it still can, unless it is trusted less now.
    pub(crate) fn switched(&self, preset: &Preset, cwd: &Path, old: &Permissions) -> Permissions {
        let kept = match &old.write {
            Reach::Beneath(paths) if preset.level >= old.level => paths.clone(),
            _ => BTreeSet::new(),
        };
        let mut asked = preset.apply(cwd, &[]);
        asked.write = asked.write.with(kept);
        asked.blocked.extend(self.settings.protected.iter().cloned());
        asked
    }

    /// What the gate would say to a call, without making it.
    pub async fn explain(
        self: &Arc<Self>,
        agent: &Arc<Agent>,
        tool: &str,
        arguments: Value,
    ) -> Explanation {
        let (engine, agent, tool) = (self.clone(), agent.clone(), tool.to_owned());
        let decided =
            tokio::task::spawn_blocking(move || match engine.decide(&agent, &tool, &arguments) {
                Ok((_, Ruling::Allowed(_))) => Explanation::Allowed,
                Ok((_, Ruling::Ask { reason, .. })) => Explanation::NeedsApproval(reason),
                Err(refusal) => Explanation::Refused(refusal),
            });
        decided.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// The preset with its links followed, which touches the disk.
pub(crate) async fn linked(mut preset: Preset) -> Preset {
    let follow = move || {
        preset.resolve_links();
        preset
    };
    tokio::task::spawn_blocking(follow)
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
