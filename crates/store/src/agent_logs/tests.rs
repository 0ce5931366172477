//! The logs as a person finds them on disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use nexus_core::logs::{RAW_TARGET, TURN_SPAN};
use nexus_core::message::{
    Attachment, AttachmentKind, Blob, Message, Meta, Part, Role, Source, ToolCall,
};
use serde_json::{Value, json};
use tracing::Instrument as _;
use tracing::instrument::WithSubscriber as _;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

fn options(dir: &Path) -> Options {
    Options { dir: dir.join("logs"), verbose: true, raw: true }
}

fn agent(name: &str) -> AgentId {
    AgentId::parse(name).unwrap()
}

fn message(role: Role, text: &str) -> SharedMessage {
    let at = "2026-01-02T03:04:05.678901Z".parse().unwrap();
    Arc::new(Message::new(role, text, Meta { at, ..Meta::default() }))
}

/// What one message becomes in `context.md` and `verbose.md`.
#[track_caller]
fn check(message: Message, context: &str, verbose: &str) {
    let dir = tempfile::tempdir().unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    logs.messages(&agent("a"), &[Arc::new(message)]);
    logs.flush();
    let read = |name: &str| fs::read_to_string(dir.path().join("logs/a").join(name)).unwrap();
    assert_eq!(read("context.md"), context);
    assert_eq!(read("verbose.md"), verbose);
}

#[test]
fn each_message_has_a_heading_with_role_and_time() {
    let at = "2026-01-02T03:04:05.678901Z".parse().unwrap();
    let meta = Meta { at, ..Meta::default() };
    let plain = "## user · 2026-01-02T03:04:05.678Z\n\nhello\n\n";
    check(Message::new(Role::User, "hello\n", meta.clone()), plain, plain);

    let told =
        Meta { source: Some("cli".into()), source_agent: Some(agent("boss")), ..meta.clone() };
    let verbose =
        "## user · 2026-01-02T03:04:05.678Z\n\n- source: cli\n- source agent: boss\n\nhello\n\n";
    check(Message::new(Role::User, "hello", told), plain, verbose);

    let call = ToolCall::new("c1", "read_file", json!({"path": "x"}));
    let asked = Message::new(Role::Assistant, "", Meta { interrupted: true, ..meta.clone() })
        .with_tool_calls(vec![call]);
    let heading = "## assistant · 2026-01-02T03:04:05.678Z (interrupted)\n\n→ `read_file` (c1)\n\n";
    check(asked, heading, &format!("{heading}```json\n{{\n  \"path\": \"x\"\n}}\n```\n\n"));

    let heading = "## tool · 2026-01-02T03:04:05.678Z\n\n";
    let verbose = format!("{heading}- answers call: c1\n\ntext\n\n");
    check(Message::tool_result("c1", "text", meta), &format!("{heading}text\n\n"), &verbose);
}

#[test]
fn only_the_context_is_kept_unless_more_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let logs = AgentLogFiles::start(Options { verbose: false, raw: false, ..options(dir.path()) })
        .unwrap();
    logs.messages(&agent(".1"), &[message(Role::User, "hi")]);
    logs.flush();
    let names: Vec<_> = fs::read_dir(dir.path().join("logs/.1"))
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(names, ["context.md"]);
    assert!(logs.raw_layer::<tracing_subscriber::Registry>().is_none());
}

#[test]
fn nobody_else_can_read_the_logs() {
    let dir = tempfile::tempdir().unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    logs.messages(&agent("a"), &[message(Role::User, "hi")]);
    logs.flush();
    let mode =
        |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("logs"), mode("logs/a"), mode("logs/a/context.md")], [0o700, 0o700, 0o600]);
}

#[test]
fn a_link_in_the_log_directory_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("precious");
    fs::write(&target, "").unwrap();
    fs::create_dir_all(dir.path().join("logs/file")).unwrap();
    fs::create_dir(dir.path().join("elsewhere")).unwrap();
    symlink(&target, dir.path().join("logs/file/context.md")).unwrap();
    symlink(dir.path().join("elsewhere"), dir.path().join("logs/dir")).unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    for name in ["file", "dir", "fine"] {
        logs.messages(&agent(name), &[message(Role::User, "hi")]);
    }
    logs.flush();
    assert_eq!(fs::read_to_string(&target).unwrap(), "");
    assert_eq!(fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
    assert!(dir.path().join("logs/fine/context.md").exists());
}

/// An agent's command can put a link in the place of a directory of its project.
#[test]
fn a_link_in_place_of_the_directory_leads_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir(root.join("elsewhere")).unwrap();
    symlink(root.join("elsewhere"), root.join(".nexus3")).unwrap();
    let options = Options { dir: root.join(".nexus3/logs"), verbose: true, raw: true };
    let logs = AgentLogFiles::start(options).unwrap();
    logs.messages(&agent("a"), &[message(Role::User, "hi")]);
    logs.flush();
    assert_eq!(fs::read_dir(root.join("elsewhere")).unwrap().count(), 0);
}

/// A rename must not move what lies elsewhere: not through a link to a directory with such a name in it, nor the link.
#[test]
fn a_rename_moves_nothing_that_is_not_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("elsewhere/bin")).unwrap();
    symlink(root.join("elsewhere"), root.join("link")).unwrap();
    fs::create_dir(root.join("logs")).unwrap();
    symlink(root.join("elsewhere"), root.join("logs/bin")).unwrap();
    for place in ["link", "link/deeper/../.", "logs"] {
        let options = Options { dir: root.join(place), verbose: true, raw: true };
        let logs = AgentLogFiles::start(options).unwrap();
        logs.renamed(&agent("bin"), &agent("bin_old"));
        logs.flush();
        assert!(root.join("elsewhere/bin").is_dir(), "{place}");
        assert!(root.join("logs/bin").is_symlink(), "{place}");
    }
}

/// Appending would change the file under its other name too.
#[test]
fn a_file_with_a_second_name_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    fs::write(&precious, "").unwrap();
    fs::create_dir_all(dir.path().join("logs/a")).unwrap();
    fs::hard_link(&precious, dir.path().join("logs/a/context.md")).unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    logs.messages(&agent("a"), &[message(Role::User, "hi")]);
    logs.flush();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "");
}

#[test]
fn what_another_user_planted_is_neither_written_nor_moved() {
    const OTHER: Option<u32> = Some(65_534);
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    for planted in ["logs/file", "logs/dir"] {
        fs::create_dir_all(dir.path().join(planted)).unwrap();
    }
    fs::write(logs.join("file/context.md"), "").unwrap();
    let given = chown(logs.join("file/context.md"), OTHER, None)
        .and_then(|()| chown(logs.join("dir"), OTHER, None));
    if given.is_err() {
        eprintln!("only root can give files away: not tried");
        return;
    }
    let files = AgentLogFiles::start(options(dir.path())).unwrap();
    for name in ["file", "dir", "fine"] {
        files.messages(&agent(name), &[message(Role::User, "hi")]);
    }
    files.renamed(&agent("dir"), &agent("moved"));
    files.flush();
    assert_eq!(fs::read_to_string(logs.join("file/context.md")).unwrap(), "");
    assert_eq!(fs::read_dir(logs.join("dir")).unwrap().count(), 0);
    assert!(!logs.join("moved").exists() && logs.join("fine/context.md").exists());

    chown(&logs, OTHER, None).unwrap();
    files.messages(&agent("later"), &[message(Role::User, "hi")]);
    files.renamed(&agent("fine"), &agent("moved"));
    files.flush();
    assert!(!logs.join("later").exists() && !logs.join("moved").exists());
}

#[test]
fn what_was_said_cannot_steer_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    let evil = "\u{1b}[2J\u{9b}2J\u{202e}";
    let call = ToolCall::new(evil, evil, json!({ evil: evil }));
    let meta = Meta { source: Some(evil.into()), ..Meta::default() };
    let said =
        Message::new(Role::Assistant, format!("a\n{evil}"), meta).with_tool_calls(vec![call]);
    logs.messages(&agent("a"), &[Arc::new(said)]);
    tracing::subscriber::with_default(
        tracing_subscriber::registry().with(logs.raw_layer()),
        || {
            tracing::info_span!(TURN_SPAN, agent_id = "a").in_scope(|| {
                tracing::debug!(target: RAW_TARGET, kind = "chunk", body = evil);
            });
        },
    );
    logs.flush();
    for name in ["context.md", "verbose.md", "raw.jsonl"] {
        let text = fs::read_to_string(dir.path().join("logs/a").join(name)).unwrap();
        assert!(
            !text.contains(|c: char| c != '\n' && c.is_control() || c == '\u{202e}'),
            "{text:?}"
        );
        assert!(text.contains("[2J"), "{text}");
    }
    assert_eq!(raw_lines(dir.path(), "a")[0]["body"], evil, "the value is the same");
}

#[test]
fn a_directory_that_cannot_be_made_loses_entries_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("logs"), "a file in the way").unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    logs.messages(&agent("a"), &[message(Role::User, "lost")]);
    logs.flush();
    fs::remove_file(dir.path().join("logs")).unwrap();
    logs.messages(&agent("a"), &[message(Role::User, "kept")]);
    logs.flush();
    let text = fs::read_to_string(dir.path().join("logs/a/context.md")).unwrap();
    assert!(text.contains("kept") && !text.contains("lost"));
}

#[test]
fn a_full_file_makes_room_for_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let entry = |text: &str| Entry::Messages {
        agent: agent("a"),
        messages: vec![message(Role::User, text)],
    };
    let entry_bytes = "## user · 2026-01-02T03:04:05.678Z\n\n1\n\n".len() as u64;
    let options = Options { verbose: false, ..options(dir.path()) };
    let mut writer = Writer::with_file_bytes_max(options, 2 * entry_bytes);
    let exists = |name: &str| dir.path().join("logs/a").join(name).exists();
    writer.write(entry("1"));
    writer.write(entry("2"));
    assert!(exists("context.md") && !exists("context.md.1"), "exactly full is not too full");
    writer.write(entry("3"));
    let read = |name: &str| fs::read_to_string(dir.path().join("logs/a").join(name)).unwrap();
    assert!(read("context.md.1").contains("\n2\n"));
    assert!(read("context.md").contains("\n3\n") && !read("context.md").contains("\n2\n"));
}

#[test]
fn a_log_goes_with_its_agents_name() {
    let dir = tempfile::tempdir().unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    let read = |name: &str| {
        fs::read_to_string(dir.path().join("logs").join(name).join("context.md"))
            .unwrap_or_default()
    };
    logs.messages(&agent("a"), &[message(Role::User, "one")]);
    logs.renamed(&agent("a"), &agent("b"));
    logs.messages(&agent("b"), &[message(Role::User, "two")]);
    logs.messages(&agent("a"), &[message(Role::User, "another agent")]);
    logs.renamed(&agent("nobody"), &agent("c"));
    // The name has a log already, which is not overwritten.
    logs.renamed(&agent("a"), &agent("b"));
    logs.messages(&agent("b"), &[message(Role::User, "three")]);
    logs.flush();
    let said = read("b");
    assert!(said.contains("one") && said.contains("two") && said.contains("three"), "{said}");
    assert!(read("a").contains("another agent"));
}

#[test]
fn a_full_queue_loses_entries_without_waiting() {
    let (queue, entries) = Queue::new();
    let push = |text: &str| {
        queue
            .push(Entry::Messages { agent: agent("a"), messages: vec![message(Role::User, text)] });
    };
    let waiting = || std::iter::from_fn(|| entries.try_recv().ok()).count();
    (0..=QUEUE_ENTRIES_MAX).for_each(|_| push(""));
    assert_eq!(waiting(), QUEUE_ENTRIES_MAX);

    push(&"x".repeat(QUEUE_BYTES_MAX));
    push("y");
    assert_eq!(waiting(), 1);
    assert_eq!(queue.bytes.load(Ordering::Relaxed), QUEUE_BYTES_MAX);

    drop(entries);
    push("the writer is gone");
    queue.flush(Instant::now() + Duration::from_secs(60));
}

fn raw_lines(dir: &Path, agent: &str) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("logs").join(agent).join("raw.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Two agents use one provider at once, in tasks that hop between threads and start further tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn provider_traffic_reaches_the_agent_that_caused_it() {
    const CALLS: usize = 200;

    async fn provider_call(number: usize, said_by: String) {
        tracing::debug!(target: RAW_TARGET, kind = "request", endpoint = "/v1", number, body = %said_by);
        tokio::task::yield_now().await;
        let nested = async move {
            tracing::debug!(target: RAW_TARGET, kind = "chunk", number, body = said_by);
        };
        let span = tracing::debug_span!("http", number);
        tokio::spawn(nested.instrument(span).with_current_subscriber()).await.unwrap();
    }

    let dir = tempfile::tempdir().unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(logs.raw_layer()));
    let turns = ["alpha", "beta"].map(|name| {
        let turn = async move {
            for number in 0..CALLS {
                provider_call(number, name.to_string()).await;
            }
        };
        let id = agent(name);
        let span = tracing::dispatcher::with_default(
            &dispatch,
            || tracing::info_span!(TURN_SPAN, agent_id = %id),
        );
        tokio::spawn(turn.instrument(span).with_subscriber(dispatch.clone()))
    });
    for turn in turns {
        turn.await.unwrap();
    }
    logs.flush();
    for name in ["alpha", "beta"] {
        let lines = raw_lines(dir.path(), name);
        assert_eq!(lines.len(), 2 * CALLS, "{name}");
        for (index, line) in lines.iter().enumerate() {
            assert_eq!((&line["body"], &line["number"]), (&json!(name), &json!(index / 2)));
        }
    }
}

#[test]
fn raw_lines_hold_the_fields_and_json_bodies_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    tracing::subscriber::with_default(
        tracing_subscriber::registry().with(logs.raw_layer()),
        || {
            tracing::debug!(target: RAW_TARGET, kind = "request", "outside every turn");
            tracing::info_span!("turn", agent_id = "../evil").in_scope(|| {
                tracing::debug!(target: RAW_TARGET, kind = "request", "not an agent's name");
            });
            let late = tracing::info_span!("turn", agent_id = tracing::field::Empty);
            late.record("agent_id", "a");
            late.in_scope(|| {
            tracing::info!("another target");
            tracing::debug!(target: RAW_TARGET, kind = "response", status = 200, body = "{\"x\":\n1}");
            tracing::debug!(target: RAW_TARGET, kind = "chunk", body = "data: {\n");
            tracing::debug!(target: RAW_TARGET, kind = "chunk", body = "[".repeat(100_000));
        });
        },
    );
    logs.flush();
    let mut lines = raw_lines(dir.path(), "a");
    for line in &mut lines {
        let at = line.as_object_mut().unwrap().remove("at").unwrap();
        assert!(at.as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    }
    assert_eq!(lines[0], json!({"kind": "response", "status": 200, "body": {"x": 1}}));
    assert_eq!(lines[1], json!({"kind": "chunk", "body": "data: {\n"}));
    assert_eq!(lines[2]["body"].as_str().unwrap().len(), 100_000);
    assert_eq!(lines.len(), 3);
    assert_eq!(fs::read_dir(dir.path().join("logs")).unwrap().count(), 1);
}

#[test]
fn what_stands_beside_the_text_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let logs = AgentLogFiles::start(options(dir.path())).unwrap();
    let image = Attachment {
        kind: AttachmentKind::Image,
        media_type: "image/png".into(),
        name: Some("a\u{1b}[2J.png".into()),
        source: Source::Blob(Blob::new(*b"bytes")),
    };
    let said = Message::of_parts(Role::User, vec![Part::Attachment(image)], Meta::default());
    logs.messages(&agent("a"), &[Arc::new(said)]);
    logs.flush();
    let context = fs::read_to_string(dir.path().join("logs/a/context.md")).unwrap();
    assert!(context.contains("[An image, a\\u{1b}[2J.png, 5 bytes]"), "{context}");
    assert!(!context.contains("bytes]bytes") && context.contains("## user"));
}
