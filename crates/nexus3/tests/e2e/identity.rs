//! Who calls, and what that one may do: the server token, callers lowered to an agent, tokens bound to one.

use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{HttpRequest, Response, Server, Setup};

const VERSION: &str = r#"{"jsonrpc":"2.0","method":"rpc.version","id":1}"#;

/// A parent with two children and a grandchild, and a stranger.
async fn family() -> Server {
    let server = Setup::new().start().await;
    let wire = server.wire();
    for (name, preset, parent) in [
        ("parent", "trusted", None),
        ("child", "sandboxed", Some("parent")),
        ("sibling", "sandboxed", Some("parent")),
        ("stranger", "sandboxed", None),
    ] {
        let params = json!({"agent_id": name, "preset": preset, "parent_agent_id": parent});
        wire.ok("create_agent", params).await;
    }
    server
}

fn as_agent(server: &Server, agent: &str, method: &str, params: Value) -> HttpRequest {
    server.post(request(1, method, params)).header("X-Nexus-Agent", agent)
}

fn allowed(response: &Response) -> bool {
    let answer = response.answer();
    assert_eq!(response.status, 200, "{answer}");
    match answer["error"]["code"].as_i64() {
        None => true,
        Some(-32003) => false,
        Some(_) => panic!("{answer}"),
    }
}

#[tokio::test]
async fn the_name_of_the_scheme_has_no_case() {
    let server = Server::start().await;
    let token = server.token.clone().unwrap();
    for scheme in ["Bearer", "bearer", "BEARER", "bearer  "] {
        let request = server.post(VERSION).header("Authorization", format!("{scheme} {token}"));
        assert_eq!(server.ask(request).await.status, 200, "{scheme}");
    }
    let request = server.post(VERSION).header("Authorization", format!("basic {token}"));
    assert_eq!(server.ask(request).await.refusal(), (403, -32003));
}

#[tokio::test]
async fn without_the_right_token_nothing_is_done_and_nothing_is_told() {
    let server = Server::start().await;
    let token = server.token.clone().unwrap();
    let missing = server.ask(server.post(VERSION).bearer(None)).await;
    assert_eq!(missing.refusal(), (401, -32003));
    assert_eq!(missing.header("www-authenticate"), Some("Bearer"));

    let almost = format!("{}x", &token[..token.len() - 1]);
    let wrong: [&[u8]; 11] = [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer nxk_",
        &[b"Bearer ", almost.as_bytes()].concat(),
        &[b"Bearer ", &token.as_bytes()[..token.len() - 1]].concat(),
        &[b"Bearer ", token.as_bytes(), b"x"].concat(),
        &[b"Basic ", token.as_bytes()].concat(),
        token.as_bytes(),
        "Bearer nxk_schl\u{fc}ssel".as_bytes(),
        b"Bearer \xff\xfe\x80",
    ];
    for header in wrong {
        let shown = String::from_utf8_lossy(header);
        let create = server.post(request(1, "create_agent", json!({"agent_id": "a"})));
        let response = server.ask(create.header("Authorization", header)).await;
        assert_eq!(response.refusal(), (403, -32003), "{shown}");
        assert_eq!(response.body, missing.body, "one text for every reason: {shown}");
    }
    assert_eq!(server.wire().ok("list_agents", json!({})).await, json!({"agents": []}));
    // A refused caller learns nothing of what is in the body or which agents there are.
    for (body, path) in [("nope", "/"), (VERSION, "/agent/nobody")] {
        let response = server.ask(server.post(body).path(path).bearer(None)).await;
        assert_eq!((response.status, response.body), (401, missing.body.clone()), "{path}");
    }
}

#[tokio::test]
async fn a_header_lowers_the_caller_to_that_agent() {
    let server = family().await;
    for (who, target, may) in [
        ("child", "child", true),
        ("parent", "child", true),
        ("sibling", "child", false),
        ("child", "parent", false),
        ("stranger", "child", false),
        ("child", "stranger", false),
    ] {
        let read = as_agent(&server, who, "get_context", json!({"agent_id": target}));
        assert_eq!(allowed(&server.ask(read.clone()).await), may, "{who} reads {target}");
        let read = read.body(request(1, "get_context", json!({})));
        let response = server.ask(read.path(format!("/agent/{target}"))).await;
        assert_eq!(allowed(&response), may, "{who} reads {target} at its own path");
        if !may {
            let destroy = as_agent(&server, who, "destroy_agent", json!({"agent_id": target}));
            assert!(!allowed(&server.ask(destroy).await), "{who} destroys {target}");
        }
    }
    for (who, target) in [("child", "child"), ("parent", "sibling"), ("parent", "parent")] {
        let destroy = as_agent(&server, who, "destroy_agent", json!({"agent_id": target}));
        let response = server.ask(destroy).await;
        assert!(allowed(&response), "{who} destroys {target}");
        assert_eq!(response.answer()["result"]["success"], true);
    }
    let left = server.wire().ok("list_agents", json!({})).await;
    assert_eq!(left["agents"].as_array().unwrap().len(), 1, "{left}");
}

#[tokio::test]
async fn a_lowered_caller_sees_its_own_line_and_rules_no_server() {
    let server = family().await;
    let names = async |who: &str| {
        let response = server.ask(as_agent(&server, who, "list_agents", json!({}))).await;
        let answer = response.answer();
        let agents = answer["result"]["agents"].as_array().unwrap().iter();
        let mut names: Vec<_> =
            agents.map(|agent| agent["agent_id"].as_str().unwrap().to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names("child").await, ["child", "parent"]);
    assert_eq!(names("parent").await, ["child", "parent", "sibling"]);
    assert_eq!(names("stranger").await, ["stranger"]);
    // Nor does it learn by a page that another line has an agent of that name.
    let after = async |who: &str, name: &str| {
        let listing = as_agent(&server, who, "list_agents", json!({"after": name}));
        server.ask(listing).await.answer()["error"]["message"].take()
    };
    for (who, name) in [("child", "parent"), ("parent", "child"), ("stranger", "stranger")] {
        assert_eq!(after(who, name).await, json!(null), "{who} lists behind {name}");
    }
    for (who, name) in [("stranger", "parent"), ("child", "sibling"), ("child", "nobody")] {
        assert_eq!(after(who, name).await, json!(format!("Unknown agent: {name}")));
    }
    for (method, params) in [
        ("shutdown_server", json!({})),
        ("shutdown", json!({})),
        ("shutdown", json!({"agent_id": "sibling"})),
        ("cancel", json!({"agent_id": "sibling", "request_id": 1})),
        ("send", json!({"agent_id": "sibling", "content": "x"})),
        ("create_agent", json!({"agent_id": "new"})),
        ("create_agent", json!({"agent_id": "new", "parent_agent_id": "parent"})),
        ("create_agent_token", json!({"agent_id": "sibling"})),
    ] {
        let response = server.ask(as_agent(&server, "child", method, params.clone())).await;
        assert!(!allowed(&response), "{method} {params}");
    }
    // Its parent may be told something.
    let send = as_agent(&server, "child", "send", json!({"agent_id": "parent", "content": "x"}));
    assert!(allowed(&server.ask(send).await));
    let history = server.wire().ok("get_messages", json!({"agent_id": "parent"})).await;
    assert_eq!(history["messages"][0]["meta"]["source_agent_id"], "child");
}

#[tokio::test]
async fn a_header_that_names_no_agent_is_refused() {
    let server = family().await;
    for name in [&b"not a name"[..], b"", b"..", b"child,parent", b"\xff", b"nobody"] {
        let response = server.ask(server.post(VERSION).header("X-Nexus-Agent", name)).await;
        assert_eq!(response.refusal(), (403, -32003), "{}", String::from_utf8_lossy(name));
    }
    // Nobody becomes an agent by claiming it.
    let response =
        server.ask(server.post(VERSION).bearer(None).header("X-Nexus-Agent", "child")).await;
    assert_eq!(response.refusal(), (401, -32003));
}

#[tokio::test]
async fn an_agents_token_acts_only_as_that_agent() {
    let server = family().await;
    let created = server.wire().ok("create_agent_token", json!({"agent_id": "child"})).await;
    let token = created["token"].as_str().unwrap().to_string();
    assert_eq!(created["agent_id"], "child");
    let with_token =
        |method: &str, params| server.post(request(1, method, params)).bearer(Some(&token));

    let own = server.ask(with_token("get_context", json!({"agent_id": "child"}))).await;
    assert!(allowed(&own));
    let named =
        with_token("get_context", json!({"agent_id": "child"})).header("X-Nexus-Agent", "child");
    assert!(allowed(&server.ask(named).await));
    for target in ["sibling", "parent", "stranger"] {
        let destroy = with_token("destroy_agent", json!({"agent_id": target}));
        assert!(!allowed(&server.ask(destroy).await), "{target}");
        // It cannot be raised or turned into another.
        let claimed = with_token("get_context", json!({})).header("X-Nexus-Agent", target);
        assert_eq!(server.ask(claimed).await.refusal(), (403, -32003), "{target}");
    }
    assert!(!allowed(&server.ask(with_token("shutdown_server", json!({}))).await));
    let forged = token.replace("child", "parent");
    let response = server.ask(server.post(VERSION).bearer(Some(&forged))).await;
    assert_eq!(response.refusal(), (403, -32003));
}

#[tokio::test]
async fn a_parent_makes_tokens_for_its_children() {
    let server = family().await;
    let make = |who: &str, target: &str| {
        as_agent(&server, who, "create_agent_token", json!({"agent_id": target}))
    };
    assert!(allowed(&server.ask(make("parent", "child")).await));
    assert!(allowed(&server.ask(make("child", "child")).await));
    assert!(!allowed(&server.ask(make("child", "parent")).await));
    let unknown = server.wire().refused("create_agent_token", json!({"agent_id": "nobody"})).await;
    assert_eq!(unknown.code, -32602);
}

#[tokio::test]
async fn an_agents_token_dies_with_its_agent_and_with_the_server() {
    let server = family().await;
    let mut tokens = Vec::new();
    for agent in ["child", "sibling"] {
        let made = server.wire().ok("create_agent_token", json!({"agent_id": agent})).await;
        tokens.push(made["token"].as_str().unwrap().to_string());
    }
    let status = async |server: &Server, token: &str| {
        server.ask(server.post(VERSION).bearer(Some(token))).await.status
    };
    assert_eq!(status(&server, &tokens[0]).await, 200);
    server.wire().ok("destroy_agent", json!({"agent_id": "child"})).await;
    assert_eq!(status(&server, &tokens[0]).await, 403);
    // A new agent of the same name is another one.
    server.wire().ok("create_agent", json!({"agent_id": "child"})).await;
    assert_eq!(status(&server, &tokens[0]).await, 403);

    assert_eq!(status(&server, &tokens[1]).await, 200);
    let old = server.token.clone().unwrap();
    let server = server.restart().await;
    assert_eq!(status(&server, &tokens[1]).await, 403);
    assert_eq!(status(&server, &old).await, 403);
}

#[tokio::test]
async fn without_authentication_everybody_is_the_administrator_and_the_log_says_so() {
    let server = Setup::new().arg("--no-auth").start().await;
    assert_eq!(server.token_file, None);
    let warning = server.log().lines().into_iter().find(|line| line["level"] == "WARN").unwrap();
    assert!(warning["message"].as_str().unwrap().contains("WITHOUT A TOKEN"), "{warning}");
    for token in [None, Some("whatever")] {
        let create = server.post(request(1, "create_agent", json!({}))).bearer(token);
        assert!(allowed(&server.ask(create).await));
    }
    // It is for loopback only, and still not for web pages.
    let page = server.post(VERSION).header("Origin", "http://evil.example");
    assert_eq!(server.ask(page).await.status, 403);
    let files = std::fs::read_dir(server.world.home()).unwrap();
    let names: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("token")), "{names:?}");
}
