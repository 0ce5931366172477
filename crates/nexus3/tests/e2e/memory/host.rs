//! `nexus3 memory` on the host, and what agents remember by themselves.

use std::fs;

use nexus_testkit::Reply;
use serde_json::{Value, json};

use super::{add, contents, seen, with};
use crate::harness::{Output, Server, Setup, World, process};
use crate::support::{history, say};

const SECRET: &str = "a secret of the host";

async fn memory(world: &World, args: &[&str]) -> Output {
    let mut command = world.command(["memory"]);
    command.args(args).env("ASH_CONTEXT_TOKEN_SECRET", SECRET);
    process::run(command).await
}

async fn said(world: &World, args: &[&str]) -> String {
    let output = memory(world, args).await;
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{args:?}");
    output.stdout
}

#[tokio::test]
async fn the_host_does_the_same_without_a_server() {
    let world = Setup::new().world().await;
    let json =
        said(&world, &["add", "Likes tea", "--user", "u", "-S", "Tea", "-e", "2", "--json"]).await;
    let added: Value = serde_json::from_str(&json).unwrap();
    let id = added["id"].as_str().unwrap();
    assert_eq!((&added["source"], &added["user_id"]), (&json!("cli"), &json!("u")));
    said(&world, &["add", "For all", "--chat", "c", "--shared", "-s", "me"]).await;
    assert_eq!(
        said(&world, &["search", "tea", "--user", "u"]).await,
        format!("{} [1.00] Likes tea\n", &id[..8])
    );
    assert_eq!(said(&world, &["search", "tea"]).await, "");
    let listed = said(&world, &["list", "--user", "v", "--chat", "c", "--json"]).await;
    assert_eq!(contents(&serde_json::from_str(&listed).unwrap()), ["For all"]);
    let refused = memory(&world, &["delete", &id[..8]]).await;
    assert_eq!(
        (refused.code, &*refused.stderr),
        (Some(1), &*format!("Memory not found: {}\n", &id[..8]))
    );
    let short = memory(&world, &["delete", &id[..7], "--user", "u"]).await;
    assert!(short.code == Some(1) && short.stderr.contains("at least 8 digits"), "{short:?}");
    said(&world, &["delete", &id[..8], "--user", "u"]).await;
    assert_eq!(said(&world, &["list", "--user", "u"]).await, "");
}

#[tokio::test]
async fn what_is_exported_is_imported_once() {
    let world = Setup::new().world().await;
    for args in [
        &["add", "one"][..],
        &["add", "two", "--user", "u"],
        &["add", "three\nlines", "--chat", "c", "--shared"],
    ] {
        said(&world, args).await;
    }
    let exported = said(&world, &["export"]).await;
    assert_eq!(exported.lines().count(), 3);
    let file = world.path("memories.jsonl");
    fs::write(&file, &exported).unwrap();
    let elsewhere = Setup::new().world().await;
    for world in [&world, &elsewhere, &elsewhere] {
        let imported = said(world, &["import", file.to_str().unwrap()]).await;
        assert_eq!(imported, "{\"memories\":3}\n");
        assert_eq!(said(world, &["export"]).await, exported);
    }
    let line = exported.lines().next().unwrap();
    for (broken, complaint) in [
        ("{}".to_owned(), "line 1"),
        (line.replace("\"one\"", "\" \""), "content must be 1 to 65536 bytes"),
        (line.replace("\"id\":\"", "\"id\":\"x"), "32 hexadecimal digits"),
    ] {
        fs::write(&file, broken).unwrap();
        let refused = memory(&elsewhere, &["import", file.to_str().unwrap()]).await;
        assert!(refused.code == Some(1) && refused.stderr.contains(complaint), "{refused:?}");
    }
    assert_eq!(said(&elsewhere, &["export"]).await, exported);
}

/// What is imported takes nothing from what is there.
#[tokio::test]
async fn an_import_costs_nothing_that_lives() {
    let world = Setup::new().world().await;
    said(&world, &["add", "lasts", "--user", "u"]).await;
    said(&world, &["add", "Sarah lives in Rome", "--user", "u", "-S", "Sarah"]).await;
    let before = said(&world, &["list", "--user", "u", "--json"]).await;
    let line = |id: usize, content: &str, expires_at: &str, subjects: &[String]| {
        let line = json!({
            "id": format!("{id:032}"), "content": content, "source": "old", "user_id": "u",
            "created_at": "2020-01-01T00:00:00Z", "expires_at": expires_at, "subjects": subjects
        });
        format!("{line}\n")
    };
    let (past, future) = ("2020-01-02T00:00:00Z", "2999-01-01T00:00:00Z");
    let sarah = ["Sarah".to_owned()];
    let file = world.path("memories.jsonl");
    let lines = [
        line(1, "lasts", past, &[]),
        line(2, "lasts", future, &[]),
        line(3, "Sarah lives in Paris", future, &sarah),
    ];
    fs::write(&file, lines.concat()).unwrap();
    let import = async || memory(&world, &["import", file.to_str().unwrap()]).await;
    let imported = import().await;
    assert_eq!((imported.code, &*imported.stdout), (Some(0), "{\"memories\":2}\n"));
    assert_eq!(imported.stderr, "Passed over what has expired: 1\n");
    let after = said(&world, &["list", "--user", "u", "--json"]).await;
    let (before, after): (Value, Value) =
        (serde_json::from_str(&before).unwrap(), serde_json::from_str(&after).unwrap());
    let [before, after] = [&before, &after].map(|list| list.as_array().unwrap().clone());
    // The older of the two is added, and stands behind.
    assert_eq!((&after[..2], &after[2]["content"]), (&before[..], &json!("Sarah lives in Paris")));
    let subjects = |count: usize| (0..count).map(|n| format!("s{n}")).collect::<Vec<_>>();
    for (count, fine) in [(32, true), (33, false)] {
        fs::write(&file, line(4, "about", future, &subjects(count))).unwrap();
        let imported = import().await;
        assert_eq!(imported.code == Some(0), fine, "{imported:?}");
        assert_eq!(imported.stderr.contains("subjects must be at most 32"), !fine, "{imported:?}");
    }
}

#[tokio::test]
async fn a_token_of_the_host_is_taken_by_the_server() {
    let server = Setup::new().env("ASH_CONTEXT_TOKEN_SECRET", SECRET).start().await;
    let wire = server.wire();
    add(&wire, json!({"content": "of u", "user_id": "u"})).await;
    let args = ["token", "--user", "u", "--chat", "c", "--days", "1"];
    let token = said(&server.world, &args).await;
    let params = json!({"context_token": token.trim(), "user_id": "v"});
    assert_eq!(seen(&wire, &params).await, ["of u"]);
    add(&wire, with(&params, json!({"content": "of c", "shared": true}))).await;
    assert_eq!(seen(&wire, &json!({"chat_id": "c"})).await, ["of c"]);
    for (days, fine) in [("0", false), ("0.001", true), ("366", true), ("366.1", false)] {
        let output = memory(&server.world, &["token", "--user", "u", "--days", days]).await;
        assert_eq!(output.code == Some(0), fine, "{days} {output:?}");
    }
    assert_eq!(memory(&server.world, &["token"]).await.code, Some(1), "for somebody");
}

#[tokio::test]
async fn agents_remember_what_is_theirs_and_their_trees() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
    wire.ok("create_agent", json!({"agent_id": "child", "parent_agent_id": "top"})).await;
    add(&wire, json!({"content": "of a user", "user_id": "u"})).await;
    let calls = Reply::tool_call("memory_add", json!({"content": "secret of top"}))
        .then_tool_call("memory_add", json!({"content": "shared by top", "shared": true}));
    server.model().push(calls);
    server.model().push(Reply::text("kept"));
    assert_eq!(say(&wire, "top", "remember").await, "kept");
    let own = json!({"user_id": "agent:top", "chat_id": "tree:top"});
    assert_eq!(seen(&wire, &own).await, ["secret of top", "shared by top"]);

    server
        .model()
        .push(Reply::tool_call("memory_search", json!({"query": "what of top and a user"})));
    server.model().push(Reply::text("looked"));
    assert_eq!(say(&wire, "child", "look").await, "looked");
    let lines = history(&wire, "child").await.join("\n");
    assert!(lines.contains("shared by top"), "{lines}");
    assert!(!lines.contains("secret of top") && !lines.contains("of a user"), "{lines}");

    let listed = wire.ok("memory.list", own.clone()).await;
    let secret = listed.as_array().unwrap().iter().find(|it| it["content"] == "secret of top");
    let id = secret.unwrap()["id"].clone();
    for (agent, left) in [("child", 2), ("top", 1)] {
        server.model().push(Reply::tool_call("memory_delete", json!({"memory_id": id})));
        server.model().push(Reply::text("done"));
        say(&wire, agent, "forget").await;
        assert_eq!(seen(&wire, &own).await.len(), left, "{agent}");
    }
    // The gate decides on them as on any tool.
    wire.ok("set_permissions", json!({"agent_id": "top", "disable_tools": ["memory_add"]})).await;
    server.model().push(Reply::tool_call("memory_add", json!({"content": "more"})));
    server.model().push(Reply::text("no"));
    say(&wire, "top", "again").await;
    assert_eq!(seen(&wire, &own).await, ["shared by top"]);
}

#[tokio::test]
async fn what_fits_is_put_before_a_turn_if_wanted() {
    for (recall, expected) in [(0, false), (1, true)] {
        let server = Setup::new().config(json!({"memory": {"recall": recall}})).start().await;
        let wire = server.wire();
        wire.ok("create_agent", json!({"agent_id": "a"})).await;
        let tea =
            add(&wire, json!({"content": "The user drinks green tea", "user_id": "agent:a"})).await;
        add(&wire, json!({"content": "Another one's tea", "user_id": "u"})).await;
        say(&wire, "a", "Make me some tea").await;
        let shown = server.model().last_request().body["messages"].to_string();
        let line = format!("{}: The user drinks green tea", &tea["id"].as_str().unwrap()[..8]);
        assert_eq!(shown.contains(&line), expected, "{shown}");
        assert!(!shown.contains("Another one's"), "{shown}");
        assert_eq!(shown.contains("Remembered from earlier"), expected);
        say(&wire, "a", "submarines").await;
        let shown = server.model().last_request().body["messages"].to_string();
        assert_eq!(shown.matches("Remembered from earlier").count(), usize::from(expected));
    }
}
