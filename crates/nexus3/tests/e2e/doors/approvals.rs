//! Approvals as questions to the person at the host.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::host::{Era, Host};
use crate::harness::{Server, Setup, eventually};
use crate::mcp;
use crate::support::history;

fn asks() -> Value {
    json!({"elicitation": {"form": {}}})
}

/// A server that asks, and its agent `t`, which needs leave to write.
async fn asking() -> Server {
    let server = Setup::new().config(json!({"permissions": {"approvals": "ask"}})).start().await;
    let params = json!({"agent_id": "t", "preset": "trusted"});
    server.wire().ok("create_agent", params).await;
    write(&server);
    server
}

fn write(server: &Server) {
    let file = server.world.path("elsewhere.txt");
    server.model().push(Reply::tool_call("write_file", json!({"path": file, "content": "x"})));
    server.model().push(Reply::text("done"));
}

fn is_written(server: &Server) -> bool {
    server.world.path("elsewhere.txt").exists()
}

fn send() -> Value {
    json!({"name": "nexus_send", "arguments": {"agent_id": "t", "content": "write it"}})
}

/// 2026: the call is answered with a question, and made again with the answer.
#[tokio::test]
async fn a_host_of_now_is_answered_with_a_question_and_calls_again() {
    for (decision, written, by_key) in
        [("allow_once", true, false), ("deny", false, false), ("allow_once", true, true)]
    {
        let server = asking().await;
        let host = match by_key {
            true => {
                let key = json!({"name": "k", "doors": ["mcp"], "agent_id": "t"});
                Host::with_key(&server, key, asks()).await
            }
            false => Host::connect(&server, Era::Modern, asks()).await,
        };
        let wanted = host.ok("tools/call", send()).await;
        assert_eq!(wanted["resultType"], "input_required", "{wanted}");
        let (name, question) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(question["method"], "elicitation/create");
        let message = question["params"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("Agent t wants to") && message.contains("elsewhere.txt"),
            "{message}"
        );
        let mut again = send();
        again["requestState"] = wanted["requestState"].clone();
        again["inputResponses"] =
            json!({name: {"action": "accept", "content": {"decision": decision}}});
        let answer = host.ok("tools/call", again).await;
        assert_eq!(answer["structuredContent"]["content"], "done", "{answer}");
        assert_eq!(is_written(&server), written);
        let denied = if written { json!([]) } else { json!(["write_file"]) };
        assert_eq!(answer["structuredContent"]["denied"], denied);
    }
}

/// Before 2026: a request of ours, while the call waits.
#[tokio::test]
async fn a_host_of_before_is_asked_while_it_waits() {
    for (answer, written) in [
        (json!({"action": "accept", "content": {"decision": "allow_session"}}), true),
        (json!({"action": "accept", "content": {"decision": "deny"}}), false),
        (json!({"action": "accept", "content": {}}), false),
        (json!({"action": "decline"}), false),
        (json!({"action": "cancel"}), false),
    ] {
        let server = asking().await;
        let host = Host::connect(&server, Era::Legacy, asks()).await;
        let mut told = host.listen().await;
        let answers = host.open("tools/call", send()).await;
        let question = told.next().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        assert!(
            question["params"]["message"].as_str().unwrap().contains("elsewhere.txt"),
            "{question}"
        );
        let said = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
        assert_eq!(host.post(&said).await.status, 202);
        let ended = answers.answer().await;
        assert_eq!(ended["result"]["structuredContent"]["content"], "done", "{ended}");
        assert_eq!(is_written(&server), written, "{answer}");
    }
}

/// A task says what it waits for, and is answered by an update.
#[tokio::test]
async fn a_task_that_waits_for_leave_says_so() {
    let server = asking().await;
    let mut capabilities = asks();
    capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    let host = Host::connect(&server, Era::Modern, capabilities).await;
    let task = host.ok("tools/call", send()).await;
    let id = task["taskId"].clone();
    let waiting = host.ok("tasks/get", json!({"taskId": id})).await;
    assert_eq!(waiting["status"], "input_required", "{waiting}");
    let name = waiting["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let said = json!({name: {"action": "accept", "content": {"decision": "allow_once"}}});
    host.ok("tasks/update", json!({"taskId": id, "inputResponses": said})).await;
    let ended = async || host.ok("tasks/get", json!({"taskId": id})).await["status"] == "completed";
    eventually("the task to end", ended).await;
    assert!(is_written(&server));
}

/// The stored approval is one: whoever answers first decides it, here the administrator elsewhere.
#[tokio::test]
async fn the_first_answer_from_anywhere_decides() {
    let server = asking().await;
    let host = Host::connect(&server, Era::Modern, asks()).await;
    let wanted = host.ok("tools/call", send()).await;
    let name = wanted["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let params = json!({"approval_id": name, "decision": "allow_once"});
    server.wire().ok("respond_approval", params).await;
    let mut again = send();
    again["requestState"] = wanted["requestState"].clone();
    again["inputResponses"] = json!({name: {"action": "decline"}});
    let answer = host.ok("tools/call", again).await;
    assert_eq!(answer["structuredContent"]["content"], "done", "{answer}");
    assert!(is_written(&server));
}

/// Who may be asked is who began the turn: another's answers, and answers to other questions, decide nothing.
#[tokio::test]
async fn answers_of_others_decide_nothing() {
    let server = asking().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "b"})).await;
    let host = Host::connect(&server, Era::Modern, asks()).await;
    let wanted = host.ok("tools/call", send()).await;
    let name = wanted["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let other = Host::of_agent(&server, "b", Era::Modern, asks()).await;
    let allow = json!({"action": "accept", "content": {"decision": "allow_once"}});
    let mut again = send();
    again["requestState"] = wanted["requestState"].clone();
    again["inputResponses"] = json!({name.clone(): allow});
    let refused = other.call("tools/call", again.clone()).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    // The right caller, another question: it is asked again.
    again["inputResponses"] = json!({"no-such": allow});
    let again = host.ok("tools/call", again).await;
    assert_eq!(
        (&again["resultType"], again["inputRequests"].get(&name).is_some()),
        (&json!("input_required"), true)
    );
    assert!(!is_written(&server));
}

/// Without a person there is nobody to wait for but others, for as long as the server waits.
#[tokio::test]
async fn a_host_that_cannot_ask_is_denied_in_time() {
    let config = json!({"permissions": {"approvals": "ask", "approval_timeout": 1}});
    let server = Setup::new().config(config).start().await;
    server.wire().ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    write(&server);
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    let answer = host.ok("tools/call", send()).await;
    assert_eq!(answer["structuredContent"]["denied"], json!(["write_file"]), "{answer}");
    assert!(!is_written(&server));
}

/// An agent's own token has no person behind it: whoever holds it would answer for himself.
#[tokio::test]
async fn an_agent_does_not_answer_its_own_approvals() {
    let config = json!({"permissions": {"approvals": "ask", "approval_timeout": 4}});
    let server = Setup::new().config(config).start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    let mut capabilities = asks();
    capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    let host = Host::of_agent(&server, "t", Era::Modern, capabilities).await;
    write(&server);
    let task = host.ok("tools/call", send()).await["taskId"].clone();
    let waiting = wire.ok("list_approvals", json!({})).await["approvals"][0].clone();
    let name = waiting["approval_id"].as_str().unwrap();
    assert_eq!(host.ok("tasks/get", json!({"taskId": task})).await["status"], "working");
    let allow = json!({name: {"action": "accept", "content": {"decision": "allow_once"}}});
    host.ok("tasks/update", json!({"taskId": task, "inputResponses": allow})).await;
    let mut again = send();
    again["requestState"] = task.clone();
    again["inputResponses"] = allow;
    host.ok("tools/call", again).await;
    let ended =
        async || host.ok("tasks/get", json!({"taskId": task})).await["status"] == "completed";
    eventually("the task to end", ended).await;
    let ended = host.ok("tasks/get", json!({"taskId": task})).await;
    assert_eq!(ended["result"]["structuredContent"]["denied"], json!(["write_file"]), "{ended}");
    assert!(!is_written(&server));
}

/// What the agent asks in a turn that came another way is not the host's to answer.
#[tokio::test]
async fn questions_of_other_turns_are_not_put_to_a_host() {
    let server = asking().await;
    let wire = server.wire();
    let mut capabilities = asks();
    capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    let key = json!({"name": "k", "doors": ["mcp"], "agent_id": "t"});
    let host = Host::with_key(&server, key, capabilities).await;
    let sending = wire.ok("send", json!({"agent_id": "t", "content": "write it"}));
    let asked = async {
        let waits = async || {
            !wire.ok("list_approvals", json!({})).await["approvals"].as_array().unwrap().is_empty()
        };
        eventually("the approval", waits).await;
        // Behind the other turn.
        let task = host.ok("tools/call", send()).await;
        assert_eq!(task["resultType"], "task", "{task}");
        let task = task["taskId"].clone();
        assert_eq!(host.ok("tasks/get", json!({"taskId": task})).await["status"], "working");
        let approval = wire.ok("list_approvals", json!({})).await["approvals"][0].clone();
        let params = json!({"approval_id": approval["approval_id"], "decision": "deny"});
        wire.ok("respond_approval", params).await;
    };
    tokio::join!(sending, asked);
    assert!(!is_written(&server));
}

#[tokio::test]
async fn characters_that_hide_are_not_in_a_question() {
    let server = Setup::new().config(json!({"permissions": {"approvals": "ask"}})).start().await;
    server.wire().ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    let file = server.world.path("a\u{202e}b\u{200b}c.txt");
    server
        .model()
        .push(Reply::tool_call("write_file", json!({"path": file, "content": "x\u{e0041}"})));
    server.model().push(Reply::text("done"));
    let host = Host::connect(&server, Era::Modern, asks()).await;
    let wanted = host.ok("tools/call", send()).await;
    let message =
        wanted["inputRequests"].as_object().unwrap().values().next().unwrap()["params"]["message"]
            .clone();
    let message = message.as_str().unwrap();
    assert!(
        message.contains(r"a\u{202e}b\u{200b}c.txt")
            && !message.contains(['\u{202e}', '\u{200b}', '\u{e0041}']),
        "{message}"
    );
}

/// What a server asks whose tool the agent uses is handed on, form and all.
#[tokio::test]
async fn questions_of_servers_are_handed_on() {
    for (era, answer, told) in [
        (Era::Modern, json!({"action": "accept", "content": {"name": "Ada"}}), "Ada"),
        (Era::Legacy, json!({"action": "accept", "content": {"name": "Ada"}}), "Ada"),
        (Era::Legacy, json!({"action": "decline"}), r#"{"action":"decline"}"#),
        (Era::Modern, json!({"action": "cancel"}), r#"{"action":"cancel"}"#),
        // It does not fit, and is not asked for again.
        (
            Era::Modern,
            json!({"action": "accept", "content": {"name": 5}}),
            r#"{"action":"cancel"}"#,
        ),
    ] {
        let entry = mcp::server::server("asks");
        let config = json!({"permissions": {"approvals": "ask"}, "mcp_servers": {"s": entry}});
        let server = Setup::new().config(config).start().await;
        let params = json!({"agent_id": "t", "mcp": {"s": ["*"]}});
        server.wire().ok("create_agent", params).await;
        let form = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let params = json!({"message": "Who?", "requestedSchema": form});
        server.model().push(Reply::tool_call("mcp_s_elicit", json!({"params": params})));
        server.model().push(Reply::text("done"));
        let host = Host::connect(&server, era, asks()).await;
        if era == Era::Modern {
            let wanted = host.ok("tools/call", send()).await;
            let (name, asked) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
            check_handed_on(asked);
            let mut again = send();
            again["requestState"] = wanted["requestState"].clone();
            again["inputResponses"] = json!({name: answer});
            assert_eq!(host.ok("tools/call", again).await["structuredContent"]["content"], "done");
        } else {
            let mut heard = host.listen().await;
            let answers = host.open("tools/call", send()).await;
            let asked = heard.next().await;
            check_handed_on(&asked);
            let said = json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer});
            assert_eq!(host.post(&said).await.status, 202);
            let ended = answers.answer().await;
            assert_eq!(ended["result"]["structuredContent"]["content"], "done", "{ended}");
        }
        let lines = history(&server.wire(), "t").await;
        assert!(lines[2].contains(told), "{answer}: {lines:?}");
    }
}

fn check_handed_on(asked: &Value) {
    let params = &asked["params"];
    let message = "Agent t wants somebody to answer a question of the MCP server s:\nWho?";
    assert_eq!(params["message"], message, "{asked}");
    assert_eq!(params["requestedSchema"]["properties"]["name"]["type"], "string", "{asked}");
}

/// Where a tool of an MCP server is asked for, all of that server can be allowed; elsewhere that is not among the choices.
#[tokio::test]
async fn all_tools_of_a_server_can_be_allowed_at_the_host() {
    let servers = json!({"s": mcp::server::server("")});
    let config = json!({"permissions": {"approvals": "ask"}, "mcp_servers": servers});
    let server = Setup::new().config(config).start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    let host = Host::connect(&server, Era::Modern, asks()).await;
    let choices = |question: &Value| -> Vec<String> {
        let decision = &question["params"]["requestedSchema"]["properties"]["decision"];
        let choices = decision["oneOf"].as_array().unwrap().iter();
        choices.map(|it| it["const"].as_str().unwrap().to_owned()).collect()
    };
    write(&server);
    let wanted = host.ok("tools/call", send()).await;
    let (name, question) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(choices(question), ["allow_once", "allow_session", "deny"]);
    // Whoever makes that choice all the same has not said yes.
    let mut again = send();
    again["requestState"] = wanted["requestState"].clone();
    again["inputResponses"] =
        json!({name: {"action": "accept", "content": {"decision": "allow_server"}}});
    host.ok("tools/call", again).await;
    assert!(!is_written(&server));

    server.model().push(Reply::tool_call("mcp_s_echo", json!({"text": "x"})));
    server.model().push(Reply::tool_call("mcp_s_twice", json!({})));
    server.model().push(Reply::text("done"));
    let wanted = host.ok("tools/call", send()).await;
    let (name, question) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(choices(question), ["allow_once", "allow_session", "allow_server", "deny"]);
    let mut again = send();
    again["requestState"] = wanted["requestState"].clone();
    again["inputResponses"] =
        json!({name: {"action": "accept", "content": {"decision": "allow_server"}}});
    let answer = host.ok("tools/call", again).await;
    assert_eq!(answer["structuredContent"]["content"], "done", "{answer}");
    let lines = history(&wire, "t").await;
    assert!(lines.contains(&"tool: once".to_owned()), "{lines:?}");
}
