//! Making, ending and listing agents.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use nexus_core::Requester;
use nexus_core::authority::Action;
use nexus_core::lifecycle::{AgentSpec, Card, ListQuery, Status};
use nexus_core::mcp::McpReach;
use nexus_core::message::Role;
use nexus_core::turn::TurnInput;
use nexus_protocol::RpcError;
use nexus_protocol::agent::{
    AgentEntry, CreateAgent, CreateAgentParams, CreateAgentResult, CreateAgentToken,
    CreateAgentTokenParams, CreateAgentTokenResult, DestroyAgent, DestroyAgentParams,
    DestroyAgentResult, ListAgents, ListAgentsParams, ListAgentsResult, PastMessage, PastRole,
    Shutdown, ShutdownResult, UnloadAgent, UnloadAgentParams, UnloadAgentResult,
};
use nexus_protocol::params::{Bounded, NoParams};
use nexus_protocol::shared::Shared;

use super::{agent_id, request_id};
use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;

pub fn register(table: &mut Table) {
    table.on::<CreateAgent, _, _>(create);
    table.on::<DestroyAgent, _, _>(destroy);
    table.on::<UnloadAgent, _, _>(unload);
    table.on::<ListAgents, _, _>(list);
    table.on::<CreateAgentToken, _, _>(create_token);
    table.on::<Shutdown, _, _>(shutdown);
}

async fn create(cx: Cx, params: CreateAgentParams) -> Result<CreateAgentResult, RpcError> {
    let engine = &cx.services().engine;
    let spec = AgentSpec {
        name: params.agent_id,
        preset: params.preset,
        cwd: params.cwd,
        write_paths: params.allowed_write_paths.unwrap_or_default(),
        model: params.model,
        reasoning: params.reasoning.map(super::usage::reasoning),
        system_prompt: params.system_prompt,
        disable_tools: params.disable_tools.unwrap_or_default(),
        mcp: params.mcp.map(reach).transpose()?,
        parent: params
            .parent_agent_id
            .map(|name| agent_id("parent_agent_id", &name))
            .transpose()?,
        history: params.history.into_iter().flatten().map(said).collect(),
        hand: cx.caller.hand,
    };
    let agent = engine.agents.create(&cx.caller.requester, spec).await.map_err(wire)?;
    let mut result = CreateAgentResult {
        agent_id: agent.id().to_string(),
        url: format!("/agent/{}", agent.id()),
        initial_request_id: None,
        initial_status: None,
        response: None,
    };
    if let Some(content) = params.initial_message {
        let source_agent = super::turn::source_agent(&cx.caller.requester, None)?;
        let content = content.into_string().into();
        let asked_by = (&cx.caller.requester).into();
        let input = TurnInput { content, source_agent, asked_by, ..TurnInput::default() };
        let turn = match engine.turns.start(&agent, input).await {
            Ok(turn) => turn,
            Err(refused) => {
                // Whoever is told to come later must find the name free then.
                let own = Requester::Administrator;
                engine.agents.destroy(&own, &agent.id()).await.map_err(wire)?;
                return Err(wire(refused));
            }
        };
        result.initial_request_id = Some(request_id(&turn.id));
        if params.wait_for_initial_response == Some(true) {
            let id = turn.id.clone();
            result.response =
                Some(super::turn::send_result(id, turn.wait(None).await.map_err(wire)?));
        } else {
            result.initial_status = Some("queued".into());
        }
    }
    Ok(result)
}

/// What was said before, as the core has it.
fn said(past: PastMessage) -> (Role, String) {
    let role = match past.role {
        PastRole::User => Role::User,
        PastRole::Assistant => Role::Assistant,
    };
    (role, past.content.into_string())
}

/// Tools of MCP servers as they are named.
fn reach(written: BTreeMap<String, Vec<String>>) -> Result<McpReach, RpcError> {
    McpReach::parse(written).map_err(|why| RpcError::invalid_param("/mcp", format!("mcp: {why}")))
}

async fn destroy(cx: Cx, params: DestroyAgentParams) -> Result<DestroyAgentResult, RpcError> {
    let id = agent_id("agent_id", &params.agent_id)?;
    let destroyed =
        cx.services().engine.agents.destroy(&cx.caller.requester, &id).await.map_err(wire)?;
    Ok(DestroyAgentResult {
        success: !destroyed.is_empty(),
        agent_id: params.agent_id,
        destroyed: destroyed.iter().map(ToString::to_string).collect(),
    })
}

async fn unload(cx: Cx, params: UnloadAgentParams) -> Result<UnloadAgentResult, RpcError> {
    let id = agent_id("agent_id", &params.agent_id)?;
    let agents = &cx.services().engine.agents;
    let released = agents.release(&cx.caller.requester, &id).await.map_err(wire)?;
    Ok(UnloadAgentResult { unloaded: released.iter().map(ToString::to_string).collect() })
}

async fn list(cx: Cx, params: ListAgentsParams) -> Result<ListAgentsResult, RpcError> {
    if params.after.is_some() || params.limit.is_some() {
        let after = params.after.map(|name| agent_id("after", &name)).transpose()?;
        let limit = params.limit.map(Bounded::get);
        let (agents, more) = entries(&cx, ListQuery { after, limit }).await?;
        return Ok(ListAgentsResult { agents, more: Some(more) });
    }
    let services = cx.services();
    // What an agent sees is its own; what the administrator sees is the same until something changes.
    if cx.caller.requester != Requester::Administrator {
        let (agents, _) = entries(&cx, ListQuery::default()).await?;
        return Ok(ListAgentsResult { agents, more: None });
    }
    // Before the list is made: what changes meanwhile makes it old.
    let version = services.engine.agents.version();
    let known = || services.agent_list.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, agents)) = &*known()
        && *of == version
    {
        return Ok(ListAgentsResult { agents: agents.clone(), more: None });
    }
    let (agents, _) = entries(&cx, ListQuery::default()).await?;
    *known() = Some((version, agents.clone()));
    Ok(ListAgentsResult { agents, more: None })
}

/// The entries of a page, and whether there are more behind it.
async fn entries(cx: &Cx, query: ListQuery) -> Result<(Shared<Vec<AgentEntry>>, bool), RpcError> {
    let engine = &cx.services().engine;
    let default_model = engine.models.resolve(None).ok().map(|model| model.alias.clone());
    let page = engine.agents.list(&cx.caller.requester, query).await.map_err(wire)?;
    let cards = page.cards.into_iter();
    let entries = cards.map(|card| entry(card, default_model.as_ref())).collect();
    Ok((Shared::new(entries), page.more))
}

pub fn entry(card: Card, default_model: Option<&String>) -> AgentEntry {
    let Card { record, status, child_count, running, queued } = card;
    AgentEntry {
        is_temp: record.id.is_temp(),
        agent_id: record.id.to_string(),
        created_at: record.created_at.to_string(),
        message_count: record.message_count,
        should_shutdown: record.progress.should_shutdown,
        parent_agent_id: record.parent.map(|id| id.to_string()),
        child_count,
        halted_at_iteration_limit: record.progress.halted_at_iteration_limit,
        model: record.settings.model.or_else(|| default_model.cloned()),
        last_action_at: record.last_action_at.map(|at| at.to_string()),
        permission_level: record.settings.permissions.level.name().to_uppercase(),
        cwd: record.settings.cwd.display().to_string(),
        write_paths: super::permission::paths(&record.settings.permissions.write),
        status: match status {
            Status::Idle => "idle",
            Status::Running => "running",
            Status::WaitingProvider => "waiting_provider",
            Status::Stored => "stored",
            Status::Elsewhere => "elsewhere",
        }
        .into(),
        running_request_id: running.as_ref().map(request_id),
        queued: queued as u64,
        usage: super::usage::totals(&record.bill),
    }
}

async fn create_token(
    cx: Cx,
    params: CreateAgentTokenParams,
) -> Result<CreateAgentTokenResult, RpcError> {
    let id = agent_id("agent_id", &params.agent_id)?;
    let engine = &cx.services().engine;
    let agent =
        engine.agents.find(&cx.caller.requester, &id, Action::Manage).await.map_err(wire)?;
    let born = agent.look().born;
    Ok(CreateAgentTokenResult {
        agent_id: params.agent_id,
        token: cx.services().tokens.mint(&id, born),
    })
}

async fn shutdown(cx: Cx, _: NoParams) -> Result<ShutdownResult, RpcError> {
    let (engine, requester) = (&cx.services().engine, &cx.caller.requester);
    match &cx.agent_id {
        Some(id) => engine.agents.shut_down(requester, id).await.map_err(wire)?,
        None => engine.agents.request_stop(requester).map_err(wire)?,
    }
    Ok(ShutdownResult { success: true })
}
