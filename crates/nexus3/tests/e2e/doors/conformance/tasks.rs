//! Tools that become tasks.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CreateTaskResult, ErrorData,
    InputRequest, JsonObject,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskOptions};
use serde_json::{Value, json};

use super::fixtures::{Fixtures, complete, text, typed};
use super::inputs::{all_there, question, wanted};

pub const TOOLS: [&str; 7] = [
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
];

/// Those that a client which knows no tasks cannot have.
const ONLY_AS_TASK: [&str; 4] =
    ["failing_job", "confirm_delete", "multi_input", "test_tool_with_task"];

pub async fn call(
    fixtures: &Fixtures,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let name = request.name.into_owned();
    let mut given = request.arguments.unwrap_or_default();
    let knows_tasks = context.client_capabilities().is_some_and(|it| it.supports_tasks());
    if name == "greet" {
        let name = given.get("name").and_then(Value::as_str).unwrap_or_default();
        return Ok(complete::<CallToolResult>(text(format!("Hello, {name}!"))).into());
    }
    if !knows_tasks && ONLY_AS_TASK.contains(&name.as_str()) {
        let wanted = typed(json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
        return Err(ErrorData::missing_required_client_capability(wanted));
    }
    if name == "test_tool_with_task" {
        let wanted =
            wanted(json!({"user_name": question("What is your name?", "name", "string")}), None);
        if !all_there(&wanted, request.input_responses.as_ref()) {
            return Ok(wanted.into());
        }
        given.insert("heard".into(), json!(request.input_responses));
    }
    if !knows_tasks {
        return work(&name, &given).await.map(CallToolResponse::from);
    }
    let task = fixtures.tasks.spawn(TaskOptions::default(), move |task| {
        Box::pin(async move {
            tokio::select! {
                () = task.cancelled() => Err(TaskExit::Cancelled),
                done = as_task(&name, &given, &task) => done,
            }
        })
    });
    Ok(CreateTaskResult::new(task).into())
}

async fn as_task(
    name: &str,
    given: &JsonObject,
    task: &TaskContext,
) -> Result<CallToolResult, TaskExit> {
    let ask = async |key: &str| {
        let question: InputRequest = typed(question("Well?", key, "string"));
        task.request_input(key, question).await
    };
    match name {
        "confirm_delete" => Ok(complete(text(ask("confirm").await?.to_string()))),
        "multi_input" => {
            let (first, second) = tokio::try_join!(ask("first"), ask("second"))?;
            Ok(complete(text(format!("{first} {second}"))))
        }
        _ => work(name, given).await.map_err(TaskExit::Error),
    }
}

/// What needs no task.
async fn work(name: &str, given: &JsonObject) -> Result<CallToolResult, ErrorData> {
    let seconds = given.get("seconds").and_then(Value::as_f64).unwrap_or(0.2);
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    match name {
        "protocol_error_job" => Err(ErrorData::internal_error("on purpose", None)),
        "failing_job" => {
            let mut error = text("It failed on purpose.");
            error["isError"] = true.into();
            Ok(complete(error))
        }
        _ => Ok(complete(text(format!("Done: {}", json!(given))))),
    }
}
