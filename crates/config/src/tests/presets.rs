//! Custom presets: each can only take away from what it extends.

use std::collections::BTreeSet;

use nexus_core::permission::Level;

use super::*;

fn paths(paths: &[&str]) -> BTreeSet<PathBuf> {
    paths.iter().map(PathBuf::from).collect()
}

fn presets(presets: Value) -> Value {
    json!({"permissions": {"presets": presets}})
}

#[test]
fn a_chain_of_presets_adds_up() {
    let config = load(&presets(json!({
        "reviewer": {"extends": "reader", "allowed_paths": ["/srv/app/src"], "blocked_paths": ["/srv/app/keys"],
                     "tool_permissions": {"glob": {"enabled": false}, "read_file": {"enabled": true}}},
        "reader": {"extends": "worker", "allowed_paths": ["/srv/app", "~/notes"], "blocked_paths": ["~/notes/private"]},
        "plain": {},
    })));
    let found = config.unwrap().permissions.presets;
    let worker = Preset::built_in("worker").unwrap();
    let reader = Preset {
        name: "reader".into(),
        extends: Some("worker".into()),
        allowed_paths: Some(paths(&["/srv/app", "/users/me/notes"])),
        blocked_paths: paths(&["/users/me/notes/private"]),
        ..worker.clone()
    };
    assert_eq!(found["reader"], reader);
    let mut disabled_tools = worker.disabled_tools;
    disabled_tools.insert("glob".into());
    let reviewer = Preset {
        name: "reviewer".into(),
        extends: Some("reader".into()),
        level: Level::Sandboxed,
        allowed_paths: Some(paths(&["/srv/app/src"])),
        blocked_paths: paths(&["/srv/app/keys", "/users/me/notes/private"]),
        disabled_tools,
        writes_nothing: true,
        mcp: None,
    };
    assert_eq!(found["reviewer"], reviewer);
    assert_eq!(
        found["plain"],
        Preset {
            name: "plain".into(),
            extends: Some("sandboxed".into()),
            ..Preset::built_in("sandboxed").unwrap()
        }
    );
}

#[test]
fn nothing_can_be_widened() {
    check_error(
        presets(
            json!({"a": {"allowed_paths": ["/x"]}, "b": {"extends": "a", "allowed_paths": ["/x/in", "/xy"]}}),
        ),
        "permissions.presets.b.allowed_paths: /xy lies outside what a allows",
    );
    check_error(
        presets(
            json!({"a": {"extends": "worker", "tool_permissions": {"write_file": {"enabled": true}}}}),
        ),
        "permissions.presets.a.tool_permissions.write_file.enabled: worker disables this tool; a preset can only narrow",
    );
    check_error(
        presets(json!({"trusted": {}})),
        "permissions.presets.trusted: trusted is built in and cannot be redefined",
    );
}

#[test]
fn extends_leads_somewhere() {
    check_error(
        presets(json!({"a": {"extends": "b"}})),
        "permissions.presets.a.extends: there is no preset \"b\"",
    );
    let circle = "the presets extend each other in a circle";
    check_error(
        presets(json!({"a": {"extends": "a"}})),
        &format!("permissions.presets.a.extends: {circle}"),
    );
    check_error(
        presets(json!({"a": {"extends": "b"}, "b": {"extends": "c"}, "c": {"extends": "b"}})),
        &format!("permissions.presets.c.extends: {circle}"),
    );
}

#[test]
fn the_default_preset_exists_and_is_not_yolo() {
    let with_default = |name: &str| json!({"permissions": {"default_preset": name, "presets": {"mine": {}, "wild": {"extends": "yolo"}}}});
    for name in ["sandboxed", "trusted", "worker", "mine"] {
        assert_eq!(load(&with_default(name)).unwrap().permissions.default_preset, name);
    }
    check_error(with_default("other"), "permissions.default_preset: there is no preset \"other\"");
    for name in ["yolo", "wild"] {
        let reason = "yolo is given by a person at the terminal, never by default";
        check_error(with_default(name), &format!("permissions.default_preset: {reason}"));
    }
}

#[test]
fn paths_are_absolute_and_real() {
    let tree = Tree::new();
    let root = tree.root.path().canonicalize().unwrap();
    std::os::unix::fs::symlink(root.join("a"), root.join("link")).unwrap();
    let link = root.join("link/b/not yet");
    let value = presets(json!({"p": {"blocked_paths": [link.to_str().unwrap()]}}));
    let config = tree.write("home", value.to_string()).load().unwrap();
    assert_eq!(
        config.permissions.presets["p"].blocked_paths,
        BTreeSet::from([root.join("a/b/not yet")])
    );
    check_error(
        presets(json!({"p": {"allowed_paths": ["src"]}})),
        "permissions.presets.p.allowed_paths: \"src\" is not an absolute path (or one that starts with ~/) without ..",
    );
}

#[test]
fn there_are_only_so_many() {
    let many = |count: usize| {
        presets(Value::Object((0..count).map(|number| (format!("p{number}"), json!({}))).collect()))
    };
    assert!(load(&many(256)).is_ok());
    check_error(many(257), "permissions.presets: more than 256 presets");
}

#[test]
fn the_file_that_broke_a_rule_is_named() {
    let tree = Tree::new()
        .write("home", presets(json!({"a": {"extends": "b"}, "b": {}})).to_string())
        .write("a/b/c", r#"{"permissions": {"presets": {"b": {"extends": "a"}}}}"#)
        .trust("a/b/c");
    let error = tree.error();
    assert!(
        error.starts_with("a/b/c/.nexus3/config.json: permissions.presets.b.extends: "),
        "{error}"
    );
}
