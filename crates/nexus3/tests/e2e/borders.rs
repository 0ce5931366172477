//! What an agent must not reach through the server, which may reach everything: what it writes, reads and opens of its
//! own accord in places where agents write.

use std::fs;
use std::os::unix::fs::symlink;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::{Server, Setup, Wire};
use crate::support::{as_agent, create, history, prompt, say};

/// An agent with a directory and the most that can be had without asking.
async fn trusted(wire: &Wire, agent: &str, cwd: &std::path::Path) {
    wire.ok("create_agent", json!({"agent_id": agent, "preset": "trusted", "cwd": cwd})).await;
}

/// Lets the agent's model call a tool and returns what it was told.
async fn told(wire: &Wire, agent: &str, tool: &str, arguments: Value) -> String {
    wire.model().push(Reply::tool_call(tool, arguments));
    say(wire, agent, "go").await;
    let lines = history(wire, agent).await;
    lines[lines.len() - 2].clone()
}

#[tokio::test]
async fn no_agent_reads_the_words_of_another() {
    let world = Setup::new().world().await;
    let root = world.path("").canonicalize().unwrap();
    let (home, logs) = (root.join(".nexus3/logs"), root.join("work/logs"));
    let mut server = Setup::new().arg("--raw-log").start_in(&world).await;
    let wire = server.wire();
    trusted(&wire, "reader", &root).await;
    create(&wire, "a").await;
    say(&wire, "a", "MY-SECRET").await;
    let reader = async |wire: &Wire, place: &std::path::Path| {
        // The log is written by now: it goes by what came before it.
        let file = place.join("a/context.md");
        crate::harness::eventually("the log", async || file.exists()).await;
        let relative = file.strip_prefix(&root).unwrap();
        for (tool, arguments) in [
            ("read_file", json!({"path": file})),
            ("read_file", json!({"path": relative})),
            ("tail", json!({"path": place.join("a/raw.jsonl")})),
            ("list_directory", json!({"path": place})),
            ("search_text", json!({"pattern": "MY-SECRET", "path": place})),
        ] {
            let said = told(wire, "reader", tool, arguments.clone()).await;
            assert!(said.contains("is a blocked path"), "{tool} {arguments}: {said}");
        }
        let said = told(wire, "reader", "search_text", json!({"pattern": "MY-SECRET"})).await;
        assert!(!said.contains("context.md") && !said.contains("raw.jsonl"), "{said}");
    };
    reader(&wire, &home).await;
    let script = "cat .nexus3/logs/*/* .nexus3/*.token; ls -R .nexus3; mv .nexus3 moved; echo ran";
    world.model.push(Reply::tool_call("exec", json!({"argv": ["sh", "-c", script]})));
    let cwd = root.display().to_string();
    let line = ["exec", "--preset", "trusted", "--approve", "all", "--cwd", &cwd, "go"];
    assert_eq!(server.cli(line).await.code, Some(0));
    let told = world.model.last_request().body.to_string();
    assert!(told.contains("ran\\n"), "{told}");
    let words = ["MY-SECRET", "nxk_", "context.md\\n"];
    assert!(!words.iter().any(|word| told.contains(word)) && home.exists(), "{told}");
    server.terminate().await;

    // Elsewhere too, in the agent's own directory, and though nothing was said of it when the agent was made.
    let log_dir = Setup::new().arg("--raw-log").arg("--log-dir").arg("logs");
    let server = log_dir.start_in(&world).await;
    say(&server.wire(), "a", "MY-SECRET").await;
    reader(&server.wire(), &logs).await;
}

#[tokio::test]
async fn logs_where_agents_work_would_close_their_directory() {
    let world = Setup::new().world().await;
    for dir in [".", ".."] {
        let output = Setup::new().arg("--log-dir").arg(dir).fails_in(&world).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains("--log-dir"), "{output:?}");
    }
}

/// An agent's command can lay a link in place of what the server once wrote in its directory.
#[tokio::test]
async fn a_rename_moves_nothing_but_the_log() {
    let mut server = Server::start().await;
    let (wire, world) = (server.wire(), server.world.clone());
    fs::create_dir_all(world.path("bin")).unwrap();
    fs::create_dir(world.work().join(".nexus3")).unwrap();
    symlink(world.path(""), world.work().join(".nexus3/logs")).unwrap();
    trusted(&wire, "bin", &world.work()).await;
    say(&wire, "bin", "Hi").await;
    let params = json!({"old_name": "bin", "new_name": "bin_old"});
    as_agent(&server, "bin", "rename_session", params).await.unwrap();
    server.terminate().await;
    assert!(world.path("bin").is_dir() && !world.path("bin_old").exists());
    assert!(world.home().join("logs/bin_old/context.md").exists());
    assert_eq!(fs::read_dir(world.work().join(".nexus3")).unwrap().count(), 1, "nothing is added");
}

/// The server reads instructions for the agent, with rights the agent does not have.
#[tokio::test]
async fn instructions_are_not_read_through_a_link() {
    let server = Server::start().await;
    let wire = server.wire();
    let root = server.world.path("").canonicalize().unwrap();
    let token = server.token_file.clone().unwrap();
    symlink(token.strip_prefix(server.world.path("")).unwrap(), root.join("NEXUS.md")).unwrap();
    fs::write(root.join("README.md"), "Plain instructions.").unwrap();
    trusted(&wire, "a", &root).await;
    say(&wire, "a", "Hi").await;
    let told = prompt(&server.model().last_request());
    assert!(told.contains("Plain instructions."), "{told}");
    assert!(!told.contains(server.token.as_deref().unwrap()), "{told}");
}

#[tokio::test]
async fn a_project_cannot_lay_its_configuration_behind_a_link() {
    let world = Setup::new().world().await;
    fs::create_dir(world.work().join(".nexus3")).unwrap();
    fs::write(world.path("elsewhere.json"), "{}").unwrap();
    symlink(world.path("elsewhere.json"), world.work().join(".nexus3/config.json")).unwrap();
    let output = Setup::new().fails_in(&world).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("config.json: it is a link"), "{output:?}");
}

#[tokio::test]
async fn the_file_of_a_model_is_not_named_by_a_caller() {
    let local = json!({"providers": {"local": {"models": {"small": {"id": "none-such"}}}}});
    let server = Setup::new().config(local).start().await;
    let wire = server.wire();
    let root = server.world.path("").canonicalize().unwrap();
    trusted(&wire, "a", &root).await;
    let secret = format!("local/{}", server.token_file.as_ref().unwrap().display());
    let refused =
        as_agent(&server, "a", "set_model", json!({"agent_id": "a", "model": secret})).await;
    let (code, why) = refused.unwrap_err();
    assert!(code == -32602 && why.contains("in the configuration alone"), "{code} {why}");
    let child = json!({"agent_id": "b", "parent_agent_id": "a", "model": secret});
    let (code, why) = as_agent(&server, "a", "create_agent", child.clone()).await.unwrap_err();
    assert!(code == -32602 && why.contains("in the configuration alone"), "{code} {why}");
    assert_eq!(wire.refused("create_agent", child).await.code, -32602);
    let said = told(&wire, "a", "nexus_create", json!({"agent_id": "c", "model": secret})).await;
    assert!(said.contains("in the configuration alone"), "{said}");
    let exec = ["exec", "-m", &secret, "Hi"];
    let output = server.cli(exec).await;
    assert!(output.code == Some(1) && output.stderr.contains("configuration alone"), "{output:?}");
}
