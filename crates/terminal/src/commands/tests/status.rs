//! `/status`, and `/agent` without a name.

use serde_json::{Value, json};

use super::permissions::{permissions, tools};
use crate::testing::Stage;

fn context() -> Value {
    json!({
        "message_count": 1_200, "system_prompt": true, "halted_at_iteration_limit": false,
        "last_iteration_count": 0, "max_tool_iterations": 100, "turns": [
            {"request_id": "req_1", "status": "running", "content": "x"},
            {"request_id": 2, "status": "queued", "content": "y"},
        ],
    })
}

fn answers() -> Vec<(&'static str, Value)> {
    let tokens = json!({
        "system": 1_000, "tools": 3_000, "messages": 30_000, "total": 34_000, "budget": 200_000,
        "available": 180_000, "remaining": 146_000,
    });
    vec![
        ("get_context", context()),
        ("get_permissions", permissions(json!({"parent_agent_id": "top"}))),
        ("get_model", json!({"model": "opus", "provider": "anthropic", "reasoning": true})),
        ("get_tokens", tokens),
        ("list_tools", tools()),
    ]
}

const HEAD: [&str; 7] = [
    "main  permanent, trusted, child of top",
    "  model      opus (anthropic)",
    "  directory  /src/api",
    "  messages   1,200",
    "  prompt     set",
    "  turn       req_1  running",
    "  turn       2  queued",
];
const TOKENS: [&str; 3] = [
    "  window     200,000",
    "  tokens     34,000 (17 %): prompt 1,000, tools 3,000, messages 30,000",
    "  left       146,000 before it is compacted",
];
const TOOLS: [&str; 2] =
    ["  read_file        look     on", "  exec             command  off by the rule 'level'"];

fn calls(more: &[&str], agent: &str) -> Value {
    let usual = ["get_context", "get_permissions", "get_model"];
    let all = usual.iter().chain(more);
    all.map(|method| json!([method, {"agent_id": agent}])).collect()
}

#[tokio::test]
async fn says_how_an_agent_stands() {
    let mut stage = Stage::new(&answers());
    stage.check("/status", calls(&[], "main"), &HEAD).await;
    stage.check("/agent", calls(&["get_tokens"], "main"), &[&HEAD[..], &TOKENS].concat()).await;
    let told = [&HEAD[..], &TOKENS].concat();
    stage.check("/status --tokens", calls(&["get_tokens"], "main"), &told).await;
    let told = [&HEAD[..], &TOOLS].concat();
    stage.check("/status --tools", calls(&["list_tools"], "main"), &told).await;
    let seen = stage.run("/status .1 -a").await;
    assert_eq!(seen.calls, calls(&["get_tokens", "list_tools"], ".1"));
    assert_eq!(seen.told[0], ".1  temporary, trusted, child of top");
    assert_eq!(seen.told.len(), HEAD.len() + TOKENS.len() + TOOLS.len());
    let usage = ["Usage: /status [NAME] [--tools] [--tokens] [-a], or /status --all"];
    for line in ["/status a b", "/status a --all", "/status --all -a"] {
        stage.check(line, json!([]), &usage).await;
    }
    stage.check("/status --nope", json!([]), &["Unknown flag: --nope"]).await;
}

#[tokio::test]
async fn an_agent_without_a_model_can_be_described() {
    let mut answers = answers();
    answers[2].1 = json!("No provider is configured");
    answers[3].1 = json!("No provider is configured");
    let told = Stage::new(&answers).run("/agent").await.told;
    assert_eq!(told[1], "  model      none: No provider is configured");
    assert_eq!(told[7], "  tokens     No provider is configured");
}

#[tokio::test]
async fn says_what_was_cut_off() {
    let mut answers = answers();
    let cut = json!({"request_id": "req_9", "unknown_tool_calls": ["a", "b"]});
    answers[0].1["turns"] = json!([]);
    answers[0].1["interrupted_turn"] = cut;
    let told = Stage::new(&answers).run("/status").await.told;
    let cut = "  turn       req_9 was cut off (2 tool calls in doubt): /continue";
    assert_eq!(told[5], cut);
    answers[0].1["interrupted_turn"]["unknown_tool_calls"] = json!([]);
    let told = Stage::new(&answers).run("/status").await.told;
    assert_eq!(told[5], "  turn       req_9 was cut off: /continue");
    answers[0].1["interrupted_turn"] = Value::Null;
    answers[0].1["halted_at_iteration_limit"] = json!(true);
    let told = Stage::new(&answers).run("/status").await.told;
    assert_eq!(told[5], "  turn       halted after 100 steps");
}

#[tokio::test]
async fn a_line_for_each_agent() {
    let summary = json!({
        "agent_id": "main", "message_count": 1, "cwd": "/src/api", "permission_level": "trusted",
        "model": null, "halted_at_iteration_limit": true, "last_action_at": null,
        "usage": {"tokens": 12, "cost_usd": 0.5, "cost_unknown_calls": 0},
        "tokens": {"total": 34_000, "budget": 200_000},
    });
    let mut stage = Stage::new(&[("get_agent_summaries", json!({"agents": [summary]}))]);
    let calls = json!([["get_agent_summaries", {"include_tokens": true}]]);
    let told =
        "main  no model  trusted  1 message  34,000/200,000  12 tokens, $0.500  halted  /src/api";
    stage.check("/status --all", calls, &[told]).await;
    let mut stage = Stage::new(&[("get_agent_summaries", json!({"agents": []}))]);
    assert_eq!(stage.run("/status --all").await.told, ["No agents."]);
}
