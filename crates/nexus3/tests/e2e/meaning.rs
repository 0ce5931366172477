//! Memories that are found by what they mean, with the embedder that is built in and with a service.

mod service;

use std::fs;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Server, Setup, Wire, eventually};
use service::{DIMENSIONS, Does, Service};

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

/// A server whose memories are embedded by a model of a service.
fn embedded_by(url: &str, model: &str) -> Setup {
    let provider =
        json!({"type": "openai", "base_url": url, "models": {"m": {"context_window": 1024}}});
    Setup::new().config(json!({
        "default_model": "scripted",
        "providers": {"meanings": provider},
        "memory": {"embeddings": {"provider": "meanings", "model": model, "dimensions": DIMENSIONS}}
    }))
}

/// Have no word in common, but for the service they mean the same.
const SNACKS: (&str, &str) = ("which snacks would harm", "He is allergic to peanuts.");

async fn is_found(wire: &Wire, query: &str, content: &str) -> bool {
    found(wire, "ada", query).await.iter().any(|found| found == content)
}

/// The server says that memories are found by their words alone.
async fn says_so(server: &Server, why: &str) {
    let said = |line: &Value| {
        let text = line.to_string();
        text.contains("memories are found by their words alone") && text.contains(why)
    };
    server.log().wait_for("a word about the embedder", said).await;
}

#[tokio::test]
async fn words_find_whatever_a_service_does_and_meanings_when_it_is_well_again() {
    let faults = [
        (Does::Waits, "did not answer within 3s"),
        (Does::Answers(500), "500"),
        (Does::Answers(404), "404"),
        (Does::Answers(400), "refuses whatever it is asked"),
        (Does::Answers(422), "refuses whatever it is asked"),
        (Does::Makes(DIMENSIONS + 1), "4 numbers and not 3"),
    ];
    let each = faults.map(async |(does, why)| {
        let service = Service::start().await;
        let server = embedded_by(&service.url, "m").start().await;
        let wire = server.wire();
        let (query, meant) = SNACKS;
        add(&wire, "ada", meant).await;
        eventually("the meaning to be known", async || is_found(&wire, query, meant).await).await;
        service.now(does);
        let other = "The disk was full on Monday.";
        add(&wire, "ada", other).await;
        assert!(is_found(&wire, "allergic", meant).await, "{does:?}");
        assert!(is_found(&wire, "monday", other).await, "{does:?}");
        says_so(&server, why).await;
        service.now(Does::Embeds);
        eventually("the service to be asked again", async || {
            is_found(&wire, query, meant).await && is_found(&wire, "storage", other).await
        })
        .await;
    });
    join_all(each).await;
}

#[tokio::test]
async fn words_find_without_the_service_that_is_configured() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let server = embedded_by(&url, "m").start().await;
    let wire = server.wire();
    add(&wire, "ada", MEMORIES[3]).await;
    assert_eq!(found(&wire, "ada", "peanuts").await, [MEMORIES[3]]);
    says_so(&server, "cannot connect").await;
    assert_eq!(found(&wire, "ada", "peanuts").await, [MEMORIES[3]]);
}

#[tokio::test]
async fn another_model_embeds_anew_while_searches_go_on() {
    let service = Service::start().await;
    let server = embedded_by(&service.url, "one").start().await;
    let (query, meant) = SNACKS;
    for content in MEMORIES {
        add(&server.wire(), "ada", content).await;
    }
    let wire = server.wire();
    eventually("the meaning to be known", async || is_found(&wire, query, meant).await).await;

    let path = server.world.home().join("config.json");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace(r#""model":"one""#, r#""model":"two""#)).unwrap();
    service.now(Does::Waits);
    let server = server.restart().await;
    let wire = server.wire();
    // What the other model made is no help any more; the words are there at once, and so is what is added.
    assert!(!is_found(&wire, query, meant).await);
    assert!(is_found(&wire, "peanuts", meant).await);
    let late = "The snacks are in the drawer.";
    add(&wire, "ada", late).await;
    assert!(is_found(&wire, "drawer", late).await);
    service.now(Does::Embeds);
    eventually("all to be embedded anew", async || {
        is_found(&wire, "peanuts", late).await && is_found(&wire, query, meant).await
    })
    .await;
    for content in MEMORIES {
        assert!(service.was_asked("two", content), "{content}");
    }
}
