//! `nexus3 session export` and `import`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::{Output, Server};
use crate::support::{create, history, say, sessions};

async fn imported(server: &Server, line: &[&str]) -> Value {
    let output = server.cli([&["session", "import"], line].concat()).await;
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output:?}");
    serde_json::from_str(&output.stdout).unwrap()
}

fn fails(output: &Output, why: &str) {
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output:?}");
    assert!(output.stderr.starts_with("Error: ") && output.stderr.contains(why), "{output:?}");
}

#[tokio::test]
async fn a_session_goes_to_a_file_and_back() {
    let server = Server::start().await;
    let wire = server.wire();
    let work = server.world.work().canonicalize().unwrap();
    fs::create_dir(work.join("sub")).unwrap();
    let made = json!({"agent_id": "a", "preset": "trusted", "cwd": work.join("sub"), "model": "scripted/big",
        "system_prompt": "Be brief.", "disable_tools": ["exec"]});
    wire.ok("create_agent", made).await;
    server.model().push(Reply::tool_call("list_directory", json!({"path": "."})));
    server.model().push(Reply::text("Nothing there. \u{1f600}"));
    say(&wire, "a", "Look.").await;
    // While the server runs, which goes on to own the agent.
    let printed = server.cli(["session", "export", "a"]).await;
    let file: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!((&file["format"], &file["version"]), (&json!("nexus3.session"), &json!(1)));
    assert_eq!(file["messages"].as_array().unwrap().len(), 4);
    let written = server.cli(["session", "export", "a", "-o", "a.json"]).await;
    assert_eq!((written.code, &*written.stdout), (Some(0), ""));
    let path = server.world.work().join("a.json");
    assert_eq!(serde_json::from_str::<Value>(&fs::read_to_string(&path).unwrap()).unwrap(), file);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    // What was there before, and who may read it, does not matter; nor does a link lead elsewhere.
    let (open, precious) = (server.world.work().join("open.json"), server.world.path("precious"));
    fs::write(&open, "{}").unwrap();
    fs::write(&precious, "precious").unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::symlink(&precious, server.world.work().join("link.json")).unwrap();
    let old = fs::File::open(&open).unwrap();
    for name in ["open.json", "link.json"] {
        let written = server.cli(["session", "export", "a", "-o", name]).await;
        assert_eq!(written.code, Some(0), "{written:?}");
        let found = server.world.work().join(name).symlink_metadata().unwrap();
        assert!(found.is_file() && found.permissions().mode() & 0o777 == 0o600, "{name}");
    }
    assert_eq!(std::io::read_to_string(old).unwrap(), "{}", "who had it open sees nothing new");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    let printed_again = server.cli(["session", "export", "a", "-o", "/dev/stdout"]).await;
    assert_eq!(printed_again.stdout, printed.stdout);
    let names = fs::read_dir(server.world.work()).unwrap().count();
    assert_eq!(names, ["a.json", "open.json", "link.json", "sub"].len(), "no draft is left");

    let answer = imported(&server, &["a.json", "--name", "b"]).await;
    let expected = json!({"imported": true, "session_name": "b", "message_count": 4,
        "permission_level": "sandboxed", "cwd": work});
    assert_eq!(answer, expected);
    assert_eq!(sessions(&wire).await, ["a", "b"]);
    wire.ok("load_session", json!({"session_name": "b"})).await;
    assert_eq!(history(&wire, "b").await, history(&wire, "a").await);
    let held = wire.ok("get_permissions", json!({"agent_id": "b"})).await;
    assert_eq!(held["policy"]["allowed_paths"], json!([work]));
    assert_eq!(held["policy"]["write_paths"], json!([]));
    assert!(held["disabled_tools"].as_array().unwrap().contains(&json!("exec")));
    assert!(!held["policy"]["blocked_paths"].as_array().unwrap().is_empty(), "our own files");
    assert_eq!(wire.ok("get_model", json!({"agent_id": "b"})).await["model"], "scripted/big");
    let prompt = wire.ok("get_system_prompt", json!({"agent_id": "b"})).await;
    assert_eq!(prompt["system_prompt"], "Be brief.");

    let answer =
        imported(&server, &["a.json", "--name", "c", "--preset", "trusted", "--own-cwd"]).await;
    assert_eq!(
        (&answer["permission_level"], &answer["cwd"]),
        (&json!("trusted"), &json!(work.join("sub")))
    );
    // What comes out again is what went in, but for what belongs to the place.
    let again = server.cli(["session", "export", "c"]).await;
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["messages"], file["messages"]);
}

#[tokio::test]
async fn the_originals_files_are_imported_without_their_rights() {
    let server = Server::start().await;
    let wire = server.wire();
    let file = |name: &str, level: &str| {
        json!({"schema_version": 1, "agent_id": name, "created_at": "2026-01-20T09:11:02.5", "modified_at": "2026-01-20T09:11:02",
            "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}],
            "system_prompt": "You are NEXUS3.", "system_prompt_path": null, "working_directory": "/",
            "permission_level": level, "permission_preset": level, "disabled_tools": [], "token_usage": {},
            "provenance": "user"})
    };
    for (name, level) in [("one", "yolo"), ("two", "trusted")] {
        let path = server.world.work().join(format!("{name}.json"));
        fs::write(path, file(name, level).to_string()).unwrap();
    }
    let output = server.cli(["session", "import", "one.json", "two.json"]).await;
    assert_eq!((output.code, output.stdout.lines().count()), (Some(0), 2), "{output:?}");
    for name in ["one", "two"] {
        wire.ok("load_session", json!({"session_name": name})).await;
        let held = wire.ok("get_permissions", json!({"agent_id": name})).await;
        assert_eq!(
            (&held["permission_level"], &held["commands"]),
            (&json!("sandboxed"), &json!(false))
        );
        let work = server.world.work().canonicalize().unwrap();
        assert_eq!(held["policy"]["allowed_paths"], json!([work]), "not where the file says");
        say(&wire, name, "And now?").await;
        assert_eq!(history(&wire, name).await[..2], ["user: Hi", "assistant: Hello."]);
    }
    let all = wire.ok("list_sessions", json!({})).await;
    assert!(
        all["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["created_at"].as_f64().unwrap() < 1.77e9)
    );
}

#[tokio::test]
async fn what_cannot_be_imported_is_refused_and_leaves_nothing() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    fails(&server.cli(["session", "export", "nobody"]).await, "there is no session nobody");
    fails(&server.cli(["session", "export", "a b"]).await, "may hold only letters");
    let exported = server.cli(["session", "export", "a"]).await.stdout;
    let at = |name: &str, text: &str| fs::write(server.world.work().join(name), text).unwrap();
    at("a.json", &exported);
    at("newer.json", &exported.replace("\"version\": 1", "\"version\": 2"));
    at("bad.json", "{");
    at("other.json", "{\"x\": 1}");
    for (line, why) in [
        (&["a.json"][..], "a.json was not imported: an agent named a exists already"),
        (&["a.json", "--name", ".t"], "is temporary"),
        (&["a.json", "--name", "b", "--preset", "yolo"], "only from the interactive terminal"),
        (&["a.json", "--name", "b", "--preset", "no"], "unknown preset: no"),
        (&["a.json", "--name", "b", "--cwd", "nowhere"], "there is no directory nowhere"),
        (&["a.json", "bad.json", "--name", "b"], "--name is for one file"),
        (&["newer.json"], "its version is 2; this program knows 1"),
        (&["bad.json"], "bad.json is not JSON"),
        (&["other.json"], "other.json is no session"),
        (&["missing.json"], "cannot read missing.json"),
        (&["."], "cannot read ."),
    ] {
        let output = server.cli([&["session", "import"], line].concat()).await;
        fails(&output, why);
    }
    let output = server.cli(["session", "import"]).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert_eq!(sessions(&server.wire()).await, ["a"]);
}
