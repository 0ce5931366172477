//! Agents that work, driven by the scripted model: what they may, what they may not, and whom they ask.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use crate::harness::{Server, Setup, Wire, eventually};
use crate::support::{history, say, waiting};

over_every_wire! {
    permissions_are_shown_explained_and_changed,
    what_needs_approval_is_denied_where_nobody_is_asked,
    an_approval_is_listed_and_answered: asking(),
    an_approval_shows_what_a_person_has_to_know: asking(),
    a_message_is_said_with_a_denial_only: asking(),
    what_a_command_may_take_is_configured: taking(),
    a_file_that_cannot_be_parsed_costs_one_call,
}

fn asking() -> Setup {
    Setup::new().config(json!({"permissions": {"approvals": "ask"}}))
}

fn taking() -> Setup {
    Setup::new().config(json!({
        "permissions": {"approvals": "ask"},
        "commands": {"memory": 64, "processes": 100, "processor_time": 1.5},
    }))
}

/// A directory of the agents', and a secret beside it.
fn places() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (inside, secret) = (root.join("inside"), root.join("secret.txt"));
    fs::create_dir(&inside).unwrap();
    fs::write(&secret, "TOP-SECRET").unwrap();
    fs::write(inside.join("note.txt"), "hello from the note\n").unwrap();
    (dir, inside, secret)
}

async fn make(wire: &Wire, agent: &str, preset: &str, cwd: &PathBuf) {
    wire.ok("create_agent", json!({"agent_id": agent, "preset": preset, "cwd": cwd})).await;
}

/// Lets the model make one call and returns what it was told.
async fn tool(wire: &Wire, agent: &str, name: &str, arguments: Value) -> String {
    wire.model().push(Reply::tool_call(name, arguments));
    wire.model().push(Reply::text("done"));
    assert_eq!(say(wire, agent, "go").await, "done");
    let lines = history(wire, agent).await;
    lines[lines.len() - 2].clone()
}

async fn what_a_command_may_take_is_configured(wire: &Wire) {
    let (_dir, inside, _) = places();
    make(wire, "a", "trusted", &inside).await;
    let shown = wire.ok("get_permissions", json!({"agent_id": "a"})).await;
    // Which of them holds it is a matter of the machine.
    let [launcher, kernel] = ["its launcher", "the kernel (cgroup v2) and its launcher"].map(|by| {
        format!(
            "64 MiB of memory, 100 processes and threads, 1.5 s of processor time for each command, held by {by}"
        )
    });
    assert!(shown["limits"] == launcher || shown["limits"] == kernel, "{shown}");
}

async fn a_file_that_cannot_be_parsed_costs_one_call(wire: &Wire) {
    let (_dir, inside, _) = places();
    make(wire, "a", "sandboxed", &inside).await;
    fs::write(inside.join("A.java"), "A<".repeat(200_000)).unwrap();
    let said = tool(wire, "a", "outline", json!({"path": "A.java"})).await;
    assert!(
        said.ends_with("could not be outlined: it takes more than 512 MiB of memory"),
        "{said}"
    );
    fs::write(inside.join("B.java"), "class B {}\n").unwrap();
    let said = tool(wire, "a", "outline", json!({"path": "B.java"})).await;
    assert!(said.ends_with("1-1 class B {}\n"), "{said}");
}

async fn permissions_are_shown_explained_and_changed(wire: &Wire) {
    let (_dir, inside, secret) = places();
    make(wire, "a", "trusted", &inside).await;
    let shown = wire.ok("get_permissions", json!({"agent_id": "a"})).await;
    assert_eq!(shown["permission_level"], "trusted");
    assert_eq!(shown["policy"]["cwd"], json!(inside));
    assert_eq!(shown["policy"]["allowed_paths"], Value::Null);
    assert_eq!(shown["policy"]["write_paths"], json!([inside]));
    assert_eq!(shown["session_allowances"], json!({"write_paths": [], "exec_dirs": {}}));
    assert_eq!((&shown["depth"], &shown["parent_agent_id"]), (&json!(0), &Value::Null));
    assert!(shown["sandbox"].as_str().is_some_and(|text| !text.is_empty()), "{shown}");

    let explain = async |tool: &str, arguments: Value| {
        let params = json!({"agent_id": "a", "tool": tool, "arguments": arguments});
        let said = wire.ok("explain_permission", params).await;
        (said["allowed"].clone(), said["needs_approval"].clone(), said["rule"].clone())
    };
    assert_eq!(
        explain("read_file", json!({"path": "note.txt"})).await,
        (json!(true), json!(false), Value::Null)
    );
    let elsewhere = explain("write_file", json!({"path": secret, "content": "x"})).await;
    assert_eq!(elsewhere, (json!(false), json!(true), json!("approval")));
    assert_eq!(
        explain("read_file", json!({})).await,
        (json!(false), json!(false), json!("schema"))
    );
    assert_eq!(explain("nope", json!({})).await.2, json!("known"));
    assert_eq!(explain("read_file", json!({"path": "/proc/1/environ"})).await.2, json!("path"));
    fs::create_dir(inside.join("sub")).unwrap();
    for (tool, arguments) in [
        ("exec", json!({"argv": ["ls"], "cwd": "sub"})),
        ("bash_safe", json!({"command": "ls", "cwd": inside.join("sub")})),
        ("git", json!({"args": ["-C", "sub", "commit", "-m", "x"]})),
        ("git", json!({"args": ["add", "."], "cwd": "sub/../sub"})),
    ] {
        let params = json!({"agent_id": "a", "tool": tool, "arguments": arguments});
        let said = wire.ok("explain_permission", params).await;
        let sub = format!("run a command with {tool} in {}", inside.join("sub").display());
        assert_eq!(said["reason"], sub, "{arguments}");
    }
    assert_eq!(explain("git", json!({"args": ["push", "--force"]})).await.2, json!("level"));

    let changed = wire
        .ok(
            "set_permissions",
            json!({"agent_id": "a", "preset": "sandboxed", "disable_tools": ["glob"]}),
        )
        .await;
    assert_eq!(
        changed,
        json!({"updated": true, "permission_level": "sandboxed", "preset": "sandboxed"})
    );
    assert_eq!(explain("glob", json!({"pattern": "*"})).await.2, json!("enabled"));
    // Given a file outside, git would compare it as it is.
    for outside in [json!(secret), json!("../secret.txt")] {
        let diff = json!({"args": ["diff", "/dev/null", outside]});
        assert_eq!(explain("git", diff).await.2, json!("path"), "{outside}");
    }
    let revisions = json!({"args": ["diff", "HEAD~1..HEAD", "--", "note.txt"]});
    assert_eq!(explain("git", revisions).await.0, json!(true));
    assert_eq!(explain("read_file", json!({"path": secret})).await.2, json!("path"));
    let fault = wire.refused("set_permissions", json!({"agent_id": "a", "preset": "yolo"})).await;
    assert!(fault.code == -32602 && fault.message.contains("interactive terminal"), "{fault:?}");
}

async fn what_needs_approval_is_denied_where_nobody_is_asked(wire: &Wire) {
    let (_dir, inside, secret) = places();
    make(wire, "a", "trusted", &inside).await;
    let said = tool(wire, "a", "write_file", json!({"path": secret, "content": "mine"})).await;
    assert!(said.contains("this server denies what needs approval"), "{said}");
    assert_eq!(fs::read_to_string(secret).unwrap(), "TOP-SECRET");
}

async fn an_approval_is_listed_and_answered(wire: &Wire) {
    let (_dir, inside, secret) = places();
    make(wire, "a", "trusted", &inside).await;
    for (decision, kept) in [("deny", "TOP-SECRET"), ("allow_once", "mine")] {
        let arguments = json!({"path": secret, "content": "mine"});
        let answer = async {
            eventually("an approval waits", async || {
                let listed = wire.ok("list_approvals", json!({"agent_id": "a"})).await;
                listed["approvals"].as_array().is_some_and(|list| !list.is_empty())
            })
            .await;
            let approval = &wire.ok("list_approvals", json!({})).await["approvals"][0];
            assert_eq!(approval["reason"], format!("write {}", secret.display()));
            assert_eq!(
                (&approval["tool"], &approval["status"]),
                (&json!("write_file"), &json!("pending"))
            );
            let params = json!({"approval_id": approval["approval_id"], "decision": decision});
            wire.ok("respond_approval", params.clone()).await;
            assert!(
                wire.refused("respond_approval", params).await.message.contains("decided already")
            );
        };
        let (said, ()) = tokio::join!(tool(wire, "a", "write_file", arguments), answer);
        assert_eq!(fs::read_to_string(&secret).unwrap(), kept, "{said}");
    }
    let all = wire.ok("list_approvals", json!({"include_decided": true})).await;
    let statuses: Vec<_> =
        all["approvals"].as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
    assert_eq!(statuses, ["denied", "allowed_once"]);
}

async fn an_approval_shows_what_a_person_has_to_know(wire: &Wire) {
    let (_dir, inside, secret) = places();
    make(wire, "a", "trusted", &inside).await;
    let answer = async {
        let write = waiting(wire).await;
        assert_eq!(write["lineage"], json!([]));
        assert_eq!(write["grant"], json!({"kind": "write", "path": secret}));
        let diff = "@@ -1,1 +1,1 @@\n-TOP-SECRET\n\\ No newline at end of file\n+mine\n\\ No newline at end of file\n";
        assert_eq!(
            write["preview"],
            json!({
                "kind": "diff", "path": secret, "diff": diff,
                "added": 1, "removed": 1, "truncated": false
            })
        );
        let (asked, ends) = (write["created_at"].as_str(), write["expires_at"].as_str());
        assert!(asked < ends, "{write}");
        assert_eq!((&write["decided_by"], &write["message"]), (&json!(null), &json!(null)));
        let deny = json!({
            "approval_id": write["approval_id"], "decision": "deny", "message": "Leave it be."
        });
        let denied = wire.ok("respond_approval", deny).await["approval"].clone();
        assert_eq!(
            (&denied["decided_by"], &denied["message"], &denied["status"]),
            (&json!("administrator"), &json!("Leave it be."), &json!("denied"))
        );
    };
    let arguments = json!({"path": secret, "content": "mine"});
    let (said, ()) = tokio::join!(tool(wire, "a", "write_file", arguments), answer);
    assert_eq!(said, "tool: Refused: denied: Leave it be.");

    let answer = async {
        let run = waiting(wire).await;
        assert_eq!(run["grant"], json!({"kind": "command", "tool": "exec", "dir": inside}));
        let preview = &run["preview"];
        assert_eq!(
            (&preview["kind"], &preview["argv"], &preview["cwd"]),
            (&json!("command"), &json!(["true", "x"]), &json!(inside))
        );
        assert!(preview["sandbox"].is_string(), "{preview}");
        let allow = json!({"approval_id": run["approval_id"], "decision": "allow_once"});
        wire.ok("respond_approval", allow).await;
    };
    let arguments = json!({"argv": ["true", "x"]});
    tokio::join!(tool(wire, "a", "exec", arguments), answer);
    let all = wire.ok("list_approvals", json!({"include_decided": true})).await;
    let kept = &all["approvals"];
    assert_eq!(kept[0]["message"], "Leave it be.");
    assert_eq!(kept[0]["preview"]["kind"], "diff");
    assert!(kept[1]["request_id"].is_string(), "{kept}");
}

async fn a_message_is_said_with_a_denial_only(wire: &Wire) {
    let (_dir, inside, secret) = places();
    make(wire, "a", "trusted", &inside).await;
    let answer = async {
        let id = waiting(wire).await["approval_id"].clone();
        let respond = |decision: &str, message: &str| json!({"approval_id": id, "decision": decision, "message": message});
        let longest = "ä".repeat(2_000);
        let refused = [
            ("allow_once", "x", "with a denial only"),
            ("allow_session", "x", "with a denial only"),
            ("deny", " \n", "blank"),
            ("deny", &format!("{longest}x"), "at most 2000 characters"),
        ];
        for (decision, message, why) in refused {
            let error = wire.refused("respond_approval", respond(decision, message)).await;
            assert_eq!(error.code, -32602);
            assert!(error.message.contains(why), "{error:?}");
        }
        wire.ok("respond_approval", respond("deny", &longest)).await;
    };
    let arguments = json!({"path": secret, "content": "mine"});
    let (said, ()) = tokio::join!(tool(wire, "a", "write_file", arguments), answer);
    assert!(said.ends_with('ä'), "{said}");
}

#[tokio::test]
async fn a_sandboxed_agent_reads_its_directory_and_changes_nothing() {
    let server = Server::start().await;
    let wire = server.wire();
    let (_dir, inside, secret) = places();
    std::os::unix::fs::symlink(&secret, inside.join("link")).unwrap();
    make(&wire, "a", "sandboxed", &inside).await;
    assert!(
        tool(&wire, "a", "read_file", json!({"path": "note.txt"}))
            .await
            .contains("hello from the note")
    );
    assert!(
        tool(&wire, "a", "search_text", json!({"pattern": "from the"})).await.contains("note.txt")
    );
    let token = server.token_file.clone();
    for path in [
        json!(secret),
        json!("../secret.txt"),
        json!("link"),
        json!("/proc/self/environ"),
        json!(token),
    ] {
        let said = tool(&wire, "a", "read_file", json!({"path": path})).await;
        assert!(said.contains("Refused") && !said.contains("TOP-SECRET"), "{path}: {said}");
    }
    let said = tool(&wire, "a", "write_file", json!({"path": "new.txt", "content": "x"})).await;
    assert!(said.contains("lies outside what this agent may write"), "{said}");
    let said = tool(&wire, "a", "exec", json!({"argv": ["touch", "new.txt"]})).await;
    assert!(said.contains("allows no commands"), "{said}");
    assert!(!inside.join("new.txt").exists());

    // What could only be refused is not offered.
    let offered = server.model().last_request().body["tools"].to_string();
    assert!(
        offered.contains("read_file")
            && !offered.contains("write_file")
            && !offered.contains("exec"),
        "{offered}"
    );
}

#[tokio::test]
async fn not_even_a_trusted_agent_reads_the_servers_own_files() {
    let server = Server::start().await;
    let wire = server.wire();
    let (_dir, inside, _) = places();
    make(&wire, "a", "trusted", &inside).await;
    let said =
        tool(&wire, "a", "read_file", json!({"path": server.token_file.clone().unwrap()})).await;
    assert!(said.contains("is a blocked path"), "{said}");
}

#[tokio::test]
async fn a_trusted_agent_edits_tests_and_commits_a_repository() {
    let server = asking().start().await;
    let wire = server.wire();
    let (_dir, inside, _) = places();
    let git = |args: &[&str]| {
        let done = Command::new("git").args(args).current_dir(&inside).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    git(&["init", "-q"]);
    git(&["config", "user.name", "t"]);
    git(&["config", "user.email", "t@example.org"]);
    make(&wire, "a", "trusted", &inside).await;

    let edit = json!({"path": "note.txt", "old_string": "hello", "new_string": "goodbye"});
    tool(&wire, "a", "edit_file", edit).await;
    assert_eq!(fs::read_to_string(inside.join("note.txt")).unwrap(), "goodbye from the note\n");

    // The first command of each tool is asked for; the person allows it for the session.
    let allow = async |name: &str, arguments: Value| {
        let approve = async {
            eventually("an approval waits", async || {
                let waiting = wire.ok("list_approvals", json!({})).await["approvals"].clone();
                let Some(approval) = waiting.get(0) else { return false };
                let params =
                    json!({"approval_id": approval["approval_id"], "decision": "allow_session"});
                wire.ok("respond_approval", params).await;
                true
            })
            .await;
        };
        tokio::join!(tool(&wire, "a", name, arguments), approve).0
    };
    let tested = allow("exec", json!({"argv": ["grep", "-c", "goodbye", "note.txt"]})).await;
    assert!(tested.contains('1'), "{tested}");
    let again = tool(&wire, "a", "exec", json!({"argv": ["touch", "tested"]})).await;
    assert!(inside.join("tested").exists(), "granted for the session: {again}");
    // The server does without huge pages; what its agents run need not. A command cannot see that of itself.
    assert_eq!(server.status("THP_enabled:"), "0");
    let waits = "echo $$ > pid.new; mv pid.new pid; while [ ! -e seen ]; do sleep 0.01; done";
    let look = async {
        eventually("the command runs", async || inside.join("pid").exists()).await;
        let pid = fs::read_to_string(inside.join("pid")).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap();
        fs::write(inside.join("seen"), "").unwrap();
        assert!(status.contains("THP_enabled:\t1"), "{status}");
    };
    tokio::join!(tool(&wire, "a", "exec", json!({"argv": ["sh", "-c", waits]})), look);
    allow("git", json!({"args": ["add", "note.txt"]})).await;
    let committed =
        tool(&wire, "a", "git", json!({"args": ["commit", "-q", "-m", "Say goodbye"]})).await;
    assert!(git(&["log", "--format=%s"]).contains("Say goodbye"), "{committed}");

    // The grant survives a kill, and so does what it does not reach.
    let server = server.restart().await;
    let wire = server.wire();
    let shown = wire.ok("get_permissions", json!({"agent_id": "a"})).await;
    assert_eq!(shown["session_allowances"]["exec_dirs"]["exec"], json!([inside]));
    let outside = tool(&wire, "a", "exec", json!({"argv": ["touch", "../escaped"]})).await;
    assert!(!inside.parent().unwrap().join("escaped").exists(), "{outside}");
}

#[tokio::test]
async fn exec_tells_a_denial_from_success_and_from_failure() {
    let server = asking().start().await;
    let (_dir, _, secret) = places();
    let run = async || server.cli(["exec", "go", "--preset", "trusted"]).await;
    server.model().push(Reply::tool_call("write_file", json!({"path": secret, "content": "mine"})));
    server.model().push(Reply::text("as you wish"));
    let denied = run().await;
    assert_eq!((denied.code, denied.stdout.as_str()), (Some(3), "as you wish\n"), "{denied:?}");
    assert!(denied.stderr.contains("Refused: it needs approval"), "{denied:?}");
    server.model().push(Reply::tool_call("file_info", json!({"path": secret})));
    server.model().push(Reply::text("seen"));
    assert_eq!(run().await.code, Some(0));
    server.model().push(Reply::status(400));
    assert_eq!(run().await.code, Some(1));
}

#[tokio::test]
async fn a_parent_collects_the_answers_of_three_children() {
    let server = Server::start().await;
    let wire = server.wire();
    let (_dir, inside, _) = places();
    make(&wire, "boss", "trusted", &inside).await;
    let create = |name: &str| json!({"agent_id": name});
    let created = Reply::tool_call("nexus_create", create("k1"))
        .then_tool_call("nexus_create", create("k2"))
        .then_tool_call("nexus_create", create("k3"));
    let ask = |name: &str| json!({"agent_id": name, "content": format!("report, {name}")});
    let asked = Reply::tool_call("nexus_send", ask("k1"))
        .then_tool_call("nexus_send", ask("k2"))
        .then_tool_call("nexus_send", ask("k3"));
    server.model().push(created);
    server.model().push(asked);
    for _ in 0..3 {
        server.model().push(Reply::echo());
    }
    server.model().push(Reply::text("all done"));
    assert_eq!(say(&wire, "boss", "go").await, "all done");
    let lines = history(&wire, "boss").await;
    for name in ["k1", "k2", "k3"] {
        assert!(lines.iter().any(|line| line.contains(&format!("report, {name}"))), "{lines:?}");
        assert_eq!(
            wire.ok("get_permissions", json!({"agent_id": name})).await["parent_agent_id"],
            "boss"
        );
    }
}

#[tokio::test]
async fn an_approval_that_waits_in_another_process_says_which() {
    let world = asking().world().await;
    let second = asking().no_socket();
    let (one, two) = tokio::join!(asking().start_in(&world), second.start_in(&world));
    let (first, other) = (one.wire(), two.wire());
    let (_dir, inside, secret) = places();
    let call = Reply::tool_call("write_file", json!({"path": secret, "content": "mine"}));
    let params = |name: &str| json!({"agent_id": name, "preset": "trusted", "cwd": inside, "initial_message": "go"});
    for name in ["a", ".t"] {
        one.model().push(call.clone());
        first.ok("create_agent", params(name)).await;
        eventually("an approval waits", async || {
            first.ok("list_approvals", json!({})).await["approvals"][0].is_object()
        })
        .await;
        let listed = first.ok("list_approvals", json!({})).await;
        let approval =
            json!({"approval_id": listed["approvals"][0]["approval_id"], "decision": "deny"});
        let fault = other.refused("respond_approval", approval.clone()).await;
        assert_eq!((fault.code, &*fault.message), (-32001, "The approval waits elsewhere"));
        let details = fault.data["details"].as_str().unwrap();
        assert!(details.contains("waits in another process (process "), "{details}");
        let owner = &fault.data["owner"];
        assert_eq!(owner["url"], format!("http://{}", one.address), "{owner}");
        assert_eq!(owner["socket"], json!(world.socket()), "{owner}");
        assert!(owner["pid"].is_u64(), "{owner}");
        // A temporary agent is known in its own process only.
        let shown = other.ok("list_approvals", json!({"include_decided": true})).await;
        let shown: Vec<_> = shown["approvals"].as_array().unwrap().iter().collect();
        assert!(shown.iter().all(|approval| approval["agent_id"] == "a"), "{shown:?}");
        first.ok("respond_approval", approval).await;
    }
}

/// What an agent may do follows from its ancestors as they are now, wherever those live.
#[tokio::test]
async fn a_parent_that_is_narrowed_in_one_process_narrows_its_child_in_another() {
    let world = Setup::new().world().await;
    let (_dir, inside, _) = places();
    let first = Setup::new().start_in(&world).await;
    make(&first.wire(), "parent", "trusted", &inside).await;
    let child = json!({"agent_id": "child", "parent_agent_id": "parent", "preset": "sandboxed",
        "cwd": inside, "allowed_write_paths": [inside]});
    first.wire().ok("create_agent", child).await;
    // After a restart each agent lives where it is first asked for.
    let one = first.restart().await;
    let two = Setup::new().no_socket().start_in(&world).await;
    let (one, two) = (one.wire(), two.wire());
    one.ok("get_context", json!({"agent_id": "parent"})).await;
    let write = json!({"agent_id": "child", "tool": "write_file",
        "arguments": {"path": inside.join("x"), "content": "x"}});
    let allowed = two.ok("explain_permission", write.clone()).await;
    assert_eq!(allowed["allowed"], true, "{allowed}");
    one.ok("set_permissions", json!({"agent_id": "parent", "preset": "sandboxed"})).await;
    let refused = two.ok("explain_permission", write).await;
    assert_eq!((&refused["allowed"], &refused["rule"]), (&json!(false), &json!("path")));
}

#[tokio::test]
async fn a_command_does_not_become_the_administrator_of_a_server_without_a_token() {
    let server = asking().arg("--no-auth").start().await;
    let wire = server.wire();
    let (_dir, inside, _) = places();
    make(&wire, "a", "trusted", &inside).await;
    assert_eq!(wire.ok("get_permissions", json!({"agent_id": "a"})).await["network"], false);
    let connect = "import socket; socket.create_connection(('127.0.0.1', 1))";
    let approve = eventually("an approval waits", async || {
        let waiting = wire.ok("list_approvals", json!({})).await["approvals"].clone();
        let Some(approval) = waiting.get(0) else { return false };
        let params = json!({"approval_id": approval["approval_id"], "decision": "allow_once"});
        wire.ok("respond_approval", params).await;
        true
    });
    let run = tool(&wire, "a", "run_python", json!({"code": connect}));
    let (said, ()) = tokio::join!(run, approve);
    assert!(said.contains("Operation not permitted"), "{said}");
}

#[tokio::test]
async fn an_approval_that_a_kill_cut_off_is_denied_by_the_restart() {
    let server = asking().start().await;
    let wire = server.wire();
    let (_dir, inside, secret) = places();
    make(&wire, "a", "trusted", &inside).await;
    server.model().push(Reply::tool_call("write_file", json!({"path": secret, "content": "mine"})));
    let sent = wire
        .ok(
            "create_agent",
            json!({"agent_id": "b", "preset": "trusted", "cwd": inside, "initial_message": "go"}),
        )
        .await;
    assert_eq!(sent["initial_status"], "queued");
    eventually("an approval waits", async || {
        wire.ok("list_approvals", json!({})).await["approvals"][0].is_object()
    })
    .await;
    let server = server.restart().await;
    let wire = server.wire();
    assert_eq!(wire.ok("list_approvals", json!({})).await, json!({"approvals": []}));
    let all = wire.ok("list_approvals", json!({"include_decided": true})).await;
    assert_eq!(all["approvals"][0]["status"], "denied_by_restart");
    assert_eq!(fs::read_to_string(secret).unwrap(), "TOP-SECRET");
}
