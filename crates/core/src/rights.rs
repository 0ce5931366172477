//! Reading and changing what an agent may do.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::agent::{Agent, AgentSettings, Snapshot};
use crate::authority::{Denied, Hand, Requester};
use crate::kin::Kin;
use crate::lifecycle::{CreateError, Lifecycle, check_tools};
use crate::on_thread;
use crate::permission::{Grants, Level, Permissions, Preset, Reach};
use crate::store::StoreError;

pub struct Permits {
    pub(crate) kin: Arc<Kin>,
    pub(crate) lifecycle: Arc<Lifecycle>,
}

/// What is asked of `set_permissions`.
#[derive(Clone, Debug, Default)]
pub struct PermissionChange {
    pub preset: Option<String>,
    pub disable_tools: Vec<String>,
    pub enable_tools: Vec<String>,
    pub hand: Hand,
}

impl Permits {
    /// What the agent may do now, without asking.
    pub async fn effective(&self, agent: &Snapshot) -> Result<Permissions, StoreError> {
        Ok(self.kin.rights(agent).await?.effective)
    }

    /// Changes what the agent may do. The result is never above its ceiling: what exceeds it is refused, not cut. What
    /// was granted under the old permissions is taken back with them.
    ///
    /// Ancestors and the administrator may; an agent may not change its own: one without a ceiling could give itself
    /// anything.
    pub async fn set(
        &self,
        requester: &Requester,
        agent: &Agent,
        change: PermissionChange,
    ) -> Result<Arc<Snapshot>, CreateError> {
        if let Requester::Agent(id) = requester
            && *id == agent.id()
        {
            return Err(Denied::OwnPermissions(id.clone()).into());
        }
        let preset = match &change.preset {
            None => None,
            Some(name) => {
                let preset = self.lifecycle.preset_given(Some(name), change.hand, requester)?;
                Some(linked(preset).await)
            }
        };
        let lifecycle = self.lifecycle.clone();
        let change = agent.change(move |settings, now| {
            if let Some(preset) = &preset {
                settings.permissions = switched(&lifecycle, preset, settings);
            }
            for tool in &change.enable_tools {
                settings.permissions.disabled_tools.remove(tool);
            }
            let disabled = settings.permissions.disabled_tools.len();
            check_tools("disable_tools", &change.disable_tools, disabled)?;
            settings.permissions.disabled_tools.extend(change.disable_tools);
            settings.grants = Grants::default();
            match &now.ceiling {
                Some(ceiling) => Ok(settings.permissions.within(ceiling)?),
                None => Ok(()),
            }
        });
        change.await
    }
}

/// What another preset gives an agent. Where it could write before it still can, unless it is trusted less now.
pub(crate) fn switched(
    lifecycle: &Lifecycle,
    preset: &Preset,
    settings: &AgentSettings,
) -> Permissions {
    let (old, further) = (&settings.permissions, &settings.directories);
    let kept = match &old.write {
        Reach::Beneath(paths) if preset.level >= old.level => paths.clone(),
        _ => BTreeSet::new(),
    };
    let mut asked = lifecycle.applied(preset, &settings.cwd, &[]);
    asked.write = asked.write.with(kept);
    if preset.allowed_paths.is_none() {
        asked.read = asked.read.with(further.iter().cloned());
    }
    if preset.level == Level::Trusted {
        asked.write = asked.write.with(further.iter().cloned());
    }
    // What was handed to it by name it keeps likewise, unless the preset has its own say.
    if preset.mcp.is_none() && preset.level == Level::Sandboxed && old.level == Level::Sandboxed {
        asked.mcp = old.mcp.clone();
    }
    asked
}

/// The preset with its links followed, which touches the disk.
pub(crate) async fn linked(mut preset: Preset) -> Preset {
    on_thread(move || {
        preset.resolve_links();
        preset
    })
    .await
}
