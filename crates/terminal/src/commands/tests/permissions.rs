//! `/permissions`.

use serde_json::{Value, json};

use crate::testing::{Stage, merged};

pub fn permissions(members: Value) -> Value {
    let usual = json!({
        "permission_level": "trusted", "preset": "trusted", "disabled_tools": ["sleep"],
        "policy": {
            "cwd": "/src/api", "allowed_paths": null, "blocked_paths": ["/etc"],
            "write_paths": ["/src/api"],
        },
        "session_allowances": {"write_paths": ["/tmp/x"], "exec_dirs": {"exec": ["/src/api"]}},
        "depth": 0, "parent_agent_id": null, "network": true, "commands": false,
        "sandbox": "landlock 6, seccomp", "limits": "memory 4 GiB",
    });
    merged(usual, members)
}

pub fn tools() -> Value {
    let tool = |name: &str, kind: &str, rule: Option<&str>| {
        let offered = rule.is_none();
        json!({
            "name": name, "description": "", "kind": kind, "enabled": true, "offered": offered,
            "rule": rule, "input_schema": {},
        })
    };
    json!({"tools": [tool("read_file", "look", None), tool("exec", "command", Some("level"))]})
}

#[tokio::test]
async fn says_what_an_agent_may_do() {
    let calls = json!([["get_permissions", {"agent_id": "main"}]]);
    let told = [
        "main  trusted (trusted)",
        "  directory  /src/api",
        "  reads      anywhere",
        "  writes     /src/api",
        "  never      /etc",
        "  network    yes",
        "  commands   no",
        "  sandbox    landlock 6, seccomp",
        "  limits     memory 4 GiB",
        "  off        sleep",
        "  granted    write /tmp/x",
        "  granted    exec in /src/api",
    ];
    let mut stage = Stage::new(&[("get_permissions", permissions(json!({})))]);
    stage.check("/permissions", calls, &told).await;
}

#[tokio::test]
async fn changes_presets_and_tools() {
    let now = json!({"updated": true, "permission_level": "sandboxed", "preset": "worker"});
    let mut stage = Stage::new(&[("set_permissions", now)]);
    let told = ["main is now worker (sandboxed)."];
    let calls = json!([["set_permissions", {"agent_id": "main", "preset": "worker"}]]);
    stage.check("/permissions worker", calls, &told).await;
    let calls = json!([["set_permissions", {
        "agent_id": "main", "enable_tools": ["exec", "git"], "disable_tools": ["sleep"],
    }]]);
    let line = "/permissions --enable exec --disable=sleep --enable git";
    stage.check(line, calls, &told).await;
    let usage = "Usage: /permissions [PRESET] [--enable TOOL] [--disable TOOL], \
                 /permissions --list-tools, or /permissions --explain TOOL [JSON]";
    for line in ["a b", "worker --list-tools", "--explain", "worker --explain x"] {
        stage.check(&format!("/permissions {line}"), json!([]), &[usage]).await;
    }
    let needs = ["--enable needs the name of a tool"];
    stage.check("/permissions --enable", json!([]), &needs).await;
    stage.check("/permissions --nope", json!([]), &["Unknown flag: --nope"]).await;
    let mut stage = Stage::new(&[("set_permissions", json!("above its ceiling"))]);
    assert_eq!(stage.run("/permissions trusted").await.told, ["above its ceiling"]);
}

#[tokio::test]
async fn yolo_asks_first() {
    let now = json!({"updated": true, "permission_level": "yolo", "preset": "yolo"});
    let answers = [("set_permissions", now)];
    let question = "[ask yolo lets 'main' do everything, unasked and without a sandbox. \
                    Is that what you want?]";
    Stage::new(&answers).check("/permissions yolo", json!([]), &[question]).await;
    let calls = json!([["set_permissions", {"agent_id": "main", "preset": "yolo"}]]);
    let told = [question, "main is now yolo (yolo)."];
    Stage::new(&answers).saying_yes().check("/permissions yolo", calls, &told).await;
}

#[tokio::test]
async fn lists_tools() {
    let told =
        ["  read_file        look     on", "  exec             command  off by the rule 'level'"];
    let calls = json!([["list_tools", {"agent_id": "main"}]]);
    let mut stage = Stage::new(&[("list_tools", tools())]);
    stage.check("/permissions --list-tools", calls, &told).await;
}

#[tokio::test]
async fn explains_a_call() {
    let check = async |line: &str, answer: Value, params: Value, told: &str| {
        let mut stage = Stage::new(&[("explain_permission", answer)]);
        stage.check(line, json!([["explain_permission", params]]), &[told]).await;
    };
    check(
        r#"/permissions --explain exec {"argv": ["ls", "a 'b'"]}"#,
        json!({"allowed": false, "needs_approval": true, "rule": "approval", "reason": "It runs."}),
        json!({"agent_id": "main", "tool": "exec", "arguments": {"argv": ["ls", "a 'b'"]}}),
        "exec needs approval by the rule 'approval': It runs.",
    )
    .await;
    check(
        "/permissions --explain read_file",
        json!({"allowed": true, "needs_approval": false}),
        json!({"agent_id": "main", "tool": "read_file"}),
        "read_file is allowed",
    )
    .await;
    check(
        "/permissions --explain exec",
        json!({"allowed": false, "needs_approval": false, "rule": "level"}),
        json!({"agent_id": "main", "tool": "exec"}),
        "exec is refused by the rule 'level'",
    )
    .await;
    let told = Stage::new(&[]).run("/permissions --explain exec {").await.told;
    assert!(told[0].starts_with("Not JSON: "), "{told:?}");
    let list = ["Not an object: what is given is written as {\"name\": value}."];
    Stage::new(&[]).check("/permissions --explain exec []", json!([]), &list).await;
}
