//! What comes out of a file is what was put into it, and never more than was allowed.

use std::path::PathBuf;
use std::sync::Arc;

use nexus_core::message::{Attachment, AttachmentKind, Blob, Message, Meta, Role, Source};
use nexus_core::permission::{Level, Preset, Reach};
use nexus_core::store::SessionRecord;
use serde_json::{Value, json};

use super::*;

fn preset(name: &str) -> Preset {
    Preset::built_in(name).unwrap()
}

fn import(preset: &Preset, preset_was_named: bool) -> Import<'_> {
    Import { name: None, preset, preset_was_named, cwd: "/here".into(), protected: &[] }
}

/// A session with one of everything.
fn session() -> (SessionRecord, Value) {
    let rights = |level: &str, read: Value| {
        json!({"level": level, "preset": level, "read": read, "write": ["/w/out"], "blocked": ["/etc"],
            "disabled_tools": ["exec"], "network": true, "commands": true, "agents": false})
    };
    let file = json!({
        "format": "nexus3.session",
        "version": 1,
        "session": {
            "name": "a", "created_at": "2026-01-20T09:11:02Z", "updated_at": "2026-01-21T09:11:02Z",
            "provenance": "top", "depth": 1, "model": "fast", "cwd": "/w", "system_prompt": "Be brief.",
            "permissions": rights("trusted", Value::Null), "ceiling": rights("trusted", json!(["/here/sub", "/w"])),
            "grants": {"write_paths": ["/w/more"], "exec_dirs": {"git": ["/w"]}},
        },
        "messages": [
            {"role": "user", "at": "2026-01-20T09:11:03Z", "content": "Hi", "request_id": 7, "source": "cli",
             "source_agent_id": "top"},
            {"role": "assistant", "at": "2026-01-20T09:11:04Z", "content": "",
             "tool_calls": [{"id": "c1", "name": "git", "arguments": {"z": 1, "a": [2]}}], "request_id": "r"},
            {"role": "tool", "at": "2026-01-20T09:11:05Z", "content": "ok", "tool_call_id": "c1"},
            {"role": "assistant", "at": "2026-01-20T09:11:06Z", "content": "So far", "interrupted": true},
            {"role": "summary", "at": "2026-01-20T09:11:07Z", "content": "sum", "covers": 2},
        ],
    });
    let parsed = SessionFile::parse(file.clone()).unwrap();
    let trusted = preset("trusted");
    let mut record = parsed.record(&import(&trusted, true)).unwrap();
    record.settings.permissions = parsed.bounds[0].clone();
    record.settings.cwd = parsed.cwd.clone();
    record.depth = 1;
    record.settings.grants.write_paths.insert("/w/more".into());
    record.settings.grants.exec_dirs.insert("git".into(), ["/w".into()].into());
    let session = SessionRecord {
        record,
        saved: true,
        updated_at: "2026-01-21T09:11:02Z".parse().unwrap(),
        made_by: Some(AgentId::parse("top").unwrap()),
    };
    (session, file)
}

#[test]
fn what_is_exported_is_what_was_read() {
    let (session, file) = session();
    let messages = SessionFile::parse(file.clone()).unwrap().messages;
    assert_eq!(export(&session, &messages).unwrap(), file);
}

#[test]
fn a_file_gives_no_right_that_its_reader_did_not_give() {
    let (_, file) = session();
    let parsed = SessionFile::parse(file).unwrap();
    let check = |name: &str, named: bool| {
        let preset = preset(name);
        let record = parsed.record(&import(&preset, named)).unwrap();
        assert_eq!((record.parent, record.depth), (None, 0));
        assert_eq!(record.settings.grants, Grants::default());
        let ceiling = parsed.ceiling.as_ref().unwrap();
        assert_eq!(record.settings.permissions.within(ceiling), Ok(()));
        assert_eq!(
            record.settings.permissions.within(&preset.apply("/here".as_ref(), &[])),
            Ok(())
        );
        record.settings.permissions
    };
    let sandboxed = check("sandboxed", false);
    assert_eq!((sandboxed.level, sandboxed.network), (Level::Sandboxed, false));
    assert_eq!(sandboxed.read, Reach::beneath([PathBuf::from("/here/sub")]));
    let trusted = check("trusted", true);
    assert_eq!(trusted.level, Level::Trusted);
    assert!(!trusted.agents && trusted.disabled_tools.contains("exec"), "its ceiling holds");
}

#[test]
fn a_file_of_the_original_is_read() {
    let file = json!({
        "schema_version": 1, "agent_id": "project", "created_at": "2026-01-20T09:11:02.123456",
        "modified_at": "2026-01-20T09:11:02", "system_prompt": "You are NEXUS3.", "system_prompt_path": null,
        "working_directory": "/home/inc/repos", "permission_level": "yolo", "permission_preset": "yolo",
        "disabled_tools": ["shell_UNSAFE"], "token_usage": {"total": 5}, "provenance": "user", "later": {"x": 1},
        "messages": [
            {"role": "system", "content": "Note"},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "bash", "arguments": {"x": 1}}]},
            {"role": "tool", "content": "done", "tool_call_id": "1"},
            {"role": "assistant", "content": "There."},
        ],
    });
    let parsed = SessionFile::parse(file).unwrap();
    assert_eq!((&*parsed.name, parsed.cwd.to_str()), ("project", Some("/home/inc/repos")));
    let roles: Vec<_> = parsed.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Summary, Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    assert_eq!(parsed.messages[2].calls().next().unwrap().arguments, json!({"x": 1}));
    let sandboxed = preset("sandboxed");
    let record = parsed.record(&import(&sandboxed, false)).unwrap();
    assert_eq!(record.settings.permissions.level, Level::Sandboxed, "whatever the file says");
    assert_eq!(record.settings.permissions.read, Reach::beneath([PathBuf::from("/here")]));
    assert!(record.settings.permissions.disabled_tools.contains("shell_UNSAFE"));
    assert_eq!(record.settings.system_prompt.as_deref(), Some("You are NEXUS3."));
}

#[test]
fn what_is_no_session_is_named() {
    let (_, good) = session();
    let check = |change: &dyn Fn(&mut Value), reason: &str| {
        let mut file = good.clone();
        change(&mut file);
        let error = SessionFile::parse(file).err().unwrap();
        assert!(error.contains(reason), "{error}");
    };
    check(&|file| *file = json!([]), "neither a member \"format\" nor \"agent_id\"");
    check(&|file| file["format"] = json!("x"), "its format is \"x\"");
    check(&|file| file["version"] = json!(2), "its version is 2; this program knows 1");
    check(&|file| file["extra"] = json!(1), "unknown field `extra`");
    check(&|file| file["session"]["cwd"] = json!(1), "invalid type");
    check(&|file| file["session"]["permissions"]["level"] = json!("god"), "unknown level god");
    check(&|file| file["messages"][0]["role"] = json!("x"), "unknown variant `x`");
    check(&|file| file["messages"][0]["source_agent_id"] = json!("a b"), "messages.0: ");
    let python = json!({"agent_id": "a", "created_at": "yesterday", "messages": [], "working_directory": "/"});
    let error = SessionFile::parse(python).err().unwrap();
    assert!(error.contains("\"yesterday\" is no time"), "{error}");
    let parsed = SessionFile::parse(good).unwrap();
    let sandboxed = preset("sandboxed");
    for (name, wrong) in [("a b", "may hold only"), (".t", "is temporary"), ("", "is empty")] {
        let named = Import { name: Some(name), ..import(&sandboxed, false) };
        let error = parsed.record(&named).unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
}

/// A session of so many messages, the first with so many calls.
fn of(messages: usize, calls: usize) -> Value {
    let (_, mut file) = session();
    let call = json!({"id": "c", "name": "f", "arguments": {}});
    let mut said = file["messages"][1].clone();
    said["tool_calls"] = json!(vec![call; calls]);
    file["messages"] = json!(vec![said; messages]);
    file
}

#[test]
fn what_a_session_may_hold_just_under_and_just_over() {
    let check = |file: Value| SessionFile::parse(file).map(|parsed| parsed.messages.len());
    assert_eq!(check(of(1, CALLS_MAX)), Ok(1));
    let many = check(of(1, CALLS_MAX + 1)).unwrap_err();
    assert_eq!(many, "messages.0: it has more than 1024 tool calls");
    assert_eq!(check(of(MESSAGES_MAX, 0)), Ok(MESSAGES_MAX));
    assert_eq!(check(of(MESSAGES_MAX + 1, 0)).unwrap_err(), "it has more than 100000 messages");
}

#[test]
fn what_a_file_may_be_just_under_and_just_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session.json");
    let check = |text: &[u8]| {
        std::fs::write(&path, text).unwrap();
        SessionFile::read(&path).map(|parsed| parsed.messages.len()).map_err(|it| it.to_string())
    };
    let plain = of(1, 0).to_string();
    // Behind the file there may be blanks.
    let sized = |bytes: u64| format!("{plain}{}", " ".repeat(bytes as usize - plain.len()));
    assert_eq!(check(sized(FILE_BYTES_MAX).as_bytes()), Ok(1));
    let large = check(sized(FILE_BYTES_MAX + 1).as_bytes()).unwrap_err();
    assert!(large.contains("is larger than 67108864 bytes"), "{large}");
    let values = |count: usize| {
        plain.replacen('{', &format!("{{\"x\":[{}],", vec!["0"; count].join(",")), 1)
    };
    let under = check(values(1000).as_bytes()).unwrap_err();
    assert!(under.contains("unknown field `x`"), "{under}");
    let over = check(values(VALUES_MAX).as_bytes()).unwrap_err();
    assert!(over.contains("it has more than 4194304 values"), "{over}");
    let deep =
        check(plain.replacen('{', &format!("{{\"x\":{}", "[".repeat(100_000)), 1).as_bytes());
    assert!(deep.unwrap_err().contains("recursion limit exceeded"));
}

#[test]
fn a_file_says_what_it_leaves_out() {
    let (session, _) = session();
    let image = Attachment {
        kind: AttachmentKind::Image,
        media_type: "image/png".into(),
        name: Some("a.png".into()),
        source: Source::Blob(Blob::new(*b"bytes")),
    };
    let said = |text: &str| {
        let message = Message::new(Role::User, text, Meta::default());
        Arc::new(message.with_attachments(vec![image.clone()]))
    };
    let file = export(&session, &[said("Look"), said("")]).unwrap();
    let word = "[An image, a.png, 5 bytes: not in this file.]";
    assert_eq!(file["messages"][0]["content"], format!("Look\n\n{word}"));
    assert_eq!(file["messages"][1]["content"], word);
    let read = SessionFile::parse(file).unwrap();
    assert_eq!(read.messages[1].text(), word);
}
