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
    let mut methods: Vec<_> =
        lines.iter().map(|line| line["method"].as_str().unwrap_or("answer")).collect();
    // Text that waited was joined.
    methods.dedup();
    assert_eq!(methods, ["stream_start", "stream_data", "stream_event", "stream_end", "answer"]);
    assert_eq!(lines.last().unwrap()["result"]["content"], "It works.");
    world.model.push(Reply::status(400).message("no"));
    let output = exec(&world, &["--json", "Hi"]).await;
    assert_eq!(output.code, Some(1));
    let last: Value = serde_json::from_str(output.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], -32603);
}

/// However fast it comes.
#[tokio::test]
async fn a_long_answer_is_printed_to_its_end() {
    let world = Setup::new().world().await;
    let burst = vec!["a word in a long text ".repeat(1_500); 120];
    world.model.push(Reply::chunks(burst.clone()));
    let output = exec(&world, &["Go on"]).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(output.stdout.trim_end().len(), burst.concat().trim_end().len());
}

/// `nexus3 exec …` with this on standard input.
async fn piped(world: &World, args: &[&str], input: &[u8]) -> Output {
    let (mut process, mut stdin, mut stdout) =
        Process::spawn(world.command([&["exec"], args].concat()));
    let write = async {
        // Whoever has read enough closes it.
        let _ = stdin.write_all(input).await;
        drop(stdin);
    };
    let mut printed = String::new();
    let read = within("the answer", stdout.read_to_string(&mut printed));
    let ((), read) = tokio::join!(write, read);
    read.unwrap();
    let code = process.exit().await.code();
    Output { code, stdout: printed, stderr: process.log().complete().await }
}

#[tokio::test]
async fn what_is_piped_in_goes_below_the_prompt() {
    let world = Setup::new().world().await;
    world.model.set_default(Reply::echo());
    let lines = "many\nlines äöü";
    for (args, input, said) in [
        (&["Summarise"][..], lines, "Summarise\n\nmany\nlines äöü"),
        (&["Summarise"], " \n", "Summarise"),
        (&["-"], lines, lines),
        (&[], lines, lines),
    ] {
        let output = piped(&world, args, input.as_bytes()).await;
        assert_eq!((output.code, output.stdout), (Some(0), format!("{said}\n")), "{args:?}");
    }
    let asked = world.model.request_count();
    for args in [&["-"][..], &[]] {
        let output = piped(&world, args, b" \n").await;
        assert_eq!((output.code, &*output.stdout), (Some(2), ""), "{output:?}");
        assert!(output.stderr.contains("there is nothing to say"), "{output:?}");
    }
    let output = piped(&world, &["Summarise"], b"ab\xff").await;
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output:?}");
    assert!(output.stderr.starts_with("Error: standard input is not UTF-8 text"), "{output:?}");
    let output = piped(&world, &["Summarise"], &vec![b'x'; (10 << 20) + 1]).await;
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output:?}");
    let why = "Error: standard input has more than 10485760 bytes";
    assert!(output.stderr.starts_with(why), "{output:?}");
    assert_eq!(world.model.request_count(), asked, "what was refused reached no model");
}

#[tokio::test]
async fn an_interrupt_ends_the_wait_for_input() {
    let world = Setup::new().world().await;
    let (mut process, mut stdin, _stdout) = Process::spawn(world.command(["exec", "Summarise"]));
    // More than a pipe holds: it is being read, and signals are heard, once this is through.
    stdin.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
    process.signal(Signal::INT);
    assert_eq!(process.exit().await.code(), Some(130));
    assert_eq!(world.model.request_count(), 0);
}

/// Makes the model call for a command that writes, in the agent's own directory.
fn run_a_command(world: &World) {
    world.model.push(Reply::tool_call("exec", json!({"argv": ["touch", "made"]})));
    world.model.push(Reply::text("done"));
}

#[tokio::test]
async fn what_needs_approval_is_allowed_only_when_somebody_said_so() {
    let world = Setup::new().world().await;
    let made = world.work().join("made");
    for args in [&["go"][..], &["go", "--approve", "never"]] {
        run_a_command(&world);
        let denied = exec(&world, &[args, &["--preset", "trusted"]].concat()).await;
        assert_eq!((denied.code, &*denied.stdout), (Some(3), "done\n"), "{denied:?}");
        assert!(denied.stderr.contains("Refused: it needs approval"), "{denied:?}");
        assert_eq!(denied.stderr.contains("--approve all"), args.len() == 1, "{denied:?}");
        assert!(!made.exists());
    }
    run_a_command(&world);
    let allowed = exec(&world, &["go", "--approve", "all", "--preset", "trusted"]).await;
    assert_eq!((allowed.code, &*allowed.stderr), (Some(0), ""), "{allowed:?}");
    assert!(made.exists());

    // What the preset refuses nobody is asked about.
    std::fs::remove_file(&made).unwrap();
    run_a_command(&world);
    let refused = exec(&world, &["go", "--approve", "all", "--preset", "sandboxed"]).await;
    assert_eq!(refused.code, Some(0), "{refused:?}");
    assert!(!made.exists());
}

/// Runs the program on a terminal of its own; what stands behind is its command line.
const ON_A_TERMINAL: &str = "python3 -c 'import os, pty, sys; \
    sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' \"$0\"";

#[tokio::test]
async fn a_person_is_asked_on_the_terminal() {
    let world = Setup::new().world().await;
    let made = world.work().join("made");
    for (answer, code) in [("n", 3), ("y", 0)] {
        run_a_command(&world);
        let line = format!("{ON_A_TERMINAL} exec go --preset trusted");
        let (mut process, mut stdin, mut stdout) = Process::spawn(world.shell(&line));
        let mut shown = String::new();
        while !shown.contains("Allow it?") {
            let mut bytes = [0; 4096];
            let count = within("the question", stdout.read(&mut bytes)).await.unwrap();
            assert!(count > 0, "not asked: {shown} {}", process.log().text());
            shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        assert!(shown.contains(r#"calls exec {"argv":["touch","made"]}"#), "{shown}");
        assert!(shown.contains("It asks to run a command with exec in "), "{shown}");
        stdin.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        let mut rest = String::new();
        within("the answer", stdout.read_to_string(&mut rest)).await.unwrap();
        assert!(rest.contains("done") && !rest.contains("--approve"), "{rest}");
        assert_eq!((process.exit().await.code(), made.exists()), (Some(code), answer == "y"));
    }
}

/// What a command prints on a terminal.
async fn on_a_terminal(world: &World, line: &str) -> String {
    let (mut process, stdin, mut stdout) =
        Process::spawn(world.shell(&format!("{ON_A_TERMINAL} {line}")));
    drop(stdin);
    let mut shown = Vec::new();
    within("the end", stdout.read_to_end(&mut shown)).await.unwrap();
    assert_eq!(process.exit().await.code(), Some(0), "{}", process.log().text());
    String::from_utf8(shown).unwrap()
}

#[tokio::test]
async fn what_a_model_says_cannot_steer_the_terminal() {
    let server = Server::start().await;
    let (world, port) = (&server.world, server.address.port());
    let evil = "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\r\u{7f}\u{202e}";
    let spelled = "\\u{1b}]0;title\\u{7}\\u{1b}[2J\\u{9b}31m\\r\\u{7f}\\u{202e}";
    let said = format!("a\n\tü {evil} b");
    for (line, shown_as) in [
        ("exec Hi".to_string(), spelled),
        ("exec --json Hi".to_string(), "\\u009b31m"),
        (format!("rpc -p {port} send main Hi"), "\\u009b31m"),
        (format!("rpc -p {port} send main Hi --stream"), spelled),
    ] {
        world.model.push(Reply::text(said.clone()));
        let shown = on_a_terminal(world, &line).await;
        // Those of a spinner are ours: they stand before the first word.
        let (_, words) = shown.rsplit_once("ü ").unwrap();
        let words = words.replace("\r\n", "\n");
        assert!(words.contains(shown_as), "{line}: {words:?}");
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!words.contains(steers), "{line}: {words:?}");
    }
    // What it says to a program is what it said.
    world.model.push(Reply::text(said.clone()));
    assert_eq!(exec(world, &["Hi"]).await.stdout, format!("{said}\n"));
    world.model.push(Reply::text(said.clone()));
    let port = port.to_string();
    let streamed = server.cli(["rpc", "-p", &port, "send", "main", "Hi", "--stream"]).await;
    assert_eq!(streamed.stdout, format!("{said}\n"));
    // What goes wrong is for people, wherever it is shown.
    world.model.push(Reply::status(400).message(evil));
    let failed = exec(world, &["Hi"]).await;
    assert!(failed.stderr.contains("\\u{9b}31m"), "{failed:?}");
    assert!(!failed.stderr.contains(|c: char| c.is_control() && c != '\n'), "{failed:?}");
}

#[tokio::test]
async fn nobody_is_waited_for_where_there_is_no_terminal() {
    let world = Setup::new().world().await;
    run_a_command(&world);
    // A session of its own has no terminal, wherever the tests run.
    let line = r#"exec setsid -w "$0" exec go --preset trusted --approve ask </dev/null"#;
    let denied = process::run(world.shell(line)).await;
    assert_eq!(denied.code, Some(3), "{denied:?}");
    let why = "--approve ask: there is no terminal to ask on, so what needs approval is denied";
    assert!(denied.stderr.contains(why), "{denied:?}");
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_it_without_a_word() {
    let world = Setup::new().world().await;
    world.model.push(Reply::text("So far ").then_hang());
    let (mut process, stdin, mut stdout) =
        Process::spawn(world.command(["exec", "--agent", "a", "Go on"]));
    drop(stdin);
    within("the first words", stdout.read_exact(&mut [0; 7])).await.unwrap();
    drop(stdout);
    process.signal(Signal::INT);
    assert_eq!(process.exit().await.code(), Some(141));
    assert_eq!(process.log().complete().await, "");
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
    for _ in 0..4 {
        world.model.push(Reply::text("Half ").then_cut());
    }
    let output = exec(&world, &["Hi"]).await;
    let said = "Half Half Half Half \n";
    assert_eq!((output.code, &*output.stdout), (Some(1), said), "what was said is shown");
    assert!(output.stderr.starts_with("Error: The provider broke off"), "{output:?}");
    world.model.push(Reply::hang());
    let output = exec(&world, &["-t", "1", "Hi"]).await;
    assert_eq!(output.code, Some(1));
    let why = "Error: Execution timeout (-32000): The turn took longer than it was given\n  Give it more time with -t";
    assert!(output.stderr.starts_with(why), "{output:?}");
}

#[tokio::test]
async fn an_interrupt_keeps_what_was_said() {
    let world = Setup::new().world().await;
    world.model.push(Reply::text("So far ").then_hang());
    let (mut process, stdin, mut stdout) =
        Process::spawn(world.command(["exec", "--agent", "a", "Go on"]));
    drop(stdin);
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
