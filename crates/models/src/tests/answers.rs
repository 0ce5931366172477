//! What models say, and in how many pieces.

use nexus_core::provider::Usage;
use nexus_testkit::{Reply, ScriptedModel};
use serde_json::json;

use super::*;

#[tokio::test]
async fn text_arrives_in_its_pieces_with_usage() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(Reply::chunks(["He", "llo", ", wörld\n\"🦀\""]).usage(100, 7).cached(60));
        let heard = ask(kind, &model).await;
        assert_eq!(heard.texts, ["He", "llo", ", wörld\n\"🦀\""], "{kind:?}");
        assert_eq!(heard.end.unwrap(), Usage { input: 100, output: 7, cached: 60 }, "{kind:?}");
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
        .map(|(id, name, arguments)| ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments,
        });
        assert_eq!(heard.calls, expected, "{kind:?}");
        assert_eq!(heard.end.unwrap(), Usage { input: 20, output: 30, cached: 0 });
    }
}

#[tokio::test]
async fn a_call_without_id_gets_one_and_broken_arguments_are_kept() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(Reply::chunks([""; 0]).then_tool_call_as("", "read_file", "{\"path\": \"a"));
        let heard = ask(kind, &model).await;
        assert!(heard.calls[0].id.starts_with("call_"), "{kind:?}: {:?}", heard.calls);
        assert_eq!(heard.calls[0].arguments, json!("{\"path\": \"a"));
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
            assert_eq!(heard.end.unwrap(), Usage { input: 3, output: 4, cached: 0 });
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
        assert_eq!(heard.end.unwrap(), Usage::default());
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
        let asked = ModelCall {
            volatile: Some("It is noon.".to_owned()),
            ..call([user("First"), assistant("Yes?"), user("  Say \"this\" ü\n")])
        };
        assert_eq!(
            hear(&*provider(kind, &model), asked).await.text(),
            "  Say \"this\" ü\n",
            "{kind:?}"
        );
    }
}
