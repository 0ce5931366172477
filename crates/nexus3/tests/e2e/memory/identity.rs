//! For whom a connection speaks: by a token, or by the socket it came through.

use std::path::PathBuf;

use nexus_core::memory::Identity;
use nexus_server::context_token::ContextTokens;
use serde_json::{Value, json};

use super::{add, contents, seen, with};
use crate::harness::wire::request;
use crate::harness::{Framed, Server, Setup};

const SECRET: &str = "a secret of the host";

fn with_secret() -> Setup {
    Setup::new().env("ASH_CONTEXT_TOKEN_SECRET", SECRET)
}

pub fn token(user: &str, chat: Option<&str>, seconds: i64) -> String {
    let identity = Identity { user: Some(user.into()), chat: chat.map(Into::into) };
    let now = jiff::Timestamp::now();
    ContextTokens::new(SECRET).unwrap().mint(&identity, now, seconds)
}

/// A token that somebody signed who has not the key.
pub fn forged(user: &str) -> String {
    let identity = Identity { user: Some(user.into()), chat: None };
    let other = ContextTokens::new("another secret").unwrap();
    other.mint(&identity, jiff::Timestamp::now(), 60)
}

async fn ask(connection: &mut Framed, method: &str, params: Value) -> Value {
    connection.send(request(1, method, params).as_bytes()).await;
    connection.message().await
}

/// What a connection sees that says this of itself.
async fn seen_by(connection: &mut Framed, params: Value) -> Vec<String> {
    contents(&ask(connection, "memory.list", params).await["result"])
}

#[tokio::test]
async fn a_token_replaces_what_the_parameters_say() {
    let server = with_secret().start().await;
    let wire = server.wire();
    for who in ["u", "v"] {
        add(&wire, json!({"content": format!("of {who}"), "user_id": who})).await;
    }
    let mine = json!({"context_token": token("u", Some("c"), 60)});
    let said = with(&mine, json!({"user_id": "v", "chat_id": "d"}));
    assert_eq!(seen(&wire, &said).await, ["of u"]);
    let shared = with(&said, json!({"content": "of c", "shared": true}));
    assert_eq!(add(&wire, shared).await["shared"], true);
    assert_eq!(seen(&wire, &json!({"chat_id": "c"})).await, ["of c"]);
    // Each call over HTTP stands alone.
    assert_eq!(seen(&wire, &json!({"user_id": "v"})).await, ["of v"]);

    let valid = token("u", None, 60);
    let (rest, _) = valid.rsplit_once('.').unwrap();
    for wrong in
        [forged("u"), token("u", None, -1), format!("{rest}.AAAA"), "x".into(), "a.b.c".into()]
    {
        for method in ["memory.list", "memory.search", "memory.add", "memory.delete"] {
            let params = json!({
                "context_token": wrong, "query": "x", "content": "x", "memory_id": "01234567", "user_id": "u"
            });
            let refused = wire.refused(method, params).await;
            assert_eq!((refused.code, &*refused.message), (-32003, "Authentication failed"));
        }
    }
    assert_eq!(seen(&wire, &json!({"user_id": "u"})).await, ["of u"]);
}

#[tokio::test]
async fn without_a_secret_no_token_is_valid() {
    let server = Server::start().await;
    let params = json!({"context_token": token("u", None, 60)});
    assert_eq!(server.wire().refused("memory.list", params).await.code, -32003);
}

#[tokio::test]
async fn the_first_token_of_a_connection_binds_it() {
    let server = with_secret().start().await;
    let wire = server.wire();
    for who in ["u", "v"] {
        add(&wire, json!({"content": format!("of {who}"), "user_id": who})).await;
    }
    let mut connection = server.unix().await;
    assert_eq!(seen_by(&mut connection, json!({"user_id": "v"})).await, ["of v"]);
    let params = json!({"context_token": token("u", None, 60), "user_id": "v"});
    assert_eq!(seen_by(&mut connection, params).await, ["of u"]);
    assert_eq!(seen_by(&mut connection, json!({"user_id": "v"})).await, ["of u"]);
    // A call's own token is for that call.
    let params = json!({"context_token": token("v", None, 60)});
    assert_eq!(seen_by(&mut connection, params).await, ["of v"]);
    assert_eq!(seen_by(&mut connection, json!({})).await, ["of u"]);
    let wrong = ask(&mut connection, "memory.list", json!({"context_token": "x"})).await;
    assert_eq!(wrong["error"]["code"], -32003);
    assert_eq!(seen_by(&mut connection, json!({})).await, ["of u"]);
    // Another connection is another's.
    let mut other = server.unix().await;
    assert_eq!(seen_by(&mut other, json!({"user_id": "v"})).await, ["of v"]);
}

/// A setup with sockets for u in c, and for v.
pub fn with_doors(dir: &tempfile::TempDir) -> (Setup, [PathBuf; 2]) {
    let paths = ["u", "v"].map(|name| dir.path().join(name).join("rpc.sock"));
    let setup = with_secret()
        .arg("--socket")
        .arg(&paths[0])
        .arg("--socket-identity")
        .arg("user=u,chat=c")
        .arg("--socket")
        .arg(&paths[1])
        .arg("--socket-identity")
        .arg("user=v")
        .arg("--socket-methods")
        .arg("memory.*,rpc.version");
    (setup, paths)
}

#[tokio::test]
async fn a_socket_can_be_for_one_identity_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (setup, paths) = with_doors(&dir);
    let mut server = setup.start().await;
    let wire = server.wire();
    for (who, user, chat) in [("u", "u", ""), ("v", "v", ""), ("c", "", "c"), ("d", "", "d")] {
        let params = json!({"content": format!("of {who}"), "user_id": user, "chat_id": chat, "shared": user.is_empty()});
        add(&wire, params).await;
    }
    let (mut u, mut v) = (Framed::connect(&paths[0]).await, Framed::connect(&paths[1]).await);
    let lies = json!({"user_id": "v", "chat_id": "d"});
    assert_eq!(seen_by(&mut u, lies.clone()).await, ["of c", "of u"]);
    assert_eq!(seen_by(&mut v, json!({"user_id": "u", "chat_id": "c"})).await, ["of v"]);
    let kept = ask(&mut u, "memory.add", with(&lies, json!({"content": "more of u"}))).await;
    assert_eq!(seen(&wire, &json!({"user_id": "u"})).await, ["more of u", "of u"]);
    let id = &kept["result"]["id"];
    let gone = ask(&mut v, "memory.delete", json!({"memory_id": id, "user_id": "u"})).await;
    assert_eq!(gone["result"]["deleted"], false);

    // A token leads no further than the socket.
    for (user, chat, expected) in [
        ("u", Some("c"), Some(vec!["more of u", "of c", "of u"])),
        ("u", None, Some(vec!["more of u", "of u"])),
        ("u", Some("d"), None),
        ("v", None, None),
    ] {
        let mut connection = Framed::connect(&paths[0]).await;
        let params = json!({"context_token": token(user, chat, 60)});
        let answer = ask(&mut connection, "memory.list", params).await;
        match expected {
            Some(expected) => assert_eq!(contents(&answer["result"]), expected, "{user} {chat:?}"),
            None => assert_eq!(answer["error"]["code"], -32003, "{answer}"),
        }
    }
    // Nothing else is to be had there, whether or not it exists.
    for method in ["list_agents", "shutdown_server", "send", "rpc.discover", "no.such", "memory"] {
        for connection in [&mut u, &mut v] {
            let answer = ask(connection, method, json!({})).await;
            assert_eq!(answer["error"]["code"], -32003, "{method} {answer}");
            let details = answer["error"]["data"]["details"].as_str().unwrap();
            assert!(
                details.contains("memory.*") && details.contains("socket-methods"),
                "{details}"
            );
        }
    }
    assert_eq!(ask(&mut u, "rpc.version", json!({})).await["error"]["code"], -32003);
    assert_eq!(ask(&mut v, "rpc.version", json!({})).await["result"]["name"], "nexus3");
    let batch = format!(
        "[{},{}]",
        request(1, "list_agents", json!({})),
        request(2, "memory.list", json!({}))
    );
    u.send(batch.as_bytes()).await;
    let answers = u.message().await;
    assert_eq!(answers[0]["error"]["code"], -32003);
    assert_eq!(answers[1]["result"].as_array().unwrap().len(), 3);
    // The owner's own socket is as it was.
    let mut own = server.unix().await;
    assert!(ask(&mut own, "list_agents", json!({})).await["result"].is_object());

    drop((u, v, own));
    assert!(server.terminate().await.success());
    assert!(paths.iter().all(|path| !path.exists()), "they go with the server");
}

#[tokio::test]
async fn a_socket_can_be_for_whoever_brings_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shared").join("rpc.sock");
    let setup = with_secret().arg("--socket").arg(&path).arg("--socket-identity").arg("token");
    let server = setup.start().await;
    let wire = server.wire();
    for (who, user) in [("u", "u"), ("v", "v"), ("all", "")] {
        add(&wire, json!({"content": format!("of {who}"), "user_id": user})).await;
    }
    let mut connection = Framed::connect(&path).await;
    let params = |token: Value| {
        json!({
            "query": "of", "content": "x", "memory_id": "01234567", "user_id": "u", "context_token": token
        })
    };
    for wrong in [Value::Null, json!(""), json!(forged("u")), json!(token("u", None, -1))] {
        for method in ["memory.list", "memory.search", "memory.add", "memory.delete"] {
            let refused = ask(&mut connection, method, params(wrong.clone())).await;
            assert_eq!(refused["error"]["code"], -32003, "{method} {refused}");
            assert_eq!(refused["error"]["message"], "Authentication failed");
        }
    }
    for user in ["u", "v"] {
        let own = json!({"context_token": token(user, None, 60), "user_id": "w"});
        let expected = ["of all".to_owned(), format!("of {user}")];
        assert_eq!(seen_by(&mut connection, own).await, expected);
    }
    // The first one stays the connection's, and no other's.
    assert_eq!(seen_by(&mut connection, json!({"user_id": "v"})).await, ["of all", "of u"]);
    let mut other = Framed::connect(&path).await;
    let nobody = ask(&mut other, "memory.list", json!({})).await;
    assert_eq!(nobody["error"]["code"], -32003, "{nobody}");
    for method in ["list_agents", "shutdown_server", "no.such"] {
        let answer =
            ask(&mut connection, method, json!({"context_token": token("u", None, 60)})).await;
        assert_eq!(answer["error"]["code"], -32003, "{method} {answer}");
    }
    assert_eq!(seen(&wire, &json!({"user_id": "u"})).await, ["of all", "of u"]);
}

#[tokio::test]
async fn a_socket_for_tokens_needs_a_key() {
    let setup = Setup::new();
    let world = setup.world().await;
    let path = world.path("shared.sock");
    let refused = setup.arg("--socket").arg(&path).arg("--socket-identity").arg("token");
    let refused = refused.fails_in(&world).await;
    assert!(refused.stderr.contains("ASH_CONTEXT_TOKEN_SECRET"), "{refused:?}");
    assert!(refused.code != Some(0) && !path.exists());
}
