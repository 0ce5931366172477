//! Where MCP servers stand, which of two holds, and what is refused.

use nexus_core::mcp::{
    Asks, Auth, Eligibility, Pins, Program, Remote, ServerEntry, ServerSource, Way,
};

use super::*;

impl Tree {
    /// Writes a file by its path in the tree.
    fn file_at(self, path: &str, value: &Value) -> Self {
        let file = self.root.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, value.to_string()).unwrap();
        self
    }

    fn servers(&self) -> Vec<ServerEntry> {
        self.load().unwrap().mcp_servers
    }
}

/// The one server that the home's file has.
fn server(entry: Value) -> ServerEntry {
    let tree = Tree::new().write("home", json!({"mcp_servers": {"s": entry}}).to_string());
    tree.servers().remove(0)
}

#[track_caller]
fn program(entry: &ServerEntry) -> &Program {
    match &entry.way {
        Way::Program(program) => program,
        Way::Remote(remote) => panic!("{} is at {}", entry.name, remote.url),
    }
}

#[test]
fn a_server_elsewhere_has_an_address_and_is_told_headers() {
    for kind in [None, Some("http"), Some("streamable-http"), Some("streamableHttp")] {
        let mut entry =
            json!({"url": "https://x.example/mcp", "headers": {"A": "${B}"}, "private": true});
        if let Some(kind) = kind {
            entry["type"] = json!(kind);
        }
        let headers = [("A".to_owned(), "${B}".to_owned())].into();
        let remote = Remote {
            url: "https://x.example/mcp".into(),
            headers,
            private: true,
            auth: Auth::default(),
        };
        assert_eq!(server(entry).way, Way::Remote(remote));
    }
    let auth = json!({"scopes": ["a"], "client_id": "me", "client_secret_env": "V"});
    let Way::Remote(remote) = server(json!({"url": "https://x", "auth": auth})).way else {
        panic!()
    };
    let auth = Auth {
        scopes: vec!["a".into()],
        client_id: Some("me".into()),
        client_secret_env: Some("V".into()),
    };
    assert_eq!(remote.auth, auth);
    let remote = Remote {
        url: "${WHERE}".into(),
        headers: Default::default(),
        private: false,
        auth: Auth::default(),
    };
    assert_eq!(server(json!({"url": "${WHERE}"})).way, Way::Remote(remote));
}

#[track_caller]
fn refused(entry: Value, expected: &str) {
    let value = json!({"mcp_servers": {"s": entry}});
    let error = Tree::new().write("home", value.to_string()).error();
    assert!(error.starts_with("home/config.json: mcp_servers.s"), "{error}");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn an_entry_has_its_defaults_and_its_keys() {
    let plain = server(json!({"command": "x"}));
    assert_eq!((plain.source, &plain.standing), (ServerSource::User, &Eligibility::Usable));
    let run = program(&plain);
    assert_eq!((run.argv.as_slice(), run.cwd.as_ref()), (&["x".to_string()][..], None));
    let seconds = [plain.startup_timeout, plain.timeout, plain.idle_timeout].map(|it| it.as_secs());
    assert_eq!(seconds, [30, 120, 600]);
    assert!(run.sandbox.network && run.sandbox.required && plain.asks == Asks::Once);

    let full = server(json!({
        "type": "stdio", "command": ["x", "-a"], "args": ["b"], "cwd": "~/w", "env": {"K": "${V}"},
        "env_passthrough": ["P"], "enabled": true, "fail_if_no_tools": true, "startup_timeout": 1,
        "timeout": 2.5, "idle_timeout": 3, "approve": "never", "pin": "off", "elicitation": "deny", "roots": true,
        "tools": {"allow": ["read_*"], "deny": ["x"]},
        "sandbox": {"read": ["/r"], "write": ["~/o"], "network": false, "required": false},
        "alwaysAllow": ["x"], "autoApprove": [], "trust": true,
    }));
    let run = program(&full);
    assert_eq!(run.argv, ["x", "-a", "b"]);
    assert_eq!(program(&server(json!({"command": "~/bin/x"}))).argv, ["/users/me/bin/x"]);
    assert_eq!(run.cwd, Some("/users/me/w".into()));
    assert_eq!(
        (run.env["K"].as_str(), run.env_passthrough.as_slice()),
        ("${V}", &["P".to_string()][..])
    );
    assert_eq!((full.asks, full.fail_if_no_tools), (Asks::Never, true));
    let by = server(
        json!({"command": "x", "approve": {"rm_*": "always", "get": "never"}, "eager": true}),
    );
    let tools = [("get".to_owned(), Asks::Never), ("rm_*".to_owned(), Asks::Always)];
    assert_eq!((by.asks, by.asks_by.as_slice()), (Asks::Once, &tools[..]));
    assert_eq!((by.eager, plain.eager), (true, false));
    assert_eq!((plain.pins, full.pins), (Pins::Strict, Pins::Off));
    assert_eq!((plain.elicitation, plain.roots), (true, false));
    assert_eq!((full.elicitation, full.roots), (false, true));
    assert_eq!((&full.allow, &full.deny), (&vec!["read_*".into()], &vec!["x".into()]));
    assert_eq!(run.sandbox.read, ["/r".into()].into());
    assert_eq!(run.sandbox.write, ["/users/me/o".into()].into());
    assert!(!run.sandbox.network && !run.sandbox.required);
    assert_eq!(server(json!({"command": "x", "enabled": false})).standing, Eligibility::Disabled);
    assert_eq!(server(json!({"command": "x", "disabled": true})).standing, Eligibility::Disabled);
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    refused(json!({}), ".command: is missing");
    refused(json!({"command": " "}), ".command: names no program");
    refused(json!({"command": 5}), ".command: expected a text, or a list of texts");
    refused(json!({"command": []}), ".command: names no program");
    refused(json!({"command": "x", "approve": {"[": "ask"}}), ".approve: \"[\" is no pattern");
    for approve in [json!({"a": "maybe"}), json!("maybe")] {
        let entry = json!({"command": "x", "approve": approve});
        refused(entry, ".approve: expected ask, never or always, or an object of those");
    }
    refused(json!({"command": "x", "comand": 1}), "unknown field `comand`");
    refused(json!({"command": "x", "timeout": 0}), ".timeout: ");
    refused(json!({"command": "x", "approve": "yes"}), ".approve: ");
    refused(
        json!({"command": "x", "tools": {"allow": ["["]}}),
        ".tools.allow: \"[\" is no pattern",
    );
    refused(
        json!({"command": "x", "cwd": "relative"}),
        ".cwd: \"relative\" is not an absolute path",
    );
    refused(json!("x"), "an entry is an object");
    for key in super::super::mcp::NOT_YET {
        let mut entry = json!({"command": "x"});
        entry[key] = json!(true);
        refused(entry, &format!(".{key}: is not built into this version yet"));
    }
    refused(json!({"type": "sse", "url": "http://x"}), ".type: the transport of 2024");
    refused(json!({"type": "ws", "url": "http://x"}), ".type: \"ws\" is not spoken");
    refused(json!({"type": "http"}), ".url: is missing");
    refused(json!({"url": "ftp://x"}), ".url: must begin with https://");
    refused(json!({"url": "https://x", "command": "y"}), ".command: is for programs");
    refused(json!({"url": "https://x", "sandbox": {}}), ".sandbox: is for programs");
    refused(json!({"url": "https://x", "roots": true}), ".roots: is for programs");
    refused(json!({"command": "x", "elicitation": true}), ".elicitation: ");
    refused(json!({"command": "x", "headers": {}}), ".headers: is for servers with a url");
    refused(json!({"command": "x", "private": true}), ".private: is for servers with a url");
    refused(json!({"command": "x", "auth": {}}), ".auth: is for servers with a url");
    refused(json!({"url": "https://x", "auth": {"client": 1}}), ".auth.client: unknown field");
    refused(
        json!({"url": "https://x", "auth": {"client_secret_env": "X"}}),
        ".auth.client_secret_env: is of use only with client_id",
    );
}

#[test]
fn servers_are_found_in_every_form_and_the_nearer_entry_replaces_the_whole() {
    let tree = Tree::new()
        .write(
            "home",
            json!({"mcp_servers": [{"name": "a", "command": "1", "timeout": 5}]}).to_string(),
        )
        .file_at(
            "home/mcp.json",
            &json!({"servers": {"b": {"command": "2"}, "c": {"command": "3"}}}),
        )
        .file_at("a/b/.nexus3/mcp.json", &json!({"mcpServers": [{"name": "c", "command": "4"}]}))
        .file_at("a/b/c/.mcp.json", &json!({"mcpServers": {"d": {"command": "5"}, "b": null}}))
        .file_at(
            "a/b/c/.nexus3/config.json",
            &json!({"mcp_servers": {"d": {"command": "6"}, "a": {"command": "7"}}}),
        )
        .trust("a/b")
        .trust("a/b/c");
    let found = tree.servers();
    let found: Vec<_> =
        found.iter().map(|it| (it.name.as_str(), program(it).argv[0].as_str())).collect();
    assert_eq!(found, [("a", "7"), ("c", "4"), ("d", "6")]);
    assert_eq!(tree.servers()[0].timeout.as_secs(), 120, "nothing of the farther entry is left");
}

#[test]
fn a_non_empty_list_of_the_usual_name_wins_in_one_file() {
    let both = |theirs: Value| json!({"mcpServers": theirs, "servers": {"b": {"command": "x"}}});
    let names = |file: Value| -> Vec<String> {
        let servers = Tree::new().file_at("home/mcp.json", &file).servers();
        servers.into_iter().map(|it| it.name).collect()
    };
    assert_eq!(names(both(json!({"a": {"command": "x"}}))), ["a"]);
    assert_eq!(names(both(json!({}))), ["b"]);
    assert_eq!(names(json!({})), Vec::<String>::new());
    let error = Tree::new().file_at("home/mcp.json", &json!({"server": {}})).error();
    assert_eq!(error, "home/mcp.json: server: unknown key, expected servers or mcpServers");
}

#[test]
fn names_are_brought_to_one_form_and_two_that_meet_are_refused() {
    let value = json!({"mcp_servers": {"My Server": {"command": "x"}}});
    let tree = Tree::new().write("home", value.to_string());
    assert_eq!(tree.servers()[0].name, "my-server");
    let value = json!({"mcp_servers": {"my_x": {"command": "x"}, "My X": {"command": "x"}}});
    let error = Tree::new().write("home", value.to_string()).error();
    assert_eq!(
        error,
        "home/config.json: mcp_servers: \"my_x\" and \"My X\" are the same server, my-x"
    );
    let value = json!({"mcp_servers": {"___": {"command": "x"}}});
    let error = Tree::new().write("home", value.to_string()).error();
    assert!(error.contains("cannot be the name of a server"), "{error}");
}

#[test]
fn just_as_many_servers_as_may_be_and_one_more() {
    let many = |count: usize| {
        let entries = (0..count).map(|number| (format!("s{number}"), json!({"command": "x"})));
        json!({"mcp_servers": Value::Object(entries.collect())})
    };
    assert_eq!(load(&many(64)).unwrap().mcp_servers.len(), 64);
    check_error(many(65), "mcp_servers: more than 64 servers");
}

#[test]
fn a_projects_servers_are_there_and_wait_for_trust() {
    let entry = json!({"s": {"command": "run", "args": ["x"], "cwd": "sub", "approve": "never", "pin": "off"},
        "t": {"command": "run", "approve": {"*": "never"}}});
    for (file, value) in [
        ("a/b/c/.mcp.json", json!({"mcpServers": entry})),
        ("a/b/c/.nexus3/mcp.json", json!({"servers": entry})),
        ("a/b/c/.nexus3/config.json", json!({"mcp_servers": entry})),
    ] {
        let tree = Tree::new().file_at(file, &value);
        let found = tree.servers();
        let dir = tree.root.path().canonicalize().unwrap().join("a/b/c");
        assert_eq!(
            (found[0].source, &found[0].standing),
            (ServerSource::Project, &Eligibility::Untrusted)
        );
        assert_eq!(program(&found[0]).cwd, Some(dir.join("sub")), "{file}");
        assert!(!program(&found[0]).sandbox.network && found[0].asks == Asks::Once, "{file}");
        assert_eq!(found[0].pins, Pins::Strict, "{file}");
        let shown = servers_of_project(&dir, None).unwrap();
        assert_eq!(program(&shown[0]).argv, ["run", "x"], "{file}");
        let tree = tree.trust("a/b/c");
        assert_eq!(tree.servers()[0].standing, Eligibility::Usable, "{file}");
        let changed = tree.file_at(file, &json!({"mcpServers": {"t": {"command": "other"}}}));
        let changed = if file.ends_with("config.json") {
            changed.file_at(file, &json!({"mcp_servers": {"t": {"command": "other"}}}))
        } else {
            changed
        };
        assert_eq!(changed.servers()[0].standing, Eligibility::Untrusted, "{file}");
    }
    // One in a directory above is for other programs.
    let above = Tree::new().file_at("a/b/.mcp.json", &json!({"mcpServers": entry}));
    assert!(above.servers().is_empty());
}

#[test]
fn what_a_project_wrote_wrongly_is_that_servers_affair() {
    let wrong = json!({"mcpServers": {"good": {"command": "x"}, "web": {"url": "https://x", "args": []}, "odd": 5}});
    let tree = Tree::new().file_at("a/b/c/.mcp.json", &wrong);
    assert!(tree.servers().iter().all(|it| it.standing == Eligibility::Untrusted));
    let found = tree.trust("a/b/c").servers();
    assert_eq!(found[0].standing, Eligibility::Usable);
    assert!(
        matches!(&found[1].standing, Eligibility::Wrong(why) if why.contains("an entry is an object"))
    );
    assert!(
        matches!(&found[2].standing, Eligibility::Wrong(why) if why.contains("args: is for programs"))
    );
}

#[test]
fn a_stranger_does_not_take_the_place_of_what_the_user_has() {
    let tree = Tree::new()
        .write("home", json!({"mcp_servers": {"s": {"command": "mine"}}}).to_string())
        .file_at("a/b/c/.mcp.json", &json!({"mcpServers": {"s": {"command": "theirs"}}}));
    assert_eq!(program(&tree.servers()[0]).argv, ["mine"]);
    assert_eq!(program(&tree.trust("a/b/c").servers()[0]).argv, ["theirs"]);
}

#[test]
fn a_preset_hands_out_tools_by_name() {
    let presets = |mcp: Value| {
        json!({"permissions": {"presets": {
            "gitter": {"mcp": {"git": ["log", "diff"]}}, "less": {"extends": "gitter", "mcp": mcp}}}})
    };
    let config = load(&presets(json!({"git": ["log"]}))).unwrap();
    let mcp = |name: &str| config.permissions.presets[name].apply("/w".as_ref(), &[]).mcp.written();
    assert_eq!(mcp("gitter"), [("git".to_string(), vec!["diff".to_string(), "log".into()])].into());
    assert_eq!(mcp("less"), [("git".to_string(), vec!["log".to_string()])].into());
    check_error(
        presets(json!({"git": ["*"]})),
        "permissions.presets.less.mcp: a tool lies outside what gitter has; a preset can only narrow",
    );
    let error = load(&presets(json!({"Git": ["x"]}))).unwrap_err().to_string();
    assert!(error.contains("is no name of a server"), "{error}");
}

#[test]
fn a_server_is_shared_unless_it_says_otherwise() {
    assert!(server(json!({"command": "x"})).share);
    assert!(!server(json!({"command": "x", "share": false})).share);
    assert!(!server(json!({"url": "https://x", "share": false})).share);
    refused(json!({"command": "x", "share": 1}), ".share: ");
    refused(json!({"command": "x", "share": false, "eager": true}), ".eager: is of no use with");
}

#[test]
fn an_entry_of_one_agent_is_read_as_one_of_the_configuration() {
    let read = |source: ServerSource, config: Value| {
        let config = config.as_object().unwrap().clone();
        crate::own_server("My S", source, &config, None)
    };
    let of_agent = read(ServerSource::Agent, json!({"command": "x", "timeout": 5})).unwrap();
    assert_eq!((of_agent.name.as_str(), of_agent.source), ("my-s", ServerSource::Agent));
    assert!(!of_agent.share && program(&of_agent).sandbox.network);
    assert_eq!(program(&of_agent).cwd, None);
    let client = json!({"command": "x", "cwd": "/w", "approve": "always"});
    let of_client = read(ServerSource::Client, client).unwrap();
    assert_eq!((of_client.source, of_client.asks), (ServerSource::Client, Asks::Always));
    assert!(!of_client.share && !program(&of_client).sandbox.network);
    assert_eq!(program(&of_client).cwd.as_deref(), Some(Path::new("/w")));
    for (config, expected) in [
        (json!({"command": "x", "share": true}), "share: it is the agent's own"),
        (json!({"command": "x", "approve": "never"}), "approve: never counts only"),
        (json!({"command": "x", "approve": {"a": "never"}}), "approve: never counts only"),
        (json!({"command": "x", "pin": "off"}), "pin: off counts only"),
        (json!({"command": "x", "env": "hush"}), "env: must be an object of texts"),
        (json!({"command": "x", "env": {"A": ["hush"]}}), "env.A: must be an object of texts"),
        (json!({"url": "https://x", "headers": {"A": 77123}}), "headers.A: must be an object"),
        (json!({"timeout": 5}), "command: is missing"),
    ] {
        let why = read(ServerSource::Agent, config.clone()).unwrap_err();
        assert!(why.contains(expected), "{config}: {why}");
        assert!(!why.contains("hush") && !why.contains("77123"), "{config}: {why}");
    }
    let wrong = crate::unusable_server("s", ServerSource::Agent, "why".into());
    assert_eq!((wrong.standing, wrong.share), (Eligibility::Wrong("why".into()), false));
}
