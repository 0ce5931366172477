//! The server itself.

use std::path::Path;

use nexus_protocol::RpcError;
use nexus_protocol::metrics::{GetMetrics, GetMetricsResult};
use nexus_protocol::params::NoParams;
use nexus_protocol::server::{
    Discover, PROTOCOL_REVISION, ServerInfo, ServerInfoResult, ShutdownServer,
    ShutdownServerResult, Version, VersionResult,
};
use serde_json::Value;

use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;
use crate::openrpc;

const NAME: &str = "nexus3";

/// What a client may rely on beside the methods themselves.
const FEATURES: [&str; 7] = [
    "batch",
    "streaming",
    "durable-agents",
    "agent-tokens",
    "response-schema",
    "signed-requests",
    "watch",
];

pub fn register(table: &mut Table) {
    table.on::<ShutdownServer, _, _>(shutdown);
    table.on::<Discover, _, _>(discover);
    table.on::<Version, _, _>(version);
    table.on::<ServerInfo, _, _>(info);
    table.on::<GetMetrics, _, _>(get_metrics);
}

async fn shutdown(cx: Cx, _: NoParams) -> Result<ShutdownServerResult, RpcError> {
    cx.services().engine.agents.request_stop(&cx.caller.requester).map_err(wire)?;
    Ok(ShutdownServerResult { success: true, message: "The server is stopping".into() })
}

async fn info(cx: Cx, _: NoParams) -> Result<ServerInfoResult, RpcError> {
    let services = cx.services();
    let requester = &cx.caller.requester;
    requester.administrator_only("see what the server is and does").map_err(wire)?;
    let (engine, site) = (&services.engine, &services.site);
    let (load, watches) = (engine.load(), engine.watching.watches());
    let contact = site.contact.get();
    let path = |path: &Path| path.display().to_string();
    Ok(ServerInfoResult {
        name: NAME.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        home: path(&site.home),
        cwd: path(engine.agents.cwd()),
        url: contact.and_then(|contact| contact.url.clone()),
        socket: contact.and_then(|contact| contact.socket.as_deref().map(path)),
        started_at: site.started_at.to_string(),
        approvals: engine.approvals.mode().name().into(),
        agents: load.agents as u64,
        turns: load.turns as u64,
        turns_running: (load.turns - load.turns_queued) as u64,
        watches: watches.count() as u64,
        watchers: watches.names(),
    })
}

async fn get_metrics(cx: Cx, _: NoParams) -> Result<GetMetricsResult, RpcError> {
    cx.services().engine.authorize_metrics(&cx.caller.requester).map_err(wire)?;
    Ok(GetMetricsResult { metrics: cx.dispatcher.metrics() })
}

async fn discover(_: Cx, _: NoParams) -> Result<Value, RpcError> {
    Ok(openrpc::document(&crate::methods()))
}

async fn version(cx: Cx, _: NoParams) -> Result<VersionResult, RpcError> {
    let model = cx.services().engine.models.resolve(None).ok();
    Ok(VersionResult {
        name: NAME.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol: PROTOCOL_REVISION.into(),
        features: FEATURES.map(Into::into).to_vec(),
        default_provider: model.as_ref().map(|model| model.provider_name.clone()),
        default_model: model.map(|model| model.alias.clone()),
    })
}
