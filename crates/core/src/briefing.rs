//! What a model is told before the conversation: the system prompt and the tools.

use std::sync::Arc;

use crate::agent::Snapshot;
use crate::kin::Kin;
use crate::on_thread;
use crate::prompt::{Prompt, Prompts};
use crate::provider::ToolSpec;
use crate::store::StoreError;
use crate::tool::Toolbox;

pub(crate) struct Briefing {
    pub prompts: Arc<dyn Prompts>,
    pub toolbox: Arc<Toolbox>,
    pub kin: Arc<Kin>,
}

#[derive(Clone)]
pub(crate) struct Briefed {
    pub system: Arc<str>,
    pub tools: Arc<[ToolSpec]>,
    /// Of both: never fewer than their tokens.
    pub bytes: usize,
}

impl Briefing {
    /// A model that wants it brief hears only what somebody set for this agent.
    pub async fn of(&self, agent: &Snapshot, brief: bool) -> Result<Briefed, StoreError> {
        if brief {
            let system: Arc<str> =
                agent.settings.system_prompt.as_deref().unwrap_or_default().into();
            return Ok(Briefed { bytes: system.len(), system, tools: Arc::from([]) });
        }
        let rights = self.kin.rights(agent).await?;
        let offer = self.toolbox.offer(&rights.effective);
        let system = self.prompt(agent).await.text;
        Ok(Briefed { bytes: system.len() + offer.bytes, system, tools: offer.tools.clone() })
    }

    /// The agent's system prompt: its own, or the layers of its directory, read once.
    pub async fn prompt(&self, agent: &Snapshot) -> Prompt {
        if let Some(text) = &agent.settings.system_prompt {
            return Prompt { text: text.as_str().into(), source: None };
        }
        if let Some(prompt) = agent.prompt.get() {
            return prompt.clone();
        }
        let (known, prompts) = (agent.prompt.clone(), self.prompts.clone());
        let cwd = agent.settings.cwd.clone();
        on_thread(move || known.get_or_init(|| prompts.load(&cwd)).clone()).await
    }
}
