//! `/rpc`, `/trace`, `/curl`.

use serde_json::json;

use crate::testing::Stage;

#[tokio::test]
async fn calls_anything() {
    let mut stage = Stage::with(|_, params| Ok(params.clone()));
    let calls = json!([["list_agents", {}]]);
    stage.check("/rpc list_agents", calls, &["{}"]).await;
    let calls = json!([["get_context", {"agent_id": "main"}]]);
    stage.check("/rpc get_context", calls, &["{", "  \"agent_id\": \"main\"", "}"]).await;
    let calls = json!([["get_context", {"agent_id": "worker"}]]);
    let line = r#"/rpc get_context {"agent_id": "worker"}"#;
    stage.check(line, calls, &["{", "  \"agent_id\": \"worker\"", "}"]).await;
    let calls = json!([["shutdown", {}]]);
    stage.check("/rpc shutdown", calls, &["{}"]).await;
    let mut stage = stage.showing(None);
    stage.check("/rpc get_context", json!([["get_context", {}]]), &["{}"]).await;
}

#[tokio::test]
async fn refuses_what_is_no_call() {
    let mut stage = Stage::new(&[]);
    stage.check("/rpc", json!([]), &["Usage: /rpc METHOD [JSON]"]).await;
    let open = ["watch stays open: nexus3 rpc watch prints what it tells."];
    stage.check("/rpc watch", json!([]), &open).await;
    let told = stage.run("/rpc send {content}").await.told;
    assert!(told[0].starts_with("Not JSON: "), "{told:?}");
    let list = ["Not an object: what is given is written as {\"name\": value}."];
    stage.check("/rpc send [1]", json!([]), &list).await;
    let unknown = ["Method not found: nope"];
    stage.check("/rpc nope", json!([["nope", {}]]), &unknown).await;
}

#[tokio::test]
async fn traces_on_and_off() {
    let mut stage = Stage::new(&[]);
    let on = ["each call and its answer are printed from here on"];
    stage.check("/trace on", json!([]), &on).await;
    stage.run("/rpc nope").await;
    assert_eq!(stage.traced(), ["nope: Method not found: nope"]);
    stage.check("/trace off", json!([]), &["calls are no longer printed"]).await;
    stage.run("/rpc nope").await;
    assert!(stage.traced().is_empty());
    for line in ["/trace", "/trace maybe"] {
        stage.check(line, json!([]), &["Usage: /trace on|off"]).await;
    }
}

#[tokio::test]
async fn the_last_call_as_a_line_for_curl() {
    let answer = |_: &str, params: &serde_json::Value| Ok(params.clone());
    let mut stage = Stage::at(Some("http://127.0.0.1:8765"), answer);
    stage.check("/curl", json!([]), &["Nothing was called yet."]).await;
    stage.run(r#"/rpc get_messages {"limit": 1}"#).await;
    for _ in 0..2 {
        let seen = stage.run("/curl").await;
        assert_eq!(seen.calls, json!([]));
        assert!(seen.told[0].starts_with("token=$(cat "), "{:?}", seen.told);
        let end = r#""$token" | curl -sw '\n' 'http://127.0.0.1:8765/agent/main' -H @- -d '{"jsonrpc":"2.0","method":"get_messages","params":{"limit":1},"id":1}'"#;
        assert!(seen.told[1].ends_with(end), "{:?}", seen.told);
    }
    // What the terminal asks for by itself is nothing that the person did.
    stage.asks_by_itself().await;
    let seen = stage.run("/curl").await;
    assert!(seen.told[1].contains(r#""method":"get_messages""#), "{:?}", seen.told);
    let mut stage = Stage::at(None, answer);
    stage.run("/rpc list_agents").await;
    let none = ["This server is reached by its socket alone, which curl does not speak."];
    stage.check("/curl", json!([]), &none).await;
}
