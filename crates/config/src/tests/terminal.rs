//! The section `terminal`: what it says, and what a stranger's project may say of it.

use std::collections::BTreeMap;

use super::*;

fn terminal(value: Value) -> Terminal {
    load(&json!({ "terminal": value })).unwrap().terminal
}

#[test]
fn every_key_takes_its_values() {
    let by_default = Terminal {
        preset: "trusted".into(),
        theme: "ansi",
        wrap: Wrap::Word,
        width_max: 100,
        tool_lines: 6,
        diff_lines: 40,
        reasoning: Thoughts::Time,
        motion: true,
        plain: false,
        bell: Bell { approval: false, turn: false },
        title: true,
        editor: None,
        pager: None,
        history: true,
        keys: BTreeMap::new(),
    };
    assert_eq!(terminal(json!({})), by_default);
    let all = json!({
        "preset": "worker", "theme": "light", "wrap": "terminal", "width_max": 72, "tool_lines": 3, "diff_lines": 9,
        "reasoning": "text", "motion": false, "plain": true, "bell": "both", "title": false, "editor": "nano -w",
        "pager": "less -R", "history": false, "keys": {"tree": "ctrl-g", "redraw": ["ctrl-q", "ctrl-l"], "yank": []},
    });
    let set = Terminal {
        preset: "worker".into(),
        theme: "light",
        wrap: Wrap::Terminal,
        width_max: 72,
        tool_lines: 3,
        diff_lines: 9,
        reasoning: Thoughts::Text,
        motion: false,
        plain: true,
        bell: Bell { approval: true, turn: true },
        title: false,
        editor: Some("nano -w".into()),
        pager: Some("less -R".into()),
        history: false,
        keys: [("tree", &["ctrl-g"][..]), ("redraw", &["ctrl-q", "ctrl-l"]), ("yank", &[])]
            .map(|(action, keys)| (action.into(), keys.iter().map(|key| (*key).into()).collect()))
            .into(),
    };
    assert_eq!(terminal(all), set);
}

#[test]
fn every_word_means_what_it_says() {
    for theme in ["ansi", "mono", "light", "dark"] {
        assert_eq!(terminal(json!({ "theme": theme })).theme, theme);
    }
    assert_eq!(terminal(json!({"wrap": "word"})).wrap, Wrap::Word);
    for (word, expected) in
        [("time", Thoughts::Time), ("text", Thoughts::Text), ("off", Thoughts::Off)]
    {
        assert_eq!(terminal(json!({ "reasoning": word })).reasoning, expected);
    }
    for (word, approval, turn) in [
        ("approval", true, false),
        ("turn", false, true),
        ("both", true, true),
        ("off", false, false),
    ] {
        assert_eq!(terminal(json!({ "bell": word })).bell, Bell { approval, turn });
    }
}

#[test]
fn other_words_are_refused() {
    let check = |value: Value, expected: &str| check_error(json!({ "terminal": value }), expected);
    let unknown =
        |word: &str, all: &str| format!("invalid value: string \"{word}\", expected one of {all}");
    check(
        json!({"theme": "neon"}),
        &format!("terminal.theme: {}", unknown("neon", "ansi, mono, light, dark")),
    );
    check(
        json!({"theme": "~/my.tmTheme"}),
        "terminal.theme: files of themes (.tmTheme) are not supported; there are ansi, mono, light, dark",
    );
    check(json!({"wrap": "no"}), &format!("terminal.wrap: {}", unknown("no", "word, terminal")));
    check(
        json!({"reasoning": "all"}),
        &format!("terminal.reasoning: {}", unknown("all", "time, text, off")),
    );
    check(
        json!({"bell": "on"}),
        &format!("terminal.bell: {}", unknown("on", "approval, turn, both, off")),
    );
    check(json!({"editor": ""}), "terminal.editor: must not be empty");
    check(
        json!({"motion": "no"}),
        "terminal.motion: invalid type: string \"no\", expected a boolean",
    );
    check(json!({"keys": []}), "terminal.keys: invalid type: sequence, expected an object");
    for keys in [json!({"tree": 1}), json!({"tree": [1]}), json!({"tree": [""]})] {
        let error = load(&json!({"terminal": {"keys": keys}})).unwrap_err().to_string();
        assert!(error.contains("terminal.keys.tree"), "{error}");
    }
}

#[test]
fn the_preset_exists_and_is_not_yolo() {
    let with = |name: &str| json!({"terminal": {"preset": name}, "permissions": {"presets": {"mine": {}, "wild": {"extends": "yolo"}}}});
    for name in ["sandboxed", "worker", "trusted", "mine"] {
        assert_eq!(load(&with(name)).unwrap().terminal.preset, name);
    }
    check_error(with("other"), "terminal.preset: there is no preset \"other\"");
    for name in ["yolo", "wild"] {
        let reason = "yolo is given by a person at the terminal, never by default";
        check_error(with(name), &format!("terminal.preset: {reason}"));
    }
}

#[test]
fn a_strangers_project_says_how_much_is_shown_and_nothing_else() {
    let home = json!({"terminal": {"preset": "worker", "tool_lines": 1}}).to_string();
    let looks = json!({"terminal": {"wrap": "terminal", "width_max": 72, "tool_lines": 3, "diff_lines": null}});
    let tree = Tree::new().write("home", &home).write("a/b/c", looks.to_string());
    let terminal = tree.load().unwrap().terminal;
    assert_eq!(
        (terminal.preset.as_str(), terminal.wrap, terminal.width_max, terminal.tool_lines),
        ("worker", Wrap::Terminal, 72, 3)
    );

    let risky = [
        (json!({"preset": "trusted"}), "terminal.preset"),
        (json!({"preset": null}), "terminal.preset"),
        (json!({"theme": "mono"}), "terminal.theme"),
        (json!({"reasoning": "off"}), "terminal.reasoning"),
        (json!({"motion": false}), "terminal.motion"),
        (json!({"plain": true}), "terminal.plain"),
        (json!({"bell": "off"}), "terminal.bell"),
        (json!({"title": false}), "terminal.title"),
        (json!({"editor": "evil"}), "terminal.editor"),
        (json!({"pager": "evil"}), "terminal.pager"),
        (json!({"history": false}), "terminal.history"),
        (json!({"keys": {}}), "terminal.keys"),
        (Value::Null, "terminal"),
    ];
    for (value, key) in risky {
        let file = json!({ "terminal": value }).to_string();
        let tree = Tree::new().write("home", &home).write("a/b", file);
        assert_eq!(
            tree.error(),
            format!(
                "a/b/.nexus3/config.json: {key} may only be set by a directory you trust; \
                 to trust it: nexus3 trust a/b"
            )
        );
        assert!(tree.trust("a/b").load().is_ok(), "{key}");
    }
}
