//! Keeping a conversation within the model's window: counting it, and summarising its older part.

use std::fmt::Write as _;
use std::sync::Arc;

use futures_util::StreamExt;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, Snapshot};
use crate::briefing::{Briefed, Briefing};
use crate::message::{Message, Meta, Role, SharedMessage};
use crate::on_thread;
use crate::provider::{
    Model, ModelCall, ModelError, Models, ProviderError, ProviderEvent, ToolSpec,
};
use crate::redact::redact;
use crate::store::StoreError;
use crate::tokens::TokenCounter;

/// Counts conversations and shortens them.
pub struct Compactor {
    pub(crate) models: Arc<dyn Models>,
    pub(crate) counter: Arc<dyn TokenCounter>,
    pub(crate) briefing: Arc<Briefing>,
    pub(crate) settings: CompactionSettings,
}

#[derive(Clone, Debug)]
pub struct CompactionSettings {
    /// Whether turns compact on their own when the window fills.
    pub enabled: bool,
    /// The model that summarises; the agent's own when absent.
    pub model: Option<String>,
    /// The part of the window that may be filled before older messages are summarised.
    pub trigger_threshold: f64,
    /// The part of the window that recent messages, kept to the letter, may take.
    pub recent_preserve_ratio: f64,
}

/// Tokens of an agent's context, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCount {
    pub system: u64,
    pub tools: u64,
    pub messages: u64,
    /// The model's window; 0 when the agent's model is not available.
    pub budget: u64,
}

impl TokenCount {
    pub fn total(&self) -> u64 {
        self.system + self.tools + self.messages
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compaction {
    Done {
        before: u64,
        after: u64,
    },
    /// Nothing was done, and why.
    Skipped(&'static str),
}

/// Why a conversation was not shortened.
#[derive(Debug, Clone, Error)]
pub enum CompactError {
    #[error("the conversation has {tokens} tokens and the model's window is {window}")]
    TooLong { tokens: u64, window: u64 },
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

const SUMMARY_PROMPT: &str = "You summarise the earlier part of a conversation between a user and an assistant so that \
the assistant can go on without it. Keep decisions, facts, names, file paths, numbers and open tasks. Leave out \
greetings and anything superseded. Answer with the summary alone.";

/// Longest part of one message, or of one call's arguments, that the summariser is shown: a huge tool output must not
/// push the rest out.
const SUMMARY_MESSAGE_CHARS_MAX: usize = 8_000;

impl Compactor {
    pub async fn count(&self, agent: &Snapshot) -> Result<TokenCount, StoreError> {
        let (budget, brief) = match self.models.resolve(agent.settings.model.as_deref()) {
            Ok(model) => (model.context_window.into(), model.brief),
            Err(_) => (0, false),
        };
        let Briefed { system, tools, .. } = self.briefing.of(agent, brief).await?;
        let (messages, counter) = (agent.conversation.context(), self.counter.clone());
        Ok(on_thread(move || TokenCount {
            system: counter.count(&system).into(),
            tools: tools.iter().map(|tool: &ToolSpec| tool.tokens(&*counter)).sum(),
            messages: messages.iter().map(|message| u64::from(message.tokens(&*counter))).sum(),
            budget,
        })
        .await)
    }

    /// Summarises the older part of the conversation, if it must. Called in the agent's line of turns.
    pub(crate) async fn compact(
        &self,
        agent: &Agent,
        force: bool,
        cancel: &CancellationToken,
    ) -> Result<Compaction, CompactError> {
        let now = agent.snapshot();
        let model = self.models.resolve(now.settings.model.as_deref())?;
        let before = self.count(&now).await?.total();
        if !force && !self.over_threshold(before, &model) {
            return Ok(Compaction::Skipped("below_threshold"));
        }
        self.summarise(agent, &model, before, cancel).await
    }

    /// Makes sure that `next` fits behind the conversation, summarising its older part if it must.
    ///
    /// The text's bytes bound its tokens from above, so the tokenizer is not even loaded before they could matter.
    pub(crate) async fn make_room(
        &self,
        agent: &Agent,
        model: &Model,
        briefed: &Briefed,
        next: &str,
        cancel: &CancellationToken,
    ) -> Result<(), CompactError> {
        let now = agent.snapshot();
        let bound = briefed.bytes + now.conversation.context_bytes() + next.len();
        if !self.over_threshold(bound as u64, model) {
            return Ok(());
        }
        let (counter, text) = (self.counter.clone(), next.to_owned());
        let next_tokens = on_thread(move || u64::from(counter.count(&text))).await;
        let mut tokens = self.count(&now).await?.total() + next_tokens;
        if self.settings.enabled
            && self.over_threshold(tokens, model)
            && let Compaction::Done { after, .. } =
                self.summarise(agent, model, tokens, cancel).await?
        {
            tokens = after + next_tokens;
        }
        let window = u64::from(model.context_window);
        if tokens > window { Err(CompactError::TooLong { tokens, window }) } else { Ok(()) }
    }

    /// How much of a window the context may fill before it is compacted; all of it where nothing is compacted.
    pub fn context_capacity(&self, window: u64) -> u64 {
        match self.settings.enabled {
            true => (window as f64 * self.settings.trigger_threshold) as u64,
            false => window,
        }
    }

    fn over_threshold(&self, tokens: u64, model: &Model) -> bool {
        tokens as f64 > f64::from(model.context_window) * self.settings.trigger_threshold
    }

    async fn summarise(
        &self,
        agent: &Agent,
        model: &Model,
        before: u64,
        cancel: &CancellationToken,
    ) -> Result<Compaction, CompactError> {
        let keep = (f64::from(model.context_window) * self.settings.recent_preserve_ratio) as u64;
        let (now, counter) = (agent.snapshot(), self.counter.clone());
        let context: Vec<_> = now.conversation.context().iter().cloned().collect();
        let counted = context.clone();
        let cut = on_thread(move || cut_point(&counted, keep, |it| it.tokens(&*counter).into()));
        let Some(cut) = cut.await else {
            return Ok(Compaction::Skipped("nothing_to_compact"));
        };
        let summariser = match &self.settings.model {
            Some(name) => self.models.resolve(Some(name))?,
            None => model.clone(),
        };
        let call = summary_call(&summariser, &context[..cut]);
        let summary = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(Compaction::Skipped("cancelled")),
            summary = complete(&summariser, call) => summary?,
        };
        let covers = match context.get(cut) {
            Some(first_kept) => now.conversation.history_index(first_kept),
            None => Some(now.conversation.len()),
        };
        let covers = covers.and_then(|covers| usize::try_from(covers).ok());
        let meta = Meta { at: crate::now(), covers, ..Meta::default() };
        let summary = Arc::new(Message::new(Role::Summary, redact(&summary), meta));
        let progress = agent.look().progress;
        let shorter = agent.append(vec![summary], progress).await?;
        Ok(Compaction::Done { before, after: self.count(&shorter).await?.total() })
    }
}

/// Where the context is cut: the messages before the returned index are summarised. Cuts only before a user message,
/// so that no tool call is parted from its result, and keeps at most `keep` tokens. `None` when less than one whole
/// exchange would be summarised.
fn cut_point(
    context: &[SharedMessage],
    keep: u64,
    tokens: impl Fn(&Message) -> u64,
) -> Option<usize> {
    let mut kept = 0;
    let mut cut = context.len();
    for (index, message) in context.iter().enumerate().rev() {
        kept += tokens(message);
        if kept > keep {
            break;
        }
        if message.role == Role::User {
            cut = index;
        }
    }
    let summarised = context[..cut].iter().filter(|message| message.role != Role::Summary).count();
    (summarised >= 2).then_some(cut)
}

fn summary_call(model: &Model, messages: &[SharedMessage]) -> ModelCall {
    let mut transcript = String::new();
    let short = |text: &str| text.chars().take(SUMMARY_MESSAGE_CHARS_MAX).collect::<String>();
    for message in messages {
        let role = match message.role {
            Role::User => "User",
            Role::Assistant => "Assistant",
            Role::Tool => "Tool result",
            Role::Summary => "Earlier summary",
        };
        let _ = writeln!(transcript, "{role}: {}", redact(&short(&message.content)));
        for call in &message.tool_calls {
            let _ = writeln!(
                transcript,
                "Assistant called {} with {}",
                call.name,
                redact(&short(&call.arguments.to_string()))
            );
        }
    }
    ModelCall {
        model_id: model.id.clone(),
        reasoning: model.reasoning,
        system: SUMMARY_PROMPT.into(),
        tools: Arc::from([]),
        messages: [Arc::new(Message::new(Role::User, transcript, Meta::default()))]
            .into_iter()
            .collect(),
        volatile: None,
        max_tokens: None,
        schema: None,
    }
}

/// The whole text of a model call.
async fn complete(model: &Model, call: ModelCall) -> Result<String, ProviderError> {
    let mut events = model.provider.stream(call).await?;
    let mut text = String::new();
    while let Some(event) = events.next().await {
        if let ProviderEvent::Text(piece) = event? {
            text.push_str(&piece);
        }
    }
    if text.trim().is_empty() {
        Err(ProviderError::Broken("the summary was empty".into()))
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `roles` is a word such as `uaua`; every message has one token. Expects how many are summarised.
    fn check(roles: &str, keep: u64, expected: Option<usize>) {
        let message = |role: char| {
            let role = match role {
                'u' => Role::User,
                'a' => Role::Assistant,
                't' => Role::Tool,
                _ => Role::Summary,
            };
            Arc::new(Message::new(role, "", Meta::default()))
        };
        let context: Vec<_> = roles.chars().map(message).collect();
        assert_eq!(cut_point(&context, keep, |_| 1), expected, "{roles} {keep}");
    }

    #[test]
    fn the_cut_stands_before_a_user_message() {
        check("uauaua", 2, Some(4));
        check("uauaua", 3, Some(4));
        check("uauaua", 4, Some(2));
        check("uatauata", 4, Some(4));
        check("uauaua", 0, Some(6));
    }

    #[test]
    fn too_little_to_summarise_is_left_alone() {
        check("", 0, None);
        check("u", 0, None);
        check("ua", 9, None);
        check("su", 0, None);
        check("sua", 0, Some(3));
        check("suaua", 2, Some(3));
    }
}
