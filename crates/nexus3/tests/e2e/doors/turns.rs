//! Turns of agents as calls of tools.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use super::host::{ERAS, Era, Host, is_busy};
use crate::harness::{Server, Setup, eventually};
use crate::mcp::server::server as mcp_server;
use crate::support::{create, history, names};

#[tokio::test]
async fn a_host_gives_an_agent_work_and_reads_what_it_said() {
    for era in ERAS {
        let server = Server::start().await;
        let host = Host::connect(&server, era, json!({})).await;
        let tools = host.ok("tools/list", json!({})).await;
        let offered: Vec<_> =
            tools["tools"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        let known = [
            "nexus_send",
            "nexus_create",
            "nexus_list",
            "nexus_status",
            "nexus_messages",
            "nexus_cancel",
            "nexus_destroy",
        ];
        assert_eq!(json!(offered), json!(known));
        server.model().push(Reply::text("Forty-two."));
        let answer = host.tool("nexus_send", json!({"content": "How much?"})).await;
        assert_eq!(answer["content"], json!([{"type": "text", "text": "Forty-two."}]), "{era:?}");
        let said = &answer["structuredContent"];
        assert_eq!(
            (&said["agent_id"], &said["content"]),
            (&json!("door-mcp"), &json!("Forty-two."))
        );
        assert_eq!((&said["denied"], said.get("cancelled")), (&json!([]), None));
        // The same agent goes on, and the history says where it came from.
        server.model().push(Reply::text("Still."));
        host.tool("nexus_send", json!({"content": "And now?"})).await;
        let messages = host.tool("nexus_messages", json!({"agent_id": "door-mcp"})).await;
        let messages = &messages["structuredContent"]["messages"];
        assert_eq!(
            (messages.as_array().unwrap().len(), &messages[0]["meta"]["source"]),
            (4, &json!("mcp"))
        );
        let status = host.tool("nexus_status", json!({"agent_id": "door-mcp"})).await;
        assert_eq!(status["structuredContent"]["message_count"], 4);
    }
}

#[tokio::test]
async fn agents_are_made_listed_and_ended() {
    let server = Server::start().await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    let made =
        host.tool("nexus_create", json!({"agent_id": "helper", "preset": "sandboxed"})).await;
    assert_eq!(made["structuredContent"], json!({"agent_id": "helper"}));
    let listed = host.tool("nexus_list", json!({})).await;
    assert_eq!(listed["structuredContent"]["agents"][0]["agent_id"], "helper");
    let answer = host.tool("nexus_send", json!({"agent_id": "helper", "content": "x"})).await;
    assert_eq!(answer["structuredContent"]["agent_id"], "helper");
    let ended = host.tool("nexus_destroy", json!({"agent_id": "helper"})).await;
    assert_eq!(ended["isError"], json!(false), "{ended}");
    assert!(!names(&server.wire()).await.contains(&"helper".to_owned()));
}

#[tokio::test]
async fn what_is_wrong_is_a_sentence_for_the_model() {
    let server = Server::start().await;
    for era in ERAS {
        let host = Host::connect(&server, era, json!({})).await;
        for (tool, arguments, words) in [
            ("nexus_send", json!({}), "missing field `content`"),
            ("nexus_send", json!({"content": " "}), "content"),
            ("nexus_send", json!({"content": "x", "agent_id": "nobody"}), "Unknown agent: nobody"),
            ("nexus_send", json!({"content": "x", "colour": 1}), "unknown field `colour`"),
            ("nexus_create", json!({"preset": "emperor"}), "emperor"),
            ("nexus_status", json!({"agent_id": "nobody"}), "Unknown agent: nobody"),
            ("nexus_messages", json!({"agent_id": "nobody", "limit": 2001}), "not in 1..=2000"),
        ] {
            let answer = host.tool(tool, arguments).await;
            assert_eq!(answer["isError"], json!(true), "{answer}");
            let said = answer["content"][0]["text"].as_str().unwrap();
            assert!(said.contains(words), "{tool}: {said}");
        }
        let unknown = host.call("tools/call", json!({"name": "no_such", "arguments": {}})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    }
}

#[tokio::test]
async fn a_turn_that_fails_is_an_error_with_its_sentence() {
    let server = Server::start().await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    server.model().push(Reply::status(400).message("the prompt is too odd"));
    let answer = host.tool("nexus_send", json!({"content": "x"})).await;
    assert_eq!(answer["isError"], json!(true), "{answer}");
    assert!(
        answer["content"][0]["text"].as_str().unwrap().contains("the prompt is too odd"),
        "{answer}"
    );
}

#[tokio::test]
async fn an_answer_has_the_shape_that_was_asked_for_and_ends_in_time() {
    let server = Server::start().await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    server.model().push(Reply::text(r#"{"n": 3}"#));
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let arguments = json!({"content": "x", "response_schema": schema});
    let answer = host.tool("nexus_send", arguments).await;
    assert_eq!(answer["structuredContent"]["content"], r#"{"n": 3}"#, "{answer}");
    server.model().push(Reply::hang());
    let answer = host.tool("nexus_send", json!({"content": "x", "timeout_s": 1})).await;
    assert_eq!(answer["isError"], json!(true), "{answer}");
}

/// The turn is told in steps to a host that wants to know.
#[tokio::test]
async fn progress_is_told_by_steps() {
    for era in ERAS {
        let server = Server::start().await;
        let host = Host::connect(&server, era, json!({})).await;
        let gate = Gate::new();
        server.model().push(Reply::tool_call("list_directory", json!({"path": "."})));
        server.model().push(Reply::text("done").held_by(&gate));
        let params = json!({
            "name": "nexus_send", "arguments": {"content": "x"}, "_meta": {"progressToken": "p"},
        });
        let mut answers = host.open("tools/call", params).await;
        let mut told = Vec::new();
        loop {
            let message = answers.next().await;
            if message["method"] != "notifications/progress" {
                assert_eq!(message["result"]["structuredContent"]["content"], "done", "{message}");
                break;
            }
            assert_eq!(message["params"]["progressToken"], "p");
            told.push(message["params"]["progress"].as_f64().unwrap());
            gate.release();
        }
        assert!(!told.is_empty() && told.is_sorted(), "{era:?}: {told:?}");
    }
}

/// What a server says of its tool is handed on to the host.
#[tokio::test]
async fn progress_of_tools_is_told_too() {
    let config = json!({"mcp_servers": {"s": mcp_server("")}});
    let server = Setup::new().config(config).start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "a", "mcp": {"s": ["*"]}})).await;
    wire.ok("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    server.model().push(Reply::tool_call("mcp_s_slow", json!({})));
    server.model().push(Reply::text("done"));
    let params = json!({
        "name": "nexus_send", "arguments": {"agent_id": "a", "content": "x"},
        "_meta": {"progressToken": "p"},
    });
    let mut answers = host.open("tools/call", params).await;
    let mut told = Vec::new();
    loop {
        let mut message = answers.next().await;
        if message["method"] != "notifications/progress" {
            break;
        }
        told.push(message["params"]["message"].take());
    }
    assert!(told.contains(&json!("mcp_s_slow: at it")), "{told:?}");
}

#[tokio::test]
async fn a_host_that_hangs_up_cancels_its_turn() {
    for era in ERAS {
        let server = Server::start().await;
        create(&server.wire(), "a").await;
        let host = Host::connect(&server, era, json!({})).await;
        server.model().push(Reply::hang());
        let call = json!({
            "name": "nexus_send", "arguments": {"agent_id": "a", "content": "x"}, "_meta": {"progressToken": 1},
        });
        let running = async || is_busy(&server, "a").await;
        if era == Era::Modern {
            // The head of a stream comes with its first word, which never does: this one hangs up before.
            tokio::select! {
                _ = host.open("tools/call", call) => panic!("it was answered"),
                () = eventually("the turn to run", running) => {}
            }
        } else {
            let answers = host.open("tools/call", call).await;
            eventually("the turn to run", running).await;
            // A session can be taken up again, so who hangs up says so.
            let told = json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2, "reason": "tired"},
            });
            assert_eq!(host.post(&told).await.status, 202);
            drop(answers);
        }
        eventually("the turn to be cancelled", async || !running().await).await;
    }
}

#[tokio::test]
async fn nexus_cancel_ends_what_runs() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    server.model().push(Reply::hang());
    let call = json!({"name": "nexus_send", "arguments": {"agent_id": "a", "content": "x"}});
    let (answer, cancelled) = tokio::join!(host.ok("tools/call", call), async {
        eventually("the turn to run", async || is_busy(&server, "a").await).await;
        host.tool("nexus_cancel", json!({"agent_id": "a"})).await
    });
    assert_eq!(
        cancelled["structuredContent"]["cancelled"].as_array().unwrap().len(),
        1,
        "{cancelled}"
    );
    assert_eq!(answer["structuredContent"]["cancelled"], json!(true), "{answer}");
}

#[tokio::test]
async fn a_tool_that_was_refused_is_named() {
    let server = Server::start().await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    server
        .model()
        .push(Reply::tool_call("write_file", json!({"path": "/etc/passwd", "content": "x"})));
    server.model().push(Reply::text("It was not allowed."));
    let answer = host.tool("nexus_send", json!({"content": "x"})).await;
    assert_eq!(answer["structuredContent"]["denied"], json!(["write_file"]), "{answer}");
}

#[tokio::test]
async fn agents_that_are_exposed_are_tools_of_their_own() {
    let config = json!({"doors": {"expose": {"critic": "Reviews what you show it."}}});
    let server = Setup::new().config(config).start().await;
    create(&server.wire(), "critic").await;
    let host = Host::connect(&server, Era::Modern, json!({})).await;
    let tools = host.ok("tools/list", json!({})).await;
    let last = tools["tools"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&last["name"], &last["description"]),
        (&json!("ask_critic"), &json!("Reviews what you show it."))
    );
    server.model().push(Reply::text("Too long."));
    let answer = host.tool("ask_critic", json!({"content": "my novel"})).await;
    assert_eq!(answer["structuredContent"]["content"], "Too long.");
    assert_eq!(history(&server.wire(), "critic").await, ["user: my novel", "assistant: Too long."]);
}

/// An agent's token reaches what the agent may, and talks to the agent itself.
#[tokio::test]
async fn an_agents_token_stays_within_its_family() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted"})).await;
    create(&wire, "other").await;
    let host = Host::of_agent(&server, "a", Era::Modern, json!({})).await;
    server.model().push(Reply::text("mine"));
    let answer = host.tool("nexus_send", json!({"content": "x"})).await;
    assert_eq!(answer["structuredContent"]["agent_id"], "a");
    for (tool, arguments) in [
        ("nexus_send", json!({"agent_id": "other", "content": "x"})),
        ("nexus_messages", json!({"agent_id": "other"})),
        ("nexus_status", json!({"agent_id": "other"})),
        ("nexus_cancel", json!({"agent_id": "other"})),
        ("nexus_destroy", json!({"agent_id": "other"})),
        ("nexus_create", json!({"agent_id": "b", "preset": "yolo"})),
        ("nexus_create", json!({"agent_id": "b", "parent_agent_id": "other"})),
    ] {
        let answer: Value = host.tool(tool, arguments.clone()).await;
        assert_eq!(answer["isError"], json!(true), "{tool} {arguments}: {answer}");
    }
    let made = host.tool("nexus_create", json!({"agent_id": "child"})).await;
    assert_eq!(made["structuredContent"], json!({"agent_id": "child"}), "{made}");
    let seen = host.tool("nexus_list", json!({})).await["structuredContent"].to_string();
    assert!(seen.contains("child") && !seen.contains("other"), "{seen}");
    assert_eq!(names(&wire).await.len(), 3);
}

/// A caller may watch 64 things at once, and give more work than that.
#[tokio::test]
async fn more_turns_at_once_than_can_be_watched_are_carried_out() {
    let server = Server::start().await;
    let host = Host::with_key(&server, json!({"name": "k", "doors": ["mcp"]}), json!({})).await;
    let sends = (0..80).map(|_| host.tool("nexus_send", json!({"content": "x"})));
    for answer in futures_util::future::join_all(sends).await {
        assert_eq!(answer["isError"], json!(false), "{answer}");
    }
}
