//! The wire formats: each writes a request body and reads the events of an answer. What they share stands here.

pub(super) mod chat;
pub(super) mod generate_content;
pub(super) mod messages;
pub(super) mod ollama;
pub(super) mod responses;
mod shown;
#[cfg(test)]
mod tests;

use nexus_core::list::List;
use nexus_core::message::{Message, Origin, Part, Role, SharedMessage};
use nexus_core::model::{Effort, Reasoning};
use nexus_core::provider::{ModelCall, ProviderError};
use serde_json::Value;

/// The messages a model is shown. A message that says nothing (an answer cut short before its first word, or one of mere
/// spaces) is refused by some services and useless to all.
pub(super) fn visible(messages: &List<SharedMessage>) -> Vec<&Message> {
    messages.iter().map(|message| &**message).filter(|message| is_visible(message)).collect()
}

fn is_visible(message: &Message) -> bool {
    let says = |part: &Part| match part {
        Part::Text(text) | Part::Context(text) => !text.trim().is_empty(),
        Part::Call(_) | Part::Attachment(_) => true,
        Part::Thought(_) => false,
    };
    message.role == Role::Tool || message.parts.iter().any(says)
}

/// How many of the messages a model is shown belong to earlier epochs.
pub(super) fn earlier(call: &ModelCall) -> usize {
    call.messages.iter().take(call.earlier).filter(|message| is_visible(message)).count()
}

/// Roughly the bytes a request takes, so that a body is written without being moved.
pub(super) fn bytes_estimate(call: &ModelCall, messages: &[&Message]) -> usize {
    const HEAD_BYTES: usize = 1024;
    const PER_MESSAGE_BYTES: usize = 96;
    const PER_TOOL_BYTES: usize = 96;
    let bytes = |bytes: usize| bytes + bytes / 16;
    let attached = |message: &Message| {
        let shown = message.attachments().filter(|it| call.model.inputs.take(it.kind));
        shown.map(|it| it.size() as usize / 3 * 4).sum::<usize>()
    };
    let messages: usize = messages
        .iter()
        .map(|message| bytes(message.text_bytes()) + attached(message) + PER_MESSAGE_BYTES)
        .sum();
    let tools: usize = call.tools.iter().map(|tool| tool.text_bytes() + PER_TOOL_BYTES).sum();
    HEAD_BYTES + bytes(call.system.len()) + tools + messages
}

/// A body that cannot be written. Only arguments or a tool's schema could do that, and none made from JSON does.
pub(super) fn unwritable(error: serde_json::Error) -> ProviderError {
    ProviderError::Rejected(format!("the request could not be written: {error}"))
}

/// Whether a message was made by this provider over this wire: only such get their own thoughts back.
pub(super) fn is_own(message: &Message, call: &ModelCall) -> bool {
    origin(message).is_some_and(|origin| {
        origin.provider == call.model.provider_name && origin.wire == call.model.wire
    })
}

/// Whether the very model made a message that is asked now.
pub(super) fn is_of_model(message: &Message, call: &ModelCall) -> bool {
    is_own(message, call) && origin(message).is_some_and(|origin| origin.model == call.model.id)
}

fn origin(message: &Message) -> Option<&Origin> {
    message.meta.made.as_ref().map(|made| &made.origin)
}

/// What a thought holds for the wire that made it.
pub(super) fn payload<T: for<'de> serde::Deserialize<'de>>(payload: Option<&str>) -> Option<T> {
    payload.and_then(|payload| serde_json::from_str(payload).ok())
}

/// Where the user message stands that began the turn.
pub(super) fn turn_start(messages: &[&Message]) -> Option<usize> {
    let asks = |message: &&Message| {
        let said = |part: &Part| matches!(part, Part::Text(_) | Part::Attachment(_));
        message.role == Role::User && message.parts.iter().any(said)
    };
    messages.iter().rposition(asks)
}

/// The effort that is asked for, lowered to one that the model knows; `None` when its provider's default will do.
pub(super) fn effort(call: &ModelCall) -> Option<Effort> {
    call.reasoning.effort().map(|effort| effort.lowered(&call.model.thinking.efforts))
}

/// What an effort is in tokens, for models that are asked in tokens. `most` is what thinking may take.
pub(super) fn budget(reasoning: Reasoning, amounts: [u32; 3], most: u32) -> u32 {
    let [low, medium, high] = amounts;
    let asked = match reasoning.effort() {
        Some(Effort::None | Effort::Minimal | Effort::Low) => low,
        Some(Effort::Medium) | None => medium,
        Some(Effort::High) => high,
        Some(Effort::Xhigh | Effort::Max) => most,
    };
    reasoning.budget_tokens().unwrap_or(asked).min(most)
}

/// The schema of an answer in words, for models that cannot be held to one while they may call tools.
pub(super) fn schema_in_words(schema: &Value) -> String {
    format!(
        "Your final answer must be JSON alone, without words around it, and satisfy this JSON Schema:\n{schema}"
    )
}
