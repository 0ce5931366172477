//! The MCP servers whose tools agents use.

use std::time::Duration;

use futures_util::future::join_all;
use nexus_core::authority::Action;
use nexus_core::mcp::{
    Accept, LoginState, Lookup, ServerSource, ServerState, ToolChange, ToolState,
};
use nexus_core::servers::{OwnConnection, ServerStanding};
use nexus_protocol::RpcError;
use nexus_protocol::mcp::{
    McpAccept, McpAuth, McpChange, McpConnect, McpConnectParams, McpConnectResult, McpDisconnect,
    McpDisconnectParams, McpDisconnectResult, McpGetPrompt, McpGetPromptParams, McpGetPromptResult,
    McpListServers, McpListServersParams, McpListServersResult, McpPrompts, McpPromptsParams,
    McpPromptsResult, McpReadResource, McpReadResourceParams, McpReadResourceResult, McpResources,
    McpResourcesParams, McpResourcesResult, McpReview, McpReviewParams, McpReviewResult,
    McpServerEntry, McpServerInfo, McpServerStatus, McpSource, McpStatus, McpStatusParams,
    McpStatusResult, McpTool,
};
use serde_json::{Map, Value};

use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;

/// As long as a server may take to start, unless its configuration says otherwise.
const WAIT_MS: u32 = 30_000;

pub fn register(table: &mut Table) {
    table.on::<McpListServers, _, _>(list_servers);
    table.on::<McpConnect, _, _>(connect);
    table.on::<McpDisconnect, _, _>(disconnect);
    table.on::<McpStatus, _, _>(status);
    table.on::<McpReview, _, _>(review);
    table.on::<McpPrompts, _, _>(prompts);
    table.on::<McpGetPrompt, _, _>(get_prompt);
    table.on::<McpResources, _, _>(resources);
    table.on::<McpReadResource, _, _>(read_resource);
}

async fn list_servers(
    cx: Cx,
    params: McpListServersParams,
) -> Result<McpListServersResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let servers = &cx.services().engine.servers;
    let listed = servers.list(&cx.caller.requester, &agent).await.map_err(wire)?;
    let include = params.include_tools.unwrap_or(false);
    let entry = |ServerStanding { status, visible, offered, .. }: ServerStanding| McpServerEntry {
        name: status.name,
        source: status.source.name().into(),
        transport: status.transport.into(),
        state: status.state.name().into(),
        shared: status.shared,
        visible,
        // There are at most a few thousand.
        tool_count: offered.len() as u32,
        last_error: status.last_error,
        tools: include.then_some(offered),
    };
    Ok(McpListServersResult { servers: listed.into_iter().map(entry).collect() })
}

async fn connect(cx: Cx, params: McpConnectParams) -> Result<McpConnectResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let wait = params.wait_ms.map_or(WAIT_MS, |wait| wait.get());
    let wait = Duration::from_millis(wait.into());
    let (servers, requester) = (&cx.services().engine.servers, &cx.caller.requester);
    let McpConnectParams { server, config, source, shared, .. } = params;
    let connected = match (server, config) {
        (Some(server), None) if source.is_none() => {
            servers.connect(requester, &agent, &server, shared, wait).await
        }
        (None, Some(_)) if shared == Some(true) => {
            let why =
                "shared: a connection of one agent is not shared; nexus3 mcp add makes one for all";
            return Err(RpcError::invalid_param("/shared", why));
        }
        (None, Some(config)) => {
            let source = match source {
                None | Some(McpSource::Agent) => ServerSource::Agent,
                Some(McpSource::Client) => ServerSource::Client,
            };
            servers.connect_own(requester, &agent, OwnConnection { source, config }, wait).await
        }
        (Some(_), None) => {
            return Err(RpcError::invalid_param("/source", "source goes with config"));
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(RpcError::invalid_param("/server", "give server or config"));
        }
    };
    let ServerStanding { status, offered, .. } = connected.map_err(wire)?;
    Ok(McpConnectResult {
        connected: status.state == ServerState::Ready,
        server: status.name,
        state: status.state.name().into(),
        protocol_version: status.protocol_version,
        tools: offered,
    })
}

async fn disconnect(cx: Cx, params: McpDisconnectParams) -> Result<McpDisconnectResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let servers = &cx.services().engine.servers;
    let gone = servers.disconnect(&cx.caller.requester, &agent, &params.server).await;
    Ok(McpDisconnectResult { disconnected: gone.map_err(wire)?, server: params.server })
}

async fn status(cx: Cx, params: McpStatusParams) -> Result<McpStatusResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let (servers, requester) = (&cx.services().engine.servers, &cx.caller.requester);
    let found = match params.server {
        Some(name) => vec![servers.get(requester, &agent, &name).await.map_err(wire)?],
        None => servers.list(requester, &agent).await.map_err(wire)?,
    };
    let entry = async |standing: ServerStanding| {
        let auth = servers.login_state(&agent, &standing.status.name).await.map_err(wire)?;
        Ok(status_entry(standing, auth))
    };
    let servers = join_all(found.into_iter().map(entry)).await;
    Ok(McpStatusResult { servers: servers.into_iter().collect::<Result<_, RpcError>>()? })
}

async fn review(cx: Cx, params: McpReviewParams) -> Result<McpReviewResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let accept = match params.accept {
        McpAccept::All(_) => Accept::All,
        McpAccept::Tools(tools) => Accept::Tools(tools),
    };
    let servers = &cx.services().engine.servers;
    let accepted = servers.review(&cx.caller.requester, &agent, &params.server, accept).await;
    Ok(McpReviewResult { accepted: accepted.map_err(wire)? })
}

async fn prompts(cx: Cx, params: McpPromptsParams) -> Result<McpPromptsResult, RpcError> {
    let (prompts, _) = listed(&cx, params.server, Lookup::Prompts, "prompts").await?;
    Ok(McpPromptsResult { prompts })
}

async fn get_prompt(cx: Cx, params: McpGetPromptParams) -> Result<McpGetPromptResult, RpcError> {
    let lookup = Lookup::Prompt { name: params.name, arguments: params.arguments };
    let mut found = look_up(&cx, &params.server, &lookup).await?;
    Ok(McpGetPromptResult {
        description: found["description"].as_str().map(str::to_owned),
        messages: list(found["messages"].take()),
    })
}

async fn resources(cx: Cx, params: McpResourcesParams) -> Result<McpResourcesResult, RpcError> {
    if params.cursor.is_some() && params.server.is_none() {
        return Err(RpcError::invalid_param("/cursor", "cursor is of use only with its server"));
    }
    let lookup = Lookup::Resources { cursor: params.cursor };
    let (resources, next_cursor) = listed(&cx, params.server, lookup, "resources").await?;
    Ok(McpResourcesResult { resources, next_cursor })
}

async fn read_resource(
    cx: Cx,
    params: McpReadResourceParams,
) -> Result<McpReadResourceResult, RpcError> {
    let lookup = Lookup::Resource { uri: params.uri };
    let mut found = look_up(&cx, &params.server, &lookup).await?;
    Ok(McpReadResourceResult { contents: list(found["contents"].take()) })
}

/// What a server, or all that run, have under a name, and of one where there is more.
async fn listed(
    cx: &Cx,
    server: Option<String>,
    lookup: Lookup,
    member: &str,
) -> Result<(Vec<Map<String, Value>>, Option<String>), RpcError> {
    let is_named = server.is_some();
    let found = match server {
        Some(server) => {
            let found = look_up(cx, &server, &lookup).await?;
            vec![(server, found)]
        }
        None => {
            let agent = cx.agent(Action::Manage).await?;
            let servers = &cx.services().engine.servers;
            let all = servers.look_up_all(&cx.caller.requester, &agent, &lookup).await;
            all.map_err(wire)?
        }
    };
    let cursor = match found.as_slice() {
        [(_, only)] if is_named => only["nextCursor"].as_str().map(str::to_owned),
        _ => None,
    };
    let mut entries = Vec::new();
    for (server, mut found) in found {
        for entry in list(found[member].take()) {
            let Value::Object(mut entry) = entry else { continue };
            entry.insert("server".into(), server.as_str().into());
            entries.push(entry);
        }
    }
    Ok((entries, cursor))
}

async fn look_up(cx: &Cx, server: &str, lookup: &Lookup) -> Result<Value, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let servers = &cx.services().engine.servers;
    let found = servers.look_up(&cx.caller.requester, &agent, server, lookup).await;
    found.map_err(wire)
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        _ => Vec::new(),
    }
}

fn status_entry(standing: ServerStanding, auth: Option<LoginState>) -> McpServerStatus {
    let ServerStanding { status, offered, deferred, shown_bytes, .. } = standing;
    let tools = status.tools.into_iter().map(|tool| McpTool {
        state: match tool.state {
            ToolState::Quarantined => "quarantined",
            _ if deferred.contains(&tool.name) => "deferred",
            _ if offered.contains(&tool.name) => "offered",
            ToolState::Usable | ToolState::Disabled => "disabled",
        }
        .into(),
        name: tool.name,
        tool: tool.tool,
    });
    McpServerStatus {
        name: status.name,
        source: status.source.name().into(),
        state: status.state.name().into(),
        shared: status.shared,
        protocol_version: status.protocol_version,
        server_info: status.server_info.map(|(name, version)| McpServerInfo { name, version }),
        pid: status.pid,
        started_at: status.started_at.map(|at| at.to_string()),
        restarts: status.restarts,
        in_flight: status.in_flight,
        calls: status.calls,
        last_error: status.last_error,
        stderr_tail: status.stderr_tail,
        auth: auth.map(auth_entry),
        sandbox: status.sandbox,
        context_tokens: (shown_bytes / 4) as u64,
        tools: tools.collect(),
        changed: status.changed.into_iter().map(change).collect(),
    }
}

fn auth_entry(login: LoginState) -> McpAuth {
    let (state, expires_at, scopes) = match login {
        LoginState::None => ("none", None, Vec::new()),
        LoginState::Needed => ("needed", None, Vec::new()),
        LoginState::Kept { expires_at, scopes } => ("logged_in", expires_at, scopes),
    };
    McpAuth { state: state.into(), expires_at: expires_at.map(|at| at.to_string()), scopes }
}

fn change(change: ToolChange) -> McpChange {
    let ToolChange { tool, field, before, after } = change;
    McpChange { tool, field, before, after }
}
