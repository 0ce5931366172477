//! Parents, their children, and how agents end.

use nexus_testkit::Reply;
use serde_json::json;

use crate::harness::{Server, Setup, Wire};
use crate::support::{at_path, create, entry, history, list, names};

over_every_wire! {
    a_child_never_exceeds_its_parent: reviewers(),
    descendants_go_with_their_parent,
}

/// A preset that may not look into `/etc`.
fn reviewers() -> Setup {
    let blocked = json!({"extends": "trusted", "blocked_paths": ["/etc"]});
    Setup::new().config(json!({"permissions": {"presets": {"reviewer": blocked}}}))
}

async fn a_child_never_exceeds_its_parent(wire: &Wire) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    for parent in ["trusted", "sandboxed", "reviewer"] {
        wire.ok("create_agent", json!({"agent_id": parent, "preset": parent, "cwd": place})).await;
    }
    let inside = place.join("inside");
    let made =
        json!({"agent_id": "child", "parent_agent_id": "trusted", "allowed_write_paths": [inside]});
    wire.ok("create_agent", made).await;
    let child = entry(wire, "child").await;
    assert_eq!(child["cwd"], json!(place), "the parent's directory");
    assert_eq!(child["write_paths"], json!([inside]));
    assert_eq!(child["permission_level"], "SANDBOXED");

    // What is asked for, by which parent, and the rule that refuses it.
    let cases = [
        (
            "trusted",
            json!({"preset": "trusted"}),
            "level must be below its parent's, so not trusted",
        ),
        ("sandboxed", json!({}), "level must be below its parent's, so not sandboxed"),
        (
            "sandboxed",
            json!({"preset": "worker"}),
            "level must be below its parent's, so not sandboxed",
        ),
        ("child", json!({}), "level must be below its parent's, so not sandboxed"),
        ("trusted", json!({"preset": "yolo"}), "yolo is given only from the interactive terminal"),
        ("trusted", json!({"allowed_write_paths": ["/usr"]}), "/usr lies outside"),
        ("trusted", json!({"allowed_write_paths": ["../x"]}), "lies outside"),
        ("reviewer", json!({"cwd": "/etc"}), "/etc lies outside"),
        ("trusted", json!({"cwd": "/no/such/place"}), "/no/such/place: no such file or directory"),
        (
            "trusted",
            json!({"preset": "root"}),
            "unknown preset: root (known: sandboxed, worker, trusted, reviewer)",
        ),
        ("nobody", json!({}), "unknown parent agent: nobody"),
        ("a b", json!({}), "only letters, digits"),
    ];
    for (parent, mut params, rule) in cases {
        params["parent_agent_id"] = parent.into();
        let fault = wire.refused("create_agent", params.clone()).await;
        let said = fault.message.to_lowercase();
        assert!(fault.code == -32602 && said.contains(&rule.to_lowercase()), "{params}: {fault:?}");
    }
    assert_eq!(list(wire).await.len(), 4, "nothing that was refused was made");
    // The same without a parent, or within one, is no trespass.
    wire.ok("create_agent", json!({"cwd": "/etc", "allowed_write_paths": ["/usr"]})).await;
    wire.ok("create_agent", json!({"cwd": "/etc", "parent_agent_id": "trusted"})).await;
    wire.ok("create_agent", json!({"preset": "worker", "parent_agent_id": "reviewer"})).await;
}

async fn descendants_go_with_their_parent(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
    for child in ["b", ".a"] {
        wire.ok("create_agent", json!({"agent_id": child, "parent_agent_id": "top"})).await;
    }
    create(wire, "other").await;
    let gone = wire.ok("destroy_agent", json!({"agent_id": "top"})).await;
    assert_eq!(gone, json!({"success": true, "agent_id": "top", "destroyed": ["top", "b", ".a"]}));
    assert_eq!(names(wire).await, ["other"]);
    for name in ["top", "b", ".a"] {
        let fault = wire.refused("get_context", json!({"agent_id": name})).await;
        assert_eq!((fault.code, fault.message), (-32602, format!("Unknown agent: {name}")));
    }
    let again = wire.ok("destroy_agent", json!({"agent_id": "top"})).await;
    assert_eq!(again, json!({"success": false, "agent_id": "top", "destroyed": []}));
    assert_eq!(wire.refused("destroy_agent", json!({"agent_id": "a/b"})).await.code, -32602);
    create(wire, "top").await;
    assert_eq!(history(wire, "top").await, [""; 0], "a new agent of an old name starts afresh");
}

#[tokio::test]
async fn a_destroyed_path_is_not_found() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    assert_eq!(at_path(&server, "a", "get_context", json!({})).await.0, 200);
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    let (status, answer) = at_path(&server, "a", "get_context", json!({})).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!(-32602)));
    let server = server.restart().await;
    assert_eq!(at_path(&server, "a", "get_context", json!({})).await.0, 404, "nor after a restart");
}

#[tokio::test]
async fn a_running_turn_ends_with_its_agent() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    server.model().push(Reply::text("So ").then_hang());
    let destroy = async {
        server.model().wait_for_requests(1).await;
        wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    };
    let send = wire.ok("send", json!({"agent_id": "a", "content": "Hi"}));
    let (answer, ()) = tokio::join!(send, destroy);
    assert_eq!(answer["cancelled"], true);
    server.model().wait_for_disconnects(1).await;
}

#[tokio::test]
async fn agents_destroy_what_is_beneath_them_and_nothing_else() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
    for child in ["a", "b"] {
        wire.ok("create_agent", json!({"agent_id": child, "parent_agent_id": "top"})).await;
    }
    let destroy = async |acting: &str, agent: &str| {
        let body = crate::harness::wire::request(1, "destroy_agent", json!({"agent_id": agent}));
        let response = server.ask(server.post(body).header("X-Nexus-Agent", acting)).await;
        let answer = response.answer();
        answer["error"]["code"].as_i64().unwrap_or_default()
    };
    assert_eq!(destroy("a", "b").await, -32003, "a sibling");
    assert_eq!(destroy("a", "top").await, -32003, "a parent");
    assert_eq!(destroy("top", "b").await, 0, "a child");
    assert_eq!(destroy("a", "a").await, 0, "itself");
    assert_eq!(names(&wire).await, ["top"]);
}
