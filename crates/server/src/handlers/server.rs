//! The server itself.

use nexus_protocol::RpcError;
use nexus_protocol::metrics::{GetMetrics, GetMetricsResult};
use nexus_protocol::params::NoParams;
use nexus_protocol::server::{
    Discover, PROTOCOL_REVISION, ShutdownServer, ShutdownServerResult, Version, VersionResult,
};
use serde_json::Value;

use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;
use crate::openrpc;

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
    table.on::<GetMetrics, _, _>(get_metrics);
}

async fn shutdown(cx: Cx, _: NoParams) -> Result<ShutdownServerResult, RpcError> {
    cx.services().engine.request_stop(&cx.caller.requester).map_err(wire)?;
    Ok(ShutdownServerResult { success: true, message: "The server is stopping".into() })
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
        name: "nexus3".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol: PROTOCOL_REVISION.into(),
        features: FEATURES.map(Into::into).to_vec(),
        default_provider: model.as_ref().map(|model| model.provider_name.clone()),
        default_model: model.map(|model| model.alias.clone()),
    })
}
