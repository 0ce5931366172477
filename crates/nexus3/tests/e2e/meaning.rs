//! Memories that are found by what they mean, with the embedder that is built in.

use serde_json::{Value, json};

use crate::harness::{Setup, Wire, eventually};

over_every_wire! {
    what_means_the_same_is_found_without_a_word_of_it,
    an_agent_finds_what_it_knew_under_its_new_name,
}

const MEMORIES: [&str; 4] = [
    "The deployment failed because the disk was full.",
    "My cat likes to sleep in the sun.",
    "She was born in the summer of 1984.",
    "He is allergic to peanuts.",
];

/// Has no word of the memory it means.
const PARAPHRASE: (&str, &str) = ("release broken, out of storage space", MEMORIES[0]);

async fn add(wire: &Wire, user: &str, content: &str) -> Value {
    wire.ok("memory.add", json!({"content": content, "user_id": user})).await
}

async fn found(wire: &Wire, user: &str, query: &str) -> Vec<String> {
    let found = wire.ok("memory.search", json!({"query": query, "user_id": user})).await;
    let found = found.as_array().unwrap().iter();
    found.map(|memory| memory["content"].as_str().unwrap().to_owned()).collect()
}

async fn what_means_the_same_is_found_without_a_word_of_it(wire: &Wire) {
    for content in MEMORIES {
        add(wire, "ada", content).await;
    }
    let (query, meant) = PARAPHRASE;
    eventually("the meaning to be known", async || {
        found(wire, "ada", query).await.first().is_some_and(|first| first == meant)
    })
    .await;
    // Nobody else's, and nothing that has nothing to do with it.
    assert_eq!(found(wire, "bob", query).await, [""; 0]);
    assert_eq!(found(wire, "ada", "the boiling point of tungsten").await, [""; 0]);
    // What is gone is gone by its meaning too.
    let id =
        wire.ok("memory.search", json!({"query": query, "user_id": "ada"})).await[0]["id"].clone();
    wire.ok("memory.delete", json!({"memory_id": id, "user_id": "ada"})).await;
    assert!(!found(wire, "ada", query).await.contains(&meant.to_owned()));
}

async fn an_agent_finds_what_it_knew_under_its_new_name(wire: &Wire) {
    wire.ok("create_agent", json!({"agent_id": "old"})).await;
    add(wire, "agent:old", MEMORIES[0]).await;
    let (query, meant) = PARAPHRASE;
    let has = async |user: &str| {
        found(wire, user, query).await.first().is_some_and(|first| first == meant)
    };
    eventually("the meaning to be known", async || has("agent:old").await).await;
    wire.ok("rename_session", json!({"old_name": "old", "new_name": "new"})).await;
    assert!(has("agent:new").await);
    assert!(!has("agent:old").await);
}

#[tokio::test]
async fn what_was_not_embedded_before_a_kill_is_embedded_after_it() {
    let server = Setup::new().start().await;
    for content in MEMORIES {
        add(&server.wire(), "ada", content).await;
    }
    let server = server.restart().await;
    let wire = server.wire();
    let (query, meant) = PARAPHRASE;
    eventually("the meaning to be known", async || {
        found(&wire, "ada", query).await.first().is_some_and(|first| first == meant)
    })
    .await;
    // On the host, too, and by a program that has made no vector of it.
    let on_host = server.cli(["memory", "search", query, "--user", "ada"]).await;
    assert!(on_host.stdout.contains(meant), "{on_host:?}");
    let kept = server.cli(["memory", "add", "The rent is due on Friday", "--user", "dan"]).await;
    assert_eq!(kept.code, Some(0), "{kept:?}");
    eventually("what the host added to be known", async || {
        !found(&wire, "dan", "when must he pay his landlord?").await.is_empty()
    })
    .await;
    // What another process of the home remembers is found here.
    let beside = Setup::new().no_socket().start_in(&server.world).await;
    add(&beside.wire(), "eve", MEMORIES[0]).await;
    eventually("the neighbour's to be known", async || {
        found(&wire, "eve", query).await.first().is_some_and(|first| first == meant)
    })
    .await;
}
