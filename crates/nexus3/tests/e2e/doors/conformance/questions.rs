//! Tools that ask the client something by a request of their own, as before 2026.

use rmcp::RoleServer;
use rmcp::model::{ElicitRequestParams, JsonObject};
use rmcp::service::Peer;
use serde_json::{Value, json};

use super::fixtures::{text, typed};

pub const TOOLS: [&str; 4] = [
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
];

/// Asks, and says what the answer was.
pub async fn call(name: &str, given: &JsonObject, peer: &Peer<RoleServer>) -> Value {
    let given = |name: &str| given.get(name).and_then(Value::as_str).unwrap_or_default();
    match name {
        "test_sampling" => sample(given("prompt"), peer).await,
        "test_elicitation" => {
            let properties = json!({"username": {"type": "string"}, "email": {"type": "string"}});
            elicit(given("message"), properties, &["username", "email"], peer).await
        }
        "test_elicitation_sep1034_defaults" => {
            elicit("All of these have defaults", with_defaults(), &[], peer).await
        }
        _ => elicit("Choose", choices(), &[], peer).await,
    }
}

#[expect(deprecated, reason = "a scenario is about sampling")]
async fn sample(prompt: &str, peer: &Peer<RoleServer>) -> Value {
    let content = json!({"type": "text", "text": prompt});
    let messages = json!([{"role": "user", "content": content}]);
    let asked = peer.create_message(typed(json!({"messages": messages, "maxTokens": 100}))).await;
    match asked {
        Ok(answer) => text(format!("LLM response: {:?}", answer.message.content)),
        Err(error) => failed(&error),
    }
}

async fn elicit(
    message: &str,
    properties: Value,
    required: &[&str],
    peer: &Peer<RoleServer>,
) -> Value {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let question = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.into(),
        requested_schema: typed(schema),
    };
    match peer.create_elicitation(question).await {
        Ok(answer) => text(format!("User response: {:?}, {:?}", answer.action, answer.content)),
        Err(error) => failed(&error),
    }
}

fn failed(error: &rmcp::ServiceError) -> Value {
    let mut answer = text(error.to_string());
    answer["isError"] = true.into();
    answer
}

/// One of each kind.
fn with_defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

/// In each of the ways to say them.
fn choices() -> Value {
    let titled = json!([
        {"const": "value1", "title": "First"},
        {"const": "value2", "title": "Second"},
        {"const": "value3", "title": "Third"},
    ]);
    let options = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })
}
