//! Keeping a conversation within the model's window: counting it, and summarising its older part.

use std::fmt::Write as _;
use std::sync::Arc;

use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::agent::Agent;
use crate::engine::Engine;
use crate::message::{Message, Meta, Role, SharedMessage};
use crate::name::TurnId;
use crate::provider::{Model, ModelCall, ProviderError, ProviderEvent};
use crate::redact::redact;
use crate::turn::TurnError;

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

const SUMMARY_PROMPT: &str = "You summarise the earlier part of a conversation between a user and an assistant so that \
the assistant can go on without it. Keep decisions, facts, names, file paths, numbers and open tasks. Leave out \
greetings and anything superseded. Answer with the summary alone.";

/// Longest part of one message, or of one call's arguments, that the summariser is shown: a huge tool output must not
/// push the rest out.
const SUMMARY_MESSAGE_CHARS_MAX: usize = 8_000;

impl Engine {
    pub async fn count_tokens(&self, agent: &Arc<Agent>) -> TokenCount {
        let (budget, brief) = match self.parts.models.resolve(agent.model().as_deref()) {
            Ok(model) => (model.context_window.into(), model.brief),
            Err(_) => (0, false),
        };
        let (system, tools) = self.briefing(agent, brief).await;
        let messages = agent.with_conversation(|conversation| conversation.context().to_vec());
        let counter = self.parts.counter.clone();
        let count = move || TokenCount {
            system: counter.count(&system).into(),
            tools: tools.iter().map(|tool| tool_tokens(tool, &*counter)).sum(),
            messages: messages.iter().map(|message| u64::from(message.tokens(&*counter))).sum(),
            budget,
        };
        tokio::task::spawn_blocking(count)
            .await
            .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// Summarises the older part of the conversation now. Waits for its turn and for a slot like any other.
    pub async fn compact(&self, agent: &Arc<Agent>, force: bool) -> Result<Compaction, TurnError> {
        let admission = self.slots.admit()?;
        let _turn = agent.turn_lock.lock().await;
        let _slot = admission.slot().await;
        self.compact_now(agent, force).await
    }

    async fn compact_now(&self, agent: &Arc<Agent>, force: bool) -> Result<Compaction, TurnError> {
        let model = self.parts.models.resolve(agent.model().as_deref())?;
        let before = self.count_tokens(agent).await.total();
        if !force && !self.over_threshold(before, &model) {
            return Ok(Compaction::Skipped("below_threshold"));
        }
        let id = TurnId::random();
        let place = agent.enter_turn(&id).ok_or(TurnError::Duplicate(id))?;
        let summary = self.summarise(agent, &model, before, &place.cancel);
        summary.instrument(place.span.clone()).await
    }

    /// Makes sure that `next` fits behind the conversation, summarising its older part if it must.
    ///
    /// The text's bytes bound its tokens from above, so the tokenizer is not even loaded before they could matter.
    pub(crate) async fn make_room(
        &self,
        agent: &Arc<Agent>,
        model: &Model,
        next: &str,
        cancel: &CancellationToken,
    ) -> Result<(), TurnError> {
        let (system, tools) = self.briefing(agent, model.brief).await;
        let context_bytes = agent.with_conversation(|conversation| conversation.context_bytes());
        let tools_bytes: usize = tools
            .iter()
            .map(|tool| {
                tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
            })
            .sum();
        let bound = (system.len() + context_bytes + tools_bytes + next.len()) as u64;
        if !self.over_threshold(bound, model) {
            return Ok(());
        }
        let (counter, text) = (self.parts.counter.clone(), next.to_owned());
        let next_tokens = tokio::task::spawn_blocking(move || u64::from(counter.count(&text)))
            .await
            .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        let mut tokens = self.count_tokens(agent).await.total() + next_tokens;
        if self.settings.compaction.enabled
            && self.over_threshold(tokens, model)
            && let Compaction::Done { after, .. } =
                self.summarise(agent, model, tokens, cancel).await?
        {
            tokens = after + next_tokens;
        }
        let window = u64::from(model.context_window);
        if tokens > window { Err(TurnError::ContextTooLong { tokens, window }) } else { Ok(()) }
    }

    fn over_threshold(&self, tokens: u64, model: &Model) -> bool {
        tokens as f64 > f64::from(model.context_window) * self.settings.compaction.trigger_threshold
    }

    /// Called by the holder of the agent's turn lock.
    async fn summarise(
        &self,
        agent: &Arc<Agent>,
        model: &Model,
        before: u64,
        cancel: &CancellationToken,
    ) -> Result<Compaction, TurnError> {
        let keep = (f64::from(model.context_window)
            * self.settings.compaction.recent_preserve_ratio) as u64;
        let counter = self.parts.counter.clone();
        let context = agent.with_conversation(|conversation| conversation.context().to_vec());
        let Some(cut) = cut_point(&context, keep, |message| message.tokens(&*counter).into())
        else {
            return Ok(Compaction::Skipped("nothing_to_compact"));
        };
        let summariser = match &self.settings.compaction.model {
            Some(name) => self.parts.models.resolve(Some(name))?,
            None => model.clone(),
        };
        let call = summary_call(&summariser, &context[..cut]);
        let summary = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(Compaction::Skipped("cancelled")),
            () = self.slots.cancel_all.cancelled() => return Ok(Compaction::Skipped("cancelled")),
            summary = complete(&summariser, call) => summary?,
        };
        let covers = agent.with_conversation(|conversation| match context.get(cut) {
            Some(first_kept) => conversation.history_index(first_kept),
            None => Some(conversation.history().len()),
        });
        let meta = Meta { at: crate::now(), covers, ..Meta::default() };
        let summary = Arc::new(Message::new(Role::Summary, redact(&summary), meta));
        let progress = agent.progress();
        agent.append(&*self.parts.store, &*self.parts.logs, vec![summary], progress).await?;
        // The files the prompt came from may have changed since the conversation began.
        agent.forget_prompt();
        Ok(Compaction::Done { before, after: self.count_tokens(agent).await.total() })
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
        messages: vec![Arc::new(Message::new(Role::User, transcript, Meta::default()))],
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

fn tool_tokens(tool: &crate::provider::ToolSpec, counter: &dyn crate::tokens::TokenCounter) -> u64 {
    let count = |text: &str| u64::from(counter.count(text));
    count(&tool.name) + count(&tool.description) + count(&tool.parameters.to_string())
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
