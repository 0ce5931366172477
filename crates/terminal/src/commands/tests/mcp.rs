//! `/mcp`.

use serde_json::{Value, json};

use crate::testing::Stage;

fn entry(name: &str, state: &str, more: Value) -> Value {
    let mut entry = json!({
        "name": name, "source": "user", "transport": "stdio", "state": state, "shared": true, "visible": true,
        "tool_count": 2,
    });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

fn called(method: &str, mut params: Value) -> Value {
    params["agent_id"] = "main".into();
    json!([[method, params]])
}

#[tokio::test]
async fn lists_servers_with_what_is_wrong_with_them() {
    let servers = json!({"servers": [
        entry("files", "ready", json!({})),
        entry("git", "failed", json!({"visible": false, "last_error": "it ended (exit 1)\nno such file"})),
    ]});
    let told = [
        "files  ready  2 tools  user",
        "git  failed  none for this agent  user",
        "  it ended (exit 1)",
        "  no such file",
    ];
    Stage::new(&[("mcp_list_servers", servers)])
        .check("/mcp", called("mcp_list_servers", json!({})), &told)
        .await;
    let none = ["No MCP servers: mcp_servers of the configuration names them."];
    let empty = json!({"servers": []});
    Stage::new(&[("mcp_list_servers", empty)])
        .check("/mcp", called("mcp_list_servers", json!({})), &none)
        .await;
}

#[tokio::test]
async fn connects_and_disconnects() {
    let ready = json!({"connected": true, "server": "files", "state": "ready", "tools": ["mcp_files_read"]});
    let starting = json!({"connected": false, "server": "files", "state": "starting", "tools": []});
    for (answer, told) in
        [(ready, "files: ready, 1 tool"), (starting, "files: starting; it goes on starting")]
    {
        for word in ["connect", "retry"] {
            let mut stage = Stage::new(&[("mcp_connect", answer.clone())]);
            stage
                .check(
                    &format!("/mcp {word} files"),
                    called("mcp_connect", json!({"server": "files"})),
                    &[told],
                )
                .await;
        }
    }
    let ready = json!({"connected": true, "server": "files", "state": "ready", "tools": []});
    for (flag, shared) in [("--private", false), ("--shared", true)] {
        let params = json!({"server": "files", "shared": shared});
        Stage::new(&[("mcp_connect", ready.clone())])
            .check(
                &format!("/mcp connect {flag} files"),
                called("mcp_connect", params),
                &["files: ready, 0 tools"],
            )
            .await;
    }
    for (done, told) in [(true, "files: disconnected"), (false, "files is not used by this agent")]
    {
        let answer = json!({"disconnected": done, "server": "files"});
        let mut stage = Stage::new(&[("mcp_disconnect", answer)]);
        stage
            .check(
                "/mcp disconnect files",
                called("mcp_disconnect", json!({"server": "files"})),
                &[told],
            )
            .await;
    }
}

#[tokio::test]
async fn lists_tools() {
    let status = json!({"servers": [{
        "name": "files", "state": "ready", "restarts": 0, "in_flight": 0, "calls": 0, "stderr_tail": "", "sandbox": "", "changed": [],
        "tools": [
            {"name": "mcp_files_read", "tool": "read", "state": "offered"},
            {"name": "mcp_files_write", "tool": "write", "state": "disabled"},
        ],
    }]});
    let told = ["files  2 tools", "  mcp_files_read  offered", "  mcp_files_write  disabled"];
    for (line, params) in
        [("/mcp tools", json!({})), ("/mcp tools files", json!({"server": "files"}))]
    {
        Stage::new(&[("mcp_status", status.clone())])
            .check(line, called("mcp_status", params), &told)
            .await;
    }
}

#[tokio::test]
async fn says_what_it_does_not_do() {
    let refused = [
        ("/mcp frobnicate", "Usage: /mcp [connect|retry|disconnect NAME] or"),
        ("/mcp connect", "Usage: /mcp"),
        ("/mcp connect files --nope", "Unknown flag: --nope"),
        ("/mcp connect files --allow-all", "Leave is asked for with the first call"),
        ("/mcp disconnect files --private", "Unknown flag: --private"),
    ];
    for (line, expected) in refused {
        let seen = Stage::new(&[]).run(line).await;
        assert!(seen.told[0].starts_with(expected), "{line}: {:?}", seen.told);
    }
}

#[tokio::test]
async fn lists_prompts_and_resources() {
    let prompts = json!({"prompts": [
        {"server": "files", "name": "greet", "description": "Says hello\nand more"}, {"server": "git", "name": "b"},
    ]});
    Stage::new(&[("mcp_prompts", prompts)])
        .check(
            "/mcp prompts",
            called("mcp_prompts", json!({})),
            &["files  greet  Says hello", "git  b  "],
        )
        .await;
    let resources =
        json!({"resources": [{"server": "files", "uri": "note:///a", "name": "a", "title": "A"}]});
    Stage::new(&[("mcp_resources", resources)])
        .check(
            "/mcp resources files",
            called("mcp_resources", json!({"server": "files"})),
            &["files  note:///a  A"],
        )
        .await;
    let none = ["No prompts: of servers that do not run, only those that are named are asked."];
    Stage::new(&[("mcp_prompts", json!({"prompts": []}))])
        .check("/mcp prompts", called("mcp_prompts", json!({})), &none)
        .await;
}
