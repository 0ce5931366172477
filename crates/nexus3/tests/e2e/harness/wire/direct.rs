//! Messages said through the typed interface: what a message holds becomes values, and the values that come back become
//! an answer, so that the same cases run without an envelope in between.

use nexus_protocol::agent::*;
use nexus_protocol::code::ValidateCode;
use nexus_protocol::conversation::*;
use nexus_protocol::key::{CreateKey, ListKeys, RevokeKey};
use nexus_protocol::mcp::{
    McpConnect, McpDisconnect, McpGetPrompt, McpListServers, McpPrompts, McpReadResource,
    McpResources, McpReview, McpStatus,
};
use nexus_protocol::memory::*;
use nexus_protocol::metrics::GetMetrics;
use nexus_protocol::model::*;
use nexus_protocol::permission::*;
use nexus_protocol::plan::*;
use nexus_protocol::server::*;
use nexus_protocol::session::*;
use nexus_protocol::settings::*;
use nexus_protocol::shared_context::*;
use nexus_protocol::task::ExecuteTask;
use nexus_protocol::turn::*;
use nexus_protocol::usage::GetUsage;
use nexus_protocol::watch::{Unwatch, Watch};
use nexus_protocol::{Api as _, CallError, Incoming, Method, RpcError, Scope, Target};
use nexus_protocol::{envelope, params};
use nexus_server::DirectAgentApi;
use serde_json::Value;

/// The answer to a request.
pub async fn answer(api: &DirectAgentApi, message: &[u8]) -> String {
    let Ok(Incoming::Single(request)) = envelope::parse(message) else {
        panic!("not a typed call: {}", String::from_utf8_lossy(message));
    };
    let id = request.id.expect("a typed call is always answered");
    let mut out = Vec::new();
    match by_name(api, &request.method, request.params).await {
        Ok(result) => envelope::write_result(&mut out, &id, &result).unwrap(),
        Err(error) => envelope::write_error(&mut out, Some(&id), &error),
    }
    String::from_utf8(out).unwrap()
}

async fn by_name(
    api: &DirectAgentApi,
    method: &str,
    params: Option<&str>,
) -> Result<Value, RpcError> {
    macro_rules! typed {
        ($($method:ty),+ $(,)?) => {
            match method {
                $( <$method as Method>::NAME => call::<$method>(api, params).await, )+
                _ => Err(RpcError::method_not_found(method)),
            }
        };
    }
    typed!(
        CreateAgent,
        DestroyAgent,
        UnloadAgent,
        ListAgents,
        CreateAgentToken,
        Shutdown,
        GetTokens,
        GetContext,
        GetMessages,
        Compact,
        GetPermissions,
        SetPermissions,
        ExplainPermission,
        ListTools,
        ListPresets,
        ServerInfo,
        ListApprovals,
        RespondApproval,
        ShutdownServer,
        Discover,
        Version,
        ListSessions,
        LoadSession,
        SaveSession,
        CloneSession,
        RenameSession,
        DeleteSession,
        GetAgentSummaries,
        SetCwd,
        GetSystemPrompt,
        SetSystemPrompt,
        GetModel,
        SetModel,
        ListModels,
        ValidateCode,
        MemoryAdd,
        MemorySearch,
        MemoryList,
        MemoryDelete,
        ExecuteTask,
        CreatePlan,
        RunPlan,
        GetPlan,
        ListPlans,
        CancelPlan,
        GetUsage,
        CreateKey,
        GetMetrics,
        ListKeys,
        McpConnect,
        McpDisconnect,
        McpGetPrompt,
        McpListServers,
        McpPrompts,
        McpReadResource,
        McpResources,
        McpReview,
        McpStatus,
        RevokeKey,
        UpdateContext,
        GetContextState,
        Send,
        Cancel,
        ResumeTurn,
        Watch,
        Unwatch,
    )
}

async fn call<M: Method>(api: &DirectAgentApi, raw: Option<&str>) -> Result<Value, RpcError> {
    let (params, name) = match M::SCOPE {
        Scope::Server => (params::decode::<M::Params>(raw)?, None),
        Scope::Agent => params::decode_addressed::<M::Params>(raw)?,
    };
    let target = name.map_or(Target::Server, |name| Target::Agent(name.into()));
    match api.call::<M>(&target, params).await {
        Ok(result) => Ok(serde_json::to_value(result).unwrap()),
        Err(CallError::Rpc(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}
