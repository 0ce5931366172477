//! OpenAI's responses.

use nexus_core::usage::Usage;

use super::*;

const WIRE: Wire = Wire::Responses;

fn added(index: usize, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: usize, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn delta(kind: &str, index: usize, delta: &str) -> Value {
    let kind = format!("response.{kind}.delta");
    json!({"type": kind, "item_id": "x", "output_index": index, "delta": delta})
}

fn summary_delta(part: usize, text: &str) -> Value {
    let mut event = delta("reasoning_summary_text", 0, text);
    event["summary_index"] = json!(part);
    event
}

fn completed(output: Value) -> Value {
    let usage = json!({
        "input_tokens": 90, "input_tokens_details": {"cached_tokens": 50, "cache_write_tokens": 20},
        "output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 12}, "total_tokens": 120,
    });
    let response = json!({"id": "r", "status": "completed", "output": output, "usage": usage});
    json!({"type": "response.completed", "response": response})
}

/// A step with everything in it, with ids that are others in each event.
fn step() -> Vec<Value> {
    let reasoning = |id: &str, encrypted: Value, summary: Value| json!({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted});
    let message = |id: &str, status: &str, content: Value| json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content, "phase": "commentary"});
    let call = |id: &str, arguments: &str| json!({"type": "function_call", "id": id, "call_id": "call_7", "name": "read", "arguments": arguments});
    let summary = json!([{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}]);
    vec![
        json!({"type": "response.created", "sequence_number": 0, "response": {"status": "in_progress", "output": []}}),
        added(0, reasoning("rs_1", json!("begun"), json!([]))),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0, "part": {}}),
        summary_delta(0, "Fir"),
        summary_delta(0, "st."),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1, "part": {}}),
        summary_delta(1, "Then."),
        done(0, reasoning("rs_2", json!("whole"), summary)),
        added(1, message("m_1", "in_progress", json!([]))),
        delta("output_text", 1, "I "),
        delta("output_text", 1, "look."),
        json!({"type": "response.output_text.done", "output_index": 1, "text": "I look."}),
        done(
            1,
            message(
                "m_2",
                "completed",
                json!([{"type": "output_text", "text": "I look.", "annotations": []}]),
            ),
        ),
        added(2, call("fc_1", "")),
        delta("function_call_arguments", 2, "{\"path\""),
        delta("function_call_arguments", 2, ":\"a\"}"),
        json!({"type": "response.function_call_arguments.done", "output_index": 2, "arguments": "{\"path\":\"a\"}"}),
        done(2, call("fc_2", "{\"path\":\"a\"}")),
        completed(json!([])),
    ]
}

#[test]
fn a_step_is_heard_in_its_order_and_sent_back_as_it_came() {
    let read = hear(WIRE, &step());
    assert_eq!((&*read.text, &*read.thoughts), ("I look.", "First.\n\nThen."));
    let answer = read.answer();
    let [reasoning, phase, Part::Text(text), Part::Call(call)] = &*answer.parts else {
        panic!("{:?}", answer.parts)
    };
    assert_eq!(sealed(reasoning)["reasoning"]["encrypted_content"], "whole");
    assert_eq!(sealed(phase), json!({"phase": "commentary"}));
    assert_eq!((&**text, &*call.id, &call.arguments), ("I look.", "call_7", &json!({"path": "a"})));
    assert_eq!(answer.stop, Stop::from(StopReason::EndTurn));
    let used = Usage {
        input: 90,
        cache_read: 50,
        cache_write: 20,
        output: 30,
        reasoning: 12,
        ..Usage::default()
    };
    assert_eq!(answer.usage, used);
    let summary = json!([{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}]);
    let expected = [
        json!({"type": "reasoning", "summary": summary, "encrypted_content": "whole"}),
        json!({"type": "message", "role": "assistant", "phase": "commentary",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}]}),
        json!({"type": "function_call", "call_id": "call_7", "name": "read", "arguments": "{\"path\":\"a\"}"}),
        json!({"type": "function_call_output", "call_id": "call_7", "output": "done"}),
    ];
    assert_eq!(sent_back(WIRE, answer), expected);
}

/// Services leave events out, and some say everything only at the end.
#[test]
fn the_same_is_heard_however_little_of_it_is_streamed() {
    let all = hear(WIRE, &step()).answer();
    let items: Vec<Value> = step()
        .into_iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| event["item"].clone())
        .collect();
    let without = |kinds: &[&str]| -> Vec<Value> {
        let is_left = |event: &Value| {
            !kinds.iter().any(|kind| event["type"].as_str().unwrap().contains(kind))
        };
        step().into_iter().filter(is_left).collect()
    };
    for left_out in [&["delta"][..], &["delta", "added"], &["added"]] {
        let read = hear(WIRE, &without(left_out));
        assert_eq!(read.text, "I look.", "{left_out:?}");
        assert_eq!(read.answer().parts, all.parts, "{left_out:?}");
    }
    for left_out in [&["item.done"][..], &["item", "delta"]] {
        let mut events = without(left_out);
        *events.last_mut().unwrap() = completed(json!(items));
        assert_eq!(hear(WIRE, &events).answer().parts, all.parts, "{left_out:?}");
    }
    let document = completed(json!(items))["response"].clone();
    assert_eq!(read_document(WIRE, &document).answer(), all);
}

#[test]
fn encrypted_content_that_comes_only_at_the_end_is_taken_from_there() {
    let reasoning = |encrypted: Value| json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": encrypted});
    let message = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]});
    let events = [
        added(0, reasoning(Value::Null)),
        done(0, reasoning(Value::Null)),
        done(1, message.clone()),
        completed(json!([reasoning(json!("late")), message])),
    ];
    let answer = hear(WIRE, &events).answer();
    assert_eq!(answer.parts.len(), 2, "{:?}", answer.parts);
    assert_eq!(sealed(&answer.parts[0])["reasoning"]["encrypted_content"], "late");
    let never = [
        done(0, reasoning(Value::Null)),
        done(1, json!({"type": "message", "content": [{"text": "Hi"}]})),
        completed(json!([])),
    ];
    assert_eq!(hear(WIRE, &never).answer().parts, [Part::text("Hi")]);
}

#[test]
fn open_thoughts_and_items_of_unknown_kinds_go_back_without_their_ids() {
    let open = json!({"type": "reasoning", "id": "rs", "status": "completed", "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}], "encrypted_content": null});
    let odd = json!({"type": "brand_new", "id": "x", "name": {"deep": 1}, "content": "odd"});
    let events = [
        added(0, json!({"type": "reasoning", "id": "rs", "summary": []})),
        delta("reasoning_text", 0, "Hm."),
        done(0, open),
        added(1, odd.clone()),
        done(1, odd),
        json!({"type": "response.brand_new.delta", "delta": {"odd": 1}, "message": [1]}),
        done(
            2,
            json!({"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hi"}]}),
        ),
        completed(json!([])),
    ];
    let read = hear(WIRE, &events);
    assert_eq!(read.thoughts, "Hm.");
    let items = sent_back(WIRE, read.answer());
    let content = json!([{"type": "reasoning_text", "text": "Hm."}]);
    assert_eq!(items[0], json!({"type": "reasoning", "summary": [], "content": content}));
    assert_eq!(items[1], json!({"type": "brand_new", "name": {"deep": 1}, "content": "odd"}));
    assert_eq!(items.len(), 3);
}

#[test]
fn reasoning_stands_before_what_it_led_to_or_nowhere() {
    let reasoning = |n: u8| {
        thought(
            "",
            json!({"reasoning": {"type": "reasoning", "summary": [], "encrypted_content": n}}),
        )
    };
    let kinds = |parts: Vec<Part>| -> Vec<String> {
        let items = sent_back(WIRE, Answer { parts, ..Answer::default() });
        items
            .iter()
            .map(|item| format!("{}{}", item["type"].as_str().unwrap(), item["encrypted_content"]))
            .collect()
    };
    assert_eq!(
        kinds(vec![reasoning(1), Part::text("Hi"), reasoning(2)]),
        ["reasoning1", "messagenull"]
    );
    assert_eq!(
        kinds(vec![Part::text("Hi"), reasoning(1), reasoning(2), calls("a", "read")])[..4],
        ["messagenull", "reasoning1", "reasoning2", "function_callnull"]
    );
    let phase = thought("", json!({"phase": "final_answer"}));
    assert_eq!(kinds(vec![Part::text("Hi"), reasoning(1), phase]), ["messagenull"]);
    // A phase is of the text that follows it at once.
    let phase = thought("", json!({"phase": "final_answer"}));
    let parts = vec![phase, reasoning(1), Part::text("Hi")];
    let items = sent_back(WIRE, Answer { parts, ..Answer::default() });
    assert_eq!(items[1].get("phase"), None);
}

#[test]
fn reasoning_goes_to_the_model_alone_that_made_it() {
    let parts = || {
        vec![
            thought(
                "Hm.",
                json!({"reasoning": {"type": "reasoning", "summary": [], "encrypted_content": "e"}}),
            ),
            thought("", json!({"phase": "commentary"})),
            Part::text("I look."),
        ]
    };
    let sent = |message: SharedMessage, earlier: usize| {
        let call = ModelCall { earlier, ..call(WIRE, [user("Hi"), message, user("And?")]) };
        let items = listed(WIRE, &call).split_off(1);
        assert!(!json!(items).to_string().contains("Hm."), "never as text");
        items
            .iter()
            .map(|item| (item["type"] == "reasoning", item["phase"].clone()))
            .collect::<Vec<_>>()
    };
    let phase = json!("commentary");
    let said_alone = |phase: &Value| vec![(false, phase.clone()), (false, Value::Null)];
    assert_eq!(sent(own(WIRE, parts()), 0)[0], (true, Value::Null));
    assert_eq!(sent(own(WIRE, parts()), 1)[0], (true, Value::Null));
    assert_eq!(sent(own(WIRE, parts()), 2), said_alone(&phase), "of an earlier epoch");
    assert_eq!(sent(said(WIRE, "another", parts()), 0), said_alone(&phase));
    assert_eq!(sent(own(Wire::Chat, parts()), 0), said_alone(&Value::Null));
    let mut elsewhere = call(WIRE, [user("Hi"), own(WIRE, parts()), user("And?")]);
    Arc::make_mut(&mut elsewhere.model).provider_name = "others".into();
    assert_eq!(listed(WIRE, &elsewhere).len(), 3);
}

/// `None` is an answer, `Some` is the error.
#[track_caller]
fn check_end(event: Value, expected: Result<Stop, Value>) {
    let events = [done(0, json!({"type": "message", "content": [{"text": "So far"}]})), event];
    let read = hear(WIRE, &events);
    assert_eq!(read.text, "So far");
    assert_eq!(read.end.unwrap().map(|answer| answer.stop), expected, "{}", events[1]);
}

#[test]
fn every_end_has_its_meaning() {
    let incomplete = |reason: &str| {
        json!({"type": "response.incomplete", "response": {
            "status": "incomplete", "incomplete_details": {"reason": reason}, "output": []}})
    };
    let odd =
        |word: &str| Ok(Stop { reason: StopReason::Other, details: Some(json!({"raw": word})) });
    check_end(completed(json!([])), Ok(StopReason::EndTurn.into()));
    check_end(incomplete("max_output_tokens"), Ok(StopReason::MaxTokens.into()));
    check_end(incomplete("content_filter"), Ok(StopReason::ContentFilter.into()));
    check_end(incomplete("max_messages"), odd("max_messages"));
    check_end(json!({"type": "response.incomplete", "response": {}}), odd("incomplete"));
    let error = json!({"code": "rate_limit_exceeded", "message": "Please try again in 1.2s."});
    check_end(
        json!({"type": "response.failed", "response": {"status": "failed", "error": error}}),
        Err(error.clone()),
    );
    check_end(
        json!({"type": "response.failed", "response": {}}),
        Err(json!("it does not say why it ended")),
    );
    let mut flat = json!({"type": "error", "param": null, "sequence_number": 3});
    flat["code"] = error["code"].clone();
    flat["message"] = error["message"].clone();
    check_end(flat, Err(error.clone()));
    check_end(json!({"type": "error", "error": error}), Err(error));
    check_end(json!({"type": "response.in_progress"}), Err(json!("ended too early")));
    let done = read(WIRE, [&b"data: [DONE]\n\n"[..]]);
    assert_eq!(done.end, Some(Err(json!("ended too early"))), "it is not what ends an answer");
}

#[test]
fn a_document_says_how_it_ended() {
    let stop = |document: Value| {
        read_document(WIRE, &document).end.unwrap().map(|answer| answer.stop.reason)
    };
    assert_eq!(stop(json!({"status": "completed", "output": []})), Ok(StopReason::EndTurn));
    let cut =
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
    assert_eq!(stop(cut), Ok(StopReason::MaxTokens));
    let error = json!({"code": "server_error", "message": "no"});
    assert_eq!(stop(json!({"status": "failed", "error": error})), Err(error.clone()));
    assert_eq!(stop(json!({"error": error})), Err(error));
    for odd in [json!({}), json!({"status": "in_progress", "output": []})] {
        assert_eq!(stop(odd), Err(json!("it does not say why it ended")));
    }
}

#[test]
fn a_refusal_is_not_streamed_and_its_words_are_kept() {
    let streamed = [
        added(0, json!({"type": "message", "content": []})),
        delta("refusal", 0, "I "),
        delta("refusal", 0, "won't."),
        done(
            0,
            json!({"type": "message", "content": [{"type": "refusal", "refusal": "I won't."}]}),
        ),
        completed(json!([])),
    ];
    for events in [&streamed[..], &streamed[3..]] {
        let read = hear(WIRE, events);
        assert_eq!(read.text, "");
        let answer = read.answer();
        assert_eq!(answer.parts, [Part::text("I won't.")]);
        assert_eq!(answer.stop, Stop::from(StopReason::Refusal));
    }
}

#[test]
fn a_call_that_was_cut_is_marked_and_goes_back_empty() {
    let events = [
        added(
            0,
            json!({"type": "function_call", "call_id": "c", "name": "write", "arguments": ""}),
        ),
        delta("function_call_arguments", 0, "{\"path\": \"a"),
        json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}),
    ];
    let answer = hear(WIRE, &events).answer();
    let [Part::Call(call)] = &*answer.parts else { panic!("{:?}", answer.parts) };
    assert_eq!((call.cut, &call.arguments), (Some(11), &json!({})));
    assert_eq!(sent_back(WIRE, answer)[0]["arguments"], "{}");
}

#[test]
fn calls_that_say_late_or_never_who_they_are() {
    let call = |index: usize, item: Value| {
        [added(index, json!({"type": "function_call"})), done(index, item)]
    };
    let late = call(
        0,
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}"}),
    );
    let never = call(1, json!({"type": "function_call"}));
    let events: Vec<Value> = late.into_iter().chain(never).chain([completed(json!([]))]).collect();
    let answer = hear(WIRE, &events).answer();
    let [Part::Call(late), Part::Call(never)] = &*answer.parts else {
        panic!("{:?}", answer.parts)
    };
    assert_eq!(*late, ToolCall::new("c", "f", json!({"a": 1})));
    assert!(never.id.starts_with("call_"), "{never:?}");
    assert_eq!(never.name, "nameless");
}

#[test]
fn items_just_under_and_just_over() {
    let of = |count: usize| -> Vec<Value> {
        (0..count)
            .map(|index| added(index, json!({"type": "message"})))
            .chain([completed(json!([]))])
            .collect()
    };
    assert!(hear(WIRE, &of(1024)).end.unwrap().is_ok());
    let error = json!("the answer has more than 1024 items");
    assert_eq!(hear(WIRE, &of(1025)).end, Some(Err(error)));
}

#[test]
fn the_head_says_what_is_known_and_no_more() {
    let bare = call(WIRE, [user("Hi")]);
    let head = |call: &ModelCall| {
        let mut body = body(WIRE, call);
        body.as_object_mut().unwrap().remove("input");
        body
    };
    let plain = json!({"model": "scripted-1", "stream": true,
        "stream_options": {"include_obfuscation": false}, "store": false});
    assert_eq!(head(&bare), plain);

    let asker = nexus_core::provider::Asker {
        conversation: "0123456789abcdef0123456789abcdef".into(),
        ..Default::default()
    };
    let mut full = ModelCall {
        system: "Be brief.".into(),
        max_tokens: Some(15),
        schema: Some(Arc::new(json!({"type": "object"}))),
        asker,
        ..bare.clone()
    };
    Arc::make_mut(&mut full.model).extra_body =
        json!({"service_tier": "flex"}).as_object().unwrap().clone();
    let full = thinking(full, ThinkingKind::Effort, effort(Effort::High));
    let mut expected = plain.clone();
    expected["include"] = json!(["reasoning.encrypted_content"]);
    expected["prompt_cache_key"] = json!("0123456789abcdef0123456789abcdef");
    expected["max_output_tokens"] = json!(16);
    expected["reasoning"] = json!({"effort": "high", "summary": "auto"});
    expected["text"] = json!({"format": {
        "type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": false}});
    expected["service_tier"] = json!("flex");
    expected["instructions"] = json!("Be brief.");
    assert_eq!(head(&full), expected);
    assert_eq!(head(&ModelCall { max_tokens: Some(17), ..full })["max_output_tokens"], 17);

    for (reasoning, expected) in [
        (Reasoning::Off, Value::Null),
        (Reasoning::On, json!({"summary": "auto"})),
        (effort(Effort::None), json!({"effort": "none"})),
        (effort(Effort::Minimal), json!({"effort": "minimal", "summary": "auto"})),
        (effort(Effort::Max), json!({"effort": "max", "summary": "auto"})),
    ] {
        let body = body(WIRE, &thinking(bare.clone(), ThinkingKind::None, reasoning));
        assert_eq!(body["reasoning"], expected, "{reasoning:?}");
        // A model that does not think refuses to be asked for its thoughts.
        assert_eq!(body["include"].is_array(), !reasoning.is_off());
    }
    let off = body(WIRE, &thinking(bare, ThinkingKind::Effort, Reasoning::Off));
    assert!(off["include"].is_array(), "it thinks though nobody asks it to");
}

#[test]
fn ids_that_the_service_refuses_are_sent_as_a_hash() {
    let long = "x".repeat(65);
    let messages = [user("Hi"), own(Wire::Chat, vec![calls(&long, "read")]), result(&long, "")];
    let items = listed(WIRE, &call(WIRE, messages));
    let id = items[1]["call_id"].as_str().unwrap();
    assert_eq!((id.len(), &items[2]["call_id"]), (22, &items[1]["call_id"]));
    let fits = "x".repeat(64);
    let messages = [user("Hi"), own(Wire::Chat, vec![calls(&fits, "read")]), result(&fits, "")];
    assert_eq!(listed(WIRE, &call(WIRE, messages))[1]["call_id"], fits);
}
