//! What is remembered about people and chats, and who sees it.

mod faults;
mod field;
mod host;
mod identity;
mod property;
mod sandbox;

use serde_json::{Value, json};

use crate::harness::wire::request;
use crate::harness::{Server, Wire};

over_every_wire! {
    a_memory_is_kept_found_listed_and_deleted,
    a_caller_sees_its_own_its_chats_and_everybodys,
    the_same_again_is_the_same_memory,
    what_it_contradicts_is_superseded,
    bad_parameters_are_named,
    limits_hold_just_under_and_just_over,
    content_is_kept_to_the_last_sign,
    what_expires_is_gone_at_once,
}

async fn a_memory_is_kept_found_listed_and_deleted(wire: &Wire) {
    let added =
        add(wire, json!({"content": "The user likes green tea", "subjects": ["Tea"]})).await;
    let id = added["id"].as_str().unwrap();
    let expected = json!({
        "id": id, "content": "The user likes green tea", "source": "rpc", "created_at": added["created_at"],
        "expires_at": null, "subjects": ["Tea"], "shared": false
    });
    assert_eq!(added, expected);
    assert!(id.len() == 32 && is_moment(&added["created_at"]), "{added}");

    let found = wire.ok("memory.search", json!({"query": "what tea does the user like?"})).await;
    let similarity = found[0]["similarity"].as_f64().unwrap();
    assert!(similarity > 0.0 && similarity <= 1.0, "{found}");
    let metadata =
        json!({"subjects": ["Tea"], "shared": false, "expires_at": null, "supersedes": []});
    let expected = json!([{
        "id": id, "content": "The user likes green tea", "similarity": similarity, "source": "rpc",
        "created_at": added["created_at"], "metadata": metadata
    }]);
    assert_eq!(found, expected);
    assert_eq!(wire.ok("memory.search", json!({"query": "submarines"})).await, json!([]));

    let listed = wire.ok("memory.list", json!({})).await;
    let expected = json!([{
        "id": id, "content": "The user likes green tea", "source": "rpc", "created_at": added["created_at"],
        "expires_at": null, "subjects": ["Tea"]
    }]);
    assert_eq!(listed, expected);

    let other = format!("{}{}", &id[1..], &id[..1]);
    for (prefix, deleted) in [(&*other, false), ("no such id", false), (&id[..8], true)] {
        let answer = wire.ok("memory.delete", json!({"memory_id": prefix})).await;
        assert_eq!(answer, json!({"deleted": deleted}), "{prefix}");
    }
    assert_eq!(wire.ok("memory.delete", json!({"memory_id": id})).await, json!({"deleted": false}));
    assert_eq!(wire.ok("memory.list", json!({})).await, json!([]));
    assert_eq!(wire.ok("memory.search", json!({"query": "tea"})).await, json!([]));
}

async fn a_caller_sees_its_own_its_chats_and_everybodys(wire: &Wire) {
    let (u, v) = (json!({"user_id": "u", "chat_id": "c"}), json!({"user_id": "v", "chat_id": "c"}));
    let w = json!({"user_id": "w", "chat_id": ""});
    add(wire, json!({"content": "fact global"})).await;
    add(wire, with(&u, json!({"content": "fact of u"}))).await;
    add(wire, with(&v, json!({"content": "fact of v"}))).await;
    let shared = add(wire, with(&u, json!({"content": "fact of c", "shared": true}))).await;
    assert_eq!(shared["shared"], true);
    // Without a user and not shared: everybody's.
    let global = add(wire, json!({"content": "fact two", "chat_id": "c", "user_id": null})).await;
    assert_eq!(global["shared"], false);

    let both = ["fact global", "fact two"];
    for (who, more) in [
        (u.clone(), vec!["fact of u", "fact of c"]),
        (v, vec!["fact of v", "fact of c"]),
        (w, vec![]),
        (json!({"chat_id": "c", "user_id": ""}), vec!["fact of c"]),
        (json!({"user_id": "c", "chat_id": "u"}), vec![]),
        (json!({}), vec![]),
        (json!({"user_id": null, "chat_id": null}), vec![]),
    ] {
        let mut expected: Vec<&str> = both.into_iter().chain(more).collect();
        expected.sort_unstable();
        assert_eq!(seen(wire, &who).await, expected, "{who}");
    }
    let own = seen_id(wire, &u, "fact of u").await;
    let others = json!({"user_id": "v", "chat_id": "c", "memory_id": own});
    assert_eq!(wire.ok("memory.delete", others).await["deleted"], false);
    assert_eq!(wire.ok("memory.delete", json!({"memory_id": own})).await["deleted"], false);
    assert_eq!(
        wire.ok("memory.delete", with(&u, json!({"memory_id": own}))).await["deleted"],
        true
    );
    let chats = json!({"user_id": "v", "chat_id": "c", "memory_id": shared["id"]});
    assert_eq!(wire.ok("memory.delete", chats).await["deleted"], true);
    assert_eq!(seen(wire, &u).await, both);
}

async fn the_same_again_is_the_same_memory(wire: &Wire) {
    let first = add(wire, json!({"content": "tea", "user_id": "u", "expires_days": 1})).await;
    let again = add(wire, json!({"content": "tea", "user_id": "u", "expires_days": 9.5})).await;
    assert_eq!((&first["id"], &first["created_at"]), (&again["id"], &again["created_at"]));
    assert!(first["expires_at"].as_str() < again["expires_at"].as_str());
    let other = add(wire, json!({"content": "tea", "user_id": "v"})).await;
    assert_ne!(first["id"], other["id"]);
    assert_eq!(seen(wire, &json!({"user_id": "u"})).await, ["tea"]);
}

async fn what_it_contradicts_is_superseded(wire: &Wire) {
    let old = add(wire, json!({"content": "Sarah lives in Paris", "subjects": ["Sarah"]})).await;
    add(wire, json!({"content": "Sarah plays chess", "subjects": ["my Sarah"]})).await;
    add(wire, json!({"content": "Sarah lives in Rome", "subjects": ["@sarah"]})).await;
    assert_eq!(seen(wire, &json!({})).await, ["Sarah lives in Rome", "Sarah plays chess"]);
    let found = wire.ok("memory.search", json!({"query": "sarah lives"})).await;
    assert_eq!(found[0]["metadata"]["supersedes"], json!([old["id"]]), "{found}");
    assert_eq!(wire.ok("memory.search", json!({"query": "Paris"})).await, json!([]));
    let gone = wire.ok("memory.delete", json!({"memory_id": old["id"]})).await;
    assert_eq!(gone["deleted"], false);
}

async fn bad_parameters_are_named(wire: &Wire) {
    for (method, params, complaint) in [
        ("memory.add", json!({}), "Missing required parameter: content"),
        ("memory.add", json!({"content": " \n"}), "content must not be blank"),
        ("memory.add", json!({"content": null}), "content must be string, got: null"),
        ("memory.add", json!({"content": 7}), "content must be string, got: integer"),
        (
            "memory.add",
            json!({"content": "x", "user_id": 7}),
            "user_id must be string, got: integer",
        ),
        ("memory.add", json!({"content": "x", "chat_id": " "}), "chat_id must not be blank"),
        (
            "memory.add",
            json!({"content": "x", "subjects": "a"}),
            "subjects must be array, got: string",
        ),
        ("memory.add", json!({"content": "x", "subjects": [" "]}), "subjects.0 must not be blank"),
        (
            "memory.add",
            json!({"content": "x", "shared": "yes"}),
            "shared must be boolean, got: string",
        ),
        (
            "memory.add",
            json!({"content": "x", "shared": true, "user_id": "u"}),
            "shared needs a chat_id: without one there is no chat to share it with",
        ),
        (
            "memory.add",
            json!({"content": "x", "expires_days": 0}),
            "expires_days must be more than 0 and at most 36500, got: 0",
        ),
        (
            "memory.add",
            json!({"content": "x", "expires_days": -0.5}),
            "expires_days must be more than 0 and at most 36500, got: -0.5",
        ),
        (
            "memory.add",
            json!({"content": "x", "expires_days": "1"}),
            "expires_days must be number, got: string",
        ),
        (
            "memory.add",
            json!({"content": "x", "context_token": 7}),
            "context_token must be string, got: integer",
        ),
        ("memory.search", json!({}), "Missing required parameter: query"),
        ("memory.search", json!({"query": ""}), "query must not be blank"),
        (
            "memory.list",
            json!({"include_expired": 1}),
            "include_expired must be boolean, got: integer",
        ),
        ("memory.delete", json!({}), "Missing required parameter: memory_id"),
        (
            "memory.delete",
            json!({"memory_id": "0123456"}),
            "memory_id must have at least 8 digits of the memory's id, got: 7",
        ),
    ] {
        let refused = wire.refused(method, params.clone()).await;
        assert_eq!((refused.code, &*refused.message), (-32602, complaint), "{method} {params}");
    }
    assert_eq!(seen(wire, &json!({})).await, [""; 0]);
    // What is not known is passed over, as is what says nothing.
    let loose = json!({
        "content": "x", "source": null, "expires_days": null, "subjects": null, "shared": null, "this_chat": true,
        "thread_id": null, "context_token": "", "user_id": "", "messages": [{"role": "user"}]
    });
    assert_eq!(add(wire, loose).await["source"], "rpc");
    assert_eq!(
        wire.ok("memory.list", json!({"limit": null, "provider": "x"})).await[0]["content"],
        "x"
    );
}

async fn limits_hold_just_under_and_just_over(wire: &Wire) {
    let content = |bytes: usize| json!({"content": "x".repeat(bytes)});
    let named = |name: &str, bytes: usize| {
        let mut params = json!({"content": "x"});
        params[name] = json!("n".repeat(bytes));
        params
    };
    let subjects = |count: usize| {
        let subjects: Vec<_> = (0..count).map(|n| format!("s{n}")).collect();
        json!({"content": "about", "subjects": subjects})
    };
    let days = |days: f64| json!({"content": "x", "expires_days": days});
    for (method, under, over) in [
        ("memory.add", content(65_536), content(65_537)),
        ("memory.add", named("user_id", 256), named("user_id", 257)),
        ("memory.add", named("chat_id", 256), named("chat_id", 257)),
        ("memory.add", named("source", 256), named("source", 257)),
        ("memory.add", subjects(32), subjects(33)),
        ("memory.add", days(36_500.0), days(36_500.1)),
        ("memory.search", json!({"query": "x", "limit": 200}), json!({"query": "x", "limit": 201})),
        ("memory.search", json!({"query": "x", "limit": 1}), json!({"query": "x", "limit": 0})),
        (
            "memory.search",
            json!({"query": "x".repeat(65_536)}),
            json!({"query": "x".repeat(65_537)}),
        ),
        ("memory.list", json!({"limit": 1000}), json!({"limit": 1001})),
        ("memory.list", json!({"limit": 1}), json!({"limit": 0})),
    ] {
        wire.ok(method, under).await;
        let refused = wire.refused(method, over).await;
        let path = refused.data["path"].as_str().unwrap();
        let name = path.trim_start_matches('/');
        assert!(refused.code == -32602 && refused.message.starts_with(name), "{}", refused.message);
    }
}

async fn content_is_kept_to_the_last_sign(wire: &Wire) {
    for (content, query) in [
        ("a NUL \u{0} within zebra", "zebra"),
        ("\"quoted\" NEAR(x y) OR * ^tiger", "\"tiger\" OR * NEAR("),
        ("猫は魚が好きです", "魚が"),
        ("Кошка любит рыбу", "рыбу"),
        ("emoji 🐢 turtle\r\n\ttabs", "turtle"),
    ] {
        let id = add(wire, json!({"content": content, "user_id": query})).await["id"].clone();
        let who = json!({"user_id": query});
        assert_eq!(seen(wire, &who).await, [content]);
        let found = wire.ok("memory.search", with(&who, json!({"query": query}))).await;
        assert_eq!((&found[0]["id"], &found[0]["content"]), (&id, &json!(content)), "{query}");
    }
}

async fn what_expires_is_gone_at_once(wire: &Wire) {
    // About a tenth of a millisecond.
    add(wire, json!({"content": "short tea", "expires_days": 1e-9})).await;
    add(wire, json!({"content": "long tea", "expires_days": 1})).await;
    assert_eq!(seen(wire, &json!({})).await, ["long tea"]);
    let all = wire.ok("memory.list", json!({"include_expired": true})).await;
    assert_eq!(contents(&all), ["long tea", "short tea"]);
    add(wire, json!({"content": "short tea"})).await;
    assert_eq!(seen(wire, &json!({})).await, ["long tea", "short tea"]);
}

/// An agent's token speaks for the agent and its tree, whatever the parameters say.
#[tokio::test]
async fn an_agent_speaks_for_itself_alone() {
    let server = Server::start().await;
    let wire = server.wire();
    wire.ok("create_agent", json!({"agent_id": "top", "preset": "trusted"})).await;
    for child in ["child", ".temporary"] {
        wire.ok("create_agent", json!({"agent_id": child, "parent_agent_id": "top"})).await;
    }
    wire.ok("create_agent", json!({"agent_id": "stranger"})).await;
    let shared = async |agent: &str, method: &str, params: Value| {
        let message = server.post(request(1, method, params)).header("X-Nexus-Agent", agent);
        server.ask(message).await.answer()
    };
    let add_as = async |agent: &str, content: &str, shared_too: bool| {
        let params =
            json!({"content": content, "user_id": "u", "chat_id": "c", "shared": shared_too});
        shared(agent, "memory.add", params).await
    };
    add(&wire, json!({"content": "of u", "user_id": "u"})).await;
    let global = add(&wire, json!({"content": "global"})).await;
    for agent in ["top", "child", "stranger"] {
        add_as(agent, &format!("own of {agent}"), false).await;
    }
    add_as(".temporary", "of the tree", true).await;
    // It would be everybody's.
    let refused = add_as(".temporary", "of nobody", false).await;
    assert_eq!(refused["error"]["code"], -32003);

    for (agent, expected) in [
        ("top", vec!["global", "of the tree", "own of top"]),
        ("child", vec!["global", "of the tree", "own of child"]),
        (".temporary", vec!["global", "of the tree"]),
        ("stranger", vec!["global", "own of stranger"]),
    ] {
        let answer = shared(agent, "memory.list", json!({"user_id": "u", "chat_id": "c"})).await;
        assert_eq!(contents(&answer["result"]), expected, "{agent}");
        let delete = json!({"memory_id": global["id"], "user_id": "u"});
        let answer = shared(agent, "memory.delete", delete).await;
        assert_eq!(answer["result"]["deleted"], false, "{agent}");
    }
    // The administrator can look at it.
    let of_tree = seen(&wire, &json!({"user_id": "agent:top", "chat_id": "tree:top"})).await;
    assert_eq!(of_tree, ["global", "of the tree", "own of top"]);
}

/// A client in the field sends it with every call.
#[tokio::test]
async fn a_context_token_is_tolerated_on_every_method() {
    let server = Server::start().await;
    let wire = server.wire();
    let token = json!({"context_token": "whatever"});
    assert_eq!(
        wire.ok("list_agents", token.clone()).await,
        wire.ok("list_agents", json!({})).await
    );
    wire.ok("create_agent", with(&token, json!({"agent_id": "a"}))).await;
    wire.ok("get_messages", with(&token, json!({"agent_id": "a"}))).await;
    let other = with(&token, json!({"another": 1}));
    assert_eq!(wire.refused("list_agents", other).await.message, "Unknown parameter: another");
}

pub async fn add(wire: &Wire, params: Value) -> Value {
    wire.ok("memory.add", params).await
}

/// All that a caller sees, sorted.
pub async fn seen(wire: &Wire, who: &Value) -> Vec<String> {
    contents(&wire.ok("memory.list", with(who, json!({"limit": 1000}))).await)
}

async fn seen_id(wire: &Wire, who: &Value, content: &str) -> Value {
    let listed = wire.ok("memory.list", who.clone()).await;
    let mut entries = listed.as_array().unwrap().iter();
    entries.find(|entry| entry["content"] == content).unwrap()["id"].clone()
}

pub fn contents(entries: &Value) -> Vec<String> {
    let entries = entries.as_array().unwrap_or_else(|| panic!("{entries}"));
    let mut contents: Vec<_> =
        entries.iter().map(|entry| entry["content"].as_str().unwrap().to_owned()).collect();
    contents.sort_unstable();
    contents
}

pub fn with(some: &Value, more: Value) -> Value {
    let mut all = some.clone();
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

fn is_moment(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())
}
