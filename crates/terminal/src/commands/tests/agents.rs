//! `/agent`, `/create`, `/list`, `/tree`, `/destroy`.

use serde_json::{Value, json};

use crate::testing::{Stage, agent, agents, context, session, sessions};

fn made() -> Value {
    json!({"agent_id": "new", "url": "/agent/new"})
}

#[tokio::test]
async fn lists_agents() {
    let busy = json!({"status": "running", "queued": 2, "model": null, "message_count": 1});
    let list = agents(&[agent("main", json!({})), agent("worker", busy)]);
    let told = [
        "* main  idle  opus  trusted  2 messages  /src/api",
        "  worker  running, 2 queued  no model  trusted  1 message  /src/api",
    ];
    Stage::new(&[("list_agents", list)]).check("/list", json!([["list_agents", {}]]), &told).await;
    let none = Stage::new(&[("list_agents", agents(&[]))]).run("/list").await;
    assert_eq!(none.told, ["No agents."]);
}

#[tokio::test]
async fn shows_an_agent() {
    let list = agents(&[agent("worker", json!({}))]);
    let mut stage = Stage::new(&[("list_agents", list), ("get_context", context(json!({})))]);
    let calls = json!([["list_agents", {}], ["get_context", {"agent_id": "worker"}]]);
    stage.check("/agent worker", calls.clone(), &["[show worker]"]).await;
    stage.check("/switch worker", calls.clone(), &["[show worker]"]).await;
    let warned = "worker exists: its preset, model and directory stay as they are.";
    stage.check("/agent worker -m opus", calls, &[warned, "[show worker]"]).await;
    stage.check("/agent a b", json!([]), &["Usage: /agent NAME [flags]"]).await;
    stage.check("/agent -t", json!([]), &["Usage: /agent NAME [flags]"]).await;
    stage.check("/agent a --nope", json!([]), &["Unknown flag: --nope"]).await;
}

#[tokio::test]
async fn an_agent_that_cannot_be_read_is_not_shown() {
    let list = agents(&[agent("worker", json!({}))]);
    let mut stage = Stage::new(&[("list_agents", list), ("get_context", json!("elsewhere"))]);
    assert_eq!(stage.run("/agent worker").await.told, ["elsewhere"]);
}

#[tokio::test]
async fn restores_a_saved_session_after_a_question() {
    let answers = [
        ("list_agents", agents(&[])),
        ("list_sessions", sessions(&[session("old", json!({}))])),
        ("load_session", json!({"restored": true, "agent_id": "old", "message_count": 45})),
        ("get_context", context(json!({}))),
    ];
    let list = json!(["list_sessions", {"offset": 0, "limit": 1000}]);
    let question = "[ask Restore saved session 'old' (45 messages)?]";
    let calls = json!([["list_agents", {}], list]);
    Stage::new(&answers).check("/agent old", calls, &[question]).await;
    let calls = json!([
        ["list_agents", {}],
        list,
        ["load_session", {"session_name": "old", "preset": "worker", "model": "haiku"}],
        ["get_context", {"agent_id": "old"}],
    ]);
    let cwd = "old works where it did: --cwd is for new agents.";
    let mut stage = Stage::new(&answers).saying_yes();
    let line = "/agent old -w -m haiku --cwd /x";
    stage.check(line, calls, &[question, cwd, "[show old]"]).await;
}

#[tokio::test]
async fn makes_an_unknown_agent_after_a_question() {
    let answers = [
        ("list_agents", agents(&[])),
        ("list_sessions", sessions(&[])),
        ("create_agent", made()),
        ("get_context", context(json!({}))),
    ];
    let question = "[ask Agent 'new' doesn't exist. Create it?]";
    let seen = Stage::new(&answers).run("/agent new").await;
    assert_eq!(seen.told, [question]);
    assert_eq!(seen.calls.as_array().unwrap().len(), 2);
    let mut stage = Stage::new(&answers).saying_yes();
    let seen = stage.run("/agent new").await;
    assert_eq!(seen.told, [question, "[show new]"]);
    let create = json!({"agent_id": "new", "preset": "trusted", "cwd": "/src/api"});
    assert_eq!(seen.calls[2], json!(["create_agent", create]));
}

#[tokio::test]
async fn creates_with_flags_and_with_what_the_terminal_was_given() {
    let mut stage = Stage::new(&[("create_agent", made())]);
    let told = ["Created new. /agent new shows it."];
    let params = json!({"agent_id": "new", "preset": "trusted", "cwd": "/src/api"});
    stage.check("/create new", json!([["create_agent", params]]), &told).await;
    let params =
        json!({"agent_id": "new", "preset": "sandboxed", "cwd": "/src/api/sub", "model": "opus"});
    let line = "/create new -s --model=opus --cwd sub";
    stage.check(line, json!([["create_agent", params]]), &told).await;
    stage.making.model = Some("haiku".into());
    stage.making.preset = Some("worker".into());
    let params =
        json!({"agent_id": "new", "preset": "worker", "cwd": "/src/api", "model": "haiku"});
    stage.check("/create new", json!([["create_agent", params]]), &told).await;
    stage.check("/create", json!([]), &["Usage: /create NAME [flags]"]).await;
    let refused = "Agent 'new' exists";
    let mut stage = Stage::new(&[("create_agent", json!(refused))]);
    assert_eq!(stage.run("/create new").await.told, [refused]);
}

#[tokio::test]
async fn yolo_asks_first_and_then_the_server_decides() {
    let refused = "yolo is for the terminal that started this server";
    let answers = [("create_agent", json!(refused))];
    let question = "[ask yolo lets 'new' do everything, unasked and without a sandbox. \
                    Is that what you want?]";
    Stage::new(&answers).check("/create new --yolo", json!([]), &[question]).await;
    let params = json!({"agent_id": "new", "preset": "yolo", "cwd": "/src/api"});
    let calls = json!([["create_agent", params]]);
    Stage::new(&answers).saying_yes().check("/create new -y", calls, &[question, refused]).await;
}

#[tokio::test]
async fn sums_a_tree_upwards() {
    let used = |tokens: u64, cost: Option<f64>, unknown: u64| json!({"tokens": tokens, "cost_usd": cost, "cost_unknown_calls": unknown});
    let beneath = |parent: &str, usage: Value| json!({"parent_agent_id": parent, "usage": usage});
    let list = agents(&[
        agent("main", json!({"usage": used(1_000, Some(0.5), 0)})),
        agent("worker-1", beneath("main", used(200, Some(0.25), 0))),
        agent("worker-2", beneath("main", used(30, None, 0))),
        agent("deep", beneath("worker-1", used(4, None, 1))),
        agent("other", beneath("gone", used(5, None, 0))),
    ]);
    let told = [
        "main *  idle  opus  2 messages  1,234 tokens, at least $0.750",
        "├─ worker-1  idle  opus  2 messages  204 tokens, at least $0.250",
        "│  └─ deep  idle  opus  2 messages  4 tokens",
        "└─ worker-2  idle  opus  2 messages  30 tokens",
        "other  idle  opus  2 messages  5 tokens",
    ];
    let mut stage = Stage::new(&[("list_agents", list)]);
    stage.check("/tree", json!([["list_agents", {}]]), &told).await;
    stage.settings.plain = true;
    let plain = stage.run("/tree").await.told;
    assert_eq!(plain[2], "    deep  idle  opus  2 messages  4 tokens");
    let none = Stage::new(&[("list_agents", agents(&[]))]).run("/tree").await;
    assert_eq!(none.told, ["No agents."]);
}

#[tokio::test]
async fn destroys_what_nobody_misses_without_a_question() {
    let destroyed = json!({"success": true, "agent_id": "worker", "destroyed": ["worker"]});
    let answers =
        [("list_agents", agents(&[agent("worker", json!({}))])), ("destroy_agent", destroyed)];
    let calls = json!([["list_agents", {}], ["destroy_agent", {"agent_id": "worker"}]]);
    Stage::new(&answers).check("/destroy worker", calls, &["Destroyed worker."]).await;
    let list = json!([["list_agents", {}]]);
    let unknown = ["Agent 'nobody' doesn't exist."];
    Stage::new(&answers).check("/destroy nobody", list, &unknown).await;
    Stage::new(&answers).check("/destroy", json!([]), &["Usage: /destroy NAME"]).await;
}

#[tokio::test]
async fn destroying_a_family_asks_with_names() {
    let list = agents(&[
        agent("top", json!({"running_request_id": "req_1"})),
        agent("child", json!({"parent_agent_id": "top", "running_request_id": 7})),
        agent("grandchild", json!({"parent_agent_id": "child"})),
        agent("lone", json!({"running_request_id": "req_2"})),
    ]);
    let destroyed = json!({"success": true, "agent_id": "top", "destroyed": ["top", "child"]});
    let answers = [("list_agents", list), ("destroy_agent", destroyed)];
    let asked = json!([["list_agents", {}]]);
    let question = "[ask Destroy 'top' with child, grandchild (2 turns run)?]";
    Stage::new(&answers).check("/destroy top", asked.clone(), &[question]).await;
    let seen = Stage::new(&answers).saying_yes().run("/destroy top").await;
    assert_eq!(seen.told, [question, "Destroyed top, child."]);
    let question = "[ask Destroy 'child' with grandchild (1 turn runs)?]";
    Stage::new(&answers).check("/destroy child", asked.clone(), &[question]).await;
    let question = "[ask Destroy 'lone' (1 turn runs)?]";
    Stage::new(&answers).check("/destroy lone", asked.clone(), &[question]).await;
    let shown = "That is the agent you see. Show another one first: /agent NAME";
    let mut stage = Stage::new(&answers).showing(Some("grandchild")).saying_yes();
    stage.check("/destroy grandchild", asked.clone(), &[shown]).await;
    let above = "The agent you see would end with 'top'. Show another one first.";
    stage.check("/destroy top", asked, &[above]).await;
}
