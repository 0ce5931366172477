//! Tools that answer at once, or after telling or asking the client something.

use std::sync::PoisonError;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ErrorData, ProgressNotificationParam,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::fixtures::{Fixtures, IMAGE, complete, described, text, typed};
use super::{inputs, questions, tasks};

/// Silence.
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

const NAMES: [&str; 13] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_reconnection",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_missing_capability",
];

const WITH_HEADER: &str = "test_custom_header";
const WITH_SCHEMA: &str = "json_schema_2020_12_tool";

/// All tools there are, as they are listed.
pub fn all() -> Value {
    let groups = [&NAMES[..], &questions::TOOLS, &inputs::TOOLS, &tasks::TOOLS];
    let plain = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
    let mut all: Vec<Value> = groups.concat().iter().map(plain).collect();
    all.push(json!({"name": WITH_HEADER, "inputSchema": {
        "type": "object",
        "properties": {"value": {"type": "string", "x-mcp-header": "Value"}},
        "required": ["value"],
    }}));
    all.push(json!({"name": WITH_SCHEMA, "inputSchema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}}}},
        "properties": {"address": {"$ref": "#/$defs/address"}, "phone": {"type": "string"}, "email": {"type": "string"}},
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"required": ["address"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    }}));
    let mut all = all.into();
    described(&mut all);
    all
}

pub async fn call(
    fixtures: &Fixtures,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
    let resource = |uri: &str| {
        let content = json!({"uri": uri, "mimeType": "text/plain", "text": "Embedded text."});
        json!({"type": "resource", "resource": content})
    };
    Ok(complete(match &*request.name {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_image_content" => json!({"content": [image]}),
        "test_audio_content" => {
            json!({"content": [{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}]})
        }
        "test_embedded_resource" => json!({"content": [resource("test://embedded-resource")]}),
        "test_multiple_content_types" => {
            let text = json!({"type": "text", "text": "Several at once."});
            json!({"content": [text, image, resource("test://mixed-content-resource")]})
        }
        "test_error_handling" => {
            let mut error = text("This tool intentionally returns an error for testing");
            error["isError"] = true.into();
            error
        }
        "test_tool_with_logging" => {
            for said in
                ["Tool execution started", "Tool processing data", "Tool execution completed"]
            {
                log(context, said).await;
                pause().await;
            }
            text("Logged.")
        }
        // Of the later era: only who asks for a level is told anything.
        "test_logging_tool" => {
            if context.meta.log_level().is_some() {
                log(context, "A level was asked for").await;
            }
            text("Logged, if that was wanted.")
        }
        "test_tool_with_progress" => {
            for progress in [0.0, 50.0, 100.0] {
                if let Some(token) = context.meta.get_progress_token() {
                    let told = ProgressNotificationParam::new(token, progress).with_total(100.0);
                    let _ = context.peer.notify_progress(told).await;
                }
                pause().await;
            }
            text("Done.")
        }
        "test_trigger_tool_change" => {
            for sink in listeners(fixtures) {
                let _ = sink.notify_tool_list_changed().await;
            }
            text("Told.")
        }
        "test_trigger_prompt_change" => {
            for sink in listeners(fixtures) {
                let _ = sink.notify_prompt_list_changed().await;
            }
            text("Told.")
        }
        "test_missing_capability" => match context.client_capabilities() {
            Some(ClientCapabilities { sampling: Some(_), .. }) => text("It is there."),
            _ => {
                let wanted = typed(json!({"sampling": {}}));
                return Err(ErrorData::missing_required_client_capability(wanted));
            }
        },
        "test_reconnection" | WITH_HEADER | WITH_SCHEMA => text("Done."),
        name if questions::TOOLS.contains(&name) => {
            questions::call(name, &request.arguments.unwrap_or_default(), &context.peer).await
        }
        other => return Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
    }))
}

/// Between what a client is told: the scenarios want to see that it does not come all at once.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[expect(deprecated, reason = "scenarios are about logging")]
async fn log(context: &RequestContext<RoleServer>, said: &str) {
    let message = typed(json!({"level": "info", "data": said}));
    let _ = context.peer.notify_logging_message(message).await;
}

fn listeners(fixtures: &Fixtures) -> Vec<rmcp::service::SubscriptionSink> {
    fixtures.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
