//! What becomes of servers that misbehave: a sentence for the model, a state for people, and the turn goes on.

use std::fs;
use std::net::TcpListener;

use serde_json::json;

use super::{entry, status, tool, user, with, with_entry};
use crate::harness::{Server, eventually};

#[tokio::test]
async fn a_server_that_dies_fails_its_call_at_once_and_is_started_again() {
    let server = with("").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let told = tool(&wire, "a", "die", json!({})).await;
    assert_eq!(
        told,
        "Failed: the MCP server s ended during the call, which was not made again: it ended (exit 3); \
         it last said:\nboom"
    );
    let stands = status(&wire, "a").await;
    assert_eq!(stands["state"], "idle");
    assert!(stands["last_error"].as_str().unwrap().starts_with("it ended (exit 3)"), "{stands}");
    assert!(stands["stderr_tail"].as_str().unwrap().contains("boom"), "{stands}");
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "back"})).await, "echo: back");
    assert_eq!(status(&wire, "a").await["restarts"], 1);
}

#[tokio::test]
async fn silence_ends_a_call_and_progress_does_not() {
    let server = with_entry(entry("", json!({"timeout": 1}))).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let told = tool(&wire, "a", "hang", json!({})).await;
    assert_eq!(
        told,
        "Failed: the MCP server s said nothing for 1 s, so the call was given up (timeout)"
    );
    let notes = server.world.home().join("mcp/state/s/notes");
    eventually("the cancel", async || {
        fs::read_to_string(&notes).unwrap().contains("notifications/cancelled")
    })
    .await;
    // Two seconds, with a word every tenth of one.
    assert_eq!(tool(&wire, "a", "slow", json!({})).await, "slow and done");
}

#[tokio::test]
async fn noise_double_answers_and_questions_do_no_harm() {
    let server = with("").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(tool(&wire, "a", "flood", json!({})).await, "flooded");
    assert_eq!(tool(&wire, "a", "twice", json!({})).await, "once");
    assert_eq!(tool(&wire, "a", "ask", json!({})).await, "asked");
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
    assert_eq!(status(&wire, "a").await["restarts"], 0);
}

#[tokio::test]
async fn a_long_result_is_cut_and_one_without_end_ends_the_server() {
    let server = with("").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let big = tool(&wire, "a", "big", json!({})).await;
    assert!(big.starts_with("bbb") && big.ends_with("bbb"), "{}", big.len());
    assert!(
        big.contains("The result has 200000 bytes, of which 152000 are left out here: mcp_read")
    );
    assert!(big.len() < 51_000, "{}", big.len());
    let huge = tool(&wire, "a", "huge", json!({})).await;
    assert!(huge.contains("it sent a message of more than 16 MiB"), "{huge}");
    assert_eq!(tool(&wire, "a", "echo", json!({"text": "x"})).await, "echo: x");
}

#[tokio::test]
async fn ten_thousand_tools_are_cut_to_the_bound() {
    let server = with("many").start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let connected = wire.ok("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
    assert_eq!(connected["tools"].as_array().unwrap().len(), 2_000);
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why() {
    for (behaviour, keys, why) in [
        (
            "broken",
            json!({}),
            "it ended (exit 7) before it was ready; it last said:\ncannot find module x",
        ),
        (
            "late",
            json!({"startup_timeout": 0.5}),
            "it was not ready within 0.5 s (startup_timeout)",
        ),
        ("", json!({"command": "no-such-program"}), "there is no program no-such-program in PATH"),
        (
            "",
            json!({"env": {"KEY": "${NO_SUCH_VARIABLE}"}}),
            "env.KEY: the environment has no NO_SUCH_VARIABLE",
        ),
        (
            "",
            json!({"sandbox": {"read": ["/no/such/place"]}}),
            "sandbox.read: /no/such/place: No such file",
        ),
    ] {
        let server = with_entry(entry(behaviour, keys)).start().await;
        let wire = server.wire();
        user(&wire, "a").await;
        let refused = wire.refused("mcp_connect", json!({"agent_id": "a", "server": "s"})).await;
        assert_eq!(refused.code, -32000, "{behaviour}");
        let details = refused.data["details"].as_str().unwrap().to_owned();
        assert!(details.contains(why), "{behaviour}: {details}");
        let stands = status(&wire, "a").await;
        assert!(stands["last_error"].as_str().unwrap().contains(why), "{stands}");
    }
}

/// The program that runs tests lies where the server's sandbox lets it read; what is tried lies elsewhere.
#[tokio::test]
async fn a_server_is_held_by_the_kernel() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["open", "closed", "written"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("f"), "text").unwrap();
    }
    let sandbox = json!({"read": [root.join("open")], "write": [root.join("written")]});
    let server = with_entry(entry("", json!({"sandbox": sandbox}))).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let own = server.world.home();
    let at = |name: &str| json!({"path": root.join(name).join("f")});
    let refused = "Err(PermissionDenied)";
    for (name, arguments, expected) in [
        ("read", at("open"), "Ok(\"text\")"),
        ("read", at("closed"), refused),
        ("read", json!({"path": own.join("config.json")}), refused),
        ("write", at("written"), "Ok(())"),
        ("write", at("open"), refused),
        ("write", json!({"path": own.join("mcp/state/s/mine")}), "Ok(())"),
        ("write", json!({"path": own.join("mcp/state/other")}), refused),
        ("write", json!({"path": own.join("mcp/lists/s.json")}), refused),
        ("connect", json!({"to": to}), "Ok(())"),
    ] {
        assert_eq!(tool(&wire, "a", name, arguments.clone()).await, expected, "{name} {arguments}");
    }
    let closed = entry("", json!({"sandbox": {"network": false}}));
    let server = with_entry(closed).start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    assert_eq!(tool(&wire, "a", "connect", json!({"to": to})).await, refused);
}

#[tokio::test]
async fn nothing_of_the_environment_is_inherited_but_what_is_named() {
    let keys = json!({"env_passthrough": ["PASSED"], "env": {"TEST_MCP_SERVER": "", "MADE": "${SECRET}-x"}});
    let setup = with_entry(entry("", keys));
    let setup = setup.env("SECRET", "hush").env("PASSED", "p").env("LD_PRELOAD", "");
    let server = setup.start().await;
    let wire = server.wire();
    user(&wire, "a").await;
    let names = tool(&wire, "a", "env", json!({})).await;
    let names: Vec<&str> = names.split(' ').collect();
    for name in ["PASSED", "MADE", "HOME", "TMPDIR", "PATH"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for name in ["SECRET", "NEXUS3_HOME", "OLLAMA_HOST"] {
        assert!(!names.contains(&name), "{name}: {names:?}");
    }
    let shown = status(&wire, "a").await.to_string();
    assert!(!shown.contains("hush"), "{shown}");
    assert!(!server.log().text().contains("hush"));
}

/// Lets `s` start a process and returns its number.
pub async fn forked(server: &Server) -> i32 {
    tool(&server.wire(), "a", "fork", json!({})).await.parse().unwrap()
}
