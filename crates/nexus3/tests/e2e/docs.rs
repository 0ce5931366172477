//! What the documents tell people to type.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nexus_testkit::Reply;

use crate::harness::{Server, Setup, process};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every document for users, with its name.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = vec![root().join("README.md")];
    let mut directories = vec![root().join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => directories.push(path),
                false => found.push(path),
            }
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Commands with their other names, and flags.
#[tokio::test]
async fn the_page_of_the_terminal_has_all_that_can_be_said_to_it() {
    let page = fs::read_to_string(root().join("docs/guide/terminal.md")).unwrap();
    let stands = |name: &str| {
        let is_end = |rest: &str| rest.starts_with(['`', ' ']);
        page.match_indices(name)
            .any(|(at, _)| page[..at].ends_with('`') && is_end(&page[at + name.len()..]))
    };
    let names: Vec<_> = nexus_terminal::command_usages()
        .flat_map(str::lines)
        .filter_map(|usage| usage.split(' ').next())
        .collect();
    assert!(names.contains(&"/agent") && names.contains(&"/q"), "{names:?}");

    let world = Setup::new().world().await;
    let help = process::run(world.command(["--help"])).await.stdout;
    let (_, conversation) = help.split_once("\nConversation:\n").unwrap();
    let (conversation, _) = conversation.split_once("\nServer (").unwrap();
    let flags: Vec<_> = conversation
        .split([' ', ',', ';', ':', '\n'])
        .filter(|word| word.starts_with("--"))
        .collect();
    assert!(flags.contains(&"--fresh") && flags.contains(&"--init-global-force"), "{flags:?}");
    for name in names.into_iter().chain(flags) {
        assert!(stands(name), "{name} does not stand on the page");
    }
}

/// What the security page promises is worth the tests that it names.
#[test]
fn the_tests_of_the_security_page_exist() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let mut sources = String::new();
    let mut directories = ["crates", "fuzzing", "torture"].map(|name| root().join(name)).to_vec();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources += &fs::read_to_string(path).unwrap();
            }
        }
    }
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let ["", promise, _, tests, ""] = cells[..] else { panic!("not a promise: {line}") };
        if ["promise", "---"].contains(&promise) {
            continue;
        }
        let named: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test holds: {promise}");
        for test in named {
            assert!(sources.contains(&format!("fn {test}(")), "there is no test {test}");
        }
    }
}

/// The page of limits says what the sources say: of each row a constant, and a number that stands in the row.
#[test]
fn the_page_of_limits_has_the_numbers_of_the_sources() {
    let page = fs::read_to_string(root().join("docs/guide/limits.md")).unwrap();
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).collect();
    let (mut file, mut said) = ("", String::new());
    for &(place, constant, row) in LIMITS {
        if !place.is_empty() {
            file = place;
            said = fs::read_to_string(root().join("crates").join(file)).unwrap();
        }
        let marks = ["const ", constant, ":"].concat();
        let line = said.lines().find(|line| line.contains(&marks));
        let line = line.unwrap_or_else(|| panic!("{file} has no {constant}"));
        let value = line.rsplit_once(" = ").and_then(|(_, value)| number(value));
        let value = value.unwrap_or_else(|| panic!("{file}: {line}"));
        let row = rows.iter().find(|line| line.starts_with(&format!("| {row}")));
        let row = row.unwrap_or_else(|| panic!("no row for {constant} of {file}"));
        assert!(numbers(row).contains(&value), "{file}: {line}\n{row}");
    }
}

/// A file, where it is another than before; a constant of it; how its row begins.
const LIMITS: &[(&str, &str, &str)] = &[
    ("tools/src/command.rs", "TIMEOUT_DEFAULT", "time on the clock"),
    ("core/src/keys.rs", "KEYS_MAX", "keys"),
    ("", "NAME_CHARS_MAX", "name of a key"),
    ("", "METHODS_MAX", "patterns of methods"),
    ("", "METHOD_BYTES_MAX", "patterns of methods"),
    ("", "DAYS_DEFAULT", "days that a key holds"),
    ("signing/src/lib.rs", "SECRET_BYTES_MIN", "secret of a key"),
    ("", "WINDOW_SECONDS", "age of a [signature]"),
    ("server/src/signing.rs", "SEEN_MAX", "signatures that are remembered"),
    ("server/src/context_token.rs", "TOKEN_BYTES_MAX", "a [context token]"),
    ("", "AHEAD_SECONDS_MAX", "a [context token]"),
    ("core/src/store/memory.rs", "SUBJECTS_MAX", "subjects of a memory"),
    ("core/src/memory.rs", "CONTENT_BYTES_MAX", "text of a [memory]"),
    ("", "NAME_BYTES_MAX", "source, a subject"),
    ("", "EXPIRES_DAYS_MAX", "days until a memory expires"),
    ("", "PREFIX_DIGITS_MIN", "digits of an id"),
    ("core/src/words.rs", "QUERY_WORDS_MAX", "words of a query"),
    ("doors/src/openai/door.rs", "BODY_BYTES_MAX", "body of a request to [`/v1`]"),
    ("doors/src/openai/ask.rs", "MESSAGES_MAX", "messages of a request to `/v1`"),
    ("", "CHOICES_MAX", "answers that are asked for at once"),
    ("doors/src/openai/bare.rs", "STOPS_MAX", "texts that end an answer"),
    ("doors/src/openai/embeddings.rs", "INPUTS_MAX", "texts of one request for embeddings"),
    ("", "TEXT_BYTES_MAX", "texts of one request for embeddings"),
    ("doors/src/openai/responses/kept.rs", "ANSWERS_MAX", "responses that are kept"),
    ("", "BYTES_MAX", "responses that are kept"),
    ("doors/src/openai/repeats.rs", "KEPT_MAX", "turns that are given again"),
    ("", "KEPT_BYTES_MAX", "turns that are given again"),
    ("doors/src/openai/conversations.rs", "POINTS_MAX", "answers after which"),
    ("doors/src/mcp/http.rs", "BODY_BYTES_MAX", "message to [`/mcp`]"),
    ("", "SESSIONS_MAX", "sessions of one tree of agents"),
    ("", "SESSION_IDLE", "sessions of one tree of agents"),
    ("", "VISITORS_MAX", "callers whose sessions"),
    ("doors/src/mcp/subscriptions.rs", "SUBSCRIPTIONS_MAX", "resources that one session"),
    ("doors/src/mcp/turns.rs", "KEPT_MAX", "turns of a host"),
    ("", "KEPT_BYTES_MAX", "turns of a host"),
    ("server/src/transport/unix.rs", "FRAME_BYTES_MAX", "message on [`/ws`]"),
    ("", "FRAME_BYTES_MAX", "socket frame"),
    ("server/src/transport/ws.rs", "CALLS_MAX", "calls of one WebSocket"),
    ("", "PING_EVERY", "silence on a WebSocket"),
    ("server/src/transport/stdio.rs", "LINE_BYTES_MAX", "stdio line"),
    ("server/src/freight.rs", "FREIGHT_BYTES_MAX", "messages and answers under way"),
    ("server/src/dispatcher.rs", "ANSWER_BYTES_MAX", "one answer"),
    ("server/src/handlers/conversation.rs", "PAGE_BYTES_MAX", "bytes of one `get_messages`"),
    ("doors/src/acp/lines.rs", "LINE_BYTES_MAX", "line of an editor"),
    ("doors/src/acp/fault.rs", "IN_FLIGHT_MAX", "requests of an editor"),
    ("doors/src/acp/content.rs", "EMBEDDED_BYTES_MAX", "a text that an editor puts"),
    ("core/src/settings.rs", "DIRECTORIES_MAX", "further directories"),
    ("core/src/mcp.rs", "SERVERS_MAX", "[MCP servers]"),
    ("", "SERVER_TOOLS_MAX", "tools of one server"),
    ("mcp/src/connection.rs", "PAGES_MAX", "tools of one server"),
    ("mcp/src/seat.rs", "OWN_PROCESSES_MAX", "processes of servers"),
    ("mcp/src/lookup.rs", "PROMPTS_MAX", "prompts of one server"),
    ("", "ANSWER_BYTES_MAX", "a text that is looked up"),
    ("mcp/src/transport.rs", "MESSAGE_BYTES_MAX", "one message of a server"),
    ("mcp/src/server.rs", "CALLS_MAX", "calls of one server at once"),
    ("mcp/src/state.rs", "ENDS_MAX", "unasked ends"),
    ("", "ENDS_WITHIN", "unasked ends"),
    ("mcp/src/result.rs", "SHOWN_BYTES_MAX", "what a model is shown of one result"),
    ("mcp/src/results.rs", "RESULT_BYTES_MAX", "what is kept of one result"),
    ("", "AGENT_BYTES_MAX", "what is kept of one result"),
    ("", "ALL_BYTES_MAX", "what is kept of one result"),
    ("mcp/src/schema.rs", "SCHEMA_BYTES_MAX", "schema of a tool's arguments"),
    ("", "SCHEMA_DEPTH_MAX", "schema of a tool's arguments"),
    ("mcp/src/clean.rs", "DESCRIPTION_BYTES_MAX", "description of a tool"),
    ("", "INSTRUCTIONS_BYTES_MAX", "what a server says of itself"),
    ("mcp/src/elicit.rs", "ROUNDS_MAX", "questions within one call"),
    ("", "MESSAGE_BYTES_MAX", "a question; its form"),
    ("", "SCHEMA_BYTES_MAX", "a question; its form"),
    ("", "URL_BYTES_MAX", "a question; its form"),
    ("core/src/sampling.rs", "SAMPLE_TOKENS_MAX", "words that a server has the model say"),
    ("mcp/src/tail.rs", "KEPT_BYTES_MAX", "what a server prints"),
    ("core/src/permission.rs", "DEPTH_MAX", "depth of a tree"),
    ("core/src/lifecycle/create.rs", "WRITE_PATHS_MAX", "places in"),
    ("core/src/plan.rs", "TASKS_MAX", "tasks of a plan"),
    ("core/src/plans/mod.rs", "KEPT_DAYS", "how long a plan is kept"),
    ("", "TREE_PLANS_MAX", "plans of one tree of agents"),
    ("", "TREE_PLANS_BYTES_MAX", "plans of one tree of agents"),
    ("", "TREE_RUNS_MAX", "plans that the agents of one tree run"),
    ("core/src/store/shared_context.rs", "ENTRIES_MAX", "entries of the [shared context]"),
    ("core/src/attach.rs", "ATTACHMENTS_MAX", "attachments of one message"),
    ("core/src/code.rs", "CODE_BYTES_MAX", "code, and rules"),
    ("core/src/watch/mod.rs", "WATCHES_MAX", "watches of one connection"),
    ("", "WATCHES_PER_CALLER_MAX", "watches of one connection"),
    ("local/src/template.rs", "SOURCE_BYTES_MAX", "chat template"),
    ("", "STEPS_MAX", "chat template"),
    ("", "WRITTEN_BYTES_MAX", "chat template"),
    ("local/src/template/apart.rs", "MEMORY_BYTES_MAX", "chat template"),
    ("", "PROCESSOR_SECONDS_MAX", "chat template"),
    ("", "LASTS_MAX", "chat template"),
    ("", "AT_ONCE_MAX", "chat template"),
    ("", "REASON_BYTES_MAX", "chat template"),
    ("nexus3/src/session_file/mod.rs", "FILE_BYTES_MAX", "file of `nexus3 session import`"),
    ("", "VALUES_MAX", "file of `nexus3 session import`"),
    ("", "MESSAGES_MAX", "file of `nexus3 session import`"),
    ("", "CALLS_MAX", "file of `nexus3 session import`"),
];

/// The value of a constant, as it stands in the source; times in seconds.
fn number(source: &str) -> Option<u64> {
    let source = source.trim_end_matches(';').trim();
    let source = match source.split_once("from_secs(") {
        Some((_, seconds)) => seconds.trim_end_matches(')'),
        None => source,
    };
    let whole = |text: &str| -> Option<u64> {
        text.trim().trim_end_matches(".0").replace('_', "").parse().ok()
    };
    match source.split_once("<<") {
        Some((left, right)) => Some(whole(left)? << whole(right)?),
        None => source.split('*').map(whole).product(),
    }
}

/// The numbers of a row: `10,000`, `64 KiB`.
fn numbers(row: &str) -> Vec<u64> {
    let words: Vec<_> = row.split([' ', ';', '(', ')']).collect();
    let following = words.iter().skip(1).copied().chain([""]);
    words
        .iter()
        .zip(following)
        .filter_map(|(word, unit)| {
            let number: u64 = word.trim_end_matches(',').replace(',', "").parse().ok()?;
            let shift = match unit.trim_end_matches(',') {
                "KiB" => 10,
                "MiB" => 20,
                "GiB" => 30,
                _ => 0,
            };
            Some(number << shift)
        })
        .collect()
}

/// A command line can be read by everybody on the machine, agents' commands included, and `localhost` by itself does not
/// say whose address it is.
#[test]
fn no_document_puts_a_token_on_a_command_line() {
    for (path, text) in documents() {
        for line in text.lines() {
            let shown = ["-H \"Authorization", "-H 'Authorization", "--api-key $"];
            let shown = shown.iter().any(|shown| line.contains(shown));
            assert!(!shown, "{}: {line}", path.display());
            assert!(!line.contains("http://localhost:8765"), "{}: {line}", path.display());
        }
    }
}

/// The shell lines of README's tour with curl, as they stand but for the port and its token's file.
#[tokio::test]
async fn the_tour_with_curl_works_and_shows_no_token() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let blocks: Vec<_> =
        readme.split("```sh\n").skip(1).filter_map(|it| it.split("```").next()).collect();
    let header =
        blocks.iter().find_map(|block| block.lines().find(|line| line.starts_with("auth()")));
    let calls = blocks.iter().find(|block| block.contains("create_agent")).unwrap();
    let server = Server::start().await;
    let port = server.address.port().to_string();
    // Stands in for curl, so that what it is told can be looked at.
    let shim = server.world.path("shim");
    fs::create_dir(&shim).unwrap();
    let arguments = shim.join("arguments");
    let find = process::run(server.world.shell("command -v curl")).await;
    let Some(curl) = find.stdout.lines().next() else {
        eprintln!("curl is not on this machine: not tried");
        return;
    };
    let script = format!("#!/bin/sh\necho \"$@\" >>{}\nexec {curl} \"$@\"\n", arguments.display());
    fs::write(shim.join("curl"), script).unwrap();
    fs::set_permissions(shim.join("curl"), fs::Permissions::from_mode(0o755)).unwrap();

    let script = format!("{}\n{calls}", header.expect("a line that makes the header"));
    let script = script.replace("8765", &port).replace("rpc.token", &format!("rpc-{port}.token"));
    server.model().push(Reply::text("Hello, Alice."));
    server.model().push(Reply::text("Alice."));
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", shim.display());
    let mut command = server.world.shell(&script);
    command.env("PATH", path).env("NO_PROXY", "*");
    let output = process::run(command).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let answers: Vec<_> = output.stdout.lines().map(crate::harness::check::message).collect();
    assert_eq!(answers.len(), 4, "{output:?}");
    assert_eq!(answers[0]["result"]["url"], "/agent/worker");
    assert_eq!(answers[2]["result"]["content"], "Alice.");
    let arguments = fs::read_to_string(arguments).unwrap();
    assert_eq!(arguments.matches("-H @-").count(), 4, "{arguments}");
    assert!(!arguments.contains("nxk_"), "{arguments}");
}
