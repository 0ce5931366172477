//! `/quit`, `/detach`, `/shutdown`, `/clear`.

use serde_json::{Value, json};

use crate::cx::terminal_name;
use crate::testing::{Stage, merged};

fn answers(members: Value) -> [(&'static str, Value); 2] {
    let usual = json!({
        "name": "nexus3", "version": "0.1.0", "pid": 1, "home": "/h", "cwd": "/", "url": null,
        "socket": null, "started_at": "2026-11-17T03:00:00Z", "approvals": "auto", "agents": 1,
        "turns": 0, "turns_running": 0, "watches": 1, "watchers": [terminal_name()],
    });
    let stopping = json!({"success": true, "message": "Server shutting down"});
    [("server_info", merged(usual, members)), ("shutdown_server", stopping)]
}

#[tokio::test]
async fn leaves() {
    let mut stage = Stage::new(&[]);
    for line in ["/quit", "/exit", "/q"] {
        stage.check(line, json!([]), &["[leave Quit]"]).await;
    }
    stage.check("/detach", json!([]), &["[leave Detach]"]).await;
    stage.check("/clear", json!([]), &["[clear]"]).await;
}

#[tokio::test]
async fn stops_a_server_that_nobody_else_uses() {
    let calls = json!([["server_info", {}], ["shutdown_server", {}]]);
    let told = ["Server shutting down", "[leave Stopped]"];
    Stage::new(&answers(json!({}))).check("/shutdown", calls, &told).await;
    let mut stage = Stage::new(&[("server_info", json!("for the administrator"))]);
    assert_eq!(stage.run("/shutdown").await.told, ["for the administrator"]);
}

#[tokio::test]
async fn asks_before_it_stops_a_server_that_is_used() {
    let check = async |members: Value, why: &str| {
        let question = format!("[ask {why}. Stop the server?]");
        let answers = answers(members);
        let calls = json!([["server_info", {}]]);
        Stage::new(&answers).check("/shutdown", calls, &[&question]).await;
        let calls = json!([["server_info", {}], ["shutdown_server", {}]]);
        let told = [question.as_str(), "Server shutting down", "[leave Stopped]"];
        Stage::new(&answers).saying_yes().check("/shutdown", calls, &told).await;
    };
    check(json!({"turns": 1}), "1 turn runs or waits").await;
    check(json!({"turns": 2}), "2 turns run or wait").await;
    let us = terminal_name();
    check(json!({"watches": 2, "watchers": [us, "desk"]}), "desk watches").await;
    let many = json!({"turns": 1, "watches": 3, "watchers": [us, "desk"]});
    check(many, "1 turn runs or waits, and desk, 1 nameless client watch").await;
}
