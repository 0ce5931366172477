//! One file per resource. A handler decodes nothing and frames nothing: wire types in, domain call, wire types out.

mod agent;
mod code;
mod content;
mod conversation;
mod key;
mod mcp;
mod memory;
mod model;
mod permission;
mod plan;
mod schema;
mod server;
mod session;
mod settings;
mod shared_context;
mod task;
mod terminal;
mod turn;
pub mod usage;
mod watch;

use nexus_core::{AgentId, TurnId};
use nexus_protocol::RpcError;
use nexus_protocol::params::{BLANK, is_blank};
use nexus_protocol::turn::RequestId;

use crate::dispatcher::Table;
pub use agent::entry as agent_entry;
pub use code::result as check_result;
pub use conversation::{message_entry, tool_call_entry};
pub use key::{key_entry, stored_door};
pub use model::entry as model_entry;
pub use permission::{change_entry, entry as approval_entry};

pub fn register(table: &mut Table) {
    agent::register(table);
    code::register(table);
    conversation::register(table);
    key::register(table);
    mcp::register(table);
    memory::register(table);
    model::register(table);
    permission::register(table);
    plan::register(table);
    server::register(table);
    session::register(table);
    settings::register(table);
    task::register(table);
    terminal::register(table);
    shared_context::register(table);
    turn::register(table);
    usage::register(table);
    watch::register(table);
}

/// A name in the parameter `parameter`.
fn agent_id(parameter: &str, name: &str) -> Result<AgentId, RpcError> {
    AgentId::parse(name).map_err(|error| {
        RpcError::invalid_param(format!("/{parameter}"), format!("{parameter}: {error}"))
    })
}

/// The turn that the parameter `request_id` names.
fn turn_id(id: RequestId) -> Result<TurnId, RpcError> {
    match id {
        RequestId::Number(number) => Ok(TurnId::Number(number)),
        RequestId::Text(text) if is_blank(&text) => {
            Err(RpcError::invalid_param("/request_id", format!("request_id {BLANK}")))
        }
        RequestId::Text(text) => Ok(TurnId::Text(text.into())),
    }
}

pub fn request_id(id: &TurnId) -> RequestId {
    match id {
        TurnId::Number(number) => RequestId::Number(*number),
        TurnId::Text(text) => RequestId::Text(text.to_string()),
    }
}
