//! Who may do what to which session, and that no way through them gives an agent more than it had.

use serde_json::{Value, json};

use crate::harness::{Server, Setup, Wire};
use crate::support::{as_agent, create, sessions};

over_every_wire! {
    the_ceiling_survives_every_way_through_a_session,
}

/// A trusted parent with a child, and two that are no kin of theirs.
async fn family(server: &Server) {
    let wire = server.wire();
    for (name, preset, parent) in [
        ("parent", "trusted", None),
        ("child", "sandboxed", Some("parent")),
        ("low", "sandboxed", None),
        ("stranger", "trusted", None),
    ] {
        let params = json!({"agent_id": name, "preset": preset, "parent_agent_id": parent});
        wire.ok("create_agent", params).await;
    }
    let copy = json!({"src_session": "child", "dest_session": "child-copy"});
    wire.ok("clone_session", copy).await;
}

async fn seen_by(server: &Server, who: &str, params: Value) -> Vec<String> {
    let page = as_agent(server, who, "list_sessions", params).await.unwrap();
    let entries = page["sessions"].as_array().unwrap().iter();
    let mut names: Vec<_> = entries.map(|it| it["name"].as_str().unwrap().to_string()).collect();
    assert_eq!(page["total"], names.len());
    names.sort();
    names
}

#[tokio::test]
async fn an_agent_sees_its_own_sessions_and_those_beneath_it() {
    let server = Setup::new().start().await;
    family(&server).await;
    create(&server.wire(), ".t").await;
    let all = json!({"include_temp": true});
    assert_eq!(seen_by(&server, "parent", all.clone()).await, ["child", "child-copy", "parent"]);
    assert_eq!(seen_by(&server, "child", all.clone()).await, ["child"]);
    assert_eq!(seen_by(&server, "low", all.clone()).await, ["low"]);
    assert_eq!(seen_by(&server, ".t", all).await, [".t"]);
}

#[tokio::test]
async fn an_agent_acts_on_its_own_line_and_takes_names_only_if_it_manages_agents() {
    let server = Setup::new().start().await;
    family(&server).await;
    let copy_of = |name: &str, to: &str| json!({"src_session": name, "dest_session": to});
    let renamed = |from: &str, to: &str| json!({"old_name": from, "new_name": to});
    let saved = |agent: &str, name: &str| json!({"agent_id": agent, "session_name": name});
    let loaded = |name: &str, agent: &str| json!({"session_name": name, "agent_id": agent});
    let (others, naming) =
        ("only the agent itself, its ancestors", "may not give a session a new name");
    for (who, method, params, rule) in [
        ("stranger", "clone_session", copy_of("child", "x"), others),
        ("stranger", "clone_session", copy_of("child-copy", "x"), others),
        ("stranger", "clone_session", copy_of("nobody", "x"), others),
        ("stranger", "load_session", loaded("child-copy", "child-copy"), others),
        ("stranger", "rename_session", renamed("child-copy", "x"), others),
        ("stranger", "delete_session", json!({"session_name": "child-copy"}), others),
        ("stranger", "delete_session", json!({"session_name": "parent"}), others),
        ("stranger", "delete_session", json!({"session_name": "nobody"}), others),
        ("stranger", "save_session", saved("child", "x"), others),
        ("child", "delete_session", json!({"session_name": "parent"}), others),
        ("child", "load_session", loaded("child-copy", "x"), others),
        ("low", "clone_session", copy_of("low", "x"), naming),
        ("low", "rename_session", renamed("low", "x"), naming),
        ("low", "save_session", saved("low", "x"), naming),
        ("low", "load_session", loaded("low", "x"), naming),
        ("parent", "load_session", loaded("parent", "x"), "may not load a copy of itself"),
    ] {
        let refused = as_agent(&server, who, method, params.clone()).await.unwrap_err();
        assert_eq!(refused.0, -32003, "{who} {method} {params}: {refused:?}");
        assert!(refused.1.contains(rule), "{who} {method} {params}: {refused:?}");
    }
    let before = ["child", "child-copy", "low", "parent", "stranger"];
    assert_eq!(sessions(&server.wire()).await, before);
    // What lies beneath it, and its own session, are its own.
    for (who, method, params) in [
        ("low", "save_session", saved("low", "low")),
        ("parent", "clone_session", copy_of("child-copy", "second")),
        ("parent", "rename_session", renamed("second", "third")),
        ("parent", "load_session", loaded("child-copy", "twin")),
        ("parent", "load_session", json!({"session_name": "third"})),
        ("parent", "save_session", saved("child", "fourth")),
        ("parent", "delete_session", json!({"session_name": "fourth"})),
        ("child", "delete_session", json!({"session_name": "child"})),
    ] {
        let done = as_agent(&server, who, method, params.clone()).await;
        assert!(done.is_ok(), "{who} {method} {params}: {done:?}");
    }
    let wire = server.wire();
    for agent in ["twin", "third"] {
        let held = wire.ok("get_permissions", json!({"agent_id": agent})).await;
        assert_eq!((&held["parent_agent_id"], &held["depth"]), (&json!("parent"), &json!(1)));
    }
}

async fn the_ceiling_survives_every_way_through_a_session(wire: &Wire) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    std::fs::create_dir(place.join("sub")).unwrap();
    let parent =
        json!({"agent_id": "top", "preset": "trusted", "cwd": place, "disable_tools": ["git"]});
    wire.ok("create_agent", parent).await;
    wire.ok("create_agent", json!({"agent_id": "a", "parent_agent_id": "top"})).await;
    wire.ok("save_session", json!({"agent_id": "a", "session_name": "a"})).await;
    wire.ok("clone_session", json!({"src_session": "a", "dest_session": "b"})).await;
    wire.ok("save_session", json!({"agent_id": "a", "session_name": "c"})).await;
    // The parent goes, and with it its agents; the sessions that were saved lose it and keep what it could give.
    wire.ok("destroy_agent", json!({"agent_id": "top"})).await;
    assert_eq!(sessions(wire).await, ["a", "b", "c"]);
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
    for (session, agent) in [("a", "a"), ("b", "other"), ("c", ".t")] {
        let load = json!({"session_name": session, "agent_id": agent});
        let mut wider = load.clone();
        wider["preset"] = "trusted".into();
        let fault = wire.refused("load_session", wider).await;
        assert!(fault.code == -32602 && fault.message.contains("so not trusted"), "{fault:?}");
        wire.ok("load_session", load).await;
        let at = |mut params: Value| {
            params["agent_id"] = agent.into();
            params
        };
        let held = wire.ok("get_permissions", at(json!({}))).await;
        assert_eq!(
            held["parent_agent_id"],
            Value::Null,
            "a namesake of the parent inherits nobody"
        );
        assert_eq!((&held["depth"], &held["permission_level"]), (&json!(1), &json!("sandboxed")));
        assert_eq!(held["policy"]["allowed_paths"], json!([place]));
        for (method, params) in [
            ("set_permissions", json!({"preset": "trusted"})),
            ("set_permissions", json!({"enable_tools": ["git"]})),
            ("create_agent", json!({"agent_id": "x", "parent_agent_id": agent})),
        ] {
            let params = if method == "create_agent" { params } else { at(params) };
            let fault = wire.refused(method, params.clone()).await;
            assert_eq!(fault.code, -32602, "{method} {params}: {fault:?}");
        }
        let worker = json!({"session_name": session, "agent_id": ".worker", "preset": "worker"});
        wire.ok("load_session", worker).await;
        let narrow = wire.ok("get_permissions", json!({"agent_id": ".worker"})).await;
        let disabled = narrow["disabled_tools"].as_array().unwrap();
        assert!(disabled.contains(&json!("git")) && disabled.contains(&json!("write_file")));
        wire.ok("destroy_agent", json!({"agent_id": ".worker"})).await;
    }
}
