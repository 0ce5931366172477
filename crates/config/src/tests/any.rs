//! Files nobody would write: whatever the bytes, loading ends in a configuration or an error, and a stranger's file has
//! no power.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "default_model",
        "providers",
        "openai",
        "models",
        "m",
        "id",
        "type",
        "base_url",
        "wire",
        "reasoning",
        "effort",
        "fallback",
        "price",
        "extra_body",
        "images",
        "permissions",
        "presets",
        "extends",
        "p",
        "q",
        "allowed_paths",
        "tool_permissions",
        "enabled",
        "server",
        "host",
        "port",
        "context",
        "instruction_files",
        "compaction",
        "trigger_threshold",
        "terminal",
        "editor",
        "preset",
        "tool_lines",
        "sandboxed",
        "/x",
        "~",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|entries| Value::Object(
                entries.into_iter().map(|(key, value)| (key.into(), value)).collect()
            )),
        ]
    })
}

/// Tries many values in one tree of files, which is what makes this quick enough to run always.
fn for_all<T: std::fmt::Debug>(values: impl Strategy<Value = T>, test: impl Fn(T)) {
    let config =
        ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&values, |value| {
        test(value);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn arbitrary_bytes_are_refused_or_taken_but_never_panic() {
    let tree = Tree::new();
    for_all(prop::collection::vec(any::<u8>(), 0..200), |bytes| {
        tree.put("home", &bytes);
        tree.put("a/b", &bytes);
        drop(tree.load());
    });
}

#[test]
fn arbitrary_json_is_refused_or_taken_but_never_panics() {
    let tree = Tree::new().trust("a/b/c");
    for_all((any_json(), any_json()), |(home, near)| {
        tree.put("home", home.to_string());
        tree.put("a/b/c", near.to_string());
        drop(tree.load());
    });
}

/// Whatever an untrusted directory says, it cannot touch providers, permissions or the server.
#[test]
fn a_stranger_changes_nothing_that_matters() {
    let home =
        r#"{"providers": {"openai": {}}, "server": {"port": 9}, "terminal": {"preset": "worker"}}"#;
    let tree = Tree::new().write("home", home);
    let before = tree.load().unwrap();
    for_all(any_json(), |near| {
        tree.put("a/b/c", near.to_string());
        if let Ok(after) = tree.load() {
            assert_eq!(after.server, before.server);
            assert_eq!(after.permissions, before.permissions);
            assert_eq!(after.terminal.preset, before.terminal.preset);
            assert_eq!(after.terminal.editor, before.terminal.editor);
            assert_eq!(format!("{:?}", after.providers), format!("{:?}", before.providers));
        }
    });
}
