//! Sessions: listing, loading, saving, copying, renaming and deleting them.

mod files;
mod rights;
mod rules;
mod together;

use std::fs;

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use crate::harness::{Server, Setup, Wire, eventually};
use crate::support::{at_path, create, entry, history, names, say, sessions};

over_every_wire! {
    the_seeds_requests_get_the_seeds_answers,
    a_list_has_exactly_its_members,
    a_page_is_a_part_of_the_list,
    a_turn_that_failed_moves_its_session_up,
    a_temporary_agent_becomes_permanent_by_being_saved,
    a_copy_is_whole_and_goes_its_own_way,
    a_copy_ends_where_it_is_told_to_and_goes_on_from_there,
    a_session_is_loaded_under_another_name,
    a_saved_copy_is_replaced_by_a_later_save,
    a_deleted_session_ends_its_agent,
}

async fn the_seeds_requests_get_the_seeds_answers(wire: &Wire) {
    wire.model().set_default(Reply::echo());
    for _ in 0..3 {
        wire.ok("create_agent", json!({"agent_id": "."})).await;
    }
    say(wire, ".3", "Hi").await;
    for (method, params, answer) in [
        (
            "save_session",
            json!({"agent_id": ".3", "session_name": "project-x"}),
            json!({"saved": true, "session_name": "project-x", "agent_id": "project-x"}),
        ),
        (
            "clone_session",
            json!({"src_session": "project-x", "dest_session": "project-x-copy"}),
            json!({"cloned": true, "src_session": "project-x", "dest_session": "project-x-copy"}),
        ),
        (
            "rename_session",
            json!({"old_name": "project-x-copy", "new_name": "project-x-archived"}),
            json!({"renamed": true, "old_name": "project-x-copy", "new_name": "project-x-archived"}),
        ),
        (
            "load_session",
            json!({"session_name": "project-x-archived", "agent_id": "project-x-archived", "preset": null, "model": null}),
            json!({"restored": true, "agent_id": "project-x-archived", "message_count": 2}),
        ),
        (
            "delete_session",
            json!({"session_name": "project-x-archived"}),
            json!({"deleted": true, "session_name": "project-x-archived"}),
        ),
        (
            "delete_session",
            json!({"session_name": "project-x-archived"}),
            json!({"deleted": false, "session_name": "project-x-archived"}),
        ),
    ] {
        assert_eq!(wire.ok(method, params).await.to_string(), answer.to_string());
    }
    assert_eq!(sessions(wire).await, ["project-x"]);
}

async fn a_list_has_exactly_its_members(wire: &Wire) {
    let none = wire.ok("list_sessions", json!({})).await;
    assert_eq!(none, json!({"total": 0, "offset": 0, "limit": 50, "sessions": []}));
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "low", "parent_agent_id": "top"})).await;
    say(wire, "top", "Hi").await;
    let params = json!({"offset": 0, "limit": 50, "include_temp": false});
    let mut page = wire.ok("list_sessions", params).await;
    let cwd = entry(wire, "top").await["cwd"].clone();
    for session in page["sessions"].as_array_mut().unwrap() {
        let [created, updated] =
            ["created_at", "updated_at"].map(|name| session[name].as_f64().unwrap());
        assert!(1.7e9 < created && created <= updated, "{session}");
        (session["created_at"], session["updated_at"]) = (json!(0.5), json!(0.5));
    }
    let session = |name: &str, messages: u64, provenance: &str, level: &str| {
        json!({"name": name, "message_count": messages, "created_at": 0.5, "updated_at": 0.5, "is_temp": false,
            "provenance": provenance, "model": "scripted", "permission_level": level, "cwd": cwd})
    };
    let sessions = [session("top", 2, "user", "trusted"), session("low", 0, "top", "sandboxed")];
    let expected = json!({"total": 2, "offset": 0, "limit": 50, "sessions": sessions});
    assert_eq!(page.to_string(), expected.to_string(), "what changed last comes first");
}

async fn a_page_is_a_part_of_the_list(wire: &Wire) {
    for name in ["a", "b", "c", ".1", ".2"] {
        create(wire, name).await;
    }
    for (params, total, expected) in [
        (json!({}), 3, "c b a"),
        (json!({"limit": 2}), 3, "c b"),
        (json!({"offset": 2, "limit": 2}), 3, "a"),
        (json!({"offset": 3}), 3, ""),
        (json!({"offset": u64::MAX}), 3, ""),
        (json!({"include_temp": true}), 5, ".2 .1 c b a"),
        (json!({"include_temp": true, "offset": 1, "limit": 3}), 5, ".1 c b"),
        (json!({"include_temp": true, "offset": 4, "limit": 1}), 5, "a"),
    ] {
        let page = wire.ok("list_sessions", params.clone()).await;
        let sessions = page["sessions"].as_array().unwrap();
        let names: Vec<_> = sessions.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!((&page["total"], &*names.join(" ")), (&json!(total), expected), "{params}");
        assert!(
            sessions
                .iter()
                .all(|it| it["is_temp"] == it["name"].as_str().unwrap().starts_with('.'))
        );
    }
}

/// Its message is kept although nobody answered.
async fn a_turn_that_failed_moves_its_session_up(wire: &Wire) {
    for name in ["a", "b"] {
        wire.ok("create_agent", json!({"agent_id": name})).await;
    }
    let order = async || {
        let page = wire.ok("list_sessions", json!({})).await;
        let names = page["sessions"].as_array().unwrap().iter().map(|it| it["name"].clone());
        names.filter(|name| name == "a" || name == "b").collect::<Vec<_>>()
    };
    assert_eq!(order().await, ["b", "a"]);
    wire.model().set_default(Reply::status(400));
    wire.refused("send", json!({"agent_id": "a", "content": "Hi"})).await;
    assert_eq!(order().await, ["a", "b"]);
}

async fn a_temporary_agent_becomes_permanent_by_being_saved(wire: &Wire) {
    wire.model().set_default(Reply::echo());
    wire.ok("create_agent", json!({"agent_id": ".t", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": ".kid", "parent_agent_id": ".t"})).await;
    create(wire, "taken").await;
    say(wire, ".t", "before").await;
    let params = json!({"agent_id": ".t", "session_name": "taken"});
    let fault = wire.refused("save_session", params).await;
    assert_eq!((fault.code, &fault.data["path"]), (-32602, &json!("/session_name")), "{fault:?}");
    let fault =
        wire.refused("save_session", json!({"agent_id": ".kid", "session_name": "kid"})).await;
    assert!(fault.message.contains("outlive its temporary parent .t"), "{fault:?}");

    let saved = wire.ok("save_session", json!({"agent_id": ".t", "session_name": "t"})).await;
    assert_eq!(saved["agent_id"], "t");
    assert_eq!(wire.refused("get_context", json!({"agent_id": ".t"})).await.code, -32602);
    say(wire, "t", "after").await;
    let said = ["user: before", "assistant: before", "user: after", "assistant: after"];
    assert_eq!(history(wire, "t").await, said);
    assert_eq!(entry(wire, "t").await["permission_level"], "TRUSTED");
    assert_eq!(entry(wire, ".kid").await["parent_agent_id"], "t", "its children follow");
    wire.ok("save_session", json!({"agent_id": ".kid", "session_name": "kid"})).await;
    assert_eq!(sessions(wire).await, ["kid", "t", "taken"]);
}

async fn a_copy_ends_where_it_is_told_to_and_goes_on_from_there(wire: &Wire) {
    create(wire, "a").await;
    // 0 user, 1 two calls, 2 and 3 their results, 4 assistant, 5 user, 6 assistant.
    let look = json!({"path": "."});
    let calls = Reply::tool_call("list_directory", look.clone());
    wire.model().push(calls.then_tool_call("list_directory", look));
    wire.model().push(Reply::text("seen"));
    wire.model().set_default(Reply::echo());
    say(wire, "a", "one").await;
    say(wire, "a", "two").await;
    let whole = history(wire, "a").await;
    assert_eq!(whole.len(), 7);
    let clone = |upto: u64| json!({"src_session": "a", "dest_session": format!("upto-{upto}"), "upto": upto});
    for (upto, why) in [
        (1, "lies between a tool call and its results"),
        (2, "lies between a tool call and its results"),
        (7, "has 7 messages: the index 7 is past its end"),
        (u64::MAX, "is past its end"),
    ] {
        let fault = wire.refused("clone_session", clone(upto)).await;
        assert_eq!(fault.code, -32602);
        assert!(fault.message.contains(why), "{fault:?}");
    }
    for kept in [0, 3, 4, 5, 6] {
        wire.ok("clone_session", clone(kept)).await;
        let name = format!("upto-{kept}");
        let loaded = wire.ok("load_session", json!({"session_name": name})).await;
        assert_eq!(loaded["message_count"], kept + 1);
        assert_eq!(history(wire, &name).await, whole[..=usize::try_from(kept).unwrap()]);
        say(wire, &name, "on").await;
        assert_eq!(history(wire, &name).await.last().unwrap(), "assistant: on");
    }
    assert_eq!(history(wire, "a").await, whole);
}

async fn a_copy_is_whole_and_goes_its_own_way(wire: &Wire) {
    wire.model().set_default(Reply::echo());
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted", "cwd": place})).await;
    let source = json!({"agent_id": "a", "parent_agent_id": "top", "preset": "sandboxed", "model": "scripted/big",
        "system_prompt": "Be brief.", "allowed_write_paths": [place.join("out")], "disable_tools": ["git"]});
    wire.ok("create_agent", source).await;
    say(wire, "a", "one").await;
    wire.ok("clone_session", json!({"src_session": "a", "dest_session": "b"})).await;
    assert_eq!(names(wire).await, ["top", "a"], "a copy is no agent");
    let fault = wire.refused("get_messages", json!({"agent_id": "b"})).await;
    assert_eq!(fault.message, "Unknown agent: b");
    say(wire, "a", "two").await;
    let loaded = wire.ok("load_session", json!({"session_name": "b"})).await;
    assert_eq!(loaded, json!({"restored": true, "agent_id": "b", "message_count": 2}));
    say(wire, "b", "three").await;
    let said = |texts: [&str; 2]| {
        texts.map(|text| [format!("user: {text}"), format!("assistant: {text}")]).concat()
    };
    assert_eq!(history(wire, "a").await, said(["one", "two"]));
    assert_eq!(history(wire, "b").await, said(["one", "three"]));
    for method in ["get_permissions", "get_system_prompt", "get_model"] {
        let [a, b] = [
            wire.ok(method, json!({"agent_id": "a"})).await,
            wire.ok(method, json!({"agent_id": "b"})).await,
        ];
        assert_eq!(a, b, "{method}");
    }
    let [mut a, mut b] = [entry(wire, "a").await, entry(wire, "b").await];
    for entry in [&mut a, &mut b] {
        for own in ["agent_id", "created_at", "last_action_at", "usage"] {
            entry[own].take();
        }
    }
    assert_eq!(a, b);
    // Neither needs the other.
    wire.ok("delete_session", json!({"session_name": "a"})).await;
    assert_eq!(history(wire, "b").await, said(["one", "three"]));
}

async fn a_session_is_loaded_under_another_name(wire: &Wire) {
    wire.model().set_default(Reply::echo());
    create(wire, "a").await;
    say(wire, "a", "one").await;
    for (agent, listed) in [("b", 2), (".work", 2)] {
        let params = json!({"session_name": "a", "agent_id": agent, "model": "scripted/big"});
        let loaded = wire.ok("load_session", params).await;
        assert_eq!(loaded, json!({"restored": true, "agent_id": agent, "message_count": 2}));
        assert_eq!(say(wire, agent, "two").await, "two");
        assert_eq!(entry(wire, agent).await["model"], "scripted/big");
        assert_eq!(sessions(wire).await.len(), listed, "{agent}");
    }
    assert_eq!(history(wire, "a").await.len(), 2, "the session itself is as before");
    assert_eq!(history(wire, ".work").await.len(), 4);
    // The copy is an agent as any other: nothing stays of it.
    wire.ok("destroy_agent", json!({"agent_id": "b"})).await;
    assert_eq!(sessions(wire).await, ["a"]);
}

async fn a_saved_copy_is_replaced_by_a_later_save(wire: &Wire) {
    for name in ["a", "b"] {
        create(wire, name).await;
    }
    let save = |agent: &str| json!({"agent_id": agent, "session_name": "snap"});
    say(wire, "a", "one").await;
    let saved = wire.ok("save_session", save("a")).await;
    assert_eq!(saved, json!({"saved": true, "session_name": "snap", "agent_id": "a"}));
    say(wire, "a", "two").await;
    wire.ok("save_session", save("a")).await;
    let fault = wire.refused("save_session", save("b")).await;
    assert_eq!((fault.code, &*fault.message), (-32602, "A session named snap exists already"));
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    assert_eq!(sessions(wire).await, ["b", "snap"]);
    let loaded = wire.ok("load_session", json!({"session_name": "snap"})).await;
    assert_eq!(loaded["message_count"], 4);
}

async fn a_deleted_session_ends_its_agent(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "kid", "parent_agent_id": "top"})).await;
    wire.ok("save_session", json!({"agent_id": "top", "session_name": "top"})).await;
    wire.model().push(Reply::text("So far ").then_hang());
    let delete = async {
        wire.model().wait_for_requests(1).await;
        let gone = wire.ok("delete_session", json!({"session_name": "top"})).await;
        assert_eq!(gone["deleted"], true);
    };
    let (answer, ()) =
        tokio::join!(wire.ok("send", json!({"agent_id": "top", "content": "Hi"})), delete);
    assert_eq!(answer["cancelled"], true);
    assert_eq!((names(wire).await, sessions(wire).await), (Vec::new(), Vec::new()));
    create(wire, "top").await;
    assert_eq!(history(wire, "top").await, [""; 0], "the name is free");
}

/// `destroy_agent` ends an agent for good, but what was saved by name stays to be loaded.
#[tokio::test]
async fn a_destroyed_agent_comes_back_only_by_loading_what_was_saved() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    say(&wire, "a", "Hi").await;
    let saved = wire.ok("save_session", json!({"agent_id": "a", "session_name": "a"})).await;
    assert_eq!(saved, json!({"saved": true, "session_name": "a", "agent_id": "a"}));
    let token = wire.ok("create_agent_token", json!({"agent_id": "a"})).await["token"].clone();
    assert_eq!(wire.ok("destroy_agent", json!({"agent_id": "a"})).await["destroyed"], json!(["a"]));
    let server = server.restart().await;
    let wire = server.wire();
    assert_eq!(at_path(&server, "a", "get_context", json!({})).await.0, 404);
    assert_eq!((names(&wire).await.len(), sessions(&wire).await), (0, vec!["a".to_string()]));
    let fault = wire.refused("create_agent", json!({"agent_id": "a"})).await;
    assert!(fault.message.contains("load_session makes an agent of it"), "{fault:?}");
    let again = wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    assert_eq!(again["success"], false, "there is no such agent");

    let loaded = wire.ok("load_session", json!({"session_name": "a"})).await;
    assert_eq!(loaded["message_count"], 2);
    assert_eq!(at_path(&server, "a", "get_context", json!({})).await.0, 200);
    let fault = wire.refused("load_session", json!({"session_name": "a"})).await;
    assert_eq!((fault.code, &*fault.message), (-32602, "Agent a is live already"));
    let fresh = wire.ok("create_agent_token", json!({"agent_id": "a"})).await["token"].clone();
    let works = async |token: &Value| {
        let post =
            server.post(crate::harness::wire::request(1, "get_context", json!({"agent_id": "a"})));
        server.ask(post.bearer(token.as_str())).await.status
    };
    assert_eq!(works(&fresh).await, 200);
    // A token is its agent's, not its name's: those made before it was loaded do not come back.
    wire.ok("destroy_agent", json!({"agent_id": "a"})).await;
    wire.ok("load_session", json!({"session_name": "a"})).await;
    assert_eq!((works(&fresh).await, works(&token).await), (403, 403));
}

#[tokio::test]
async fn after_a_restart_a_session_is_loaded_or_simply_touched() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        create(&server.wire(), name).await;
    }
    let server = server.restart().await;
    let wire = server.wire();
    let loaded = wire.ok("load_session", json!({"session_name": "a"})).await;
    assert_eq!(loaded["agent_id"], "a");
    say(&wire, "b", "Hi").await;
    let fault = wire.refused("load_session", json!({"session_name": "b"})).await;
    assert_eq!(fault.message, "Agent b is live already");
}

/// A live agent follows its name: its running turn, its children, its log and what it waits for.
#[tokio::test]
async fn a_running_agent_follows_its_name() {
    let asking = json!({"permissions": {"approvals": "ask"}});
    let server = Setup::new().config(asking).arg("--raw-log").start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "old", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "kid", "parent_agent_id": "old"})).await;
    let gate = Gate::new();
    let secret = server.world.path("elsewhere.txt");
    let write = json!({"path": secret, "content": "x"});
    server.model().push(Reply::tool_call("write_file", write));
    server.model().push(Reply::text("done").held_by(&gate));
    let rename = async {
        eventually("an approval waits", async || {
            let listed = wire.ok("list_approvals", json!({})).await;
            listed["approvals"].as_array().is_some_and(|list| !list.is_empty())
        })
        .await;
        let renamed = json!({"old_name": "old", "new_name": "new"});
        wire.ok("rename_session", renamed).await;
        let approval =
            wire.ok("list_approvals", json!({"agent_id": "new"})).await["approvals"][0].clone();
        assert_eq!(approval["agent_id"], "new");
        let answer = json!({"approval_id": approval["approval_id"], "decision": "allow_session"});
        wire.ok("respond_approval", answer).await;
        server.model().wait_for_requests(2).await;
        assert_eq!(entry(&wire, "new").await["status"], "running");
        // It can be renamed again at any moment, and cancelled by its new name.
        wire.ok("rename_session", json!({"old_name": "new", "new_name": "newer"})).await;
        gate.release();
    };
    let send = wire.ok("send", json!({"agent_id": "old", "content": "Go", "request_id": "r"}));
    let (answer, ()) = tokio::join!(send, rename);
    assert_eq!(answer["content"], "done");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "x");
    assert_eq!(entry(&wire, "kid").await["parent_agent_id"], "newer");
    let allowed = wire.ok("get_permissions", json!({"agent_id": "newer"})).await;
    let granted = &allowed["session_allowances"]["write_paths"];
    assert_eq!(
        *granted,
        json!([secret.parent().unwrap().canonicalize().unwrap().join("elsewhere.txt")])
    );
    assert_eq!(at_path(&server, "old", "get_context", json!({})).await.0, 404);
    let decided = wire.ok("list_approvals", json!({"include_decided": true})).await;
    assert_eq!(decided["approvals"][0]["agent_id"], "newer");
    let logs = server.world.home().join("logs");
    eventually("the log to be written", async || {
        fs::read_to_string(logs.join("newer/context.md")).is_ok_and(|log| log.contains("done"))
    })
    .await;
    let raw = fs::read_to_string(logs.join("newer/raw.jsonl")).unwrap();
    assert!(raw.matches("\"request\"").count() >= 2, "both calls are in one log: {raw}");
    assert!(!logs.join("old").exists() && !logs.join("new").exists());

    let server = server.restart().await;
    let wire = server.wire();
    assert_eq!(names(&wire).await, ["newer", "kid"]);
    assert_eq!(history(&wire, "newer").await.len(), 4);
    let gone = wire.ok("destroy_agent", json!({"agent_id": "newer"})).await;
    assert_eq!(gone["destroyed"], json!(["newer", "kid"]));
}
