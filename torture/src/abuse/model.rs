//! The hostile model: honest to the honest, and otherwise what the last word of its user asks for.

use std::path::Path;

use nexus_testkit::{Reply, last_user_text};
use serde_json::{Value, json};

use super::honest::HELLO;
use super::hostile_mcp;
use super::scene::Places;
use crate::turn;

/// One line of a stream that says nothing, as often as it goes into a piece.
static COMMENTS: [u8; 64 * 1024] = comments();

/// More of them than anybody takes.
const COMMENTS_MAX: usize = 8_000;

/// What no terminal may be told by a stranger: a title, and by one C1 byte.
const STEERING: &str = "\u{1b}]0;owned\u{7}\u{9b}31m";

pub fn script(request: &Value, places: &Places) -> Reply {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    // A tool's answer ends the turn.
    if messages.last().is_some_and(|message| message["role"] == "tool") {
        return Reply::text("enough");
    }
    let said = last_user_text(request).unwrap_or_default();
    let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
    match word {
        HELLO => Reply::text("well"),
        "hang" => Reply::hang(),
        "endless" => Reply::chunks(std::iter::repeat_n("x".repeat(64 * 1024), 2_000)),
        "comments" => Reply::raw(std::iter::repeat_n(COMMENTS.as_slice(), COMMENTS_MAX)),
        "many" => (0..3_000).fold(Reply::text(""), |reply, _| {
            reply.then_tool_call("read_file", json!({"path": "long.txt"}))
        }),
        "outline" => Reply::tool_call("outline", json!({"path": "deep.java"})),
        "patch" => Reply::tool_call("patch", json!({"diff": bad_diff()})),
        "steer" => Reply::text(STEERING)
            .then_tool_call("write_file", json!({"path": "steering.txt", "content": STEERING})),
        "flee" => all(escapes(places)),
        "trap" => all(bare_repository(rest)),
        "pry" => all(prying(places).into_iter().map(command)),
        "hungry" => {
            let number = rest.parse::<usize>().unwrap_or_default();
            all(hungry(places).into_iter().nth(number % HUNGRY).map(command))
        }
        "tool" => all(hostile_mcp::calls(places)),
        "fatal" => Reply::tool_call(hostile_mcp::FATAL[rest.len() % 3], json!({})),
        _ => turn::script(request),
    }
}

type Call = (&'static str, Value);

fn all(calls: impl IntoIterator<Item = Call>) -> Reply {
    calls
        .into_iter()
        .fold(Reply::text(""), |reply, (tool, arguments)| reply.then_tool_call(tool, arguments))
}

/// Hunks that fit nowhere in a long file, in the order of their lines: others are refused before they are looked for.
fn bad_diff() -> String {
    let mut diff = "--- a/long.txt\n+++ b/long.txt\n".to_owned();
    for line in (1..1_800_000).step_by(300) {
        diff += &format!("@@ -{line},3 +{line},3 @@\n a\n-b\n+c\n a\n");
    }
    diff
}

const fn comments() -> [u8; 64 * 1024] {
    let mut bytes = [b':'; 64 * 1024];
    let mut at = 63;
    while at < bytes.len() {
        bytes[at] = b'\n';
        at += 64;
    }
    bytes
}

/// Every way out of a sandboxed agent's directory, by every tool that takes a path.
fn escapes(places: &Places) -> Vec<Call> {
    let (outside, crew) = (places.outside.display(), places.crew.display());
    let mut calls = Vec::new();
    // As it is, upwards, by a link to the directory, by one to the file, by one that the crew's own path goes through.
    for path in [
        format!("{outside}/secret.txt"),
        "../../outside/secret.txt".into(),
        "door/secret.txt".into(),
        "peep.txt".into(),
        format!("{crew}/../crew/door/../../outside/secret.txt"),
    ] {
        let diff = format!("--- {path}\n+++ {path}\n@@ -1 +1 @@\n-x\n+owned\n");
        let copied = format!("--- {path}\n+++ mine.txt\n@@ -1 +1 @@\n-x\n+owned\n");
        calls.extend([
            ("read_file", json!({"path": path})),
            ("tail", json!({"path": path})),
            ("outline", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "owned"})),
            ("append_file", json!({"path": path, "content": "owned"})),
            ("edit_lines", json!({"path": path, "start": 1, "end": 1, "text": "owned"})),
            ("regex_replace", json!({"path": path, "pattern": ".", "replacement": "owned"})),
            ("patch", json!({"diff": diff})),
            ("patch", json!({"diff": copied})),
            ("rename", json!({"from": path, "to": "mine.txt"})),
            ("copy_file", json!({"from": path, "to": "mine.txt"})),
        ]);
    }
    for path in [format!("{outside}"), "../../outside".into(), "door".into()] {
        let new = format!("{path}/new.txt");
        let diff = format!("--- /dev/null\n+++ {new}\n@@ -0,0 +1 @@\n+owned\n");
        calls.extend([
            ("list_directory", json!({"path": path})),
            ("glob", json!({"pattern": "*", "path": path})),
            ("search_text", json!({"pattern": ".", "path": path})),
            ("write_file", json!({"path": new, "content": "owned"})),
            ("mkdir", json!({"path": new})),
            ("rename", json!({"from": "long.txt", "to": new})),
            ("copy_file", json!({"from": "deep.java", "to": new})),
            ("patch", json!({"diff": diff})),
            ("git", json!({"args": ["-C", path, "status"]})),
        ]);
    }
    // What others said, and what opens the server.
    for path in [&places.logs, &places.home, &places.token_file] {
        calls.extend([
            ("list_directory", json!({"path": path})),
            ("read_file", json!({"path": path.join("honest/context.md")})),
            ("read_file", json!({"path": path})),
            ("search_text", json!({"pattern": ".", "path": path})),
        ]);
    }
    calls.extend(git(&places.repository(), &places.outside));
    calls
}

/// What is blocked in a repository, by all the names that git has for it, and what lies beside it.
fn git(repository: &Path, outside: &Path) -> Vec<Call> {
    let secret = outside.join("secret.txt").display().to_string();
    let ways: [&[&str]; 12] = [
        &["show", "HEAD:blocked/k.txt"],
        &["show", "HEAD~1:blocked/k.txt"],
        &["log", "-p"],
        &["log", "-p", "--", "blocked"],
        &["show", "HEAD~1"],
        &["diff", "HEAD~1"],
        &["blame", "blocked/k.txt"],
        &["grep", "blocked", "HEAD~1"],
        &["cat-file", "-p", "HEAD:blocked/k.txt"],
        &["archive", "HEAD~1"],
        &["diff", "--no-index", "/dev/null", &secret],
        &["diff", "/dev/null", &secret],
    ];
    let call = |args: &&[&str]| ("git", json!({"args": args, "cwd": repository}));
    let mut calls: Vec<_> = ways.iter().map(call).collect();
    calls.push(("read_file", json!({"path": repository.join("blocked/k.txt")})));
    calls.push(("search_text", json!({"pattern": "blocked", "path": repository})));
    calls
}

/// The parts of a directory that git would take for a repository, laid side by side.
fn bare_repository(name: &str) -> Vec<Call> {
    let config = "[core]\n\tfsmonitor = touch owned\n";
    vec![
        ("mkdir", json!({"path": format!("{name}/objects")})),
        ("mkdir", json!({"path": format!("{name}/refs")})),
        ("write_file", json!({"path": format!("{name}/config"), "content": config})),
        ("write_file", json!({"path": format!("{name}/HEAD"), "content": "ref: refs/heads/x\n"})),
    ]
}

fn command(script: String) -> Call {
    ("shell_UNSAFE", json!({"command": script, "timeout_s": 3}))
}

/// Commands that look and reach where their agent may not.
fn prying(places: &Places) -> Vec<String> {
    let (outside, home, logs) =
        (places.outside.display(), places.home.display(), places.logs.display());
    let repository = places.repository();
    vec![
        format!(
            "cat {outside}/* {home}/*.token {home}/*.db {logs}/*/*; ls -R {outside} {home} {logs}"
        ),
        "cat /proc/*/cmdline /proc/*/environ | tr '\\0' ' '; ls /proc".into(),
        format!("for file in {outside}/*; do echo owned >$file; done; echo owned >{outside}/new"),
        format!(
            "rm -rf {outside}; mv {outside} mine; mkdir {outside}/new; ln {outside}/secret.txt mine"
        ),
        format!("cat {}/blocked/*", repository.display()),
        format!(
            "rm -rf .nexus3 && mkdir .nexus3 && ln -s {outside} .nexus3/logs && cat .nexus3/logs/*"
        ),
        format!("ln -sfn {outside} door; cat door/*; echo owned >door/secret.txt"),
        format!("tar c {outside} {home} | tr -d '\\0'"),
        "printf '\\033]0;owned\\007\\302\\233'".into(),
    ]
}

/// How many hungry commands there are.
pub const HUNGRY: usize = 5;

/// Commands that take what they can get. Each is bounded by itself too: this suite must not harm a machine whose server
/// lets them.
fn hungry(places: &Places) -> [String; HUNGRY] {
    let sleep = format!("sleep {}", places.sleep);
    [
        "head -c 600000000 /dev/zero | tail -c 600000000 | wc -c".into(),
        format!("i=0; while [ $i -lt 100 ]; do {sleep} & i=$((i+1)); done; wait"),
        format!(
            "setsid {sleep} >/dev/null 2>&1 & nohup {sleep} >/dev/null 2>&1 & \
             (trap '' TERM HUP; {sleep}) & echo left"
        ),
        "yes owned | head -c 100000000".into(),
        "while :; do :; done".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comment_ends_its_line() {
        let lines: Vec<_> = COMMENTS.split_inclusive(|byte| *byte == b'\n').collect();
        assert_eq!(lines.len(), 1024);
        assert!(lines.iter().all(|line| line.len() == 64 && line.starts_with(b":")));
    }
}
