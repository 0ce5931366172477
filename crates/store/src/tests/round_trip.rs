//! Whatever is stored comes back as it was.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use nexus_core::agent::AgentSettings;
use nexus_core::mcp::{McpReach, OwnServer, ServerSource};
use nexus_core::message::{
    Attachment, AttachmentKind, Blob, Made, Message, Meta, Origin, Part, Role, SharedMessage,
    Source, Stop, StopReason, Thought, ToolCall,
};
use nexus_core::permission::{Grants, Level, Permissions, Reach};
use nexus_core::store::{AgentQuery, AgentRecord, Progress, Ticket};
use nexus_core::usage::{Bill, Cost, Usage};
use nexus_core::{AgentId, TurnId};
use proptest::option;
use proptest::prelude::*;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::super::agent::{self, Step};
use super::super::log::History;
use super::super::owner::Owner;
use super::super::record::{AgentRow, MessageRow};
use super::super::schema;

/// Every text, with the characters that databases and JSON trip over.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[\0\"\\\\\n{}\u{feff}\u{1f600}]{0,8}"]
}

fn name() -> impl Strategy<Value = AgentId> {
    "[.]?[A-Za-z0-9][A-Za-z0-9_-]{0,20}".prop_map(|name| AgentId::parse(&name).unwrap())
}

fn time() -> impl Strategy<Value = Timestamp> {
    let bounds = Timestamp::MIN.as_microsecond()..=Timestamp::MAX.as_microsecond();
    bounds.prop_map(|micros| Timestamp::from_microsecond(micros).unwrap())
}

fn turn() -> impl Strategy<Value = TurnId> {
    let digits = any::<i64>().prop_map(|number| TurnId::Text(number.to_string().into()));
    let words = text().prop_map(|text| TurnId::Text(text.into()));
    prop_oneof![any::<i64>().prop_map(TurnId::Number), digits, words]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        let object = prop::collection::btree_map(text(), inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            object.prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn call() -> impl Strategy<Value = ToolCall> {
    (text(), text(), json_value(), option::of(any::<u64>()))
        .prop_map(|(id, name, arguments, cut)| ToolCall { id, name, arguments, cut })
}

fn part() -> impl Strategy<Value = Part> {
    // A payload of null is none.
    let payload = option::of(json_value().prop_filter("null", |value| !value.is_null()));
    let payload = payload.prop_map(|value| value.map(|value| value.to_string().into()));
    let thought = (text(), payload).prop_map(|(text, payload)| Thought { text, payload });
    let kind = prop_oneof![
        Just(AttachmentKind::Image),
        any::<u32>().prop_map(|pages| AttachmentKind::File { pages }),
    ];
    let bytes = prop::collection::vec(any::<u8>(), 0..9);
    let source = prop_oneof![
        bytes.prop_map(|bytes| Source::Blob(Blob::new(bytes))),
        text().prop_map(Source::Address),
    ];
    let attachment =
        (kind, text(), option::of(text()), source).prop_map(|(kind, media_type, name, source)| {
            Part::Attachment(Attachment { kind, media_type, name, source })
        });
    prop_oneof![
        text().prop_map(Part::Text),
        text().prop_map(Part::Context),
        thought.prop_map(Part::Thought),
        call().prop_map(Part::Call),
        attachment,
    ]
}

fn bill() -> impl Strategy<Value = Bill> {
    (any::<[u64; 9]>(), any::<bool>()).prop_map(|(numbers, estimated)| {
        let [
            calls,
            unknown_calls,
            cost,
            input,
            cache_read,
            cache_write,
            output,
            reasoning,
            discarded,
        ] = numbers;
        let usage =
            Usage { input, cache_read, cache_write, output, reasoning, discarded, estimated };
        Bill { usage, cost: Cost(cost), calls, unknown_calls }
    })
}

fn made() -> impl Strategy<Value = Arc<Made>> {
    let reason = prop::sample::select(vec![
        StopReason::EndTurn,
        StopReason::MaxTokens,
        StopReason::Refusal,
        StopReason::Other,
    ]);
    let origin = (text(), text(), text()).prop_map(|(provider, wire, model)| Origin {
        provider,
        wire,
        model,
    });
    (origin, any::<u64>(), reason, option::of(json_value()), bill()).prop_map(
        |(origin, briefing, reason, details, bill)| {
            // Nothing is said of it by saying null.
            let details = details.filter(|details| !details.is_null());
            Arc::new(Made { origin, briefing, stop: Stop { reason, details }, bill })
        },
    )
}

fn message() -> impl Strategy<Value = SharedMessage> {
    let role = prop::sample::select(vec![Role::User, Role::Assistant, Role::Tool, Role::Summary]);
    let meta = (
        time(),
        option::of(turn()),
        option::of(text()),
        option::of(name()),
        any::<[bool; 2]>(),
        option::of(any::<usize>()),
        option::of(made()),
    )
        .prop_map(|(at, turn, source, source_agent, [interrupted, failed], covers, made)| Meta {
            at,
            turn,
            source,
            source_agent,
            interrupted,
            covers,
            failed,
            made,
        });
    let plain = (text(), prop::collection::vec(call(), 0..3)).prop_map(|(text, calls)| {
        [Part::Text(text)].into_iter().chain(calls.into_iter().map(Part::Call)).collect()
    });
    let parts = prop_oneof![plain, prop::collection::vec(part(), 0..5)];
    (role, parts, option::of(text()), meta).prop_map(|(role, parts, answers, meta)| {
        let mut message = Message::of_parts(role, parts, meta);
        message.tool_call_id = answers;
        Arc::new(message)
    })
}

fn paths() -> impl Strategy<Value = BTreeSet<PathBuf>> {
    prop::collection::btree_set(text().prop_map(PathBuf::from), 0..3)
}

fn permissions() -> impl Strategy<Value = Permissions> {
    let level = prop::sample::select(vec![Level::Sandboxed, Level::Trusted, Level::Yolo]);
    let reach = || prop_oneof![Just(Reach::Anywhere), paths().prop_map(Reach::Beneath)];
    let tools = prop::collection::btree_set(text(), 0..3);
    let mcp = || prop_oneof![Just(McpReach::Everything), Just(McpReach::nothing())];
    (level, text(), reach(), reach(), paths(), tools, any::<[bool; 3]>(), mcp()).prop_map(
        |(
            level,
            preset,
            read,
            write,
            blocked,
            disabled_tools,
            [network, commands, agents],
            mcp,
        )| {
            Permissions {
                level,
                preset,
                read,
                write,
                blocked,
                disabled_tools,
                network,
                commands,
                agents,
                mcp,
            }
        },
    )
}

fn progress() -> impl Strategy<Value = Progress> {
    (any::<[bool; 2]>(), any::<u32>()).prop_map(
        |([halted_at_iteration_limit, should_shutdown], last_iteration_count)| Progress {
            halted_at_iteration_limit,
            last_iteration_count,
            should_shutdown,
        },
    )
}

fn grants() -> impl Strategy<Value = Grants> {
    let paths = || prop::collection::btree_set(text().prop_map(PathBuf::from), 0..3);
    let dirs = prop::collection::btree_map(text(), paths(), 0..3);
    (paths(), dirs).prop_map(|(write_paths, exec_dirs)| Grants {
        write_paths,
        exec_dirs,
        mcp: serde_json::from_str(r#"{"s":{"t":"0a"}}"#).unwrap(),
    })
}

fn agent_record() -> impl Strategy<Value = AgentRecord> {
    let parent = "[A-Za-z0-9][A-Za-z0-9_-]{0,20}";
    let lineage = (name(), option::of(parent), any::<u32>());
    let rights = (permissions(), option::of(permissions()));
    let settings = (option::of(text()), text(), option::of(text()), grants());
    (lineage, time(), rights, settings, progress(), bill()).prop_map(
        |((id, parent, depth), created_at, (permissions, ceiling), settings, progress, bill)| {
            let (model, cwd, system_prompt, grants) = settings;
            AgentRecord {
                id,
                created_at,
                born: 1,
                // A temporary one, which need not be stored.
                parent: parent.map(|parent| AgentId::parse(&format!(".{parent}")).unwrap()),
                depth,
                ceiling,
                settings: AgentSettings {
                    permissions,
                    grants,
                    model,
                    reasoning: None,
                    cwd: cwd.into(),
                    directories: ["/further".into()].into(),
                    system_prompt,
                    tickets: vec![Ticket { step: 3, call: "c".into(), what: "t".into() }],
                    servers: vec![OwnServer {
                        id: u64::MAX,
                        name: "s".into(),
                        source: ServerSource::Agent,
                        config: [("command".to_owned(), "x".into())].into_iter().collect(),
                        whole: None,
                    }],
                },
                progress,
                bill,
                root: 0,
                message_count: 0,
                last_action_at: None,
            }
        },
    )
}

/// Stores an agent with its messages and reads it back, without a file.
fn store_and_read(
    record: &AgentRecord,
    messages: &[SharedMessage],
    progress: Option<Progress>,
) -> (AgentRecord, Vec<SharedMessage>) {
    let home = tempfile::tempdir().unwrap();
    let mut me = Owner::new(home.path(), super::super::SILENCE_MAX);
    let mut db = Connection::open_in_memory().unwrap();
    schema::migrate(&mut db, schema::STEPS).unwrap();
    let row = AgentRow::encode(record).unwrap();
    let lease = agent::create(&db, &mut me, &record.id, &row).unwrap();
    let rows: Vec<_> = messages.iter().map(|m| MessageRow::encode(m).unwrap()).collect();
    let step = Step { first_index: 0, rows: &rows, progress, bill: None, brief: None };
    agent::append(&db, &me, lease, &step).unwrap();
    let query = AgentQuery { after: None, limit: 2, line_of: None, working: false };
    let [listed] = agent::page(&db, &query).unwrap().agents.try_into().unwrap();
    let [own] = agent::lineage(&db, &record.id).unwrap().try_into().unwrap();
    let (read, _) = agent::read(&db, lease.agent).unwrap();
    assert_eq!(read.root, lease.agent.0.unsigned_abs());
    let read = AgentRecord { root: 0, ..read };
    assert_eq!(format!("{:?}", listed.record), format!("{read:?}"));
    assert_eq!(format!("{own:?}"), format!("{read:?}"));
    let length = i64::try_from(messages.len()).unwrap();
    let whole = History::of(&db, lease.agent.0, length).unwrap().whole(&db).unwrap();
    // A page shows the same but for the bytes of what is attached.
    let page = agent::messages(&db, lease.agent, 0, 1000, usize::MAX).unwrap();
    assert_eq!(page.len(), whole.len());
    for (paged, whole) in page.iter().zip(&whole) {
        let sizes = |message: &Message| -> Vec<String> {
            message.attachments().map(|it| format!("{:?}", it.source)).collect()
        };
        assert_eq!((paged.text(), sizes(paged)), (whole.text(), sizes(whole)));
        let held = |message: &Message| message.memory_bytes();
        assert!(held(paged) <= held(whole));
    }
    (read, whole)
}

fn assert_same(read: &Message, written: &Message) {
    assert_eq!(read.role, written.role);
    assert_eq!(read.parts, written.parts);
    assert_eq!(read.tool_call_id, written.tool_call_id);
    assert_eq!(read.meta, written.meta);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn agents_and_messages_come_back_as_they_were(
        record in agent_record(),
        messages in prop::collection::vec(message(), 0..4),
        progress in option::of(progress()),
    ) {
        let (read, read_messages) = store_and_read(&record, &messages, progress);
        let message_count = messages.len() as u64;
        let last_action_at = messages.last().map(|message| message.meta.at);
        let progress = progress.unwrap_or(record.progress);
        let expected = AgentRecord { progress, message_count, last_action_at, ..record };
        // The record's fields all print what they hold.
        prop_assert_eq!(format!("{read:?}"), format!("{expected:?}"));
        prop_assert_eq!(read_messages.len(), messages.len());
        for (read, written) in read_messages.iter().zip(&messages) {
            assert_same(read, written);
        }
    }
}

/// The deepest arguments that serde_json lets in. They must come back although the row adds levels of its own.
#[test]
fn deeply_nested_arguments_come_back() {
    let text = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let arguments: Value = serde_json::from_str(&text).unwrap();
    let call = Part::Call(ToolCall::new("1", "t", arguments));
    let written = Arc::new(Message::of_parts(Role::Assistant, vec![call], Meta::default()));
    let record = super::agent("a");
    let (_, read) = store_and_read(&record, std::slice::from_ref(&written), None);
    assert_same(&read[0], &written);
}

#[test]
fn a_plain_message_has_no_extra_column() {
    let plain = Arc::new(Message::new(Role::User, "hi", Meta::default()));
    assert_eq!(MessageRow::encode(&plain).unwrap().extra(), None);
}

#[test]
fn the_order_of_arguments_is_kept() {
    let arguments = json!({"z": 1, "a": 2});
    let call = Part::Call(ToolCall::new("1", "t", arguments.clone()));
    let written = Message::of_parts(Role::Assistant, vec![call], Meta::default());
    let (_, read) = store_and_read(&super::agent("a"), &[Arc::new(written)], None);
    assert_eq!(read[0].calls().next().unwrap().arguments.to_string(), arguments.to_string());
}

#[test]
fn a_path_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let path = PathBuf::from(std::ffi::OsString::from_vec(vec![b'/', 0xff]));
    let mut in_cwd = super::agent("a");
    in_cwd.settings.cwd = path.clone();
    let mut in_blocked = super::agent("a");
    in_blocked.settings.permissions.blocked.insert(path);
    for record in [in_cwd, in_blocked] {
        assert!(AgentRow::encode(&record).is_err());
    }
}
