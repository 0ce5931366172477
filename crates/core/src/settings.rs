//! Changing a living agent's directory, prompt and model. Each change is on disk before it is answered.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::account::Exceeded;
use crate::agent::{Agent, AgentSettings, Snapshot};
use crate::authority::{Denied, Requester};
use crate::briefing::Briefing;
use crate::compact::Compactor;
use crate::lifecycle::Lifecycle;
use crate::model::Reasoning;
use crate::on_thread;
use crate::paths::{self, PathError};
use crate::permission::{Exceeds, Level, Permissions, Reach};
use crate::prompt::Prompt;
use crate::provider::{Model, ModelError, Models};
use crate::store::StoreError;

/// Directories of one agent, beside the one that it works in.
pub const DIRECTORIES_MAX: usize = 64;

pub struct Tuning {
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) models: Arc<dyn Models>,
    pub(crate) briefing: Arc<Briefing>,
    pub(crate) compactor: Arc<Compactor>,
}

#[derive(Debug, Clone, Error)]
pub enum SettingsError {
    #[error("cwd: {0}")]
    Cwd(#[from] PathError),
    #[error("cwd: {0} lies outside what the agent may read")]
    Outside(String),
    #[error("cwd: the agent's ceiling is exceeded: {0}")]
    Ceiling(#[from] Exceeds),
    #[error("additional_directories: {0}")]
    Directory(PathError),
    #[error("additional_directories: {0} lies outside what the agent may read")]
    DirectoryOutside(String),
    #[error("additional_directories: at most {DIRECTORIES_MAX}")]
    Directories,
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("the conversation has {tokens} tokens and the window of model {model} is {window}")]
    Window { tokens: u64, model: String, window: u64 },
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Tuning {
    /// Lets the agent work in another directory; where it may read and write follows as far as it followed the old
    /// one. `additional`, where it is given, takes the place of the directories that it had beside that. Refused outside the
    /// ceiling, and to the agent itself also outside of what it may do now.
    pub async fn set_cwd(
        &self,
        requester: &Requester,
        agent: &Agent,
        cwd: String,
        additional: Option<Vec<String>>,
    ) -> Result<PathBuf, SettingsError> {
        if additional.as_ref().is_some_and(|them| them.len() > DIRECTORIES_MAX) {
            return Err(SettingsError::Directories);
        }
        let now = agent.snapshot();
        let own = *requester == Requester::Agent(now.id.clone());
        let base = now.settings.cwd.clone();
        let find = move || -> Result<_, SettingsError> {
            let found = paths::directory(&base, &cwd)?;
            let further = additional.map(|them| {
                let further = them.iter().map(|dir| paths::directory(&found, dir));
                further.collect::<Result<BTreeSet<_>, _>>().map_err(SettingsError::Directory)
            });
            Ok((found, further.transpose()?))
        };
        let (found, further) = match on_thread(find).await {
            // What is there is not told to an agent that may not look.
            Err(_) if own => return Err(Denied::OwnDirectory(now.id.clone()).into()),
            found => found?,
        };
        let lifecycle = self.lifecycle.clone();
        let change = agent.change(move |settings, now| {
            let further = further.unwrap_or_else(|| settings.directories.clone());
            let moved = moved(&lifecycle, settings, &found, &further)?;
            if own && moved.within(&settings.permissions).is_err() {
                return Err(Denied::OwnDirectory(now.id.clone()).into());
            }
            if let Some(ceiling) = &now.ceiling {
                if !ceiling.read.contains(&found) {
                    return Err(outside(&found));
                }
                if let Some(dir) = further.iter().find(|dir| !ceiling.read.contains(dir)) {
                    return Err(SettingsError::DirectoryOutside(dir.display().to_string()));
                }
                moved.within(ceiling)?;
            }
            settings.permissions = moved;
            settings.directories = further;
            settings.cwd = found;
            Ok(())
        });
        Ok(change.await?.settings.cwd.clone())
    }

    /// The prompt the agent's next turn begins with.
    pub async fn system_prompt(&self, agent: &Agent) -> Prompt {
        self.briefing.prompt(&agent.snapshot()).await
    }

    pub async fn set_system_prompt(
        &self,
        agent: &Agent,
        prompt: String,
    ) -> Result<(), SettingsError> {
        let account = agent.account().clone();
        let change = agent.change(move |settings, _| {
            if prompt.len() > settings.system_prompt.as_ref().map_or(0, String::len) {
                account.check_memory()?;
            }
            settings.system_prompt = Some(prompt);
            Ok::<_, SettingsError>(())
        });
        change.await.map(drop)
    }

    /// The model that the agent's next turn asks.
    pub fn model(&self, agent: &Agent) -> Result<Model, ModelError> {
        self.models.resolve(agent.look().settings.model.as_deref())
    }

    /// Gives the agent another model, from its next turn on. One whose window is too small for what the conversation
    /// has come to is refused.
    pub async fn set_model(
        &self,
        agent: &Agent,
        name: String,
        reasoning: Option<Reasoning>,
    ) -> Result<Model, SettingsError> {
        let model = self.models.resolve(Some(&name))?;
        self.check_window(&agent.snapshot(), &model).await?;
        let change = agent.change(move |settings, _| {
            settings.model = Some(name);
            settings.reasoning = reasoning;
            Ok::<_, SettingsError>(())
        });
        change.await?;
        Ok(model)
    }

    pub(crate) async fn check_window(
        &self,
        agent: &Snapshot,
        model: &Model,
    ) -> Result<(), SettingsError> {
        let window = u64::from(model.context_window);
        let tokens = self.compactor.count(agent).await?.total();
        match tokens > window {
            true => Err(SettingsError::Window { tokens, model: model.alias.clone(), window }),
            false => Ok(()),
        }
    }
}

/// The agent's permissions if it worked in `cwd`: the roots that its level gives to the directory move with it, what was
/// named in so many words stays.
fn moved(
    lifecycle: &Lifecycle,
    settings: &AgentSettings,
    cwd: &Path,
    further: &BTreeSet<PathBuf>,
) -> Result<Permissions, SettingsError> {
    let mut moved = settings.permissions.clone();
    let is_blocked = |dir: &Path| moved.blocked.iter().any(|blocked| dir.starts_with(blocked));
    let further_outside =
        |dir: &PathBuf| SettingsError::DirectoryOutside(dir.display().to_string());
    if is_blocked(cwd) {
        return Err(outside(cwd));
    }
    if let Some(dir) = further.iter().find(|dir| is_blocked(dir)) {
        return Err(further_outside(dir));
    }
    let exchanged = |reach: &Reach| match reach {
        Reach::Anywhere => Reach::Anywhere,
        Reach::Beneath(roots) => {
            let left =
                |root: &&PathBuf| **root == settings.cwd || !settings.directories.contains(*root);
            let left = Reach::Beneath(roots.iter().filter(left).cloned().collect());
            replaced(&left, &settings.cwd, cwd).with(further.iter().cloned())
        }
    };
    let named = |preset: &str| {
        lifecycle.preset(preset).is_some_and(|preset| preset.allowed_paths.is_some())
    };
    if named(&moved.preset) {
        // A preset that lists where its agents may read is not left by walking.
        if !moved.read.contains(cwd) {
            return Err(outside(cwd));
        }
        if let Some(dir) = further.iter().find(|dir| !moved.read.contains(dir)) {
            return Err(further_outside(dir));
        }
    } else {
        moved.read = exchanged(&moved.read);
    }
    if moved.level == Level::Trusted {
        moved.write = exchanged(&moved.write);
    }
    Ok(moved)
}

/// `reach` with the root `old` moved to `new`.
fn replaced(reach: &Reach, old: &Path, new: &Path) -> Reach {
    match reach {
        Reach::Anywhere => Reach::Anywhere,
        Reach::Beneath(roots) => {
            let moved = |root: &PathBuf| if root == old { new.to_path_buf() } else { root.clone() };
            Reach::Beneath(roots.iter().map(moved).collect())
        }
    }
}

fn outside(cwd: &Path) -> SettingsError {
    SettingsError::Outside(cwd.display().to_string())
}
