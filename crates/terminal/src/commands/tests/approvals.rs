//! `/approvals`.

use serde_json::{Value, json};

use crate::testing::{Stage, merged};

fn approval(members: Value) -> Value {
    let usual = json!({
        "approval_id": "appr_1", "agent_id": "worker", "tool": "exec",
        "arguments": {"argv": ["ls"]}, "reason": "It runs a command.",
        "created_at": "2026-11-17T03:00:00Z", "status": "pending",
    });
    merged(usual, members)
}

async fn check(line: &str, entries: &[Value], told: &[&str]) {
    let params = if line.ends_with("--all") { json!({"include_decided": true}) } else { json!({}) };
    let mut stage = Stage::new(&[("list_approvals", json!({"approvals": entries}))]);
    stage.check(line, json!([["list_approvals", params]]), told).await;
}

#[tokio::test]
async fn lists_what_waits() {
    let plain = [
        "appr_1  worker  exec  pending",
        "  reason     It runs a command.",
        "  arguments  {\"argv\":[\"ls\"]}",
    ];
    check("/approvals", &[approval(json!({}))], &plain).await;
    let full = approval(json!({
        "lineage": ["main"], "expires_at": "2000-01-01T00:00:00Z",
        "preview": {
            "kind": "command", "argv": ["ls", "é"], "cwd": "/src", "sandbox": "landlock 6",
        },
        "grant": {"kind": "command", "tool": "exec", "dir": "/src"},
    }));
    let told = [
        "appr_1  main › worker  exec  pending, 0 s left",
        "  reason     It runs a command.",
        "  command    ",
        "ls é",
        "  directory  /src",
        "  sandbox    landlock 6",
        "  session    exec may run commands in /src",
    ];
    check("/approvals", &[full], &told).await;
    check("/approvals", &[], &["Nothing waits for approval."]).await;
    check("/approvals --all", &[], &["No approvals."]).await;
    Stage::new(&[]).check("/approvals x", json!([]), &["Usage: /approvals [--all]"]).await;
    Stage::new(&[]).check("/approvals --no", json!([]), &["Unknown flag: --no"]).await;
}

#[tokio::test]
async fn shows_what_would_happen_and_what_was_decided() {
    let diff = json!({
        "kind": "diff", "path": "a.rs", "diff": "-old\n+new\n", "added": 1, "removed": 1,
        "truncated": true,
    });
    let denied = approval(json!({
        "status": "denied", "decided_by": "administrator", "message": "Not there.",
        "tool": "write_file", "preview": diff, "grant": {"kind": "write", "path": "/src/a.rs"},
        "expires_at": "2000-01-01T00:00:00Z",
    }));
    let told = [
        "appr_1  worker  write_file  denied by administrator",
        "  reason     It runs a command.",
        "  change     a.rs (+1 -1, cut)",
        "-old",
        "+new",
        "  session    may write /src/a.rs",
        "  said       Not there.",
    ];
    check("/approvals --all", &[denied], &told).await;
    let preview = |preview: Value| approval(json!({"status": "timed_out", "preview": preview}));
    let telling = preview(json!({"kind": "agent", "target": "other", "content": "Do\nit."}));
    let head = ["appr_1  worker  exec  timed out", "  reason     It runs a command."];
    let told = [&head[..], &["  tells      other", "Do", "it."]].concat();
    check("/approvals --all", &[telling], &told).await;
    let writing = preview(json!({"kind": "write", "path": "a.bin", "bytes": 12_000}));
    let told = [&head[..], &["  writes     a.bin, 12,000 bytes"]].concat();
    check("/approvals --all", &[writing], &told).await;
}
