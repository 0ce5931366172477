//! What a command is given and what is told of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::World;

async fn check(tool: &str, arguments: Value, expected: Result<&str, &str>) {
    let world = World::new().await;
    std::fs::create_dir(world.cwd.join("sub")).unwrap();
    let said = world.call(world.trusted(), tool, arguments.clone()).await;
    // Times differ.
    let without_time = |text: String| match text.split_once(", ") {
        Some((end, rest)) => {
            format!("{end}\n{}", rest.split_once('\n').map_or("", |(_, printed)| printed))
        }
        None => text,
    };
    let said = said.map(without_time);
    assert_eq!(said.as_ref().map(String::as_str).map_err(String::as_str), expected, "{arguments}");
}

#[tokio::test]
async fn a_program_is_run_as_given() {
    check("exec", json!({"argv": ["echo", "$HOME *", "b"]}), Ok("exit 0\n$HOME * b\n")).await;
    check("exec", json!({"argv": ["cat"]}), Ok("exit 0\n")).await;
    check("exec", json!({"argv": ["basename", "a/b"], "cwd": "sub"}), Ok("exit 0\nb\n")).await;
    let place = json!({"argv": ["sh", "-c", "basename \"$(pwd -P)\""], "cwd": "sub"});
    check("exec", place, Ok("exit 0\nsub\n")).await;
    check("exec", json!({"argv": ["false"]}), Ok("exit 1\n")).await;
}

#[tokio::test]
async fn how_it_ended_is_told() {
    check("shell_UNSAFE", json!({"command": "exit 7"}), Ok("exit 7\n")).await;
    check("shell_UNSAFE", json!({"command": "kill -9 $$"}), Ok("killed by signal 9\n")).await;
    check(
        "shell_UNSAFE",
        json!({"command": "printf out; printf err >&2"}),
        Ok("exit 0\nout\n--- stderr\nerr"),
    )
    .await;
    check("shell_UNSAFE", json!({"command": "printf 'a\\377b'"}), Ok("exit 0\na\u{fffd}b")).await;
}

#[tokio::test]
async fn a_simple_line_is_run_without_a_shell() {
    check("bash_safe", json!({"command": "echo 'a  b' c"}), Ok("exit 0\na  b c\n")).await;
    check("bash_safe", json!({"command": "basename \"$PWD\""}), Err(
        "$ needs a shell: put it in single quotes if it is meant literally, or use shell_UNSAFE",
    ))
    .await;
}

#[tokio::test]
async fn python_is_run() {
    check("run_python", json!({"code": "print(1 + 1)"}), Ok("exit 0\n2\n")).await;
    let long = format!("x = '{}'\nprint(len(x))", "a".repeat(300_000));
    check("run_python", json!({"code": long}), Ok("exit 0\n300000\n")).await;
}

#[tokio::test]
async fn what_cannot_be_run_is_said() {
    check("exec", json!({"argv": ["no-such-program"]}), Err("there is no program no-such-program"))
        .await;
    check("exec", json!({"argv": []}), Err("argv: the program is missing")).await;
    check(
        "exec",
        json!({"argv": ["true"], "cwd": "missing"}),
        Err("missing: no such file or directory"),
    )
    .await;
    check("exec", json!({"argv": ["a\0b"]}), Err("a\0b: nul byte found in provided data")).await;
    check("exec", json!({"argv": "ls"}), Err("invalid type: string \"ls\", expected a sequence"))
        .await;
}

#[tokio::test]
async fn a_gigabyte_is_neither_kept_nor_waited_for() {
    let world = World::new().await;
    let started = Instant::now();
    let said = world.shell(world.trusted(), "yes | head -c 1000000000; echo end >&2").await;
    assert!(said.starts_with("exit 0,") && said.ends_with("--- stderr\nend\n"));
    assert!(said.contains("[… 999967232 bytes cut …]") && said.len() < 40_000, "{}", said.len());
    assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
}
