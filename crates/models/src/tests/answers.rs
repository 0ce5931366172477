//! What models say, and in how many pieces.

use nexus_core::message::{Made, Origin, StopReason};
use nexus_core::usage::{Bill, Cost};
use nexus_testkit::{Reply, ScriptedModel, StopSaid, ThoughtField};
use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn text_arrives_in_its_pieces_with_usage() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(Reply::chunks(["He", "llo", ", wörld\n\"🦀\""]).usage(100, 7).cached(60));
        let heard = ask(kind, &model).await;
        assert_eq!(heard.texts, ["He", "llo", ", wörld\n\"🦀\""], "{kind:?}");
        let used = Usage { cache_read: 60, ..used(100, 7) };
        assert_eq!(heard.end.unwrap().usage, used, "{kind:?}");
    }
}

#[tokio::test]
async fn tool_calls_arrive_whole_and_in_order() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let arguments = json!({"path": "a/ü.txt", "lines": [1, 2, {"deep": "\"quoted\""}]});
        model.push(
            Reply::text("Let me look.")
                .then_tool_call_as("call_a", "read_file", arguments.to_string())
                .then_tool_call_as("call_b", "list", "{}")
                .then_tool_call_as("call_c", "now", "")
                .usage(20, 30),
        );
        let heard = ask(kind, &model).await;
        assert_eq!(heard.text(), "Let me look.");
        let expected = [
            ("call_a", "read_file", arguments),
            ("call_b", "list", json!({})),
            ("call_c", "now", json!({})),
        ]
        .map(|(id, name, arguments)| ToolCall::new(id, name, arguments));
        assert_eq!(heard.calls, expected, "{kind:?}");
        assert_eq!(heard.end.unwrap().usage, used(20, 30));
    }
}

#[tokio::test]
async fn a_call_without_id_gets_one_and_broken_arguments_are_kept() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(Reply::nothing().then_tool_call_as("", "read_file", "{\"path\"! 1}"));
        let heard = ask(kind, &model).await;
        assert!(heard.calls[0].id.starts_with("call_"), "{kind:?}: {:?}", heard.calls);
        assert_eq!(heard.calls[0].arguments, json!("{\"path\"! 1}"));
        assert!(heard.end.is_ok());
    }
}

#[tokio::test]
async fn the_pieces_on_the_wire_do_not_matter() {
    for kind in FORMATS {
        for bytes in [1, 2, 3, 7, 64] {
            let model = ScriptedModel::start().await;
            model.push(
                Reply::chunks(["Grüße ", "an 🦀🦀", " und 日本"])
                    .then_tool_call_as("c", "f", "{\"x\":\"é\"}")
                    .usage(3, 4)
                    .split_every(bytes),
            );
            let heard = ask(kind, &model).await;
            assert_eq!(
                heard.texts,
                ["Grüße ", "an 🦀🦀", " und 日本"],
                "{kind:?} in pieces of {bytes}"
            );
            assert_eq!(heard.calls[0].arguments, json!({"x": "é"}));
            assert_eq!(heard.end.unwrap().usage, used(3, 4));
        }
    }
}

#[tokio::test]
async fn comments_other_line_ends_and_a_missing_last_one_are_borne() {
    let raw = [
        (
            Kind::OpenAi,
            ": OPENROUTER PROCESSING\r\n\r\n\
             data: {\"choices\":[{\"delta\":{\"content\":\"Hi\",\"reasoning\":\"hm\"}}]}\r\n\r\n: more\r\n\r\n\
             data:{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\r\n\r\ndata: [DONE]",
        ),
        (
            Kind::Anthropic,
            "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{}}\r\n\r\n: c\r\n\
             event: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\"index\":0,\r\n\
             data: \"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\r\n\r\n\
             data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\r\n\r\n\
             data: {\"type\":\"brand_new\",\"delta\":{\"x\":1}}\r\n\r\ndata: {\"type\":\"message_stop\"}",
        ),
    ];
    for (kind, raw) in raw {
        let model = ScriptedModel::start().await;
        model.push(Reply::raw([raw]));
        let heard = ask(kind, &model).await;
        assert_eq!(heard.texts, ["Hi"], "{kind:?}");
        assert_eq!(heard.end.unwrap().usage, Usage::default());
        assert_eq!(heard.thoughts, "hm");
    }
}

#[tokio::test]
async fn an_answer_that_was_finished_stands_though_the_terminator_is_missing() {
    let raw = [
        (
            Kind::OpenAi,
            "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n",
        ),
        (
            Kind::Anthropic,
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"Hi\"}}\n\n\
             data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
        ),
    ];
    for (kind, raw) in raw {
        let model = ScriptedModel::start().await;
        model.push(Reply::raw([raw]));
        let heard = ask(kind, &model).await;
        assert_eq!((heard.text().as_str(), heard.end.is_ok()), ("Hi", true), "{kind:?}");
    }
}

#[tokio::test]
async fn a_megabyte_in_one_event_arrives() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let text = "é\n".repeat(500_000);
        model.push(Reply::text(&text));
        let heard = ask(kind, &model).await;
        assert!(heard.end.is_ok(), "{kind:?}: {:?}", heard.end);
        assert!(heard.text() == text, "{kind:?}: {} bytes", heard.text().len());
    }
}

#[tokio::test]
async fn calls_one_after_another_share_a_connection() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let provider = provider(kind, &model);
        for _ in 0..5 {
            assert!(hear(&*provider, call([user("Hi")])).await.end.is_ok());
        }
        assert_eq!((model.request_count(), model.connections()), (5, 1), "{kind:?}");
    }
}

#[tokio::test]
async fn the_last_user_message_is_the_users_own_words() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(Reply::echo());
        let asked = call([user("First"), assistant("Yes?"), user("  Say \"this\" ü\n")]);
        assert_eq!(
            hear(&*provider(kind, &model), asked).await.text(),
            "  Say \"this\" ü\n",
            "{kind:?}"
        );
    }
}

fn used(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

#[tokio::test]
async fn why_the_model_stopped_is_never_guessed() {
    let cases = [
        (StopSaid::End, StopReason::EndTurn),
        (StopSaid::MaxTokens, StopReason::MaxTokens),
        (StopSaid::ContentFilter, StopReason::ContentFilter),
        (StopSaid::Raw("brand_new".into()), StopReason::Other),
    ];
    for kind in FORMATS {
        for (said, expected) in cases.clone() {
            // Anthropic has no word for a filter.
            if kind == Kind::Anthropic && expected == StopReason::ContentFilter {
                continue;
            }
            let model = ScriptedModel::start().await;
            model.push(Reply::text("Hi").stop(said));
            let stop = ask(kind, &model).await.end.unwrap().stop;
            assert_eq!(stop.reason, expected, "{kind:?}");
            if expected == StopReason::Other {
                assert_eq!(stop.details, Some(json!({"raw": "brand_new"})));
            }
        }
    }
    let model = ScriptedModel::start().await;
    model.push(Reply::text("So far").stop(StopSaid::Pause));
    assert_eq!(ask(Kind::Anthropic, &model).await.end.unwrap().stop.reason, StopReason::Pause);
    model.push(Reply::text("So far").stop(StopSaid::ContextWindow));
    let stop = ask(Kind::Anthropic, &model).await.end.unwrap().stop;
    assert_eq!(stop.reason, StopReason::ContextWindow);
}

#[tokio::test]
async fn the_words_of_a_refusal_are_no_answer() {
    let model = ScriptedModel::start().await;
    model.push(Reply::refusal("I will not."));
    let heard = ask(Kind::OpenAi, &model).await;
    assert!(heard.texts.is_empty(), "they may still be taken back");
    let answer = heard.end.unwrap();
    assert_eq!(answer.parts, [Part::text("I will not.")]);
    assert_eq!(answer.stop.reason, StopReason::Refusal);
}

#[tokio::test]
async fn thoughts_are_told_and_kept_in_their_place() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let reply = Reply::thought("Hm. ")
            .then_text("Let me look.")
            .then_tool_call_as("call_a", "list", "{}");
        model.push(reply.reasoning_tokens(3).usage(10, 9));
        let heard = ask(kind, &model).await;
        assert_eq!((&*heard.thoughts, heard.text()), ("Hm. ", "Let me look.".into()), "{kind:?}");
        let answer = heard.end.unwrap();
        let [Part::Thought(thought), Part::Text(_), Part::Call(_)] = &*answer.parts else {
            panic!("{kind:?}: {:?}", answer.parts)
        };
        assert_eq!(thought.text, "Hm. ");
        let payload: Value = serde_json::from_str(thought.payload.as_deref().unwrap()).unwrap();
        match kind {
            Kind::Anthropic => assert!(payload["signature"].is_string(), "{payload}"),
            _ => assert_eq!(payload, json!({"name": "reasoning_content"})),
        }
        assert_eq!(answer.usage.reasoning, 3, "{kind:?}");
    }
}

/// They are signed: a member more or less, or in another order, and the provider behind the router refuses them.
#[tokio::test]
async fn what_openrouter_tells_of_thoughts_goes_back_as_it_came() {
    let model = ScriptedModel::start().await;
    model.push(
        Reply::thought("Hm. ")
            .then_redacted("aGlkZGVu")
            .then_tool_call_as("call_a", "list", "{}")
            .thoughts_as(ThoughtField::ReasoningDetails),
    );
    let provider = provider(Kind::OpenRouter, &model);
    let call = call([user("Hi")]);
    let answer = hear(&*provider, call.clone()).await.end.unwrap();
    let sealed = answer.parts.iter().find_map(|part| match part {
        Part::Thought(thought) => thought.payload.clone(),
        _ => None,
    });
    let told: Value = serde_json::from_str(&sealed.unwrap()).unwrap();
    let details = told["reasoning_details"].as_array().unwrap();
    assert_eq!(details[0]["text"], "Hm. ");
    assert!(details[0]["signature"].is_string(), "{told}");
    assert_eq!(details[1]["data"], "aGlkZGVu", "{told}");
    let origin = Origin {
        provider: call.model.provider_name.clone(),
        wire: call.model.wire.to_owned(),
        model: call.model.id.clone(),
    };
    let made = Made { origin, briefing: 0, stop: answer.stop.clone(), bill: Bill::default() };
    let meta = Meta { made: Some(Arc::new(made)), ..Meta::default() };
    let said = Arc::new(Message::of_parts(Role::Assistant, answer.parts.clone(), meta));
    let result = Arc::new(Message::tool_result("call_a", "nothing", Meta::default()));
    let messages = [user("Hi"), said, result].into_iter().collect();
    assert!(hear(&*provider, ModelCall { messages, ..call }).await.end.is_ok());
    let sent = &model.last_request().body["messages"][2];
    assert_eq!(sent["reasoning_details"].to_string(), told["reasoning_details"].to_string());
}

#[tokio::test]
async fn a_call_that_was_cut_is_told_from_one_that_is_whole() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let cut = Reply::nothing().then_cut_call("write_file", "{\"path\": \"a");
        model.push(cut.stop(StopSaid::MaxTokens));
        // Behind some servers a cut does not say that it is one.
        let hidden = Reply::nothing().then_cut_call("write_file", "{\"path\": \"a");
        model.push(hidden.stop(StopSaid::End));
        model.push(Reply::nothing().then_tool_call_as("c", "f", "").stop(StopSaid::MaxTokens));
        for expected in [Some(11), Some(11), Some(0)] {
            let heard = ask(kind, &model).await;
            assert_eq!(heard.calls[0].cut, expected, "{kind:?}");
            assert_eq!(heard.calls[0].arguments, json!({}));
        }
    }
}

#[tokio::test]
async fn what_the_vendors_own_clients_take_is_taken() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(
            Reply::thought("Hm.")
                .then_text("Hi")
                .then_tool_call_as("c", "f", "{\"a\":1}")
                .as_document(),
        );
        let heard = ask(kind, &model).await;
        assert_eq!((heard.text(), &*heard.thoughts), ("Hi".into(), "Hm."), "{kind:?}");
        assert_eq!(heard.calls, [ToolCall::new("c", "f", json!({"a": 1}))], "{kind:?}");
    }
    let raw = [
        "data: {\"choices\":null,\"usage\":null,\"error\":null}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"Hi\"}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"cost\":0.5}}]}\n\n",
        "data: [DONE]\n\n",
    ];
    let model = ScriptedModel::start().await;
    model.push(Reply::raw(raw));
    let heard = ask(Kind::OpenAi, &model).await;
    assert_eq!(heard.text(), "Hi");
    assert_eq!(heard.calls, [ToolCall::new("c", "f", json!({"a": 1}))]);
    let answer = heard.end.unwrap();
    assert_eq!((answer.usage, answer.cost), (used(3, 4), Cost::from_usd(0.5)));

    // Some servers write an empty reason into every chunk.
    let raw = [
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm\"},\"finish_reason\":\"\"}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\".\"},\"finish_reason\":\"\"}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"\"}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n",
        "data: [DONE]\n\n",
    ];
    model.push(Reply::raw(raw));
    let answer = ask(Kind::OpenAi, &model).await.end.unwrap();
    assert_eq!((answer.stop.reason, answer.parts.len()), (StopReason::MaxTokens, 2));

    // A block may begin with all it holds.
    let raw = [
        "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\n",
        "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Hi\"}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"xyz\"}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{\"a\":1}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"brand_new\",\"deep\":{\"a\":1}}}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":4}}\n\n",
        "data: {\"type\":\"message_stop\"}\n\n",
    ];
    model.push(Reply::raw(raw));
    let heard = ask(Kind::Anthropic, &model).await;
    assert_eq!((heard.text(), heard.calls.len()), ("Hi".into(), 1));
    let answer = heard.end.unwrap();
    assert_eq!(answer.parts.len(), 4);
    assert_eq!(heard.calls[0].arguments, json!({"a": 1}));
    assert_eq!(answer.usage, used(3, 4));
}

#[tokio::test]
async fn neither_a_second_answer_nor_an_odd_bill_costs_the_first() {
    let model = ScriptedModel::start().await;
    model.push(Reply::raw([
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"He\"}},{\"index\":1,\"delta\":{\"content\":\"Go\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":1,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"llo\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":\"4\",\"completion_tokens_details\":[],\"cost\":{\"total_cost\":0.5}}}\n\n",
        "data: [DONE]\n\n",
    ]));
    let heard = ask(Kind::OpenAi, &model).await;
    assert_eq!(heard.text(), "Hello");
    let answer = heard.end.unwrap();
    assert_eq!(answer.stop.reason, StopReason::EndTurn);
    assert_eq!((answer.usage, answer.cost), (used(3, 0), Cost::from_usd(0.5)));
}
