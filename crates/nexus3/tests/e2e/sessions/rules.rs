//! What names may be, and what each method says to a name that is taken, unknown or not a session's.

use serde_json::{Value, json};

use crate::harness::Wire;
use crate::support::{create, names, sessions};

over_every_wire! {
    every_name_rule_holds_for_every_parameter,
    names_that_are_taken_or_unknown_are_refused,
}

/// Every parameter of every method that is a name, with the others filled in.
fn parameters() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("load_session", "session_name", json!({})),
        ("load_session", "agent_id", json!({"session_name": "a"})),
        ("save_session", "agent_id", json!({"session_name": "n"})),
        ("save_session", "session_name", json!({"agent_id": "a"})),
        ("clone_session", "src_session", json!({"dest_session": "n"})),
        ("clone_session", "dest_session", json!({"src_session": "a"})),
        ("rename_session", "old_name", json!({"new_name": "n"})),
        ("rename_session", "new_name", json!({"old_name": "a"})),
        ("delete_session", "session_name", json!({})),
    ]
}

async fn every_name_rule_holds_for_every_parameter(wire: &Wire) {
    create(wire, "a").await;
    let long = "a".repeat(63);
    let bad = [
        ("", "is empty"),
        (".", "is empty"),
        ("..", "must start with a letter or digit"),
        ("-a", "must start with a letter or digit"),
        ("a/b", "may hold only letters"),
        ("../a", "must start with a letter or digit"),
        ("a b", "may hold only letters"),
        ("a\n", "may hold only letters"),
        ("a\0", "may hold only letters"),
        ("aä", "may hold only letters"),
        ("a..b", "may not contain '..'"),
        (&long, "longer than 62 characters"),
    ];
    for (method, name, rest) in parameters() {
        for (value, rule) in bad {
            let mut params = rest.clone();
            params[name] = value.into();
            let fault = wire.refused(method, params.clone()).await;
            assert_eq!(fault.code, -32602, "{method} {params}: {fault:?}");
            assert_eq!(fault.data["path"], format!("/{name}"), "{method} {params}");
            assert!(fault.message.contains(rule), "{method} {params}: {fault:?}");
        }
        for (value, text) in [
            (json!(7), format!("{name} must be string, got: integer")),
            (Value::Null, format!("{name} must be string, got: null")),
        ] {
            // An optional name may be null.
            if (method, name) == ("load_session", "agent_id") && value.is_null() {
                continue;
            }
            let mut params = rest.clone();
            params[name] = value;
            assert_eq!(wire.refused(method, params).await.message, text);
        }
        if (method, name) != ("load_session", "agent_id") {
            let fault = wire.refused(method, rest).await;
            assert_eq!(fault.message, format!("Missing required parameter: {name}"));
        }
    }
    for (params, text) in [
        (json!({"limit": 0}), "limit must be between 1 and 1000, got: 0"),
        (json!({"limit": 1001}), "limit must be between 1 and 1000, got: 1001"),
        (json!({"offset": -1}), "offset must be at least 0, got: -1"),
        (json!({"include_temp": "yes"}), "include_temp must be boolean, got: string"),
        (json!({"x": 1}), "Unknown parameter: x"),
    ] {
        assert_eq!(wire.refused("list_sessions", params).await.message, text);
    }
    for limit in [1, 1000] {
        wire.ok("list_sessions", json!({"limit": limit})).await;
    }
    assert_eq!((sessions(wire).await, names(wire).await), (vec!["a".into()], vec!["a".into()]));
}

async fn names_that_are_taken_or_unknown_are_refused(wire: &Wire) {
    for name in ["a", "live", ".t"] {
        create(wire, name).await;
    }
    wire.ok("clone_session", json!({"src_session": "a", "dest_session": "saved"})).await;
    let temporary = "The name of a session may not start with '.': .n is temporary";
    for (method, params, path, text) in [
        (
            "load_session",
            json!({"session_name": "nobody"}),
            "session_name",
            "Unknown session: nobody",
        ),
        ("load_session", json!({"session_name": ".t"}), "agent_id", "Agent .t is live already"),
        ("load_session", json!({"session_name": ".n"}), "session_name", "Unknown session: .n"),
        ("load_session", json!({"session_name": "a"}), "agent_id", "Agent a is live already"),
        (
            "load_session",
            json!({"session_name": "saved", "agent_id": "live"}),
            "agent_id",
            "Agent live is live already",
        ),
        (
            "load_session",
            json!({"session_name": "a", "agent_id": "saved"}),
            "agent_id",
            "A session named saved exists already",
        ),
        (
            "load_session",
            json!({"session_name": "saved", "preset": "yolo"}),
            "preset",
            "Preset yolo is given only",
        ),
        (
            "load_session",
            json!({"session_name": "saved", "preset": "no"}),
            "preset",
            "Unknown preset: no",
        ),
        (
            "load_session",
            json!({"session_name": "saved", "model": "no"}),
            "model",
            "Unknown model: no",
        ),
        (
            "save_session",
            json!({"agent_id": "nobody", "session_name": "n"}),
            "agent_id",
            "Unknown agent: nobody",
        ),
        (
            "save_session",
            json!({"agent_id": "saved", "session_name": "n"}),
            "agent_id",
            "Unknown agent: saved",
        ),
        (
            "save_session",
            json!({"agent_id": "a", "session_name": "saved"}),
            "session_name",
            "A session named saved exists already",
        ),
        (
            "save_session",
            json!({"agent_id": "a", "session_name": "live"}),
            "session_name",
            "A session named live exists already",
        ),
        ("save_session", json!({"agent_id": "a", "session_name": ".n"}), "session_name", temporary),
        (
            "save_session",
            json!({"agent_id": ".t", "session_name": ".n"}),
            "session_name",
            temporary,
        ),
        (
            "clone_session",
            json!({"src_session": "nobody", "dest_session": "n"}),
            "src_session",
            "Unknown session: nobody",
        ),
        (
            "clone_session",
            json!({"src_session": ".t", "dest_session": "n"}),
            "dest_session",
            "The copy of a temporary agent is temporary: its name must start with '.', unlike n",
        ),
        (
            "clone_session",
            json!({"src_session": "a", "dest_session": ".n"}),
            "dest_session",
            temporary,
        ),
        (
            "clone_session",
            json!({"src_session": "a", "dest_session": "a"}),
            "dest_session",
            "A session named a exists already",
        ),
        (
            "clone_session",
            json!({"src_session": "a", "dest_session": "saved"}),
            "dest_session",
            "A session named saved exists already",
        ),
        (
            "rename_session",
            json!({"old_name": "nobody", "new_name": "n"}),
            "old_name",
            "Unknown session: nobody",
        ),
        (
            "rename_session",
            json!({"old_name": ".t", "new_name": "n"}),
            "old_name",
            "Unknown session: .t",
        ),
        ("rename_session", json!({"old_name": "a", "new_name": ".n"}), "new_name", temporary),
        (
            "rename_session",
            json!({"old_name": "a", "new_name": "a"}),
            "new_name",
            "A session named a exists already",
        ),
        (
            "rename_session",
            json!({"old_name": "a", "new_name": "live"}),
            "new_name",
            "A session named live exists already",
        ),
        (
            "rename_session",
            json!({"old_name": "saved", "new_name": "live"}),
            "new_name",
            "A session named live exists already",
        ),
        (
            "rename_session",
            json!({"old_name": "a", "new_name": "saved"}),
            "new_name",
            "A session named saved exists already",
        ),
    ] {
        let fault = wire.refused(method, params.clone()).await;
        assert_eq!(
            (fault.code, &fault.data["path"]),
            (-32602, &json!(format!("/{path}"))),
            "{method} {params}: {fault:?}"
        );
        assert!(fault.message.starts_with(text), "{method} {params}: {fault:?}");
    }
    for name in ["nobody", ".t", ".n"] {
        let answer = wire.ok("delete_session", json!({"session_name": name})).await;
        assert_eq!(answer, json!({"deleted": false, "session_name": name}));
    }
    assert_eq!(sessions(wire).await, ["a", "live", "saved"]);
    assert_eq!(names(wire).await, ["a", "live", ".t"], "what was refused changed nothing");
}
