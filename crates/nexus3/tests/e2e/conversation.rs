//! `nexus3` without a command, where no terminal is: what its flags are good for, and a turn of what is piped in.

use std::fs;
use std::os::unix::fs::symlink;

use nexus_testkit::Reply;

use crate::harness::{Output, Setup, World, process};
use crate::support::shown;

async fn run(world: &World, args: &[&str]) -> Output {
    process::run(world.command(args)).await
}

/// A line that is refused: nothing on standard output, and this among what is said.
async fn refused(world: &World, line: &[&str], why: &str) {
    let output = run(world, line).await;
    assert_eq!((output.code, &*output.stdout), (Some(2), ""), "{line:?}: {output:?}");
    assert!(output.stderr.contains(why), "{line:?}: {output:?}");
    assert!(output.stderr.contains("--help"), "{line:?}: {output:?}");
}

#[tokio::test]
async fn what_is_piped_in_is_one_turn() {
    let world = Setup::new().world().await;
    world.model.set_default(Reply::echo());
    let piped = async |flags: &str| {
        process::run(world.shell(&format!("printf 'Hello there' | \"$0\" {flags}"))).await
    };
    for flags in ["", "--plain", "--no-color", "--fresh", "--temp", "--preset worker --cwd ."] {
        let output = piped(flags).await;
        let said = (output.code, &*output.stdout, &*output.stderr);
        assert_eq!(said, (Some(0), "Hello there\n", ""), "{flags}");
    }
    // A session goes on.
    piped("--session notes").await;
    piped("--session notes").await;
    let talk = ["user: Hello there", "assistant: Hello there", "user: Hello there"];
    assert_eq!(shown(&world.model.last_request()), talk);
    piped("-m scripted/other").await;
    assert_eq!(world.model.last_request().body["model"], "other");

    let output = piped("--preset nonsense").await;
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output:?}");
}

#[tokio::test]
async fn nothing_piped_in_is_a_wrong_command_line() {
    let world = Setup::new().world().await;
    refused(&world, &[], "there is nothing to say").await;
    let blank = process::run(world.shell("printf ' \n' | \"$0\"")).await;
    assert_eq!((blank.code, &*blank.stdout), (Some(2), ""), "{blank:?}");
}

#[tokio::test]
async fn a_flag_without_effect_is_refused() {
    let world = Setup::new().world().await;
    for line in [
        &["--host", "127.0.0.1"][..],
        &["--metrics", "0"],
        &["--log-format", "json"],
        &["--socket", "/tmp/x", "--socket-identity", "user=u"],
        &["--no-auth"],
        &["--no-socket"],
        &["--socket", "/tmp/x"],
        &["--log-dir", "logs"],
        &["--raw-log"],
        &["--verbose", "--model", "x"],
    ] {
        let option =
            if line.contains(&"--socket-identity") { "--socket-identity" } else { line[0] };
        refused(&world, line, &format!("{option} says how to serve")).await;
        refused(&world, line, "put it behind nexus3 serve").await;
    }
    for line in [
        &["--resume"][..],
        &["--connect"],
        &["--connect", "http://127.0.0.1:1", "--agent", "a", "--api-key", "k"],
        &["--own"],
        &["--template", "prompt.md"],
    ] {
        let why = format!("{} needs a terminal as standard input", line[0]);
        refused(&world, line, &why).await;
    }
}

#[tokio::test]
async fn only_servers_of_this_machine_are_connected_to() {
    let world = Setup::new().world().await;
    for url in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"] {
        refused(&world, &["--connect", url], "needs a terminal").await;
    }
    for url in ["http://example.com", "http://10.0.0.1:8765", "http://127.0.0.2:8765"] {
        refused(&world, &["--connect", url], "servers are on this machine").await;
    }
    for (url, why) in [
        ("https://127.0.0.1:1", "it must start with http://"),
        ("http://127.0.0.1:1/rpc", "it must not have a path"),
        ("http://a@127.0.0.1:1", "it must not have a user"),
    ] {
        refused(&world, &["--connect", url], why).await;
    }
}

#[tokio::test]
async fn a_home_is_begun_with_templates() {
    let world = Setup::new().unconfigured().world().await;
    let (prompt, config) = (world.home().join("NEXUS.md"), world.home().join("config.json"));
    let wrote = format!("Wrote {}.\nWrote {}.\n", prompt.display(), config.display());
    let output = run(&world, &["--init-global"]).await;
    assert_eq!((output.code, &*output.stdout, &*output.stderr), (Some(0), &*wrote, ""));
    let templates = [fs::read(&prompt).unwrap(), fs::read(&config).unwrap()];
    // The program reads what it wrote.
    assert_eq!(run(&world, &["models"]).await.code, Some(0));

    fs::write(&prompt, "mine").unwrap();
    let output = run(&world, &["--init-global"]).await;
    assert_eq!((output.code, &*output.stdout), (Some(1), ""));
    assert!(output.stderr.contains("--init-global-force replaces."), "{output:?}");
    assert_eq!(fs::read(&prompt).unwrap(), b"mine");

    let output = run(&world, &["--init-global-force"]).await;
    assert_eq!((output.code, &*output.stdout), (Some(0), &*wrote));
    assert_eq!([fs::read(&prompt).unwrap(), fs::read(&config).unwrap()], templates);
}

#[tokio::test]
async fn templates_are_not_written_through_links() {
    let world = Setup::new().world().await;
    let (victim, prompt) = (world.path("victim"), world.home().join("NEXUS.md"));
    fs::write(&victim, "mine").unwrap();
    symlink(&victim, &prompt).unwrap();
    let configured = fs::read(world.home().join("config.json")).unwrap();
    for flag in ["--init-global", "--init-global-force"] {
        let output = run(&world, &[flag]).await;
        assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{flag}: {output:?}");
        assert!(output.stderr.contains("NEXUS.md is there, and is no file."), "{output:?}");
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert_eq!(fs::read(world.home().join("config.json")).unwrap(), configured);
    }

    // Nor is a home that is one.
    let elsewhere = world.path("elsewhere");
    fs::rename(world.home(), &elsewhere).unwrap();
    fs::remove_file(elsewhere.join("NEXUS.md")).unwrap();
    symlink(&elsewhere, world.home()).unwrap();
    let output = run(&world, &["--init-global-force"]).await;
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output:?}");
    assert!(!elsewhere.join("NEXUS.md").exists());
    assert_eq!(fs::read(elsewhere.join("config.json")).unwrap(), configured);
}

#[tokio::test]
async fn the_flags_of_the_conversation_stand_apart() {
    let world = Setup::new().world().await;
    let help = run(&world, &["--help"]).await.stdout;
    let (_, conversation) = help.split_once("\nConversation:\n").unwrap();
    let (conversation, server) = conversation.split_once("\nServer (").unwrap();
    for flag in ["--fresh", "--connect", "--init-global-force"] {
        assert!(conversation.contains(flag), "{flag}: {help}");
    }
    for flag in ["--host", "--socket", "--no-auth", "--log-format"] {
        assert!(server.contains(flag) && !conversation.contains(&format!("{flag} ")), "{flag}");
    }
}
