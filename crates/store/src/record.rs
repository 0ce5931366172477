//! How agents and messages lie in the database, apart from the core's types, which may change without it.

use std::borrow::Cow;

use jiff::Timestamp;
use nexus_core::agent::AgentSettings;
use nexus_core::message::{Message, Meta, Role, SharedMessage, ToolCall};
use nexus_core::store::{AgentRecord, Progress};
use nexus_core::{AgentId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::fault::Fault;

/// The columns of `agents` that need encoding, and the rest as they are.
pub(super) struct AgentRow {
    pub(super) created_at: i64,
    pub(super) parent: Option<AgentId>,
    pub(super) depth: u32,
    pub(super) ceiling: Option<String>,
    pub(super) settings: String,
    pub(super) progress: Progress,
}

impl AgentRow {
    pub(super) fn encode(record: &AgentRecord) -> Result<Self, Fault> {
        Ok(Self {
            created_at: micros(record.created_at),
            parent: record.parent.clone(),
            depth: record.depth,
            ceiling: record.ceiling.as_ref().map(serde_json::to_string).transpose()?,
            settings: encode_settings(&record.settings)?,
            progress: record.progress,
        })
    }
}

/// A path that is not UTF-8 is refused: it would come back as another place.
pub(super) fn encode_settings(settings: &AgentSettings) -> Result<String, Fault> {
    Ok(serde_json::to_string(settings)?)
}

/// One row of `messages`. The text stays where it is, shared with the agent.
pub(super) struct MessageRow {
    message: SharedMessage,
    extra: Option<String>,
}

impl MessageRow {
    pub(super) fn encode(message: &SharedMessage) -> Result<Self, Fault> {
        let extra = Extra::of(message)?;
        let extra = if extra.is_empty() { None } else { Some(serde_json::to_string(&extra)?) };
        Ok(Self { message: message.clone(), extra })
    }

    pub(super) fn role(&self) -> &'static str {
        role_name(self.message.role)
    }

    pub(super) fn at(&self) -> i64 {
        micros(self.message.meta.at)
    }

    pub(super) fn content(&self) -> &str {
        &self.message.content
    }

    pub(super) fn extra(&self) -> Option<&str> {
        self.extra.as_deref()
    }
}

pub(super) fn decode_message(
    role: &str,
    at: i64,
    content: String,
    extra: Option<&str>,
) -> Result<Message, Fault> {
    let role = [Role::User, Role::Assistant, Role::Tool, Role::Summary]
        .into_iter()
        .find(|known| role_name(*known) == role)
        .ok_or_else(|| Fault::unfit(format!("unknown role {role:?}")))?;
    let extra: Extra<'_> = extra.map(serde_json::from_str).transpose()?.unwrap_or_default();
    let meta = Meta {
        at: timestamp(at)?,
        turn: extra.turn.map(|turn| match turn {
            TurnRecord::Number(number) => TurnId::Number(number),
            TurnRecord::Text(text) => TurnId::Text(text.into()),
        }),
        source: extra.source.map(Cow::into_owned),
        source_agent: extra.source_agent.map(|name| agent_id(&name)).transpose()?,
        interrupted: extra.interrupted,
        covers: extra.covers,
    };
    let calls = extra.tool_calls.into_iter().map(CallRecord::decode).collect::<Result<_, _>>()?;
    let mut message = Message::new(role, content, meta).with_tool_calls(calls);
    message.tool_call_id = extra.tool_call_id.map(Cow::into_owned);
    Ok(message)
}

/// What few messages have, as one JSON column. An unknown field is refused: it would be lost without a word.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Extra<'a> {
    #[serde(default, skip_serializing_if = "Vec::is_empty", borrow)]
    tool_calls: Vec<CallRecord<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<TurnRecord<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_agent: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    covers: Option<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum TurnRecord<'a> {
    Number(i64),
    Text(Cow<'a, str>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallRecord<'a> {
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    /// Raw, so that it is parsed by itself: inside the column it lies deeper than where it came from, and serde_json
    /// refuses what is nested too deep.
    #[serde(borrow)]
    arguments: Cow<'a, RawValue>,
}

impl<'a> Extra<'a> {
    fn of(message: &'a Message) -> Result<Self, Fault> {
        let meta = &message.meta;
        Ok(Self {
            tool_calls: message.tool_calls.iter().map(CallRecord::of).collect::<Result<_, _>>()?,
            tool_call_id: message.tool_call_id.as_deref().map(Cow::Borrowed),
            turn: meta.turn.as_ref().map(|turn| match turn {
                TurnId::Number(number) => TurnRecord::Number(*number),
                TurnId::Text(text) => TurnRecord::Text(Cow::Borrowed(text)),
            }),
            source: meta.source.as_deref().map(Cow::Borrowed),
            source_agent: meta.source_agent.as_ref().map(|agent| agent.as_str().into()),
            interrupted: meta.interrupted,
            covers: meta.covers,
        })
    }

    fn is_empty(&self) -> bool {
        let Self { tool_calls, tool_call_id, turn, source, source_agent, interrupted, covers } =
            self;
        tool_calls.is_empty()
            && tool_call_id.is_none()
            && turn.is_none()
            && source.is_none()
            && source_agent.is_none()
            && !interrupted
            && covers.is_none()
    }
}

impl<'a> CallRecord<'a> {
    fn of(call: &'a ToolCall) -> Result<Self, Fault> {
        let arguments = Cow::Owned(serde_json::value::to_raw_value(&call.arguments)?);
        Ok(Self { id: (&*call.id).into(), name: (&*call.name).into(), arguments })
    }

    fn decode(self) -> Result<ToolCall, Fault> {
        let arguments = serde_json::from_str(self.arguments.get())?;
        Ok(ToolCall { id: self.id.into_owned(), name: self.name.into_owned(), arguments })
    }
}

pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Summary => "summary",
    }
}

pub(super) fn agent_id(name: &str) -> Result<AgentId, Fault> {
    AgentId::parse(name).map_err(|error| Fault::unfit(format!("stored name {name:?}: {error}")))
}

pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

pub(super) fn timestamp(micros: i64) -> Result<Timestamp, Fault> {
    Timestamp::from_microsecond(micros).map_err(|error| Fault::unfit(error.to_string()))
}
