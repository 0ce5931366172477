//! `nexus3 doors`: what it prints is used here as a person would use it.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use nexus_testkit::Reply;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::openai::clients::installed;
use crate::harness::{HttpRequest, Output, Server, Setup, World, eventually, process, within};

const CLIENTS: [&str; 13] = [
    "zed",
    "jetbrains",
    "neovim",
    "acpx",
    "vscode",
    "cursor",
    "claude-code",
    "openai-python",
    "openai-node",
    "langchain",
    "litellm",
    "open-webui",
    "websocket",
];

async fn doors(world: &World, args: &[&str]) -> Output {
    process::run(world.command([&["doors"], args].concat())).await
}

/// What is printed for a client, door by door.
async fn entries(world: &World, client: &str) -> Vec<Value> {
    let output = doors(world, &[client, "--json"]).await;
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output:?}");
    let printed: Value = serde_json::from_str(&output.stdout).unwrap();
    printed["clients"].as_array().unwrap().clone()
}

fn lines(entry: &Value) -> &str {
    entry["lines"].as_str().unwrap()
}

/// The key that a printed command makes.
async fn key(server: &Server, entry: &Value) -> String {
    let command = entry["key"].as_str().unwrap();
    let words: Vec<_> = command.split(' ').skip(1).collect();
    let output = server.cli(words).await;
    assert_eq!(output.code, Some(0), "{command}: {output:?}");
    let made: Value = serde_json::from_str(&output.stdout).unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let path = match entry["door"].as_str().unwrap() {
        "openai" => "/v1/models",
        "websocket" => "/ws",
        _ => "/mcp",
    };
    // A server that runs knows of it within a second.
    eventually("the key to be known", async || {
        let request = HttpRequest::post(server.address, path, "{}").bearer(Some(&key));
        ![401, 403].contains(&server.ask(request).await.status)
    })
    .await;
    key
}

#[tokio::test]
async fn every_client_is_told_its_lines_without_a_server() {
    let world = Setup::new().world().await;
    let all = doors(&world, &[]).await;
    assert_eq!((all.code, &*all.stderr), (Some(0), ""), "{all:?}");
    // No shell finds it by its name here.
    let serve = format!("start one with: {} serve\n", env!("CARGO_BIN_EXE_nexus3"));
    assert!(all.stdout.starts_with(&format!("No server of this home runs; {serve}")));
    assert!(all.stdout.contains("It will be at http://127.0.0.1:8765."), "{}", all.stdout);
    for client in CLIENTS {
        let one = doors(&world, &[client]).await;
        assert_eq!(one.code, Some(0), "{one:?}");
        // What is printed for all has it to the letter.
        let (_, of_one) = one.stdout.split_once("## ").unwrap();
        assert!(all.stdout.contains(of_one), "{client}: {of_one}");
        for entry in entries(&world, client).await {
            assert!(lines(&entry).lines().all(|line| of_one.contains(line)), "{client}");
            if entry["form"] == "json" {
                serde_json::from_str::<Value>(lines(&entry)).unwrap();
            }
        }
    }
    // Nothing was made by asking.
    assert!(!world.home().join("nexus3.db").exists());
}

#[tokio::test]
async fn a_client_that_is_not_known_costs_a_sentence() {
    let world = Setup::new().world().await;
    let output = doors(&world, &["emacs"]).await;
    let why =
        format!("Error: there is nothing for \"emacs\"; the clients are {}\n", CLIENTS.join(", "));
    assert_eq!((output.code, output.stdout, output.stderr), (Some(1), String::new(), why));
}

#[tokio::test]
async fn doors_that_are_closed_are_said_to_be() {
    let closed = json!({"doors": {"mcp": false, "openai": false, "websocket": false}});
    let world = Setup::new().config(closed).world().await;
    for (client, switch) in
        [("vscode", "doors.mcp"), ("open-webui", "doors.openai"), ("websocket", "doors.websocket")]
    {
        let said = doors(&world, &[client]).await.stdout;
        assert!(said.contains(&format!("Off: {switch} is false in the configuration.")), "{said}");
        assert_eq!(entries(&world, client).await[0]["open"], false);
    }
    let said = doors(&world, &["zed"]).await.stdout;
    assert!(!said.contains("Off:") && !said.contains("server of this home"), "{said}");
}

#[tokio::test]
async fn no_secret_is_printed() {
    let server = Server::start().await;
    let made = server.wire().ok("create_key", json!({"name": "k", "doors": ["mcp"]})).await;
    for args in [&[][..], &["--json"]] {
        let said = doors(&server.world, args).await.stdout;
        assert!(said.contains(&server.url), "{said}");
        assert!(!said.contains("nxd_"), "{said}");
        for secret in [made["key"].as_str().unwrap(), server.token.as_deref().unwrap()] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

/// Starts what an entry says, and returns the answer to `initialize`.
async fn greeted(server: &Server, settings: &Value, params: Value) -> Value {
    let words = settings["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    let mut command = Command::new(settings["command"].as_str().unwrap());
    command.args(words).env_clear().env("HOME", server.world.path("."));
    let env = settings["env"].as_object().unwrap();
    command.envs(env.iter().map(|(name, value)| (name, value.as_str().unwrap())));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let mut input = child.stdin.take().unwrap();
    input.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    within("an answer", output.read_line(&mut line)).await.unwrap();
    drop(input);
    within("the end", child.wait()).await.unwrap();
    serde_json::from_str::<Value>(&line).unwrap()["result"].clone()
}

#[tokio::test]
async fn what_clients_start_answers_them() {
    let server = Server::start().await;
    for client in ["zed", "jetbrains"] {
        let entry = entries(&server.world, client).await.remove(0);
        let settings: Value = serde_json::from_str(lines(&entry)).unwrap();
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let answer = greeted(&server, &settings["agent_servers"]["nexus3"], params).await;
        assert_eq!(answer["agentInfo"]["name"], "nexus3", "{client}: {answer}");
    }
    for (client, servers) in [("vscode", "servers"), ("cursor", "mcpServers")] {
        let entry = entries(&server.world, client).await.remove(1);
        assert_eq!(entry["door"], "mcp_stdio");
        let settings: Value = serde_json::from_str(lines(&entry)).unwrap();
        let who = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who});
        let answer = greeted(&server, &settings[servers]["nexus3"], params).await;
        assert_eq!(answer["serverInfo"]["name"], "nexus3", "{client}: {answer}");
    }
}

#[tokio::test]
async fn what_hosts_are_told_of_the_port_lets_them_in() {
    let server = Server::start().await;
    let who = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    for (client, servers, variable) in [
        ("vscode", "servers", "${input:nexus3-key}"),
        ("cursor", "mcpServers", "${env:NEXUS3_KEY}"),
    ] {
        let entry = entries(&server.world, client).await.remove(0);
        let settings: Value = serde_json::from_str(lines(&entry)).unwrap();
        let settings = &settings[servers]["nexus3"];
        assert_eq!(settings["url"], format!("{}/mcp", server.url));
        let bearer = settings["headers"]["Authorization"].as_str().unwrap();
        let key = key(&server, &entry).await;
        let request = HttpRequest::post(server.address, "/mcp", hello.to_string())
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .header("Authorization", bearer.replace(variable, &key));
        let answer = server.ask(request).await;
        assert_eq!(answer.status, 200, "{client}");
    }
}

/// A program of this name in front of all others, which prints its arguments.
fn stand_in(world: &World, name: &str) -> String {
    let dir = world.path("bin");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join(name);
    std::fs::write(&file, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
    format!("{}:/usr/bin:/bin", dir.display())
}

/// The secret itself never stands among the arguments of a process.
#[tokio::test]
async fn what_shells_are_told_is_what_programs_get() {
    let world = Setup::new().world().await;
    let program = env!("CARGO_BIN_EXE_nexus3");
    let home = format!("NEXUS3_HOME={}", world.home().display());
    for (client, number, expected) in [
        (
            "claude-code",
            0,
            "mcp add --scope project --transport http nexus3 http://127.0.0.1:8765/mcp \
             --header|Authorization: Bearer ${NEXUS3_KEY}",
        ),
        (
            "claude-code",
            1,
            &format!("mcp add --scope user nexus3 --env {home} -- {program} mcp serve"),
        ),
        ("acpx", 0, &format!("--agent|{program} acp|exec|What is in this directory?")),
        ("open-webui", 0, "serve"),
    ] {
        let entry = entries(&world, client).await.remove(number);
        let name = if client == "claude-code" { "claude" } else { client };
        let mut command = Command::new("sh");
        command.args(["-c", lines(&entry)]).env_clear().env("PATH", stand_in(&world, name));
        command.env("NEXUS3_KEY", "nxd_secret");
        let got = process::run(command).await.stdout;
        let expected: Vec<_> = match expected.split_once('|') {
            None => expected.split(' ').collect(),
            Some((before, after)) => before.split(' ').chain(after.split('|')).collect(),
        };
        assert_eq!(got.lines().collect::<Vec<_>>(), expected, "{client}");
    }
}

/// The printed programs, as they stand, with the clients that people use.
#[tokio::test]
async fn the_printed_programs_run() {
    let Some(installed) = installed() else { return };
    let server = Server::start().await;
    for (client, program, expected) in [
        ("openai-python", "python/bin/python", "Hello!"),
        ("langchain", "python/bin/python", "Hello!"),
        ("openai-node", "python/bin/node", "Hello!"),
        ("websocket", "python/bin/node", "\"name\":\"nexus3\""),
    ] {
        server.model().push(Reply::text("Hello!"));
        let entry = entries(&server.world, client).await.remove(0);
        let mut command = Command::new(installed.join(program));
        let first = if entry["form"] == "js" { "--input-type=module" } else { "-B" };
        let eval = if entry["form"] == "js" { "--eval" } else { "-c" };
        command.args([first, eval, lines(&entry)]).current_dir(&installed);
        command.env_clear().env("HOME", server.world.path("."));
        command.env(entry["variable"].as_str().unwrap(), key(&server, &entry).await);
        let output = process::run(command).await;
        assert_eq!(output.code, Some(0), "{client}: {output:?}");
        assert!(output.stdout.contains(expected), "{client}: {output:?}");
    }
}
