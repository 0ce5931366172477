//! The program itself: its streams and its exit codes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Runs the program against a server that gives this answer, or against none.
fn ash(words: &[&str], answer: Option<&Value>) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rpc.sock");
    let server = answer.map(|answer| {
        let listener = UnixListener::bind(&path).unwrap();
        let body = answer.to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4];
            stream.read_exact(&mut head).unwrap();
            stream.read_exact(&mut vec![0; u32::from_be_bytes(head) as usize]).unwrap();
            let frame = [&(body.len() as u32).to_be_bytes(), body.as_bytes()].concat();
            stream.write_all(&frame).unwrap();
        })
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_ash"));
    let output = command.args(words).env_clear().env("ASH_RPC_SOCKET", &path).output().unwrap();
    if let Some(server) = server {
        server.join().unwrap();
    }
    output
}

#[track_caller]
fn check(output: &Output, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(output.status.code(), Some(code));
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout);
    assert_eq!(String::from_utf8_lossy(&output.stderr), stderr);
}

#[test]
fn a_result_is_on_stdout() {
    let rows = json!({"jsonrpc": "2.0", "id": 1, "result": [{"content": "tea", "similarity": 1}]});
    check(&ash(&["memory", "search", "q"], Some(&rows)), 0, "[1.00] tea\n", "");
}

#[test]
fn an_error_is_on_stderr_and_in_the_exit_code() {
    let refused =
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "limit\u{1b}"}});
    check(&ash(&["memory", "list"], Some(&refused)), 1, "", "Error: limit  (-32602)\n");
    let none = json!({"jsonrpc": "2.0", "id": 1, "result": {"deleted": false}});
    check(&ash(&["memory", "delete", "a"], Some(&none)), 1, "", "Error: memory not found: a\n");
    let said = "{\"deleted\":false}\n";
    let output = ash(&["memory", "delete", "a", "--json"], Some(&none));
    check(&output, 1, said, "Error: memory not found: a\n");
}

#[test]
fn a_host_that_is_not_there_is_named() {
    let output = ash(&["memory", "list"], None);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("Error: no connection to ") && said.contains("rpc.sock"), "{said}");
    assert!(said.contains("after 4 attempts: "), "{said}");
}

#[test]
fn a_wrong_command_line_has_a_code_of_its_own() {
    let said = "Error: there is no command \"x\" (ash --help says more)\n";
    check(&ash(&["x"], None), 2, "", said);
}
