//! The context that all planners and executors share.

use nexus_core::shared_context::Change;
use nexus_core::store::{ContextKind, SharedContext};
use nexus_protocol::RpcError;
use nexus_protocol::params::NoParams;
use nexus_protocol::shared_context::{
    ContextAction, ContextType, GetContextState, GetContextStateResult, UpdateContext,
    UpdateContextParams, UpdateContextResult,
};
use serde_json::{Map, Value};

use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;

pub fn register(table: &mut Table) {
    table.on::<UpdateContext, _, _>(update);
    table.on::<GetContextState, _, _>(state);
}

async fn update(cx: Cx, params: UpdateContextParams) -> Result<UpdateContextResult, RpcError> {
    let change = match params.action {
        ContextAction::Add => Change::Add,
        ContextAction::Remove => Change::Remove,
        ContextAction::Modify => Change::Modify,
    };
    let kind = match params.context_type {
        ContextType::File => ContextKind::File,
        ContextType::Dependency => ContextKind::Dependency,
        ContextType::State => ContextKind::State,
    };
    let keeper = &cx.services().engine.context;
    let requester = &cx.caller.requester;
    let done = keeper.update(requester, change, kind, params.data, params.if_version).await;
    let done = done.map_err(wire)?;
    Ok(UpdateContextResult {
        status: "success".into(),
        changed: done.changed,
        context_version: done.version,
    })
}

async fn state(cx: Cx, _: NoParams) -> Result<GetContextStateResult, RpcError> {
    let context = cx.services().engine.context.state(&cx.caller.requester).await.map_err(wire)?;
    Ok(GetContextStateResult {
        context_version: context.version,
        files: objects(&context, ContextKind::File),
        dependencies: objects(&context, ContextKind::Dependency),
        state: context
            .of(ContextKind::State)
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect(),
    })
}

/// Entries that are kept as they were given.
fn objects(context: &SharedContext, kind: ContextKind) -> Vec<Map<String, Value>> {
    context.of(kind).filter_map(|(_, value)| value.as_object().cloned()).collect()
}
