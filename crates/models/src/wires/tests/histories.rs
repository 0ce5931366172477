//! Bodies of any conversation: each begins with all of the one before it, and is what the service takes.

use nexus_core::list::List;
use nexus_core::message::{Attachment, AttachmentKind, Blob, Source};
use nexus_core::provider::{Asker, ToolSpec};
use nexus_testkit::vendors;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::goldens::conversation;
use super::*;
use crate::prefix::Prefixes;

/// A part of an answer, before its calls have ids.
#[derive(Clone, Debug)]
enum Said {
    Text(String),
    Thought(String, Option<Value>),
    Call,
}

/// Something of a conversation after which a model may be asked.
#[derive(Clone, Debug)]
enum Next {
    Asked(Vec<String>),
    /// By whom, and what. The results of its calls follow.
    Answered(Wire, &'static str, Vec<Said>),
}

fn words() -> impl Strategy<Value = String> {
    "[a-zé🦀\" \\\\\n]{1,12}"
}

/// What thoughts bear on any wire, and what none wrote.
fn payload(knows_all: bool) -> impl Strategy<Value = Value> {
    let reasoning =
        json!({"reasoning": {"type": "reasoning", "summary": [], "encrypted_content": "ZQ=="}});
    let mut payloads = vec![
        reasoning,
        json!({"phase": "commentary"}),
        json!({"signature": "c2ln", "on": "call"}),
        json!({"signature": "c2ln", "on": "text"}),
        json!({"signature": "c2ln", "on": "thought"}),
        json!({"signature": "c2ln", "on": "nothing"}),
        json!({"name": "reasoning_content"}),
        json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "ZQ=="}]}),
        json!({"redacted": "x"}),
        json!([7]),
    ];
    if !knows_all {
        payloads.push(json!({"item": {"type": "brand_new", "n": 1}}));
        payloads.push(json!({"raw": {"executableCode": {"code": "1"}}}));
    }
    prop::sample::select(payloads)
}

fn next(wire: Wire, knows_all: bool) -> impl Strategy<Value = Next> {
    let part = prop_oneof![
        words().prop_map(Said::Text),
        ("[a-z]{0,4}", prop::option::of(payload(knows_all)))
            .prop_map(|(text, seal)| Said::Thought(text, seal)),
        Just(Said::Call),
    ];
    let maker = prop_oneof![
        4 => Just((wire, "scripted-1")),
        1 => Just((wire, "another")),
        1 => Just((Wire::Messages, "scripted-1")),
    ];
    let answered = (maker, prop::collection::vec(part, 0..6))
        .prop_map(|((wire, model), parts)| Next::Answered(wire, model, parts));
    prop_oneof![prop::collection::vec(words(), 1..3).prop_map(Next::Asked), answered]
}

fn history(wire: Wire, knows_all: bool) -> impl Strategy<Value = Vec<Next>> {
    prop::collection::vec(next(wire, knows_all), 0..8)
}

/// The requests of a conversation that goes on so.
fn requests(wire: Wire, history: &[Next]) -> Vec<ModelCall> {
    let tool = ToolSpec {
        name: "f".into(),
        description: "Does it.".into(),
        parameters: r#"{"type":"object","properties":{"path":{"type":"string"}}}"#.into(),
    };
    let mut messages: List<SharedMessage> = [user("Hi")].into_iter().collect();
    let mut ids = 0..;
    let mut requests = Vec::new();
    let mut request = |messages: &List<SharedMessage>| {
        let call = ModelCall {
            messages: messages.clone(),
            system: "Be brief.".into(),
            tools: vec![tool.clone()].into(),
            // What stands before the conversation is no part of it.
            max_tokens: Some(1_000 + requests.len() as u32),
            asker: Asker { conversation: "c".into(), ..Asker::default() },
            ..call(wire, [])
        };
        let mut call = thinking(call, ThinkingKind::Effort, Reasoning::On);
        // Every mark is worth its place.
        Arc::make_mut(&mut call.model).cache_minimum = 0;
        requests.push(call);
    };
    request(&messages);
    for next in history {
        match next {
            Next::Asked(texts) => {
                let parts = texts.iter().cloned().map(Part::Context).chain([Part::text("Well?")]);
                let asked = Message::of_parts(Role::User, parts.collect(), Meta::default());
                messages.push(Arc::new(asked));
            }
            Next::Answered(by, model, parts) => {
                let mut open = Vec::new();
                let part = |said: &Said| match said {
                    Said::Text(text) => Part::text(text),
                    Said::Thought(text, seal) => thought(text, seal.clone().unwrap_or_default()),
                    Said::Call => {
                        open.push(format!("c{}", ids.next().unwrap()));
                        calls(open.last().unwrap(), "f")
                    }
                };
                let parts = parts.iter().map(part).collect();
                messages.push(said(*by, model, parts));
                for id in open {
                    messages.push(result(&id, "done"));
                }
            }
        }
        request(&messages);
    }
    requests
}

/// What a cache sees of a conversation, piece by piece.
fn seen(wire: Wire, call: &ModelCall) -> Vec<Value> {
    let list = listed(wire, call);
    let pieces = |message: Value| -> Vec<Value> {
        let role = &message["role"];
        match (wire, &message) {
            (Wire::GenerateContent, Value::Object(content)) => {
                let parts = content["parts"].as_array().unwrap();
                parts.iter().map(|part| json!([role, part])).collect()
            }
            (Wire::Messages, Value::Object(message)) => {
                let blocks = message["content"].as_array().unwrap();
                blocks.iter().map(|block| json!([role, unmarked(block)])).collect()
            }
            // Several things that a user said are one text, which may go on.
            (Wire::Chat, _) if role == "user" => {
                let said = message["content"].as_str().unwrap();
                said.chars().map(|letter| json!([role, letter])).collect()
            }
            _ => vec![message],
        }
    };
    list.into_iter().flat_map(pieces).collect()
}

/// A block without the mark for the cache, which moves.
fn unmarked(block: &Value) -> Value {
    let mut block = block.clone();
    block.as_object_mut().unwrap().remove("cache_control");
    block
}

fn check_messages(messages: &[Value]) {
    let mut called: Vec<Value> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = ["user", "assistant"][at % 2];
        assert_eq!(message["role"], role, "they take turns: {messages:#?}");
        let blocks = message["content"].as_array().unwrap();
        assert!(!blocks.is_empty(), "{message}");
        let of_kind = |kind: &str, key: &str| -> Vec<Value> {
            let of_kind = blocks.iter().filter(|block| block["type"] == kind);
            of_kind.map(|block| block[key].clone()).collect()
        };
        assert!(!of_kind("text", "text").contains(&json!("")), "{message}");
        if role == "user" {
            assert_eq!(of_kind("tool_result", "tool_use_id"), called, "{message}");
        }
        called = of_kind("tool_use", "id");
    }
    let marks = messages.iter().map(|message| message.to_string().matches("cache_control").count());
    // The fourth is that of the system text.
    assert!(marks.sum::<usize>() <= 3, "{messages:#?}");
}

fn check_chat(messages: &[Value]) {
    let mut called: Vec<Value> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        assert_eq!(message["role"] == "system", at == 0, "{message}");
        if message["role"] == "tool" {
            assert_eq!(Some(&message["tool_call_id"]), called.first(), "{message}");
            called.remove(0);
            continue;
        }
        assert_eq!(called, [Value::Null; 0], "calls without results: {messages:#?}");
        let both_users = at > 0 && message["role"] == "user" && messages[at - 1]["role"] == "user";
        assert!(!both_users, "{messages:#?}");
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        called = calls.map(|call| call["id"].clone()).collect();
    }
}

fn check_responses(items: &[Value]) {
    let is_of_model = |item: &Value| item.get("role").is_none_or(|role| role == "assistant");
    for (at, item) in items.iter().enumerate() {
        assert_eq!(item.get("id"), None, "{item}");
        if item["type"] == "reasoning" {
            assert!(items.get(at + 1).is_some_and(is_of_model), "nothing follows {item}");
            assert_ne!(items[at + 1]["type"], "function_call_output");
        }
    }
}

fn check_generate_content(contents: &[Value]) {
    let having = |content: &Value, key: &str| {
        let parts = content["parts"].as_array().unwrap();
        parts.iter().filter(|part| part.get(key).is_some()).cloned().collect::<Vec<_>>()
    };
    for (at, content) in contents.iter().enumerate() {
        assert!(!content["parts"].as_array().unwrap().is_empty(), "{content}");
        let calls = having(content, "functionCall");
        let Some(first) = calls.first() else { continue };
        assert!(first["thoughtSignature"].is_string(), "{first}");
        let results = having(&contents[at + 1], "functionResponse");
        assert_eq!(results.len(), calls.len());
        for (call, result) in calls.iter().zip(&results) {
            let (call, result) = (&call["functionCall"], &result["functionResponse"]);
            assert_eq!((&call["name"], &call["id"]), (&result["name"], &result["id"]));
        }
    }
}

/// A question that was not answered is not shown again, and what tools returned beside words stays what it was.
#[test]
fn a_turn_that_failed_leaves_the_rest_as_it_was() {
    let asks = |text: &str| {
        let parts = vec![Part::Context("Current time".into()), Part::text(text)];
        Arc::new(Message::of_parts(Role::User, parts, Meta::default()))
    };
    let image = Attachment {
        kind: AttachmentKind::Image,
        media_type: "image/png".into(),
        name: None,
        source: Source::Blob(Blob::new(*b"png")),
    };
    for wire in WIRES {
        let begun = [user("Hi"), own(wire, vec![calls("c", "f")])];
        let result = Message::tool_result("c", "It is one.", Meta::default());
        let result: SharedMessage = Arc::new(result.with_attachments(vec![image.clone()]));
        let seen = begun.into_iter().chain([result]);
        let prefixes = Prefixes::default();
        for question in [None, Some("one"), Some("two")] {
            let mut call = call(wire, seen.clone().chain(question.map(asks)));
            Arc::make_mut(&mut call.model).inputs.image = true;
            call.asker.conversation = "c".into();
            let kept = prefixes.is_kept(&call, &written(wire, &call).blocks);
            assert!(kept, "{wire:?}: {question:?}");
        }
    }
}

proptest! {
    #[test]
    fn each_request_begins_with_all_of_the_one_before_it(
        histories in WIRES.map(|wire| history(wire, false)),
    ) {
        for (wire, history) in WIRES.into_iter().zip(histories) {
            let mut before: Vec<Value> = Vec::new();
            let prefixes = Prefixes::default();
            for call in requests(wire, &history) {
                let now = seen(wire, &call);
                prop_assert!(now.starts_with(&before), "{wire:?}: {before:#?} became {now:#?}");
                let kept = prefixes.is_kept(&call, &written(wire, &call).blocks);
                prop_assert!(kept, "{wire:?}: {before:#?} became {now:#?}");
                match wire {
                    Wire::Responses => check_responses(&now),
                    Wire::GenerateContent => check_generate_content(&listed(wire, &call)),
                    Wire::Messages => check_messages(&listed(wire, &call)),
                    Wire::Chat => check_chat(&listed(wire, &call)),
                    Wire::Ollama => {}
                }
                before = now;
            }
        }
    }
}

#[test]
fn the_vendors_own_types_take_any_conversation() {
    let mut runner = TestRunner::deterministic();
    for wire in WIRES {
        let histories = history(wire, true);
        let last = |history: &[Next]| body(wire, requests(wire, history).last().unwrap());
        let any = (0..200).map(|_| last(&histories.new_tree(&mut runner).unwrap().current()));
        let bodies: Vec<Value> = any.chain([body(wire, &conversation(wire))]).collect();
        let vendor = nexus_testkit::Wire::ALL.into_iter().find(|it| it.name() == wire.name());
        // What thinks behind the common interface has a member of its own.
        let is_known = |place: &str| {
            wire == Wire::Chat
                && ["reasoning_content", "reasoning_details"].iter().any(|it| place.ends_with(it))
        };
        vendors::assert_valid(vendor.unwrap(), &bodies, is_known);
    }
}
