//! Checking code: `validate_code` and `nexus3 check`.

use std::fs;

use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Framed, Output, Server, Setup, Wire, World, eventually};

over_every_wire! {
    a_syntax_error_is_a_diagnostic,
    rules_are_checked_by_their_own_names,
    bad_parameters_are_named,
    a_check_has_so_much_time,
}

over_every_wire_of_messages! {
    a_batch_is_answered_in_its_order,
}

async fn validate(wire: &Wire, language: &str, code: &str) -> Value {
    wire.ok("validate_code", json!({"code": code, "language": language})).await
}

async fn a_syntax_error_is_a_diagnostic(wire: &Wire) {
    let checked = validate(wire, "js", "const ä = 1;\nlet = ;\n").await;
    assert_eq!(checked["diagnostics"][0]["rule"], "syntax", "{checked}");
    assert_eq!(checked["diagnostics"][0]["severity"], "error");
    assert_eq!(checked["diagnostics"][0]["line"], 2);
    assert_eq!((&checked["valid"], &checked["language"]), (&json!(false), &json!("javascript")));
    let checked = validate(wire, "JSON", "{\"a\": [1, 2}").await;
    let expected = json!({
        "valid": false, "language": "json",
        "diagnostics": [{
            "rule": "syntax", "severity": "error", "message": "expected `,` or `]`",
            "line": 1, "column": 12, "end_line": 1, "end_column": 13,
        }],
        "error_count": 1, "warning_count": 0, "rules_applied": ["syntax"], "rules_unsupported": [],
    });
    assert_eq!(checked, expected);
    let checked = validate(wire, "json", "{\"a\": [1, 2]}").await;
    let expected = json!({
        "valid": true, "language": "json", "diagnostics": [], "error_count": 0, "warning_count": 0,
        "rules_applied": ["syntax"], "rules_unsupported": [],
    });
    assert_eq!(checked, expected);
}

async fn rules_are_checked_by_their_own_names(wire: &Wire) {
    // As the seed prints it.
    let params = json!({
        "code": "const unused = 1;\nconsole.log('x');\n", "language": "javascript",
        "rules": ["no-unused-vars", "no-console", "no-such-rule"],
    });
    let checked = wire.ok("validate_code", params).await;
    let found: Vec<_> = checked["diagnostics"].as_array().unwrap().iter().collect();
    let places: Vec<_> = found.iter().map(|it| (&it["rule"], &it["line"], &it["column"])).collect();
    let (unused, console) = (json!("no-unused-vars"), json!("no-console"));
    assert_eq!(places, [(&unused, &json!(1), &json!(7)), (&console, &json!(2), &json!(1))]);
    assert_eq!(checked["rules_applied"], json!(["syntax", "no-unused-vars", "no-console"]));
    assert_eq!(checked["rules_unsupported"], json!(["no-such-rule"]));
    assert_eq!((&checked["valid"], &checked["error_count"]), (&json!(false), &json!(2)));

    let params = json!({
        "code": "import os\n", "language": "python", "rules": ["F401"], "options": {"stream": false, "x": 1},
    });
    let checked = wire.ok("validate_code", params).await;
    assert_eq!(checked["diagnostics"][0]["rule"], "F401", "{checked}");
    // A rule is some linter's, and Go has none here.
    let params = json!({"code": "package main\n", "language": "go", "rules": ["F401"]});
    let checked = wire.ok("validate_code", params).await;
    assert_eq!(
        (&checked["valid"], &checked["rules_unsupported"]),
        (&json!(true), &json!(["F401"]))
    );
}

async fn bad_parameters_are_named(wire: &Wire) {
    let known = "javascript, typescript, jsx, tsx, python, rust, go, java, c, cpp, bash, json, yaml, toml, html, css, sql";
    let unknown = format!("language \"cobol\" is not known; known are {known}");
    for (params, path, message) in [
        (json!({"code": "", "language": "cobol"}), "/language", &*unknown),
        (json!({"language": "js"}), "/code", "Missing required parameter: code"),
        (json!({"code": 1, "language": "js"}), "/code", "code must be string, got: integer"),
        (json!({"code": "", "language": "js", "rule": []}), "/rule", "Unknown parameter: rule"),
        (
            json!({"code": "a\0b", "language": "js"}),
            "/code",
            "code must be text: it has a NUL character",
        ),
        (
            json!({"code": "", "language": "js", "rules": ["no-var", ""]}),
            "/rules/1",
            "a rule must be 1 to 128 bytes long",
        ),
        (
            json!({"code": "", "language": "js", "rules": vec!["no-var"; 257]}),
            "/rules",
            "rules must be at most 256",
        ),
        (
            json!({"code": "", "language": "js", "options": {"timeout_ms": 0}}),
            "/options/timeout_ms",
            "options.timeout_ms must be between 1 and 3600000, got: 0",
        ),
    ] {
        let fault = wire.refused("validate_code", params).await;
        assert_eq!((fault.code, &*fault.message), (-32602, message));
        assert_eq!(fault.data["path"], path);
    }
    let most = json!({"code": "", "language": "js", "rules": vec!["no-var"; 256]});
    assert_eq!(wire.ok("validate_code", most).await["valid"], true);
}

/// A process has to be started for it, which takes longer than a millisecond.
async fn a_check_has_so_much_time(wire: &Wire) {
    let code = "x = [1, 2, 3]\n".repeat(20_000);
    let params = json!({"code": code, "language": "python", "options": {"timeout_ms": 1}});
    let fault = wire.refused("validate_code", params).await;
    assert_eq!((fault.code, &*fault.message), (-32000, "Execution timeout"));
    assert_eq!(fault.data["type"], "TIMEOUT");
    assert_eq!(fault.data["details"], "The code could not be checked within 1ms");
    assert_eq!(validate(wire, "python", "x = 1").await["valid"], true);
}

async fn a_batch_is_answered_in_its_order(wire: &Wire) {
    let call = |n: usize| {
        let code =
            if n.is_multiple_of(7) { format!("{{\"n\": {n}") } else { format!("{{\"n\": {n}}}") };
        request(n, "validate_code", json!({"code": code, "language": "json"}))
    };
    let batch = format!("[{}]", (0..100).map(call).collect::<Vec<_>>().join(","));
    let answers = wire.exchange(batch).await;
    for (n, answer) in answers.as_array().unwrap().iter().enumerate() {
        assert_eq!(
            (&answer["id"], &answer["result"]["valid"]),
            (&json!(n), &json!(!n.is_multiple_of(7)))
        );
    }
    assert_eq!(answers.as_array().unwrap().len(), 100);
}

/// What stands in every language, and is not too much for it.
const VALID: [(&str, &str); 17] = [
    ("javascript", "export const f = async (x) => x?.y ?? 1;\n"),
    ("typescript", "interface A { b?: string }\nexport const f = (a: A): string => a.b!;\n"),
    ("jsx", "export const f = () => <p class=\"x\">{1}</p>;\n"),
    ("tsx", "export const f = (x: number) => <p>{x as number}</p>;\n"),
    (
        "python",
        "def f(x: int) -> str:\n    match x:\n        case 1:\n            return f'{x!r}'\n    return ''\n",
    ),
    (
        "rust",
        "fn main() -> Result<(), ()> { let Some(x) = Some(1) else { return Err(()) }; println!(\"{x}\"); Ok(()) }\n",
    ),
    (
        "go",
        "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(map[string]int{\"a\": 1}) }\n",
    ),
    (
        "java",
        "record P(int x) { static int f(Object o) { return switch (o) { case P p -> p.x(); default -> 0; }; } }\n",
    ),
    ("c", "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", (int){1}); return 0; }\n"),
    (
        "cpp",
        "#include <vector>\ntemplate <typename T> auto f(const std::vector<T>& v) { return [&] { return v.size(); }; }\n",
    ),
    ("bash", "for f in *.txt; do [[ -f $f ]] && cat <<EOF >\"${f%.txt}.md\"\nx\nEOF\ndone\n"),
    ("json", "[1, {\"a\": null}]\n"),
    ("yaml", "a: &x [1, two]\nb: *x\nc: |\n  text\n---\n- d\n"),
    ("toml", "a = 1\n[b]\nc = [1979-05-27, 'x']\n[[d]]\n"),
    ("html", "<!doctype html>\n<html><body><p>a<br><ul><li>b<li>c</ul></body></html>\n"),
    ("css", "@media (min-width: 1px) { a > b:hover { color: #fff; --x: 1 } }\n"),
    ("sql", "SELECT a, count(*) FROM t WHERE b IN (1, 2) GROUP BY a ORDER BY 2 DESC;\n"),
];

/// The same, broken.
const BROKEN: [(&str, &str); 17] = [
    ("javascript", "function f( { return 1 }\n"),
    ("typescript", "const a: = 1;\n"),
    ("jsx", "const a = <p>;\n"),
    ("tsx", "const a = <p></q>;\n"),
    ("python", "def f(:\n    pass\n"),
    ("rust", "fn main() { let = 1; }\n"),
    ("go", "package main\nfunc main() { x := }\n"),
    ("java", "class A { void f() { int = 1; } }\n"),
    ("c", "int main(void) { return 0;\n"),
    ("cpp", "class A { void f( { } };\n"),
    ("bash", "if true; then echo\n"),
    ("json", "{\"a\": 1,}\n"),
    ("yaml", "a: [1\nb: 2\n"),
    ("toml", "a = \n"),
    ("html", "<div><b>a</div>\n"),
    ("css", "a { color: red\n"),
    ("sql", "SELECT a FROM t WHERE;\n"),
];

#[tokio::test]
async fn every_language_is_read() {
    let server = Server::start().await;
    let wire = server.wire();
    for (language, code) in VALID {
        for code in [code.to_owned(), format!("\u{feff}{code}"), code.replace('\n', "\r\n")] {
            let checked = validate(&wire, language, &code).await;
            assert_eq!(checked["valid"], true, "{language}: {code:?}: {checked}");
        }
    }
    for (language, code) in BROKEN {
        let checked = validate(&wire, language, code).await;
        let first = &checked["diagnostics"][0];
        assert_eq!(
            (&checked["valid"], &first["rule"]),
            (&json!(false), &json!("syntax")),
            "{language}"
        );
        assert!(!first["message"].as_str().unwrap().is_empty(), "{language}: {first}");
    }
    // Nothing is a text too, of which JSON makes something else.
    for (language, _) in VALID {
        let checked = validate(&wire, language, "").await;
        assert_eq!(checked["valid"], language != "json", "{language}: {checked}");
    }
}

/// Whatever it is given, a check ends and harms no other.
#[tokio::test]
async fn hostile_code_harms_nobody() {
    let server = Server::start().await;
    let mut connection = server.unix().await;
    for (language, valid) in VALID {
        let balanced = format!("x = {}1{}", "(".repeat(50_000), ")".repeat(50_000));
        let no_text = String::from_utf8_lossy(&binary(64 << 10)).replace('\0', " ");
        for code in
            ["(".repeat(100_000), "[".repeat(100_000), balanced, "x".repeat(1 << 20), no_text]
        {
            let answer = ask(&mut connection, language, &code).await;
            match &answer["error"] {
                Value::Null => assert!(answer["result"]["valid"].is_boolean()),
                error => {
                    assert_eq!(error["data"]["type"], "EXECUTION_ERROR", "{language}: {error}")
                }
            }
        }
        let answer = ask(&mut connection, language, valid).await;
        assert_eq!(answer["result"]["valid"], true, "{language}: {answer}");
    }
}

/// Code that is too much for a linter: by its time, its memory, its depth.
#[tokio::test]
async fn a_bound_that_code_exceeds_is_named() {
    let server = Server::start().await;
    let hostile = ["{".repeat(100_000), "a:\n".repeat(300_000), "[(".repeat(300_000)];
    let checks = hostile.iter().map(async |code| {
        let mut connection = server.unix().await;
        let answer = ask(&mut connection, "javascript", code).await;
        let error = &answer["error"];
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-32000), &json!("Execution failed"))
        );
        let bounds = ["checked within 10 s", "within 1024 MiB of memory", "nests too deeply"];
        let details = error["data"]["details"].as_str().unwrap();
        assert!(bounds.iter().any(|bound| details.contains(bound)), "{details}");
    });
    join_all(checks).await;
    assert_eq!(validate(&server.wire(), "javascript", "f();").await["valid"], true);
}

async fn ask(connection: &mut Framed, language: &str, code: &str) -> Value {
    let params = json!({"code": code, "language": language, "rules": ["recommended"]});
    connection.send(request(1, "validate_code", params).as_bytes()).await;
    connection.message().await
}

/// Bytes without a meaning, always the same.
fn binary(length: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[tokio::test]
async fn code_has_so_many_bytes_and_no_more() {
    let server = Server::start().await;
    let mut connection = server.unix().await;
    for (more, code) in [(0, Value::Null), (1, json!(-32602))] {
        let text = format!("\"{}\"", "x".repeat((2 << 20) - 2 + more));
        let params = json!({"code": text, "language": "json"});
        connection.send(request(1, "validate_code", params).as_bytes()).await;
        let answer = connection.message().await;
        assert_eq!(answer["error"]["code"], code, "{}", answer["error"]);
    }
}

/// The processes that a process has started and that are there.
fn children(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists =
        tasks.flatten().filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect()
}

#[tokio::test]
async fn a_worker_that_is_killed_is_replaced_and_one_ends_with_its_server() {
    let mut server = Server::start().await;
    let wire = server.wire();
    let pid: u32 = server.status("Pid:").parse().unwrap();
    assert_eq!(children(pid).len(), 0, "nothing is started before it is needed");
    validate(&wire, "json", "1").await;
    let [worker] = children(pid)[..] else { panic!("one call needs one worker") };
    kill_process(Pid::from_raw(worker).unwrap(), Signal::KILL).unwrap();
    eventually("the worker to go", async || !is_there(worker)).await;
    assert_eq!(validate(&wire, "json", "1").await["valid"], true);
    let [worker] = children(pid)[..] else { panic!("the worker was replaced by one") };
    server.signal(Signal::KILL);
    server.exit().await;
    eventually("the worker to end with its server", async || !is_there(worker)).await;
}

/// Whether a process runs, and is not only waited for.
fn is_there(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" Z"))
}

async fn check(world: &World, args: &[&str]) -> Output {
    crate::harness::process::run(world.command([&["check"], args].concat())).await
}

#[tokio::test]
async fn files_are_checked_on_the_command_line() {
    let world = Setup::new().world().await;
    let write = |name: &str, text: &[u8]| {
        let path = world.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = write("good.py", b"import os\nprint(os.name)\n");
    let bad = write("bad.js", b"const a = 1;\nconsole.log(b);\n");
    let broken = write("broken.json", b"[1,]\n");
    let (unknown, blob) = (write("what.xyz", b"x"), write("blob.py", b"\xff\xfe\x00"));

    let output = check(&world, &[&good, &bad]).await;
    assert_eq!((output.code, &*output.stdout, &*output.stderr), (Some(0), "", ""));
    let output = check(&world, &["--rule", "no-undef", "--rule", "F401", &good, &bad]).await;
    let found = format!("{bad}:2:13: error: b is not defined [no-undef]\n");
    assert_eq!((output.code, &*output.stdout), (Some(1), &*found), "{output:?}");
    let missing = format!(
        "{good}: not checked in python: no-undef\n{bad}: not checked in javascript: F401\n"
    );
    assert_eq!(output.stderr, missing);
    let output = check(&world, &["--json", &good, &broken]).await;
    let lines: Vec<Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((output.code, lines.len()), (Some(1), 2), "{output:?}");
    assert_eq!((&lines[0]["valid"], &lines[1]["valid"]), (&json!(true), &json!(false)));
    assert_eq!(lines[1]["file"], broken.as_str());

    for (file, why) in [
        (&*unknown, "its language is not known; name it with --language: javascript"),
        (&*blob, "the file is not UTF-8 text (from byte 0 on)"),
        ("nowhere.js", "No such file or directory"),
    ] {
        let output = check(&world, &[file, &good]).await;
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.starts_with(&format!("{file}: {why}")), "{output:?}");
    }
    let output = check(&world, &["--language", "json", &unknown]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let shell = format!("echo '[1' | {} check - --language json", env!("CARGO_BIN_EXE_nexus3"));
    let output = crate::harness::process::run(world.shell(&shell)).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stdout.starts_with("-:2:1: error: "), "{output:?}");
}
