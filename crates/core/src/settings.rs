//! Changing a living agent's directory, prompt and model. Each change is on disk before it is answered.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::agent::{Agent, Settings};
use crate::authority::{Denied, Requester};
use crate::engine::Engine;
use crate::paths::{self, PathError};
use crate::permission::{Exceeds, Level, Permissions, Reach};
use crate::prompt::Prompt;
use crate::provider::{Model, ModelError};
use crate::store::StoreError;

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
    Denied(#[from] Denied),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Lets the agent work in another directory; where it may read and write follows as far as it followed the old
    /// one. Refused outside the ceiling, and to the agent itself also outside of what it may do now.
    pub async fn set_cwd(
        &self,
        requester: &Requester,
        agent: &Arc<Agent>,
        cwd: String,
    ) -> Result<PathBuf, SettingsError> {
        let own = *requester == Requester::Agent(agent.id());
        let base = agent.cwd();
        let found = tokio::task::spawn_blocking(move || paths::directory(&base, &cwd))
            .await
            .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        let found = match found {
            // What is there is not told to an agent that may not look.
            Err(_) if own => return Err(Denied::OwnDirectory(agent.id()).into()),
            found => found?,
        };
        let change = |settings: &mut Settings| {
            let moved = self.moved(settings, &found)?;
            if own && moved.within(&settings.permissions).is_err() {
                return Err(Denied::OwnDirectory(agent.id()).into());
            }
            if let Some(ceiling) = &settings.ceiling {
                if !ceiling.read.contains(&found) {
                    return Err(outside(&found));
                }
                moved.within(ceiling)?;
            }
            settings.permissions = moved;
            settings.cwd = found.clone();
            Ok(())
        };
        agent.change(&*self.parts.store, change).await?;
        agent.forget_prompt();
        Ok(found)
    }

    /// The agent's permissions if it worked in `cwd`: the roots that its level gives to the directory move with it,
    /// what was named in so many words stays.
    fn moved(&self, settings: &Settings, cwd: &Path) -> Result<Permissions, SettingsError> {
        let mut moved = settings.permissions.clone();
        if moved.blocked.iter().any(|blocked| cwd.starts_with(blocked)) {
            return Err(outside(cwd));
        }
        let named = |preset: &str| {
            self.preset(Some(preset)).is_ok_and(|preset| preset.allowed_paths.is_some())
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

    /// The prompt the agent's next turn begins with.
    pub async fn system_prompt(&self, agent: &Arc<Agent>) -> Prompt {
        self.prompt(agent).await
    }

    pub async fn set_system_prompt(
        &self,
        agent: &Arc<Agent>,
        prompt: String,
    ) -> Result<(), StoreError> {
        let change = |settings: &mut Settings| {
            settings.system_prompt = Some(prompt);
            Ok(())
        };
        agent.change(&*self.parts.store, change).await
    }

    /// The model that the agent's next turn asks.
    pub fn model(&self, agent: &Agent) -> Result<Model, ModelError> {
        self.parts.models.resolve(agent.model().as_deref())
    }

    /// Gives the agent another model, from its next turn on. One whose window is too small for what the conversation
    /// has come to is refused.
    pub async fn set_model(
        &self,
        agent: &Arc<Agent>,
        name: String,
    ) -> Result<Model, SettingsError> {
        let model = self.parts.models.resolve(Some(&name))?;
        self.check_window(agent, &model).await?;
        let change = |settings: &mut Settings| {
            settings.model = Some(name);
            Ok::<_, SettingsError>(())
        };
        agent.change(&*self.parts.store, change).await?;
        Ok(model)
    }

    pub(crate) async fn check_window(
        &self,
        agent: &Arc<Agent>,
        model: &Model,
    ) -> Result<(), SettingsError> {
        let window = u64::from(model.context_window);
        let tokens = self.count_tokens(agent).await.total();
        match tokens > window {
            true => Err(SettingsError::Window { tokens, model: model.alias.clone(), window }),
            false => Ok(()),
        }
    }
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
