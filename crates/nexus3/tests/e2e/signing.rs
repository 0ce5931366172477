//! Requests that their callers sign (`auth`).

use std::time::{SystemTime, UNIX_EPOCH};

use nexus_client::{NexusClient, Target, UnixClient};
use nexus_protocol::params::NonBlank;
use nexus_protocol::turn::SendParams;
use nexus_signing::{Secret, SigningKey, signed_bytes};
use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Server, Setup, Wire, eventually, process};
use crate::support::create;

const OWN: &str = "the server's own secret";
const READER: &str = "the secret of the reader";

/// A server with a secret of its own and one key that may only look.
fn signing(mode: &str) -> Setup {
    let reader = json!({"secret_env": "TEST_READER", "methods": ["get_*", "list_agents"]});
    let hmac = json!({"mode": mode, "secret_env": "TEST_OWN", "keys": {"reader": reader}});
    Setup::new()
        .config(json!({"auth": {"hmac": hmac}}))
        .env("TEST_OWN", OWN)
        .env("TEST_READER", READER)
}

/// A case over each wire on which somebody could stand in between.
macro_rules! over_outside_wires {
    ($($case:ident: $setup:expr),+ $(,)?) => { $(
        wire_tests! { $case [$setup] http Http, unix Unix, stdio Stdio }
    )+ };
}

over_outside_wires! {
    what_is_signed_is_carried_out: signing("required"),
    what_is_not_signed_rightly_is_refused: signing("required"),
    each_of_a_batch_is_signed: signing("required"),
    what_has_no_form_is_refused_by_name: signing("required"),
    a_key_leads_to_its_methods: signing("required"),
    a_key_acts_as_its_agent: signing("required"),
    a_key_ends_when_it_is_revoked: signing("required"),
    a_watch_ends_with_its_key: signing("required"),
    what_is_not_signed_may_pass: signing("optional"),
}

fn own() -> SigningKey {
    SigningKey::parse(&format!(":{OWN}")).unwrap()
}

fn reader() -> SigningKey {
    SigningKey::parse(&format!("reader:{READER}")).unwrap()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The request with this `auth`, signed with `secret`.
fn signed_as(request: &str, mut auth: Value, secret: &str) -> Value {
    let mut request: Value = serde_json::from_str(request).unwrap();
    request["auth"] = auth.clone();
    let signed = signed_bytes(&request.to_string()).unwrap();
    auth["signature"] = Secret::new(secret).sign(&signed).into();
    request["auth"] = auth;
    request
}

async fn call(
    wire: &Wire,
    key: &SigningKey,
    method: &str,
    params: Value,
) -> Result<Value, (i64, String)> {
    let answer = wire.exchange(key.sign(&request(1, method, params)).unwrap()).await;
    outcome(&answer)
}

/// The result, or the code and what the details or the message say.
fn outcome(answer: &Value) -> Result<Value, (i64, String)> {
    let Some(error) = answer.get("error") else { return Ok(answer["result"].clone()) };
    let text = error["data"]["details"].as_str().or(error["message"].as_str()).unwrap();
    Err((error["code"].as_i64().unwrap(), text.into()))
}

fn refused() -> Result<Value, (i64, String)> {
    Err((-32003, "The signature is missing or does not hold.".into()))
}

async fn what_is_signed_is_carried_out(wire: &Wire) {
    wire.model().push(Reply::text("said"));
    let params = json!({"content": "é \u{1f600}", "timeout_ms": 60000});
    assert_eq!(call(wire, &own(), "send", params).await.unwrap()["content"], "said");
    // The same call, signed anew, is another.
    for _ in 0..3 {
        call(wire, &own(), "rpc.version", json!({})).await.unwrap();
    }
    // Written in another way than it was signed: the form is what counts.
    let request =
        signed_as(&request(7, "rpc.version", json!({})), json!({"timestamp": now()}), OWN);
    let text = serde_json::to_string_pretty(&request)
        .unwrap()
        .replace('\n', "\t")
        .replace("2.0", "\\u0032.0");
    outcome(&wire.exchange(text).await).unwrap();
    // As a notification, which is carried out and not answered.
    let message = json!({"jsonrpc": "2.0", "method": "create_agent", "params": {"agent_id": "a"}});
    let unsigned = json!({"jsonrpc": "2.0", "method": "create_agent", "params": {"agent_id": "b"}});
    wire.silent(unsigned.to_string()).await;
    wire.silent(own().sign(&message.to_string()).unwrap()).await;
    eventually("the agent to be there", async || {
        let listed = call(wire, &own(), "list_agents", json!({})).await.unwrap();
        let names = listed["agents"].as_array().unwrap().iter().map(|it| it["agent_id"].clone());
        let names: Vec<_> = names.collect();
        assert!(!names.contains(&json!("b")));
        names.contains(&json!("a"))
    })
    .await;
}

async fn what_is_not_signed_rightly_is_refused(wire: &Wire) {
    let plain = request(1, "rpc.version", json!({}));
    let check = async |request: &Value, what: &str| {
        let answer = wire.exchange(request.to_string()).await;
        assert_eq!(outcome(&answer), refused(), "{what}");
        assert_eq!(answer["id"], 1, "{what}");
    };
    check(&serde_json::from_str(&plain).unwrap(), "not signed").await;
    let sign = |auth: Value| signed_as(&plain, auth, OWN);
    let good = || sign(json!({"timestamp": now(), "nonce": "1"}));
    check(&signed_as(&plain, json!({"timestamp": now()}), READER), "the secret of another").await;
    check(&sign(json!({"timestamp": now(), "key_id": "reader"})), "the name of another").await;
    check(&sign(json!({"timestamp": now(), "key_id": "nobody"})), "a key that is not").await;
    check(&sign(json!({"timestamp": now(), "key_id": ""})), "a key without a name").await;
    check(&sign(json!({"timestamp": now() - 301})), "late").await;
    check(&sign(json!({"timestamp": now() + 310})), "early").await;
    check(&sign(json!({"timestamp": u64::MAX >> 12})), "in another age").await;
    for (path, value) in [
        ("/method", json!("list_agents")),
        ("/params", json!({"x": 1})),
        ("/auth/nonce", json!("2")),
        ("/auth/timestamp", json!(now() + 1)),
    ] {
        let mut tampered = good();
        *tampered.pointer_mut(path).unwrap() = value;
        check(&tampered, path).await;
    }
    let whole = good()["auth"]["signature"].as_str().unwrap().to_owned();
    for cut in ["", &whole[..whole.len() - 1], &whole[..20], "!", &whole.replace('=', "")] {
        let mut cut_off = good();
        cut_off["auth"]["signature"] = cut.into();
        check(&cut_off, cut).await;
    }
    // A little early is well, and the second time is one too many.
    let early = sign(json!({"timestamp": now() + 290}));
    outcome(&wire.exchange(early.to_string()).await).unwrap();
    check(&early, "again").await;
    // Also when it looks different.
    let pretty = serde_json::to_string_pretty(&early).unwrap().replace('\n', "\t");
    let answer = wire.exchange(pretty).await;
    assert_eq!(outcome(&answer), refused());
    outcome(&wire.exchange(good().to_string()).await).unwrap();
}

async fn each_of_a_batch_is_signed(wire: &Wire) {
    let of = |id: u64| request(id, "rpc.version", json!({}));
    let signed = |id: u64| serde_json::from_str(&own().sign(&of(id)).unwrap()).unwrap();
    let once: Value = signed(1);
    let unsigned: Value = serde_json::from_str(&of(3)).unwrap();
    let batch = json!([once, signed(2), unsigned, once]);
    let answers = wire.exchange(batch.to_string()).await;
    let outcomes: Vec<_> = answers.as_array().unwrap().iter().map(outcome).collect();
    let good = outcomes.iter().filter(|it| it.is_ok()).count();
    assert_eq!((good, outcomes.len()), (2, 4), "{answers}");
    assert!(outcomes[1].is_ok() && outcomes[2] == refused(), "{answers}");
}

async fn what_has_no_form_is_refused_by_name(wire: &Wire) {
    let check = async |message: &str, expected: &str| {
        let answer = wire.exchange(message).await;
        let (code, text) = outcome(&answer).unwrap_err();
        assert!(code == -32600 && text.contains(expected), "{message}: {code} {text}");
    };
    let with =
        |auth: &str| format!(r#"{{"jsonrpc":"2.0","method":"rpc.version","id":1,"auth":{auth}}}"#);
    check(&with(r#""x""#), "auth must be an object").await;
    check(&with("{}"), "auth: missing field `timestamp`").await;
    check(&with(r#"{"timestamp":1}"#), "auth: missing field `signature`").await;
    check(&with(r#"{"timestamp":"1","signature":""}"#), "auth: invalid type: string").await;
    check(&with(r#"{"timestamp":1.5,"signature":""}"#), "auth: invalid type: floating").await;
    check(&with(r#"{"timestamp":1,"signature":"","x":1}"#), "auth: unknown field `x`").await;
    let holding = |params: &str| {
        let auth = r#"{"timestamp":1,"signature":""}"#;
        let of = r#"{"jsonrpc":"2.0","method":"rpc.version","id":1,"#;
        format!(r#"{of}"params":{params},"auth":{auth}}}"#)
    };
    check(&holding(r#"{"n":9007199254740993}"#), "9007199254740993 cannot be signed").await;
    check(&holding(r#"{"n":1,"n":1}"#), "auth: duplicate member: n").await;
}

async fn a_key_leads_to_its_methods(wire: &Wire) {
    call(wire, &own(), "create_agent", json!({"agent_id": "a"})).await.unwrap();
    call(wire, &reader(), "list_agents", json!({})).await.unwrap();
    call(wire, &reader(), "get_context", json!({"agent_id": "a"})).await.unwrap();
    let rule = "the key \"reader\" is for get_*, list_agents and nothing else";
    for method in ["send", "destroy_agent", "create_key", "no_such_method", "list_agent"] {
        let refused = call(wire, &reader(), method, json!({})).await;
        assert_eq!(refused, Err((-32003, rule.into())), "{method}");
    }
    // A key for some methods makes none for more, whatever its methods are called.
    let params = json!({"name": "maker", "methods": ["create_*", "revoke_key", "list_keys"]});
    let made = call(wire, &own(), "create_key", params).await.unwrap();
    let maker = SigningKey::parse(&format!("maker:{}", made["key"].as_str().unwrap())).unwrap();
    call(wire, &maker, "list_keys", json!({})).await.unwrap();
    for method in ["create_key", "revoke_key"] {
        let (code, text) = call(wire, &maker, method, json!({"name": "x"})).await.unwrap_err();
        assert!(code == -32003 && text.contains("such keys make and end none"), "{text}");
    }
}

async fn a_key_acts_as_its_agent(wire: &Wire) {
    for agent in ["a", "b"] {
        call(wire, &own(), "create_agent", json!({"agent_id": agent})).await.unwrap();
    }
    let params = json!({"name": "of-a", "agent_id": "a", "expires_days": 1});
    let made = call(wire, &own(), "create_key", params).await.unwrap();
    assert_eq!((&made["agent_id"], &made["mode"]), (&json!("a"), &json!("required")));
    let key = SigningKey::parse(&format!("of-a:{}", made["key"].as_str().unwrap())).unwrap();
    call(wire, &key, "get_context", json!({"agent_id": "a"})).await.unwrap();
    let (code, text) = call(wire, &key, "get_context", json!({"agent_id": "b"})).await.unwrap_err();
    assert!(code == -32003 && text.starts_with("agent a may not read agent b"), "{text}");
    for method in ["create_key", "list_keys", "shutdown_server"] {
        let params = if method == "create_key" { json!({"name": "x"}) } else { json!({}) };
        assert_eq!(call(wire, &key, method, params).await.unwrap_err().0, -32003, "{method}");
    }
    // Another of the same name is not the agent that the key was made for.
    call(wire, &own(), "destroy_agent", json!({"agent_id": "a"})).await.unwrap();
    assert_eq!(call(wire, &key, "get_context", json!({"agent_id": "a"})).await, refused());
    call(wire, &own(), "create_agent", json!({"agent_id": "a"})).await.unwrap();
    assert_eq!(call(wire, &key, "get_context", json!({"agent_id": "a"})).await, refused());
}

async fn a_key_ends_when_it_is_revoked(wire: &Wire) {
    let made = call(wire, &own(), "create_key", json!({"name": "ci"})).await.unwrap();
    let secret = made["key"].as_str().unwrap();
    assert!(secret.starts_with("nxs_") && secret.len() == 47, "{secret}");
    let key = SigningKey::parse(&format!("ci:{secret}")).unwrap();
    call(wire, &key, "rpc.version", json!({})).await.unwrap();
    let listed = call(wire, &key, "list_keys", json!({})).await.unwrap();
    assert_eq!(
        (listed["keys"].as_array().unwrap().len(), &listed["mode"]),
        (1, &json!("required"))
    );
    assert!(listed["keys"][0]["name"] == "ci" && !listed.to_string().contains(secret));
    let again = call(wire, &own(), "create_key", json!({"name": "ci"})).await.unwrap_err();
    assert_eq!(again, (-32602, "A key named ci exists already: revoke_key frees the name".into()));
    let revoke = json!({"name": "ci"});
    let revoked = call(wire, &own(), "revoke_key", revoke.clone()).await.unwrap();
    assert_eq!(revoked, json!({"revoked": true}));
    // On the connection that was open all the while.
    assert_eq!(call(wire, &key, "rpc.version", json!({})).await, refused());
    let revoked = call(wire, &own(), "revoke_key", revoke).await.unwrap();
    assert_eq!(revoked, json!({"revoked": false}));
}

async fn a_watch_ends_with_its_key(wire: &Wire) {
    let made = call(wire, &own(), "create_key", json!({"name": "w", "methods": ["watch"]})).await;
    let secret = made.unwrap()["key"].as_str().unwrap().to_string();
    let key = SigningKey::parse(&format!("w:{secret}")).unwrap();
    let mut watch = wire.open(key.sign(&request("watch", "watch", json!({}))).unwrap()).await;
    assert_eq!(watch.next().await.unwrap()["params"]["event"]["type"], "snapshot");
    call(wire, &own(), "revoke_key", json!({"name": "w"})).await.unwrap();
    let (_, answer) = watch.all().await;
    assert_eq!(answer["result"]["reason"], "gone");
}

async fn what_is_not_signed_may_pass(wire: &Wire) {
    wire.ok("rpc.version", json!({})).await;
    call(wire, &reader(), "list_agents", json!({})).await.unwrap();
    let other = SigningKey::parse("reader:another secret").unwrap();
    assert_eq!(call(wire, &other, "list_agents", json!({})).await, refused());
    assert_eq!(call(wire, &reader(), "send", json!({"content": "x"})).await.unwrap_err().0, -32003);
}

over_every_wire_of_messages! {
    signatures_are_passed_over_unless_somebody_asks_for_them,
}

async fn signatures_are_passed_over_unless_somebody_asks_for_them(wire: &Wire) {
    let message = r#"{"jsonrpc":"2.0","method":"rpc.version","id":1,"auth":{"whatever":[]}}"#;
    outcome(&wire.exchange(message).await).unwrap();
    assert_eq!(wire.ok("list_keys", json!({})).await, json!({"keys": [], "mode": "off"}));
}

#[tokio::test]
async fn over_http_it_is_401_and_403_and_then_429() {
    let server = signing("required")
        .server(json!({"rate_limit": {"failed_logins_per_minute": 3}}))
        .start()
        .await;
    let plain = request(1, "rpc.version", json!({}));
    let forged = || own().sign(&plain).unwrap().replace("rpc.version", "rpc.versioN");
    assert_eq!(server.ask(server.post(&*plain)).await.refusal(), (401, -32003));
    assert_eq!(server.ask(server.post(forged())).await.refusal(), (403, -32003));
    assert_eq!(server.ask(server.post(&*plain).bearer(Some("x"))).await.refusal(), (403, -32003));
    let limited = server.ask(server.post(forged())).await;
    assert_eq!(limited.refusal(), (429, -32002));
    assert!(limited.header("retry-after").is_some());
    // Whoever signs rightly is not kept out by those who do not; the token is still asked for.
    let good = || own().sign(&plain).unwrap();
    assert_eq!(server.ask(server.post(good())).await.status, 200);
    assert_eq!(server.ask(server.post(good()).bearer(None)).await.status, 429);
}

#[tokio::test]
async fn a_signature_that_was_taken_is_not_taken_by_the_next_server() {
    let server = signing("required").start().await;
    let signed = own().sign(&request(1, "rpc.version", json!({}))).unwrap();
    assert_eq!(server.ask(server.post(&*signed)).await.status, 200);
    let then = now();
    eventually("a second that is another to the kernel too", async || now() > then + 1).await;
    let server = server.restart().await;
    assert_eq!(server.ask(server.post(&*signed)).await.refusal(), (403, -32003));
    let fresh = own().sign(&request(1, "rpc.version", json!({}))).unwrap();
    assert_eq!(server.ask(server.post(fresh)).await.status, 200);
}

#[tokio::test]
async fn keys_are_made_and_ended_beside_a_server() {
    let server = signing("required").start().await;
    let made = server.cli(["key", "create", "ci", "--method", "list_*", "--days", "2"]).await;
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!((&made["methods"], &made["mode"]), (&json!(["list_*"]), &json!("required")));
    let key = format!("ci:{}", made["key"].as_str().unwrap());
    let listed = server.cli(["key", "list"]).await.stdout;
    assert!(listed.contains("\"ci\"") && !listed.contains(made["key"].as_str().unwrap()));
    let port = server.address.port().to_string();
    let rpc = async |key: Option<&str>, words: &[&str]| {
        let words = [&["rpc", "--port", &port], words].concat();
        let mut command = server.world.command(words);
        if let Some(key) = key {
            command.env("NEXUS3_SIGNING_KEY", key);
        }
        process::run(command).await
    };
    let listing = rpc(Some(&key), &["list"]).await;
    assert!(listing.code == Some(0), "{}", listing.stderr);
    let unsigned = rpc(None, &["list"]).await;
    assert!(unsigned.code != Some(0) && unsigned.stderr.contains("Authentication failed"));
    let none = rpc(Some("no key"), &["list"]).await;
    assert!(none.stderr.contains("a signing key must be ID:SECRET"), "{}", none.stderr);
    let refused = rpc(Some(&key), &["create", "x"]).await;
    assert!(refused.stderr.contains("is for list_* and nothing else"), "{}", refused.stderr);
    // Through the server, by whoever may.
    let own = format!(":{OWN}");
    let made = rpc(Some(&own), &["keys", "create", "other", "--agent", "main"]).await;
    assert!(made.stderr.contains("Unknown agent: main"), "{}", made.stderr);
    assert!(rpc(Some(&own), &["create", "main"]).await.code == Some(0));
    let made = rpc(Some(&own), &["keys", "create", "other", "--agent", "main"]).await;
    let other: Value = serde_json::from_str(&made.stdout).unwrap();
    let other = format!("other:{}", other["key"].as_str().unwrap());
    assert!(rpc(Some(&other), &["status", "main"]).await.code == Some(0));
    assert!(rpc(Some(&own), &["keys", "list"]).await.stdout.contains("\"other\""));
    let again = server.cli(["key", "create", "other"]).await;
    assert!(again.stderr.contains("a key named other exists already"), "{}", again.stderr);
    for (name, code) in [("ci", 0), ("ci", 1)] {
        let revoked = server.cli(["key", "revoke", name]).await;
        assert_eq!(revoked.code, Some(code), "{}", revoked.stdout);
    }
    // Another process did it, so the server takes a moment to see it.
    eventually("the key to end", async || rpc(Some(&key), &["list"]).await.code != Some(0)).await;
}

#[tokio::test]
async fn the_clients_in_rust_sign() {
    let server = signing("required").start().await;
    let socket = server.socket.as_ref().unwrap();
    let unix = UnixClient::new(socket).signing_key(own());
    let http = NexusClient::builder().url(&server.url).token(server.token.as_deref().unwrap());
    let http = http.signing_key(&format!(":{OWN}")).build().unwrap();
    let (target, params) = (Target::Server, json!({}));
    for _ in 0..3 {
        unix.call_value(&target, "rpc.version", &params).await.unwrap();
        http.call_value(&target, "rpc.version", &params).await.unwrap();
    }
    server.model().push(Reply::text("said"));
    let said = SendParams::new(NonBlank::new("hello").unwrap());
    http.call_value(&target, "create_agent", &json!({"agent_id": "a"})).await.unwrap();
    let mut stream = http.send_stream("a", said).await.unwrap();
    while let Some(item) = stream.next().await {
        item.unwrap();
    }
    let inexact = json!({"content": "x", "timeout_ms": 9_007_199_254_740_993_u64});
    let refused = unix.call_value(&target, "send", &inexact).await.unwrap_err().to_string();
    assert!(refused.contains("9007199254740993 cannot be signed"), "{refused}");
    let unsigned = UnixClient::new(socket).call_value(&target, "rpc.version", &params).await;
    assert!(unsigned.unwrap_err().to_string().contains("Authentication failed"));
}

#[tokio::test]
async fn the_client_of_sandboxes_signs() {
    let server = signing("required").start().await;
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_nexus3")).with_file_name("ash");
    let ash = async |key: Option<&str>| {
        let mut command = tokio::process::Command::new(&program);
        command.args(["memory", "add", "likes tea"]).env_clear();
        command.env("ASH_RPC_SOCKET", server.socket.as_ref().unwrap());
        if let Some(key) = key {
            command.env("NEXUS3_SIGNING_KEY", key);
        }
        process::run(command).await
    };
    let own = format!(":{OWN}");
    let added = ash(Some(&own)).await;
    assert!(added.code == Some(0), "{}", added.stderr);
    assert!(ash(None).await.stderr.contains("Authentication failed"));
    assert!(ash(Some(":wrong")).await.stderr.contains("Authentication failed"));
    let none = ash(Some("x")).await;
    assert!(none.stderr.contains("NEXUS3_SIGNING_KEY must be ID:SECRET"), "{}", none.stderr);
}

#[tokio::test]
async fn what_runs_in_the_same_process_signs_nothing() {
    let world = signing("required").world().await;
    world.model.push(Reply::text("said"));
    let mut command = world.command(["exec", "hello"]);
    command.env("TEST_OWN", OWN).env("TEST_READER", READER);
    let said = process::run(command).await;
    assert_eq!(said.stdout.trim(), "said", "{}", said.stderr);
}

#[tokio::test]
async fn a_secret_that_is_not_there_stops_the_start() {
    let refused = async |secret: &str| {
        let world = signing("required").world().await;
        let mut command = world.command(["serve", "0", "--no-socket"]);
        command.env("TEST_READER", READER).env("TEST_OWN", secret);
        let output = process::run(command).await;
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        output.stderr
    };
    assert!(refused("").await.contains("auth.hmac.secret_env: the environment has no TEST_OWN"));
    let short = "auth.hmac.secret_env: TEST_OWN must be at least 16 bytes long";
    assert!(refused(&"x".repeat(15)).await.contains(short));
    let mut server = signing("required").env("TEST_OWN", "x".repeat(16)).start().await;
    server.terminate().await;
}

#[tokio::test]
async fn each_key_has_calls_of_its_own() {
    let setup = signing("optional").server(json!({"rate_limit": {"calls_per_minute": 2}}));
    let server: Server = setup.start().await;
    let wire = server.wire();
    for key in [&own(), &reader()] {
        for code in [None, None, Some(-32002)] {
            let outcome = call(&wire, key, "list_agents", json!({})).await;
            assert_eq!(outcome.err().map(|error| error.0), code);
        }
    }
    create(&wire, "a").await;
}
