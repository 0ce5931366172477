//! The context that planners and executors share.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Server, Setup, Wire};
use crate::support::{as_agent, create};

over_every_wire! {
    what_is_put_is_there,
    a_version_grows_with_each_change_and_never_otherwise,
    state_is_patched,
    another_version_changes_nothing,
    bad_parameters_are_named,
    bounds_hold_just_under_and_just_over,
}

async fn what_is_put_is_there(wire: &Wire) {
    let empty = json!({"context_version": 0, "files": [], "dependencies": [], "state": {}});
    assert_eq!(state(wire).await, empty);
    let file = json!({"path": "./src//b.rs", "language": "rust", "lines": [1, 2]});
    let answer = update(wire, "add", "file", file).await;
    assert_eq!(answer, json!({"status": "success", "changed": true, "context_version": 1}));
    update(wire, "add", "file", json!({"path": "src/a.rs"})).await;
    update(wire, "add", "dependency", json!({"name": "serde", "version": "1"})).await;
    update(wire, "add", "state", json!({"key": "goal", "value": {"ship": ["it", null, "é"]}}))
        .await;
    let expected = json!({
        "context_version": 4,
        "files": [
            {"path": "src/a.rs"},
            {"path": "src/b.rs", "language": "rust", "lines": [1, 2]},
        ],
        "dependencies": [{"name": "serde", "version": "1"}],
        "state": {"goal": {"ship": ["it", null, "é"]}},
    });
    assert_eq!(state(wire).await, expected);
    update(wire, "modify", "file", json!({"path": "src/b.rs", "language": "c"})).await;
    update(wire, "remove", "dependency", json!({"name": "serde"})).await;
    let now = state(wire).await;
    assert_eq!(now["files"][1], json!({"path": "src/b.rs", "language": "c"}), "it is replaced");
    assert_eq!((&now["context_version"], &now["dependencies"]), (&json!(6), &json!([])));
}

async fn a_version_grows_with_each_change_and_never_otherwise(wire: &Wire) {
    let dependency = json!({"name": "serde", "version": "1"});
    for (action, data, changed, version) in [
        ("remove", dependency.clone(), false, 0),
        ("add", dependency.clone(), true, 1),
        ("add", json!({"version": "1", "name": "serde"}), false, 1),
        ("modify", dependency.clone(), false, 1),
        ("add", json!({"name": "serde", "version": "2"}), true, 2),
        ("remove", json!({"name": "serde"}), true, 3),
        ("remove", json!({"name": "serde"}), false, 3),
    ] {
        let answer = update(wire, action, "dependency", data.clone()).await;
        let expected = json!({"status": "success", "changed": changed, "context_version": version});
        assert_eq!(answer, expected, "{action} {data}");
    }
    let missing = refused(wire, "modify", "dependency", dependency).await;
    assert_eq!(missing, "There is no dependency \"serde\" to modify @/data");
    assert_eq!(state(wire).await["context_version"], 3);
}

async fn state_is_patched(wire: &Wire) {
    update(wire, "add", "state", json!({"key": "k", "value": {"a": {"b": 1, "c": 2}}})).await;
    let patch = json!({"key": "k", "value": {"a": {"b": null, "d": 3}}});
    assert_eq!(update(wire, "modify", "state", patch.clone()).await["changed"], true);
    assert_eq!(state(wire).await["state"], json!({"k": {"a": {"c": 2, "d": 3}}}));
    assert_eq!(update(wire, "modify", "state", patch).await["changed"], false);
    update(wire, "modify", "state", json!({"key": "k", "value": null})).await;
    assert_eq!(state(wire).await["state"], json!({"k": null}));
    update(wire, "add", "state", json!({"key": "k", "value": {"x": null}})).await;
    assert_eq!(state(wire).await["state"], json!({"k": {"x": null}}), "an add is no patch");
}

async fn another_version_changes_nothing(wire: &Wire) {
    let at = |version: Value, value: u64| {
        json!({"action": "add", "context_type": "state", "data": {"key": "k", "value": value},
            "if_version": version})
    };
    wire.ok("update_context", at(json!(0), 1)).await;
    for version in [0, 2] {
        let refused = wire.refused("update_context", at(json!(version), 2)).await;
        let said =
            format!("if_version is {version}, but the context has version 1: nothing was changed");
        assert_eq!((refused.code, refused.message), (-32602, said));
        assert_eq!(refused.data, json!({"path": "/if_version", "context_version": 1}));
    }
    wire.ok("update_context", at(json!(null), 2)).await;
    assert_eq!(wire.ok("update_context", at(json!(2), 3)).await["context_version"], 3);
}

async fn bad_parameters_are_named(wire: &Wire) {
    for (params, complaint) in [
        (json!({}), "Missing required parameter: action @/action"),
        (
            json!({"action": "put", "context_type": "file", "data": {}}),
            "action must be one of add, remove, modify @/action",
        ),
        (
            json!({"action": "add", "context_type": "files", "data": {}}),
            "context_type must be one of file, dependency, state @/context_type",
        ),
        (
            json!({"action": "add", "context_type": "file", "data": []}),
            "data must be object, got: array @/data",
        ),
        (
            json!({"action": "add", "context_type": "file", "data": {}, "if_version": -1}),
            "if_version must be at least 0, got: -1 @/if_version",
        ),
        (
            json!({"action": "add", "context_type": "file", "data": {}, "version": 1}),
            "Unknown parameter: version @/version",
        ),
    ] {
        let refused = wire.refused("update_context", params.clone()).await;
        let got = format!("{} @{}", refused.message, refused.data["path"].as_str().unwrap());
        assert_eq!((refused.code, &*got), (-32602, complaint), "{params}");
    }
    let outside = "data.path must be relative to the directory in which tasks work, and name a file in it: \
                   no leading /, no .. @/data/path";
    for (kind, data, complaint) in [
        ("file", json!({}), "Missing required parameter: data.path @/data/path"),
        ("dependency", json!({"name": 7}), "data.name must be string, got: integer @/data/name"),
        ("state", json!({"key": " ", "value": 1}), "data.key must not be blank @/data/key"),
        ("state", json!({"key": "k"}), "Missing required parameter: data.value @/data/value"),
        ("state", json!({"key": "k", "value": 1, "x": 2}), "Unknown parameter: data.x @/data"),
        (
            "file",
            json!({"path": "a\u{7}"}),
            "data.path must not have control characters @/data/path",
        ),
        (
            "state",
            json!({"key": "k", "value": ["\0"]}),
            "data must not have a NUL character @/data",
        ),
        ("file", json!({"path": "/etc/passwd"}), outside),
        ("file", json!({"path": "a/../../b"}), outside),
    ] {
        assert_eq!(refused(wire, "add", kind, data.clone()).await, complaint, "{data}");
    }
    assert_eq!(state(wire).await["context_version"], 0);
}

async fn bounds_hold_just_under_and_just_over(wire: &Wire) {
    let entry =
        |key: &str, bytes: usize| json!({"key": key, "value": "x".repeat(bytes - key.len() - 2)});
    update(wire, "add", "state", entry("k", 65_536)).await;
    let over = refused(wire, "add", "state", entry("k", 65_537)).await;
    let said = "An entry holds at most 65536 bytes, key and JSON together, got: 65537 @/data";
    assert_eq!(over, said);
    let nested = |levels: usize| (1..levels).fold(json!(1), |value, _| json!([value]));
    update(wire, "add", "state", json!({"key": "n", "value": nested(32)})).await;
    let over = refused(wire, "add", "state", json!({"key": "n", "value": nested(33)})).await;
    assert_eq!(over, "Data may be nested at most 32 deep @/data");
    let name = |bytes: usize| json!({"name": "x".repeat(bytes)});
    update(wire, "add", "dependency", name(4_096)).await;
    let over = refused(wire, "add", "dependency", name(4_097)).await;
    assert_eq!(over, "data.name must be at most 4096 bytes long, got: 4097 @/data/name");
}

#[tokio::test]
async fn it_is_the_administrators_alone() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let change = json!({"action": "add", "context_type": "file", "data": {"path": "a"}});
    for (method, params, what) in [
        ("get_context_state", json!({}), "only the administrator may read the shared context"),
        ("update_context", change, "only the administrator may change the shared context"),
    ] {
        let refused = as_agent(&server, "a", method, params).await;
        assert_eq!(refused, Err((-32003, what.into())));
    }
    assert_eq!(state(&server.wire()).await["context_version"], 0);
}

#[tokio::test]
async fn it_outlives_a_kill_and_is_the_same_in_two_servers() {
    let mut one = Server::start().await;
    let world = one.world.clone();
    update(&one.wire(), "add", "state", json!({"key": "goal", "value": "ship"})).await;
    one.signal(Signal::KILL);
    one.exit().await;
    let one = Setup::new().start_in(&world).await;
    let other = Setup::new().no_socket().start_in(&world).await;
    let (one, other) = (one.wire(), other.wire());
    assert_eq!(state(&one).await["state"], json!({"goal": "ship"}));
    assert_eq!(state(&other).await, state(&one).await);
    // Of two who write at one version, one does.
    for version in 1..10_u64 {
        let at = |key: &str| {
            json!({"action": "add", "context_type": "state", "data": {"key": key, "value": version},
                "if_version": version})
        };
        let (a, b) = tokio::join!(
            one.call("update_context", at("a")),
            other.call("update_context", at("b"))
        );
        let lost = match (a, b) {
            (Ok(_), Err(lost)) | (Err(lost), Ok(_)) => lost,
            both => panic!("{both:?}"),
        };
        assert_eq!(lost.data["context_version"], version + 1, "{lost:?}");
    }
}

async fn update(wire: &Wire, action: &str, kind: &str, data: Value) -> Value {
    let params = json!({"action": action, "context_type": kind, "data": data});
    wire.ok("update_context", params).await
}

/// The refusal's sentence, and where it points.
async fn refused(wire: &Wire, action: &str, kind: &str, data: Value) -> String {
    let params = json!({"action": action, "context_type": kind, "data": data});
    let refused = wire.refused("update_context", params).await;
    assert_eq!(refused.code, -32602, "{refused:?}");
    format!("{} @{}", refused.message, refused.data["path"].as_str().unwrap())
}

async fn state(wire: &Wire) -> Value {
    wire.ok("get_context_state", json!({})).await
}
