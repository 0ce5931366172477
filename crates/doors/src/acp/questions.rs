//! Approvals as questions to the person at the editor: for leave, and what MCP servers want to know. Each is the stored
//! one; the first answer from anywhere decides, and the question is withdrawn then.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::{
    CreateElicitationRequest, ElicitationCapabilities, ElicitationFormMode, ElicitationId,
    ElicitationSchema, ElicitationSessionScope, ElicitationUrlMode, PermissionOption,
    PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, ToolCallId, ToolCallUpdate, ToolCallUpdateFields,
};
use nexus_protocol::Api;
use nexus_protocol::permission::{
    ApprovalDecision, ApprovalEntry, ApprovalGrant, ApprovalKind, RespondApprovalParams,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::task::{AbortHandle, JoinSet};

use super::client::{Client, Unanswered};
use super::tools;
use crate::respond::respond;
use crate::sentence::spelled;

const ALLOW_ONCE: &str = "allow_once";
const ALLOW_ALWAYS: &str = "allow_always";
const ALLOW_SERVER: &str = "allow_server";
const REJECT: &str = "reject_once";

/// Questions of one turn that are open. Dropped, they are withdrawn.
#[derive(Default)]
pub struct Questions {
    open: JoinSet<()>,
    asked: HashMap<String, AbortHandle>,
}

impl Questions {
    /// Asks what was not asked yet.
    pub fn ask<A: Api + Clone + Send + 'static>(
        &mut self,
        api: &A,
        client: &Client,
        question: Question,
    ) {
        let id = question.approval.approval_id.clone();
        if self.asked.contains_key(&id) {
            return;
        }
        let (api, client) = (api.clone(), client.clone());
        let open = self.open.spawn(async move {
            let Some(answer) = question.put(&client).await else { return };
            let _ = respond(&api, answer).await;
        });
        self.asked.insert(id, open);
    }

    /// It was decided, here or elsewhere.
    pub fn decided(&mut self, approval_id: &str) {
        if let Some(open) = self.asked.get(approval_id) {
            open.abort();
        }
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.keys().cloned().collect()
    }
}

/// One approval, as the editor is asked about it.
pub struct Question {
    pub session: String,
    /// The call that it is about, where the editor was told of it.
    pub call: Option<ToolCallId>,
    pub approval: ApprovalEntry,
    /// What of the questions of MCP servers the editor can put.
    pub elicitation: Option<ElicitationCapabilities>,
}

impl Question {
    /// What the person said; nothing where the editor cannot put it, which leaves it to others and to its time limit.
    async fn put(&self, client: &Client) -> Option<RespondApprovalParams> {
        match self.approval.kind {
            ApprovalKind::Call => {
                let answer = client.ask("session/request_permission", &self.for_leave()).await;
                Some(self.decision(answer))
            }
            ApprovalKind::Elicitation => {
                let request = self.handed_on()?;
                let answer: Result<Filled, _> = client.ask("elicitation/create", &request).await;
                Some(self.filled(answer.ok()))
            }
        }
    }

    fn for_leave(&self) -> RequestPermissionRequest {
        let ApprovalEntry { agent_id, tool, arguments, reason, grant, preview, .. } =
            &self.approval;
        let content = preview.as_ref().map(tools::preview).unwrap_or_default();
        let why = match *agent_id == self.session {
            true => format!("Needs leave to {reason}."),
            false => format!("Agent {agent_id} needs leave to {reason}."),
        };
        let content = [vec![tools::text(spelled(&why))], content].concat();
        let fields = ToolCallUpdateFields::new()
            .title(tools::title(tool, arguments))
            .name(tool.clone())
            .kind(tools::kind(tool))
            .content(content)
            .raw_input(arguments.clone());
        let option =
            |id: &'static str, name: String, kind| PermissionOption::new(id, spelled(&name), kind);
        let mut options = vec![
            option(ALLOW_ONCE, "Allow once".into(), PermissionOptionKind::AllowOnce),
            option(ALLOW_ALWAYS, always(grant.as_ref()), PermissionOptionKind::AllowAlways),
        ];
        if let Some(ApprovalGrant::Mcp { server, .. }) = grant {
            let name = format!("Always allow all tools of {server}");
            options.push(option(ALLOW_SERVER, name, PermissionOptionKind::AllowAlways));
        }
        options.push(option(REJECT, "Reject".into(), PermissionOptionKind::RejectOnce));
        let call = self.call.clone().unwrap_or_else(|| shown_of(&self.approval));
        let call = ToolCallUpdate::new(call, fields);
        RequestPermissionRequest::new(SessionId::new(self.session.as_str()), call, options)
    }

    /// Whoever does not say yes has said no, and an editor that cannot ask is no reason to wait.
    fn decision(
        &self,
        answer: Result<RequestPermissionResponse, Unanswered>,
    ) -> RespondApprovalParams {
        let id = self.approval.approval_id.as_str();
        let outcome = answer.map(|answer| answer.outcome);
        let chosen = match &outcome {
            Ok(RequestPermissionOutcome::Selected(chosen)) => chosen.option_id.0.as_ref(),
            _ => REJECT,
        };
        match chosen {
            ALLOW_ONCE => RespondApprovalParams::new(id, ApprovalDecision::AllowOnce),
            ALLOW_ALWAYS => RespondApprovalParams::new(id, ApprovalDecision::AllowSession),
            ALLOW_SERVER if self.approval.has_server() => RespondApprovalParams::allow_server(id),
            _ => RespondApprovalParams::new(id, ApprovalDecision::Deny),
        }
    }

    /// What a server asks whose tool an agent uses, where the editor can put such a question.
    fn handed_on(&self) -> Option<CreateElicitationRequest> {
        let can = self.elicitation.as_ref()?;
        let ApprovalEntry { approval_id, agent_id, reason, message, schema, url, .. } =
            &self.approval;
        let message = message
            .iter()
            .fold(format!("Agent {agent_id} wants somebody to {reason}"), |all, message| {
                format!("{all}:\n{message}")
            });
        let message = spelled(&message);
        let scope = ElicitationSessionScope::new(SessionId::new(self.session.as_str()));
        let scope = scope.tool_call_id(self.call.clone());
        match (schema, url) {
            (_, Some(url)) if can.supports_url() => {
                let id = ElicitationId::new(approval_id.as_str());
                let mode = ElicitationUrlMode::new(scope, id, url.clone());
                Some(CreateElicitationRequest::new(mode, message))
            }
            (Some(schema), None) if can.supports_form() => {
                let schema: ElicitationSchema = serde_json::from_value(schema.clone()).ok()?;
                let mode = ElicitationFormMode::new(scope, schema);
                Some(CreateElicitationRequest::new(mode, message))
            }
            _ => None,
        }
    }

    fn filled(&self, answer: Option<Filled>) -> RespondApprovalParams {
        let (decision, content) = match answer {
            Some(Filled { action: Action::Accept, content }) => (ApprovalDecision::Accept, content),
            Some(Filled { action: Action::Decline, .. }) => (ApprovalDecision::Decline, None),
            _ => (ApprovalDecision::Cancel, None),
        };
        let params = RespondApprovalParams::new(self.approval.approval_id.as_str(), decision);
        RespondApprovalParams { content, ..params }
    }
}

/// Under which name a call is shown that the editor was not told of.
pub fn shown_of(approval: &ApprovalEntry) -> ToolCallId {
    ToolCallId::new(format!("approval-{}", approval.approval_id))
}

/// What a person made of a form.
#[derive(Deserialize)]
struct Filled {
    action: Action,
    content: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Accept,
    Decline,
    #[serde(other)]
    Cancel,
}

/// What is allowed for as long as the agent lives.
fn always(grant: Option<&ApprovalGrant>) -> String {
    match grant {
        Some(ApprovalGrant::Write { path }) => format!("Always allow writing {path}"),
        Some(ApprovalGrant::Command { tool, dir }) => format!("Always allow {tool} in {dir}"),
        Some(ApprovalGrant::Mcp { server, tool }) => format!("Always allow {tool} of {server}"),
        None => "Always allow".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(more: Value) -> Question {
        let mut approval = json!({
            "approval_id": "p", "agent_id": "a", "tool": "exec", "arguments": {"argv": ["ls"]},
            "reason": "run a command", "created_at": "", "status": "pending",
        });
        for (name, value) in more.as_object().unwrap() {
            approval[name] = value.clone();
        }
        let approval = serde_json::from_value(approval).unwrap();
        let (session, call) = ("a".into(), Some(ToolCallId::new("t/c")));
        Question { session, call, approval, elicitation: None }
    }

    fn check(question: &Question, answer: Value, expected: Value) {
        let said = serde_json::from_value(answer.clone()).map_err(|_| Unanswered);
        assert_eq!(json!(question.decision(said)), expected, "{answer}");
    }

    #[test]
    fn whoever_does_not_say_yes_has_said_no() {
        let plain = question(json!({}));
        let chosen = |id: &str| json!({"outcome": {"outcome": "selected", "optionId": id}});
        let decided = |decision: &str| json!({"approval_id": "p", "decision": decision});
        check(&plain, chosen("allow_once"), decided("allow_once"));
        check(&plain, chosen("allow_always"), decided("allow_session"));
        check(&plain, chosen("reject_once"), decided("deny"));
        check(&plain, chosen("allow_server"), decided("deny"));
        check(&plain, chosen("yes"), decided("deny"));
        check(&plain, json!({"outcome": {"outcome": "cancelled"}}), decided("deny"));
        check(&plain, json!({"code": -32601}), decided("deny"));
        let of_server = question(json!({"grant": {"kind": "mcp", "server": "s", "tool": "t"}}));
        let server = json!({"approval_id": "p", "decision": "allow_session", "scope": "server"});
        check(&of_server, chosen("allow_server"), server);
    }

    #[test]
    fn the_editor_is_told_who_wants_what() {
        let asked = json!(question(json!({})).for_leave());
        let text = "/toolCall/content/0/content/text";
        assert_eq!(asked.pointer(text), Some(&json!("Needs leave to run a command.")));
        let child = json!(question(json!({"agent_id": "b"})).for_leave());
        assert_eq!(child.pointer(text), Some(&json!("Agent b needs leave to run a command.")));
        let kinds = |asked: &Value| {
            let options = asked["options"].as_array().unwrap().iter();
            options.map(|it| it["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&asked), ["allow_once", "allow_always", "reject_once"]);
        let grant = json!({"grant": {"kind": "mcp", "server": "s", "tool": "t"}});
        let four = ["allow_once", "allow_always", "allow_always", "reject_once"];
        assert_eq!(kinds(&json!(question(grant).for_leave())), four);
    }

    #[test]
    fn forms_are_put_to_those_who_can_show_them() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "string"}}});
        let asked = json!({"kind": "elicitation", "message": "Who?", "schema": schema});
        let mut form = question(asked);
        assert!(form.handed_on().is_none());
        form.elicitation = serde_json::from_value(json!({"form": {}})).unwrap();
        let put = json!(form.handed_on().unwrap());
        assert_eq!((&put["mode"], &put["sessionId"]), (&json!("form"), &json!("a")), "{put}");
        assert_eq!(put["requestedSchema"]["properties"]["n"]["type"], "string");
        let said = |answer: Value| json!(form.filled(serde_json::from_value(answer).ok()));
        let accepted = json!({"approval_id": "p", "decision": "accept", "content": {"n": "x"}});
        assert_eq!(said(json!({"action": "accept", "content": {"n": "x"}})), accepted);
        assert_eq!(said(json!({"action": "decline"}))["decision"], "decline");
        assert_eq!(said(json!({"action": "later"}))["decision"], "cancel");
        assert_eq!(said(json!({}))["decision"], "cancel");
    }
}
