//! What each wire says. Vendors' own clients say whether it is right; here stands what they do not look at.

use nexus_testkit::{Odd, Reply, ScriptedModel, StopSaid, ThoughtField, Wire};
use serde_json::{Value, json};

use crate::client::{Answer, ask, path, post, question};

async fn answer(wire: Wire, reply: Reply) -> Answer {
    let model = ScriptedModel::start().await;
    model.push(reply);
    ask(&model, wire).await
}

/// The last event of a stream that says why it ended, in the wire's words.
fn why(wire: Wire, events: &[Value]) -> Value {
    let last = |field: &dyn Fn(&Value) -> Value| {
        events.iter().rev().map(field).find(|word| !word.is_null()).unwrap_or_default()
    };
    match wire {
        Wire::Chat => last(&|event| event["choices"][0]["finish_reason"].clone()),
        Wire::Messages => last(&|event| event["delta"]["stop_reason"].clone()),
        Wire::Responses => last(&|event| match &event["response"] {
            Value::Null => Value::Null,
            response => {
                match (&response["error"]["code"], &response["incomplete_details"]["reason"]) {
                    (Value::Null, Value::Null) => response["status"].clone(),
                    (Value::Null, reason) => reason.clone(),
                    (code, _) => code.clone(),
                }
            }
        }),
        Wire::GenerateContent => last(&|event| event["candidates"][0]["finishReason"].clone()),
        Wire::Ollama => last(&|event| event["done_reason"].clone()),
    }
}

#[tokio::test]
async fn every_reason_to_stop_is_said_in_each_wires_words() {
    let refusal = || StopSaid::Refusal { category: Some("cyber".into()), explanation: None };
    let table = [
        (StopSaid::End, ["stop", "end_turn", "completed", "STOP", "stop"]),
        (
            StopSaid::MaxTokens,
            ["length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "length"],
        ),
        (refusal(), ["stop", "refusal", "completed", "SAFETY", "stop"]),
        (
            StopSaid::ContentFilter,
            ["content_filter", "refusal", "content_filter", "SAFETY", "stop"],
        ),
        (
            StopSaid::ContextWindow,
            [
                "length",
                "model_context_window_exceeded",
                "context_length_exceeded",
                "MAX_TOKENS",
                "length",
            ],
        ),
        (StopSaid::Pause, ["stop", "pause_turn", "completed", "CONTINUATION", "stop"]),
        (
            StopSaid::MalformedCall,
            ["stop", "malformed_tool_use", "completed", "MALFORMED_FUNCTION_CALL", "stop"],
        ),
        (StopSaid::Raw("odd".into()), ["odd"; 5]),
    ];
    for (stop, words) in table {
        for (wire, word) in Wire::ALL.into_iter().zip(words) {
            let reply = Reply::text("So far").stop(stop.clone());
            let streamed = answer(wire, reply).await;
            assert_eq!(why(wire, &streamed.events()), word, "{wire:?} {stop:?}");
        }
    }
}

#[tokio::test]
async fn a_call_ends_a_step_as_each_wire_says_it_and_a_cut_one_may_be_hidden() {
    let whole = ["tool_calls", "tool_use", "completed", "STOP", "stop"];
    let cut = ["length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "length"];
    for (index, wire) in Wire::ALL.into_iter().enumerate() {
        let reply = Reply::tool_call("read_file", json!({"path": "a"}));
        let streamed = answer(wire, reply).await;
        assert_eq!(why(wire, &streamed.events()), whole[index]);
        let ends_inside = Reply::nothing().then_cut_call("write_file", "{\"path\": \"a\", \"te");
        let streamed = answer(wire, ends_inside.clone()).await;
        assert_eq!(why(wire, &streamed.events()), cut[index]);
        let sends_calls_whole = matches!(wire, Wire::GenerateContent | Wire::Ollama);
        assert_eq!(streamed.body.contains("write_file"), !sends_calls_whole, "{wire:?}");
        let hidden = answer(wire, ends_inside.stop(StopSaid::End)).await;
        assert_eq!(why(wire, &hidden.events()), whole[index]);
    }
}

#[tokio::test]
async fn a_prompt_that_is_blocked_has_no_candidates() {
    let reply = Reply::nothing().stop(StopSaid::ContentFilter);
    let events = answer(Wire::GenerateContent, reply).await.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["promptFeedback"]["blockReason"], "PROHIBITED_CONTENT");
    assert!(events[0].get("candidates").is_none());
}

#[tokio::test]
async fn a_call_that_cannot_be_read_still_arrives() {
    for wire in Wire::ALL {
        let reply = Reply::nothing().then_tool_call_as("", "list", "not json");
        let streamed = answer(wire, reply).await;
        assert!(streamed.body.contains("list"), "{wire:?}: {}", streamed.body);
    }
}

#[tokio::test]
async fn the_first_call_of_a_step_carries_the_signature_of_its_thought() {
    let reply = Reply::nothing()
        .then_thought_signed("Two files.", "c2lnbg==")
        .then_tool_call("read", json!({"path": "a"}))
        .then_tool_call("read", json!({"path": "b"}));
    let events = answer(Wire::GenerateContent, reply).await.events();
    let parts: Vec<&Value> =
        events.iter().map(|event| &event["candidates"][0]["content"]["parts"][0]).collect();
    assert_eq!(parts[0], &json!({"text": "Two files.", "thought": true}));
    assert_eq!(parts[1]["thoughtSignature"], "c2lnbg==");
    assert!(parts[2].get("thoughtSignature").is_none());

    let unthought = Reply::tool_call("read", json!({}));
    let events = answer(Wire::GenerateContent, unthought).await.events();
    let signature = &events[0]["candidates"][0]["content"]["parts"][0]["thoughtSignature"];
    assert!(signature.as_str().is_some_and(|it| it.len() == 20), "{signature}");

    let said = Reply::thought("Easy.").then_text("Yes.");
    let events = answer(Wire::GenerateContent, said).await.events();
    let last = &events[2]["candidates"][0]["content"]["parts"][0];
    assert_eq!(last["text"], "");
    assert!(last["thoughtSignature"].is_string());
}

#[tokio::test]
async fn thoughts_have_the_name_that_was_chosen_on_chat() {
    let names = [
        (ThoughtField::ReasoningContent, vec!["reasoning_content"]),
        (ThoughtField::Reasoning, vec!["reasoning"]),
        (ThoughtField::ReasoningDetails, vec!["reasoning", "reasoning_details"]),
        (ThoughtField::BothNames, vec!["reasoning", "reasoning_content"]),
    ];
    let all = ["reasoning", "reasoning_content", "reasoning_details"];
    for (field, expected) in names {
        let reply = Reply::thought("Hm.").then_redacted("hidden").thoughts_as(field);
        let events = answer(Wire::Chat, reply).await.events();
        let has = |name: &&str| {
            events.iter().any(|event| event["choices"][0]["delta"].get(name).is_some())
        };
        assert_eq!(all.into_iter().filter(has).collect::<Vec<_>>(), expected, "{field:?}");
        let details: Vec<&Value> = events
            .iter()
            .map(|event| &event["choices"][0]["delta"]["reasoning_details"][0])
            .filter(|detail| !detail.is_null())
            .collect();
        if field == ThoughtField::ReasoningDetails {
            let [text, signed, hidden] = details[..] else { panic!("{details:?}") };
            assert_eq!((&text["text"], &text["index"]), (&json!("Hm."), &json!(0)));
            assert!(signed["signature"].is_string() && signed["index"] == 0);
            assert_eq!((&hidden["data"], &hidden["index"]), (&json!("hidden"), &json!(1)));
        } else {
            assert!(details.is_empty());
        }
    }
}

#[tokio::test]
async fn headers_are_sent_with_answers_and_with_errors() {
    for wire in Wire::ALL {
        for reply in [Reply::text("a"), Reply::status(500), Reply::text("a").as_document()] {
            let answer = answer(wire, reply.header("x-ratelimit-remaining-tokens", "12")).await;
            assert_eq!(answer.header("x-ratelimit-remaining-tokens"), Some("12"), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn an_http_error_has_the_wires_shape_and_word() {
    let error = |code: Option<&'static str>| {
        let reply = Reply::status(429).message("Too fast.");
        match code {
            Some(code) => reply.code(code),
            None => reply,
        }
    };
    let chat = answer(Wire::Chat, error(Some("insufficient_quota"))).await.document();
    assert_eq!(chat["error"]["message"], "Too fast.");
    assert_eq!(chat["error"]["code"], "insufficient_quota");
    let messages = answer(Wire::Messages, error(None)).await.document();
    assert_eq!(messages["error"], json!({"type": "rate_limit_error", "message": "Too fast."}));
    let google = answer(Wire::GenerateContent, error(None)).await.document();
    let status = json!({"code": 429, "message": "Too fast.", "status": "RESOURCE_EXHAUSTED"});
    assert_eq!(google["error"], status);
    let ollama = answer(Wire::Ollama, error(None)).await.document();
    assert_eq!(ollama, json!({"error": "Too fast."}));
}

#[tokio::test]
async fn what_asks_for_no_stream_gets_a_document_and_so_does_what_the_reply_says() {
    for wire in Wire::ALL {
        let model = ScriptedModel::start().await;
        let mut body = question(wire);
        if wire != Wire::GenerateContent {
            body["stream"] = json!(false);
        }
        let path = path(wire).replace("streamGenerateContent?alt=sse", "generateContent");
        model.push(Reply::chunks(["One ", "piece."]).usage(3, 4));
        let asked = post(&model, &path, &body).await;
        assert_eq!(asked.header("content-type"), Some("application/json"), "{wire:?}");
        assert!(asked.document().to_string().contains("One piece."), "{wire:?}");

        model.push(Reply::chunks(["One ", "piece."]).usage(3, 4).as_document());
        let told = ask(&model, wire).await;
        assert_eq!(told.header("content-type"), Some("application/json"), "{wire:?}");
        assert_eq!(told.document(), asked.document(), "{wire:?}");
    }
}

#[tokio::test]
async fn an_echo_finds_the_question_on_every_wire() {
    for wire in Wire::ALL {
        let said = answer(wire, Reply::echo()).await;
        assert!(said.body.contains("What now?"), "{wire:?}: {}", said.body);
    }
}

#[tokio::test]
async fn each_oddity_changes_the_stream_of_its_own_wire_alone() {
    let reply = || {
        Reply::thought("Hm.").then_text("Yes.").then_tool_call_as(
            "c1",
            "read",
            "{\"path\": \"ab\"}",
        )
    };
    let failing = || Reply::thought("Hm.").then_text("Yes.").then_error("server_error", "Broken.");
    for odd in Odd::ALL {
        let changes = |plain: Vec<String>, odd: Vec<String>| {
            plain.iter().zip(&odd).filter(|(plain, odd)| plain != odd).count()
        };
        let mut said = (Vec::new(), Vec::new());
        for wire in Wire::ALL {
            let both = |plain: Answer, odd: Answer| (plain.body, odd.body);
            let whole = both(answer(wire, reply()).await, answer(wire, reply().odd(odd)).await);
            let broken =
                both(answer(wire, failing()).await, answer(wire, failing().odd(odd)).await);
            said.0.push(whole.0 + &broken.0);
            said.1.push(whole.1 + &broken.1);
        }
        assert_eq!(changes(said.0, said.1), 1, "{odd:?}");
    }
}

#[tokio::test]
async fn a_ping_says_nothing_and_an_error_ends_the_stream() {
    for wire in Wire::ALL {
        let model = ScriptedModel::start().await;
        model.push(Reply::text("a"));
        let quiet = ask(&model, wire).await;
        model.push(Reply::text("a").then_ping());
        let pinged = ask(&model, wire).await;
        assert!(pinged.body.len() > quiet.body.len(), "{wire:?}");
        assert_eq!(why(wire, &pinged.events()), why(wire, &quiet.events()), "{wire:?}");
        model.push(Reply::text("a").then_error("server_error", "Broken.").then_text("never"));
        let broken = ask(&model, wire).await;
        assert!(broken.body.contains("Broken.") && !broken.body.contains("never"), "{wire:?}");
    }
}

#[tokio::test]
async fn a_request_is_kept_byte_for_byte() {
    let model = ScriptedModel::start().await;
    let body = question(Wire::Chat);
    post(&model, path(Wire::Chat), &body).await;
    assert_eq!(model.last_request().bytes, body.to_string());
    assert_eq!(model.last_request().body, body);
    assert_eq!(model.last_request().wire(), Some(Wire::Chat));
}

#[tokio::test]
async fn a_message_of_responses_says_whether_calls_follow() {
    let phase = |answer: Answer| {
        answer.events().last().map(|end| end["response"]["output"][0]["phase"].clone())
    };
    let told = answer(Wire::Responses, Reply::text("Yes.")).await;
    assert_eq!(phase(told), Some(json!("final_answer")));
    let telling =
        answer(Wire::Responses, Reply::text("I look.").then_tool_call("read", json!({}))).await;
    assert_eq!(phase(telling), Some(json!("commentary")));
}
