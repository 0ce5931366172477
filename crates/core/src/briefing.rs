//! What a model is told before the conversation: made anew, or as the epoch began with it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::agent::{Agent, Snapshot};
use crate::brief::{Brief, BriefSource};
use crate::conversation::Conversation;
use crate::kin::Kin;
use crate::list::List;
use crate::message::{Part, Role, SharedMessage};
use crate::model::ModelInfo;
use crate::on_thread;
use crate::prompt::{Prompt, Prompts};
use crate::store::{Store, StoreError};
use crate::tool::ServerUser;
use crate::toolbox::Toolbox;

/// With this begins what a model is told of instructions that have changed since the conversation began.
const CHANGED: &str = "The instructions have changed. They are now:\n\n";

pub(crate) struct Briefing {
    pub prompts: Arc<dyn Prompts>,
    pub toolbox: Arc<Toolbox>,
    pub kin: Arc<Kin>,
    pub store: Arc<dyn Store>,
}

/// What the calls of a turn begin with.
#[derive(Clone)]
pub(crate) struct Epoch {
    pub brief: Arc<Brief>,
    /// Instructions that the model has not been told of yet.
    pub news: Option<String>,
}

impl Briefing {
    /// What the agent's model would be told if the conversation began now. A model that wants it brief hears only what
    /// somebody set for this agent.
    pub async fn of(&self, agent: &Snapshot, brief: bool) -> Result<Arc<Brief>, StoreError> {
        let (system, tools, source) = if brief {
            let system = agent.settings.system_prompt.as_deref().unwrap_or_default().into();
            (system, Arc::from([]), BriefSource::Own)
        } else {
            let rights = self.kin.rights(agent).await?;
            let tools = self.toolbox.offer(&rights.effective, &rights.servers).tools.clone();
            let source = match &agent.settings.system_prompt {
                Some(_) => BriefSource::Own,
                None => BriefSource::Directory(agent.settings.cwd.clone()),
            };
            (self.prompt(agent).await.text, tools, source)
        };
        // Most turns begin as the last one did, and then nothing has to be digested.
        let same = |known: &&Arc<Brief>| {
            let tools = Arc::ptr_eq(&known.tools, &tools) || known.tools == tools;
            tools && known.system == system && known.source == source
        };
        let known = agent.brief.as_ref().filter(same).cloned();
        Ok(known.unwrap_or_else(|| Arc::new(Brief::new(system, tools, source))))
    }

    /// What the next turn of the agent begins with. An epoch goes on with the words it began with; what a file says by
    /// now is told as news.
    pub async fn epoch(&self, agent: &Snapshot, model: &ModelInfo) -> Result<Epoch, StoreError> {
        let fresh = self.of(agent, model.brief).await?;
        let begun = agent.conversation.last_made(&model.provider_name, model.wire);
        let Some(begun) = begun.filter(|begun| begun.briefing != fresh.digest) else {
            return Ok(Epoch { brief: fresh, news: None });
        };
        let known = match &agent.brief {
            Some(known) if known.digest == begun.briefing => Some(known.clone()),
            _ => self.store.briefing(begun.briefing).await?.map(Arc::new),
        };
        let goes_on = |known: &Arc<Brief>| {
            let told = matches!(known.source, BriefSource::Directory(_));
            known.tools == fresh.tools
                && known.source == fresh.source
                && (told || known.system == fresh.system)
        };
        Ok(match known.filter(goes_on) {
            Some(known) => {
                let told = last_told(&agent.conversation);
                let told = told.as_deref().unwrap_or(&known.system);
                let news = (told != &*fresh.system).then(|| format!("{CHANGED}{}", fresh.system));
                Epoch { brief: known, news }
            }
            None => Epoch { brief: fresh, news: None },
        })
    }

    /// Finds out which tools the agent has of servers, before a turn that may be the first to need them. A model that
    /// wants it brief is told of none.
    pub async fn prepare(&self, agent: &Agent, model: &ModelInfo) -> Result<(), StoreError> {
        if !model.brief {
            let rights = self.kin.rights(&agent.snapshot()).await?;
            let user = ServerUser { agent, permissions: &rights.effective, own: &rights.servers };
            self.toolbox.source().prepare(user).await;
        }
        Ok(())
    }

    /// The agent's system prompt: its own, or the layers of its directory.
    pub async fn prompt(&self, agent: &Snapshot) -> Prompt {
        if let Some(text) = &agent.settings.system_prompt {
            return Prompt { text: text.as_str().into(), source: None };
        }
        let place = agent.prompt.clone();
        let prompt = match place.fresh() {
            Some(prompt) => prompt,
            None => {
                let (prompts, cwd) = (self.prompts.clone(), agent.settings.cwd.clone());
                on_thread(move || place.put(prompts.load(&cwd))).await
            }
        };
        with_directories(prompt, &agent.settings.directories)
    }
}

/// The environment is at the end of the layers, and the directories that are the agent's beside its own belong to it.
fn with_directories(mut prompt: Prompt, directories: &BTreeSet<PathBuf>) -> Prompt {
    if !directories.is_empty() {
        let line = |dir: &PathBuf| format!("- Further directory: {}\n", dir.display());
        let lines: String = directories.iter().map(line).collect();
        prompt.text = format!("{}{lines}", prompt.text).into();
    }
    prompt
}

/// How many of the messages belong to earlier epochs of the model's service, by their briefs.
pub(crate) fn earlier(messages: &List<SharedMessage>, model: &ModelInfo, brief: &Brief) -> usize {
    let foreign = |message: &SharedMessage| {
        message.meta.made.as_ref().is_some_and(|made| {
            made.briefing != brief.digest
                && made.origin.provider == model.provider_name
                && made.origin.wire == model.wire
        })
    };
    let back = messages.iter().rev().position(foreign);
    back.map_or(0, |back| messages.len() - back)
}

/// The instructions that the model was told last, if they ever changed in this epoch.
fn last_told(conversation: &Conversation) -> Option<String> {
    let context = conversation.context();
    let said = context.from(conversation.kept()).rev().filter(|it| it.role == Role::User);
    said.flat_map(|message| message.parts.iter()).find_map(|part| match part {
        Part::Context(text) => text.strip_prefix(CHANGED).map(str::to_owned),
        _ => None,
    })
}
