//! A tool of a server, as the core calls it.

use std::sync::Arc;

use async_trait::async_trait;
use nexus_core::mcp::{Origin, OwnServers, ToolState};
use nexus_core::permission::ToolClass;
use nexus_core::provider::ToolSpec;
use nexus_core::tool::{Invocation, Need, ServerUser, Tool, ToolOutput};
use serde_json::{Map, Value};

use crate::connection::{CallError, ServerCall};
use crate::listing::{Listed, asks};
use crate::progress::Relay;
use crate::result::{self, SHOWN_BYTES_MAX};
use crate::server::Server;

pub struct McpTool {
    server: Arc<Server>,
    listed: Arc<Listed>,
    origin: Origin,
}

impl McpTool {
    pub fn new(server: Arc<Server>, listed: Arc<Listed>) -> Self {
        let origin = Origin {
            server: server.entry.name.clone(),
            tool: listed.tool.clone(),
            asks: asks(&server.entry, &listed.tool),
            pin: listed.pin.clone(),
            defer: server.entry.defer,
            quarantined: listed.state == ToolState::Quarantined,
        };
        Self { server, listed, origin }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.listed.spec
    }

    fn class(&self) -> ToolClass {
        ToolClass::Mcp
    }

    fn origin(&self) -> Option<&Origin> {
        Some(&self.origin)
    }

    async fn prepare(&self) {
        if !self.listed.is_prepared() {
            let listed = self.listed.clone();
            // A panic in there leaves it unprepared, and whoever needs it meets the same.
            let _ = tokio::task::spawn_blocking(move || listed.prepare()).await;
        }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, String> {
        self.listed.fitting(arguments)?;
        Ok(vec![Need::Server(self.origin.clone())])
    }

    async fn run(&self, call: Invocation) -> Result<ToolOutput, String> {
        let arguments = match self.listed.fitting(&call.arguments)?.into_owned() {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        let progress = Relay::new(&*call.onlookers);
        let user = call.agent.id();
        let asked = ServerCall {
            user: &user,
            tool: &self.listed.tool,
            arguments,
            cancel: &call.cancel,
            people: &*call.people,
            ticket: call.ticket.as_deref(),
        };
        let keep = async |task: &str| {
            if let Err(error) = call.keep_ticket(task.to_owned()).await {
                tracing::warn!(%error, "the task of an MCP server was not written down");
            }
        };
        let server = self.server.serving(ServerUser {
            agent: &call.agent,
            permissions: &call.access.permissions,
            own: &OwnServers::default(),
        })?;
        let called = server.call(asked, keep, |said| progress.put(said));
        let result = progress.during(called).await.map_err(|error| self.explain(error))?;
        if let Some(structured) = &result.structured_content
            && result.is_error != Some(true)
            && let Err(fault) = self.listed.check_output(structured)
        {
            return Err(format!("the result does not fit the tool's own schema: {fault}"));
        }
        let mut output = result::output(&result, &*self.server.ground.intake).await;
        if output.text.len() > SHOWN_BYTES_MAX {
            output.text = self.server.shortened(output.text, &call.agent).await;
        }
        if result.is_error == Some(true) { Err(output.text) } else { Ok(output) }
    }
}

impl McpTool {
    fn explain(&self, error: CallError) -> String {
        let server = &self.origin.server;
        match error {
            CallError::Ended(how) => format!(
                "the MCP server {server} ended during the call, which was not made again: {how}"
            ),
            CallError::Silent(so_long) => format!(
                "the MCP server {server} said nothing for {} s, so the call was given up (timeout)",
                so_long.as_secs_f64()
            ),
            CallError::Cancelled => "cancelled".into(),
            CallError::Refused(why) | CallError::Unknown { why, .. } => why,
        }
    }
}
