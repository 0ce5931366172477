//! Records and messages to put into a store.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use nexus_core::agent::AgentSettings;
use nexus_core::inquiry::{Inquiry, Wants};
use nexus_core::message::{Message, Meta, Role, SharedMessage};
use nexus_core::permission::{Grants, Permissions, Reach};
use nexus_core::preview::{Grant, Preview, Program};
use nexus_core::store::{
    AgentRecord, Append, ApprovalRecord, ApprovalStatus, Copied, Progress, Settlement,
};
use nexus_core::usage::Bill;
use nexus_core::{AgentId, TurnId};
use serde_json::json;

/// A name that is known to be one.
pub fn id(name: &str) -> AgentId {
    AgentId::parse(name).unwrap_or_else(|error| panic!("{name:?} is no name: {error}"))
}

/// An agent without a parent, before any store has it.
pub fn agent(name: &str) -> AgentRecord {
    AgentRecord {
        id: id(name),
        created_at: Timestamp::UNIX_EPOCH,
        born: 0,
        parent: None,
        depth: 0,
        ceiling: None,
        settings: settings(),
        progress: Progress::default(),
        bill: Bill::default(),
        root: 0,
        message_count: 0,
        last_action_at: None,
    }
}

/// A child of an agent of depth 0.
pub fn child(name: &str, parent: &str) -> AgentRecord {
    AgentRecord { parent: Some(id(parent)), depth: 1, ..agent(name) }
}

/// Those of an agent that may read in `/w` and nothing else.
pub fn settings() -> AgentSettings {
    AgentSettings {
        permissions: Permissions {
            level: nexus_core::permission::Level::Sandboxed,
            preset: "sandboxed".into(),
            read: Reach::beneath([Path::new("/w").to_path_buf()]),
            write: Reach::nowhere(),
            blocked: Default::default(),
            disabled_tools: Default::default(),
            network: false,
            commands: false,
            agents: false,
            mcp: Default::default(),
        },
        grants: Grants::default(),
        model: None,
        reasoning: None,
        cwd: "/w".into(),
        directories: Default::default(),
        system_prompt: None,
        tickets: Vec::new(),
        servers: Vec::new(),
    }
}

/// What a user said.
pub fn said(text: impl Into<String>) -> SharedMessage {
    spoken(Role::User, text)
}

pub fn spoken(role: Role, text: impl Into<String>) -> SharedMessage {
    let meta = Meta { turn: Some(TurnId::Number(1)), ..Meta::default() };
    Arc::new(Message::new(role, text, meta))
}

/// A summary of the first `covers` messages.
pub fn summary(covers: usize) -> SharedMessage {
    let meta = Meta { covers: Some(covers), ..Meta::default() };
    Arc::new(Message::new(Role::Summary, "summary", meta))
}

/// An append of what a user said, with the progress of a turn that is over.
pub fn step(first_index: u64, texts: &[&str]) -> Append {
    let messages = texts.iter().map(|text| said(*text)).collect();
    Append { first_index, messages, progress: Some(Progress::default()), ..Append::default() }
}

/// A copy with the settings of `agent`, made by nobody in particular.
pub fn copy(name: &str) -> Copied {
    let (settings, progress) = (settings(), Progress::default());
    Copied { name: id(name), settings, progress, made_by: None, length_max: None }
}

/// A request of `agent` for leave, of the second `at`.
pub fn asked(name: &str, agent: &str, at: i64) -> ApprovalRecord {
    ApprovalRecord {
        id: name.into(),
        agent: id(agent),
        born: u64::MAX - 7,
        tool: "exec".into(),
        arguments: json!({"argv": ["ls", "\u{e4}\0"]}),
        reason: "run a command".into(),
        created_at: Timestamp::from_second(at).unwrap_or_default(),
        lineage: vec![id("top"), id("p")],
        turn: Some(TurnId::Number(7)),
        expires_at: Timestamp::from_second(at + 60).ok(),
        grant: Some(Grant::Command { tool: "exec".into(), dir: "/w".into() }),
        preview: Some(Arc::new(preview())),
        inquiry: Some(Arc::new(inquiry())),
        answer: ApprovalStatus::Pending.into(),
    }
}

fn preview() -> Preview {
    let program = Program::Argv(vec!["ls".into(), "\u{e4}".into()]);
    Preview::Command { program, cwd: "/w".into(), sandbox: "none".into() }
}

fn inquiry() -> Inquiry {
    let wants = Wants::Form(json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    Inquiry { server: "s".into(), message: "which \u{e4}?".into(), wants }
}

/// A settlement that grants nothing.
pub fn settled(name: &str, status: ApprovalStatus) -> Settlement {
    Settlement { id: name.into(), answer: status.into(), grant: None }
}
