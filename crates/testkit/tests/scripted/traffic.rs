//! Whom the scripted model turns away, and the pages beside the wires.

use hyper::Method;
use nexus_testkit::{Gate, Reply, ScriptedModel, Wire};
use serde_json::json;

use crate::client::{ask, begin, path, post, question, read};

#[tokio::test]
async fn more_at_once_than_it_takes_are_turned_away_and_use_up_no_reply() {
    let model = ScriptedModel::start().await;
    model.at_once(2);
    let gate = Gate::new();
    for n in 0..3 {
        model.push(Reply::text(format!("{n}")).then_gate(&gate));
    }
    let body = question(Wire::Chat);
    let first = begin(&model, Method::POST, path(Wire::Chat), &body).await;
    let second = begin(&model, Method::POST, path(Wire::Chat), &body).await;
    let third = ask(&model, Wire::Chat).await;
    assert_eq!((third.status, third.header("retry-after")), (429, Some("1")));
    assert_eq!((model.refused(), model.request_count()), (1, 3));

    gate.release();
    assert!(read(first).await.body.contains("\"0\""));
    assert!(read(second).await.body.contains("\"1\""));
    let fourth = ask(&model, Wire::Chat).await;
    assert!(fourth.status == 200 && fourth.body.contains("\"2\""), "{}", fourth.body);
    assert_eq!((model.refused(), model.most_served()), (1, 2));
}

#[tokio::test]
async fn who_goes_away_leaves_its_place() {
    let model = ScriptedModel::start().await;
    model.at_once(1);
    model.push(Reply::text("a").then_hang());
    drop(begin(&model, Method::POST, path(Wire::Chat), &question(Wire::Chat)).await);
    model.wait_for_disconnects(1).await;
    assert_eq!(ask(&model, Wire::Chat).await.status, 200);
}

#[tokio::test]
async fn a_storm_turns_away_so_many_and_no_more_on_every_wire() {
    for wire in Wire::ALL {
        let model = ScriptedModel::start().await;
        model.storm(2, "7");
        for _ in 0..2 {
            let answer = ask(&model, wire).await;
            assert_eq!(answer.status, 429, "{wire:?}");
            match wire {
                Wire::GenerateContent => {
                    assert_eq!(answer.header("retry-after"), None);
                    let details = &answer.document()["error"]["details"][0];
                    assert_eq!(details["retryDelay"], "7s");
                }
                _ => assert_eq!(answer.header("retry-after"), Some("7"), "{wire:?}"),
            }
        }
        assert_eq!(ask(&model, wire).await.status, 200, "{wire:?}");
        assert_eq!((model.refused(), model.request_count()), (2, 3));
    }
}

#[tokio::test]
async fn pages_are_answered_as_they_were_set_and_kept_apart() {
    let model = ScriptedModel::start().await;
    assert_eq!(post(&model, "/api/show", &json!({})).await.status, 404);
    model.set_page("/api/show", json!({"capabilities": ["tools"]}));
    let shown = post(&model, "/api/show", &json!({"model": "m"})).await;
    assert_eq!((shown.status, shown.document()), (200, json!({"capabilities": ["tools"]})));

    model.set_page("/v1/models", json!({"data": []}));
    let got = begin(&model, Method::GET, "/v1/models?limit=1000", &json!({})).await;
    assert_eq!(read(got).await.document(), json!({"data": []}));

    let asked = model.page_requests();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].body, json!({"model": "m"}));
    assert_eq!(asked[1].path, "/v1/models?limit=1000");
    assert_eq!(model.request_count(), 0);
}
