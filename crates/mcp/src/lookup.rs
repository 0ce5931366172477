//! What servers have beside tools: prompts and resources, as they are.

use std::time::Duration;

use nexus_core::mcp::Lookup;
use rmcp::RoleClient;
use rmcp::model::{
    GetPromptRequestParams, PaginatedRequestParams, ReadResourceRequestParams, ServerCapabilities,
};
use rmcp::service::{Peer, ServiceError};
use serde_json::{Value, json};

use crate::connection::{CallError, PAGES_MAX};

/// Prompts of one server. Nobody chooses among more.
const PROMPTS_MAX: usize = 1_000;

/// Of one answer, as text.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What a lookup fails with: the server's connection, or its answer.
pub enum LookupError {
    Service(ServiceError),
    Call(CallError),
}

impl From<ServiceError> for LookupError {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

/// Asks, and returns the answer in MCP's shape.
pub async fn ask(
    peer: &Peer<RoleClient>,
    lookup: &Lookup,
    timeout: Duration,
) -> Result<Value, LookupError> {
    let refused = |why: &str| LookupError::Call(CallError::Refused(why.into()));
    let info = peer.peer_info();
    let has = |of: fn(&ServerCapabilities) -> bool| {
        info.as_ref().is_none_or(|info| of(&info.capabilities))
    };
    let is_there = match lookup {
        Lookup::Prompts | Lookup::Prompt { .. } => has(|it| it.prompts.is_some()),
        Lookup::Resources { .. } | Lookup::Resource { .. } => has(|it| it.resources.is_some()),
    };
    let answer = async {
        let value = match lookup {
            Lookup::Prompts if !is_there => json!({"prompts": []}),
            Lookup::Resources { .. } if !is_there => json!({"resources": []}),
            Lookup::Prompt { .. } if !is_there => return Err(refused("it has no prompts")),
            Lookup::Resource { .. } if !is_there => return Err(refused("it has no resources")),
            Lookup::Prompts => json!({"prompts": prompts(peer).await?}),
            Lookup::Prompt { name, arguments } => {
                let mut params = GetPromptRequestParams::new(name);
                params.arguments = arguments.clone();
                shape(peer.get_prompt(params).await?)
            }
            Lookup::Resources { cursor } => {
                let page = PaginatedRequestParams::default().with_cursor(cursor.clone());
                shape(peer.list_resources(Some(page)).await?)
            }
            Lookup::Resource { uri } => {
                shape(peer.read_resource(ReadResourceRequestParams::new(uri)).await?)
            }
        };
        match value.to_string().len() > ANSWER_BYTES_MAX {
            true => {
                Err(refused(&format!("its answer has more than {} MiB", ANSWER_BYTES_MAX >> 20)))
            }
            false => Ok(value),
        }
    };
    let answered = tokio::time::timeout(timeout, answer).await;
    answered.unwrap_or(Err(LookupError::Call(CallError::Silent(timeout))))
}

/// All of them, of as many pages as there are.
async fn prompts(peer: &Peer<RoleClient>) -> Result<Vec<Value>, ServiceError> {
    let mut prompts = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let page = PaginatedRequestParams::default().with_cursor(cursor.take());
        let page = peer.list_prompts(Some(page)).await?;
        prompts.extend(page.prompts.into_iter().map(shape));
        cursor = page.next_cursor;
        if cursor.is_none() || prompts.len() >= PROMPTS_MAX {
            break;
        }
    }
    prompts.truncate(PROMPTS_MAX);
    Ok(prompts)
}

fn shape(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
