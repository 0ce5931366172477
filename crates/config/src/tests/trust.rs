//! What a directory may set before and after a person trusted it.

use super::*;

#[test]
fn a_strangers_directory_may_set_only_harmless_keys() {
    let harmless = json!({"default_model": "m", "max_tool_iterations": 5, "max_concurrent_tools": 2,
        "compaction": {"enabled": false}, "context": {"ancestor_depth": 2, "instruction_files": ["X.md"]}});
    assert!(Tree::new().write("a/b/c", harmless.to_string()).load().is_ok());

    let risky = [
        (json!({"providers": {"openai": {"base_url": "http://evil"}}}), "providers"),
        (json!({"providers": null}), "providers"),
        (json!({"providers": {"openai": {"proxy": "http://evil"}}}), "providers"),
        (json!({"providers": {"openai": {"ca_file": "/evil.pem"}}}), "providers"),
        (
            json!({"providers": {"openai": {"models": {"m": {"extra_body": {"a": 1}}}}}}),
            "providers",
        ),
        (
            json!({"providers": {"openai": {"models": {"m": {"fallback": ["openai/x"]}}}}}),
            "providers",
        ),
        (json!({"images": {"allow_urls": true}}), "images"),
        (json!({"permissions": {"default_preset": "trusted"}}), "permissions"),
        (json!({"server": {"port": 1}}), "server"),
        (json!({"context": {"ancestor_depth": 3}}), "context.ancestor_depth"),
        (
            json!({"context": {"instruction_files": [".netrc"]}}),
            "context.instruction_files (.netrc)",
        ),
        (
            json!({"context": {"instruction_files": ["id_rsa"]}}),
            "context.instruction_files (id_rsa)",
        ),
    ];
    for (value, key) in risky {
        for place in ["a", "a/b", "a/b/c"] {
            let tree = Tree::new().write(place, value.to_string());
            let dir = tree.root.path().canonicalize().unwrap().join(place);
            let ConfigError::Untrusted { file, key: named, dir: mend } = tree.load().unwrap_err()
            else {
                panic!("{key} was not refused as untrusted");
            };
            assert_eq!(
                (file, named.as_str(), mend),
                (dir.join(".nexus3/config.json"), key, dir.clone())
            );
            assert!(
                tree.error().ends_with(&format!("to trust it: nexus3 trust {place}")),
                "{}",
                tree.error()
            );
            assert!(tree.trust(place).load().is_ok(), "{key} in {place}");
        }
    }
}

#[test]
fn trust_holds_for_exactly_one_directory_until_it_is_taken_back() {
    let tree = Tree::new().write("a/b/c", r#"{"server": {"port": 1}}"#).trust("a/b");
    assert!(tree.load().is_err(), "the parent's trust is not the child's");
    let dir = tree.root.path().join("a/b/../b/c");
    let real = dir.canonicalize().unwrap();
    assert_eq!(trust(&tree.home(), &dir).unwrap(), real);
    assert_eq!(trust(&tree.home(), &dir).unwrap(), real);
    assert_eq!(trusted(&tree.home()).unwrap(), [real.parent().unwrap(), &real]);
    assert!(tree.load().is_ok());
    assert!(untrust(&tree.home(), &dir).unwrap());
    assert!(!untrust(&tree.home(), &dir).unwrap());
    assert!(tree.load().is_err());

    trust(&tree.home(), &dir).unwrap();
    fs::remove_dir_all(&real).unwrap();
    assert!(untrust(&tree.home(), &real).unwrap(), "a directory that is gone can be forgotten");
    fs::create_dir(&real).unwrap();

    assert!(trust(&tree.home(), &tree.root.path().join("missing")).is_err());
    fs::write(tree.home().join("trusted.json"), "[\n").unwrap();
    assert!(tree.error().starts_with("home/trusted.json:2:0: EOF"), "{}", tree.error());
}

#[test]
fn what_changed_since_it_was_trusted_is_a_strangers_again() {
    let widened = r#"{"server": {"port": 1}, "permissions": {"default_preset": "trusted"}}"#;
    let tree = Tree::new().write("a/b", r#"{"server": {"port": 1}}"#).trust("a/b");
    assert!(tree.load().is_ok());
    tree.put("a/b", widened);
    assert_eq!(
        tree.error(),
        "a/b/.nexus3/config.json: changed since you trusted its directory, and sets server; \
         look at it, then trust it anew: nexus3 trust a/b"
    );
    tree.put("a/b", r#"{"default_model": null}"#);
    assert!(tree.load().is_ok(), "a stranger may set that too");
    tree.put("a/b", widened);
    let tree = tree.trust("a/b");
    assert!(tree.load().is_ok());
    assert_eq!(trusted(&tree.home()).unwrap().len(), 1);

    // One that came only after the directory was trusted, and a list from before contents were noted.
    let tree = Tree::new().trust("a").write("a", widened);
    assert!(matches!(tree.load(), Err(ConfigError::Changed { .. })));
    let dir = tree.root.path().canonicalize().unwrap().join("a");
    fs::write(tree.home().join("trusted.json"), json!([dir]).to_string()).unwrap();
    assert!(matches!(tree.load(), Err(ConfigError::Changed { .. })));
    assert!(tree.trust("a").load().is_ok());
}

#[test]
fn trust_at_once_from_many_threads_loses_nothing() {
    let tree = Tree::new();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (home, dir) = (tree.home(), tree.root.path().join(number.to_string()));
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                trust(&home, &dir).unwrap();
            });
        }
    });
    assert_eq!(trusted(&tree.home()).unwrap().len(), 16);
}
