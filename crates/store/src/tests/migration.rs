//! A home of an earlier release opens, reads as it did and goes on.

use nexus_core::agent::AgentSettings;
use nexus_core::permission::{Grants, Permissions, Preset, Reach};
use nexus_core::store::{AgentStore, ApprovalStatus, ApprovalStore, SessionStore, StoreError};
use rusqlite::{Connection, params};

use super::super::schema;
use super::{home, id, open, step, texts};

const TRUSTED: &str = r#"{"level":"trusted","preset":"trusted","read":"anywhere","write":{"beneath":["/w","/\"x\""]},"blocked":["/w/secret"],"disabled_tools":["exec"],"network":true,"commands":true,"agents":true}"#;

fn trusted() -> Permissions {
    let mut permissions = Preset::built_in("trusted").unwrap().apply("/w".as_ref(), &[]);
    permissions.write = Reach::beneath(["/w".into(), "/\"x\"".into()]);
    permissions.blocked.insert("/w/secret".into());
    permissions.disabled_tools.insert("exec".into());
    // There were no MCP servers then, and what is not said is not allowed.
    permissions.mcp = Default::default();
    permissions
}

/// A row as it was when settings were columns.
#[derive(Default)]
struct OldAgent {
    key: i64,
    name: &'static str,
    parent: Option<&'static str>,
    permissions: &'static str,
    ceiling: Option<&'static str>,
    model: Option<&'static str>,
    system_prompt: Option<&'static str>,
    grants: Option<&'static str>,
    saved: bool,
    fence: i64,
}

/// With and without each of what may be missing.
fn fill(db: &Connection) {
    let plain =
        OldAgent { key: 1, name: "plain", permissions: TRUSTED, fence: 7, ..OldAgent::default() };
    let full = OldAgent {
        key: 2,
        name: "full",
        parent: Some("plain"),
        permissions: TRUSTED,
        ceiling: Some(TRUSTED),
        model: Some("m"),
        system_prompt: Some("Say \"hi\"\n\0\u{1f600}"),
        grants: Some(r#"{"write_paths":["/w/out"],"exec_dirs":{"bash_safe":["/w"]}}"#),
        saved: false,
        fence: 8,
    };
    let spoilt = OldAgent {
        key: 4,
        name: "spoilt",
        permissions: "{",
        grants: Some("["),
        fence: 9,
        ..OldAgent::default()
    };
    let copy = OldAgent { key: 5, name: "copy", saved: true, fence: 0, ..plain };
    for it in [plain, full, spoilt, copy] {
        db.execute(
            "INSERT INTO agents (id, name, created_at, parent, depth, permissions, ceiling, model, cwd,
                 system_prompt, grants, saved, kept)
             VALUES (?1, ?2, 1000000, ?3, 0, ?4, ?5, ?6, '/w/ä', ?7, ?8, ?9, ?9)",
            params![
                it.key,
                it.name,
                it.parent,
                it.permissions,
                it.ceiling,
                it.model,
                it.system_prompt,
                it.grants,
                it.saved
            ],
        )
        .unwrap();
        let head = "INSERT INTO heads VALUES (?1, ?1, 0, 0, 0, NULL, ?2, 5000000)";
        db.execute(head, params![it.key, it.fence]).unwrap();
    }
    db.execute_batch(
        "UPDATE leases SET last_fence = 9;
         INSERT INTO messages (seq, log_id, idx, role, at, content) VALUES (1, 1, 0, 'user', 0, 'hi');
         INSERT INTO runs VALUES (1, 0, 1);
         INSERT INTO approvals VALUES ('x', 'plain', 'exec', '{}', '', 0, 'denied', 'gone');",
    )
    .unwrap();
}

#[tokio::test]
async fn settings_that_were_columns_are_read_and_written() {
    let home = home();
    let mut db = Connection::open(home.path().join("nexus3.db")).unwrap();
    schema::migrate(&mut db, &schema::STEPS[..4]).unwrap();
    fill(&db);
    drop(db);

    let store = open(&home);
    let plain = AgentSettings {
        permissions: trusted(),
        grants: Grants::default(),
        model: None,
        reasoning: None,
        cwd: "/w/ä".into(),
        directories: Default::default(),
        system_prompt: None,
        tickets: Vec::new(),
        servers: Vec::new(),
    };
    let mut stored = store.acquire(&id("plain")).await.unwrap().unwrap();
    assert_eq!(stored.record.settings, plain);
    assert_eq!((stored.record.ceiling, stored.record.born), (None, 7));
    let full = store.lineage(&id("full")).await.unwrap();
    assert_eq!(full.len(), 2);
    let grants = Grants {
        write_paths: ["/w/out".into()].into(),
        exec_dirs: [("bash_safe".into(), ["/w".into()].into())].into(),
        ..Grants::default()
    };
    let expected = AgentSettings {
        grants,
        model: Some("m".into()),
        system_prompt: Some("Say \"hi\"\n\0\u{1f600}".into()),
        ..plain.clone()
    };
    assert_eq!(full[0].settings, expected);
    assert_eq!((full[0].ceiling.as_ref(), full[0].born), (Some(&trusted()), 8));
    let spoilt = store.session(&id("spoilt")).await;
    assert!(matches!(spoilt, Err(StoreError::Failed(_))), "as before, and alone: {spoilt:?}");

    stored.record.settings.model = Some("new".into());
    store.update(stored.lease, stored.record.settings).await.unwrap();
    store.append(stored.lease, step(1, &["ho"])).await.unwrap();
    assert_eq!(texts(&store, "plain").await, ["hi", "ho"]);
    let copy = store.load(&id("copy"), None).await.unwrap().unwrap();
    assert_eq!(copy.record.settings, plain);
    assert!(copy.record.born > 9);
    let denied = store.approval("x").await.unwrap().unwrap();
    assert_eq!(denied.record.answer.status, ApprovalStatus::Denied);
}

#[test]
fn memories_that_are_there_are_counted() {
    let mut db = Connection::open_in_memory().unwrap();
    let before =
        schema::STEPS.iter().position(|step| step.contains("TRIGGER memory_added")).unwrap();
    schema::migrate(&mut db, &schema::STEPS[..before]).unwrap();
    db.execute_batch(
        "INSERT INTO memory_scopes (id, kind, name) VALUES (1, 0, ''), (2, 1, 'u'), (3, 2, 'empty');
         INSERT INTO memories
             (seq, id, scope, digest, source, created_at, superseded_by, subjects, content)
         VALUES (2, x'02', 1, 0, 'me', 0, NULL, '[]', 'tea'), (1, x'01', 1, 0, 'me', 0, 2, '[\"a\"]', 'ä'),
             (3, x'03', 2, 0, 'you', 0, NULL, '[]', 'milk');",
    )
    .unwrap();
    schema::migrate(&mut db, schema::STEPS).unwrap();
    let mut counted = db.prepare("SELECT memories, bytes FROM memory_scopes ORDER BY id").unwrap();
    let counted = counted.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let counted: Vec<(i64, i64)> = counted.map(Result::unwrap).collect();
    assert_eq!(counted, [(2, 7 + 9), (1, 9), (0, 0)]);
}
