//! Ollama's own chat.

use nexus_core::TurnId;
use nexus_core::provider::ToolSpec;
use nexus_core::usage::Usage;

use super::*;

const WIRE: Wire = Wire::Ollama;

fn line(message: Value) -> Value {
    json!({"model": "m", "created_at": "2026-11-15T10:00:00Z", "message": message, "done": false})
}

fn last(reason: &str) -> Value {
    json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": reason,
        "total_duration": 5, "prompt_eval_count": 90, "eval_count": 30})
}

#[test]
fn a_step_is_heard_in_its_order_and_sent_back() {
    let calls = json!([
        {"id": "c1", "function": {"index": 0, "name": "read", "arguments": {"path": "a"}}},
        {"function": {"index": 1, "name": "now"}},
        {"function": {}},
    ]);
    let events = [
        line(json!({"role": "assistant", "content": "", "thinking": "Hm"})),
        line(json!({"role": "assistant", "content": "", "thinking": "."})),
        line(json!({"role": "assistant", "content": "I "})),
        line(json!({"role": "assistant", "content": "look."})),
        line(json!({"role": "assistant", "content": "", "tool_calls": calls})),
        last("stop"),
    ];
    let read = hear(WIRE, &events);
    assert_eq!((&*read.text, &*read.thoughts), ("I look.", "Hm."));
    let answer = read.answer();
    let [Part::Thought(_), Part::Text(_), Part::Call(one), Part::Call(two), Part::Call(three)] =
        &*answer.parts
    else {
        panic!("{:?}", answer.parts)
    };
    assert_eq!(*one, ToolCall::new("c1", "read", json!({"path": "a"})));
    assert_eq!((&*two.name, &two.arguments, &*three.name), ("now", &json!({}), "nameless"));
    assert_eq!(answer.usage, Usage { input: 90, output: 30, ..Usage::default() });
    let back = sent_back(WIRE, answer.clone());
    assert_eq!((&back[0]["content"], &back[0]["thinking"]), (&json!("I look."), &json!("Hm.")));
    let call = json!({"id": "c1", "function": {"name": "read", "arguments": {"path": "a"}}});
    assert_eq!(back[0]["tool_calls"][0], call);
    assert_eq!(
        back[1],
        json!({"role": "tool", "content": "done", "tool_name": "read", "tool_call_id": "c1"})
    );
    assert_eq!(back[2]["tool_name"], "now");

    let mut whole = last("stop");
    whole["message"] = json!({"role": "assistant", "content": "I look.", "thinking": "Hm.", "tool_calls": [calls[0]]});
    let document = read_document(WIRE, &whole).answer();
    assert_eq!(document.parts, answer.parts[..3]);
    let unfinished = read_document(WIRE, &line(json!({"content": "Hi"})));
    assert_eq!(unfinished.end, Some(Err(json!("it does not say why it ended"))));
}

#[test]
fn every_end_has_its_meaning() {
    let stop =
        |event: Value| hear(WIRE, &[line(json!({"content": "So far"})), event]).answer().stop;
    for (word, expected) in [
        ("stop", StopReason::EndTurn),
        ("", StopReason::EndTurn),
        ("length", StopReason::MaxTokens),
        ("load", StopReason::Empty),
        ("unload", StopReason::Empty),
    ] {
        assert_eq!(stop(last(word)), expected.into(), "{word}");
    }
    assert_eq!(
        stop(json!({"done": true})),
        StopReason::EndTurn.into(),
        "older servers say no more"
    );
    let odd = Stop { reason: StopReason::Other, details: Some(json!({"raw": "brand_new"})) };
    assert_eq!(stop(last("brand_new")), odd);
    let failed = hear(WIRE, &[line(json!({"content": "So far"})), json!({"error": "it crashed"})]);
    assert_eq!((&*failed.text, failed.end), ("So far", Some(Err(json!("it crashed")))));
    assert_eq!(read_document(WIRE, &json!({"error": "no"})).end, Some(Err(json!("no"))));
    let early = hear(WIRE, &[line(json!({"content": "So far"}))]);
    assert_eq!(early.end, Some(Err(json!("ended too early"))));
}

#[test]
fn thoughts_go_back_while_the_turn_goes_on() {
    let parts = |with_call: bool| {
        let mut parts = vec![thought("Hm.", Value::Null), Part::text("Hi")];
        parts.extend(with_call.then(|| calls("a", "f")));
        parts
    };
    let of = |role, parts, meta, turn: &str| {
        let meta = Meta { turn: Some(TurnId::Text(turn.into())), ..meta };
        Arc::new(Message::of_parts(role, parts, meta))
    };
    let is_sent = |with_call, meta, turn: &str, earlier: usize, always: bool| {
        let last = of(Role::User, vec![Part::text("On.")], Meta::default(), "now");
        let answer = of(Role::Assistant, parts(with_call), meta, turn);
        let mut call = ModelCall { earlier, ..call(WIRE, [user("Hi"), answer, last]) };
        Arc::make_mut(&mut call.model).thinking.replayed_always = always;
        listed(WIRE, &call)[1].get("thinking").is_some()
    };
    let own = || made(WIRE, "scripted-1");
    assert!(is_sent(true, own(), "now", 0, false));
    assert!(!is_sent(true, own(), "now", 2, false), "of an earlier epoch");
    assert!(!is_sent(false, own(), "now", 0, false), "without calls");
    assert!(!is_sent(true, own(), "before", 0, false));
    assert!(is_sent(false, own(), "before", 0, true));
    assert!(!is_sent(true, made(WIRE, "another"), "now", 0, true));
    assert!(!is_sent(true, made(Wire::Chat, "scripted-1"), "now", 0, true));
}

#[test]
fn the_head_says_what_the_server_must_not_choose_itself() {
    let head = |call: &ModelCall| {
        let mut body = body(WIRE, call);
        body.as_object_mut().unwrap().remove("messages");
        body
    };
    let mut asked = call(WIRE, [user("Hi")]);
    let plain = json!({"model": "scripted-1", "stream": true, "truncate": false, "shift": false,
        "keep_alive": "30m", "options": {"num_ctx": 128_000}});
    assert_eq!(head(&asked), plain);
    asked.max_tokens = Some(9);
    let model = Arc::make_mut(&mut asked.model);
    model.context_window = 8192;
    model.extra_body = json!({"logprobs": true}).as_object().unwrap().clone();
    let mut expected = plain;
    expected["options"] = json!({"num_ctx": 8192, "num_predict": 9});
    expected["logprobs"] = json!(true);
    assert_eq!(head(&asked), expected);
}

#[test]
fn thinking_is_asked_for_by_level_where_the_model_has_levels() {
    let think = |id: &str, efforts: &[Effort], reasoning| {
        let mut call = ModelCall { reasoning, ..call(WIRE, [user("Hi")]) };
        let model = Arc::make_mut(&mut call.model);
        model.id = id.into();
        model.thinking.efforts = efforts.to_vec();
        body(WIRE, &call)["think"].clone()
    };
    assert_eq!(think("qwen3", &[], Reasoning::Off), Value::Null);
    for (reasoning, expected) in [
        (Reasoning::On, json!(true)),
        (effort(Effort::None), json!(false)),
        (effort(Effort::Low), json!(true)),
        (effort(Effort::Max), json!(true)),
    ] {
        assert_eq!(think("qwen3", &[], reasoning), expected, "{reasoning:?}");
    }
    for (asked, expected, of_gpt_oss) in [
        (Effort::None, json!(false), json!(false)),
        (Effort::Minimal, json!("low"), json!("low")),
        (Effort::Low, json!("low"), json!("low")),
        (Effort::Medium, json!("medium"), json!("medium")),
        (Effort::High, json!("high"), json!("high")),
        (Effort::Xhigh, json!("max"), json!("high")),
        (Effort::Max, json!("max"), json!("high")),
    ] {
        assert_eq!(think("m", &Effort::ALL, effort(asked)), expected, "{asked:?}");
        assert_eq!(think("gpt-oss:20b", &[], effort(asked)), of_gpt_oss, "{asked:?}");
    }
    assert_eq!(think("gpt-oss:20b", &[], Reasoning::On), json!(true));
}

#[test]
fn an_answer_is_held_to_a_schema_or_asked_for_it() {
    let schema = json!({"type": "object"});
    let asked = ModelCall {
        system: "Be brief.".into(),
        schema: Some(Arc::new(schema.clone())),
        ..call(WIRE, [user("Hi")])
    };
    let held = body(WIRE, &asked);
    assert_eq!((&held["format"], &held["messages"][0]["content"]), (&schema, &json!("Be brief.")));
    let tool = ToolSpec { name: "f".into(), description: "".into(), parameters: "{}".into() };
    let in_words = body(WIRE, &ModelCall { tools: vec![tool].into(), ..asked });
    assert_eq!(in_words.get("format"), None, "it could not call the tool");
    let system = in_words["messages"][0]["content"].as_str().unwrap();
    assert!(
        system.starts_with("Be brief.\n\n") && system.ends_with("{\"type\":\"object\"}"),
        "{system}"
    );
}
