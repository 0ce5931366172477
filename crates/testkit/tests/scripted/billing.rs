//! What a request is said to have read from a cache. The rules are tested beside them.

use nexus_testkit::{Reply, ScriptedModel, Wire};
use serde_json::{Value, json};

use crate::client::{path, post, question};

/// The usage that the last answer reports: cached and written tokens.
fn reported(wire: Wire, events: &[Value]) -> (Value, Value) {
    let find = |pointer: &str| {
        let mut found = events.iter().rev().filter_map(|event| event.pointer(pointer));
        found.next().cloned().unwrap_or_default()
    };
    match wire {
        Wire::Messages => (
            find("/message/usage/cache_read_input_tokens"),
            find("/message/usage/cache_creation_input_tokens"),
        ),
        Wire::Chat => (find("/usage/prompt_tokens_details/cached_tokens"), json!(0)),
        Wire::Responses => (
            find("/response/usage/input_tokens_details/cached_tokens"),
            find("/response/usage/input_tokens_details/cache_write_tokens"),
        ),
        Wire::GenerateContent => (find("/usageMetadata/cachedContentTokenCount"), json!(0)),
        Wire::Ollama => (json!(0), json!(0)),
    }
}

#[tokio::test]
async fn the_second_request_reads_what_the_first_one_kept_and_the_bill_says_so() {
    for wire in Wire::ALL {
        let model = ScriptedModel::start().await;
        model.billing();
        for _ in 0..2 {
            model.push(Reply::text("Read.").usage(0, 9).reasoning_tokens(4));
        }
        let long = "Much to read. ".repeat(1000);
        let mut body = question(wire);
        match wire {
            Wire::Messages => {
                let mark = json!({"type": "ephemeral"});
                body["system"] = json!([{"type": "text", "text": long, "cache_control": mark}]);
            }
            Wire::Chat | Wire::Ollama => body["messages"][0]["content"] = json!(long),
            Wire::Responses => body["instructions"] = json!(long),
            Wire::GenerateContent => body["systemInstruction"] = json!({"parts": [{"text": long}]}),
        }
        let first = reported(wire, &post(&model, path(wire), &body).await.events());
        let second = reported(wire, &post(&model, path(wire), &body).await.events());
        let bill = model.bill();
        assert_eq!(bill.requests, 2, "{wire:?}");
        let thought = if wire == Wire::Ollama { 0 } else { 8 };
        assert_eq!((bill.output, bill.reasoning), (18, thought), "{wire:?}");
        assert_eq!(first.0.as_u64().unwrap_or(0), 0, "{wire:?}");
        assert_eq!(second.0.as_u64().unwrap_or(0), bill.cache_read, "{wire:?}");
        assert_eq!(first.1.as_u64().unwrap_or(0), bill.cache_write, "{wire:?}");
        match wire {
            Wire::Ollama => assert_eq!(bill.price_ratio(), 1.0),
            _ => assert!(bill.cache_read > 3000 && bill.price_ratio() < 0.7, "{wire:?} {bill:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_not_answered_is_not_billed() {
    let model = ScriptedModel::start().await;
    model.billing();
    model.push(Reply::status(500));
    model.storm(1, "1");
    for _ in 0..2 {
        post(&model, path(Wire::Chat), &question(Wire::Chat)).await;
    }
    assert_eq!((model.bill().requests, model.request_count()), (0, 2));
}

#[tokio::test]
async fn each_model_has_a_cache_a_bill_and_an_answer_of_its_own() {
    let model = ScriptedModel::start().await;
    model.billing();
    model.set_default_of("small", Reply::text("In short.").usage(0, 3));
    model.push(Reply::text("Queued.").usage(0, 9));
    let path_of = |name: &str| format!("/v1beta/models/{name}:streamGenerateContent?alt=sse");
    let text = "Much to read. ".repeat(1000);
    let body = json!({"contents": [{"role": "user", "parts": [{"text": text}]}]});
    for (name, said) in [("small", "In short."), ("large", "Queued."), ("small", "In short.")] {
        let answer = post(&model, &path_of(name), &body).await;
        assert!(answer.body.contains(said), "{name}: {}", answer.body);
    }
    let asked: Vec<_> = model.requests().iter().map(|it| it.model().to_owned()).collect();
    assert_eq!(asked, ["small", "large", "small"]);
    let [small, large] = ["small", "large"].map(|name| model.bill_of(name));
    assert_eq!((small.requests, small.output, large.requests, large.output), (2, 6, 1, 9));
    assert_eq!(large.cache_read, 0, "what the other one has kept");
    assert!(small.cache_read > 3000);
    assert_eq!(model.bill(), [small, large].into_iter().sum());
    assert_eq!(model.bill_of("none"), Default::default());
}
