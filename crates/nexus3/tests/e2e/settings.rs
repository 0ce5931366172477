//! An agent's directory, prompt, model and permissions, read and changed while it lives.

use std::fs;
use std::path::Path;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::{Server, Setup, Wire};
use crate::support::{as_agent, create, entry, names, prompt, say};

over_every_wire! {
    the_seeds_requests_get_the_seeds_answers,
    a_directory_takes_reading_and_writing_along,
    a_directory_outside_the_ceiling_is_refused,
    a_preset_that_lists_its_paths_is_not_left: listing(),
    a_prompt_is_what_the_model_is_given,
    a_model_is_asked_from_the_next_turn_on: small(),
    a_model_that_is_too_small_is_refused: small(),
    summaries_are_of_every_agent,
    bad_values_are_named,
}

async fn the_seeds_requests_get_the_seeds_answers(wire: &Wire) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted", "cwd": place})).await;
    for (method, params, answer) in [
        ("set_cwd", json!({"cwd": place}), json!({"cwd": place})),
        (
            "set_permissions",
            json!({"preset": "sandboxed"}),
            json!({"updated": true, "permission_level": "sandboxed", "preset": "sandboxed"}),
        ),
        (
            "set_system_prompt",
            json!({"system_prompt": "You are NEXUS3..."}),
            json!({"updated": true}),
        ),
        (
            "get_system_prompt",
            json!({}),
            json!({"system_prompt": "You are NEXUS3...", "system_prompt_path": null}),
        ),
        (
            "set_model",
            json!({"model": "scripted/big"}),
            json!({"updated": true, "model": "scripted/big"}),
        ),
        (
            "get_model",
            json!({}),
            json!({"model": "scripted/big", "provider": "scripted", "reasoning": false}),
        ),
    ] {
        let mut params = params;
        params["agent_id"] = "a".into();
        assert_eq!(wire.ok(method, params).await.to_string(), answer.to_string(), "{method}");
    }
    let held = wire.ok("get_permissions", json!({"agent_id": "a"})).await;
    for member in ["permission_level", "preset", "disabled_tools", "policy", "session_allowances"] {
        assert!(held.get(member).is_some(), "{member}");
    }
    for member in ["cwd", "allowed_paths", "blocked_paths"] {
        assert!(held["policy"].get(member).is_some(), "{member}");
    }
    assert_eq!(held["session_allowances"], json!({"write_paths": [], "exec_dirs": {}}));
}

/// Whether the agent may read and write a file there.
async fn may(wire: &Wire, agent: &str, file: &Path) -> (bool, bool) {
    let ask = async |tool: &str, arguments: Value| {
        let params = json!({"agent_id": agent, "tool": tool, "arguments": arguments});
        wire.ok("explain_permission", params).await["allowed"] == true
    };
    let read = ask("read_file", json!({"path": file})).await;
    (read, ask("write_file", json!({"path": file, "content": "x"})).await)
}

async fn a_directory_takes_reading_and_writing_along(wire: &Wire) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    for dir in ["one", "two", "out"] {
        fs::create_dir(place.join(dir)).unwrap();
    }
    std::os::unix::fs::symlink(place.join("two"), place.join("one/link")).unwrap();
    let (one, two) = (place.join("one/f"), place.join("two/f"));
    let low = json!({"agent_id": "low", "cwd": place.join("one"), "allowed_write_paths": [place.join("out")]});
    wire.ok("create_agent", low).await;
    let high = json!({"agent_id": "high", "preset": "trusted", "cwd": place.join("one")});
    wire.ok("create_agent", high).await;
    assert_eq!(
        (may(wire, "low", &one).await, may(wire, "low", &two).await),
        ((true, false), (false, false))
    );
    assert_eq!(may(wire, "high", &one).await, (true, true));
    for agent in ["low", "high"] {
        // Relative to where it is, through a link: what is kept is the place itself.
        let moved = wire.ok("set_cwd", json!({"agent_id": agent, "cwd": "link/../two"})).await;
        assert_eq!(moved, json!({"cwd": place.join("two")}));
        assert_eq!(entry(wire, agent).await["cwd"], json!(place.join("two")));
    }
    assert_eq!(
        (may(wire, "low", &one).await, may(wire, "low", &two).await),
        ((false, false), (true, false))
    );
    assert_eq!(may(wire, "low", &place.join("out/f")).await, (true, true), "what was named stays");
    assert_eq!(
        (may(wire, "high", &one).await, may(wire, "high", &two).await),
        ((true, false), (true, true))
    );
    // The prompt is that of the new directory.
    fs::write(place.join("two/NEXUS.md"), "Speak like two.").unwrap();
    wire.ok("set_cwd", json!({"agent_id": "low", "cwd": "."})).await;
    let shown = wire.ok("get_system_prompt", json!({"agent_id": "low"})).await;
    assert_eq!(shown["system_prompt_path"], json!(place.join("two/NEXUS.md")));
    say(wire, "low", "Hi").await;
    assert_eq!(prompt(&wire.model().last_request()), shown["system_prompt"].as_str().unwrap());
    assert!(shown["system_prompt"].as_str().unwrap().contains("Speak like two."));
}

async fn a_directory_outside_the_ceiling_is_refused(wire: &Wire) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    for dir in ["in/deep", "blocked"] {
        fs::create_dir_all(place.join(dir)).unwrap();
    }
    // The grandparent's list of readable places is the ceiling.
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted", "cwd": place})).await;
    let kid = json!({"agent_id": "kid", "parent_agent_id": "top", "cwd": place.join("in")});
    wire.ok("create_agent", kid).await;
    wire.ok("set_cwd", json!({"agent_id": "kid", "cwd": "deep"})).await;
    for (cwd, rule) in [
        (json!(place.join("nowhere")), "no such file or directory"),
        (json!("/etc/passwd"), "is not a directory"),
        (json!("x\0"), "may not contain NUL"),
    ] {
        let fault = wire.refused("set_cwd", json!({"agent_id": "kid", "cwd": cwd})).await;
        assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/cwd")), "{fault:?}");
        assert!(fault.message.contains(rule), "{fault:?}");
    }
    assert_eq!(entry(wire, "kid").await["cwd"], json!(place.join("in/deep")));
}

fn listing() -> Setup {
    let place = std::env::temp_dir().canonicalize().unwrap();
    let listed =
        json!({"extends": "trusted", "allowed_paths": [place], "blocked_paths": ["/usr/share"]});
    Setup::new().config(json!({"permissions": {"presets": {"listed": listed}}}))
}

async fn a_preset_that_lists_its_paths_is_not_left(wire: &Wire) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    fs::create_dir(place.join("sub")).unwrap();
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "listed", "cwd": place})).await;
    wire.ok("create_agent", json!({"agent_id": "kid", "parent_agent_id": "a"})).await;
    wire.ok("create_agent", json!({"agent_id": "free", "preset": "trusted"})).await;
    for agent in ["a", "kid"] {
        for cwd in ["/etc", "/", "/usr/share"] {
            let fault = wire.refused("set_cwd", json!({"agent_id": agent, "cwd": cwd})).await;
            assert_eq!(fault.message, format!("Cwd: {cwd} lies outside what the agent may read"));
        }
        wire.ok("set_cwd", json!({"agent_id": agent, "cwd": place.join("sub")})).await;
    }
    wire.ok("set_cwd", json!({"agent_id": "free", "cwd": "/etc"})).await;
}

async fn a_prompt_is_what_the_model_is_given(wire: &Wire) {
    create(wire, "a").await;
    let layered = wire.ok("get_system_prompt", json!({"agent_id": "a"})).await;
    assert!(!layered["system_prompt"].as_str().unwrap().is_empty());
    assert_eq!(layered["system_prompt_path"], Value::Null);
    say(wire, "a", "Hi").await;
    assert_eq!(json!(prompt(&wire.model().last_request())), layered["system_prompt"]);
    let text = "Du bist \u{1f600}.\n\"Zitat\"";
    wire.ok("set_system_prompt", json!({"agent_id": "a", "system_prompt": text})).await;
    say(wire, "a", "Hi").await;
    assert_eq!(prompt(&wire.model().last_request()), text);
}

/// A second model, with a small window.
fn small() -> Setup {
    Setup::new().provider_keys(json!({"models": {"small": {"id": "tiny", "context_window": 1024}}}))
}

async fn a_model_is_asked_from_the_next_turn_on(wire: &Wire) {
    create(wire, "a").await;
    let model = wire.ok("get_model", json!({"agent_id": "a"})).await;
    assert_eq!(model, json!({"model": "scripted", "provider": "scripted", "reasoning": false}));
    let prompt = json!({"agent_id": "a", "system_prompt": "Short."});
    wire.ok("set_system_prompt", prompt).await;
    // Enough tools fit into no small window.
    let tools: Vec<_> = wire_tools(wire).await;
    wire.ok("set_permissions", json!({"agent_id": "a", "disable_tools": tools})).await;
    wire.ok("set_model", json!({"agent_id": "a", "model": "small"})).await;
    say(wire, "a", "Hi").await;
    assert_eq!(wire.model().last_request().body["model"], "tiny");
    assert_eq!(entry(wire, "a").await["model"], "small");
    assert_eq!(wire.ok("get_tokens", json!({"agent_id": "a"})).await["budget"], 1024);
}

/// The tools that a model is offered.
async fn wire_tools(wire: &Wire) -> Vec<String> {
    say(wire, "a", "Hi").await;
    let asked = wire.model().last_request();
    let tools = asked.body["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_string()).collect()
}

async fn a_model_that_is_too_small_is_refused(wire: &Wire) {
    wire.model().set_default(Reply::text("word ".repeat(1200)));
    create(wire, "a").await;
    say(wire, "a", "Hi").await;
    let fault = wire.refused("set_model", json!({"agent_id": "a", "model": "small"})).await;
    assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/model")), "{fault:?}");
    assert!(fault.message.contains("the window of model small is 1024"), "{fault:?}");
    assert_eq!(entry(wire, "a").await["model"], "scripted", "nothing changed");
    wire.ok("clone_session", json!({"src_session": "a", "dest_session": "b"})).await;
    let fault = wire.refused("load_session", json!({"session_name": "b", "model": "small"})).await;
    assert!(fault.message.contains("the window of model small is 1024"), "{fault:?}");
    assert_eq!(names(wire).await, ["a"], "nor was it loaded");
    wire.ok("load_session", json!({"session_name": "b", "model": "scripted/big"})).await;
}

async fn summaries_are_of_every_agent(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted"})).await;
    create(wire, ".t").await;
    say(wire, "a", "Hi").await;
    let plain = wire.ok("get_agent_summaries", json!({})).await;
    let params = json!({"include_tokens": true, "include_context": true});
    let full = wire.ok("get_agent_summaries", params).await;
    let members = [
        "agent_id",
        "message_count",
        "cwd",
        "permission_level",
        "model",
        "halted_at_iteration_limit",
        "last_action_at",
        "usage",
        "tokens",
    ];
    for (summaries, members) in [(&plain, &members[..8]), (&full, &members[..])] {
        let agents = summaries["agents"].as_array().unwrap();
        assert_eq!(agents.len(), 2);
        for agent in agents {
            let names: Vec<_> = agent.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(names, members);
        }
    }
    let a = &full["agents"][0];
    assert_eq!((&a["agent_id"], &a["message_count"]), (&json!("a"), &json!(2)));
    assert_eq!((&a["permission_level"], &a["model"]), (&json!("trusted"), &json!("scripted")));
    a["last_action_at"].as_str().unwrap().parse::<jiff::Timestamp>().expect("ISO 8601");
    let tokens = wire.ok("get_tokens", json!({"agent_id": "a"})).await;
    assert_eq!(a["tokens"], json!({"total": tokens["total"], "budget": tokens["budget"]}));
    assert_eq!(full["agents"][1]["last_action_at"], Value::Null);
}

async fn bad_values_are_named(wire: &Wire) {
    create(wire, "a").await;
    for (method, params, text) in [
        ("set_cwd", json!({}), "Missing required parameter: cwd"),
        ("set_cwd", json!({"cwd": 1}), "cwd must be string, got: integer"),
        ("set_system_prompt", json!({}), "Missing required parameter: system_prompt"),
        (
            "set_system_prompt",
            json!({"system_prompt": null}),
            "system_prompt must be string, got: null",
        ),
        ("set_model", json!({}), "Missing required parameter: model"),
        ("set_model", json!({"model": "no"}), "Unknown model: no"),
        ("get_model", json!({"x": 1}), "Unknown parameter: x"),
        ("get_system_prompt", json!({"x": 1}), "Unknown parameter: x"),
        (
            "get_agent_summaries",
            json!({"include_tokens": 1}),
            "include_tokens must be boolean, got: integer",
        ),
    ] {
        let mut params = params;
        if method != "get_agent_summaries" {
            params["agent_id"] = "a".into();
        }
        let fault = wire.refused(method, params.clone()).await;
        assert_eq!(fault.code, -32602, "{method} {params}");
        assert!(fault.message.starts_with(text), "{method} {params}: {fault:?}");
    }
}

/// An agent without a ceiling could otherwise walk out of its sandbox.
#[tokio::test]
async fn an_agent_that_moves_itself_stays_within_what_it_has() {
    let server = Server::start().await;
    let wire = server.wire();
    let place = server.world.work().canonicalize().unwrap();
    fs::create_dir_all(place.join("sub/deep")).unwrap();
    for (agent, preset) in [("low", "sandboxed"), ("high", "trusted")] {
        wire.ok(
            "create_agent",
            json!({"agent_id": agent, "preset": preset, "cwd": place.join("sub")}),
        )
        .await;
        for cwd in ["/", "..", "/etc", "/no/such/place", "/etc/passwd"] {
            let params = json!({"agent_id": agent, "cwd": cwd});
            let refused = as_agent(&server, agent, "set_cwd", params).await.unwrap_err();
            assert_eq!(refused.0, -32003, "{agent} {cwd}: {refused:?}");
        }
        let inside = json!({"agent_id": agent, "cwd": "deep"});
        as_agent(&server, agent, "set_cwd", inside).await.unwrap();
        // Whoever may more may move it further.
        wire.ok("set_cwd", json!({"agent_id": agent, "cwd": place})).await;
    }
    // Nobody reads or changes the settings of agents that are not beneath it.
    for (method, params) in [
        ("set_cwd", json!({"cwd": "/"})),
        ("get_system_prompt", json!({})),
        ("set_system_prompt", json!({"system_prompt": "x"})),
        ("get_model", json!({})),
        ("set_model", json!({"model": "scripted"})),
    ] {
        let mut params = params;
        params["agent_id"] = "high".into();
        assert_eq!(
            as_agent(&server, "low", method, params).await.unwrap_err().0,
            -32003,
            "{method}"
        );
    }
    let seen = as_agent(&server, "low", "get_agent_summaries", json!({})).await.unwrap();
    assert_eq!(seen["agents"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn settings_are_kept() {
    let server = Server::start().await;
    let wire = server.wire();
    let place = server.world.work().canonicalize().unwrap().join("sub");
    fs::create_dir(&place).unwrap();
    create(&wire, "a").await;
    wire.ok("set_cwd", json!({"agent_id": "a", "cwd": place})).await;
    wire.ok("set_system_prompt", json!({"agent_id": "a", "system_prompt": "Be brief."})).await;
    wire.ok("set_model", json!({"agent_id": "a", "model": "scripted/big"})).await;
    wire.ok("set_permissions", json!({"agent_id": "a", "disable_tools": ["git"]})).await;
    let all = async |server: &Server| {
        let wire = server.wire();
        let mut all = Vec::new();
        for method in ["get_permissions", "get_system_prompt", "get_model"] {
            all.push(wire.ok(method, json!({"agent_id": "a"})).await);
        }
        all
    };
    let before = all(&server).await;
    let server = server.restart().await;
    assert_eq!(all(&server).await, before);
    assert_eq!(before[0]["policy"]["cwd"], json!(place));
}
