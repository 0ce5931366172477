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
