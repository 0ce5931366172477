//! Who gives `yolo`, and who has the terminal's methods.

use std::os::unix::fs::PermissionsExt as _;

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use super::{Other, Terminal, answer, setup};
use crate::harness::wire::request;
use crate::harness::{Framed, Wire, within};

#[tokio::test]
async fn the_terminal_is_told_where_its_server_is() {
    let mut terminal = Terminal::start(setup()).await;
    let hello = terminal.hello().await;
    let world = terminal.world.clone();
    let port = hello["port"].as_u64().unwrap();
    let expected = json!({
        "url": format!("http://127.0.0.1:{port}"), "port": port, "pid": terminal.process.id(),
        "token_file": world.home().join(format!("rpc-{port}.token")), "socket": world.socket(),
    });
    assert_eq!(hello, expected);
    let info = Other::of(&hello).call("server_info", json!({})).await;
    assert_eq!((&info["approvals"], &info["pid"]), (&json!("auto"), &hello["pid"]));
    terminal.logs("listening").await;
    let mode = std::fs::metadata(terminal.log_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(terminal.process.log().complete().await, "", "the screen is the terminal's");
    // Nothing that an agent starts can find the channel, and the terminal's keys are not for this session.
    let id = terminal.process.id();
    for descriptor in [0, 1] {
        let file = std::fs::read_link(format!("/proc/{id}/fd/{descriptor}")).unwrap();
        assert_eq!(file.to_str(), Some("/dev/null"));
    }
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let session = stat.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap();
    assert_eq!(session, id.to_string());
}

#[tokio::test]
async fn what_is_configured_of_approvals_holds() {
    let denying = setup().config(json!({"permissions": {"approvals": "deny"}}));
    let mut terminal = Terminal::start(denying).await;
    assert_eq!(terminal.ok("server_info", json!({})).await["approvals"], "deny");
}

#[tokio::test]
async fn only_the_terminal_gives_yolo() {
    let presets = json!({"wild": {"extends": "yolo"}});
    let mut terminal =
        Terminal::start(setup().config(json!({"permissions": {"presets": presets}}))).await;
    let other = Other::of(&terminal.hello().await);
    let names = |listed: Value| -> Vec<String> {
        let presets = listed["presets"].as_array().unwrap().clone();
        presets.iter().map(|preset| preset["name"].as_str().unwrap().into()).collect()
    };
    let here = names(terminal.ok("list_presets", json!({})).await);
    assert_eq!(here, ["sandboxed", "worker", "trusted", "yolo", "wild"]);
    let there = names(other.call("list_presets", json!({})).await);
    assert_eq!(there, ["sandboxed", "worker", "trusted"]);

    let level = async |terminal: &mut Terminal, agent: &str| {
        let now = terminal.ok("get_permissions", json!({"agent_id": agent})).await;
        now["permission_level"].as_str().unwrap().to_string()
    };
    for (agent, preset) in [("y", "yolo"), ("w", "wild")] {
        terminal.ok("create_agent", json!({"agent_id": agent, "preset": preset})).await;
        assert_eq!(level(&mut terminal, agent).await, "yolo");
    }
    terminal.ok("create_agent", json!({"agent_id": "t", "preset": "trusted"})).await;
    terminal.ok("set_permissions", json!({"agent_id": "t", "preset": "yolo"})).await;
    assert_eq!(level(&mut terminal, "t").await, "yolo");
    terminal.ok("clone_session", json!({"src_session": "y", "dest_session": "saved"})).await;

    // Everybody else is refused: with the server's token, as an agent, with an agent's token, and on the socket.
    terminal.ok("set_permissions", json!({"agent_id": "t", "preset": "trusted"})).await;
    let minted = terminal.ok("create_agent_token", json!({"agent_id": "y"})).await;
    let minted = minted["token"].as_str().unwrap().to_string();
    let asked = [
        ("create_agent", json!({"agent_id": "z", "preset": "yolo"})),
        ("create_agent", json!({"agent_id": "z", "preset": "wild"})),
        ("set_permissions", json!({"agent_id": "t", "preset": "yolo"})),
        ("load_session", json!({"session_name": "saved", "preset": "yolo"})),
    ];
    for (method, params) in asked {
        let refused = other.call(method, params.clone()).await;
        assert_eq!(refused["code"], -32602, "{method}: {refused}");
        assert!(refused.to_string().contains("interactive terminal"), "{refused}");
        let acting = other.post(method, params.clone()).header("X-Nexus-Agent", "y");
        let refused = answer(other.ask(acting).await.answer());
        assert!(refused["code"].is_number(), "{method}: {refused}");
        let with_token = other.post(method, params.clone()).bearer(Some(&minted));
        let refused = answer(other.ask(with_token).await.answer());
        assert!(refused["code"].is_number(), "{method}: {refused}");
        let mut socket = Framed::connect(&terminal.world.socket()).await;
        socket.send(request(1, method, params).as_ref()).await;
        assert_eq!(socket.message().await["error"]["code"], -32602, "{method}");
    }
    // What a child has stays below its parent, whoever asks.
    let child = json!({"agent_id": "k", "parent_agent_id": "y", "preset": "yolo"});
    assert_eq!(terminal.call("create_agent", child).await["error"]["code"], -32602);
    let child = json!({"agent_id": "k", "parent_agent_id": "y", "preset": "trusted"});
    terminal.ok("create_agent", child).await;
    let raised = terminal.call("set_permissions", json!({"agent_id": "k", "preset": "yolo"})).await;
    assert!(raised["error"]["code"].is_number(), "{raised}");
    assert_eq!(level(&mut terminal, "k").await, "trusted");

    // A copy of what was given yolo is a new agent, and nobody gave it that one.
    let copy = |agent: &str| json!({"session_name": "saved", "agent_id": agent});
    assert_eq!(other.call("load_session", copy("lowered")).await["restored"], true);
    assert_eq!(level(&mut terminal, "lowered").await, "trusted");
    let policy = terminal.ok("get_permissions", json!({"agent_id": "lowered"})).await;
    assert!(policy["policy"]["write_paths"].is_array(), "not everywhere: {policy}");
    terminal.ok("load_session", copy("raised")).await;
    assert_eq!(level(&mut terminal, "raised").await, "yolo");
}

over_every_wire_of_messages! {
    elsewhere_there_are_no_methods_of_the_terminal,
}

fn methods() -> [(&'static str, Value); 3] {
    [
        ("terminal.hello", json!({})),
        ("terminal.stay", json!({})),
        ("terminal.leave", json!({"turns": "cancel"})),
    ]
}

async fn elsewhere_there_are_no_methods_of_the_terminal(wire: &Wire) {
    for (method, params) in methods() {
        assert_eq!(wire.refused(method, params).await.code, -32601);
    }
    let refused = wire.refused("create_agent", json!({"agent_id": "a", "preset": "yolo"})).await;
    assert_eq!(refused.code, -32602);
}

#[tokio::test]
async fn the_terminals_methods_are_nobody_elses() {
    let mut terminal = Terminal::start(setup()).await;
    let other = Other::of(&terminal.hello().await);
    for (method, params) in methods() {
        assert_eq!(other.call(method, params.clone()).await["code"], -32601);
        let mut socket = Framed::connect(&terminal.world.socket()).await;
        socket.send(request(1, method, params).as_ref()).await;
        assert_eq!(socket.message().await["error"]["code"], -32601);
    }
    let listed = terminal.ok("rpc.discover", json!({})).await.to_string();
    assert!(!listed.contains("terminal."), "they stand in no list");
    for wrong in [json!({}), json!({"turns": "keep"}), json!({"turns": "finish", "x": 1})] {
        assert_eq!(terminal.call("terminal.leave", wrong).await["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn calls_of_the_terminal_run_side_by_side() {
    let mut terminal = Terminal::start(setup()).await;
    terminal.ok("create_agent", json!({"agent_id": "a"})).await;
    let watch = terminal.ask("watch", json!({"agents": ["a"]})).await;
    let first = terminal.wait_for(|message| message["method"] == "watch_event").await;
    assert_eq!(first["params"]["task_id"], watch);
    let gate = Gate::new();
    terminal.world.model.push(Reply::text("never").held_by(&gate));
    let send = json!({"agent_id": "a", "content": "x", "request_id": "r1"});
    let send = terminal.ask("send", send).await;
    within("the model to be asked", terminal.world.model.wait_for_requests(1)).await;
    let cancelled = terminal.ok("cancel", json!({"agent_id": "a", "request_id": "r1"})).await;
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(terminal.answer(send).await["result"]["cancelled"], true);
    let ended = |message: &Value| message["params"]["event"]["type"] == "turn_ended";
    assert_eq!(terminal.wait_for(ended).await["params"]["event"]["status"], "cancelled");
    let id = first["params"]["watch_id"].clone();
    assert_eq!(terminal.ok("unwatch", json!({"watch_id": id})).await["ended"], true);
    assert_eq!(terminal.answer(watch).await["result"]["reason"], "unwatched");
}
