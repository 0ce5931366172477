//! What a person chooses for a session, and what it is told of itself.

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::editor::Desk;
use crate::harness::Setup;

fn option(options: &Value, id: &str) -> Value {
    options.as_array().unwrap().iter().find(|it| it["id"] == id).unwrap().clone()
}

fn values(option: &Value) -> Vec<String> {
    let options = option["options"].as_array().unwrap().iter();
    options.map(|it| it["value"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn permissions_are_a_mode_and_an_option_that_go_together() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let params = json!({"cwd": editor.cwd, "mcpServers": []});
        let opened = editor.ok("session/new", params).await;
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        let modes = &opened["modes"];
        assert_eq!(modes["currentModeId"], "trusted");
        let names: Vec<_> = modes["availableModes"].as_array().unwrap().iter().collect();
        let names: Vec<_> = names.iter().map(|it| it["id"].as_str().unwrap()).collect();
        assert_eq!(names, ["sandboxed", "worker", "trusted"]);
        let mode = option(&opened["configOptions"], "mode");
        assert_eq!((&mode["currentValue"], &mode["category"]), (&json!("trusted"), &json!("mode")));
        assert_eq!(values(&mode), names);
        // By the one.
        let params = json!({"sessionId": session, "modeId": "sandboxed"});
        editor.ok("session/set_mode", params).await;
        let told = editor.update("config_option_update").await;
        assert_eq!(option(&told["configOptions"], "mode")["currentValue"], "sandboxed");
        assert_eq!(editor.update("current_mode_update").await["currentModeId"], "sandboxed");
        // By the other.
        let params = json!({"sessionId": session, "configId": "mode", "value": "trusted"});
        let set = editor.ok("session/set_config_option", params).await;
        assert_eq!(option(&set["configOptions"], "mode")["currentValue"], "trusted");
        assert_eq!(editor.update("current_mode_update").await["currentModeId"], "trusted");
        for mode in ["yolo", "none"] {
            let params = json!({"sessionId": session, "modeId": mode});
            let (code, why) = editor.refused("session/set_mode", params).await;
            assert!(code == -32602 && why.contains(mode), "{why}");
        }
        for (id, value) in [("none", json!("x")), ("mode", json!("yolo")), ("model", json!("none"))]
        {
            let params = json!({"sessionId": session, "configId": id, "value": value});
            assert_eq!(editor.refused("session/set_config_option", params).await.0, -32602);
        }
    }
}

#[tokio::test]
async fn the_model_is_an_option() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let params = json!({"cwd": editor.cwd, "mcpServers": []});
    let opened = editor.ok("session/new", params).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let model = option(&opened["configOptions"], "model");
    assert_eq!(model["currentValue"], "scripted", "{model}");
    let params = json!({"sessionId": session, "configId": "model", "value": "scripted"});
    let set = editor.ok("session/set_config_option", params).await;
    assert_eq!(option(&set["configOptions"], "model"), model);
}

/// What is changed elsewhere while a prompt runs is told at its end.
#[tokio::test]
async fn a_change_from_elsewhere_is_told() {
    let desk = Desk::bridged().await;
    let wire = desk.server.as_ref().unwrap().wire();
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    let gate = nexus_testkit::Gate::new();
    desk.world.model.push(Reply::text("begun").then_gate(&gate));
    let id = editor.begin(&session, "x").await;
    editor.update("agent_message_chunk").await;
    wire.ok("set_permissions", json!({"agent_id": session, "preset": "worker"})).await;
    gate.release();
    assert_eq!(editor.stopped(id).await, "end_turn");
    assert_eq!(editor.update("current_mode_update").await["currentModeId"], "worker");
}

#[tokio::test]
async fn commands_are_answered_without_the_model() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let session = editor.session().await;
    desk.world.model.push(Reply::text("hello"));
    editor.prompt(&session, "hi").await;
    editor.updates();
    for (command, expected) in [
        ("/status", "- model: scripted"),
        ("/mcp", "This agent sees no MCP servers."),
        ("/compact", "ompacted"),
    ] {
        let before = desk.world.model.request_count();
        assert_eq!(editor.prompt(&session, command).await, "end_turn");
        let said = editor.said();
        assert!(said.contains(expected), "{command}: {said}");
        let asked = desk.world.model.request_count() - before;
        assert!(asked == 0 || command == "/compact", "{command}");
    }
    // What only looks like one is said to the model.
    desk.world.model.push(Reply::text("what?"));
    editor.prompt(&session, "/unknown").await;
    assert_eq!(editor.said(), "what?");
}

/// A child that was opened is offered what its parent can hand down.
#[tokio::test]
async fn modes_end_at_the_ceiling() {
    let desk = Desk::bridged().await;
    let wire = desk.server.as_ref().unwrap().wire();
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
    let child = json!({"agent_id": "low", "parent_agent_id": "top", "preset": "sandboxed"});
    wire.ok("create_agent", child).await;
    let got = wire.ok("get_permissions", json!({"agent_id": "top"})).await;
    assert_eq!(got.get("ceiling_level"), None);
    let got = wire.ok("get_permissions", json!({"agent_id": "low"})).await;
    assert_eq!(got["ceiling_level"], "sandboxed");
    let mut editor = desk.editor().await;
    for (agent, offered) in
        [("top", vec!["sandboxed", "worker", "trusted"]), ("low", vec!["sandboxed", "worker"])]
    {
        let params = json!({"sessionId": agent, "cwd": editor.cwd, "mcpServers": []});
        let opened = editor.ok("session/resume", params).await;
        assert_eq!(values(&option(&opened["configOptions"], "mode")), offered, "{agent}");
    }
}

/// A model is known by either of its names; how hard it thinks can be chosen where it has efforts.
#[tokio::test]
async fn a_model_is_known_behind_its_providers_name() {
    let keys = json!({"models": {"deep": {"id": "gpt-5.2", "input": ["text", "image"]}}});
    let desk = Desk { world: Setup::new().provider_keys(keys).world().await, server: None };
    for name in ["deep", "scripted/deep"] {
        let mut editor = desk.silent(&["--model", name]);
        let hello = editor.ok("initialize", json!({"protocolVersion": 1})).await;
        assert_eq!(hello["agentCapabilities"]["promptCapabilities"]["image"], true, "{name}");
        let params = json!({"cwd": editor.cwd, "mcpServers": []});
        let opened = editor.ok("session/new", params).await;
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        let level = option(&opened["configOptions"], "thought_level");
        assert_eq!(level["currentValue"], "off", "{name}: {level}");
        // As it is configured, it does not think.
        for (chosen, shown) in
            [("low", "low"), ("default", "off"), ("high", "high"), ("off", "off")]
        {
            let params =
                json!({"sessionId": session, "configId": "thought_level", "value": chosen});
            let set = editor.ok("session/set_config_option", params).await;
            let level = option(&set["configOptions"], "thought_level");
            assert_eq!(level["currentValue"], shown, "{name}: {chosen}");
        }
        let params = json!({"sessionId": session, "configId": "thought_level", "value": "much"});
        assert_eq!(editor.refused("session/set_config_option", params).await.0, -32602);
    }
}

/// Also of a model of which nobody knows how hard it can be told to think.
#[tokio::test]
async fn what_is_chosen_stands_among_what_can_be() {
    let keys = json!({"models": {"odd": {"id": "odd-1", "reasoning": {"effort": "low"}}}});
    let desk = Desk { world: Setup::new().provider_keys(keys).world().await, server: None };
    let mut editor = desk.silent(&["--model", "odd"]);
    editor.ok("initialize", json!({"protocolVersion": 1})).await;
    let params = json!({"cwd": editor.cwd, "mcpServers": []});
    let opened = editor.ok("session/new", params).await;
    let level = option(&opened["configOptions"], "thought_level");
    assert_eq!(level["currentValue"], "low");
    assert_eq!(values(&level), ["default", "off", "low"]);
}
