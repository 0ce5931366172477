//! Conversations and approvals of agents as resources.

use nexus_protocol::conversation::GetMessagesParams;
use nexus_protocol::permission::{ListApprovals, ListApprovalsParams};
use nexus_protocol::{Api, CallError, Target};
use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

use crate::sentence::sentence;

const BEFORE: &str = "nexus3://agent/";
const JSON: &str = "application/json";

/// What there is of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Messages,
    Approvals,
}

impl Part {
    const ALL: [Self; 2] = [Self::Messages, Self::Approvals];

    fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Approvals => "approvals",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Messages => "The end of its conversation, at most 200 messages",
            Self::Approvals => "What it waits for leave to do",
        }
    }
}

/// The agent and the part of it that an address names.
pub fn place(uri: &str) -> Option<(&str, Part)> {
    let (agent, part) = uri.strip_prefix(BEFORE)?.rsplit_once('/')?;
    Some((agent, Part::ALL.into_iter().find(|it| it.name() == part)?))
}

pub fn of_agent(agent: &str) -> impl Iterator<Item = Resource> {
    Part::ALL.into_iter().map(move |part| {
        let name = part.name();
        Resource::new(format!("{BEFORE}{agent}/{name}"), format!("{agent} {name}"))
            .with_description(part.description())
            .with_mime_type(JSON)
    })
}

pub fn templates() -> Vec<ResourceTemplate> {
    let template = |part: Part| {
        ResourceTemplate::new(format!("{BEFORE}{{agent_id}}/{}", part.name()), part.name())
            .with_description(part.description())
            .with_mime_type(JSON)
    };
    Part::ALL.into_iter().map(template).collect()
}

pub async fn read<A: Api>(api: &A, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let unknown = |why: &str| ErrorData::resource_not_found(format!("{uri}: {why}"), None);
    let refused = |error: CallError| unknown(&sentence(&error));
    let (agent, part) = place(uri).ok_or_else(|| unknown("no such resource"))?;
    let text = match part {
        Part::Messages => {
            let page = GetMessagesParams { from_end: Some(true), ..GetMessagesParams::default() };
            let page = api.for_agent(agent).get_messages(page).await.map_err(refused)?;
            serde_json::to_string(&page)
        }
        Part::Approvals => {
            let params =
                ListApprovalsParams { agent_id: Some(agent.into()), include_decided: None };
            let list = api.call::<ListApprovals>(&Target::Server, params).await.map_err(refused)?;
            serde_json::to_string(&list)
        }
    };
    let text = text.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(JSON)]))
}
