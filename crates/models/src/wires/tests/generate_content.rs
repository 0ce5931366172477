//! Gemini's `generateContent`.

use nexus_core::usage::Usage;

use super::*;

const WIRE: Wire = Wire::GenerateContent;
const SKIP: &str = "skip_thought_signature_validator";

fn chunk(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}],
        "usageMetadata": {"promptTokenCount": 90}, "modelVersion": "m", "responseId": "r"})
}

fn finish(word: &str) -> Value {
    json!({"candidates": [{"finishReason": word, "index": 0}], "usageMetadata": {
        "promptTokenCount": 90, "cachedContentTokenCount": 50, "candidatesTokenCount": 18,
        "thoughtsTokenCount": 12, "totalTokenCount": 120}})
}

/// What is sent back of these parts.
fn parts_back(parts: Value) -> Value {
    let answer = hear(WIRE, &[chunk(parts), finish("STOP")]).answer();
    sent_back(WIRE, answer)[0]["parts"].clone()
}

#[test]
fn a_step_is_heard_in_its_order_and_sent_back_as_it_came() {
    let events = [
        chunk(json!([{"text": "First. ", "thought": true}])),
        chunk(json!([{"text": "Then.", "thought": true}])),
        chunk(json!([{"text": "I "}])),
        chunk(json!([{"text": "look."}])),
        chunk(
            json!([{"functionCall": {"name": "read", "args": {"path": "a"}, "id": "c1"}, "thoughtSignature": "c2ln"}]),
        ),
        chunk(json!([{"functionCall": {"name": "read", "args": {}, "id": "c2"}}])),
        finish("STOP"),
    ];
    let read = hear(WIRE, &events);
    assert_eq!((&*read.text, &*read.thoughts), ("I look.", "First. Then."));
    let answer = read.answer();
    assert_eq!(answer.stop, Stop::from(StopReason::EndTurn));
    let used = Usage { input: 90, cache_read: 50, output: 30, reasoning: 12, ..Usage::default() };
    assert_eq!(answer.usage, used);
    let expected = [
        json!({"role": "model", "parts": [
            {"text": "First. Then.", "thought": true},
            {"text": "I look."},
            {"functionCall": {"id": "c1", "name": "read", "args": {"path": "a"}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "c2", "name": "read", "args": {}}},
        ]}),
        json!({"role": "user", "parts": [
            {"functionResponse": {"id": "c1", "name": "read", "response": {"output": "done"}}},
            {"functionResponse": {"id": "c2", "name": "read", "response": {"output": "done"}}},
        ]}),
    ];
    assert_eq!(sent_back(WIRE, answer.clone()), expected);
    let whole = json!({"candidates": [{"content": expected[0], "finishReason": "STOP"}],
        "usageMetadata": finish("STOP")["usageMetadata"]});
    assert_eq!(read_document(WIRE, &whole).answer(), answer);
    assert_eq!(read_document(WIRE, &json!(events)).answer(), answer, "a list of chunks");
}

/// A part that bears a signature is joined with no other, or the signature would not fit.
#[test]
fn signatures_go_back_with_exactly_the_part_that_bore_them() {
    let s = |n: u8| format!("sign{n}");
    for parts in [
        json!([{"text": "Hi"}, {"text": "", "thoughtSignature": s(1)}]),
        json!([{"text": "Hi", "thoughtSignature": s(1)}, {"text": " there"}]),
        json!([{"text": "Hi"}, {"text": " there", "thoughtSignature": s(1)}, {"text": "!", "thoughtSignature": s(2)}]),
        json!([{"text": "", "thoughtSignature": s(1)}, {"text": "Hi"}]),
        json!([{"text": "Hm.", "thought": true, "thoughtSignature": s(1)}, {"text": "So.", "thought": true}, {"text": "Hi"}]),
        json!([{"text": "Hm.", "thought": true}, {"text": "", "thought": true, "thoughtSignature": s(1)}, {"text": "Hi"}]),
        json!([{"text": "Hi"}, {"thoughtSignature": s(1)}]),
        json!([{"text": "Hi"}, {"executableCode": {"code": "1"}, "thoughtSignature": s(1)}]),
        json!([
            {"functionCall": {"id": "a", "name": "f", "args": {}}, "thoughtSignature": s(1)},
            {"text": "between"},
            {"functionCall": {"id": "b", "name": "f", "args": {}}, "thoughtSignature": s(2)},
        ]),
    ] {
        assert_eq!(parts_back(parts.clone()), parts);
        let one_each = parts.as_array().unwrap().iter().map(|part| chunk(json!([part])));
        let events: Vec<Value> = one_each.chain([finish("STOP")]).collect();
        assert_eq!(sent_back(WIRE, hear(WIRE, &events).answer())[0]["parts"], parts);
    }
}

#[test]
fn a_call_without_a_signature_gets_the_one_that_is_taken_from_strangers() {
    let signed = thought("", json!({"signature": "mine", "on": "call"}));
    let signatures = |message: SharedMessage, kind, earlier| {
        let messages = [user("Hi"), message, result("a", ""), result("b", "")];
        let call = ModelCall { earlier, ..call(WIRE, messages) };
        let contents = listed(WIRE, &thinking(call, kind, Reasoning::On));
        let parts = contents[1]["parts"].as_array().unwrap().clone();
        let calls = parts.into_iter().filter(|part| part.get("functionCall").is_some());
        calls.map(|part| part["thoughtSignature"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let two = || vec![calls("a", "f"), calls("b", "f")];
    let signed_two = || [vec![signed.clone()], two()].concat();
    let skip = vec![Some(SKIP.to_owned()), None];
    let mine = vec![Some("mine".to_owned()), None];
    let new = ThinkingKind::Effort;
    assert_eq!(signatures(own(WIRE, signed_two()), new, 0), mine);
    assert_eq!(signatures(said(WIRE, "another", signed_two()), new, 0), mine, "another Gemini");
    assert_eq!(signatures(own(WIRE, two()), new, 0), skip, "it gave none");
    assert_eq!(signatures(own(Wire::Chat, signed_two()), new, 0), skip, "another service");
    assert_eq!(signatures(own(WIRE, signed_two()), new, 2), skip, "of an earlier epoch");
    assert_eq!(signatures(own(WIRE, two()), ThinkingKind::None, 0), skip);
    assert_eq!(signatures(own(WIRE, two()), ThinkingKind::Budget, 0), [None, None], "Gemini 2.5");
}

#[test]
fn thoughts_go_to_the_model_that_had_them_and_what_is_signed_to_its_relatives() {
    let parts = || {
        vec![
            thought("Hm.", Value::Null),
            thought("So.", json!({"signature": "s", "on": "thought"})),
            Part::text("Hi"),
        ]
    };
    let texts = |message: SharedMessage| {
        let contents = listed(WIRE, &call(WIRE, [user("Hi"), message, user("And?")]));
        let parts = contents[1]["parts"].as_array().unwrap().clone();
        parts.iter().map(|part| part["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(own(WIRE, parts())), ["Hm.", "So.", "Hi"]);
    assert_eq!(texts(said(WIRE, "another", parts())), ["So.", "Hi"]);
    assert_eq!(texts(own(Wire::Responses, parts())), ["Hi"]);
}

#[test]
fn an_id_goes_back_only_where_the_service_gave_it() {
    let ids = |contents: &[Value]| {
        let id = |at: usize, name: &str| contents[at]["parts"][0][name].get("id").cloned();
        (id(0, "functionCall"), id(1, "functionResponse"))
    };
    let event = chunk(json!([{"functionCall": {"name": "now"}}]));
    let answer = hear(WIRE, &[event, finish("STOP")]).answer();
    let [Part::Call(call_heard)] = &*answer.parts else { panic!("{:?}", answer.parts) };
    assert!(call_heard.id.starts_with("unnamed_"), "{call_heard:?}");
    assert_eq!((&*call_heard.name, &call_heard.arguments), ("now", &json!({})));
    assert_eq!(ids(&sent_back(WIRE, answer)), (None, None));
    let foreign = [user("Hi"), own(Wire::Chat, vec![calls("call_1", "f")]), result("call_1", "")];
    assert_eq!(ids(&listed(WIRE, &call(WIRE, foreign))[1..]), (None, None));
    let given = [user("Hi"), own(WIRE, vec![calls("g1", "f")]), result("g1", "")];
    assert_eq!(ids(&listed(WIRE, &call(WIRE, given))[1..]), (Some(json!("g1")), Some(json!("g1"))));
}

#[test]
fn two_calls_without_ids_are_told_apart() {
    let calls = json!([{"functionCall": {"name": "f", "args": {"n": 1}}}, {"functionCall": {"name": "f", "args": {"n": 2}}}]);
    let answer = hear(WIRE, &[chunk(calls), finish("STOP")]).answer();
    let [Part::Call(one), Part::Call(two)] = &*answer.parts else { panic!("{:?}", answer.parts) };
    assert_ne!(one.id, two.id);
    assert_eq!((&one.arguments, &two.arguments), (&json!({"n": 1}), &json!({"n": 2})));
}

#[test]
fn every_end_has_its_meaning() {
    let stop =
        |event: Value| hear(WIRE, &[chunk(json!([{"text": "So far"}])), event]).answer().stop;
    let with = |reason, word: &str| Stop { reason, details: Some(json!({"raw": word})) };
    assert_eq!(stop(finish("STOP")), StopReason::EndTurn.into());
    assert_eq!(stop(finish("MAX_TOKENS")), StopReason::MaxTokens.into());
    assert_eq!(stop(finish("CONTINUATION")), StopReason::Pause.into());
    for word in ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"]
    {
        assert_eq!(stop(finish(word)), with(StopReason::ContentFilter, word));
    }
    for word in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"] {
        assert_eq!(stop(finish(word)), with(StopReason::Empty, word));
    }
    for word in ["LANGUAGE", "OTHER", "TOO_MANY_TOOL_CALLS", "BRAND_NEW"] {
        assert_eq!(stop(finish(word)), with(StopReason::Other, word));
    }
    let mut explained = finish("SAFETY");
    explained["candidates"][0]["finishMessage"] = json!("It is not safe.");
    let details = json!({"raw": "SAFETY", "explanation": "It is not safe."});
    assert_eq!(stop(explained).details, Some(details));

    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 7}});
    let answer = hear(WIRE, std::slice::from_ref(&blocked)).answer();
    assert_eq!(answer.stop, with(StopReason::ContentFilter, "PROHIBITED_CONTENT"));
    assert_eq!((answer.parts.len(), answer.usage.input), (0, 7));
    assert_eq!(read_document(WIRE, &blocked).answer().stop, answer.stop);

    let error = json!({"code": 503, "message": "busy", "status": "UNAVAILABLE"});
    let broken = hear(WIRE, &[json!({"error": error})]);
    assert_eq!(broken.end, Some(Err(error)));
    let early = hear(WIRE, &[chunk(json!([{"text": "So far"}]))]);
    assert_eq!((&*early.text, early.end), ("So far", Some(Err(json!("ended too early")))));
    let no_end = read_document(WIRE, &chunk(json!([{"text": "So far"}])));
    assert_eq!(no_end.end, Some(Err(json!("it does not say why it ended"))));
}

#[test]
fn counts_that_are_left_out_have_not_changed() {
    let counted = |usage: Value| json!({"candidates": [], "usageMetadata": usage});
    let events = [
        counted(
            json!({"promptTokenCount": 10, "cachedContentTokenCount": 4, "toolUsePromptTokenCount": 5}),
        ),
        counted(json!({"candidatesTokenCount": 3, "thoughtsTokenCount": 2})),
        json!({"candidates": [{"finishReason": "STOP"}]}),
        counted(json!({"candidatesTokenCount": 6})),
    ];
    let usage = hear(WIRE, &events).answer().usage;
    assert_eq!(
        usage,
        Usage { input: 15, cache_read: 4, output: 8, reasoning: 2, ..Usage::default() }
    );
}

#[test]
fn thinking_is_asked_for_by_level_or_by_budget() {
    let config = |kind, reasoning, always_on| {
        let mut call = thinking(call(WIRE, [user("Hi")]), kind, reasoning);
        Arc::make_mut(&mut call.model).thinking.always_on = always_on;
        body(WIRE, &call)["generationConfig"]["thinkingConfig"].clone()
    };
    let budget =
        |tokens| Reasoning::Asked { effort: None, budget_tokens: Some(tokens), shown: true };
    let thoughts = json!({"includeThoughts": true});
    for kind in [ThinkingKind::None, ThinkingKind::Effort, ThinkingKind::Budget] {
        assert_eq!(config(kind, Reasoning::Off, false), Value::Null);
        assert_eq!(config(kind, Reasoning::On, false), thoughts);
    }
    for (asked, level, tokens) in [
        (Effort::None, "MINIMAL", 0),
        (Effort::Minimal, "MINIMAL", 2048),
        (Effort::Low, "LOW", 2048),
        (Effort::Medium, "MEDIUM", 8192),
        (Effort::High, "HIGH", 24576),
        (Effort::Xhigh, "HIGH", -1),
        (Effort::Max, "HIGH", -1),
    ] {
        let by_level = json!({"includeThoughts": true, "thinkingLevel": level});
        assert_eq!(config(ThinkingKind::Effort, effort(asked), false), by_level, "{asked:?}");
        let by_budget = match tokens {
            0 => json!({"thinkingBudget": 0}),
            tokens => json!({"includeThoughts": true, "thinkingBudget": tokens}),
        };
        assert_eq!(config(ThinkingKind::Budget, effort(asked), false), by_budget, "{asked:?}");
    }
    let least = json!({"includeThoughts": true, "thinkingBudget": 128});
    assert_eq!(config(ThinkingKind::Budget, effort(Effort::None), true), least);
    for (asked, sent) in [(24_576, 24_576), (24_577, 24_576), (u32::MAX, 24_576)] {
        let expected = json!({"includeThoughts": true, "thinkingBudget": sent});
        assert_eq!(config(ThinkingKind::Budget, budget(asked), false), expected);
    }
    let mut knows =
        thinking(call(WIRE, [user("Hi")]), ThinkingKind::Effort, effort(Effort::Medium));
    Arc::make_mut(&mut knows.model).thinking.efforts = vec![Effort::Low, Effort::High];
    assert_eq!(body(WIRE, &knows)["generationConfig"]["thinkingConfig"]["thinkingLevel"], "LOW");
}

#[test]
fn the_head_says_what_is_known_and_no_more() {
    let bare = call(WIRE, [user("Hi")]);
    let contents = json!([{"role": "user", "parts": [{"text": "Hi"}]}]);
    assert_eq!(body(WIRE, &bare), json!({"contents": contents}));
    let mut full = ModelCall { system: "Be brief.".into(), max_tokens: Some(9), ..bare };
    let model = Arc::make_mut(&mut full.model);
    model.extra_body = json!({"safetySettings": []}).as_object().unwrap().clone();
    let expected = json!({
        "generationConfig": {"maxOutputTokens": 9}, "safetySettings": [],
        "systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": contents,
    });
    assert_eq!(body(WIRE, &full), expected);
}

#[test]
fn an_answer_is_held_to_a_schema_or_asked_for_it() {
    let schema = Arc::new(json!({"type": "object"}));
    let tool = nexus_core::provider::ToolSpec {
        name: "f".into(),
        description: "".into(),
        parameters: "{}".into(),
    };
    let with = |kind, tools: Vec<_>| {
        let call = ModelCall {
            schema: Some(schema.clone()),
            tools: tools.into(),
            ..thinking(call(WIRE, [user("Hi")]), kind, Reasoning::Off)
        };
        body(WIRE, &call)
    };
    let held =
        json!({"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}});
    for (kind, tools) in [
        (ThinkingKind::Effort, vec![tool.clone()]),
        (ThinkingKind::Effort, vec![]),
        (ThinkingKind::Budget, vec![]),
    ] {
        let body = with(kind, tools);
        assert_eq!(body["generationConfig"], held);
        assert_eq!(body.get("systemInstruction"), None);
    }
    let asked = with(ThinkingKind::Budget, vec![tool]);
    assert_eq!(asked.get("generationConfig"), None, "Gemini 2.5 refuses both together");
    let words = asked["systemInstruction"]["parts"][0]["text"].as_str().unwrap();
    assert!(words.ends_with("{\"type\":\"object\"}"), "{words}");
}

#[test]
fn a_failed_result_is_an_error() {
    let failed = Message::tool_result("a", "no", Meta { failed: true, ..Meta::default() });
    let messages = [user("Hi"), own(Wire::Chat, vec![calls("a", "f")]), Arc::new(failed)];
    let contents = listed(WIRE, &call(WIRE, messages));
    let expected = json!({"functionResponse": {"name": "f", "response": {"error": "no"}}});
    assert_eq!(contents[2]["parts"], json!([expected]));
}

/// What a model went on with after a pause is one content with what it said before. A user may speak twice.
#[test]
fn what_was_said_without_an_answer_between_is_one_content() {
    let messages = [
        user("Hi"),
        user("Well?"),
        own(WIRE, vec![Part::text("So far")]),
        own(WIRE, vec![Part::text(" and on"), calls("a", "f"), calls("b", "f")]),
        result("a", ""),
        result("b", ""),
        user("Stop."),
    ];
    let contents = listed(WIRE, &call(WIRE, messages));
    let shapes: Vec<_> = contents
        .iter()
        .map(|content| {
            (content["role"].as_str().unwrap(), content["parts"].as_array().unwrap().len())
        })
        .collect();
    assert_eq!(shapes, [("user", 1), ("user", 1), ("model", 4), ("user", 2), ("user", 1)]);
}
