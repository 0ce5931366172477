//! What a model may call.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::message::ToolCall;
use crate::provider::ToolSpec;

/// Something the model may call. Implementations live in the adapters.
#[async_trait]
pub trait Tool: Send + Sync {
    fn spec(&self) -> ToolSpec;

    /// Runs the call. What comes back is for the model: a failure is a text that says what to do instead.
    async fn run(
        &self,
        agent: &Arc<Agent>,
        arguments: serde_json::Value,
        cancel: CancellationToken,
    ) -> String;
}

/// The tools a server offers.
#[derive(Default)]
pub struct Toolbox {
    tools: HashMap<String, Arc<dyn Tool>>,
}

impl Toolbox {
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        Self { tools: tools.into_iter().map(|tool| (tool.spec().name, tool)).collect() }
    }

    /// What `agent` is offered, in a stable order so that the providers' prefix caches hold.
    pub fn specs(&self, agent: &Agent) -> Arc<[ToolSpec]> {
        let disabled = agent.permissions().disabled_tools;
        let mut specs: Vec<_> = self
            .tools
            .values()
            .map(|tool| tool.spec())
            .filter(|spec| !disabled.contains(&spec.name))
            .collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        specs.into()
    }

    /// The gate: the one way a tool call is carried out.
    pub async fn call(
        &self,
        agent: &Arc<Agent>,
        call: &ToolCall,
        cancel: CancellationToken,
    ) -> String {
        let Some(tool) = self.tools.get(&call.name) else {
            return format!("Refused: there is no tool named {}.", call.name);
        };
        if agent.permissions().disabled_tools.contains(&call.name) {
            return format!("Refused: the tool {} is disabled for this agent.", call.name);
        }
        tool.run(agent, call.arguments.clone(), cancel).await
    }
}
