//! What an agent may do, and what waits for leave.

use std::sync::Arc;

use nexus_core::approval::{Decision, Response};
use nexus_core::authority::Action;
use nexus_core::gate::{Explanation, ToolStanding};
use nexus_core::inquiry::{Reply, Wants};
use nexus_core::permission::{Preset, Reach, ToolClass};
use nexus_core::preview::{FileChange, Grant, Preview, Program};
use nexus_core::rights::PermissionChange;
use nexus_core::store::ApprovalRecord;
use nexus_protocol::RpcError;
use nexus_protocol::params::{BLANK, NoParams, is_blank};
use nexus_protocol::permission::{
    ApprovalDecision, ApprovalEntry, ApprovalGrant, ApprovalKind, ApprovalScope, DENIAL_CHARS_MAX,
    ExplainPermission, ExplainPermissionParams, ExplainPermissionResult,
    FileChange as WireFileChange, GetPermissions, GetPermissionsResult, ListApprovals,
    ListApprovalsParams, ListApprovalsResult, ListPresets, ListPresetsResult, ListTools,
    ListToolsResult, Policy, PresetEntry, Preview as WirePreview, RespondApproval,
    RespondApprovalParams, RespondApprovalResult, SessionAllowances, SetPermissions,
    SetPermissionsParams, SetPermissionsResult, ToolEntry,
};
use serde_json::json;

use super::{agent_id, request_id};
use crate::cx::Cx;
use crate::dispatcher::{Caller, Table};
use crate::errors::wire;

pub fn register(table: &mut Table) {
    table.on::<GetPermissions, _, _>(get);
    table.on::<SetPermissions, _, _>(set);
    table.on::<ExplainPermission, _, _>(explain);
    table.on::<ListTools, _, _>(list_tools);
    table.on::<ListPresets, _, _>(list_presets);
    table.on::<ListApprovals, _, _>(list_approvals);
    table.on::<RespondApproval, _, _>(respond_approval);
}

async fn get(cx: Cx, _: NoParams) -> Result<GetPermissionsResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let (engine, now) = (&cx.services().engine, agent.snapshot());
    let permissions = engine.permits.effective(&now).await.map_err(wire)?;
    let grants = &now.settings.grants;
    Ok(GetPermissionsResult {
        permission_level: permissions.level.name().into(),
        ceiling_level: now.ceiling.as_ref().map(|ceiling| ceiling.level.name().into()),
        preset: permissions.preset,
        disabled_tools: permissions.disabled_tools.into_iter().collect(),
        policy: Policy {
            cwd: now.settings.cwd.display().to_string(),
            additional_directories: texts(&now.settings.directories),
            allowed_paths: paths(&permissions.read),
            blocked_paths: texts(&permissions.blocked),
            write_paths: paths(&permissions.write),
        },
        session_allowances: SessionAllowances {
            write_paths: texts(&grants.write_paths),
            exec_dirs: grants
                .exec_dirs
                .iter()
                .map(|(tool, dirs)| (tool.clone(), texts(dirs)))
                .collect(),
            mcp: grants.mcp.reach().written(),
        },
        depth: now.depth,
        parent_agent_id: now.parent.as_ref().map(|parent| parent.to_string()),
        network: permissions.network,
        commands: permissions.commands,
        mcp: permissions.mcp.written(),
        sandbox: engine.sandbox.clone(),
        limits: engine.limits.clone(),
    })
}

pub fn paths(reach: &Reach) -> Option<Vec<String>> {
    match reach {
        Reach::Anywhere => None,
        Reach::Beneath(roots) => Some(texts(roots)),
    }
}

fn texts<'a>(paths: impl IntoIterator<Item = &'a std::path::PathBuf>) -> Vec<String> {
    paths.into_iter().map(|path| path.display().to_string()).collect()
}

async fn set(cx: Cx, params: SetPermissionsParams) -> Result<SetPermissionsResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let change = PermissionChange {
        preset: params.preset,
        disable_tools: params.disable_tools.unwrap_or_default(),
        enable_tools: params.enable_tools.unwrap_or_default(),
        hand: cx.caller.hand,
    };
    let permits = &cx.services().engine.permits;
    let now = permits.set(&cx.caller.requester, &agent, change).await.map_err(wire)?;
    let permissions = &now.settings.permissions;
    Ok(SetPermissionsResult {
        updated: true,
        permission_level: permissions.level.name().into(),
        preset: permissions.preset.clone(),
    })
}

async fn explain(
    cx: Cx,
    params: ExplainPermissionParams,
) -> Result<ExplainPermissionResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let arguments = params.arguments.unwrap_or_else(|| json!({}));
    let (allowed, needs_approval, rule, reason) =
        match cx.services().engine.gate.explain(&agent, &params.tool, &arguments).await {
            Explanation::Allowed => (true, false, None, None),
            Explanation::NeedsApproval(reason) => {
                (false, true, Some("approval".into()), Some(reason))
            }
            Explanation::Refused(refusal) => {
                (false, false, Some(refusal.rule().into()), Some(refusal.to_string()))
            }
        };
    Ok(ExplainPermissionResult { allowed, needs_approval, rule, reason })
}

async fn list_tools(cx: Cx, _: NoParams) -> Result<ListToolsResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let tools = cx.services().engine.gate.tools(&agent.snapshot()).await.map_err(wire)?;
    let entry = |tool: ToolStanding| ToolEntry {
        kind: tool.class.name().into(),
        enabled: tool.enabled,
        offered: tool.offered,
        rule: match (tool.enabled, tool.offered) {
            (_, true) => None,
            (false, false) => Some("enabled".into()),
            (true, false) if tool.class == ToolClass::Mcp => Some("mcp".into()),
            (true, false) => Some("level".into()),
        },
        input_schema: serde_json::from_str(&tool.spec.parameters).unwrap_or_default(),
        name: tool.spec.name,
        description: tool.spec.description,
    };
    Ok(ListToolsResult { tools: tools.into_iter().map(entry).collect() })
}

async fn list_presets(cx: Cx, _: NoParams) -> Result<ListPresetsResult, RpcError> {
    let Caller { hand, requester, .. } = &cx.caller;
    let (presets, default) = cx.services().engine.agents.presets(*hand, requester);
    let entry = |preset: Preset| PresetEntry {
        built_in: preset.extends.is_none(),
        level: preset.level.name().into(),
        extends: preset.extends,
        name: preset.name,
    };
    let presets = presets.into_iter().map(entry).collect();
    Ok(ListPresetsResult { default: default.into(), presets })
}

async fn list_approvals(
    cx: Cx,
    params: ListApprovalsParams,
) -> Result<ListApprovalsResult, RpcError> {
    let agent = params.agent_id.map(|name| agent_id("agent_id", &name)).transpose()?;
    let decided = params.include_decided.unwrap_or(false);
    let approvals = &cx.services().engine.approvals;
    let records = approvals.list(&cx.caller.requester, agent.as_ref(), decided).await;
    let records = records.map_err(wire)?;
    Ok(ListApprovalsResult { approvals: records.into_iter().map(entry).collect() })
}

async fn respond_approval(
    cx: Cx,
    params: RespondApprovalParams,
) -> Result<RespondApprovalResult, RpcError> {
    check_message(&params)?;
    if params.content.is_some() && params.decision != ApprovalDecision::Accept {
        return Err(RpcError::invalid_param("/content", "content is given with accept only"));
    }
    if params.scope.is_some() && params.decision != ApprovalDecision::AllowSession {
        return Err(RpcError::invalid_param("/scope", "scope is given with allow_session only"));
    }
    let response = match (params.decision, params.message) {
        (ApprovalDecision::AllowOnce, _) => Decision::AllowOnce.into(),
        (ApprovalDecision::AllowSession, _) => match params.scope.unwrap_or_default() {
            ApprovalScope::Tool => Decision::AllowSession.into(),
            ApprovalScope::Server => Decision::AllowServer.into(),
        },
        (ApprovalDecision::Deny, None) => Decision::Deny.into(),
        (ApprovalDecision::Deny, Some(message)) => Response::Denial(message),
        (ApprovalDecision::Accept, _) => {
            Response::Reply(Reply::Accept(params.content.unwrap_or_default()))
        }
        (ApprovalDecision::Decline, _) => Response::Reply(Reply::Decline),
        (ApprovalDecision::Cancel, _) => Response::Reply(Reply::Cancel),
    };
    let approvals = &cx.services().engine.approvals;
    let answered = approvals.respond(&cx.caller.requester, &params.approval_id, response).await;
    Ok(RespondApprovalResult { approval: entry(answered.map_err(wire)?) })
}

/// A model that is refused is told why; one that is let go on would never see it.
fn check_message(params: &RespondApprovalParams) -> Result<(), RpcError> {
    let Some(message) = &params.message else { return Ok(()) };
    let wrong = match params.decision {
        ApprovalDecision::Deny if is_blank(message) => format!("message {BLANK}"),
        ApprovalDecision::Deny if message.chars().count() > DENIAL_CHARS_MAX => {
            format!("message has at most {DENIAL_CHARS_MAX} characters")
        }
        ApprovalDecision::Deny => return Ok(()),
        _ => "message is said with a denial only".into(),
    };
    Err(RpcError::invalid_param("/message", wrong))
}

pub fn entry(record: ApprovalRecord) -> ApprovalEntry {
    let inquiry = record.inquiry.map(Arc::unwrap_or_clone);
    let kind = match inquiry {
        Some(_) => ApprovalKind::Elicitation,
        None => ApprovalKind::Call,
    };
    let (asks, wants) = inquiry.map(|it| (it.message, it.wants)).unzip();
    let (schema, url) = match wants {
        Some(Wants::Form(schema)) => (Some(schema), None),
        Some(Wants::Visit { url, .. }) => (None, Some(url)),
        // Yes or no: a form in which nothing is to be filled in.
        Some(Wants::Sampling) => (Some(json!({"type": "object", "properties": {}})), None),
        None => (None, None),
    };
    ApprovalEntry {
        approval_id: record.id,
        kind,
        agent_id: record.agent.to_string(),
        tool: record.tool,
        arguments: record.arguments,
        reason: record.reason,
        created_at: record.created_at.to_string(),
        status: record.answer.status.name().into(),
        lineage: record.lineage.iter().map(ToString::to_string).collect(),
        request_id: record.turn.as_ref().map(request_id),
        expires_at: record.expires_at.map(|at| at.to_string()),
        decided_by: record.answer.by,
        message: asks.or(record.answer.message),
        schema,
        url,
        grant: record.grant.map(|grant| match grant {
            Grant::Write { path } => ApprovalGrant::Write { path },
            Grant::Command { tool, dir } => ApprovalGrant::Command { tool, dir },
            Grant::Mcp { server, tool } => ApprovalGrant::Mcp { server, tool },
        }),
        preview: record.preview.map(|preview| preview_entry(Arc::unwrap_or_clone(preview))),
    }
}

fn preview_entry(preview: Preview) -> WirePreview {
    match preview {
        Preview::Diff(change) => WirePreview::Diff(change_entry(change)),
        Preview::Command { program, cwd, sandbox } => {
            let (argv, command, code) = match program {
                Program::Argv(argv) => (Some(argv), None, None),
                Program::Line(line) => (None, Some(line), None),
                Program::Python(code) => (None, None, Some(code)),
            };
            WirePreview::Command { argv, command, code, cwd, sandbox }
        }
        Preview::Agent { target, content } => WirePreview::Agent { target, content },
        Preview::Write { path, bytes } => WirePreview::Write { path, bytes },
    }
}

pub fn change_entry(change: FileChange) -> WireFileChange {
    let FileChange { path, diff, added, removed, truncated } = change;
    WireFileChange { path, diff, added, removed, truncated }
}
