//! Each command against a server that answers what it was told to: which calls it makes, what it says, when it refuses.

mod agents;
mod approvals;
mod export;
mod init;
mod leaving;
mod mcp;
mod permissions;
mod rpc;
mod sessions;
mod settings;
mod status;
mod talk;
mod tools;

use serde_json::json;

use super::{Argument, COMMANDS, find};
use crate::testing::Stage;

/// The names of the table in the specification; `mcp` comes with the methods that it calls.
const NAMES: [&str; 44] = [
    "agent",
    "switch",
    "create",
    "whisper",
    "over",
    "send",
    "list",
    "tree",
    "status",
    "destroy",
    "cancel",
    "continue",
    "approvals",
    "sessions",
    "resume",
    "save",
    "clone",
    "rename",
    "delete",
    "fork",
    "rewind",
    "tools",
    "tool",
    "cwd",
    "model",
    "permissions",
    "prompt",
    "compact",
    "mcp",
    "init",
    "copy",
    "export",
    "rpc",
    "trace",
    "curl",
    "theme",
    "clear",
    "help",
    "detach",
    "shutdown",
    "quit",
    "exit",
    "q",
    "gitlab",
];

#[tokio::test]
async fn every_command_is_there_and_has_help() {
    for name in NAMES {
        let command = find(name).unwrap_or_else(|| panic!("no /{name}"));
        let usage: Vec<_> = command.usage.lines().collect();
        assert!(usage.iter().any(|usage| usage.starts_with(&format!("/{}", command.name))));
        let help: Vec<_> = usage.iter().copied().chain([command.help]).collect();
        for asked in ["--help", "-h", "help"] {
            Stage::new(&[]).check(&format!("/{name} {asked}"), json!([]), &help).await;
        }
        Stage::new(&[]).check(&format!("/help {name}"), json!([]), &help).await;
        Stage::new(&[]).check(&format!("/help /{name}"), json!([]), &help).await;
    }
    let all = COMMANDS.iter().flat_map(|command| command.aliases.iter().chain([&command.name]));
    for name in all {
        assert!(NAMES.contains(name), "/{name} is not in the specification");
    }
}

#[tokio::test]
async fn help_lists_every_command_once() {
    let seen = Stage::new(&[]).run("/help").await;
    let (heads, below): (Vec<_>, Vec<_>) = seen.told.iter().partition(|it| it.starts_with('/'));
    assert_eq!(heads.len(), COMMANDS.len());
    for (line, command) in heads.iter().zip(COMMANDS) {
        assert!(line.starts_with(&format!("/{}", command.name)), "{line}");
    }
    // What has no room beside how it is used.
    assert!(below.iter().all(|line| line.starts_with(&" ".repeat(37))), "{below:?}");
    let is_long = |usage: &str| usage.lines().next().is_some_and(|usage| usage.len() >= 37);
    assert_eq!(COMMANDS.iter().filter(|it| is_long(it.usage)).count(), below.len());
}

#[tokio::test]
async fn an_unknown_command_is_named_with_the_nearest() {
    let unknown = "Unknown command: /lst. Use /help for available commands. Did you mean /list?";
    Stage::new(&[]).check("/lst", json!([]), &[unknown]).await;
    let unknown = "Unknown command: /frobnicate. Use /help for available commands.";
    Stage::new(&[]).check("/frobnicate", json!([]), &[unknown]).await;
    Stage::new(&[]).check("/help frobnicate", json!([]), &[unknown]).await;
}

#[tokio::test]
async fn a_command_without_arguments_refuses_words_and_flags() {
    let names = ["list", "tree", "over", "continue", "sessions", "compact", "curl"];
    for name in names.into_iter().chain(["clear", "detach", "shutdown", "quit"]) {
        let usage = format!("Usage: /{name}");
        Stage::new(&[]).check(&format!("/{name} word"), json!([]), &[&usage]).await;
        let flag = "Unknown flag: --nope";
        Stage::new(&[]).check(&format!("/{name} --nope"), json!([]), &[flag]).await;
    }
}

#[tokio::test]
async fn commands_on_the_shown_agent_need_one() {
    let none = "No agent yet: it is made with your first message.";
    let lines = [
        "/agent",
        "/status",
        "/save",
        "/fork",
        "/rewind",
        "/tools",
        "/tool last",
        "/model",
        "/prompt",
    ];
    for line in lines.into_iter().chain([
        "/compact",
        "/copy",
        "/export",
        "/permissions",
        "/continue",
        "/mcp",
    ]) {
        Stage::new(&[]).showing(None).check(line, json!([]), &[none]).await;
    }
}

#[test]
fn completion_knows_what_comes_first() {
    let check = |name, argument| assert_eq!(find(name).unwrap().argument, argument, "{name}");
    check("agent", Argument::Agent);
    check("resume", Argument::Session);
    check("model", Argument::Model);
    check("permissions", Argument::Preset);
    check("help", Argument::Command);
    check("cwd", Argument::Path);
    check("list", Argument::None);
}

#[tokio::test]
async fn gitlab_is_left_to_mcp() {
    let said =
        "GitLab is left to MCP: a server of the Model Context Protocol for it brings its tools.";
    Stage::new(&[]).check("/gitlab", json!([]), &[said]).await;
}
