//! Whole sessions on the wire, to the byte, for whoever writes a client: what the editor says (`>`) and what it is told (`<`).
//! What differs from run to run is written as a word. `NEXUS3_WRITE_GOLDEN=1` writes the files anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::editor::{Desk, Editor};

/// A client that understands what is optional.
fn capabilities() -> Value {
    json!({"session": {"notices": {}, "compaction": {}}, "elicitation": {"form": {}}})
}

/// An editor that has said hello and opened a session, of which it has been told all.
async fn opened(desk: &Desk) -> (Editor, String) {
    let mut editor = desk.editor_with(capabilities()).await;
    let session = editor.session().await;
    editor.update("available_commands_update").await;
    (editor, session)
}

/// Compares what was said with what was said when it was written down.
fn check(name: &str, desk: &Desk, sessions: &[&str], editors: &[&Editor]) {
    let lines = editors.iter().flat_map(|editor| &editor.wire);
    let said = lasting(joined(lines.map(String::as_str)), desk, sessions);
    let file = file(name);
    if std::env::var_os("NEXUS3_WRITE_GOLDEN").is_some() {
        return std::fs::write(file, said).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    for (number, (line, expected)) in said.lines().zip(golden.lines()).enumerate() {
        assert_eq!(line, expected, "line {} of {}", number + 1, file.display());
    }
    assert_eq!(said.lines().count(), golden.lines().count(), "{}:\n{said}", file.display());
}

/// The lines, with pieces of one text that follow one another as one: how many there are is a matter of time.
fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut all: Vec<String> = Vec::new();
    for line in lines {
        match (all.last_mut(), piece(line)) {
            (Some(last), Some((before, text, after)))
                if piece(last).is_some_and(|(b, _, a)| (b, a) == (before, after)) =>
            {
                let end = last.len() - after.len();
                last.insert_str(end, text);
            }
            _ => all.push(line.to_owned()),
        }
    }
    all.iter().map(|line| format!("{line}\n")).collect()
}

/// What stands before a piece of text, the piece, and what stands behind it.
fn piece(line: &str) -> Option<(&str, &str, &str)> {
    let begins = "_chunk\",\"content\":{\"type\":\"text\",\"text\":\"";
    let from = line.find(begins)? + begins.len();
    let until = line.rfind("\"},\"messageId\"").filter(|until| *until >= from)?;
    Some((&line[..from], &line[from..until], &line[until..]))
}

fn file(name: &str) -> PathBuf {
    let golden = "tests/e2e/doors/acp/golden";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(golden).join(format!("{name}.jsonl"))
}

/// Without what differs from run to run.
fn lasting(mut said: String, desk: &Desk, sessions: &[&str]) -> String {
    let work = desk.world.work();
    for path in [work.canonicalize().unwrap(), work] {
        said = said.replace(path.to_str().unwrap(), "/project");
    }
    for path in [desk.world.path("").canonicalize().unwrap(), desk.world.path("")] {
        said = said.replace(path.to_str().unwrap().trim_end_matches('/'), "/world");
    }
    for (number, session) in sessions.iter().enumerate() {
        said = said.replace(session, &format!("SESSION-{}", number + 1));
    }
    said = said.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    said = named(said, "acp-", 32, "TURN");
    said = counted(&said, "call_", "CALL");
    said = valued(&said, "\"updatedAt\":\"", '"', "TIME");
    valued(&said, "\"used\":", ',', "0")
}

/// Names of so many hexadecimal digits, in the order in which they come.
fn named(mut said: String, prefix: &str, digits: usize, word: &str) -> String {
    let (mut number, mut from) = (0, 0);
    while let Some(at) = said[from..].find(prefix) {
        let at = from + at;
        let name: String = said[at..].chars().take(prefix.len() + digits).collect();
        from = at + prefix.len();
        let is_name = name.len() == prefix.len() + digits
            && name[prefix.len()..].chars().all(|c| c.is_ascii_hexdigit());
        if is_name {
            number += 1;
            said = said.replace(&name, &format!("{word}-{number}"));
        }
    }
    said
}

/// Numbers behind `prefix`, counted anew.
fn counted(said: &str, prefix: &str, word: &str) -> String {
    let (mut all, mut seen, mut rest) = (String::new(), Vec::new(), said);
    while let Some((before, behind)) = rest.split_once(prefix) {
        let digits = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (name, after) = behind.split_at(digits);
        all.push_str(before);
        if name.is_empty() {
            all.push_str(prefix);
        } else {
            let number = seen.iter().position(|it| *it == name).unwrap_or_else(|| {
                seen.push(name);
                seen.len() - 1
            });
            let _ = write!(all, "{word}-{}", number + 1);
        }
        rest = after;
    }
    all + rest
}

/// What stands between `before` and the next `end`.
fn valued(said: &str, before: &str, end: char, word: &str) -> String {
    let mut parts = said.split(before);
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let at = part.find(end).unwrap();
        let _ = write!(all, "{before}{word}{}", &part[at..]);
    }
    all
}

#[tokio::test]
async fn a_prompt_with_a_tool_and_a_question() {
    let desk = Desk::embedded().await;
    let (mut editor, session) = opened(&desk).await;
    let file = desk.world.path("elsewhere.txt");
    desk.world.model.push(
        Reply::text("I write it.")
            .then_tool_call("write_file", json!({"path": file, "content": "one\n"})),
    );
    desk.world.model.push(Reply::text("It is written."));
    let id = editor.begin(&session, "Write it").await;
    let asked = editor.asked("session/request_permission").await;
    let allow = json!({"outcome": {"outcome": "selected", "optionId": "allow_once"}});
    editor.reply(&asked, allow).await;
    assert_eq!(editor.stopped(id).await, "end_turn");
    desk.world.model.push(Reply::tool_call("read_file", json!({"path": "none.txt"})));
    desk.world.model.push(Reply::thought("Not there.").then_chunks(["There is none."]));
    assert_eq!(editor.prompt(&session, "Read it").await, "end_turn");
    check("prompt", &desk, &[&session], &[&editor]);
}

#[tokio::test]
async fn a_prompt_that_is_cancelled() {
    let desk = Desk::embedded().await;
    let (mut editor, session) = opened(&desk).await;
    desk.world.model.push(Reply::text("So").then_hang());
    let id = editor.begin(&session, "Begin").await;
    editor.update("agent_message_chunk").await;
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(editor.stopped(id).await, "cancelled");
    check("cancel", &desk, &[&session], &[&editor]);
}

#[tokio::test]
async fn a_session_that_is_taken_up_again() {
    let desk = Desk::embedded().await;
    let (mut editor, session) = opened(&desk).await;
    desk.world.model.push(Reply::text("Look.").then_tool_call("glob", json!({"pattern": "*"})));
    desk.world.model.push(Reply::text("Nothing."));
    editor.prompt(&session, "What is here?").await;
    assert_eq!(editor.finish().await, Some(0));
    let mut editor = desk.editor_with(capabilities()).await;
    let cwd = editor.cwd.clone();
    let listed = editor.ok("session/list", json!({"cwd": cwd})).await;
    assert_eq!(listed["sessions"][0]["sessionId"], session);
    let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
    editor.ok("session/load", params.clone()).await;
    editor.update("available_commands_update").await;
    editor.ok("session/close", json!({"sessionId": session})).await;
    editor.ok("session/resume", params).await;
    editor.update("available_commands_update").await;
    let mode = json!({"sessionId": session, "modeId": "sandboxed"});
    editor.ok("session/set_mode", mode).await;
    editor.ok("session/delete", json!({"sessionId": session})).await;
    check("load", &desk, &[&session], &[&editor]);
}

#[tokio::test]
async fn what_is_wrong() {
    let desk = Desk::embedded().await;
    let mut editor = desk.silent(&[]);
    editor.refused("session/new", json!({})).await;
    editor.ok("initialize", json!({"protocolVersion": 2, "clientCapabilities": {}})).await;
    editor.refused("session/fork", json!({})).await;
    editor.refused("session/new", json!({"cwd": "relative", "mcpServers": []})).await;
    editor.refused("session/new", json!({"cwd": "/none", "mcpServers": []})).await;
    let nobody = json!({"sessionId": "nobody", "cwd": editor.cwd, "mcpServers": []});
    editor.refused("session/load", nobody).await;
    let prompt = json!({"sessionId": "nobody", "prompt": [{"type": "text", "text": "Hi"}]});
    editor.refused("session/prompt", prompt).await;
    editor.refused("session/list", json!({"cursor": "x"})).await;
    let session = editor.session().await;
    editor.update("available_commands_update").await;
    editor.refused("session/prompt", json!({"sessionId": session, "prompt": []})).await;
    let yolo = json!({"sessionId": session, "modeId": "yolo"});
    editor.refused("session/set_mode", yolo).await;
    let option = json!({"sessionId": session, "configId": "none", "value": "x"});
    editor.refused("session/set_config_option", option).await;
    desk.world.model.push(Reply::status(401));
    let id = editor.begin(&session, "Hi").await;
    editor.answer(id).await;
    check("errors", &desk, &[&session], &[&editor]);
}
