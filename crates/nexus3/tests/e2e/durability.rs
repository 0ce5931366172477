//! What was answered is kept: through `kill -9`, through two servers on one home, and through disks that refuse.

use std::fs;

use nexus_testkit::Reply;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Server, Setup, Wire, World, eventually};
use crate::support::{
    at_path, create, entry, has_messages, history, list, names, prompt, say, shown,
};

#[tokio::test]
async fn an_agent_is_kept_from_the_moment_it_is_made() {
    let server = Server::start().await;
    let wire = server.wire();
    let cwd = server.world.path("place");
    fs::create_dir(&cwd).unwrap();
    let place = |name: &str| cwd.join(name);
    let top = json!({"agent_id": "top", "preset": "trusted", "cwd": cwd, "model": "scripted/big",
        "system_prompt": "Be top.", "allowed_write_paths": [place("out")]});
    wire.ok("create_agent", top).await;
    wire.ok("create_agent", json!({"agent_id": ".temp", "parent_agent_id": "top"})).await;
    let child = json!({"agent_id": "child", "parent_agent_id": "top", "allowed_write_paths": [place("out/deep")]});
    wire.ok("create_agent", child).await;
    let mut before = list(&wire).await;
    before.retain(|entry| entry["is_temp"] == false);
    before[0]["child_count"] = 1.into();

    let server = server.restart().await;
    let wire = server.wire();
    let mut after = list(&wire).await;
    for (entry, before) in after.iter_mut().zip(&before) {
        assert_eq!(entry["status"].take(), "stored");
        entry["status"] = before["status"].clone();
    }
    assert_eq!(after, before);

    // Touching an agent at its path brings it back with all it had.
    assert_eq!(at_path(&server, "top", "get_context", json!({})).await.0, 200);
    assert_eq!(entry(&wire, "top").await["status"], "idle");
    assert_eq!(at_path(&server, ".temp", "get_context", json!({})).await.0, 404);
    say(&wire, "top", "Hi").await;
    let asked = server.model().last_request();
    assert_eq!((&asked.body["model"], &*prompt(&asked)), (&json!("big"), "Be top."));
    for (parent, params, rule) in [
        ("child", json!({}), "level must be below"),
        ("top", json!({"preset": "trusted"}), "level must be below"),
        ("top", json!({"allowed_write_paths": ["/usr"]}), "/usr lies outside"),
    ] {
        let mut params = params;
        params["parent_agent_id"] = parent.into();
        let fault = wire.refused("create_agent", params).await;
        assert!(fault.message.contains(rule), "the ceiling outlives a restart: {fault:?}");
    }
    let fault = wire.refused("create_agent", json!({"agent_id": "top"})).await;
    assert!(fault.message.contains("exists already"), "{fault:?}");
}

#[tokio::test]
async fn a_message_is_kept_before_its_answer_leaves() {
    let mut server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().set_default(Reply::echo());
    let mut lines = Vec::new();
    for number in 0..3 {
        let text = format!("{number} — ünïcode\n");
        let params =
            json!({"agent_id": "a", "content": text, "request_id": number, "source": "test"});
        server.wire().ok("send", params).await;
        lines.extend([format!("user: {text}"), format!("assistant: {text}")]);
        let before = server.wire().ok("get_messages", json!({"agent_id": "a"})).await;
        server = server.restart().await;
        assert_eq!(history(&server.wire(), "a").await, lines);
        let after = server.wire().ok("get_messages", json!({"agent_id": "a"})).await;
        for (before, after) in
            before["messages"].as_array().unwrap().iter().zip(after["messages"].as_array().unwrap())
        {
            let [before, after] = [before, after].map(|message| {
                let mut message = message.clone();
                message["meta"]["at"].take();
                message
            });
            assert_eq!(before, after);
        }
    }
    say(&server.wire(), "a", "last").await;
    lines.push("user: last".into());
    assert_eq!(shown(&server.model().last_request()), lines, "the model is shown all of it");
}

#[tokio::test]
async fn a_turn_that_was_killed_leaves_its_finished_steps() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    server.model().push(Reply::tool_call("no_such_tool", json!({"x": 1})));
    server.model().push(Reply::text("So far ").then_hang());
    let send = json!({"agent_id": "a", "content": "Go on", "stream": true});
    let mut stream = wire.open(request(1, "send", send)).await;
    while stream.next().await.unwrap()["params"]["chunk"] != "So far " {}
    let server = server.restart().await;
    drop(stream);
    let wire = server.wire();
    let page = wire.ok("get_messages", json!({"agent_id": "a"})).await;
    let roles: Vec<_> =
        page["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool"], "{page}");
    assert_eq!(entry(&wire, "a").await["status"], "idle", "nothing is re-run");
    assert_eq!(server.model().request_count(), 2);
    say(&wire, "a", "And now?").await;
    let asked = server.model().last_request();
    let seen: Vec<_> = asked.body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].clone())
        .collect();
    assert_eq!(seen, ["system", "user", "assistant", "tool", "user"]);
}

/// What a turn begins with is written without a word beside it, so all that is told of it has to follow from the
/// message: after an ordinary turn, and after one that had something to take back.
#[tokio::test]
async fn a_turn_that_was_killed_at_its_beginning_is_told_as_it_is() {
    let setup = Setup::new().config(json!({"max_tool_iterations": 2}));
    let server = setup.start().await;
    let wire = server.wire();
    for (agent, earlier) in [
        ("plain", Reply::text("Hello.")),
        ("halted", Reply::tool_call("no_such_tool", json!({"x": 1}))),
    ] {
        create(&wire, agent).await;
        server.model().set_default(earlier);
        wire.ok("send", json!({"agent_id": agent, "content": "Hi"})).await;
    }
    assert_eq!(entry(&wire, "halted").await["halted_at_iteration_limit"], true);
    create(&wire, "other").await;
    server.model().set_default(Reply::hang());
    let mut streams = Vec::new();
    for (agent, messages) in [("plain", 3), ("halted", 6)] {
        let send =
            json!({"agent_id": agent, "content": "Go on", "stream": true, "request_id": "cut"});
        streams.push(wire.open(request(1, "send", send)).await);
        has_messages(&wire, agent, messages).await;
    }
    let before = [entry(&wire, "plain").await, entry(&wire, "halted").await];
    let server = server.restart().await;
    drop(streams);
    let wire = server.wire();
    let page = wire.ok("list_sessions", json!({})).await;
    let order: Vec<_> = page["sessions"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(order, ["halted", "plain", "other"]);
    for (before, messages) in before.into_iter().zip([3, 6]) {
        let agent = before["agent_id"].as_str().unwrap();
        let told = entry(&wire, agent).await;
        assert_eq!(told["halted_at_iteration_limit"], false, "{agent}");
        assert_eq!(told["message_count"], messages, "{agent}");
        assert_eq!(told["last_action_at"], before["last_action_at"], "{agent}");
        let page = wire.ok("get_messages", json!({"agent_id": agent})).await;
        let last = &page["messages"].as_array().unwrap()[messages - 1];
        assert_eq!(told["last_action_at"], last["meta"]["at"], "{agent}");
        let context = wire.ok("get_context", json!({"agent_id": agent})).await;
        assert_eq!(context["interrupted_turn"]["request_id"], "cut");
        assert_eq!(
            (&context["halted_at_iteration_limit"], &context["last_iteration_count"]),
            (&json!(false), &json!(1)),
            "{agent}"
        );
    }
}

#[tokio::test]
async fn two_servers_share_a_home() {
    let setup = Setup::new();
    let world = setup.world().await;
    let second = Setup::new().no_socket();
    // On a home that neither has seen.
    let (mut one, two) = tokio::join!(setup.start_in(&world), second.start_in(&world));
    let (first, other) = (one.wire(), two.wire());
    create(&first, "a").await;
    create(&other, "b").await;
    say(&first, "a", "Hi").await;

    let held = async |wire: &Wire, agent: &str| {
        let fault = wire.refused("send", json!({"agent_id": agent, "content": "x"})).await;
        assert_eq!((fault.code, &*fault.message), (-32001, "The agent is live elsewhere"));
        fault.data["details"].as_str().unwrap().to_string()
    };
    let owner = held(&other, "a").await;
    assert!(owner.contains(&format!("process {}", pid(&world, &first).await)), "{owner}");
    held(&first, "b").await;
    let (status, answer) = at_path(&two, "a", "get_context", json!({})).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32001)), "it exists, elsewhere");
    let fault = other.refused("create_agent", json!({"agent_id": "a"})).await;
    assert_eq!((fault.code, &*fault.message), (-32602, "An agent named a exists already"));
    let fault = other.refused("destroy_agent", json!({"agent_id": "a"})).await;
    assert_eq!(fault.code, -32001);

    // One that is given free is had by whoever asks next.
    first.ok("unload_agent", json!({"agent_id": "a"})).await;
    say(&other, "a", "Hi").await;
    held(&first, "a").await;
    other.ok("unload_agent", json!({"agent_id": "a"})).await;
    say(&first, "a", "Hi").await;
    let others = other.ok("unload_agent", json!({"agent_id": "a"})).await;
    assert_eq!(others, json!({"unloaded": []}));
    held(&other, "a").await;

    // The agents of a dead owner are taken over, with what was said last.
    one.signal(Signal::KILL);
    one.exit().await;
    assert_eq!(history(&other, "a").await[0], "user: Hi");
    say(&other, "a", "Still there?").await;
    assert_eq!(names(&other).await, ["a", "b"]);

    // And those of one that stopped are free.
    let mut one = Setup::new().start_in(&world).await;
    assert_eq!(names(&one.wire()).await, ["a", "b"]);
    held(&one.wire(), "a").await;
    create(&one.wire(), "c").await;
    assert_eq!(one.terminate().await.code(), Some(0));
    say(&other, "c", "Hi").await;
}

/// Another server's changes are seen with the next write, and after some seconds without one.
#[tokio::test]
async fn what_another_server_does_is_listed() {
    let setup = Setup::new();
    let world = setup.world().await;
    let one = setup.start_in(&world).await;
    let two = Setup::new().no_socket().start_in(&world).await;
    for name in ["a", "b"] {
        create(&one.wire(), name).await;
    }
    say(&one.wire(), "a", "Hi").await;
    create(&two.wire(), "x").await;
    assert_eq!(names(&two.wire()).await, ["a", "b", "x"]);
    assert_eq!(entry(&two.wire(), "a").await["message_count"], 2);
    assert_eq!(entry(&two.wire(), "a").await["status"], "stored");

    one.wire().ok("destroy_agent", json!({"agent_id": "b"})).await;
    say(&two.wire(), "x", "Hi").await;
    assert_eq!(names(&two.wire()).await, ["a", "x"]);
    let rename = json!({"old_name": "a", "new_name": "c"});
    one.wire().ok("rename_session", rename).await;
    eventually("the new name to be listed", async || names(&two.wire()).await == ["c", "x"]).await;
}

#[tokio::test]
async fn a_name_that_another_server_freed_is_free() {
    let setup = Setup::new();
    let world = setup.world().await;
    let one = setup.start_in(&world).await;
    for name in ["a", "b"] {
        create(&one.wire(), name).await;
    }
    // It knows both names from its start.
    let two = Setup::new().no_socket().start_in(&world).await;
    let save = json!({"agent_id": "a", "session_name": "saved"});
    one.wire().ok("save_session", save).await;
    for name in ["a", "b"] {
        one.wire().ok("destroy_agent", json!({"agent_id": name})).await;
    }
    create(&two.wire(), "a").await;
    let load = json!({"session_name": "saved", "agent_id": "b"});
    two.wire().ok("load_session", load.clone()).await;
    let fault = two.wire().refused("load_session", load).await;
    assert_eq!(fault.message, "Agent b is live already");
    let load = json!({"session_name": "saved", "agent_id": "a"});
    let fault = one.wire().refused("load_session", load).await;
    assert_eq!(fault.message, "A session named a exists already");
}

/// The process that holds the agents made over `wire`, by the note it left. Two servers have two notes; the one
/// that is wanted is the one that is not the other's.
async fn pid(world: &World, wire: &Wire) -> i64 {
    let fault_of =
        async |agent: &str| wire.call("get_context", json!({"agent_id": agent})).await.err();
    let other = fault_of("b").await.map(|fault| fault.data["details"].to_string());
    let mut pids = owners(world);
    pids.retain(|pid| {
        other.as_ref().is_none_or(|other| !other.contains(&format!("process {pid}")))
    });
    assert_eq!(pids.len(), 1, "{pids:?}");
    pids[0]
}

/// The processes that hold agents of this home.
fn owners(world: &World) -> Vec<i64> {
    let notes = fs::read_dir(world.home().join("owners")).unwrap();
    let pid = |path| {
        serde_json::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap()["pid"].as_i64()
    };
    notes.map(|note| pid(note.unwrap().path()).unwrap()).collect()
}

/// A file may grow no further than it is: what a full disk is to those who write, without a disk of its own. The
/// limit is set on the running server and lifted again.
#[tokio::test]
async fn a_full_disk_is_an_error_that_passes() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    say(&wire, "a", "before").await;
    let server_pid = Pid::from_raw(owners(&server.world)[0] as i32);
    let limit = |bytes: Option<u64>| {
        prlimit(server_pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };

    limit(Some(1));
    for (method, params) in [
        ("create_agent", json!({"agent_id": "b"})),
        ("send", json!({"agent_id": "a", "content": "lost"})),
        ("destroy_agent", json!({"agent_id": "a"})),
        ("shutdown", json!({"agent_id": "a"})),
    ] {
        let fault = wire.refused(method, params).await;
        assert_eq!(
            (fault.code, &*fault.message),
            (-32603, "The store cannot be written"),
            "{method}"
        );
    }
    let before = ["user: before", "assistant: Hello from the scripted model."];
    assert_eq!(history(&wire, "a").await, before, "reads go on");
    assert_eq!(names(&wire).await, ["a"], "nothing half-made");
    wire.ok("create_agent", json!({"agent_id": ".t"})).await;
    say(&wire, ".t", "a temporary agent needs no disk").await;

    limit(None);
    create(&wire, "b").await;
    say(&wire, "a", "after").await;
    let seen = shown(&server.model().last_request());
    assert_eq!(seen, [before[0], before[1], "user: after"]);
    let kept = history(&wire, "a").await;
    let server = server.restart().await;
    assert_eq!(history(&server.wire(), "a").await, kept);
    assert_eq!(names(&server.wire()).await, ["a", "b"]);
    assert_eq!(entry(&server.wire(), "a").await["should_shutdown"], false);
}

#[tokio::test]
async fn a_home_that_cannot_be_had_stops_the_start() {
    let world = Setup::new().unconfigured().world().await;
    let file = world.path("file");
    fs::write(&file, "").unwrap();
    for home in [file.join("home"), file, "/proc/nexus3".into()] {
        let output = Setup::new().env("NEXUS3_HOME", &home).fails_in(&world).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        let last = output.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("Error: ") && last.contains(home.to_str().unwrap()), "{output:?}");
    }
    assert!(!world.socket().exists());
}

#[tokio::test]
async fn a_damaged_store_is_refused_and_kept() {
    let mut server = Server::start().await;
    create(&server.wire(), "a").await;
    server.terminate().await;
    let world = server.world.clone();
    let path = world.home().join("nexus3.db");
    let whole = fs::read(&path).unwrap();
    let mut torn = whole.clone();
    torn[4096..].fill(0x5a);
    let mut foreign = whole.clone();
    foreign[..16].copy_from_slice(b"not a database!\0");
    for (bytes, complaint) in [
        (torn, "damaged; it was left as it is (nexus3 doctor says what can be saved)"),
        (foreign, "not a nexus3 database"),
        (b"Dear diary".to_vec(), "not a nexus3 database"),
    ] {
        fs::write(&path, &bytes).unwrap();
        let output = Setup::new().fails_in(&world).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(
            output.stderr.contains(complaint) && output.stderr.contains("nexus3.db"),
            "{output:?}"
        );
        assert_eq!(fs::read(&path).unwrap(), bytes, "it was left as it is");
    }
    fs::write(&path, whole).unwrap();
    let server = Setup::new().start_in(&world).await;
    assert_eq!(names(&server.wire()).await, ["a"]);
}

#[tokio::test]
async fn the_doctor_tells_what_can_be_saved_and_saves_it() {
    let mut server = Server::start().await;
    let wire = server.wire();
    for name in ["a", "b"] {
        create(&wire, name).await;
        say(&wire, name, "Hi").await;
    }
    let world = server.world.clone();
    let whole = server.cli(["doctor"]).await;
    assert_eq!((whole.code, &*whole.stderr), (Some(0), ""), "{whole:?}");
    assert!(whole.stdout.contains("nexus3.db: whole, store version"), "{whole:?}");
    assert!(whole.stdout.contains("2 sessions with 4 of 4 messages can be read"), "{whole:?}");

    server.terminate().await;
    let path = world.home().join("nexus3.db");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|five| five == b"Hello").expect("what the model said");
    bytes[at - 20..at + 60].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let damaged = server.cli(["doctor"]).await;
    assert_eq!(damaged.code, Some(1), "{damaged:?}");
    assert!(
        damaged.stdout.contains(": damaged") && damaged.stdout.contains("--salvage"),
        "{damaged:?}"
    );
    let saved = server.cli(["doctor", "--salvage", "saved.db"]).await;
    assert_eq!(saved.code, Some(0), "{saved:?}");
    assert!(saved.stdout.contains("was written to saved.db"), "{saved:?}");
    let again = server.cli(["doctor", "--salvage", "saved.db"]).await;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("saved.db exists already"), "{again:?}");
    assert_eq!(fs::read(&path).unwrap(), bytes, "the damaged one was left as it is");
    fs::rename(world.work().join("saved.db"), &path).unwrap();
    let server = Setup::new().start_in(&world).await;
    assert!(!names(&server.wire()).await.is_empty());
    assert_eq!(server.cli(["doctor"]).await.code, Some(0), "what was saved is whole");
}

/// A stop is clean in the middle of a turn: what had been said by then is kept.
#[tokio::test]
async fn a_stop_keeps_what_was_said() {
    let mut server = Setup::new().server(json!({"shutdown_grace": 0})).start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    server.model().push(Reply::text("So far ").then_hang());
    let mut stream = wire
        .open(request(1, "send", json!({"agent_id": "a", "content": "Go on", "stream": true})))
        .await;
    while stream.next().await.unwrap()["params"]["chunk"] != "So far " {}
    server.signal(Signal::TERM);
    let (_, answer) = stream.all().await;
    assert_eq!(answer["result"]["content"], "So far ");
    assert_eq!(answer["result"]["cancelled"], true);
    assert_eq!(server.exit().await.code(), Some(0));
    let server = Setup::new().start_in(&server.world.clone()).await;
    assert_eq!(
        history(&server.wire(), "a").await,
        ["user: Go on", "assistant: So far  (interrupted)"]
    );
}
