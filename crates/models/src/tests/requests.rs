//! Request bodies, as golden text: other programs parse them.

use nexus_core::provider::ToolSpec;
use nexus_testkit::ScriptedModel;
use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn a_whole_conversation_for_openai() {
    let body = sent(Kind::OpenAi, conversation(), |_| {}).await;
    check(&body, include_str!("golden/openai.json"));
}

#[tokio::test]
async fn a_whole_conversation_for_anthropic() {
    let body = sent(Kind::Anthropic, conversation(), |_| {}).await;
    check(&body, include_str!("golden/anthropic.json"));
}

/// Everything a conversation can hold, stopped in the middle of a tool loop.
fn conversation() -> ModelCall {
    let message = |role, text: &str| Message::new(role, text, Meta::default());
    let tool_call = |id: &str, arguments: Value| ToolCall {
        id: id.to_owned(),
        name: "read_file".to_owned(),
        arguments,
    };
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        parameters: r#"{"type":"object","properties":{"path":{"type":"string"}}}"#.into(),
    };
    ModelCall {
        tools: Arc::new([tool("list"), tool("read_file")]),
        volatile: Some("It is noon.".to_owned()),
        max_tokens: Some(500),
        ..call([
            message(Role::Summary, "They said hello.").into(),
            user("Read \"a\" and b."),
            message(Role::Assistant, "")
                .with_tool_calls(vec![
                    tool_call("call_1", json!({"path": "a", "n": 1})),
                    tool_call("call_2", json!("{\"path\":")),
                ])
                .into(),
            Message::tool_result("call_1", "text of a\n", Meta::default()).into(),
            Message::tool_result("call_2", "", Meta::default()).into(),
            assistant("Done: é."),
            user("Again."),
            assistant(""),
            message(Role::Assistant, "Yes.")
                .with_tool_calls(vec![tool_call("call_3", json!({}))])
                .into(),
            Message::tool_result("call_3", "same", Meta::default()).into(),
        ])
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_sent() {
    let bare = ModelCall { system: "".into(), ..call([user("Hi")]) };
    check(
        &sent(Kind::OpenAi, bare.clone(), |_| {}).await,
        r#"{"model": "scripted-1", "stream": true, "stream_options": {"include_usage": true},
            "messages": [{"role": "user", "content": "Hi"}]}"#,
    );
    check(
        &sent(Kind::Anthropic, bare, |_| {}).await,
        r#"{"model": "scripted-1", "max_tokens": 8192, "stream": true,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}"#,
    );
}

#[tokio::test]
async fn a_schema_for_the_answer_goes_where_each_service_looks_for_it() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let asked = ModelCall { schema: Some(Arc::new(schema.clone())), ..conversation() };
    let body = sent(Kind::OpenAi, asked.clone(), |_| {}).await;
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}});
    assert_eq!((&body["response_format"], body["tools"].as_array().unwrap().len()), (&format, 2));
    let body = sent(Kind::Anthropic, asked, |_| {}).await;
    let format = json!({"format": {"type": "json_schema", "schema": schema}});
    assert_eq!((&body["output_config"], body["tools"].as_array().unwrap().len()), (&format, 2));
}

#[tokio::test]
async fn the_bound_on_tokens_has_the_name_each_service_knows() {
    let bounds =
        |body: &Value| (body["max_tokens"].as_u64(), body["max_completion_tokens"].as_u64());
    for (kind, reasoning, expected) in [
        (Kind::OpenAi, false, (Some(9), None)),
        (Kind::OpenAi, true, (None, Some(9))),
        (Kind::Ollama, true, (Some(9), None)),
        (Kind::Anthropic, true, (Some(9), None)),
    ] {
        let asked = ModelCall { reasoning, max_tokens: Some(9), ..call([user("Hi")]) };
        assert_eq!(bounds(&sent(kind, asked, |_| {}).await), expected, "{kind:?} {reasoning}");
    }
}

#[tokio::test]
async fn the_cache_marks_end_the_stable_prefix() {
    let marked = |body: &Value| {
        let mut paths = Vec::new();
        marks(body, String::new(), &mut paths);
        paths
    };
    let body = sent(Kind::Anthropic, conversation(), |_| {}).await;
    assert_eq!(marked(&body), ["/tools/1", "/system/0", "/messages/3/content/0"]);
    let body = sent(Kind::Anthropic, call([user("Hi")]), |_| {}).await;
    assert_eq!(marked(&body), ["/system/0"], "there is no prefix before the first message");
    let body =
        sent(Kind::Anthropic, conversation(), |settings| settings.prompt_caching = false).await;
    assert!(marked(&body).is_empty());
    let body = sent(Kind::OpenAi, conversation(), |_| {}).await;
    assert!(marked(&body).is_empty(), "OpenAI caches without marks");
}

fn marks(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "cache_control" {
                    found.push(path.clone());
                }
                marks(value, format!("{path}/{name}"), found);
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                marks(value, format!("{path}/{at}"), found);
            }
        }
        _ => {}
    }
}

/// The body that a provider of this kind sends for a call.
async fn sent(kind: Kind, call: ModelCall, change: impl FnOnce(&mut ProviderSettings)) -> Value {
    let model = ScriptedModel::start().await;
    let mut settings = settings(kind, &model);
    change(&mut settings);
    let heard = hear(&*build(&settings).unwrap(), call).await;
    assert!(heard.end.is_ok(), "{:?}", heard.end);
    model.last_request().body
}

/// Compares text, so that the order of the fields counts as well.
#[track_caller]
fn check(body: &Value, golden: &str) {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let golden: Value = serde_json::from_str(golden).unwrap();
    assert_eq!(pretty(body), pretty(&golden), "\n{}", pretty(body));
}
