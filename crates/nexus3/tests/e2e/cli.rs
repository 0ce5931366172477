//! The command line: `nexus3 rpc`, what every command says of itself, and its documents.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::{Output, Server, Setup, World, eventually};
use crate::support::{create, history, names};

/// `nexus3 rpc …` on the port of the server.
async fn rpc(server: &Server, line: &[&str]) -> Output {
    let port = server.address.port().to_string();
    server.cli([&["rpc", "-p", &port], line].concat()).await
}

/// A command that must succeed: one line of JSON, and not a word on stderr.
async fn rpc_ok(server: &Server, line: &[&str]) -> Value {
    let output = rpc(server, line).await;
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{line:?}: {output:?}");
    assert_eq!(output.stdout.lines().count(), 1, "{line:?}: {output:?}");
    serde_json::from_str(&output.stdout).unwrap()
}

/// A command that must fail with exit code 1: nothing on stdout, and why on stderr.
async fn rpc_fails(server: &Server, line: &[&str], why: &str) {
    let output = rpc(server, line).await;
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{line:?}: {output:?}");
    assert!(output.stderr.starts_with(&format!("Error: {why}")), "{line:?}: {output:?}");
}

async fn run(world: &World, args: &[&str]) -> Output {
    crate::harness::process::run(world.command(args)).await
}

#[tokio::test]
async fn every_line_of_the_seed_works() {
    let mut server = Server::start().await;
    server.model().set_default(Reply::echo());
    assert_eq!(rpc_ok(&server, &["list"]).await, json!({"agents": []}));
    let made = rpc_ok(&server, &["create", "worker-1", "--preset", "trusted"]).await;
    assert_eq!(made, json!({"agent_id": "worker-1", "url": "/agent/worker-1"}));
    let answer = rpc_ok(&server, &["send", "worker-1", "Hello!"]).await;
    assert_eq!(
        (&answer["content"], &answer["halted_at_iteration_limit"]),
        (&json!("Hello!"), &json!(false))
    );
    let status = rpc_ok(&server, &["status", "worker-1"]).await;
    assert_eq!(
        (&status["agent_id"], &status["context"]["message_count"]),
        (&json!("worker-1"), &json!(2))
    );
    assert!(status["tokens"]["total"].as_u64().unwrap() > 0);

    // nexus3 rpc create writer --cwd /tmp/project --write-path /tmp/project/output, with paths relative to the caller.
    std::fs::create_dir_all(server.world.work().join("project/output")).unwrap();
    let line = [
        "create",
        "writer",
        "--cwd",
        "project",
        "--write-path",
        "project/output",
        "--write-path",
        "project/more",
    ];
    rpc_ok(&server, &line).await;
    let project = server.world.work().canonicalize().unwrap().join("project");
    let agents = rpc_ok(&server, &["list"]).await["agents"].clone();
    assert_eq!(
        (&agents[1]["cwd"], &agents[0]["permission_level"]),
        (&json!(project), &json!("TRUSTED"))
    );
    assert_eq!(agents[1]["write_paths"], json!([project.join("more"), project.join("output")]));

    let gone = rpc_ok(&server, &["destroy", "worker-1"]).await;
    assert_eq!(gone, json!({"success": true, "agent_id": "worker-1", "destroyed": ["worker-1"]}));
    assert_eq!(rpc_ok(&server, &["shutdown"]).await["success"], true);
    assert_eq!(server.exit().await.code(), Some(0));
}

#[tokio::test]
async fn the_other_commands_reach_their_methods() {
    let server = Server::start().await;
    let port = server.address.port();
    server.model().set_default(Reply::echo());
    let line = ["create", "a", "-m", "scripted/x", "-M", "First", "--wait", "-t", "60"];
    assert_eq!(rpc_ok(&server, &line).await["response"]["content"], "First");
    let queued = rpc_ok(&server, &["create", "b", "--message", "Later"]).await;
    assert_eq!(queued["initial_status"], "queued");
    assert_eq!(rpc_ok(&server, &["create", "."]).await["agent_id"], ".1");
    let page = rpc_ok(&server, &["messages", "a", "--offset", "1", "--limit", "1"]).await;
    assert_eq!((&page["total"], &page["messages"][0]["content"]), (&json!(2), &json!("First")));
    assert_eq!(
        rpc_ok(&server, &["compact", "a", "--if-needed"]).await["reason"],
        "below_threshold"
    );
    let missed = rpc_ok(&server, &["cancel", "a", "7"]).await;
    assert_eq!(
        missed,
        json!({"cancelled": false, "request_id": "7", "reason": "not_found_or_completed"})
    );
    let token = rpc_ok(&server, &["token", "a"]).await["token"].as_str().unwrap().to_string();
    rpc_ok(&server, &["--api-key", &token, "status", "a"]).await;
    rpc_fails(&server, &["--api-key", &token, "status", "b"], "Not allowed (-32003)").await;
    let version = rpc_ok(&server, &["call", "rpc.version"]).await;
    assert_eq!(version["name"], "nexus3");
    let called = rpc_ok(&server, &["call", "send", r#"{"content": "Hi"}"#, "--agent", "a"]).await;
    assert_eq!(called["content"], "Hi");
    let detected = rpc_ok(&server, &["detect"]).await;
    assert_eq!(detected, json!({"host": "127.0.0.1", "port": port, "result": "nexus_server"}));
    let found = rpc_ok(&server, &["scan"]).await["servers"].clone();
    assert_eq!((&found[0]["port"], &found[0]["auth"]), (&json!(port), &json!("ok")));
    let streamed = rpc(&server, &["send", "a", "word by word", "--stream"]).await;
    assert_eq!(
        (streamed.code, &*streamed.stdout, &*streamed.stderr),
        (Some(0), "word by word\n", "")
    );
}

#[tokio::test]
async fn an_answer_is_asked_for_by_the_schema_in_a_file() {
    let server = Server::start().await;
    let file = |name: &str| server.world.work().join(name).display().to_string();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    std::fs::write(file("schema.json"), schema.to_string()).unwrap();
    std::fs::write(file("text.json"), "type: object").unwrap();
    std::fs::write(file("list.json"), "[]").unwrap();
    rpc_ok(&server, &["create", "a"]).await;
    let asked = || {
        let request = server.model().last_request();
        request.body["response_format"]["json_schema"]["schema"].clone()
    };
    server.model().push(Reply::text("{\"n\": 7}"));
    let good = file("schema.json");
    let answer = rpc_ok(&server, &["send", "a", "Count", "--schema", &good]).await;
    assert_eq!((&answer["content"], asked()), (&json!("{\"n\": 7}"), schema.clone()));
    server.model().push(Reply::status(400));
    let failed = rpc(&server, &["send", "a", "Count on", "--stream", "--schema", &good]).await;
    assert_eq!((failed.code, asked()), (Some(1), schema.clone()));
    server.model().push(Reply::text("{\"n\": 8}"));
    let answer = rpc_ok(&server, &["resume", "a", "--schema", &good]).await;
    assert_eq!((&answer["content"], asked()), (&json!("{\"n\": 8}"), schema));

    let count = server.model().request_count();
    for (name, why) in [
        ("absent.json", format!("reading {}: No such file", file("absent.json"))),
        ("text.json", format!("{} is not JSON: ", file("text.json"))),
        ("list.json", format!("{} is JSON, but no object", file("list.json"))),
    ] {
        rpc_fails(&server, &["send", "a", "Hi", "--schema", &file(name)], &why).await;
        rpc_fails(&server, &["resume", "a", "--schema", &file(name)], &why).await;
    }
    let both = "the message and the schema cannot both come from stdin";
    rpc_fails(&server, &["send", "a", "-", "--schema", "-"], both).await;
    assert_eq!(server.model().request_count(), count, "what was refused reached no model");
}

#[tokio::test]
async fn sessions_and_settings_are_reached_too() {
    let server = Server::start().await;
    let work = server.world.work().canonicalize().unwrap();
    std::fs::create_dir(work.join("sub")).unwrap();
    rpc_ok(&server, &["create", "a"]).await;
    let saved = rpc_ok(&server, &["sessions", "save", "a", "s"]).await;
    assert_eq!(saved, json!({"saved": true, "session_name": "s", "agent_id": "a"}));
    rpc_ok(&server, &["sessions", "clone", "s", "t"]).await;
    rpc_ok(&server, &["sessions", "rename", "t", "u"]).await;
    let loaded = rpc_ok(&server, &["sessions", "load", "u", "--as", "b"]).await;
    assert_eq!(loaded, json!({"restored": true, "agent_id": "b", "message_count": 0}));
    let page = rpc_ok(&server, &["sessions", "list", "--limit", "2"]).await;
    assert_eq!((&page["total"], page["sessions"].as_array().unwrap().len()), (&json!(4), 2));
    assert_eq!(rpc_ok(&server, &["sessions", "delete", "u"]).await["deleted"], true);
    let again = rpc(&server, &["sessions", "delete", "u"]).await;
    assert_eq!((again.code, again.stdout.contains("false")), (Some(1), true), "{again:?}");
    assert!(again.stderr.contains("there is no session u"), "{again:?}");
    rpc_fails(&server, &["sessions", "load", "a"], "Agent a is live already (-32602)").await;

    assert_eq!(rpc_ok(&server, &["cwd", "a"]).await, json!({"cwd": work}));
    assert_eq!(rpc_ok(&server, &["cwd", "a", "sub"]).await, json!({"cwd": work.join("sub")}));
    assert_eq!(rpc_ok(&server, &["permissions", "a"]).await["preset"], "sandboxed");
    rpc_ok(&server, &["permissions", "a", "--preset", "worker"]).await;
    rpc_ok(&server, &["prompt", "a", "Be brief."]).await;
    assert_eq!(rpc_ok(&server, &["prompt", "a"]).await["system_prompt"], "Be brief.");
    rpc_ok(&server, &["model", "a", "scripted/big"]).await;
    assert_eq!(rpc_ok(&server, &["model", "a"]).await["model"], "scripted/big");
    let all = rpc_ok(&server, &["status"]).await["agents"].clone();
    assert_eq!((&all[0]["agent_id"], &all[0]["cwd"]), (&json!("a"), &json!(work.join("sub"))));
    assert!(all[0]["tokens"]["total"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn a_turn_is_cancelled_by_the_name_it_was_given() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    for (id, stream) in [("job", false), ("7", true)] {
        server.model().push(Reply::text("So far ").then_hang());
        let mut line = vec!["send", "a", "Go on", "--request-id", id];
        line.extend(stream.then_some("--stream"));
        let cancel = eventually("the turn to be cancelled", async || {
            rpc_ok(&server, &["cancel", "a", id]).await["cancelled"] == true
        });
        let (output, ()) = tokio::join!(rpc(&server, &line), cancel);
        assert_eq!(output.code, Some(0), "{output:?}");
        if stream {
            assert!(
                output.stdout.ends_with('\n') && output.stderr.contains("cancelled"),
                "{output:?}"
            );
        } else {
            assert_eq!(serde_json::from_str::<Value>(&output.stdout).unwrap()["cancelled"], true);
        }
    }
}

#[tokio::test]
async fn failures_say_why_and_exit_with_1() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    rpc_fails(&server, &["send", "nobody", "Hi"], "Unknown agent: nobody (-32602)").await;
    rpc_fails(&server, &["create", "a"], "An agent named a exists already (-32602)").await;
    rpc_fails(&server, &["create", "a b"], "Agent name may hold only").await;
    rpc_fails(&server, &["call", "nope"], "Method not found: nope (-32601)").await;
    server.model().push(Reply::hang());
    let late = "Execution timeout (-32000): The turn took longer than it was given\n  Give it more time with -t";
    rpc_fails(&server, &["send", "a", "Hi", "-t", "1"], late).await;
    rpc_fails(&server, &["send", "a", " "], "the message must not be blank").await;
    rpc_fails(&server, &["create", "b", "-M", ""], "the message must not be blank").await;
    let destroyed = rpc(&server, &["destroy", "nobody"]).await;
    assert_eq!(destroyed.code, Some(1), "{destroyed:?}");
    assert!(destroyed.stderr.contains("there is no agent nobody"), "{destroyed:?}");

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let absent = server.cli(["rpc", "-p", &free.to_string(), "list"]).await;
    assert_eq!((absent.code, &*absent.stdout), (Some(1), ""));
    assert!(
        absent.stderr.starts_with(&format!("Error: no server at 127.0.0.1:{free}")),
        "{absent:?}"
    );
    assert!(absent.stderr.contains("nexus3 serve"), "{absent:?}");
    assert!(absent.stderr.contains("-p"), "{absent:?}");
    let detected = server.cli(["rpc", "detect", "-p", &free.to_string()]).await;
    assert_eq!(detected.code, Some(1));
    assert!(detected.stdout.contains("no_server"), "{detected:?}");
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_named_by_where_it_came_from() {
    let server = Server::start().await;
    let at = server.address;
    let own = format!("rpc-{}.token", at.port());
    let next = format!("\n  Its own is in the file {own} of the home it was started with");
    let why = |source: &str| {
        format!(
            "Authentication failed (-32003): the server at {at} does not take the token from {source}{next}"
        )
    };
    rpc_fails(&server, &["--api-key", "nxk_wrong", "list"], &why("--api-key")).await;
    let port = at.port().to_string();
    let with = async |name: &str, value: &str| {
        let mut command = server.world.command(["rpc", "-p", &port, "list"]);
        crate::harness::process::run({
            command.env(name, value);
            command
        })
        .await
        .stderr
    };
    let said = with("NEXUS3_API_KEY", "nxk_wrong").await;
    assert!(said.starts_with(&format!("Error: {}", why("NEXUS3_API_KEY"))), "{said}");
    let said = with("NEXUS3_HOME", "/no/such/home").await;
    let why = format!(
        "the server at {at} wants a token, and there is none in NEXUS3_API_KEY or in {own}"
    );
    assert!(said.contains(&why) && said.contains(&next), "{said}");
}

/// Who listens on a port of his own must not be handed the token of the server on another.
#[tokio::test]
async fn a_token_goes_to_its_own_port_alone() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let world = Setup::new().world().await;
    let file = world.home().join("rpc.token");
    std::fs::write(&file, "nxk_of_8765").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = [0; 4096];
        let count = stream.read(&mut asked).await.unwrap();
        let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&asked[..count]).to_lowercase()
    };
    let line = ["rpc", "-p", &port, "list"];
    let (output, asked) = tokio::join!(run(&world, &line), serving);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(asked.starts_with("post /rpc") && !asked.contains("nxk_"), "{asked}");
}

#[tokio::test]
async fn a_port_of_somebody_else_is_said_to_be() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let world = Setup::new().world().await;
    for (answer, why) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\n<html>", "is no nexus3 server"),
        ("SSH-2.0-OpenSSH_9.6\r\n", "broke, and whether the call ran is not known"),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let port = at.port().to_string();
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let line = ["rpc", "-p", &port, "list"];
        let (output, ()) = tokio::join!(run(&world, &line), serving);
        assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output:?}");
        let said = &output.stderr;
        assert!(said.contains(&at.to_string()) && said.contains(why), "{output:?}");
        assert!(said.contains(&format!("nexus3 rpc detect -p {port}")), "{output:?}");
        let taken = run(&world, &["serve", &port, "--no-socket"]).await;
        let why = format!(
            "Error: port {port} is in use; see who has it with: nexus3 rpc detect -p {port}"
        );
        assert!(taken.code == Some(1) && taken.stderr.contains(&why), "{taken:?}");
    }
}

#[tokio::test]
async fn an_empty_variable_counts_as_none() {
    let server = Server::start().await;
    let port = server.address.port().to_string();
    let mut command = server.world.command(["rpc", "-p", &port, "list"]);
    for name in ["ASH_RPC_SOCKET", "NEXUS3_API_KEY", "NEXUS3_MODELS", "OLLAMA_HOST"] {
        command.env(name, "");
    }
    let output = crate::harness::process::run(command).await;
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output:?}");
    let configured = Setup::new().server(json!({"socket": "~/configured.sock"}));
    let server = configured.unsaid_socket().env("ASH_RPC_SOCKET", "").start().await;
    assert_eq!(server.socket, Some(server.world.path("configured.sock")));
    // NEXUS3_HOME: the usual place in the home directory, which is the world's own.
    let mut command =
        server.world.command(["rpc", "-p", &server.address.port().to_string(), "list"]);
    let output = crate::harness::process::run({
        command.env("NEXUS3_HOME", "");
        command
    })
    .await;
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output:?}");
}

#[tokio::test]
async fn a_socket_path_that_is_too_long_is_named() {
    let world = Setup::new().world().await;
    let long = world.path(&"x".repeat(200)).join("s").display().to_string();
    let output = run(&world, &["serve", "0", "--socket", &long]).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    let said = output.stderr.replace('\n', " ");
    assert!(said.contains(&long) && said.contains("--socket"), "{output:?}");
    assert!(
        said.contains("too long for a socket") && said.contains("a shorter path"),
        "{output:?}"
    );
    let by_variable = Setup::new().unsaid_socket().env("ASH_RPC_SOCKET", &long);
    let output = by_variable.fails_in(&world).await;
    let why = format!("Error: ASH_RPC_SOCKET: {long}: too long for a socket");
    assert!(output.stderr.contains(&why), "{output:?}");
}

#[test]
fn a_full_disk_is_named_with_what_to_do() {
    let full = nexus_store::OpenError::DiskFull { path: "/home/me/.nexus3/nexus3.db".into() };
    assert_eq!(
        full.to_string(),
        "there is no space left on the disk for the store /home/me/.nexus3/nexus3.db: make room there, or name a home elsewhere with NEXUS3_HOME"
    );
}

/// Every command that prints, into a pipe that nobody reads.
#[tokio::test]
async fn a_reader_that_goes_away_ends_a_command_without_a_word() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.cli(["trust"]).await;
    let port = server.address.port().to_string();
    for line in [
        &["rpc", "-p", &port, "list"][..],
        &["rpc", "-p", &port, "send", "a", "Hi"],
        &["rpc", "-p", &port, "send", "a", "Hi", "--stream"],
        &["exec", "Hi"],
        &["exec", "--json", "Hi"],
        &["session", "export", "a"],
        &["schema"],
        &["doctor"],
        &["trust", "--list"],
        &["completions", "bash"],
        &["--init-global-force"],
    ] {
        let (mut process, stdin, stdout) =
            crate::harness::process::Process::spawn(server.world.command(line));
        drop((stdin, stdout));
        let code = process.exit().await.code();
        assert_eq!((code, &*process.log().complete().await), (Some(141), ""), "{line:?}");
    }
}

#[tokio::test]
async fn a_wrong_command_line_exits_with_2() {
    let world = Setup::new().world().await;
    for line in [
        &["bogus"][..],
        &["rpc"],
        &["rpc", "bogus"],
        &["rpc", "send", "a"],
        &["rpc", "send", "a", "Hi", "-t", "0"],
        &["rpc", "list", "-p", "0"],
        &["rpc", "list", "-p", "70000"],
        &["rpc", "call", "send", "[1]"],
        &["rpc", "create", "a", "--wait"],
        &["rpc", "messages", "a", "--limit", "2001"],
        &["rpc", "sessions"],
        &["rpc", "sessions", "save", "a"],
        &["rpc", "sessions", "list", "--limit", "1001"],
        &["rpc", "cwd"],
        &["serve", "port"],
        &["serve", "--socket", "x", "--no-socket"],
        &["--stdio", "--host", "::1"],
        &["--stdio", "--no-auth"],
        &["--stdio", "--no-socket"],
        &["--stdio", "--fresh"],
        &["--serve", "0", "--plain"],
        &["--fresh", "--resume"],
        &["--own", "--connect"],
        &["--agent", "a"],
        &["--connect", "--agent", "a", "--session", "b"],
        &["--connect", "--scan", "0"],
        &["--init-global", "--plain"],
        &["--init-global-force", "-v"],
        &["exec"],
        &["completions", "perl"],
        &["trust", "--list", "--remove"],
    ] {
        let output = run(&world, line).await;
        assert_eq!((output.code, &*output.stdout), (Some(2), ""), "{line:?}: {output:?}");
        assert!(
            output.stderr.contains("--help") || output.stderr.contains("Usage:"),
            "{line:?}: {output:?}"
        );
    }
}

/// Every command found by following the lists of commands, from the first on.
#[tokio::test]
async fn every_command_explains_itself() {
    let world = Setup::new().world().await;
    let mut commands = vec![Vec::<String>::new()];
    let mut seen = Vec::new();
    while let Some(command) = commands.pop() {
        let line: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = run(&world, &line).await;
        assert_eq!((help.code, &*help.stderr), (Some(0), ""), "{line:?}");
        let usage = format!("Usage: {}", [&["nexus3".to_string()], &*command].concat().join(" "));
        assert!(help.stdout.contains(&usage), "{line:?}: {}", help.stdout);
        for name in explained(&help.stdout, &line) {
            commands.push([&*command, &[name]].concat());
        }
        seen.push(command.join(" "));
    }
    for command in [
        "serve",
        "exec",
        "schema",
        "trust",
        "completions",
        "rpc send",
        "rpc create",
        "rpc scan",
        "rpc sessions load",
        "rpc permissions",
    ] {
        assert!(seen.iter().any(|name| name == command), "{command} is not among {seen:?}");
    }
}

/// Checks that everything a help text lists has a description, and returns the commands among it.
fn explained(help: &str, line: &[&str]) -> Vec<String> {
    let mut commands = Vec::new();
    let mut section = "";
    let mut lines = help.lines().peekable();
    while let Some(text) = lines.next() {
        if !text.starts_with(' ') {
            section = text;
            continue;
        }
        let item = text.trim_start();
        let is_item = matches!(section, "Commands:" | "Arguments:") || item.starts_with('-');
        if !is_item || text.len() - item.len() > 6 {
            continue;
        }
        let told_beside = item.split("  ").filter(|part| !part.trim().is_empty()).count() > 1;
        let told_below = lines.peek().is_some_and(|next| next.starts_with("          "));
        assert!(told_beside || told_below, "{line:?} does not explain {item}");
        if section == "Commands:" && !item.starts_with("help ") {
            commands.push(item.split(' ').next().unwrap().to_string());
        }
    }
    commands
}

#[tokio::test]
async fn completions_come_for_three_shells() {
    let world = Setup::new().world().await;
    for (shell, mark) in [
        ("bash", "complete -F _nexus3"),
        ("zsh", "#compdef nexus3"),
        ("fish", "complete -c nexus3"),
    ] {
        let script = run(&world, &["completions", shell]).await;
        assert_eq!((script.code, &*script.stderr), (Some(0), ""), "{shell}");
        for part in [mark, "completions", "write-path", "no-socket"] {
            assert!(script.stdout.contains(part), "{shell}: no {part}");
        }
    }
}

#[tokio::test]
async fn the_schema_is_what_the_server_discovers() {
    let server = Server::start().await;
    let printed = server.cli(["schema"]).await;
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(printed, server.wire().ok("rpc.discover", json!({})).await);
    let methods = printed["methods"].as_array().unwrap();
    let names: Vec<_> = methods.iter().map(|method| method["name"].as_str().unwrap()).collect();
    let promised = [
        "create_agent",
        "destroy_agent",
        "list_agents",
        "shutdown_server",
        "send",
        "cancel",
        "get_tokens",
        "get_context",
        "get_messages",
        "compact",
        "shutdown",
        "list_sessions",
        "load_session",
        "save_session",
        "clone_session",
        "rename_session",
        "delete_session",
        "get_agent_summaries",
        "set_cwd",
        "get_permissions",
        "set_permissions",
        "get_system_prompt",
        "set_system_prompt",
        "get_model",
        "set_model",
        "list_models",
        "rpc.discover",
        "rpc.version",
    ];
    for method in promised {
        assert!(names.contains(&method), "{method} is not among {names:?}");
    }
}

#[tokio::test]
async fn what_is_made_from_the_method_table_is_fresh() {
    let world = Setup::new().world().await;
    for (name, option) in [("rpc.md", "--markdown"), ("nexus3.schema.json", "--json-schema")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let made = run(&world, &["schema", option]).await.stdout;
        assert!(kept == made, "docs/{name} is stale; mend it with: make docs");
    }
}

#[tokio::test]
async fn a_message_comes_from_stdin() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let port = server.address.port().to_string();
    let words = "-- from a pipe,\nwith \"quotes\"\n";
    let command = server.world.command(["rpc", "-p", &port, "send", "a", "-"]);
    let (mut process, mut stdin, mut stdout) = crate::harness::process::Process::spawn(command);
    stdin.write_all(words.as_bytes()).await.unwrap();
    drop(stdin);
    let mut printed = String::new();
    stdout.read_to_string(&mut printed).await.unwrap();
    assert_eq!(process.exit().await.code(), Some(0), "{printed}");
    assert_eq!(history(&server.wire(), "a").await[0], format!("user: {words}"));
    assert_eq!(names(&server.wire()).await, ["a"]);
}

#[tokio::test]
async fn approvals_are_listed_and_decided() {
    let asking = json!({"permissions": {"approvals": "ask"}});
    let server = Setup::new().config(asking).start().await;
    let wire = server.wire();
    let work = server.world.work();
    wire.ok("create_agent", json!({"agent_id": "a", "preset": "trusted", "cwd": work})).await;
    assert_eq!(rpc_ok(&server, &["approvals", "list"]).await["approvals"], json!([]));
    let decisions: [(&[&str], &str); 3] = [
        (&["deny", "--message", "Not now."], "denied"),
        (&["allow"], "allowed_once"),
        (&["allow", "--session"], "allowed_session"),
    ];
    for (words, status) in decisions {
        wire.model().push(Reply::tool_call("exec", json!({"argv": ["touch", "made"]})));
        wire.model().push(Reply::text("done"));
        let answer = async {
            let waiting =
                async || rpc_ok(&server, &["approvals", "list", "a"]).await["approvals"][0].clone();
            eventually("an approval", async || waiting().await.is_object()).await;
            let waiting = waiting().await;
            let id = waiting["approval_id"].as_str().unwrap();
            let line = [&["approvals"], words, &[id]].concat();
            let decided = rpc_ok(&server, &line).await;
            assert_eq!(decided["approval"]["status"], status);
            let said = if status == "denied" { json!("Not now.") } else { json!(null) };
            assert_eq!(decided["approval"]["message"], said);
            rpc_fails(&server, &line, &format!("Approval {id} was decided already")).await;
        };
        let say = json!({"agent_id": "a", "content": "x"});
        let (_, ()) = tokio::join!(wire.ok("send", say), answer);
        assert_eq!(work.join("made").exists(), status != "denied");
    }
    let all = rpc_ok(&server, &["approvals", "list", "--all"]).await;
    assert_eq!(all["approvals"].as_array().unwrap().len(), 3);
    assert_eq!(rpc_ok(&server, &["approvals", "list", "nobody"]).await["approvals"], json!([]));
}
