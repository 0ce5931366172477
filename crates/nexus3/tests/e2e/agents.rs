//! Making, listing and ending agents.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Server, Setup, Wire, eventually};
use crate::support::{
    answered, as_agent, at_path, create, entry, history, list, names, prompt, say,
};

over_every_wire! {
    an_agent_is_made_as_asked,
    names_follow_the_rule,
    the_default_agent_is_made_on_first_use,
    the_default_agent_is_made_by_its_name_too,
    a_refused_agent_does_not_exist,
    a_list_comes_by_page,
    a_list_has_exactly_its_members,
    an_initial_message_is_queued,
    an_initial_message_is_waited_for,
    an_agent_is_named_in_the_parameters,
    an_agent_is_marked_while_its_turn_runs,
    an_agent_leaves_memory_and_comes_back,
}

over_every_wire_of_messages! { names_are_generated }

async fn an_agent_leaves_memory_and_comes_back(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "b", "parent_agent_id": "a"})).await;
    wire.ok("create_agent", json!({"agent_id": "c", "parent_agent_id": "a"})).await;
    say(wire, "a", "Hi").await;
    let unload =
        async || wire.ok("unload_agent", json!({"agent_id": "a"})).await["unloaded"].clone();
    // Whoever works stays, and those above.
    wire.model().push(Reply::hang());
    let working = json!({"agent_id": "b", "content": "x", "request_id": "r"});
    let (_, ()) = tokio::join!(wire.call("send", working), async {
        eventually("the turn", async || entry(wire, "b").await["status"] == "running").await;
        assert_eq!(unload().await, json!(["c"]));
        assert_eq!(entry(wire, "c").await["status"], "stored");
        wire.ok("cancel", json!({"agent_id": "b", "request_id": "r"})).await;
    });
    assert_eq!(history(wire, "a").await[0], "user: Hi");
    assert_eq!(unload().await, json!(["b", "a"]));
    assert_eq!(unload().await, json!([]));
    assert_eq!(names(wire).await, ["a", "b", "c"]);
    let child = json!({"agent_id": ".t", "parent_agent_id": "a"});
    wire.ok("create_agent", child).await;
    assert_eq!(unload().await, json!([]));
    let unknown = wire.refused("unload_agent", json!({"agent_id": "nobody"})).await;
    assert_eq!((unknown.code, &*unknown.message), (-32602, "Unknown agent: nobody"));
}

async fn an_agent_is_made_as_asked(wire: &Wire) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    std::fs::create_dir(place.join("out")).unwrap();
    let made = wire
        .ok(
            "create_agent",
            json!({
                "agent_id": "w.1_a-B",
                "preset": "trusted",
                "cwd": place.join("out/.."),
                "allowed_write_paths": ["out", place.join("not/yet")],
                "model": "scripted/some-id",
                "system_prompt": "You are a test.",
                "disable_tools": ["shell_UNSAFE"],
                "parent_agent_id": null,
                "initial_message": null,
                "wait_for_initial_response": null,
            }),
        )
        .await;
    assert_eq!(made, json!({"agent_id": "w.1_a-B", "url": "/agent/w.1_a-B"}));
    let entry = entry(wire, "w.1_a-B").await;
    assert_eq!(entry["cwd"], json!(place));
    assert_eq!(entry["model"], "scripted/some-id");
    assert_eq!(entry["permission_level"], "TRUSTED");
    let writable = [place.clone(), place.join("not/yet"), place.join("out")];
    assert_eq!(entry["write_paths"], json!(writable), "trusted: its directory and what was given");

    say(wire, "w.1_a-B", "Hi").await;
    let asked = wire.model().last_request();
    assert_eq!(asked.body["model"], "some-id");
    assert_eq!(prompt(&asked), "You are a test.");
}

async fn names_follow_the_rule(wire: &Wire) {
    let longest = "n".repeat(62);
    for name in ["a", "0", "A9.", ".t", &longest, &format!(".{longest}")] {
        let made = wire.ok("create_agent", json!({"agent_id": name})).await;
        assert_eq!(made, json!({"agent_id": name, "url": format!("/agent/{name}")}));
        assert_eq!(entry(wire, name).await["is_temp"], name.starts_with('.'));
    }
    let too_long = "n".repeat(63);
    let bad = ["", "..", "-a", "a..b", "a/b", "../a", "a b", "a\n", "a\0", "ä", "aä", &too_long];
    for name in bad {
        let fault = wire.refused("create_agent", json!({"agent_id": name})).await;
        assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/agent_id")), "{name:?}");
        assert!(fault.message.starts_with("Agent name "), "{name:?}: {}", fault.message);
    }
    let twice = wire.refused("create_agent", json!({"agent_id": "a"})).await;
    assert_eq!((twice.code, &*twice.message), (-32602, "An agent named a exists already"));
    assert_eq!(list(wire).await.len(), 6);
}

async fn names_are_generated(wire: &Wire) {
    let generate = async |params: Value| {
        let made = wire.ok("create_agent", params).await;
        made["agent_id"].as_str().unwrap().to_string()
    };
    let name = generate(json!({})).await;
    assert_eq!(name.len(), 8);
    assert!(name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)));
    assert_ne!(generate(json!({})).await, name);
    for expected in [".1", ".2"] {
        assert_eq!(generate(json!({"agent_id": "."})).await, expected);
    }
    // Callers that come together get names of their own.
    let together =
        (3..23).map(|id| request(id, "create_agent", json!({"agent_id": ".", "cwd": "/"})));
    let answers = wire.exchange(format!("[{}]", together.collect::<Vec<_>>().join(","))).await;
    let answers = answers.as_array().unwrap().iter();
    let mut names: Vec<_> =
        answers.map(|answer| answer["result"]["agent_id"].to_string()).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    assert_eq!(names, (3..23).map(|number| format!("\".{number}\"")).collect::<Vec<_>>());
    wire.ok("destroy_agent", json!({"agent_id": ".1"})).await;
    assert_eq!(generate(json!({"agent_id": "."})).await, ".1", "a free name is used again");
}

async fn the_default_agent_is_made_on_first_use(wire: &Wire) {
    assert_eq!(names(wire).await, [""; 0]);
    wire.ok("get_context", json!({})).await;
    assert_eq!(names(wire).await, ["main"]);
    assert_eq!(entry(wire, "main").await["permission_level"], "SANDBOXED");
    wire.model().push(Reply::echo());
    assert_eq!(wire.ok("send", json!({"content": "Hi"})).await["content"], "Hi");
    assert_eq!(history(wire, "main").await, ["user: Hi", "assistant: Hi"]);
    assert_eq!(names(wire).await, ["main"]);
}

async fn the_default_agent_is_made_by_its_name_too(wire: &Wire) {
    assert_eq!(names(wire).await, [""; 0]);
    let fault = wire.refused("get_context", json!({"agent_id": "other"})).await;
    assert_eq!((fault.code, &*fault.message), (-32602, "Unknown agent: other"));
    wire.model().push(Reply::echo());
    let answer = wire.ok("send", json!({"agent_id": "main", "content": "Hi"})).await;
    assert_eq!(answer["content"], "Hi");
    assert_eq!(names(wire).await, ["main"]);
    // Gone, it is made anew, as by the root endpoint.
    wire.ok("destroy_agent", json!({"agent_id": "main"})).await;
    wire.ok("get_tokens", json!({"agent_id": "main"})).await;
    assert_eq!(history(wire, "main").await, [""; 0]);
}

#[tokio::test]
async fn the_default_agent_is_made_at_its_own_path_and_from_the_shell() {
    let server = Server::start().await;
    let (status, answer) = at_path(&server, "main", "get_context", json!({})).await;
    assert_eq!((status, &answer["result"]["message_count"]), (200, &json!(0)), "{answer}");
    let (status, _) = at_path(&server, "other", "get_context", json!({})).await;
    assert_eq!(status, 404);
    server.wire().ok("destroy_agent", json!({"agent_id": "main"})).await;
    let port = server.address.port().to_string();
    let sent = server.cli(["rpc", "-p", &port, "send", "main", "Hi"]).await;
    assert_eq!((sent.code, &*sent.stderr), (Some(0), ""), "{sent:?}");

    // Only the administrator's use makes it: another agent learns no more of it than of any other.
    server.wire().ok("destroy_agent", json!({"agent_id": "main"})).await;
    create(&server.wire(), "a").await;
    let refused = as_agent(&server, "a", "get_context", json!({"agent_id": "main"})).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(names(&server.wire()).await, ["a"]);
}

async fn a_refused_agent_does_not_exist(wire: &Wire) {
    let cases = [
        json!({"model": "nope"}),
        json!({"modle": "scripted"}),
        json!({"cwd": "/dev/null"}),
        json!({"allowed_write_paths": "/tmp"}),
        json!({"allowed_write_paths": ["/no/such/../place"]}),
        json!({"preset": "yolo"}),
        json!({"disable_tools": [1]}),
    ];
    for mut params in cases {
        params["agent_id"] = "a".into();
        let fault = wire.refused("create_agent", params.clone()).await;
        let named = params.as_object().unwrap().keys().next().unwrap();
        let path = fault.data["path"].as_str().unwrap_or_default();
        assert!(
            fault.code == -32602 && path.starts_with(&format!("/{named}")),
            "{params}: {fault:?}"
        );
    }
    assert_eq!(names(wire).await, [""; 0]);
    create(wire, "a").await;
}

/// Permanent agents first, then temporary ones, and every page ends where the next begins.
async fn a_list_comes_by_page(wire: &Wire) {
    for name in ["b", ".t", "a", ".s", "c"] {
        create(wire, name).await;
    }
    let page = async |params: Value| {
        let mut answer = wire.ok("list_agents", params).await;
        let agents = answer["agents"].take();
        let names = agents.as_array().unwrap().iter().map(|agent| agent["agent_id"].clone());
        (names.collect::<Vec<_>>(), answer["more"].take())
    };
    for (params, names, more) in [
        (json!({"limit": 2}), json!(["b", "a"]), true),
        (json!({"after": "a", "limit": 2}), json!(["c", ".t"]), true),
        (json!({"after": ".t", "limit": 2}), json!([".s"]), false),
        (json!({"limit": 3}), json!(["b", "a", "c"]), true),
        (json!({"limit": 5}), json!(["b", "a", "c", ".t", ".s"]), false),
        (json!({"limit": 1000}), json!(["b", "a", "c", ".t", ".s"]), false),
        (json!({"after": "b"}), json!(["a", "c", ".t", ".s"]), false),
        (json!({"after": ".s"}), json!([]), false),
    ] {
        let (got, got_more) = page(params.clone()).await;
        assert_eq!((json!(got), got_more), (names, json!(more)), "{params}");
    }
    for (params, text) in [
        (json!({"limit": 0}), "limit must be between 1 and 1000, got: 0"),
        (json!({"limit": 1001}), "limit must be between 1 and 1000, got: 1001"),
        (json!({"after": "nobody"}), "Unknown agent: nobody"),
        (json!({"after": ".7"}), "Unknown agent: .7"),
    ] {
        let fault = wire.refused("list_agents", params).await;
        assert_eq!((fault.code, fault.message.as_str()), (-32602, text));
    }
}

async fn a_list_has_exactly_its_members(wire: &Wire) {
    assert_eq!(wire.ok("list_agents", json!({})).await, json!({"agents": []}));
    let parent = json!({"agent_id": "p", "preset": "trusted", "cwd": "/"});
    wire.ok("create_agent", parent).await;
    wire.ok("create_agent", json!({"agent_id": ".c", "parent_agent_id": "p"})).await;
    say(wire, ".c", "Hi").await;
    let mut agents = list(wire).await;
    let moments = [(0, "created_at"), (1, "created_at"), (1, "last_action_at")];
    for (index, member) in moments {
        let moment = agents[index][member].take();
        moment.as_str().unwrap().parse::<jiff::Timestamp>().expect("ISO 8601");
    }
    let expected = [
        r#"{"agent_id":"p","is_temp":false,"created_at":null,"message_count":0,"should_shutdown":false,"parent_agent_id":null,"child_count":1,"halted_at_iteration_limit":false,"model":"scripted","last_action_at":null,"permission_level":"TRUSTED","cwd":"/","write_paths":["/"],"status":"idle","running_request_id":null,"queued":0,"usage":{"tokens":0,"cost_usd":0.0,"cost_unknown_calls":0}}"#,
        r#"{"agent_id":".c","is_temp":true,"created_at":null,"message_count":2,"should_shutdown":false,"parent_agent_id":"p","child_count":0,"halted_at_iteration_limit":false,"model":"scripted","last_action_at":null,"permission_level":"SANDBOXED","cwd":"/","write_paths":[],"status":"idle","running_request_id":null,"queued":0,"usage":{"tokens":15,"cost_usd":null,"cost_unknown_calls":1}}"#,
    ];
    assert_eq!(agents.iter().map(Value::to_string).collect::<Vec<_>>(), expected);

    let gate = Gate::new();
    wire.model().push(Reply::text("done").held_by(&gate));
    let held = async {
        wire.model().wait_for_requests(2).await;
        assert_eq!(entry(wire, "p").await["status"], "running");
        gate.release();
    };
    tokio::join!(say(wire, "p", "Hi"), held);
    assert_eq!(entry(wire, "p").await["status"], "idle");
}

async fn an_initial_message_is_queued(wire: &Wire) {
    let gate = Gate::new();
    wire.model().push(Reply::text("Ready.").held_by(&gate));
    let params =
        json!({"agent_id": "a", "initial_message": "Begin", "wait_for_initial_response": false});
    let made = wire.ok("create_agent", params).await;
    let members: Vec<_> = made.as_object().unwrap().keys().collect();
    assert_eq!(members, ["agent_id", "url", "initial_request_id", "initial_status"]);
    assert_eq!(made["initial_status"], "queued");
    wire.model().wait_for_requests(1).await;
    // The id is good for a cancel while the turn runs; here it shows that the turn is the one that was named.
    let second = json!({"agent_id": "a", "content": "x", "request_id": made["initial_request_id"]});
    let fault = wire.refused("send", second).await;
    assert!(fault.message.contains("is in flight already"), "{fault:?}");
    gate.release();
    crate::support::has_messages(wire, "a", 2).await;
    assert_eq!(history(wire, "a").await, ["user: Begin", "assistant: Ready."]);
}

async fn an_initial_message_is_waited_for(wire: &Wire) {
    wire.model().push(Reply::chunks(["Rea", "dy."]));
    let params =
        json!({"agent_id": "a", "initial_message": "Begin", "wait_for_initial_response": true});
    let made = wire.ok("create_agent", params).await;
    let id = made["initial_request_id"].clone();
    let answer = answered("Ready.", &id);
    assert_eq!(
        made,
        json!({"agent_id": "a", "url": "/agent/a", "initial_request_id": id, "response": answer})
    );
}

async fn an_agent_is_named_in_the_parameters(wire: &Wire) {
    create(wire, "a").await;
    wire.model().set_default(Reply::echo());
    assert_eq!(say(wire, "a", "Hi").await, "Hi");
    for (method, params) in [
        ("get_context", json!({})),
        ("get_tokens", json!({})),
        ("get_messages", json!({"limit": 1})),
        ("cancel", json!({"request_id": "x"})),
        ("compact", json!({"force": false})),
    ] {
        let to = |agent: Value| {
            let mut params = params.clone();
            params["agent_id"] = agent;
            params
        };
        wire.ok(method, to("a".into())).await;
        let unknown = wire.refused(method, to("nobody".into())).await;
        assert_eq!(
            (unknown.code, &*unknown.message),
            (-32602, "Unknown agent: nobody"),
            "{method}"
        );
        for bad in [json!("a b"), json!(7), json!(["a"])] {
            let fault = wire.refused(method, to(bad)).await;
            assert_eq!(
                (fault.code, &fault.data["path"]),
                (-32602, &json!("/agent_id")),
                "{method}"
            );
        }
    }
    assert_eq!(names(wire).await, ["a"], "none of them made another agent");
}

async fn an_agent_is_marked_while_its_turn_runs(wire: &Wire) {
    create(wire, "a").await;
    create(wire, "b").await;
    let gate = Gate::new();
    wire.model().push(Reply::text("done").held_by(&gate));
    let mark = async {
        wire.model().wait_for_requests(1).await;
        assert_eq!(wire.ok("shutdown", json!({"agent_id": "a"})).await, json!({"success": true}));
        assert_eq!(entry(wire, "a").await["should_shutdown"], true);
        gate.release();
    };
    tokio::join!(say(wire, "a", "Hi"), mark);
    assert_eq!(entry(wire, "a").await["should_shutdown"], true, "the turn's end keeps the mark");
    assert_eq!(entry(wire, "b").await["should_shutdown"], false);
}

#[tokio::test]
async fn the_server_stops_when_all_agents_are_done() {
    let mut server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    create(&wire, "b").await;
    wire.ok("shutdown", json!({"agent_id": "a"})).await;
    assert_eq!(names(&wire).await, ["a", "b"], "one of two: it serves on");
    let (status, answer) = at_path(&server, "b", "shutdown", json!({})).await;
    assert_eq!((status, &answer["result"]), (200, &json!({"success": true})));
    assert_eq!(server.exit().await.code(), Some(0));
    assert!(!server.token_file.unwrap().exists() && !server.socket.unwrap().exists());
}

#[tokio::test]
async fn shutdown_at_server_scope_stops_the_server() {
    for method in ["shutdown", "shutdown_server"] {
        let mut server = Server::start().await;
        let wire = server.wire();
        create(&wire, "a").await;
        let answer = wire.ok(method, json!({})).await;
        assert_eq!(answer["success"], true);
        let says_so = answer.get("message").is_some_and(Value::is_string);
        assert_eq!(says_so, method == "shutdown_server", "{answer}");
        assert_eq!(server.exit().await.code(), Some(0), "{method}");
        assert!(!server.token_file.unwrap().exists() && !server.socket.unwrap().exists());
    }
}

#[tokio::test]
async fn an_agent_that_could_not_be_begun_is_told_apart_from_one_that_was_not_made() {
    let server = Server::start().await;
    let wire = server.wire();
    server.model().push(Reply::status(400));
    let params =
        json!({"agent_id": "a", "initial_message": "Hi", "wait_for_initial_response": true});
    assert_eq!(wire.refused("create_agent", params).await.code, -32603);
    // The agent is there; its first turn is not. It can be talked to.
    eventually("the agent to be listed", async || names(&wire).await == ["a"]).await;
    assert_eq!(say(&wire, "a", "Hi").await, "Hello from the scripted model.");
}

#[tokio::test]
async fn an_agent_whose_first_turn_finds_no_place_is_not_made() {
    let server = Setup::new().server(json!({"max_concurrent": 1, "max_queued": 0})).start().await;
    let wire = server.wire();
    create(&wire, "busy").await;
    server.model().push(Reply::hang());
    let begin = json!({"agent_id": "a", "initial_message": "Begin"});
    let others = async {
        server.model().wait_for_requests(1).await;
        let fault = wire.refused("create_agent", begin.clone()).await;
        assert_eq!(fault.code, -32001);
        assert!(fault.data["retry_after_ms"].is_u64(), "a client is told to come again: {fault:?}");
        assert_eq!(names(&wire).await, ["busy"]);
        wire.ok("cancel", json!({"agent_id": "busy", "request_id": "r"})).await;
    };
    let hang = json!({"agent_id": "busy", "content": "Hi", "request_id": "r"});
    tokio::join!(wire.ok("send", hang), others);
    assert_eq!(wire.ok("create_agent", begin).await["initial_status"], "queued");
}
