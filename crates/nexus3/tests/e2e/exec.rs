//! `nexus3 exec`: one turn without a server.

use nexus_testkit::Reply;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::process::{self, Process};
use crate::harness::{Output, Server, Setup, World, within};
use crate::support::{history, names, shown};

async fn exec(world: &World, args: &[&str]) -> Output {
    process::run(world.command([&["exec"], args].concat())).await
}

#[tokio::test]
async fn the_answer_is_printed() {
    let world = Setup::new().world().await;
    world.model.push(Reply::chunks(["It ", "works."]));
    let output = exec(&world, &["Does it work?"]).await;
    assert_eq!((output.code, &*output.stdout, &*output.stderr), (Some(0), "It works.\n", ""));
    assert_eq!(shown(&world.model.last_request()), ["user: Does it work?"]);
    world.model.push(Reply::text("With an end.\n"));
    assert_eq!(exec(&world, &["Hi"]).await.stdout, "With an end.\n");
    // Such an agent is gone afterwards.
    let server = Setup::new().start_in(&world).await;
    assert_eq!(names(&server.wire()).await, [""; 0]);
}

#[tokio::test]
async fn every_event_is_a_line_of_json() {
    let world = Setup::new().world().await;
    world.model.push(Reply::chunks(["It ", "works."]).usage(12, 3));
    let output = exec(&world, &["--json", "Hi"]).await;
    assert_eq!((output.code, &*output.stderr), (Some(0), ""));
    let lines: Vec<_> = output.stdout.lines().map(crate::harness::check::message).collect();
    let methods: Vec<_> =
        lines.iter().map(|line| line["method"].as_str().unwrap_or("answer")).collect();
    assert_eq!(
        methods,
        ["stream_start", "stream_data", "stream_data", "stream_event", "stream_end", "answer"]
    );
    assert_eq!(lines[5]["result"]["content"], "It works.");
    world.model.push(Reply::status(400).message("no"));
    let output = exec(&world, &["--json", "Hi"]).await;
    assert_eq!(output.code, Some(1));
    let last: Value = serde_json::from_str(output.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], -32603);
}

#[tokio::test]
async fn the_prompt_comes_from_stdin() {
    let world = Setup::new().world().await;
    world.model.set_default(Reply::echo());
    let (mut process, mut stdin, mut stdout) = Process::spawn(world.command(["exec", "-"]));
    stdin.write_all("many\nlines äöü".as_bytes()).await.unwrap();
    drop(stdin);
    let mut printed = String::new();
    within("the answer", stdout.read_to_string(&mut printed)).await.unwrap();
    assert_eq!((process.exit().await.code(), &*printed), (Some(0), "many\nlines äöü\n"));
}

#[tokio::test]
async fn a_named_agent_goes_on_where_it_was() {
    let world = Setup::new().world().await;
    for text in ["one", "two"] {
        assert_eq!(exec(&world, &["--agent", "a", text]).await.code, Some(0));
    }
    let hello = "assistant: Hello from the scripted model.";
    assert_eq!(shown(&world.model.last_request()), ["user: one", hello, "user: two"]);
    let server = Setup::new().start_in(&world).await;
    assert_eq!(history(&server.wire(), "a").await.len(), 4);
    // While the server has it, nobody else does; what is not the server's is free.
    let held = exec(&world, &["--agent", "a", "three"]).await;
    assert_eq!((held.code, &*held.stdout), (Some(1), ""), "{held:?}");
    assert!(held.stderr.contains("Agent a is live in another process (process "), "{held:?}");
    assert_eq!(exec(&world, &["--agent", "b", "one"]).await.code, Some(0));
}

#[tokio::test]
async fn failures_exit_with_1_and_say_what_to_do() {
    let world = Setup::new().unconfigured().world().await;
    let output = exec(&world, &["Hi"]).await;
    assert_eq!((output.code, &*output.stdout), (Some(1), ""));
    assert!(output.stderr.starts_with("Error: No model is configured (-32001)\n"), "{output:?}");
    assert!(output.stderr.contains("ANTHROPIC_API_KEY"), "{output:?}");

    let world = Setup::new().world().await;
    for (args, why) in [
        (&["--preset", "yolo", "Hi"][..], "Preset yolo"),
        (&["--preset", "nope", "Hi"], "Unknown preset: nope"),
        (&["--model", "nope", "Hi"], "unknown model: nope"),
        (&["--agent", "a b", "Hi"], "Agent name may hold only"),
        (&["--cwd", "/no/such", "Hi"], "Cwd: /no/such"),
    ] {
        let output = exec(&world, args).await;
        assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{args:?}: {output:?}");
        assert!(output.stderr.contains(why), "{args:?}: {output:?}");
    }
    world.model.push(Reply::text("Half ").then_cut());
    let output = exec(&world, &["Hi"]).await;
    assert_eq!((output.code, &*output.stdout), (Some(1), "Half \n"), "what was said is shown");
    assert!(output.stderr.starts_with("Error: The provider broke off"), "{output:?}");
    world.model.push(Reply::hang());
    let output = exec(&world, &["-t", "1", "Hi"]).await;
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.starts_with("Error: Execution timeout"), "{output:?}");
}

#[tokio::test]
async fn an_interrupt_keeps_what_was_said() {
    let world = Setup::new().world().await;
    world.model.push(Reply::text("So far ").then_hang());
    let (mut process, _stdin, mut stdout) =
        Process::spawn(world.command(["exec", "--agent", "a", "Go on"]));
    let mut printed = [0; 7];
    within("the first words", stdout.read_exact(&mut printed)).await.unwrap();
    assert_eq!(&printed, b"So far ");
    process.signal(Signal::INT);
    assert_eq!(process.exit().await.code(), Some(130));
    let server: Server = Setup::new().start_in(&world).await;
    assert_eq!(
        history(&server.wire(), "a").await,
        ["user: Go on", "assistant: So far  (interrupted)"]
    );
    server.wire().ok("send", json!({"agent_id": "a", "content": "And now?"})).await;
}
