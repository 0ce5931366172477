//! Tools, and a prompt, that ask the client something by an answer that wants input, after which it calls again.

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, InputRequiredResult,
    InputResponses,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::fixtures::{complete, text, typed};

pub const TOOLS: [&str; 9] = [
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_capabilities",
    "test_streaming_elicitation",
];

pub const PROMPT: &str = "test_input_required_result_prompt";

/// What a client carries back to us: one of these and nothing else. A server whose states say more has to sign them.
const STATES: [&str; 2] = ["first", "second"];

/// A question for a person, with one answer of this type.
pub fn question(message: &str, name: &str, kind: &str) -> Value {
    let properties = json!({name: {"type": kind}});
    let schema = json!({"type": "object", "properties": properties, "required": [name]});
    json!({
        "method": "elicitation/create", "params": {"message": message, "requestedSchema": schema},
    })
}

fn who() -> Value {
    question("What is your name?", "name", "string")
}

fn sampling(prompt: &str) -> Value {
    let messages = json!([{"role": "user", "content": {"type": "text", "text": prompt}}]);
    json!({"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

/// An answer that wants these.
pub fn wanted(requests: Value, state: Option<&str>) -> InputRequiredResult {
    let mut answer = json!({"resultType": "input_required", "inputRequests": requests});
    if let Some(state) = state {
        answer["requestState"] = state.into();
    }
    typed(answer)
}

/// Whether all that was wanted is there. What is no object is no answer, and is asked for again.
pub fn all_there(wanted: &InputRequiredResult, given: Option<&InputResponses>) -> bool {
    let is_there =
        |name: &String| given.is_some_and(|it| it.get(name).is_some_and(Value::is_object));
    wanted.input_requests.iter().flat_map(|it| it.keys()).all(is_there)
}

pub fn call(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let state = request.request_state.as_deref();
    if state.is_some_and(|state| !STATES.contains(&state)) {
        return Err(ErrorData::invalid_params("this requestState is none of ours", None));
    }
    let (first, second) = (Some(STATES[0]), Some(STATES[1]));
    let wanted = match request.name.trim_start_matches("test_input_required_result_") {
        "elicitation" => wanted(json!({"user_name": who()}), None),
        "sampling" => {
            wanted(json!({"capital_question": sampling("What is the capital of France?")}), None)
        }
        "list_roots" => wanted(json!({"client_roots": roots()}), None),
        "request_state" | "tampered_state" => {
            wanted(json!({"confirm": question("Please confirm", "ok", "boolean")}), first)
        }
        "multiple_inputs" => {
            let greeting = sampling("Generate a greeting");
            let all = json!({"user_name": who(), "greeting": greeting, "client_roots": roots()});
            wanted(all, first)
        }
        "multi_round" if state == first || state == second => {
            wanted(json!({"step2": question("Which color?", "color", "string")}), second)
        }
        "multi_round" => wanted(json!({"step1": who()}), first),
        "capabilities" => wanted(able(&context.client_capabilities().unwrap_or_default()), None),
        _ => wanted(json!({"value": question("Which value?", "value", "string")}), None),
    };
    let is_last = wanted.request_state.as_deref() == state;
    if !is_last || !all_there(&wanted, request.input_responses.as_ref()) {
        return Ok(wanted.into());
    }
    let said = json!(request.input_responses).to_string();
    Ok(complete::<CallToolResult>(text(format!("state-ok, heard {said}"))).into())
}

/// Of three requests those that the client can answer.
fn able(client: &ClientCapabilities) -> Value {
    let all = [
        ("user_name", who(), client.elicitation.is_some()),
        ("greeting", sampling("Generate a greeting"), client.sampling.is_some()),
        ("client_roots", roots(), client.roots.is_some()),
    ];
    let able = all.into_iter().filter(|(.., able)| *able);
    able.map(|(name, request, _)| (name.to_owned(), request))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub fn prompt(request: &GetPromptRequestParams) -> GetPromptResponse {
    let wanted =
        wanted(json!({"user_context": question("Which context?", "context", "string")}), None);
    if !all_there(&wanted, request.input_responses.as_ref()) {
        return wanted.into();
    }
    let content = json!({"type": "text", "text": json!(request.input_responses).to_string()});
    let messages = json!([{"role": "user", "content": content}]);
    complete::<GetPromptResult>(json!({"messages": messages})).into()
}
