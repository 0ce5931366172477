//! Making an agent: what was asked for, held against what its parent has.

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::agent::Agent;
use crate::authority::{Action, Denied, Requester};
use crate::engine::{AccessError, Engine};
use crate::name::{AgentId, NameError};
use crate::paths::{self, PathError};
use crate::permission::{DEPTH_MAX, Exceeds, Grants, Level, Permissions, Preset};
use crate::provider::ModelError;
use crate::store::{AgentRecord, Progress, StoreError};

/// What is asked for. Everything absent has a default.
#[derive(Clone, Debug, Default)]
pub struct AgentSpec {
    /// `.` asks for a generated temporary name.
    pub name: Option<String>,
    pub preset: Option<String>,
    pub cwd: Option<String>,
    pub write_paths: Vec<String>,
    pub model: Option<String>,
    pub system_prompt: Option<String>,
    pub disable_tools: Vec<String>,
    pub parent: Option<AgentId>,
}

#[derive(Debug, Clone, Error)]
pub enum CreateError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("an agent named {0} exists already")]
    Exists(AgentId),
    #[error(
        "a saved session named {0} exists already: load_session makes an agent of it, delete_session frees the name"
    )]
    Saved(AgentId),
    #[error("a child of a temporary agent must be temporary too: its name must start with '.'")]
    OutlivesParent,
    #[error("unknown parent agent: {0}")]
    UnknownParent(AgentId),
    #[error("unknown preset: {name} (known: {known})")]
    UnknownPreset { name: String, known: String },
    #[error("preset yolo is given only from the interactive terminal")]
    Yolo,
    #[error("cwd: {0}")]
    Cwd(PathError),
    #[error("allowed_write_paths: {0}")]
    WritePath(PathError),
    #[error("agents nest at most {DEPTH_MAX} deep")]
    TooDeep,
    #[error("the parent's ceiling is exceeded: {0}")]
    Ceiling(#[from] Exceeds),
    #[error("the parent's ceiling is exceeded: a child's level must be below its parent's, so not {}", .0.name())]
    LevelNotBelow(Level),
    #[error("the parent's ceiling is exceeded: {0} lies outside what the parent may use")]
    PathOutside(String),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Denied> for CreateError {
    fn from(denied: Denied) -> Self {
        Self::Access(denied.into())
    }
}

impl Engine {
    /// Makes an agent. A permanent one is on disk when this returns.
    pub async fn create_agent(
        &self,
        requester: &Requester,
        spec: AgentSpec,
    ) -> Result<Arc<Agent>, CreateError> {
        let parent = self.parent_for(requester, spec.parent.as_ref()).await?;
        if let Some(model) = &spec.model {
            self.parts.models.resolve(Some(model))?;
        }
        let _lifecycle = self.lifecycle.read().await;
        if let Some(parent) = &parent
            && parent.ended.is_cancelled()
        {
            return Err(CreateError::UnknownParent(parent.id()));
        }
        let temporary_parent = parent.as_ref().is_some_and(|parent| parent.id().is_temp());
        let (id, _name) = self.reserve(spec.name.as_deref(), temporary_parent).await?;
        let record = self.draft(id, spec, parent.as_deref()).await?;
        let fence = match record.id.is_temp() {
            true => None,
            false => Some(self.parts.store.create(record.clone()).await.map_err(
                |error| match error {
                    StoreError::Exists(id) => CreateError::Exists(id),
                    StoreError::Saved(id) => CreateError::Saved(id),
                    error => error.into(),
                },
            )?),
        };
        let agent = Agent::new(record, fence, Vec::new(), self.pool.version.clone());
        self.pool.insert(agent.clone());
        Ok(agent)
    }

    /// An agent makes children of its own only; the administrator may put a child under any agent.
    async fn parent_for(
        &self,
        requester: &Requester,
        asked: Option<&AgentId>,
    ) -> Result<Option<Arc<Agent>>, CreateError> {
        let parent = match requester {
            Requester::Administrator => asked,
            Requester::Agent(own) if asked.is_none_or(|asked| asked == own) => Some(own),
            Requester::Agent(own) => return Err(Denied::Parent(own.clone()).into()),
        };
        let Some(id) = parent else { return Ok(None) };
        let parent =
            self.agent(requester, id, Action::Manage).await.map_err(|error| match error {
                AccessError::Unknown(id) => CreateError::UnknownParent(id),
                error => error.into(),
            })?;
        if *requester != Requester::Administrator && !parent.permissions().agents {
            return Err(Denied::Create(id.clone()).into());
        }
        Ok(Some(parent))
    }

    /// A name that no agent has, and its lock. Where another caller was quicker, the next generated name is tried.
    async fn reserve(
        &self,
        asked: Option<&str>,
        temporary_parent: bool,
    ) -> Result<(AgentId, tokio::sync::MutexGuard<'_, ()>), CreateError> {
        let generated = asked.is_none_or(|name| name == ".");
        loop {
            let id = self.free_name(asked, temporary_parent)?;
            let lock = self.name_lock(&id).await;
            // Of one that lies in the store only the store knows whether it still does: another process may have ended
            // it.
            match self.pool.live(&id) {
                None => return Ok((id, lock)),
                Some(_) if generated => {}
                Some(_) => return Err(CreateError::Exists(id)),
            }
        }
    }

    /// A child does not outlive its parent: a namesake of the parent would inherit it.
    fn free_name(
        &self,
        asked: Option<&str>,
        temporary_parent: bool,
    ) -> Result<AgentId, CreateError> {
        match asked {
            None if temporary_parent => self.free_name(Some("."), true),
            None => Ok(AgentId::random()),
            Some(".") => {
                let mut numbers = (1..).map(AgentId::temporary);
                Ok(numbers.find(|id| !self.pool.contains(id)).unwrap_or_else(AgentId::random))
            }
            Some(name) => match AgentId::parse(name)? {
                id if temporary_parent && !id.is_temp() => Err(CreateError::OutlivesParent),
                id => Ok(id),
            },
        }
    }

    async fn draft(
        &self,
        id: AgentId,
        spec: AgentSpec,
        parent: Option<&Agent>,
    ) -> Result<AgentRecord, CreateError> {
        let preset = self.preset(spec.preset.as_deref())?;
        let depth = parent.map_or(0, |parent| parent.depth + 1);
        if depth > DEPTH_MAX {
            return Err(CreateError::TooDeep);
        }
        let base = parent.map_or_else(|| self.settings.cwd.clone(), Agent::cwd);
        let (preset, cwd, write_paths) = resolve(preset, base, spec.cwd, spec.write_paths).await?;
        let mut asked = preset.apply(&cwd, &write_paths);
        asked.blocked.extend(self.settings.protected.iter().cloned());
        asked.disabled_tools.extend(spec.disable_tools);
        let (permissions, ceiling) = match parent {
            None => (asked, None),
            Some(parent) => {
                let ceiling = parent.ceiling_for_children();
                let below = |level| CreateError::LevelNotBelow(level);
                let ceiling = ceiling.for_child().ok_or_else(|| below(ceiling.level))?;
                check_asked(&asked, &cwd, &write_paths, &ceiling)?;
                let permissions = asked.meet(&ceiling);
                permissions.within(&ceiling)?;
                (permissions, Some(ceiling))
            }
        };
        Ok(AgentRecord {
            id,
            created_at: crate::now(),
            parent: parent.map(|parent| parent.id()),
            depth,
            permissions,
            ceiling,
            model: spec.model,
            cwd,
            system_prompt: spec.system_prompt,
            grants: Grants::default(),
            progress: Progress::default(),
            message_count: 0,
            last_action_at: None,
        })
    }

    pub(crate) fn preset(&self, name: Option<&str>) -> Result<Preset, CreateError> {
        let name = name.unwrap_or(&self.settings.default_preset);
        let preset = self
            .settings
            .presets
            .get(name)
            .cloned()
            .or_else(|| Preset::built_in(name))
            .ok_or_else(|| {
                let mut known = vec!["sandboxed", "worker", "trusted"];
                known.extend(self.settings.presets.keys().map(String::as_str));
                CreateError::UnknownPreset { name: name.into(), known: known.join(", ") }
            })?;
        if preset.level == Level::Yolo { Err(CreateError::Yolo) } else { Ok(preset) }
    }
}

/// What was asked for in so many words is refused when the parent lacks it, rather than quietly made smaller.
fn check_asked(
    asked: &Permissions,
    cwd: &PathBuf,
    write_paths: &[PathBuf],
    ceiling: &Permissions,
) -> Result<(), CreateError> {
    if asked.level > ceiling.level {
        return Err(CreateError::LevelNotBelow(asked.level));
    }
    let outside = |path: &PathBuf| CreateError::PathOutside(path.display().to_string());
    if !ceiling.read.contains(cwd) || ceiling.blocked.iter().any(|blocked| cwd.starts_with(blocked))
    {
        return Err(outside(cwd));
    }
    match write_paths.iter().find(|path| !ceiling.write.contains(path)) {
        Some(path) => Err(outside(path)),
        None => Ok(()),
    }
}

/// Makes every path what the disk says it is: a rule on a link would be a rule on nothing.
async fn resolve(
    mut preset: Preset,
    base: PathBuf,
    cwd: Option<String>,
    write_paths: Vec<String>,
) -> Result<(Preset, PathBuf, Vec<PathBuf>), CreateError> {
    let plain = preset.allowed_paths.is_none() && preset.blocked_paths.is_empty();
    if plain && cwd.is_none() && write_paths.is_empty() {
        return Ok((preset, base, Vec::new()));
    }
    let work = move || {
        let cwd = match cwd {
            Some(cwd) => paths::directory(&base, &cwd).map_err(CreateError::Cwd)?,
            None => base,
        };
        let places: Result<_, _> =
            write_paths.iter().map(|path| paths::place(&cwd, path)).collect();
        preset.resolve_links();
        Ok((preset, cwd, places.map_err(CreateError::WritePath)?))
    };
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
