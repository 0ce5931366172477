//! Our own form, version 1. Members that it does not know are refused: they would be lost without a word.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use nexus_core::mcp::McpReach;
use nexus_core::message::{Message, Meta, Role, SharedMessage, ToolCall};
use nexus_core::permission::{Level, Permissions, Reach};
use nexus_core::store::SessionRecord;
use nexus_core::{AgentId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SessionFile;

const FORMAT: &str = "nexus3.session";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u32,
    session: Session,
    messages: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    name: String,
    created_at: Moment,
    updated_at: Moment,
    provenance: String,
    depth: u32,
    model: Option<String>,
    cwd: PathBuf,
    system_prompt: Option<String>,
    permissions: Rights,
    ceiling: Option<Rights>,
    grants: GrantsEntry,
}

/// A time in ISO 8601.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Moment(Timestamp);

impl TryFrom<String> for Moment {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("{text:?} is no time in ISO 8601"))
    }
}

impl From<Moment> for String {
    fn from(Moment(at): Moment) -> Self {
        at.to_string()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rights {
    level: String,
    preset: String,
    /// Null for anywhere.
    read: Option<BTreeSet<PathBuf>>,
    write: Option<BTreeSet<PathBuf>>,
    blocked: BTreeSet<PathBuf>,
    disabled_tools: BTreeSet<String>,
    network: bool,
    commands: bool,
    agents: bool,
    /// Tools of MCP servers, by server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    mcp: BTreeMap<String, Vec<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantsEntry {
    write_paths: BTreeSet<PathBuf>,
    exec_dirs: BTreeMap<String, BTreeSet<PathBuf>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    mcp: BTreeMap<String, Vec<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    role: RoleName,
    at: Moment,
    content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<Turn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    covers: Option<usize>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RoleName {
    User,
    Assistant,
    Tool,
    Summary,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Turn {
    Number(i64),
    Text(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallEntry {
    id: String,
    name: String,
    arguments: Value,
}

pub(super) fn export(
    session: &SessionRecord,
    messages: &[SharedMessage],
) -> serde_json::Result<Value> {
    let (record, settings) = (&session.record, &session.record.settings);
    let provenance = session.made_by.as_ref().map_or_else(|| "user".into(), AgentId::to_string);
    let file = File {
        format: FORMAT.into(),
        version: VERSION,
        session: Session {
            name: record.id.to_string(),
            created_at: Moment(record.created_at),
            updated_at: Moment(session.updated_at),
            provenance,
            depth: record.depth,
            model: settings.model.clone(),
            cwd: settings.cwd.clone(),
            system_prompt: settings.system_prompt.clone(),
            permissions: Rights::of(&settings.permissions),
            ceiling: record.ceiling.as_ref().map(Rights::of),
            grants: GrantsEntry {
                write_paths: settings.grants.write_paths.clone(),
                exec_dirs: settings.grants.exec_dirs.clone(),
                mcp: settings.grants.mcp.reach().written(),
            },
        },
        messages: messages.iter().map(|message| Entry::of(message)).collect(),
    };
    serde_json::to_value(file)
}

pub(super) fn parse(value: Value) -> Result<SessionFile, String> {
    let (format, version) = (value["format"].clone(), value["version"].clone());
    if format != FORMAT {
        return Err(format!("its format is {format}, not \"{FORMAT}\""));
    }
    if version != VERSION {
        return Err(format!("its version is {version}; this program knows {VERSION}"));
    }
    let File { session, messages, .. } =
        serde_json::from_value(value).map_err(|error| error.to_string())?;
    let numbered = messages.into_iter().enumerate();
    let messages = numbered
        .map(|(at, entry)| entry.message().map_err(|error| format!("messages.{at}: {error}")))
        .collect::<Result<_, _>>()?;
    Ok(SessionFile {
        name: session.name,
        created_at: session.created_at.0,
        model: session.model,
        cwd: session.cwd,
        system_prompt: session.system_prompt,
        messages,
        bounds: vec![session.permissions.permissions()?],
        ceiling: session.ceiling.map(|ceiling| ceiling.permissions()).transpose()?,
        disabled_tools: Vec::new(),
    })
}

impl Rights {
    fn of(permissions: &Permissions) -> Self {
        let paths = |reach: &Reach| match reach {
            Reach::Anywhere => None,
            Reach::Beneath(roots) => Some(roots.clone()),
        };
        Self {
            level: permissions.level.name().into(),
            preset: permissions.preset.clone(),
            read: paths(&permissions.read),
            write: paths(&permissions.write),
            blocked: permissions.blocked.clone(),
            disabled_tools: permissions.disabled_tools.clone(),
            network: permissions.network,
            commands: permissions.commands,
            agents: permissions.agents,
            mcp: permissions.mcp.written(),
        }
    }

    fn permissions(self) -> Result<Permissions, String> {
        let reach = |paths| match paths {
            None => Reach::Anywhere,
            Some(roots) => Reach::Beneath(roots),
        };
        Ok(Permissions {
            level: Level::parse(&self.level)
                .ok_or_else(|| format!("unknown level {}", self.level))?,
            preset: self.preset,
            read: reach(self.read),
            write: reach(self.write),
            blocked: self.blocked,
            disabled_tools: self.disabled_tools,
            network: self.network,
            commands: self.commands,
            agents: self.agents,
            mcp: McpReach::parse(self.mcp)?,
        })
    }
}

/// What was said, with a word for what stands beside it: a file holds no bytes of images and documents.
fn content(message: &Message) -> String {
    let mut content = message.text().into_owned();
    for attachment in message.attachments() {
        let gap = if content.is_empty() { "" } else { "\n\n" };
        let words = attachment.words();
        content.push_str(&format!("{gap}[{words}: not in this file.]"));
    }
    content
}

impl Entry {
    fn of(message: &Message) -> Self {
        let meta = &message.meta;
        let call = |ToolCall { id, name, arguments, cut: _ }: &ToolCall| CallEntry {
            id: id.clone(),
            name: name.clone(),
            arguments: arguments.clone(),
        };
        Self {
            role: match message.role {
                Role::User => RoleName::User,
                Role::Assistant => RoleName::Assistant,
                Role::Tool => RoleName::Tool,
                Role::Summary => RoleName::Summary,
            },
            at: Moment(meta.at),
            content: content(message),
            tool_calls: message.calls().map(call).collect(),
            tool_call_id: message.tool_call_id.clone(),
            request_id: meta.turn.as_ref().map(|turn| match turn {
                TurnId::Number(number) => Turn::Number(*number),
                TurnId::Text(text) => Turn::Text(text.to_string()),
            }),
            source: meta.source.clone(),
            source_agent_id: meta.source_agent.as_ref().map(AgentId::to_string),
            interrupted: meta.interrupted,
            covers: meta.covers,
        }
    }

    fn message(self) -> Result<SharedMessage, String> {
        let role = match self.role {
            RoleName::User => Role::User,
            RoleName::Assistant => Role::Assistant,
            RoleName::Tool => Role::Tool,
            RoleName::Summary => Role::Summary,
        };
        let source_agent = self.source_agent_id.as_deref().map(AgentId::parse).transpose();
        let meta = Meta {
            at: self.at.0,
            turn: self.request_id.map(|turn| match turn {
                Turn::Number(number) => TurnId::Number(number),
                Turn::Text(text) => TurnId::Text(text.into()),
            }),
            source: self.source,
            source_agent: source_agent.map_err(|error| error.to_string())?,
            interrupted: self.interrupted,
            covers: self.covers,
            ..Meta::default()
        };
        let calls = self.tool_calls.into_iter();
        let calls = calls.map(|it: CallEntry| ToolCall::new(it.id, it.name, it.arguments));
        let mut message = Message::new(role, self.content, meta).with_tool_calls(calls.collect());
        message.tool_call_id = self.tool_call_id;
        Ok(Arc::new(message))
    }
}
