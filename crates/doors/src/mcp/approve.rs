//! Approvals as questions to the person at the host. The host's model never sees them.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use nexus_protocol::permission::{
    ApprovalDecision, ApprovalEntry, ApprovalGrant, ApprovalKind, RespondApprovalParams,
};
use nexus_protocol::{Api, CallError};
use rmcp::RoleServer;
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    InputRequest, InputRequests, InputResponses,
};
use rmcp::service::{Peer, RequestContext};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Visitor;
use crate::respond::respond;
use crate::sentence::spelled;

/// Longest arguments in a question.
const ARGUMENTS_BYTES_MAX: usize = 2_000;

/// The choice that allows all tools of the server whose tool asks.
const ALLOW_SERVER: &str = "allow_server";

/// Until a turn has heard what was decided.
pub const HEARD: Duration = Duration::from_secs(5);

/// How the person at the host can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Not at all.
    Never,
    /// By a request of ours, as before 2026.
    Request,
    /// By an answer that wants input, after which the host calls again.
    Input,
}

impl Ask {
    pub fn of(visitor: &Visitor, context: &RequestContext<RoleServer>) -> Self {
        let elicitation = context.client_capabilities().and_then(|it| it.elicitation);
        let has_form = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
        match context.protocol_version() {
            _ if !has_form || !visitor.has_person => Self::Never,
            Some(version) if version.as_str() >= "2026-07-28" => Self::Input,
            _ => Self::Request,
        }
    }
}

/// The question about one approval.
fn question(approval: &ApprovalEntry) -> Option<ElicitRequestParams> {
    let (message, schema) = match approval.kind {
        ApprovalKind::Call => for_leave(approval),
        ApprovalKind::Elicitation => handed_on(approval),
    };
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
    let message = spelled(&message);
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// What a server asks whose tool an agent uses. An address is opened by the person, if they want to.
fn handed_on(approval: &ApprovalEntry) -> (String, Value) {
    let ApprovalEntry { agent_id, reason, message, schema, url, .. } = approval;
    let words: String = message.iter().chain(url).map(|it| format!("\n{it}")).collect();
    let nothing = || json!({"type": "object", "properties": {}});
    (
        format!("Agent {agent_id} wants somebody to {reason}:{words}"),
        schema.clone().unwrap_or_else(nothing),
    )
}

/// What would be allowed.
fn for_leave(approval: &ApprovalEntry) -> (String, Value) {
    let mut arguments = approval.arguments.to_string();
    if arguments.len() > ARGUMENTS_BYTES_MAX {
        arguments.truncate(arguments.floor_char_boundary(ARGUMENTS_BYTES_MAX));
        arguments.push('…');
    }
    let ApprovalEntry { agent_id, tool, reason, .. } = approval;
    let message = format!("Agent {agent_id} wants to {reason}.\n{tool} {arguments}");
    let mut choices = vec![
        json!({"const": "allow_once", "title": "Allow once"}),
        json!({"const": "allow_session", "title": "Allow for this agent"}),
        json!({"const": "deny", "title": "Deny"}),
    ];
    if let Some(ApprovalGrant::Mcp { server, .. }) = &approval.grant {
        let title = format!("Allow all tools of {server} for this agent");
        choices.insert(2, json!({"const": ALLOW_SERVER, "title": title}));
    }
    let decision = json!({"type": "string", "title": "Decision", "oneOf": choices});
    let schema =
        json!({"type": "object", "properties": {"decision": decision}, "required": ["decision"]});
    (message, schema)
}

/// All of them, for an answer that wants input; by the names of the approvals.
pub fn input_requests(asked: &[ApprovalEntry]) -> InputRequests {
    let request = |approval: &ApprovalEntry| {
        let request = InputRequest::Elicitation(ElicitRequest::new(question(approval)?));
        Some((approval.approval_id.clone(), request))
    };
    asked.iter().filter_map(request).collect::<BTreeMap<_, _>>()
}

/// What a person said to a question. Whoever does not say yes has said no.
fn response(approval: &ApprovalEntry, answer: ElicitResult) -> RespondApprovalParams {
    let said = answer.content.as_ref().and_then(|content| content.get("decision"));
    let said = said.and_then(Value::as_str);
    if approval.has_server()
        && answer.action == ElicitationAction::Accept
        && said == Some(ALLOW_SERVER)
    {
        return RespondApprovalParams::allow_server(approval.approval_id.as_str());
    }
    let decision = match (approval.kind, &answer.action, said) {
        (ApprovalKind::Elicitation, ElicitationAction::Accept, _) => ApprovalDecision::Accept,
        (ApprovalKind::Elicitation, ElicitationAction::Decline, _) => ApprovalDecision::Decline,
        (ApprovalKind::Elicitation, ..) => ApprovalDecision::Cancel,
        (_, ElicitationAction::Accept, Some("allow_once")) => ApprovalDecision::AllowOnce,
        (_, ElicitationAction::Accept, Some("allow_session")) => ApprovalDecision::AllowSession,
        _ => ApprovalDecision::Deny,
    };
    let content = match (decision, answer.content) {
        (ApprovalDecision::Accept, Some(Value::Object(content))) => Some(content),
        _ => None,
    };
    let params = RespondApprovalParams::new(approval.approval_id.as_str(), decision);
    RespondApprovalParams { content, ..params }
}

/// Decides the approvals that a host was asked about, and no other.
pub async fn answered<A: Api>(
    person: &A,
    asked: &[ApprovalEntry],
    responses: &InputResponses,
) -> Result<(), CallError> {
    for approval in asked {
        let Some(said) = responses.get(&approval.approval_id) else { continue };
        let answer = serde_json::from_value::<ElicitResult>(said.clone());
        let answer = answer.unwrap_or_else(|_| ElicitResult::new(ElicitationAction::Cancel));
        respond(person, response(approval, answer)).await?;
    }
    Ok(())
}

/// Questions of one call that are open. Dropped, they are withdrawn.
#[derive(Default)]
pub struct Questions {
    open: JoinSet<()>,
    asked: HashSet<String>,
}

impl Questions {
    /// Asks what was not asked yet.
    pub fn ask<A: Api + Clone + Send + 'static>(
        &mut self,
        person: &A,
        peer: &Peer<RoleServer>,
        asked: &[ApprovalEntry],
    ) {
        for approval in asked {
            if !self.asked.insert(approval.approval_id.clone()) {
                continue;
            }
            let Some(question) = question(approval) else { continue };
            let (person, peer, approval) = (person.clone(), peer.clone(), approval.clone());
            self.open.spawn(async move {
                // A host that cannot be asked leaves it to others, and to its time limit.
                if let Ok(answer) = peer.create_elicitation(question).await {
                    let _ = respond(&person, response(&approval, answer)).await;
                }
            });
        }
    }
}
