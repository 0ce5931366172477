//! Tools with which an agent directs others. They enter the core as the calling agent: the same checks as for any
//! other caller, and no way around them.

use std::sync::Arc;

use async_trait::async_trait;
use nexus_core::authority::Action;
use nexus_core::lifecycle::AgentSpec;
use nexus_core::permission::ToolClass;
use nexus_core::preview::Preview;
use nexus_core::tool::{Access, Invocation, Need, Tool};
use nexus_core::{Agent, AgentId, Role};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed::{TypedTool, tool};

pub fn agent_tools() -> Vec<Arc<dyn Tool>> {
    vec![tool(Create), tool(Send), tool(Status), tool(Cancel), tool(Destroy)]
}

struct Create;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateArgs {
    agent_id: Option<String>,
    /// `sandboxed` or `worker`.
    preset: Option<String>,
    cwd: Option<String>,
    write_paths: Option<Vec<String>>,
    model: Option<String>,
}

#[async_trait]
impl TypedTool for Create {
    const NAME: &'static str = "nexus_create";
    const DESCRIPTION: &'static str = "Create a child agent; then give it work with nexus_send.";
    const CLASS: ToolClass = ToolClass::Agents;
    type Args = CreateArgs;
    type Output = String;

    fn needs(&self, _: &CreateArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::ManageAgents])
    }

    async fn run(&self, args: CreateArgs, call: Invocation) -> Result<String, String> {
        let spec = AgentSpec {
            name: args.agent_id,
            preset: args.preset,
            cwd: args.cwd,
            write_paths: args.write_paths.unwrap_or_default(),
            model: args.model,
            ..AgentSpec::default()
        };
        let made = call.colleagues.create(&call.agent, spec).await?;
        Ok(format!("Created agent {}.", made.id()))
    }
}

struct Send;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SendArgs {
    agent_id: String,
    content: String,
}

#[async_trait]
impl TypedTool for Send {
    const NAME: &'static str = "nexus_send";
    const DESCRIPTION: &'static str = "Message a child (or your parent) and return its answer. Several calls at once run in parallel.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = SendArgs;
    type Output = String;

    fn needs(&self, args: &SendArgs) -> Result<Vec<Need>, String> {
        // As for every other caller that has nothing to say.
        if args.content.trim().is_empty() {
            return Err("content must not be blank".into());
        }
        Ok(vec![Need::Message(agent_id(&args.agent_id)?)])
    }

    async fn preview(&self, args: SendArgs, _: Access) -> Option<Preview> {
        Some(Preview::Agent { target: args.agent_id, content: args.content })
    }

    async fn run(&self, args: SendArgs, call: Invocation) -> Result<String, String> {
        let target = agent_id(&args.agent_id)?;
        let Invocation { agent, cancel, announce, colleagues, .. } = call;
        let outcome = colleagues.ask(&agent, &target, args.content, &cancel, announce).await?;
        Ok(match (outcome.cancelled, outcome.halted_at_iteration_limit) {
            (true, _) => format!("[cancelled] {}", outcome.content),
            (false, true) => format!("[stopped at its iteration limit] {}", outcome.content),
            (false, false) => outcome.content,
        })
    }
}

/// The arguments of the tools that take nothing but a child.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChildArgs {
    agent_id: String,
}

struct Status;

#[async_trait]
impl TypedTool for Status {
    const NAME: &'static str = "nexus_status";
    const DESCRIPTION: &'static str = "Show whether a child is running and what it said last.";
    const CLASS: ToolClass = ToolClass::Agents;
    type Args = ChildArgs;
    type Output = String;

    fn needs(&self, _: &ChildArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::ManageAgents])
    }

    async fn run(&self, args: ChildArgs, call: Invocation) -> Result<String, String> {
        let child = child(&args, &call, Action::Read).await?;
        let now = child.snapshot();
        let mut history = now.conversation.history_from(0).rev();
        let said = history.find(|message| message.role == Role::Assistant);
        let last = said.map_or("nothing".into(), |message| message.text());
        let running = if now.turns.is_empty() { "idle" } else { "running" };
        Ok(format!("{running}, {} messages; last said: {last}", now.conversation.len()))
    }
}

struct Cancel;

#[async_trait]
impl TypedTool for Cancel {
    const NAME: &'static str = "nexus_cancel";
    const DESCRIPTION: &'static str = "Cancel what a child is doing.";
    const CLASS: ToolClass = ToolClass::Agents;
    type Args = ChildArgs;
    type Output = String;

    fn needs(&self, _: &ChildArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::ManageAgents])
    }

    async fn run(&self, args: ChildArgs, call: Invocation) -> Result<String, String> {
        let child = child(&args, &call, Action::Manage).await?;
        Ok(format!("Cancelled {} turns.", child.cancel_all()))
    }
}

struct Destroy;

#[async_trait]
impl TypedTool for Destroy {
    const NAME: &'static str = "nexus_destroy";
    const DESCRIPTION: &'static str = "Destroy a child and its descendants for good.";
    const CLASS: ToolClass = ToolClass::Agents;
    type Args = ChildArgs;
    type Output = String;

    fn needs(&self, _: &ChildArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::ManageAgents])
    }

    async fn run(&self, args: ChildArgs, call: Invocation) -> Result<String, String> {
        let target = agent_id(&args.agent_id)?;
        if target == call.agent.id() {
            return Err("an agent cannot destroy itself from within its own turn".into());
        }
        let gone = call.colleagues.destroy(&call.agent, &target).await?;
        match gone.as_slice() {
            [] => Err(format!("unknown agent: {target}")),
            gone => Ok(format!(
                "Destroyed {}.",
                gone.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            )),
        }
    }
}

async fn child(args: &ChildArgs, call: &Invocation, action: Action) -> Result<Agent, String> {
    let target = agent_id(&args.agent_id)?;
    call.colleagues.find(&call.agent, &target, action).await
}

fn agent_id(name: &str) -> Result<AgentId, String> {
    AgentId::parse(name).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_has_nothing_to_say_is_told_so() {
        let tools = agent_tools();
        let send = tools.iter().find(|tool| tool.spec().name == Send::NAME).unwrap();
        for blank in ["", " ", "\n\t\u{a0}"] {
            let refused = send.needs(&json!({"agent_id": "a", "content": blank}));
            assert_eq!(refused, Err("content must not be blank".into()), "{blank:?}");
        }
        assert!(send.needs(&json!({"agent_id": "a", "content": " x"})).is_ok());
    }
}
