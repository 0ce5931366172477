//! Configuration as the program reads it: its layers, its mistakes, and whom it trusts.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Output, Server, Setup, World};
use crate::support::{create, prompt, say};

#[tokio::test]
async fn a_mistake_stops_the_start_and_is_named() {
    for (text, complaint) in [
        (r#"{"servr": {}}"#, "servr"),
        (r#"{"server": {"prot": 1}}"#, "server.prot"),
        (
            r#"{"server": {"port": 70000}}"#,
            "server.port: 70000 is not a whole number from 0 to 65535",
        ),
        (r#"{"server": {"port": "x"}}"#, "server.port"),
        (
            r#"{"providers": {"p": {"type": "openai", "api_key": "sk-secretsecret"}}}"#,
            "providers.p.api_key: a key is not kept in a file; put it into an environment variable and name that, as in \"api_key_env\"",
        ),
        (
            r#"{"providers": {"p": {"type": "openai", "base_url": "127.0.0.1:8000/v1"}}}"#,
            "providers.p.base_url: \"127.0.0.1:8000/v1\" does not begin with http:// or https://; write http://127.0.0.1:8000/v1",
        ),
        (
            r#"{"server": {"socket": "/tmp/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789/s"}}"#,
            "server.socket: too long for a socket by 10 bytes",
        ),
        (r#"{"providers": {"p": {"type": "telepathy"}}}"#, "providers.p.type"),
        (r#"{"default_model": 7}"#, "default_model"),
        ("{\"server\": \n nope}", ":2:"),
        ("[]", "config.json"),
    ] {
        let world = Setup::new().world().await;
        let file = world.home().join("config.json");
        fs::write(&file, text).unwrap();
        let output = Setup::new().fails_in(&world).await;
        assert_eq!(output.code, Some(1), "{text}: {output:?}");
        let said = output.stderr.lines().last().unwrap_or_default();
        let place = format!("Error: {}", file.display());
        assert!(said.starts_with(&place) && said.contains(complaint), "{text}: {said}");
        assert!(!said.contains("secretsecret"), "{said}");
        let left: Vec<_> =
            fs::read_dir(world.home()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["config.json"], "nothing else was touched");
    }
}

/// The working directory's own configuration.
fn write_project(world: &World, config: Value) {
    let dir = world.work().join(".nexus3");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
}

#[tokio::test]
async fn a_nearer_file_is_the_stronger() {
    let home = json!({"max_tool_iterations": 5, "compaction": {"enabled": false}});
    let world = Setup::new().config(home).world().await;
    write_project(&world, json!({"max_tool_iterations": 7}));
    let server = Setup::new().start_in(&world).await;
    let context = server.wire().ok("get_context", json!({})).await;
    assert_eq!(context["max_tool_iterations"], 7);
    say(&server.wire(), "main", "the provider still comes from the home").await;
}

#[tokio::test]
async fn a_strangers_directory_is_trusted_only_when_a_person_says_so() {
    let world = Setup::new().world().await;
    write_project(&world, json!({"server": {"max_concurrent": 1}}));
    let work = world.work().canonicalize().unwrap();
    let refused = async || {
        let output = Setup::new().fails_in(&world).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        let mend = format!("nexus3 trust {}", work.display());
        assert!(output.stderr.contains("server") && output.stderr.contains(&mend), "{output:?}");
    };
    refused().await;
    let exec = run(&world, &["exec", "Hi"]).await;
    assert_eq!(exec.code, Some(1), "one that serves nobody minds as well: {exec:?}");

    let trusted = run(&world, &["trust"]).await;
    assert_eq!((trusted.code, trusted.stdout), (Some(0), format!("trusted: {}\n", work.display())));
    assert_eq!(run(&world, &["trust", "--list"]).await.stdout, format!("{}\n", work.display()));
    let mut server = Setup::new().start_in(&world).await;
    assert_eq!(server.terminate().await.code(), Some(0));

    // As an agent in it could write, for the next start.
    write_project(&world, json!({"server": {"max_concurrent": 2}}));
    let changed = Setup::new().fails_in(&world).await;
    assert!(changed.stderr.contains("changed since you trusted its directory"), "{changed:?}");
    refused().await;

    let removed = run(&world, &["trust", "--remove", work.to_str().unwrap()]).await;
    assert_eq!((removed.code, &*removed.stdout), (Some(0), "no longer trusted\n"));
    assert_eq!(run(&world, &["trust", "--remove"]).await.stdout, "was not trusted\n");
    refused().await;
    assert_eq!(run(&world, &["trust", "/no/such/directory"]).await.code, Some(1));
}

async fn run(world: &World, args: &[&str]) -> Output {
    crate::harness::process::run(world.command(args)).await
}

#[tokio::test]
async fn instructions_of_every_layer_reach_the_model() {
    let world = Setup::new().world().await;
    let write = |dir: &Path, name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    let other = world.path("other");
    fs::create_dir(&other).unwrap();
    write(&world.home(), "NEXUS.md", "HOME-RULES");
    write(&world.path(""), "AGENTS.md", "ANCESTOR-RULES");
    write(&world.work(), "NEXUS.md", "PROJECT-RULES");
    write(&world.work(), "AGENTS.md", "NOT-THE-FIRST-FOUND");
    write(&other, "CLAUDE.md", "OTHER-RULES");
    let server: Server = Setup::new().start_in(&world).await;
    let wire = server.wire();
    create(&wire, "a").await;
    say(&wire, "a", "Hi").await;
    let text = prompt(&server.model().last_request());
    let places: Vec<_> = ["HOME-RULES", "ANCESTOR-RULES", "PROJECT-RULES", "# Environment"]
        .map(|part| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}")))
        .into();
    assert!(places.is_sorted(), "from the widest to the nearest: {text}");
    assert!(!text.contains("NOT-THE-FIRST-FOUND"), "{text}");
    let work = world.work().canonicalize().unwrap();
    let heading = format!("# Instructions from {}", work.join("NEXUS.md").display());
    assert!(text.contains(&heading), "{text}");
    assert!(text.contains(&format!("Working directory: {}", work.display())), "{text}");

    // An agent that works elsewhere gets the rules of where it works.
    wire.ok("create_agent", json!({"agent_id": "b", "cwd": other})).await;
    say(&wire, "b", "Hi").await;
    let text = prompt(&server.model().last_request());
    assert!(text.contains("OTHER-RULES") && !text.contains("PROJECT-RULES"), "{text}");
}

#[tokio::test]
async fn the_prompt_is_short_without_instructions() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    say(&server.wire(), "a", "Hi").await;
    let bytes = prompt(&server.model().last_request()).len();
    assert!((1..6_000).contains(&bytes), "{bytes} bytes");
}
