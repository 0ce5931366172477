//! MCP servers of the editor's settings, and its further directories.

use std::fs;

use nexus_testkit::Reply;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use super::editor::{Desk, Editor};
use crate::harness::eventually;
use crate::mcp::server::server;

/// A server that behaves so, as an editor names it.
fn brought(name: &str, behaviour: &str) -> Value {
    let mut server = server(behaviour);
    let env = server["env"].take();
    let env = env.as_object().unwrap().iter();
    let env: Vec<_> = env.map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({"name": name, "command": server["command"], "args": server["args"], "env": env})
}

async fn session(editor: &mut Editor, servers: Value) -> String {
    let params = json!({"cwd": editor.cwd, "mcpServers": servers});
    let opened = editor.ok("session/new", params).await;
    opened["sessionId"].as_str().unwrap().to_owned()
}

/// Lets the model call a tool, allows it, and returns what came of it.
async fn called(
    desk: &Desk,
    editor: &mut Editor,
    session: &str,
    tool: &str,
    arguments: Value,
) -> String {
    desk.world.model.push(Reply::tool_call(tool, arguments));
    desk.world.model.push(Reply::text("done"));
    let before = desk.world.model.requests().len();
    let prompt = editor.begin(session, "go").await;
    let asked = editor.asked("session/request_permission").await;
    let answer = json!({"outcome": {"outcome": "selected", "optionId": option(&asked)}});
    editor.reply(&asked, answer).await;
    assert_eq!(editor.stopped(prompt).await, "end_turn");
    let requests = desk.world.model.requests();
    let messages = requests[before + 1].body["messages"].as_array().unwrap().clone();
    messages.last().unwrap()["content"].as_str().unwrap().to_owned()
}

fn option(asked: &Value) -> String {
    let options = asked["params"]["options"].as_array().unwrap();
    let once = options.iter().find(|it| it["kind"] == "allow_once").unwrap();
    once["optionId"].as_str().unwrap().to_owned()
}

fn is_alive(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

#[tokio::test]
async fn servers_of_the_editor_are_the_sessions_alone_and_end_with_it() {
    for desk in Desk::both().await {
        let mut editor = desk.silent(&[]);
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let hello = editor.ok("initialize", params).await;
        let can = &hello["agentCapabilities"];
        assert_eq!(can["mcpCapabilities"]["http"], true, "{hello}");
        assert_ne!(can["mcpCapabilities"]["sse"], true, "{hello}");
        assert_eq!(can["sessionCapabilities"]["additionalDirectories"], json!({}), "{hello}");
        let with = session(&mut editor, json!([brought("My Tools", "modern")])).await;
        let without = session(&mut editor, json!([])).await;
        let said =
            called(&desk, &mut editor, &with, "mcp_my-tools_echo", json!({"text": "hi"})).await;
        assert_eq!(said, "echo: hi");
        // It reads the session's directory, writes its own, and has no network.
        fs::write(desk.world.work().join("file"), "here").unwrap();
        let file = json!({"path": desk.world.work().join("file")});
        let said = called(&desk, &mut editor, &with, "mcp_my-tools_read", file.clone()).await;
        assert_eq!(said, "Ok(\"here\")");
        let said = called(&desk, &mut editor, &with, "mcp_my-tools_write", file).await;
        assert_eq!(said, "Err(PermissionDenied)");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = json!({"to": listener.local_addr().unwrap().to_string()});
        let said = called(&desk, &mut editor, &with, "mcp_my-tools_connect", to).await;
        assert!(said.starts_with("Err"), "{said}");
        // The other session knows nothing of it.
        desk.world.model.push(Reply::tool_call("mcp_my-tools_echo", json!({"text": "x"})));
        desk.world.model.push(Reply::text("done"));
        assert_eq!(editor.prompt(&without, "go").await, "end_turn");
        let last = desk.world.model.requests().last().unwrap().body["messages"].to_string();
        assert!(last.contains("no tool named mcp_my-tools_echo"), "{last}");

        let forked = called(&desk, &mut editor, &with, "mcp_my-tools_fork", json!({})).await;
        let forked: i32 = forked.parse().unwrap();
        assert!(is_alive(forked));
        editor.ok("session/close", json!({"sessionId": with})).await;
        eventually("its processes to end", async || !is_alive(forked)).await;

        // Loaded with it again, and ended with the editor.
        let params = json!({"sessionId": with, "cwd": editor.cwd, "mcpServers": [brought("My Tools", "modern")]});
        editor.ok("session/resume", params.clone()).await;
        let forked = called(&desk, &mut editor, &with, "mcp_my-tools_fork", json!({})).await;
        let forked: i32 = forked.parse().unwrap();
        // The same list again: what was brought before is let go of.
        editor.ok("session/load", params).await;
        eventually("its processes to end", async || !is_alive(forked)).await;
        let forked = called(&desk, &mut editor, &with, "mcp_my-tools_fork", json!({})).await;
        let forked: i32 = forked.parse().unwrap();
        assert_eq!(editor.finish().await, Some(0));
        eventually("its processes to end", async || !is_alive(forked)).await;
        if let Some(server) = &desk.server {
            let listed = server.wire().ok("mcp_list_servers", json!({"agent_id": with})).await;
            assert_eq!(listed["servers"], json!([]));
        }
    }
}

/// One that is killed leaves them to the next who opens the session, and to whatever ends a server that nobody uses.
#[tokio::test]
async fn what_a_killed_editor_brought_is_not_the_next_ones() {
    let desk = Desk::bridged().await;
    let server = desk.server.as_ref().unwrap();
    let mut editor = desk.editor().await;
    let id = session(&mut editor, json!([brought("s", "")])).await;
    let said = called(&desk, &mut editor, &id, "mcp_s_echo", json!({"text": "x"})).await;
    assert_eq!(said, "echo: x");
    editor.kill().await;
    let mut editor = desk.editor().await;
    let params = json!({"sessionId": id, "cwd": editor.cwd, "mcpServers": []});
    editor.ok("session/resume", params).await;
    let listed = server.wire().ok("mcp_list_servers", json!({"agent_id": id})).await;
    assert_eq!(listed["servers"], json!([]));
}

#[tokio::test]
async fn a_server_that_cannot_be_had_leaves_the_session_as_it_is() {
    for desk in Desk::both().await {
        for notices in [true, false] {
            let capabilities =
                if notices { json!({"session": {"notices": {}}}) } else { json!({}) };
            let mut editor = desk.editor_with(capabilities).await;
            let missing =
                json!({"name": "gone", "command": "/no/such/program", "args": [], "env": []});
            let sse =
                json!({"type": "sse", "name": "old", "url": "http://127.0.0.1:1", "headers": []});
            let secret = json!([{"name": "Authorization", "value": "Bearer hush-9d"}]);
            let far = json!({"type": "http", "name": "far", "url": "http://127.0.0.1:1/mcp", "headers": secret});
            let twice = brought("broken", "broken");
            let servers = json!([missing, sse, far, twice, brought("fine", "")]);
            let id = session(&mut editor, servers).await;
            let mut told = String::new();
            for _ in 0..4 {
                let update = match notices {
                    true => editor.update("notice").await["title"].clone(),
                    false => editor.update("agent_message_chunk").await["content"]["text"].clone(),
                };
                told.push_str(update.as_str().unwrap());
                told.push('\n');
            }
            for why in [
                "gone is not used",
                "there is no program",
                "old: the transport of 2024",
                "far is not used",
                "exit 7",
            ] {
                assert!(told.contains(why), "{why}: {told}");
            }
            assert!(!told.contains("hush"), "{told}");
            let said = called(&desk, &mut editor, &id, "mcp_fine_echo", json!({"text": "x"})).await;
            assert_eq!(said, "echo: x");
            assert_eq!(editor.finish().await, Some(0));
        }
    }
}

/// An editor's prompt does not wait for a server that takes its time, and its end ends that.
#[tokio::test]
async fn a_server_that_is_late_holds_up_nothing_for_long() {
    let desk = Desk::embedded().await;
    let mut editor = desk.editor().await;
    let id = session(&mut editor, json!([brought("late", "late")])).await;
    desk.world.model.push(Reply::text("hello"));
    assert_eq!(editor.prompt(&id, "hi").await, "end_turn");
    assert_eq!(editor.finish().await, Some(0));
}

#[tokio::test]
async fn further_directories_are_the_sessions_too() {
    for desk in Desk::both().await {
        let mut editor = desk.editor().await;
        let further = desk.world.path("further");
        fs::create_dir(&further).unwrap();
        std::os::unix::fs::symlink(&further, desk.world.path("link")).unwrap();
        let params = |dirs: Value| json!({"cwd": desk.world.work(), "mcpServers": [], "additionalDirectories": dirs});
        for (dirs, why) in [
            (json!([desk.world.path("none")]), "none"),
            (json!(["relative"]), "not absolute"),
            (json!([desk.world.home()]), "outside"),
        ] {
            let (code, said) = editor.refused("session/new", params(dirs.clone())).await;
            assert!(code == -32602 && said.contains(why), "{dirs}: {code} {said}");
        }
        let many: Vec<_> = (0..65).map(|number| desk.world.path(&format!("d{number}"))).collect();
        many.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let (code, said) = editor.refused("session/new", params(json!(many))).await;
        assert!(code == -32602 && said.contains("at most 64"), "{code} {said}");
        editor.ok("session/new", params(json!(many[..64]))).await;

        let opened = editor.ok("session/new", params(json!([desk.world.path("link")]))).await;
        let id = opened["sessionId"].as_str().unwrap().to_owned();
        let write = async |editor: &mut Editor, id: &str, file: &str| {
            let call = json!({"path": further.join(file), "content": "x"});
            desk.world.model.push(Reply::tool_call("write_file", call));
            desk.world.model.push(Reply::text("done"));
            editor.begin(id, "write").await
        };
        let prompt = write(&mut editor, &id, "a").await;
        assert_eq!(editor.stopped(prompt).await, "end_turn");
        assert!(further.join("a").exists(), "without a question");
        let told = desk.world.model.requests().last().unwrap().body["messages"][0].to_string();
        assert!(told.contains(further.canonicalize().unwrap().to_str().unwrap()), "{told}");

        // They are those of the last time that it was opened.
        let resume = json!({"sessionId": id, "cwd": desk.world.work(), "mcpServers": []});
        editor.ok("session/resume", resume.clone()).await;
        let prompt = write(&mut editor, &id, "b").await;
        let asked = editor.asked("session/request_permission").await;
        editor.reply(&asked, json!({"outcome": {"outcome": "cancelled"}})).await;
        editor.stopped(prompt).await;
        assert!(!further.join("b").exists());
        let mut load = resume;
        load["additionalDirectories"] = json!([further]);
        editor.ok("session/load", load).await;
        let prompt = write(&mut editor, &id, "c").await;
        assert_eq!(editor.stopped(prompt).await, "end_turn");
        assert!(further.join("c").exists());
        assert_eq!(editor.finish().await, Some(0));
    }
}
