//! Who may use which tool, and who is asked.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{entry, status, tool, user, with, with_entry};
use crate::harness::{Server, Setup, Wire, eventually};
use crate::support::{as_agent, say, waiting};

over_every_wire! {
    servers_are_listed_connected_and_let_go: with(""),
    a_tool_is_handed_out_by_name_and_no_other: with(""),
    a_child_has_no_more_than_its_parent: with(""),
    arguments_have_to_fit_the_schema: with(""),
}

fn asking() -> Setup {
    with("").config(json!({"permissions": {"approvals": "ask"}}))
}

async fn servers_are_listed_connected_and_let_go(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "plain"})).await;
    let list = wire.ok("mcp_list_servers", json!({"agent_id": "t"})).await;
    let before = json!({"name": "s", "source": "user", "transport": "stdio", "state": "configured",
        "shared": true, "visible": true, "tool_count": 0});
    assert_eq!(list, json!({"servers": [before]}));
    let hidden = wire.ok("mcp_list_servers", json!({"agent_id": "plain"})).await;
    assert_eq!(hidden["servers"][0]["visible"], false);

    let connected = wire.ok("mcp_connect", json!({"agent_id": "t", "server": "s"})).await;
    assert_eq!((&connected["connected"], &connected["state"]), (&json!(true), &json!("ready")));
    assert_eq!(connected["protocol_version"], "2025-11-25");
    assert_eq!(connected["tools"][0], "mcp_s_echo");
    let list = wire.ok("mcp_list_servers", json!({"agent_id": "t", "include_tools": true})).await;
    assert_eq!(
        (&list["servers"][0]["tool_count"], &list["servers"][0]["tools"]),
        (&json!(18), &connected["tools"])
    );
    let stands = status(wire, "t").await;
    assert_eq!(stands["server_info"], json!({"name": "test", "version": "1"}));
    assert!(stands["pid"].is_u64() && stands["started_at"].is_string(), "{stands}");
    assert_eq!((&stands["restarts"], &stands["calls"]), (&json!(0), &json!(0)));
    assert!(stands["sandbox"].as_str().unwrap().contains("landlock"), "{stands}");
    assert_eq!(
        stands["tools"][0],
        json!({"name": "mcp_s_echo", "tool": "echo", "state": "offered"})
    );
    let plain = status(wire, "plain").await;
    assert_eq!(plain["tools"][0]["state"], "disabled");

    let tools = wire.ok("list_tools", json!({"agent_id": "t"})).await;
    let echo = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "mcp_s_echo")
        .unwrap()
        .clone();
    assert_eq!((&echo["kind"], &echo["offered"]), (&json!("mcp"), &json!(true)));
    assert_eq!(echo["input_schema"]["required"], json!(["text"]));

    let gone = wire.ok("mcp_disconnect", json!({"agent_id": "t", "server": "s"})).await;
    assert_eq!(gone, json!({"disconnected": true, "server": "s"}));
    assert_eq!(status(wire, "t").await["state"], "idle");
    let again = wire.ok("mcp_disconnect", json!({"agent_id": "t", "server": "s"})).await;
    assert_eq!(again["disconnected"], false);

    let unknown = wire.refused("mcp_connect", json!({"agent_id": "t", "server": "nope"})).await;
    assert_eq!((unknown.code, unknown.data["path"].as_str()), (-32602, Some("/server")));
    let unseen = wire.refused("mcp_connect", json!({"agent_id": "plain", "server": "s"})).await;
    assert_eq!(unseen.code, -32602);
    let unknown = wire.refused("mcp_status", json!({"agent_id": "t", "server": "nope"})).await;
    assert_eq!(unknown.code, -32602);
}

async fn a_tool_is_handed_out_by_name_and_no_other(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "a", "mcp": {"s": ["echo"]}})).await;
    assert_eq!(tool(wire, "a", "echo", json!({"text": "hi"})).await, "echo: hi");
    let requests = wire.model().requests();
    let told = |index: usize| -> Vec<String> {
        let tools = requests[index].body["tools"].as_array().unwrap();
        let names = tools.iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("mcp_")).collect()
    };
    assert_eq!(told(0), ["mcp_s_echo", "mcp_read"], "the first turn finds out what there is");
    let refused = tool(wire, "a", "fail", json!({})).await;
    assert_eq!(refused, "Refused: this agent may not use the tool fail of the MCP server s.");
    let explained = json!({"agent_id": "a", "tool": "mcp_s_fail"});
    let explained = wire.ok("explain_permission", explained).await;
    assert_eq!((&explained["allowed"], &explained["rule"]), (&json!(false), &json!("mcp")));
    let shown = wire.ok("get_permissions", json!({"agent_id": "a"})).await;
    assert_eq!(shown["mcp"], json!({"s": ["echo"]}));
    wire.ok("create_agent", json!({"agent_id": "none"})).await;
    wire.model().push(Reply::text("ok"));
    say(wire, "none", "hi").await;
    let requests = wire.model().requests();
    let last = requests.last().unwrap().body["tools"].to_string();
    assert!(!last.contains("mcp_"), "{last}");
    let wrong = wire.refused("create_agent", json!({"mcp": {"S_x": ["echo"]}})).await;
    assert_eq!((wrong.code, wrong.data["path"].as_str()), (-32602, Some("/mcp")));
}

async fn a_child_has_no_more_than_its_parent(wire: &Wire) {
    wire.ok(
        "create_agent",
        json!({"agent_id": "top", "preset": "trusted", "mcp": {"s": ["echo", "env"]}}),
    )
    .await;
    let child =
        |name: &str, mcp: Value| json!({"agent_id": name, "parent_agent_id": "top", "mcp": mcp});
    wire.ok("create_agent", child("one", json!({"s": ["echo"]}))).await;
    wire.ok("create_agent", json!({"agent_id": "bare", "parent_agent_id": "top"})).await;
    for more in
        [json!({"s": ["die"]}), json!({"s": ["*"]}), json!({"*": ["*"]}), json!({"x": ["echo"]})]
    {
        let refused = wire.refused("create_agent", child("more", more.clone())).await;
        assert!(refused.message.contains("MCP server"), "{more}: {}", refused.message);
    }
    let mcp = async |agent: &str| {
        wire.ok("get_permissions", json!({"agent_id": agent})).await["mcp"].clone()
    };
    assert_eq!(mcp("one").await, json!({"s": ["echo"]}));
    assert_eq!(mcp("bare").await, json!({}));
    assert_eq!(tool(wire, "one", "echo", json!({"text": "x"})).await, "echo: x");
    assert!(tool(wire, "one", "env", json!({})).await.starts_with("Refused: "));
    // Who narrows an agent narrows what is beneath it.
    wire.ok("set_permissions", json!({"agent_id": "top", "preset": "sandboxed"})).await;
    assert!(tool(wire, "one", "echo", json!({"text": "x"})).await.starts_with("Refused: "));
}

async fn arguments_have_to_fit_the_schema(wire: &Wire) {
    user(wire, "a").await;
    let refused = tool(wire, "a", "echo", json!({"text": 5})).await;
    assert!(
        refused.starts_with("Refused: the arguments do not fit the tool: /text: "),
        "{refused}"
    );
    assert_eq!(status(wire, "a").await["calls"], 0);
    assert!(tool(wire, "a", "fail", json!({})).await.ends_with("Failed: no such thing"));
    let shape = tool(wire, "a", "shape", json!({})).await;
    assert!(
        shape.starts_with("Failed: the result does not fit the tool's own schema: "),
        "{shape}"
    );
}

#[tokio::test]
async fn a_trusted_agent_asks_until_the_tool_was_granted() {
    let server = asking().start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    wire.ok("mcp_connect", json!({"agent_id": "t", "server": "s"})).await;
    let explained = json!({"agent_id": "t", "tool": "mcp_s_echo", "arguments": {"text": "x"}});
    let explained = wire.ok("explain_permission", explained).await;
    assert_eq!(explained["reason"], "use the tool echo of the MCP server s");
    let asked = answered(&server, "echo", json!({"text": "a"}), "deny").await;
    assert_eq!(asked, (true, "Refused: it was denied.".into()));
    let asked = answered(&server, "echo", json!({"text": "b"}), "allow_once").await;
    assert_eq!(asked, (true, "echo: b".into()));
    let asked = answered(&server, "echo", json!({"text": "c"}), "allow_session").await;
    assert_eq!(asked, (true, "echo: c".into()));
    let shown = wire.ok("get_permissions", json!({"agent_id": "t"})).await;
    assert_eq!(shown["session_allowances"]["mcp"], json!({"s": ["echo"]}));
    let asked = answered(&server, "echo", json!({"text": "d"}), "deny").await;
    assert_eq!(asked, (false, "echo: d".into()), "the tool was granted");
    let asked = answered(&server, "env", json!({}), "deny").await;
    assert!(asked.0, "and no other");
    // What was granted and what may be used is the same after a restart.
    let server = server.restart().await;
    let shown = server.wire().ok("get_permissions", json!({"agent_id": "t"})).await;
    assert_eq!(shown["session_allowances"]["mcp"], json!({"s": ["echo"]}));
    assert_eq!(shown["mcp"], json!({"*": ["*"]}));
    let asked = answered(&server, "echo", json!({"text": "e"}), "deny").await;
    assert_eq!(asked, (false, "echo: e".into()));
}

#[tokio::test]
async fn all_tools_of_a_server_are_granted_as_they_are() {
    let server = asking().start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    let whole = json!({"decision": "allow_session", "scope": "server"});
    let asked = replied(&server, "echo", json!({"text": "a"}), whole.clone()).await;
    assert_eq!(asked, (true, "echo: a".into()));
    let shown = wire.ok("get_permissions", json!({"agent_id": "t"})).await;
    let granted = shown["session_allowances"]["mcp"]["s"].as_array().unwrap();
    assert_eq!(granted.len(), 18, "{granted:?}");
    let asked = answered(&server, "fail", json!({}), "deny").await;
    assert_eq!(asked, (false, "Failed: no such thing".into()), "another tool of it");
    // One that changed and one that is new are no longer what was granted, whoever accepts them.
    let asked = answered(&server, "grow", json!({}), "deny").await;
    assert_eq!(asked, (false, "grown".into()));
    let changed = async || status(&wire, "a").await["changed"] != json!([]);
    eventually("the list to be read again", changed).await;
    let refused = answered(&server, "echo", json!({"text": "b"}), "deny").await;
    assert!(!refused.0 && refused.1.starts_with("Refused: the tool echo"), "{refused:?}");
    // What waits to be looked at is not granted with the rest.
    let accept = json!({"agent_id": "a", "server": "s", "accept": ["echo"]});
    wire.ok("mcp_review", accept).await;
    let asked = replied(&server, "echo", json!({"text": "c"}), whole).await;
    assert_eq!(asked, (true, "echo: c".into()), "it is another tool");
    let shown = wire.ok("get_permissions", json!({"agent_id": "t"})).await;
    let granted = shown["session_allowances"]["mcp"]["s"].to_string();
    assert!(!granted.contains("\"new\""), "{granted}");
    wire.ok("mcp_review", json!({"agent_id": "a", "server": "s", "accept": "all"})).await;
    let asked = answered(&server, "new", json!({}), "deny").await;
    assert_eq!(asked, (true, "Refused: it was denied.".into()));
}

#[tokio::test]
async fn a_scope_is_said_only_where_there_is_one() {
    let server = asking().start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    let refused = async |answer: Value, why: &str| {
        let refused = wire.refused("respond_approval", answer).await;
        assert_eq!(
            (refused.code, &refused.data["path"]),
            (-32602, &json!("/scope")),
            "{refused:?}"
        );
        assert!(refused.message.contains(why), "{refused:?}");
    };
    let file = server.world.path("elsewhere.txt");
    wire.model().push(Reply::tool_call("write_file", json!({"path": file, "content": "x"})));
    wire.model().push(Reply::text("done"));
    let judge = async {
        let id = waiting(&wire).await["approval_id"].clone();
        let answer = |decision: &str, scope: &str| json!({"approval_id": id, "decision": decision, "scope": scope});
        for decision in ["allow_once", "deny"] {
            refused(answer(decision, "server"), "with allow_session only").await;
        }
        refused(answer("allow_session", "server"), "not about a tool of an MCP server").await;
        let answer = answer("allow_session", "all");
        assert_eq!(wire.refused("respond_approval", answer).await.code, -32602);
        // Nothing was decided by any of them.
        let output = server.cli(["rpc", "approvals", "allow", id.as_str().unwrap(), "--server"]);
        assert_eq!(output.await.code, Some(2), "--server goes with --session");
        let allow = json!({"approval_id": id, "decision": "allow_session", "scope": "tool"});
        wire.ok("respond_approval", allow).await;
    };
    let (said, ()) = tokio::join!(say(&wire, "t", "go"), judge);
    assert_eq!((said.as_str(), file.exists()), ("done", true));
}

#[tokio::test]
async fn all_tools_of_a_server_are_granted_from_the_shell() {
    let server = asking().start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    let port = server.address.port().to_string();
    let judge = async {
        let id = waiting(&wire).await["approval_id"].as_str().unwrap().to_owned();
        let line = ["rpc", "approvals", "allow", &id, "--session", "--server", "--port", &port];
        let output = server.cli(line).await;
        assert_eq!(output.code, Some(0), "{}", output.stderr);
    };
    let (told, ()) = tokio::join!(tool(&wire, "t", "echo", json!({"text": "a"})), judge);
    assert_eq!(told, "echo: a");
    let asked = answered(&server, "fail", json!({}), "deny").await;
    assert_eq!(asked, (false, "Failed: no such thing".into()));
}

/// Lets the agent `t` call a tool and answers if it asks; whether it did, and what the model was told.
pub async fn answered(
    server: &Server,
    name: &str,
    arguments: Value,
    decision: &str,
) -> (bool, String) {
    replied(server, name, arguments, json!({"decision": decision})).await
}

/// The same with all that is said to the question.
async fn replied(server: &Server, name: &str, arguments: Value, reply: Value) -> (bool, String) {
    let wire = server.wire();
    let turn = tool(&wire, "t", name, arguments);
    tokio::pin!(turn);
    let pending = async || wire.ok("list_approvals", json!({})).await["approvals"][0].clone();
    let asked = async {
        eventually("a question", async || pending().await.is_object()).await;
        pending().await
    };
    tokio::select! {
        told = &mut turn => (false, told),
        approval = asked => {
            assert_eq!(approval["tool"], format!("mcp_s_{name}"));
            let mut reply = reply;
            reply["approval_id"] = approval["approval_id"].clone();
            wire.ok("respond_approval", reply).await;
            (true, turn.await)
        }
    }
}

/// A child is not asked about what it was handed, so an agent hands on only what it was granted.
#[tokio::test]
async fn an_agent_hands_on_what_it_was_granted_and_no_more() {
    let server = asking().start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    let make = |name: &str| json!({"agent_id": name, "mcp": {"s": ["echo"]}});
    let (code, why) = as_agent(&server, "t", "create_agent", make("x")).await.unwrap_err();
    assert!(code == -32003 && why.contains("hand down"), "{code} {why}");
    answered(&server, "echo", json!({"text": "a"}), "allow_session").await;
    let made = as_agent(&server, "t", "create_agent", make("x")).await.unwrap();
    assert_eq!(made["agent_id"], "x");
    let own = as_agent(&server, "t", "mcp_connect", json!({"agent_id": "t", "server": "s"})).await;
    assert_eq!(own.unwrap_err().0, -32003);
}

#[tokio::test]
async fn some_tools_of_a_server_need_no_leave() {
    let server = with_entry(entry("", json!({"approve": {"ec*": "never"}}))).start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    wire.ok("mcp_connect", json!({"agent_id": "t", "server": "s"})).await;
    assert_eq!(tool(&wire, "t", "echo", json!({"text": "x"})).await, "echo: x");
    let refused = tool(&wire, "t", "env", json!({})).await;
    assert!(refused.starts_with("Refused: "), "{refused}");
}
