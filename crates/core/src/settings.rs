//! Changing a living agent's directory, prompt and model. Each change is on disk before it is answered.

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
    /// one. Refused outside the ceiling, and to the agent itself also outside of what it may do now.
    pub async fn set_cwd(
        &self,
        requester: &Requester,
        agent: &Agent,
        cwd: String,
    ) -> Result<PathBuf, SettingsError> {
        let now = agent.snapshot();
        let own = *requester == Requester::Agent(now.id.clone());
        let base = now.settings.cwd.clone();
        let found = match on_thread(move || paths::directory(&base, &cwd)).await {
            // What is there is not told to an agent that may not look.
            Err(_) if own => return Err(Denied::OwnDirectory(now.id.clone()).into()),
            found => found?,
        };
        let lifecycle = self.lifecycle.clone();
        let change = agent.change(move |settings, now| {
            let moved = moved(&lifecycle, settings, &found)?;
            if own && moved.within(&settings.permissions).is_err() {
                return Err(Denied::OwnDirectory(now.id.clone()).into());
            }
            if let Some(ceiling) = &now.ceiling {
                if !ceiling.read.contains(&found) {
                    return Err(outside(&found));
                }
                moved.within(ceiling)?;
            }
            settings.permissions = moved;
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
) -> Result<Permissions, SettingsError> {
    let mut moved = settings.permissions.clone();
    if moved.blocked.iter().any(|blocked| cwd.starts_with(blocked)) {
        return Err(outside(cwd));
    }
    let named = |preset: &str| {
        lifecycle.preset(preset).is_some_and(|preset| preset.allowed_paths.is_some())
    };
    if named(&moved.preset) {
        // A preset that lists where its agents may read is not left by walking.
        if !moved.read.contains(cwd) {
            return Err(outside(cwd));
        }
    } else {
        moved.read = replaced(&moved.read, &settings.cwd, cwd);
    }
    if moved.level == Level::Trusted {
        moved.write = replaced(&moved.write, &settings.cwd, cwd);
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
