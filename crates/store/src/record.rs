//! How agents and messages lie in the database, apart from the core's types, which may change without it.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use nexus_core::agent::AgentSettings;
use nexus_core::message::{
    Attachment, AttachmentKind, Blob, Made, Message, Meta, Origin, Part, Role, SharedMessage,
    Source, Stop, StopReason, Thought, ToolCall,
};
use nexus_core::store::{AgentRecord, Progress};
use nexus_core::usage::{Bill, Cost, Usage};
use nexus_core::{AgentId, TurnId};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::blob::{self, Bytes};
use super::fault::Fault;

/// The columns of `agents` that need encoding, and the rest as they are.
pub(super) struct AgentRow {
    pub(super) created_at: i64,
    pub(super) parent: Option<AgentId>,
    pub(super) depth: u32,
    pub(super) ceiling: Option<String>,
    pub(super) settings: String,
    pub(super) progress: Progress,
    pub(super) bill: Option<String>,
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
            bill: (!record.bill.is_empty()).then(|| encode_bill(&record.bill)),
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

    pub(super) fn content(&self) -> Cow<'_, str> {
        self.message.text()
    }

    pub(super) fn extra(&self) -> Option<&str> {
        self.extra.as_deref()
    }

    pub(super) fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.message.attachments().filter_map(|attachment| match &attachment.source {
            Source::Blob(blob) => Some(blob),
            Source::Address(_) => None,
        })
    }
}

pub(super) fn decode_message(
    db: &Connection,
    role: &str,
    at: i64,
    content: String,
    extra: Option<&str>,
    bytes: Bytes,
) -> Result<Message, Fault> {
    let role = [Role::User, Role::Assistant, Role::Tool, Role::Summary]
        .into_iter()
        .find(|known| role_name(*known) == role)
        .ok_or_else(|| Fault::unfit(format!("unknown role {role:?}")))?;
    let extra: Extra<'_> = extra.map(serde_json::from_str).transpose()?.unwrap_or_default();
    let meta = Meta {
        at: timestamp(at)?,
        turn: extra.turn.map(TurnId::from),
        source: extra.source.map(Cow::into_owned),
        source_agent: extra.source_agent.map(|name| agent_id(&name)).transpose()?,
        interrupted: extra.interrupted,
        covers: extra.covers,
        failed: extra.failed,
        made: extra.made.map(|made| made.decode().map(Arc::new)).transpose()?,
    };
    let parts = match extra.parts {
        Some(parts) => decode_parts(db, &content, parts, bytes)?,
        None => {
            let calls = extra.tool_calls.into_iter().map(|call| call.decode().map(Part::Call));
            let text = Ok(Part::Text(content));
            [text].into_iter().chain(calls).collect::<Result<_, _>>()?
        }
    };
    let mut message = Message::of_parts(role, parts, meta);
    message.tool_call_id = extra.tool_call_id.map(Cow::into_owned);
    Ok(message)
}

/// Puts the parts of a message together; its text lies apart from them, in one piece.
fn decode_parts(
    db: &Connection,
    content: &str,
    parts: Vec<PartRecord<'_>>,
    bytes: Bytes,
) -> Result<Vec<Part>, Fault> {
    let mut rest = content;
    let decode = |part: PartRecord<'_>| {
        Ok(match part {
            PartRecord::Text(length) => {
                let (text, after) = rest
                    .split_at_checked(length)
                    .ok_or_else(|| Fault::unfit("the text is shorter than its parts"))?;
                rest = after;
                Part::text(text)
            }
            PartRecord::Context(text) => Part::Context(text.into_owned()),
            PartRecord::Thought { text, payload } => Part::Thought(Thought {
                text: text.into_owned(),
                payload: payload.map(|payload| payload.get().into()),
            }),
            PartRecord::Call(call) => Part::Call(call.decode()?),
            PartRecord::Image(attached) => attached.decode(db, |_| AttachmentKind::Image, bytes)?,
            PartRecord::File(attached) => {
                attached.decode(db, |pages| AttachmentKind::File { pages }, bytes)?
            }
        })
    };
    parts.into_iter().map(decode).collect()
}

/// What few messages have, as one JSON column. An unknown field is refused: it would be lost without a word.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Extra<'a> {
    /// In their order, where the message is not a text that calls follow.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    parts: Option<Vec<PartRecord<'a>>>,
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made: Option<MadeRecord<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum TurnRecord<'a> {
    Number(i64),
    Text(Cow<'a, str>),
}

impl<'a> From<&'a TurnId> for TurnRecord<'a> {
    fn from(turn: &'a TurnId) -> Self {
        match turn {
            TurnId::Number(number) => Self::Number(*number),
            TurnId::Text(text) => Self::Text(Cow::Borrowed(text)),
        }
    }
}

impl From<TurnRecord<'_>> for TurnId {
    fn from(stored: TurnRecord<'_>) -> Self {
        match stored {
            TurnRecord::Number(number) => Self::Number(number),
            TurnRecord::Text(text) => Self::Text(text.into()),
        }
    }
}

/// A part of a message; short names, because most messages have some.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartRecord<'a> {
    /// So many bytes of the message's text.
    #[serde(rename = "t")]
    Text(usize),
    #[serde(rename = "c")]
    Context(Cow<'a, str>),
    #[serde(rename = "r")]
    Thought {
        #[serde(rename = "t")]
        text: Cow<'a, str>,
        #[serde(rename = "p", default, skip_serializing_if = "Option::is_none", borrow)]
        payload: Option<Cow<'a, RawValue>>,
    },
    #[serde(borrow)]
    Call(CallRecord<'a>),
    Image(AttachmentRecord<'a>),
    File(AttachmentRecord<'a>),
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttachmentRecord<'a> {
    #[serde(rename = "type")]
    media_type: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// In place of the hash, where we have no bytes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pages: Option<u32>,
}

/// How a message was made. Nearly every answer has one, so it is short.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MadeRecord<'a> {
    /// Provider, wire and model.
    by: (Cow<'a, str>, Cow<'a, str>, Cow<'a, str>),
    brief: u64,
    #[serde(default, skip_serializing_if = "is_end_turn")]
    stop: StopReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<serde_json::Value>,
    bill: BillRecord,
}

fn is_end_turn(reason: &StopReason) -> bool {
    *reason == StopReason::EndTurn
}

/// Calls, those of them without a price, the cost; then input, read from cache, written to it, output, reasoning,
/// discarded; and 1 where some of it is estimated.
type BillRecord = [u64; 10];

pub(super) fn encode_bill(bill: &Bill) -> String {
    let numbers = bill_record(bill).map(|number| number.to_string());
    format!("[{}]", numbers.join(","))
}

pub(super) fn decode_bill(text: Option<&str>) -> serde_json::Result<Bill> {
    Ok(text.map(serde_json::from_str).transpose()?.map(bill_of).unwrap_or_default())
}

/// How a message was made, from what it says beside its text.
pub(super) fn decode_made(extra: &str) -> Result<Option<Made>, Fault> {
    #[derive(Deserialize)]
    struct Beside<'a> {
        #[serde(default, borrow)]
        made: Option<MadeRecord<'a>>,
    }
    let beside: Beside<'_> = serde_json::from_str(extra)?;
    beside.made.map(MadeRecord::decode).transpose()
}

fn bill_record(bill: &Bill) -> BillRecord {
    let Bill { usage, cost, calls, unknown_calls } = bill;
    [
        *calls,
        *unknown_calls,
        cost.0,
        usage.input,
        usage.cache_read,
        usage.cache_write,
        usage.output,
        usage.reasoning,
        usage.discarded,
        usage.estimated.into(),
    ]
}

fn bill_of(record: BillRecord) -> Bill {
    let [calls, unknown_calls, cost, usage @ ..] = record;
    let [input, cache_read, cache_write, output, reasoning, discarded, estimated] = usage;
    Bill {
        usage: Usage {
            input,
            cache_read,
            cache_write,
            output,
            reasoning,
            discarded,
            estimated: estimated != 0,
        },
        cost: Cost(cost),
        calls,
        unknown_calls,
    }
}

impl<'a> Extra<'a> {
    fn of(message: &'a Message) -> Result<Self, Fault> {
        let meta = &message.meta;
        let plain = is_plain(message);
        let calls = message.calls().filter(|_| plain).map(CallRecord::of);
        let parts = || message.parts.iter().map(PartRecord::of).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            parts: if plain { None } else { Some(parts()?) },
            tool_calls: calls.collect::<Result<_, _>>()?,
            tool_call_id: message.tool_call_id.as_deref().map(Cow::Borrowed),
            turn: meta.turn.as_ref().map(TurnRecord::from),
            source: meta.source.as_deref().map(Cow::Borrowed),
            source_agent: meta.source_agent.as_ref().map(|agent| agent.as_str().into()),
            interrupted: meta.interrupted,
            covers: meta.covers,
            failed: meta.failed,
            made: meta.made.as_deref().map(MadeRecord::of),
        })
    }

    fn is_empty(&self) -> bool {
        let Self {
            parts,
            tool_calls,
            tool_call_id,
            turn,
            source,
            source_agent,
            interrupted,
            covers,
            failed,
            made,
        } = self;
        parts.is_none()
            && tool_calls.is_empty()
            && tool_call_id.is_none()
            && turn.is_none()
            && source.is_none()
            && source_agent.is_none()
            && !interrupted
            && covers.is_none()
            && !failed
            && made.is_none()
    }
}

/// Whether a message is a text and whole calls behind it: all there was once.
fn is_plain(message: &Message) -> bool {
    let calls = match &*message.parts {
        [Part::Text(_), calls @ ..] => calls,
        parts => parts,
    };
    calls.iter().all(|part| matches!(part, Part::Call(call) if call.cut.is_none()))
}

impl<'a> PartRecord<'a> {
    fn of(part: &'a Part) -> Result<Self, Fault> {
        Ok(match part {
            Part::Text(text) => Self::Text(text.len()),
            Part::Context(text) => Self::Context(text.as_str().into()),
            Part::Thought(Thought { text, payload }) => Self::Thought {
                text: text.as_str().into(),
                payload: match payload {
                    Some(payload) => Some(Cow::Borrowed(serde_json::from_str(payload)?)),
                    None => None,
                },
            },
            Part::Call(call) => Self::Call(CallRecord::of(call)?),
            Part::Attachment(attachment) => {
                let record = AttachmentRecord::of(attachment);
                match attachment.kind {
                    AttachmentKind::Image => Self::Image(record),
                    AttachmentKind::File { .. } => Self::File(record),
                }
            }
        })
    }
}

impl<'a> CallRecord<'a> {
    fn of(call: &'a ToolCall) -> Result<Self, Fault> {
        let arguments = Cow::Owned(serde_json::value::to_raw_value(&call.arguments)?);
        Ok(Self { id: (&*call.id).into(), name: (&*call.name).into(), arguments, cut: call.cut })
    }

    fn decode(self) -> Result<ToolCall, Fault> {
        let arguments = serde_json::from_str(self.arguments.get())?;
        let (id, name) = (self.id.into_owned(), self.name.into_owned());
        Ok(ToolCall { id, name, arguments, cut: self.cut })
    }
}

impl<'a> AttachmentRecord<'a> {
    fn of(attachment: &'a Attachment) -> Self {
        let (hash, url) = match &attachment.source {
            Source::Blob(blob) => (Some(blob.name()), None),
            Source::Address(url) => (None, Some(url.as_str().into())),
        };
        Self {
            media_type: attachment.media_type.as_str().into(),
            name: attachment.name.as_deref().map(Cow::Borrowed),
            hash,
            url,
            pages: match attachment.kind {
                AttachmentKind::Image => None,
                AttachmentKind::File { pages } => Some(pages),
            },
        }
    }

    fn decode(
        self,
        db: &Connection,
        kind: impl FnOnce(u32) -> AttachmentKind,
        bytes: Bytes,
    ) -> Result<Part, Fault> {
        let source = match (self.hash, self.url) {
            (Some(hash), None) => Source::Blob(blob::find(db, decode_hash(&hash)?, bytes)?),
            (None, Some(url)) => Source::Address(url.into_owned()),
            _ => return Err(Fault::unfit("an attachment has a hash or an address")),
        };
        Ok(Part::Attachment(Attachment {
            kind: kind(self.pages.unwrap_or(1)),
            media_type: self.media_type.into_owned(),
            name: self.name.map(Cow::into_owned),
            source,
        }))
    }
}

fn decode_hash(text: &str) -> Result<[u8; 32], Fault> {
    let odd = || Fault::unfit(format!("stored hash {text:?}"));
    let mut hash = [0; 32];
    if text.len() != 2 * hash.len() || !text.is_ascii() {
        return Err(odd());
    }
    for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| odd())?;
    }
    Ok(hash)
}

impl<'a> MadeRecord<'a> {
    fn of(made: &'a Made) -> Self {
        let Origin { provider, wire, model } = &made.origin;
        Self {
            by: (provider.as_str().into(), wire.as_str().into(), model.as_str().into()),
            brief: made.briefing,
            stop: made.stop.reason,
            details: made.stop.details.clone(),
            bill: bill_record(&made.bill),
        }
    }

    fn decode(self) -> Result<Made, Fault> {
        let (provider, wire, model) = self.by;
        let origin = Origin {
            provider: provider.into_owned(),
            wire: wire.into_owned(),
            model: model.into_owned(),
        };
        let stop = Stop { reason: self.stop, details: self.details };
        Ok(Made { origin, briefing: self.brief, stop, bill: bill_of(self.bill) })
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
