//! A server as the suite wants one: tools, resources and prompts whose names and answers it knows.

#![expect(deprecated, reason = "scenarios are about logging, which goes in a later version")]

use std::sync::{Arc, Mutex, PoisonError};

use nexus_doors::mcp::Answers;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
    ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::task_manager::TaskManager;
use rmcp::{RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{inputs, tasks, tools};

/// One red dot.
pub const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

#[derive(Clone, Default)]
pub struct Fixtures {
    pub tasks: TaskManager,
    /// Who listens for changes, in the era without sessions.
    pub listeners: Arc<Mutex<Vec<SubscriptionSink>>>,
}

/// What JSON says, as the type that an answer has.
pub fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The same for an answer that is one. Before 2026 nobody looks at what it then says of itself.
pub fn complete<T: DeserializeOwned>(mut value: Value) -> T {
    value["resultType"] = "complete".into();
    typed(value)
}

/// An answer of text.
pub fn text(text: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": text.into()}]})
}

/// Says of each what it is for, which the suite wants to read.
pub fn described(items: &mut Value) {
    for item in items.as_array_mut().unwrap() {
        item["description"] = "Is here for the suite.".into();
    }
}

/// Lists say how long they hold.
fn listed<T: DeserializeOwned>(of: &str, items: Value) -> Result<T, ErrorData> {
    Ok(complete(json!({of: items, "ttlMs": 60_000, "cacheScope": "public"})))
}

impl Answers for Fixtures {
    fn for_session(&self) -> Self {
        self.clone()
    }
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_completions()
            .enable_logging()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        listed("tools", tools::all())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let all: Vec<Tool> = typed(tools::all());
        all.into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if tasks::TOOLS.contains(&&*request.name) {
            tasks::call(self, request, &context).await
        } else if inputs::TOOLS.contains(&&*request.name) {
            inputs::call(&request, &context)
        } else {
            tools::call(self, request, &context).await.map(CallToolResponse::from)
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let names = ["test://static-text", "test://static-binary"];
        listed("resources", names.map(|uri| json!({"uri": uri, "name": uri})).into())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = json!({"uriTemplate": "test://template/{id}/data", "name": "data"});
        listed("resourceTemplates", json!([template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let mut content = match (uri.as_str(), id) {
            ("test://static-text", _) => json!({"mimeType": "text/plain", "text": "Some text."}),
            ("test://static-binary", _) => json!({"mimeType": "image/png", "blob": IMAGE}),
            (_, Some(id)) => {
                let data =
                    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"mimeType": "application/json", "text": data.to_string()})
            }
            (_, None) => {
                let why = format!("{uri}: no such resource");
                return Err(ErrorData::resource_not_found(why, Some(json!({"uri": uri}))));
            }
        };
        content["uri"] = uri.into();
        listed::<ReadResourceResult>("contents", json!([content])).map(ReadResourceResponse::from)
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let sink = context.sink().clone();
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(sink);
        context.cancelled().await;
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let argument = |name: &str| json!({"name": name, "required": true});
        let mut prompts = json!([
            {"name": "test_simple_prompt"},
            {"name": "test_prompt_with_arguments", "arguments": [argument("arg1"), argument("arg2")]},
            {"name": "test_prompt_with_embedded_resource", "arguments": [argument("resourceUri")]},
            {"name": "test_prompt_with_image"},
            {"name": inputs::PROMPT},
        ]);
        described(&mut prompts);
        listed("prompts", prompts)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == inputs::PROMPT {
            return Ok(inputs::prompt(&request));
        }
        let given = request.arguments.unwrap_or_default();
        let given = |name: &str| given.get(name).and_then(Value::as_str).unwrap_or_default();
        let text = |text: String| json!({"type": "text", "text": text});
        let contents = match request.name.as_str() {
            "test_simple_prompt" => vec![text("A simple prompt.".into())],
            "test_prompt_with_arguments" => {
                let (first, second) = (given("arg1"), given("arg2"));
                vec![text(format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
            }
            "test_prompt_with_embedded_resource" => {
                let resource = json!({
                    "uri": given("resourceUri"), "mimeType": "text/plain", "text": "Embedded text.",
                });
                vec![json!({"type": "resource", "resource": resource}), text("Look at it.".into())]
            }
            "test_prompt_with_image" => {
                let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
                vec![image, text("Look at it.".into())]
            }
            other => {
                let why = format!("there is no prompt {other}");
                return Err(ErrorData::invalid_params(why, None));
            }
        };
        let said = |content| json!({"role": "user", "content": content});
        let messages: Vec<Value> = contents.into_iter().map(said).collect();
        Ok(complete::<rmcp::model::GetPromptResult>(json!({"messages": messages})).into())
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }
}
