//! What servers have beside tools: prompts and resources, and images in what they say.

use std::fs;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{entry, status, tool, user, with, with_entry};
use crate::harness::{Server, Setup, Wire, eventually};
use crate::support::{as_agent, history, say, waiting};

over_every_wire! {
    prompts_and_resources_are_listed_and_read: with("has"),
    prompts_and_resources_of_now_are_listed_and_read: with("has modern"),
}

async fn prompts_and_resources_of_now_are_listed_and_read(wire: &Wire) {
    prompts_and_resources_are_listed_and_read(wire).await;
}

async fn prompts_and_resources_are_listed_and_read(wire: &Wire) {
    user(wire, "a").await;
    let ask = async |method: &str, params: Value| {
        let mut params = params;
        params["agent_id"] = json!("a");
        wire.ok(method, params).await
    };
    // Nothing is started that nobody named.
    assert_eq!(ask("mcp_prompts", json!({})).await, json!({"prompts": []}));
    assert_eq!(status(wire, "a").await["state"], "configured");
    let greet = json!({"server": "s", "name": "greet", "description": "Says hello",
        "arguments": [{"name": "whom", "required": true}]});
    assert_eq!(ask("mcp_prompts", json!({"server": "s"})).await, json!({"prompts": [greet]}));
    assert_eq!(ask("mcp_prompts", json!({})).await, json!({"prompts": [greet]}));
    let params = json!({"server": "s", "name": "greet", "arguments": {"whom": "Ada"}});
    let got = ask("mcp_get_prompt", params).await;
    assert_eq!(got["description"], "Says hello");
    assert_eq!(
        got["messages"],
        json!([{"role": "user", "content": {"type": "text", "text": "Hello, Ada!"}}])
    );
    let page = ask("mcp_resources", json!({"server": "s"})).await;
    let first = json!({"server": "s", "uri": "note:///a", "name": "a"});
    assert_eq!(page, json!({"resources": [first], "next_cursor": "2"}));
    let page = ask("mcp_resources", json!({"server": "s", "cursor": "2"})).await;
    let second = json!({"server": "s", "uri": "note:///b", "name": "b"});
    assert_eq!(page, json!({"resources": [second]}));
    assert_eq!(ask("mcp_resources", json!({})).await, json!({"resources": [first]}));
    let read = ask("mcp_read_resource", json!({"server": "s", "uri": "note:///a"})).await;
    assert_eq!(read["contents"][0]["text"].as_str().unwrap().len(), 60_003);
    for (method, params, code) in [
        ("mcp_resources", json!({"cursor": "2"}), -32602),
        ("mcp_prompts", json!({"server": "nope"}), -32602),
        ("mcp_get_prompt", json!({"server": "s", "name": "nope"}), -32000),
        ("mcp_read_resource", json!({"server": "s", "uri": "note:///nope"}), -32000),
        ("mcp_read_resource", json!({"server": "s", "uri": "note:///huge"}), -32000),
    ] {
        let mut params = params;
        params["agent_id"] = json!("a");
        let refused = wire.refused(method, params.clone()).await;
        assert_eq!(refused.code, code, "{method} {params}: {}", refused.message);
    }
}

/// A server's calls are for those whom it is there for.
#[tokio::test]
async fn only_who_stands_above_looks_and_only_at_what_the_agent_sees() {
    let server = with("has").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    wire.ok("create_agent", json!({"agent_id": "none"})).await;
    for method in ["mcp_prompts", "mcp_resources"] {
        let params = json!({"agent_id": "a", "server": "s"});
        let own = as_agent(&server, "a", method, params).await.unwrap_err();
        assert_eq!(own.0, -32003, "{own:?}");
        let unseen = wire.refused(method, json!({"agent_id": "none", "server": "s"})).await;
        assert_eq!(unseen.code, -32602);
        assert_eq!(status(&wire, "a").await["calls"], 0);
    }
    // One that has none says so.
    let server = with("").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let params = json!({"agent_id": "a", "server": "s"});
    assert_eq!(wire.ok("mcp_prompts", params.clone()).await, json!({"prompts": []}));
    assert_eq!(wire.ok("mcp_resources", params).await, json!({"resources": []}));
    let params = json!({"agent_id": "a", "server": "s", "uri": "note:///a"});
    let refused = wire.refused("mcp_read_resource", params).await;
    assert!(refused.data.to_string().contains("does not give it: it has no resources"));
}

/// Lets the model read.
async fn read(wire: &Wire, agent: &str, arguments: Value) -> String {
    wire.model().push(Reply::tool_call("mcp_read", arguments));
    wire.model().push(Reply::text("done"));
    assert_eq!(say(wire, agent, "go").await, "done");
    let lines = history(wire, agent).await;
    lines[lines.len() - 2].strip_prefix("tool: ").unwrap().to_owned()
}

fn offered(server: &Server) -> Vec<String> {
    let request = server.model().last_request();
    let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_model_reads_resources_within_its_permissions() {
    let server = with("has").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let one = json!({"agent_id": "one", "mcp": {"s": ["echo"]}});
    wire.ok("create_agent", one).await;
    let reader = json!({"agent_id": "reader", "mcp": {"s": ["resources/read"]}});
    wire.ok("create_agent", reader).await;
    let first = read(&wire, "a", json!({"server": "s", "uri": "note:///a"})).await;
    assert!(first.starts_with("xxx"), "{}", &first[..50]);
    assert!(first.ends_with("\n[bytes 0 to 50000 of 60003; read on with offset 50000]"));
    assert!(offered(&server).contains(&"mcp_read".into()));
    let rest = json!({"server": "s", "uri": "note:///a", "offset": 50_000});
    let rest = read(&wire, "reader", rest).await;
    assert!(rest.ends_with("xend") && rest.len() == 10_003, "{}", rest.len());
    let refused = read(&wire, "one", json!({"server": "s", "uri": "note:///a"})).await;
    assert_eq!(
        refused,
        "Refused: this agent may not use the tool resources/read of the MCP server s."
    );
    let unknown = read(&wire, "a", json!({"server": "x", "uri": "note:///a"})).await;
    assert!(unknown.contains("there is no MCP server x"), "{unknown}");
    let missing = read(&wire, "a", json!({"uri": "note:///a"})).await;
    assert!(missing.contains("server is missing"), "{missing}");
    let failed = read(&wire, "a", json!({"server": "s", "uri": "note:///nope"})).await;
    assert!(failed.starts_with("Failed: ") && failed.contains("unknown method"), "{failed}");
    let beyond = json!({"server": "s", "uri": "note:///a", "offset": 60_004});
    assert!(read(&wire, "a", beyond).await.contains("it has only 60003 bytes"));
}

#[tokio::test]
async fn reading_is_asked_about_at_trusted_and_granted_for_the_server() {
    let config = json!({"permissions": {"approvals": "ask"}});
    let server = with("has").config(config).start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    let answer = async {
        let approval = waiting(&wire).await;
        assert_eq!(approval["reason"], "use the tool resources/read of the MCP server s");
        let grant = json!({"kind": "mcp", "server": "s", "tool": "resources/read"});
        assert_eq!(approval["grant"], grant);
        let id = &approval["approval_id"];
        wire.ok("respond_approval", json!({"approval_id": id, "decision": "allow_session"})).await;
    };
    let (first, ()) =
        tokio::join!(read(&wire, "t", json!({"server": "s", "uri": "note:///a"})), answer);
    assert!(first.starts_with("xxx"), "{first}");
    let again = read(&wire, "t", json!({"server": "s", "uri": "note:///a"})).await;
    assert!(again.starts_with("xxx"), "{again}");
}

#[tokio::test]
async fn a_silent_server_is_not_waited_for_and_a_cancel_ends_the_reading() {
    let server = with_entry(entry("has", json!({"timeout": 1}))).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let told = read(&wire, "a", json!({"server": "s", "uri": "note:///hang"})).await;
    assert!(told.contains("it said nothing in time"), "{told}");
}

/// Models that see are shown images; the others are told that there are some.
#[tokio::test]
async fn images_are_shown_and_never_spelt_out() {
    let seeing = |input: Value| {
        let models = json!({"models": {"scripted": {"input": input}}});
        let config = json!({"mcp_servers": {"s": entry("has", json!({}))}});
        Setup::new().provider_keys(models).config(config)
    };
    let start = "data:image/png;base64,iVBORw0KGgo";
    for (input, sees) in [(json!(["text", "image"]), true), (json!(["text"]), false)] {
        let server = seeing(input).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        let told = tool(&wire, "a", "picture", json!({})).await;
        assert!(told.contains("Look:\n[image, image/png]\n"), "{told}");
        assert!(told.contains("[image, image/png, about 6 bytes: not shown: "), "{told}");
        let asked = server.model().last_request().body.to_string();
        assert_eq!(asked.contains(start), sees, "{asked}");
        assert!(sees || asked.contains("you cannot look at it"), "{asked}");
        let told = read(&wire, "a", json!({"server": "s", "uri": "note:///b"})).await;
        assert!(told.contains("[resource, image/png]"), "{told}");
        let asked = server.model().last_request().body.to_string();
        assert_eq!(asked.matches(start).count(), if sees { 2 } else { 0 }, "{asked}");
        assert!(!asked.contains("aGVsbG8="), "{asked}");
    }
}

/// How a long result is called that is kept.
fn kept_as(told: &str) -> &str {
    let (_, rest) = told.split_once("\"uri\": \"").unwrap();
    rest.split_once('"').unwrap().0
}

/// Of a long result a model is shown beginning and end, and reads on in it; another agent does not.
#[tokio::test]
async fn a_long_result_is_read_on_by_its_agent() {
    let server = with("").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    user(&wire, "b").await;
    let big = tool(&wire, "a", "big", json!({})).await;
    let uri = kept_as(&big);
    let piece = read(&wire, "a", json!({"uri": uri, "offset": 40_000})).await;
    assert!(piece.starts_with("bbb"), "{piece}");
    assert!(piece.ends_with("\n[bytes 40000 to 90000 of 200000; read on with offset 90000]"));
    let last = read(&wire, "a", json!({"uri": uri, "offset": 199_990})).await;
    assert_eq!(last, "b".repeat(10));
    let other = read(&wire, "b", json!({"uri": uri})).await;
    assert!(other.contains("is not kept any more: call the tool again"), "{other}");
    let beyond = read(&wire, "a", json!({"uri": uri, "offset": 200_001})).await;
    assert!(beyond.contains("it has only 200000 bytes"), "{beyond}");
}

#[tokio::test]
async fn long_results_are_read_on_in_until_their_agent_ends() {
    let server = with("").start().await;
    let wire = server.wire();
    let mut uris = Vec::new();
    for agent in ["a", "b"] {
        user(&wire, agent).await;
        let big = tool(&wire, agent, "big", json!({})).await;
        uris.push(kept_as(&big).to_owned());
    }
    let kept = |server: &Server| {
        let dir = server.world.home().join("mcp/results");
        fs::read_dir(dir).unwrap().count()
    };
    assert_eq!(kept(&server), 2);
    let server = server.restart().await;
    let wire = server.wire();
    let rest = json!({"uri": uris[0], "offset": 150_000});
    assert_eq!(read(&wire, "a", rest.clone()).await, "b".repeat(50_000));
    let others = json!({"uri": uris[1]});
    let told = read(&wire, "a", others).await;
    assert!(told.contains("is not kept any more: call the tool again"), "{told}");
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    eventually("what was kept to go", async || kept(&server) == 1).await;
    user(&wire, "a").await;
    assert!(read(&wire, "a", rest).await.contains("is not kept any more"));
    // Nobody here had an eye on these.
    wire.ok("destroy_agent", json!({"agent_id": "b"})).await;
    let server = server.restart().await;
    eventually("what was kept to go", async || kept(&server) == 0).await;
}
