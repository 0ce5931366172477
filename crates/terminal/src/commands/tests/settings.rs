//! `/cwd`, `/model`, `/prompt`, `/compact`, `/theme`.

use serde_json::{Value, json};

use super::permissions::permissions;
use crate::cx::Chosen;
use crate::testing::Stage;

#[tokio::test]
async fn says_and_sets_the_directory() {
    let answers =
        [("get_permissions", permissions(json!({}))), ("set_cwd", json!({"cwd": "/src/web"}))];
    let mut stage = Stage::new(&answers);
    let calls = json!([["get_permissions", {"agent_id": "main"}]]);
    stage.check("/cwd", calls, &["/src/api"]).await;
    let calls = json!([["set_cwd", {"agent_id": "main", "cwd": "../a b"}]]);
    stage.check("/cwd '../a b'", calls, &["Works in /src/web."]).await;
    let home = std::env::home_dir().unwrap().join("x");
    let calls = json!([["set_cwd", {"agent_id": "main", "cwd": home}]]);
    stage.check("/cwd ~/x", calls, &["Works in /src/web."]).await;
    stage.check("/cwd a b", json!([]), &["Usage: /cwd [DIR]"]).await;
    Stage::new(&[]).showing(None).check("/cwd", json!([]), &["/src/api"]).await;
    let mut stage = Stage::new(&[("set_cwd", json!("outside its ceiling"))]);
    assert_eq!(stage.run("/cwd /").await.told, ["outside its ceiling"]);
}

fn models() -> Value {
    let model = |alias: &str, key_set: bool| {
        json!({
            "alias": alias, "provider": "mine", "id": alias, "wire": "chat",
            "context_window": 200_000, "max_output_tokens": null, "input": ["text"],
            "reasoning": {
                "kind": "none", "efforts": [], "always_on": false, "asked": false, "effort": null,
                "budget_tokens": null,
            },
            "price": null, "tools": null, "schemas": null, "wires": [], "retires": null,
            "sources": {
                "context_window": "assumed", "max_output_tokens": "assumed", "input": "assumed",
                "reasoning": "assumed", "price": "assumed",
            },
            "key_set": key_set, "default": false,
        })
    };
    let models = [model("opus", true), model("haiku", false)];
    json!({"total": 2, "offset": 0, "limit": 1000, "models": models})
}

#[tokio::test]
async fn sets_a_model_by_name_or_lets_choose() {
    let answers = [
        ("get_model", json!({"model": "opus", "provider": "mine", "reasoning": false})),
        ("list_models", models()),
        ("set_model", json!({"updated": true, "model": "haiku"})),
    ];
    let set = json!(["set_model", {"agent_id": "main", "model": "haiku"}]);
    let told = "main asks haiku from its next turn on.";
    Stage::new(&answers).check("/model haiku", json!([set]), &[told]).await;
    let asked =
        [json!(["get_model", {"agent_id": "main"}]), json!(["list_models", {"limit": 1000}])];
    let list = "[choose Model of main: opus * (mine, 200,000 tokens) | \
                haiku (mine, 200,000 tokens, no key)]";
    Stage::new(&answers).check("/model", json!(asked), &[list]).await;
    let mut stage = Stage::new(&answers).choosing(&[Chosen::Item(1)]);
    stage.check("/model", json!([asked[0], asked[1], set]), &[list, told]).await;
    let mut stage = Stage::new(&[("set_model", json!("Its window is too small"))]);
    assert_eq!(stage.run("/model tiny").await.told, ["Its window is too small"]);
    stage.check("/model a b", json!([]), &["Usage: /model [NAME]"]).await;
}

#[tokio::test]
async fn shows_how_a_prompt_begins() {
    let check = async |prompt: &str, path: Option<&str>, told: &[&str]| {
        let answer = json!({"system_prompt": prompt, "system_prompt_path": path});
        let calls = json!([["get_system_prompt", {"agent_id": "main"}]]);
        Stage::new(&[("get_system_prompt", answer)]).check("/prompt", calls, told).await;
    };
    let short = "é".repeat(200);
    check(&short, Some("/src/AGENTS.md"), &["200 characters, from /src/AGENTS.md", &short]).await;
    let cut = "… (/prompt --edit shows all of it)";
    let long = format!("{short}x");
    check(&long, None, &["201 characters, from no file", &short, cut]).await;
}

#[tokio::test]
async fn replaces_a_prompt_by_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::new(&[("set_system_prompt", json!({"updated": true}))]);
    stage.making.cwd = dir.path().into();
    std::fs::write(dir.path().join("p.md"), "Be kind.").unwrap();
    let calls = json!([["set_system_prompt", {"agent_id": "main", "system_prompt": "Be kind."}]]);
    let told = ["main has a prompt of 8 characters from its next turn on."];
    stage.check("/prompt p.md", calls, &told).await;
    let missing =
        format!("{}: No such file or directory (os error 2)", dir.path().join("x").display());
    stage.check("/prompt x", json!([]), &[&missing]).await;
    let directory = format!("{} is not a file.", dir.path().join(".").display());
    stage.check("/prompt .", json!([]), &[&directory]).await;
    let usage = ["Usage: /prompt, /prompt FILE, or /prompt --edit"];
    stage.check("/prompt p.md --edit", json!([]), &usage).await;
    let most = "x".repeat(1 << 20);
    std::fs::write(dir.path().join("most"), &most).unwrap();
    assert_eq!(stage.run("/prompt most").await.calls.as_array().unwrap().len(), 1);
    std::fs::write(dir.path().join("more"), format!("{most}x")).unwrap();
    let over =
        format!("{} is over 1 MiB: too long for a prompt.", dir.path().join("more").display());
    stage.check("/prompt more", json!([]), &[&over]).await;
}

#[tokio::test]
async fn edits_a_prompt() {
    let answers = [
        ("get_system_prompt", json!({"system_prompt": "old", "system_prompt_path": null})),
        ("set_system_prompt", json!({"updated": true})),
    ];
    let get = json!(["get_system_prompt", {"agent_id": "main"}]);
    let set = json!(["set_system_prompt", {"agent_id": "main", "system_prompt": "new"}]);
    let told = ["[edit old]", "main has a prompt of 3 characters from its next turn on."];
    let mut stage = Stage::new(&answers).editing("new");
    stage.check("/prompt --edit", json!([get, set]), &told).await;
    let kept = ["[edit old]", "The prompt stays as it is."];
    Stage::new(&answers).editing("old").check("/prompt --edit", json!([get]), &kept).await;
    Stage::new(&answers).check("/prompt --edit", json!([get]), &kept).await;
}

#[tokio::test]
async fn compacts_or_says_why_not() {
    let check = async |answer: Value, told: &str| {
        let calls = json!([["compact", {"agent_id": "main"}]]);
        Stage::new(&[("compact", answer)]).check("/compact", calls, &[told]).await;
    };
    // Those who watch are told, and this is one of them.
    let done = json!({"compacted": true, "tokens_before": 85_000, "tokens_after": 25_000});
    let calls = json!([["compact", {"agent_id": "main"}]]);
    Stage::new(&[("compact", done)]).check("/compact", calls, &[]).await;
    check(json!({"compacted": false, "reason": "too short"}), "Not compacted: too short").await;
    let none = json!({"compacted": false, "reason": "nothing_to_compact"});
    check(none, "Not compacted: nothing to compact").await;
    check(json!({"compacted": false}), "Not compacted: there is too little to compact").await;
    check(json!("No provider is configured"), "No provider is configured").await;
}

#[tokio::test]
async fn changes_the_theme() {
    let mut stage = Stage::new(&[]);
    let told = ["ansi (there are ansi, mono, light, dark)"];
    stage.check("/theme", json!([]), &told).await;
    stage.check("/theme dark", json!([]), &["[theme dark]"]).await;
    for name in ["pink", "x.tmTheme"] {
        let unknown = format!("Unknown theme: {name}. There are ansi, mono, light, dark.");
        stage.check(&format!("/theme {name}"), json!([]), &[&unknown]).await;
    }
}
