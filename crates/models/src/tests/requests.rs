//! Request bodies, as golden text: other programs parse them.

use nexus_core::model::{Effort, Reasoning, Thinking, ThinkingKind};
use nexus_core::provider::{Recurs, ToolSpec};
use nexus_testkit::{ScriptedModel, Wire};
use serde_json::{Value, json};

use super::*;
use crate::CacheTtl;

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
    let tool_call = |id: &str, arguments: Value| ToolCall::new(id, "read_file", arguments);
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        parameters: r#"{"type":"object","properties":{"path":{"type":"string"}}}"#.into(),
    };
    let asked = |time: &str, text: &str| {
        let parts = vec![Part::Context(time.to_owned()), Part::text(text)];
        Arc::new(Message::of_parts(Role::User, parts, Meta::default()))
    };
    ModelCall {
        tools: Arc::new([tool("list"), tool("read_file")]),
        max_tokens: Some(500),
        ..call([
            message(Role::Summary, "They said hello.").into(),
            asked("It is dawn.", "Read \"a\" and b."),
            message(Role::Assistant, "")
                .with_tool_calls(vec![
                    tool_call("call_1", json!({"path": "a", "n": 1})),
                    tool_call("call.2", json!("{\"path\":")),
                ])
                .into(),
            Message::tool_result("call_1", "text of a\n", Meta::default()).into(),
            Message::tool_result("call.2", "", Meta { failed: true, ..Meta::default() }).into(),
            assistant("Done: é."),
            asked("It is noon.", "Again."),
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
        &sent(Kind::Anthropic, bare, |settings| settings.prompt_caching = false).await,
        r#"{"model": "scripted-1", "max_tokens": 8192, "stream": true,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}"#,
    );
}

#[tokio::test]
async fn a_schema_for_the_answer_goes_where_each_service_looks_for_it() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let asked = ModelCall { schema: Some(Arc::new(schema.clone())), ..conversation() };
    let body = sent(Kind::OpenAi, asked.clone(), |_| {}).await;
    let mut format =
        json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}});
    assert_eq!((&body["response_format"], body["tools"].as_array().unwrap().len()), (&format, 2));
    let strict = ModelCall { strict: true, ..asked.clone() };
    format["json_schema"]["strict"] = true.into();
    assert_eq!(sent(Kind::OpenAi, strict, |_| {}).await["response_format"], format);
    let body = sent(Kind::Anthropic, asked, |_| {}).await;
    let format = json!({"format": {"type": "json_schema", "schema": schema}});
    assert_eq!((&body["output_config"], body["tools"].as_array().unwrap().len()), (&format, 2));
}

#[tokio::test]
async fn the_bound_on_tokens_has_the_name_each_service_knows() {
    let bounds =
        |body: &Value| (body["max_tokens"].as_u64(), body["max_completion_tokens"].as_u64());
    for (kind, reasoning, expected) in [
        (Kind::OpenAi, Reasoning::Off, (Some(9), None)),
        (Kind::OpenAi, Reasoning::On, (None, Some(9))),
        (Kind::Ollama, Reasoning::On, (Some(9), None)),
        (Kind::Anthropic, Reasoning::On, (Some(9), None)),
    ] {
        let asked = ModelCall { reasoning, max_tokens: Some(9), ..call([user("Hi")]) };
        assert_eq!(bounds(&sent(kind, asked, |_| {}).await), expected, "{kind:?} {reasoning:?}");
    }
}

#[tokio::test]
async fn the_cache_marks_end_what_is_read_again() {
    let marked = |body: &Value| {
        let mut paths = Vec::new();
        marks(body, String::new(), &mut paths);
        paths
    };
    // The system text, what the turn began with, the end of the previous request, the end of this one.
    let body = sent(Kind::Anthropic, conversation(), |_| {}).await;
    assert_eq!(
        marked(&body),
        ["/system/0", "/messages/4/content/1", "/messages/6/content/0"],
        "the turn began where the previous request ended"
    );
    let mut later = conversation();
    let call = ToolCall::new("call_4", "list", json!({}));
    let asks = Message::new(Role::Assistant, "", Meta::default()).with_tool_calls(vec![call]);
    later.messages.push(asks.into());
    later.messages.push(Message::tool_result("call_4", "none", Meta::default()).into());
    let body = sent(Kind::Anthropic, later.clone(), |_| {}).await;
    let expected =
        ["/system/0", "/messages/4/content/1", "/messages/6/content/0", "/messages/8/content/0"];
    assert_eq!(marked(&body), expected);
    // The longer-lived ones have to come first.
    let body =
        sent(Kind::Anthropic, later, |settings| settings.cache_ttl = CacheTtl::OneHour).await;
    let mut lasting = Vec::new();
    marks_of(&body, &json!({"type": "ephemeral", "ttl": "1h"}), String::new(), &mut lasting);
    assert_eq!(lasting, expected[..2]);
    let body = sent(Kind::Anthropic, call_of_least(0, [user("Hi")]), |_| {}).await;
    assert_eq!(marked(&body), ["/system/0", "/messages/0/content/0"]);
    let body = sent(Kind::Anthropic, call_of_least(1024, [user("Hi")]), |_| {}).await;
    assert!(marked(&body).is_empty(), "so little is not kept");
    let body =
        sent(Kind::Anthropic, conversation(), |settings| settings.prompt_caching = false).await;
    assert!(marked(&body).is_empty());
    let alone = ModelCall { recurs: Recurs::Nothing, ..conversation() };
    let body = sent(Kind::Anthropic, alone, |_| {}).await;
    assert!(marked(&body).is_empty(), "nobody reads it again");
    let body = sent(Kind::OpenAi, conversation(), |_| {}).await;
    assert!(marked(&body).is_empty(), "OpenAI caches without marks");
}

/// It refuses that, and would with every later request.
#[tokio::test]
async fn mistral_hears_no_user_right_behind_a_result() {
    let roles = |body: &Value| -> Vec<String> {
        let messages = body["messages"].as_array().unwrap();
        messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect()
    };
    let asks = Message::new(Role::Assistant, "", Meta::default());
    let asks = asks.with_tool_calls(vec![ToolCall::new("call_1", "list", json!({}))]);
    let result = Message::tool_result("call_1", "none", Meta::default());
    let mut cut_off = call([user("Hi"), asks.into(), result.into(), user("And?")]);
    let body = sent(Kind::OpenAi, cut_off.clone(), |_| {}).await;
    assert_eq!(roles(&body), ["system", "user", "assistant", "tool", "user"]);
    Arc::make_mut(&mut cut_off.model).id = "devstral-medium-latest".into();
    let body = sent(Kind::OpenAi, cut_off, |_| {}).await;
    assert_eq!(roles(&body), ["system", "user", "assistant", "tool", "assistant", "user"]);
}

#[tokio::test]
async fn claude_behind_openrouter_is_sent_marks_too() {
    let marked = |body: &Value| {
        let mut paths = Vec::new();
        marks(body, String::new(), &mut paths);
        paths
    };
    let mut claude = conversation();
    Arc::make_mut(&mut claude.model).id = "anthropic/claude-sonnet-5.5".into();
    let first = sent(Kind::OpenRouter, claude.clone(), |_| {}).await;
    let ends = marked(&first);
    assert_eq!(ends[0], "/messages/0/content/0", "the system text");
    let call = ToolCall::new("call_4", "list", json!({}));
    let asks = Message::new(Role::Assistant, "", Meta::default()).with_tool_calls(vec![call]);
    claude.messages.push(asks.into());
    claude.messages.push(Message::tool_result("call_4", "none", Meta::default()).into());
    let second = sent(Kind::OpenRouter, claude.clone(), |_| {}).await;
    let all = second["messages"].as_array().unwrap().len();
    let end = format!("/messages/{}/content/0", all - 1);
    assert_eq!(
        marked(&second),
        [ends, vec![end]].concat(),
        "where the previous one ended, and here"
    );
    // The marks move, and nothing else does.
    let (before, after) = (without_marks(&first["messages"]), without_marks(&second["messages"]));
    let (before, after) = (before.as_array().unwrap(), after.as_array().unwrap());
    assert_eq!(after[..before.len()], before[..]);
    let body = sent(Kind::OpenRouter, claude, |settings| settings.prompt_caching = false).await;
    assert!(marked(&body).is_empty());
    let body = sent(Kind::OpenRouter, conversation(), |_| {}).await;
    assert!(marked(&body).is_empty(), "others keep what they see again");
}

fn without_marks(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "cache_control");
            kept.map(|(name, value)| (name.clone(), without_marks(value))).collect()
        }
        Value::Array(values) => values.iter().map(without_marks).collect(),
        plain => plain.clone(),
    }
}

/// A call of a model that keeps prefixes of so many tokens and more.
fn call_of_least(tokens: u32, messages: impl IntoIterator<Item = SharedMessage>) -> ModelCall {
    let mut asked = call(messages);
    Arc::make_mut(&mut asked.model).cache_minimum = tokens;
    asked
}

/// Every way to ask for thinking, as each service has it.
#[tokio::test]
async fn thinking_is_asked_for_as_each_model_has_it() {
    let asked =
        |effort| Reasoning::Asked { effort: Some(effort), budget_tokens: None, shown: true };
    let sent_with = async |kind, thinking: ThinkingKind, reasoning, always_on| {
        let mut call = ModelCall { reasoning, max_tokens: Some(64_000), ..call([user("Hi")]) };
        let efforts = vec![Effort::Low, Effort::Medium, Effort::High];
        Arc::make_mut(&mut call.model).thinking =
            Thinking { kind: thinking, efforts, always_on, replayed_always: false };
        let body = sent(kind, call, |_| {}).await;
        ["thinking", "output_config", "reasoning_effort", "reasoning"]
            .into_iter()
            .filter(|name| !body[*name].is_null())
            .map(|name| (name, body[name].clone()))
            .collect::<Vec<_>>()
    };
    let adaptive = ("thinking", json!({"type": "adaptive"}));
    let claude = Kind::Anthropic;
    assert_eq!(sent_with(claude, ThinkingKind::Effort, Reasoning::Off, false).await, []);
    assert_eq!(
        sent_with(claude, ThinkingKind::Effort, Reasoning::On, false).await,
        std::slice::from_ref(&adaptive)
    );
    let high = ("output_config", json!({"effort": "high"}));
    assert_eq!(
        sent_with(claude, ThinkingKind::Effort, asked(Effort::Max), false).await,
        [adaptive.clone(), high]
    );
    assert_eq!(
        sent_with(claude, ThinkingKind::Effort, asked(Effort::None), false).await,
        [("thinking", json!({"type": "disabled"}))]
    );
    let low = ("output_config", json!({"effort": "low"}));
    assert_eq!(
        sent_with(claude, ThinkingKind::Effort, asked(Effort::None), true).await,
        [adaptive, low]
    );
    assert_eq!(
        sent_with(claude, ThinkingKind::Budget, asked(Effort::High), false).await,
        [("thinking", json!({"type": "enabled", "budget_tokens": 32_000}))]
    );
    let budget = Reasoning::Asked { effort: None, budget_tokens: Some(2_000), shown: true };
    assert_eq!(
        sent_with(claude, ThinkingKind::Budget, budget, false).await,
        [("thinking", json!({"type": "enabled", "budget_tokens": 2_000}))]
    );
    assert_eq!(
        sent_with(Kind::OpenAi, ThinkingKind::Effort, asked(Effort::Medium), false).await,
        [("reasoning_effort", json!("medium"))]
    );
    assert_eq!(
        sent_with(Kind::OpenRouter, ThinkingKind::Effort, asked(Effort::Max), false).await,
        [("reasoning", json!({"effort": "xhigh"}))]
    );
    assert_eq!(
        sent_with(Kind::OpenRouter, ThinkingKind::Effort, Reasoning::On, false).await,
        [("reasoning", json!({"enabled": true}))]
    );
}

#[tokio::test]
async fn ids_go_back_in_the_form_that_a_service_takes() {
    let mut mistral = conversation();
    Arc::make_mut(&mut mistral.model).id = "mistral-large".into();
    let body = sent(Kind::OpenAi, mistral, |_| {}).await;
    let call = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
    assert_eq!(call.len(), 9);
    assert_eq!(body["messages"][3]["tool_call_id"], call);
}

fn marks_of(value: &Value, mark: &Value, path: String, found: &mut Vec<String>) {
    let mut all = Vec::new();
    marks(value, path, &mut all);
    found.extend(
        all.into_iter().filter(|path| {
            value.pointer(path).is_some_and(|block| block["cache_control"] == *mark)
        }),
    );
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
pub(super) async fn sent(
    kind: Kind,
    call: ModelCall,
    change: impl FnOnce(&mut ProviderSettings),
) -> Value {
    let model = ScriptedModel::start().await;
    let mut settings = settings(kind, &model);
    change(&mut settings);
    let heard = hear(&*build(&settings).unwrap(), call).await;
    assert!(heard.end.is_ok(), "{:?}", heard.end);
    model.last_request().body
}

/// What the configuration must not write a second time: a member that is missing there would stand twice in a request.
#[tokio::test]
async fn every_member_of_a_request_is_known_to_be_ours() {
    for kind in FORMATS.into_iter().chain([Kind::OpenRouter]) {
        let reasoning =
            Reasoning::Asked { effort: Some(Effort::High), budget_tokens: None, shown: true };
        let schema = Some(Arc::new(json!({"type": "object"})));
        let mut asked = ModelCall { reasoning, schema, max_tokens: Some(4096), ..conversation() };
        let model = Arc::make_mut(&mut asked.model);
        model.thinking.kind = ThinkingKind::Effort;
        model.extra_body.insert("not_ours".into(), json!(1));
        let mut wire = None;
        let body = sent(kind, asked, |settings| {
            settings.routing = Some(Default::default());
            wire = Some(settings.wire);
        });
        let body = body.await;
        let mut names = body.as_object().unwrap().keys().filter(|name| *name != "not_ours");
        let own = wire.unwrap().own_members();
        assert!(names.all(|name| own.contains(&name.as_str())), "{kind:?}: {body}");
    }
}

/// Compares text, so that the order of the fields counts as well.
#[track_caller]
fn check(body: &Value, golden: &str) {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let golden: Value = serde_json::from_str(golden).unwrap();
    assert_eq!(pretty(body), pretty(&golden), "\n{}", pretty(body));
}

/// What the vendors' own types say of what we send.
#[tokio::test]
async fn bodies_are_what_the_vendors_types_say() {
    for (kind, wire) in [(Kind::OpenAi, Wire::Chat), (Kind::Anthropic, Wire::Messages)] {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let asked = ModelCall { schema: Some(Arc::new(schema)), ..conversation() };
        let thinks = ModelCall { reasoning: Reasoning::On, ..conversation() };
        let bodies = [
            sent(kind, conversation(), |_| {}).await,
            sent(kind, asked, |_| {}).await,
            sent(kind, thinks, |_| {}).await,
        ];
        nexus_testkit::vendors::assert_valid(wire, &bodies, |_| false);
    }
}
