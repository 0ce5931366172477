//! Keys for doors: they outlive restarts, open nothing else, and act as an agent.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::host::{ERAS, Era, Host, is_busy};
use crate::harness::{HttpRequest, Server, Setup, eventually};
use crate::support::names;

async fn key(server: &Server, params: Value) -> String {
    let made = server.wire().ok("create_key", params).await;
    made["key"].as_str().unwrap().to_owned()
}

/// The status that a request with this token has at a path.
async fn status(server: &Server, token: &str, path: &str) -> u16 {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
        },
    });
    let request = HttpRequest::post(server.address, path, body.to_string())
        .bearer(Some(token))
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream");
    server.ask(request).await.status
}

#[tokio::test]
async fn a_key_outlives_the_server_and_acts_as_its_agent() {
    let server = Server::start().await;
    let made = server.wire().ok("create_key", json!({"name": "claude", "doors": ["mcp"]})).await;
    let secret = made["key"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("nxd_") && secret.len() == 47, "{secret}");
    assert_eq!((&made["agent_id"], &made["doors"]), (&json!("door-claude"), &json!(["mcp"])));
    let listed = server.wire().ok("list_keys", json!({})).await;
    assert!(!listed.to_string().contains(&secret[4..]), "{listed}");
    let server = server.restart().await;
    let host = Host::connect_with(&server, Some(secret.clone()), Era::Modern, json!({})).await;
    server.model().push(Reply::text("hello"));
    let answer = host.tool("nexus_send", json!({"content": "hi"})).await;
    assert_eq!(answer["structuredContent"]["agent_id"], "door-claude", "{answer}");
    let messages = server.wire().ok("get_messages", json!({"agent_id": "door-claude"})).await;
    assert_eq!(messages["messages"][0]["meta"]["source"], "mcp:claude");
    // It is no token of the methods, and nothing of it lies in the home as it is.
    for path in ["/", "/rpc", "/agent/door-claude"] {
        assert_eq!(status(&server, &secret, path).await, 403, "{path}");
    }
    for file in ["nexus3.db", "nexus3.db-wal"] {
        let bytes = std::fs::read(server.world.home().join(file)).unwrap_or_default();
        assert!(!bytes.windows(secret.len()).any(|it| it == secret.as_bytes()), "{file}");
    }
}

#[tokio::test]
async fn a_key_reaches_what_is_beneath_its_agent_and_nothing_else() {
    let server = Server::start().await;
    server.wire().ok("create_agent", json!({"agent_id": "other"})).await;
    let params = json!({"name": "k", "doors": ["mcp"], "preset": "trusted"});
    let host = Host::with_key(&server, params, json!({})).await;
    let made = host.tool("nexus_create", json!({"agent_id": "child"})).await;
    assert_eq!(made["structuredContent"], json!({"agent_id": "child"}), "{made}");
    let listed = host.tool("nexus_list", json!({})).await["structuredContent"].to_string();
    assert!(listed.contains("child") && !listed.contains("other"), "{listed}");
    for arguments in
        [json!({"agent_id": "other", "content": "x"}), json!({"agent_id": "x", "content": "x"})]
    {
        let refused = host.tool("nexus_send", arguments).await;
        assert_eq!(refused["isError"], json!(true), "{refused}");
    }
    let yolo = host.tool("nexus_create", json!({"preset": "yolo"})).await;
    assert_eq!(yolo["isError"], json!(true), "{yolo}");
    // With its agent all of it ends, the key too.
    let agent = json!({"agent_id": "door-k"});
    server.wire().ok("destroy_agent", agent.clone()).await;
    assert_eq!(names(&server.wire()).await, ["other"]);
    let again = host.post(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"})).await;
    assert_eq!(again.status, 403);
    server.wire().ok("create_agent", agent).await;
    assert_eq!(
        host.post(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"})).await.status,
        403
    );
}

#[tokio::test]
async fn a_key_that_is_revoked_ends_at_once_with_its_turns() {
    let server = Server::start().await;
    let secret = key(&server, json!({"name": "k", "doors": ["mcp"]})).await;
    assert_eq!(status(&server, &secret, "/mcp").await, 200);
    let host = Host::connect_with(&server, Some(secret.clone()), Era::Modern, json!({})).await;
    server.model().push(Reply::hang());
    let running = async || is_busy(&server, "door-k").await;
    let (answer, ()) = tokio::join!(host.tool("nexus_send", json!({"content": "x"})), async {
        eventually("the turn to run", running).await;
        let revoked = server.wire().ok("revoke_key", json!({"name": "k"})).await;
        assert_eq!(revoked, json!({"revoked": true}));
    });
    assert_eq!(answer["structuredContent"]["cancelled"], json!(true), "{answer}");
    assert_eq!(status(&server, &secret, "/mcp").await, 403);
}

/// A script makes a key and uses it, while others ask all the time.
#[tokio::test]
async fn a_key_that_the_command_makes_opens_its_door_at_once() {
    let server = Server::start().await;
    for number in 0..3 {
        assert_eq!(status(&server, "nxd_guessed", "/mcp").await, 403);
        let name = format!("k{number}");
        let made = server.cli(["key", "create", &name, "--door", "mcp"]).await;
        let made: Value = serde_json::from_str(&made.stdout).unwrap();
        assert_eq!(status(&server, made["key"].as_str().unwrap(), "/mcp").await, 200, "{made}");
    }
}

/// Whoever only listens is told nothing more.
#[tokio::test]
async fn streams_end_with_the_key_that_they_were_opened_with() {
    let server = Server::start().await;
    for (era, name) in ERAS.into_iter().zip(["k", "l"]) {
        let secret = key(&server, json!({"name": name, "doors": ["mcp"]})).await;
        let host = Host::connect_with(&server, Some(secret), era, json!({})).await;
        let uri = format!("nexus3://agent/door-{name}/messages");
        let stream = match era {
            Era::Legacy => host.listen().await,
            Era::Modern => {
                let wanted = json!({"notifications": {"resourceSubscriptions": [uri]}});
                let mut stream = host.open("subscriptions/listen", wanted).await;
                stream.next().await;
                stream
            }
        };
        let other = Host::connect(&server, era, json!({})).await;
        server.wire().ok("revoke_key", json!({"name": name})).await;
        stream.end().await;
        other.ok("tools/list", json!({})).await;
    }
}

/// The command opens the store itself where no server runs; where one does, that one ends what came with the key.
#[tokio::test]
async fn a_key_that_the_command_revokes_ends_its_turns_in_the_server() {
    let server = Server::start().await;
    let secret = key(&server, json!({"name": "k", "doors": ["mcp"]})).await;
    let host = Host::connect_with(&server, Some(secret.clone()), Era::Modern, json!({})).await;
    server.model().push(Reply::hang());
    let running = async || is_busy(&server, "door-k").await;
    let (answer, ()) = tokio::join!(host.tool("nexus_send", json!({"content": "x"})), async {
        eventually("the turn to run", running).await;
        let revoked = server.cli(["key", "revoke", "k"]).await;
        assert_eq!((revoked.code, revoked.stdout.trim()), (Some(0), "{\"revoked\":true}"));
    });
    assert_eq!(answer["structuredContent"]["cancelled"], json!(true), "{answer}");
    assert_eq!(server.cli(["key", "revoke", "k"]).await.code, Some(1));
}

#[tokio::test]
async fn what_cannot_be_a_key_is_refused_and_leaves_no_agent() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "a"})).await;
    wire.ok("create_key", json!({"name": "taken"})).await;
    for (params, at) in [
        (json!({"name": "k", "doors": ["window"]}), "/doors/0"),
        (json!({"name": "k", "doors": []}), "/doors"),
        (json!({"name": "k", "doors": ["mcp"], "methods": ["send"]}), "/doors"),
        (json!({"name": "a b", "doors": ["mcp"]}), "/name"),
        (json!({"name": "taken", "doors": ["mcp"]}), "/name"),
        (json!({"name": "k", "doors": ["mcp"], "agent_id": "a", "preset": "trusted"}), "/preset"),
        (json!({"name": "k", "cwd": "/tmp"}), "/cwd"),
        (json!({"name": "k", "doors": ["mcp"], "preset": "emperor"}), "/preset"),
    ] {
        let refused = wire.refused("create_key", params.clone()).await;
        assert_eq!(refused.code, -32602, "{params}: {refused:?}");
        assert!(format!("{refused:?}").contains(at), "{params}: {refused:?}");
    }
    assert_eq!(names(&wire).await, ["a"]);
    // An agent that somebody made under that name is not taken for the key's.
    wire.ok("create_agent", json!({"agent_id": "door-k"})).await;
    wire.refused("create_key", json!({"name": "k", "doors": ["mcp"]})).await;
    assert_eq!(wire.ok("list_keys", json!({})).await["keys"].as_array().unwrap().len(), 1);
}

/// A key to sign with opens no door, and one for a door signs nothing.
#[tokio::test]
async fn kinds_of_keys_are_kept_apart() {
    let server = Server::start().await;
    let signing = key(&server, json!({"name": "s"})).await;
    assert_eq!(status(&server, &signing, "/mcp").await, 403);
    let near = format!("nxd_{}", &signing[4..]);
    assert_eq!(status(&server, &near, "/mcp").await, 403);
}

#[tokio::test]
async fn keys_are_made_without_a_server_too() {
    let world = Setup::new().world().await;
    let output = world.command(["key", "create", "k", "--door", "mcp"]).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(made["agent_id"], "door-k");
    let wrong = world.command(["key", "create", "x", "--door", "window"]).output().await.unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let server = Setup::new().start_in(&world).await;
    let secret = made["key"].as_str().unwrap();
    assert_eq!(status(&server, secret, "/mcp").await, 200);
}

/// Also where the host talked to another agent of its family.
#[tokio::test]
async fn turns_of_children_end_with_the_key_too() {
    let server = Server::start().await;
    let params = json!({"name": "k", "doors": ["mcp"], "preset": "trusted"});
    let host = Host::with_key(&server, params, json!({})).await;
    host.tool("nexus_create", json!({"agent_id": "child"})).await;
    server.model().push(Reply::hang());
    let send = host.tool("nexus_send", json!({"agent_id": "child", "content": "x"}));
    let (answer, ()) = tokio::join!(send, async {
        eventually("the turn to run", async || is_busy(&server, "child").await).await;
        server.wire().ok("revoke_key", json!({"name": "k"})).await;
    });
    assert_eq!(answer["structuredContent"]["cancelled"], json!(true), "{answer}");
}

/// What a door carries cannot be signed: where calls have to be, a token alone does not open it.
#[tokio::test]
async fn where_calls_are_signed_the_door_takes_keys_alone() {
    let config = json!({"auth": {"hmac": {"mode": "required"}}});
    let setup = Setup::new().config(config);
    let world = setup.world().await;
    let made = world.command(["key", "create", "k", "--door", "mcp"]).output().await.unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let server = setup.start_in(&world).await;
    assert_eq!(status(&server, server.token.as_deref().unwrap(), "/mcp").await, 403);
    assert_eq!(status(&server, made["key"].as_str().unwrap(), "/mcp").await, 200);
}
