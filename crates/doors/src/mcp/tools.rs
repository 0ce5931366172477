//! The tools that a host is offered.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::Exposed;

pub const SEND: &str = "nexus_send";
pub const CREATE: &str = "nexus_create";
pub const LIST: &str = "nexus_list";
pub const STATUS: &str = "nexus_status";
pub const MESSAGES: &str = "nexus_messages";
pub const CANCEL: &str = "nexus_cancel";
pub const DESTROY: &str = "nexus_destroy";

/// Before the name of an agent that is a tool of its own.
pub const ASK: &str = "ask_";

/// All of them, always in this order.
pub fn all(exposed: &Exposed) -> Vec<Tool> {
    let mut tools = vec![send(), create(), list(), status(), messages(), cancel(), destroy()];
    tools.extend(exposed.iter().map(|(agent, purpose)| ask(agent, purpose)));
    tools
}

fn send() -> Tool {
    let content = json!({"type": "string", "description": "What is said to the agent."});
    let input = json!({
        "content": content,
        "agent_id": {"type": "string", "description": "The agent; your own when absent."},
        "response_schema": {"type": "object", "description": "JSON Schema of the answer: content is then JSON that satisfies it."},
        "timeout_s": {"type": "integer", "minimum": 1, "description": "Cancels the turn when it takes longer."},
    });
    tool(SEND, "Give an agent work and wait for its answer. It uses its own tools, within its own permissions.")
        .inputs(&input, &["content"])
        .answers(answer())
        .hints(ToolAnnotations::new().read_only(false).open_world(true))
}

fn ask(agent: &str, purpose: &str) -> Tool {
    let input = json!({"content": {"type": "string", "description": "What is said to the agent."}});
    tool(&format!("{ASK}{agent}"), purpose)
        .inputs(&input, &["content"])
        .answers(answer())
        .hints(ToolAnnotations::new().read_only(false).open_world(true))
}

/// What a turn answers.
fn answer() -> Value {
    json!({
        "type": "object",
        "properties": {
            "agent_id": {"type": "string"},
            "request_id": {"type": "string", "description": "The turn."},
            "content": {"type": "string", "description": "The agent's answer."},
            "cancelled": {"type": "boolean"},
            "halted_at_iteration_limit": {"type": "boolean"},
            "denied": {"type": "array", "items": {"type": "string"}, "description": "Tools it asked leave for and did not get."},
        },
        "required": ["agent_id", "request_id", "content", "halted_at_iteration_limit", "denied"],
    })
}

fn create() -> Tool {
    let text = |description: &str| json!({"type": "string", "description": description});
    let input = json!({
        "agent_id": text("Its name; one is made when absent."),
        "preset": text("Its permissions, by name; never more than yours."),
        "cwd": text("Its working directory."),
        "model": text("Its model, by alias."),
        "system_prompt": text("Its instructions."),
        "disable_tools": {"type": "array", "items": {"type": "string"}},
        "parent_agent_id": text("The agent it is a child of."),
    });
    let output = json!({
        "type": "object", "properties": {"agent_id": {"type": "string"}}, "required": ["agent_id"],
    });
    tool(CREATE, "Make an agent.")
        .inputs(&input, &[])
        .answers(output)
        .hints(ToolAnnotations::new().read_only(false).destructive(false).open_world(false))
}

fn list() -> Tool {
    tool(LIST, "List the agents that you may see.").inputs(&json!({}), &[]).reads()
}

fn status() -> Tool {
    tool(STATUS, "Say how an agent stands: its turns, and how far its conversation is.")
        .inputs(&json!({"agent_id": {"type": "string"}}), &["agent_id"])
        .reads()
}

fn messages() -> Tool {
    let input = json!({
        "agent_id": {"type": "string"},
        "offset": {"type": "integer", "minimum": 0, "description": "Index of the first message."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 2000},
    });
    tool(MESSAGES, "Read the conversation of an agent.").inputs(&input, &["agent_id"]).reads()
}

fn cancel() -> Tool {
    tool(CANCEL, "Cancel the turns of an agent that run or wait.")
        .inputs(&json!({"agent_id": {"type": "string"}}), &["agent_id"])
        .hints(ToolAnnotations::new().read_only(false).destructive(true).open_world(false))
}

fn destroy() -> Tool {
    tool(DESTROY, "End an agent and those it made. Its conversation stays in the store.")
        .inputs(&json!({"agent_id": {"type": "string"}}), &["agent_id"])
        .hints(ToolAnnotations::new().read_only(false).destructive(true).open_world(false))
}

fn tool(name: &str, description: &str) -> Tool {
    Tool::new(name.to_owned(), description.to_owned(), Arc::new(JsonObject::new()))
}

/// How these tools are put together.
trait Described: Sized {
    /// Takes these arguments and no other.
    fn inputs(self, properties: &Value, required: &[&str]) -> Self;
    fn answers(self, schema: Value) -> Self;
    fn hints(self, annotations: ToolAnnotations) -> Self;
    /// Changes nothing.
    fn reads(self) -> Self;
}

impl Described for Tool {
    fn inputs(mut self, properties: &Value, required: &[&str]) -> Self {
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        self.input_schema = Arc::new(object(schema));
        self
    }

    fn answers(self, schema: Value) -> Self {
        self.with_raw_output_schema(Arc::new(object(schema)))
    }

    fn hints(self, annotations: ToolAnnotations) -> Self {
        self.with_annotations(annotations)
    }

    fn reads(self) -> Self {
        self.answers(json!({"type": "object"}))
            .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
    }
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
