//! Reading and shortening conversations.

use nexus_core::authority::Action;
use nexus_core::compact::Compaction;
use nexus_core::message::{
    Attachment, AttachmentKind, Blob, Made, Part, SharedMessage, Source, ToolCall,
};
use nexus_core::{Message, Role, TurnId};
use nexus_protocol::RpcError;
use nexus_protocol::conversation::{
    AttachmentEntry, Compact, CompactParams, CompactResult, GetContext, GetContextResult,
    GetMessages, GetMessagesParams, GetMessagesResult, GetTokens, GetTokensResult, InterruptedTurn,
    MadeEntry, MessageEntry, MessageMeta, ToolCallEntry,
};
use nexus_protocol::params::NoParams;
use serde::Serialize;

use super::request_id;
use super::usage::{cost_usd, usage_entry};
use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;
use crate::watch::turn_entry;

/// Messages on a page when the caller names no number.
const PAGE_MESSAGES: u32 = 200;

/// What the messages of a page may be in JSON. A page always holds one, whatever its size.
const PAGE_BYTES_MAX: usize = 4 << 20;

pub fn register(table: &mut Table) {
    table.on::<GetContext, _, _>(context);
    table.on::<GetMessages, _, _>(messages);
    table.on::<GetTokens, _, _>(tokens);
    table.on::<Compact, _, _>(compact);
}

async fn context(cx: Cx, _: NoParams) -> Result<GetContextResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let now = agent.look();
    Ok(GetContextResult {
        message_count: now.conversation.len(),
        // Layered prompts are never empty; one that was given may be.
        system_prompt: now.settings.system_prompt.as_deref() != Some(""),
        halted_at_iteration_limit: now.progress.halted_at_iteration_limit,
        last_iteration_count: now.progress.last_iteration_count,
        max_tool_iterations: cx.services().engine.turns.max_tool_iterations(),
        interrupted_turn: now.interrupted().map(|unfinished| InterruptedTurn {
            request_id: request_id(&unfinished.turn),
            unknown_tool_calls: unfinished.open_calls,
        }),
        turns: now.turns.iter().map(|card| turn_entry(card, card.live.look())).collect(),
    })
}

async fn messages(cx: Cx, params: GetMessagesParams) -> Result<GetMessagesResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let limit = params.limit.map_or(PAGE_MESSAGES, |limit| limit.get());
    let asked = params.offset.unwrap_or(0);
    let (mut offset, end) = match params.from_end {
        Some(true) => {
            let end = agent.look().conversation.len().saturating_sub(asked);
            (end.saturating_sub(limit.into()), Some(end))
        }
        _ => (asked, None),
    };
    let services = cx.services();
    // What is not in memory is read by a few at a time: it takes memory from here until it is sent.
    let stored = offset < agent.look().conversation.first();
    let _turn = if stored { services.pages.acquire().await.ok() } else { None };
    let bytes_max = page_bytes_max(&cx);
    let thoughts = params.include_reasoning == Some(true);
    let (page, messages) = loop {
        let most = end.map_or(limit, |end| u32::try_from(end - offset).unwrap_or(limit));
        let page =
            services.engine.agents.history(&agent, offset, most, bytes_max).await.map_err(wire)?;
        let messages = entries(&page.messages, offset, bytes_max, thoughts);
        let count = messages.len() as u64;
        // From the end it is the last that count: what does not fit is left out before them.
        match end {
            Some(end) if count > 0 && offset + count < end => {
                offset = (offset + count).max(end.saturating_sub(count));
            }
            _ => break (page, messages),
        }
    };
    let agent_id = agent.id().to_string();
    Ok(GetMessagesResult { agent_id, total: page.total, offset, limit, messages })
}

/// What the messages of a page may be in JSON: what the answer has room for beside its envelope.
fn page_bytes_max(cx: &Cx) -> usize {
    const ENVELOPE_BYTES: usize = 512;
    let id_bytes = cx.request_id.as_ref().map_or(0, |id| id.as_json().len());
    cx.caller.answer_bytes_max.saturating_sub(ENVELOPE_BYTES + id_bytes).min(PAGE_BYTES_MAX)
}

/// The messages of a page, as many as fit and one at least.
fn entries(
    messages: &[SharedMessage],
    offset: u64,
    bytes_max: usize,
    thoughts: bool,
) -> Vec<MessageEntry> {
    let most: usize = messages.iter().map(|message| bytes_at_most(message, thoughts)).sum();
    let numbered = messages.iter().zip(offset..);
    let numbered = numbered.map(|(message, index)| entry(index, message, thoughts));
    if most <= bytes_max {
        return numbered.collect();
    }
    let mut bytes = 0;
    let within = |entry: &MessageEntry| {
        let before = bytes;
        bytes += json_bytes(entry) + 1;
        before == 0 || bytes <= bytes_max
    };
    numbered.take_while(within).collect()
}

/// What a message can be in JSON at most, without looking at its text. Most pages are so far from their limit that
/// nothing more has to be known.
fn bytes_at_most(message: &Message, thoughts: bool) -> usize {
    /// Names of members, punctuation, a time, numbers, and whatever else has no length of its own.
    const FRAME_BYTES: usize = 640;
    /// A character that has to be escaped: `\u0000`.
    const ESCAPED_BYTES: usize = 6;
    let meta = &message.meta;
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let name = match &meta.turn {
        Some(TurnId::Text(name)) => name.len(),
        _ => 0,
    };
    let made = meta.made.as_ref().map_or(0, |made| {
        let details = made.stop.details.as_ref().map_or(0, json_bytes);
        made.origin.provider.len() + made.origin.model.len() + details
    });
    let thought: usize = message.thoughts().filter(|_| thoughts).map(str::len).sum();
    let said = message.text().len() + thought + told(message).map_or(0, |it| it.len());
    let texts = said + length(&message.tool_call_id) + length(&meta.source) + name + made;
    let calls = message.calls().map(|call| {
        FRAME_BYTES
            + ESCAPED_BYTES * (call.id.len() + call.name.len())
            + json_bytes(&call.arguments)
    });
    let attachments = message.attachments().map(|attachment| {
        let address = match &attachment.source {
            Source::Blob(_) => 0,
            Source::Address(url) => url.len(),
        };
        let name = length(&attachment.name);
        FRAME_BYTES + ESCAPED_BYTES * (attachment.media_type.len() + name + address)
    });
    FRAME_BYTES + ESCAPED_BYTES * texts + calls.sum::<usize>() + attachments.sum::<usize>()
}

/// What a value is in JSON.
fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);

    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    // Counting does not fail, and what cannot be encoded is not sent.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// A message without what the model thought.
pub fn message_entry(index: u64, message: &Message) -> MessageEntry {
    entry(index, message, false)
}

pub fn tool_call_entry(call: &ToolCall) -> ToolCallEntry {
    ToolCallEntry {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        cut: call.cut.is_some(),
    }
}

fn entry(index: u64, message: &Message, thoughts: bool) -> MessageEntry {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Summary => "system",
    };
    let meta = &message.meta;
    let thoughts: Vec<_> = message.thoughts().filter(|_| thoughts).collect();
    MessageEntry {
        index,
        role: role.into(),
        content: message.text().into_owned(),
        context: told(message),
        reasoning: (!thoughts.is_empty()).then(|| thoughts.join("\n\n")),
        tool_calls: message.calls().map(tool_call_entry).collect(),
        tool_call_id: message.tool_call_id.clone(),
        attachments: message.attachments().map(attachment_entry).collect(),
        meta: Some(MessageMeta {
            at: meta.at.to_string(),
            request_id: meta.turn.as_ref().map(request_id),
            source: meta.source.clone(),
            source_agent_id: meta.source_agent.as_ref().map(ToString::to_string),
            interrupted: meta.interrupted,
            covers: meta.covers.map(|covers| covers as u64),
            made: meta.made.as_deref().map(made_entry),
        }),
    }
}

/// What the server told the model, where nobody said anything.
fn told(message: &Message) -> Option<String> {
    let words = |part: &Part| match part {
        Part::Context(text) => Some(text.clone()),
        _ => None,
    };
    match &*message.parts {
        [only] => words(only),
        _ => None,
    }
}

fn attachment_entry(attachment: &Attachment) -> AttachmentEntry {
    let kind = match attachment.kind {
        AttachmentKind::Image => "image",
        AttachmentKind::File { .. } => "file",
    };
    let (blob, url) = match &attachment.source {
        Source::Blob(blob) => (Some(blob), None),
        Source::Address(url) => (None, Some(url.clone())),
    };
    AttachmentEntry {
        r#type: kind.into(),
        mime_type: attachment.media_type.clone(),
        name: attachment.name.clone(),
        size: blob.map(|blob| blob.size),
        sha256: blob.map(Blob::name),
        url,
    }
}

fn made_entry(made: &Made) -> MadeEntry {
    MadeEntry {
        provider: made.origin.provider.clone(),
        model: made.origin.model.clone(),
        stop_reason: made.stop.reason.name().into(),
        stop_details: made.stop.details.clone(),
        usage: usage_entry(&made.bill.usage),
        cost_usd: cost_usd(&made.bill),
    }
}

async fn tokens(cx: Cx, _: NoParams) -> Result<GetTokensResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let compactor = &cx.services().engine.compactor;
    let count = compactor.count(&agent.snapshot()).await.map_err(wire)?;
    let available = compactor.context_capacity(count.budget);
    Ok(GetTokensResult {
        system: count.system,
        tools: count.tools,
        mcp: count.mcp,
        messages: count.messages,
        total: count.total(),
        budget: count.budget,
        available,
        remaining: available.saturating_sub(count.total()),
    })
}

async fn compact(cx: Cx, params: CompactParams) -> Result<CompactResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let turns = &cx.services().engine.turns;
    let (force, asked_by) = (params.force.unwrap_or(true), (&cx.caller.requester).into());
    let compaction = turns.compact(&agent, force, asked_by).await.map_err(wire)?;
    Ok(match compaction {
        Compaction::Done { before, after } => CompactResult {
            compacted: true,
            tokens_before: Some(before),
            tokens_after: Some(after),
            tokens_saved: Some(before.saturating_sub(after)),
            reason: None,
        },
        Compaction::Skipped(reason) => CompactResult {
            compacted: false,
            tokens_before: None,
            tokens_after: None,
            tokens_saved: None,
            reason: Some(reason.into()),
        },
    })
}
