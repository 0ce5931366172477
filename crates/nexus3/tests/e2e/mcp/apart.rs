//! Processes that are one agent's each (`share: false`): who has which, what it may do, and when it ends.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use super::{entry, status, tool, user, with, with_entry};
use crate::harness::{Server, Setup, Wire, eventually, within};

fn apart() -> Setup {
    with_entry(entry("", json!({"share": false})))
}

/// What watches over the process of `s` that the agent has.
pub async fn watcher(wire: &Wire, agent: &str) -> i32 {
    let stands = status(wire, agent).await;
    stands["pid"].as_i64().unwrap_or_else(|| panic!("{stands}")) as i32
}

pub async fn is_gone(pid: i32) {
    let gone = async || test_kill_process(Pid::from_raw(pid).unwrap()).is_err();
    eventually("a process to end", gone).await;
}

/// The directories that processes of `s` have of their own.
pub fn directories(server: &Server) -> Vec<PathBuf> {
    let found = fs::read_dir(server.world.home().join("mcp/state"));
    let found = found.into_iter().flatten().map(|it| it.unwrap().path());
    found.filter(|it| it.file_name().unwrap().to_str().unwrap().starts_with("s.")).collect()
}

#[tokio::test]
async fn each_agent_has_a_process_of_its_own_which_ends_with_it() {
    let server = apart().start().await;
    let wire = server.wire();
    for agent in ["a", "b"] {
        user(&wire, agent).await;
        assert_eq!(tool(&wire, agent, "echo", json!({"text": "x"})).await, "echo: x");
        let stands = status(&wire, agent).await;
        assert_eq!((&stands["shared"], &stands["state"]), (&json!(false), &json!("ready")));
    }
    let listed = wire.ok("mcp_list_servers", json!({"agent_id": "a"})).await;
    assert_eq!(listed["servers"][0]["shared"], false);
    let (a, b) = (watcher(&wire, "a").await, watcher(&wire, "b").await);
    assert_ne!(a, b);
    assert_eq!(directories(&server).len(), 2);
    // What one of them started, too.
    let forked: i32 = tool(&wire, "a", "fork", json!({})).await.parse().unwrap();
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    for pid in [a, forked] {
        is_gone(pid).await;
    }
    eventually("its directory to go", async || directories(&server).len() == 1).await;
    assert_eq!(watcher(&wire, "b").await, b, "it is no matter of others");
    let gone = wire.ok("mcp_disconnect", json!({"agent_id": "b", "server": "s"})).await;
    assert_eq!(gone["disconnected"], true);
    assert!(test_kill_process(Pid::from_raw(b).unwrap()).is_err(), "when the answer came");
    assert_eq!(status(&wire, "b").await["state"], "configured");
    let again = wire.ok("mcp_disconnect", json!({"agent_id": "b", "server": "s"})).await;
    assert_eq!(again["disconnected"], false);
    assert_eq!(tool(&wire, "b", "echo", json!({"text": "y"})).await, "echo: y");
}

#[tokio::test]
async fn it_ends_with_an_agent_that_leaves_memory_and_with_the_program() {
    let server = apart().server(json!({"agent_idle_timeout": 1})).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    let forked: i32 = tool(&wire, "a", "fork", json!({})).await.parse().unwrap();
    is_gone(forked).await;
    // Back in memory, and killed with the program.
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    let forked: i32 = tool(&wire, "a", "fork", json!({})).await.parse().unwrap();
    let left = directories(&server);
    let server = server.restart().await;
    is_gone(forked).await;
    eventually("what was left behind to go", async || left.iter().all(|it| !it.exists())).await;
    assert_eq!(tool(&server.wire(), "a", "echo", json!({"text": "z"})).await, "echo: z");
}

#[tokio::test]
async fn a_child_has_its_own_process_and_only_tools_that_it_holds() {
    let server = apart().start().await;
    let wire = server.wire();
    let parent = json!({"agent_id": "p", "preset": "trusted", "mcp": {"s": ["echo", "env"]}});
    wire.ok("create_agent", parent).await;
    let child = json!({"agent_id": "c", "parent_agent_id": "p", "mcp": {"s": ["echo"]}});
    wire.ok("create_agent", child).await;
    wire.ok("mcp_connect", json!({"agent_id": "p", "server": "s"})).await;
    assert_eq!(tool(&wire, "c", "echo", json!({"text": "x"})).await, "echo: x");
    assert!(tool(&wire, "c", "env", json!({})).await.starts_with("Refused: "));
    let pids = (watcher(&wire, "p").await, watcher(&wire, "c").await);
    assert_ne!(pids.0, pids.1);
    // Its parent's end is its own.
    wire.ok("destroy_agent", json!({"agent_id": "p"})).await;
    for pid in [pids.0, pids.1] {
        is_gone(pid).await;
    }
}

/// What the entry lets it do is met with what its agent may.
#[tokio::test]
async fn it_may_do_no_more_than_its_agent() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["work", "other"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("file"), "here").unwrap();
    }
    let both = json!([root.join("work"), root.join("other")]);
    let sandbox = json!({"read": both, "write": both, "network": true});
    let keys = |share: bool| json!({"share": share, "sandbox": sandbox, "approve": "never"});
    let server = with_entry(entry("", keys(false))).start().await;
    let wire = server.wire();
    let make = |name: &str, preset: &str| json!({"agent_id": name, "preset": preset, "cwd": root.join("work"), "mcp": {"s": ["*"]}});
    wire.ok("create_agent", make("small", "sandboxed")).await;
    wire.ok("create_agent", make("large", "trusted")).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let can = async |agent: &str, what: &str, arguments: Value| {
        let said = tool(&wire, agent, what, arguments).await;
        assert!(said.starts_with("Ok(") || said.starts_with("Err("), "{said}");
        said.starts_with("Ok(")
    };
    // Read and write at home, read and write elsewhere, the network.
    for (agent, expected) in
        [("small", [true, false, false, false, false]), ("large", [true, true, true, false, true])]
    {
        let mut found = Vec::new();
        for name in ["work", "other"] {
            for what in ["read", "write"] {
                let path = json!({"path": root.join(name).join("file")});
                found.push(can(agent, what, path).await);
            }
        }
        found.push(can(agent, "connect", json!({"to": to})).await);
        assert_eq!(found, expected, "{agent}");
    }
    let told = status(&wire, "small").await["sandbox"].as_str().unwrap().to_owned();
    assert!(told.contains("writes nothing else") && told.contains("no network"), "{told}");

    // Where all share one, nothing of this holds: that process is nobody's.
    let server = with_entry(entry("", keys(true))).start().await;
    let wire = server.wire();
    wire.ok("create_agent", make("small", "sandboxed")).await;
    let path = json!({"path": root.join("other/file")});
    assert_eq!(tool(&wire, "small", "read", path).await, "Ok(\"here\")");
}

#[tokio::test]
async fn an_agent_that_is_narrowed_gets_a_process_that_may_less() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir(root.join("work")).unwrap();
    fs::write(root.join("file"), "here").unwrap();
    let keys = json!({"share": false, "sandbox": {"read": [root]}, "approve": "never"});
    let narrow =
        json!({"extends": "trusted", "allowed_paths": [root.join("work")], "mcp": {"s": ["*"]}});
    let config = json!({"permissions": {"presets": {"narrow": narrow}}});
    let server = with_entry(entry("", keys)).config(config).start().await;
    let wire = server.wire();
    let make = json!({"agent_id": "t", "preset": "trusted", "cwd": root.join("work")});
    wire.ok("create_agent", make).await;
    let read = json!({"path": root.join("file")});
    assert_eq!(tool(&wire, "t", "read", read.clone()).await, "Ok(\"here\")");
    let before = watcher(&wire, "t").await;
    wire.ok("set_permissions", json!({"agent_id": "t", "preset": "narrow"})).await;
    assert_eq!(tool(&wire, "t", "read", read).await, "Err(PermissionDenied)");
    assert_ne!(watcher(&wire, "t").await, before);
    is_gone(before).await;
}

#[tokio::test]
async fn an_agent_can_have_a_server_apart_that_others_share() {
    let server = with("").start().await;
    let wire = server.wire();
    for agent in ["a", "b"] {
        user(&wire, agent).await;
        wire.ok("mcp_connect", json!({"agent_id": agent, "server": "s"})).await;
    }
    let all = watcher(&wire, "a").await;
    let apart = |shared: bool| json!({"agent_id": "a", "server": "s", "shared": shared});
    wire.ok("mcp_connect", apart(false)).await;
    let own = watcher(&wire, "a").await;
    assert_ne!(own, all);
    assert_eq!(watcher(&wire, "b").await, all);
    assert_eq!(status(&wire, "a").await["shared"], false);
    assert_eq!(status(&wire, "b").await["shared"], true);
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    assert_eq!(status(&wire, "a").await["calls"], 1);
    wire.ok("mcp_connect", apart(true)).await;
    is_gone(own).await;
    assert_eq!(watcher(&wire, "a").await, all);

    let server = with_entry(entry("", json!({"share": false}))).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let refused = wire.refused("mcp_connect", apart(true)).await;
    assert_eq!((refused.code, refused.data["path"].as_str()), (-32602, Some("/shared")));
}

/// As many processes there are as servers in a configuration, and no more.
#[tokio::test]
async fn processes_of_agents_are_counted() {
    let server = apart().start().await;
    let wire = server.wire();
    let connect = async |number: usize| -> Result<Value, crate::harness::Fault> {
        let agent = format!("a{number}");
        user(&wire, &agent).await;
        wire.call("mcp_connect", json!({"agent_id": agent, "server": "s"})).await
    };
    for number in 0..64 {
        let connected = within("a connection", connect(number)).await;
        assert_eq!(connected.unwrap()["connected"], true, "{number}");
    }
    let refused = connect(64).await.unwrap_err();
    assert_eq!(refused.code, -32000);
    assert!(
        refused.message.contains("64 processes")
            || refused.data.to_string().contains("64 processes")
    );
    wire.ok("mcp_disconnect", json!({"agent_id": "a0", "server": "s"})).await;
    let again = json!({"agent_id": "a64", "server": "s"});
    assert_eq!(wire.ok("mcp_connect", again).await["connected"], true);
}

/// A tool that changed waits for whoever looks at it, in all processes.
#[tokio::test]
async fn pins_are_the_servers_and_not_a_process_s() {
    let server = apart().start().await;
    let wire = server.wire();
    for agent in ["a", "b"] {
        user(&wire, agent).await;
        wire.ok("mcp_connect", json!({"agent_id": agent, "server": "s"})).await;
    }
    assert_eq!(tool(&wire, "a", "grow", json!({})).await, "grown");
    let quarantined = async |agent: &str| {
        let tools = status(&wire, agent).await["tools"].clone();
        let waits = |it: &&Value| it["state"] == "quarantined";
        tools.as_array().unwrap().iter().filter(waits).count()
    };
    for agent in ["a", "b"] {
        eventually("the change to be seen", async || quarantined(agent).await == 2).await;
    }
    let refused = tool(&wire, "b", "echo", json!({"text": "x"})).await;
    assert!(refused.starts_with("Refused: "), "{refused}");
    let accept = json!({"agent_id": "b", "server": "s", "accept": "all"});
    assert_eq!(wire.ok("mcp_review", accept).await["accepted"], json!(["echo", "new"]));
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
}
