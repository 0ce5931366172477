//! What is remembered.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use nexus_core::store::{
    AgentStore as _, Deletion, IdPrefix, MemoriesStore as _, MemoryId, MemoryKey, MemoryQuery,
    MemoryRecord, MemoryScope, SessionStore as _, Store,
};
use nexus_core::words;

use super::{Place, made};
use crate::store::sample::{self, agent, child};
use MemoryScope::{Chat, Global, User};

pub async fn a_memory_is_seen_in_its_scope_alone(place: impl Place) {
    let store = place.open().await;
    let scopes = [Global, user("u"), user("v"), chat("u"), chat("c")];
    for (n, scope) in (0..).zip(&scopes) {
        // One text: it is the scope that tells them apart.
        made(store.add_memory(memory(n, scope, "tea")).await);
    }
    for (n, scope) in (0..).zip(&scopes) {
        assert_eq!(listed(&store, std::slice::from_ref(scope)).await, [id(n)]);
        assert_eq!(found(&store, std::slice::from_ref(scope), "tea").await, [id(n)].into());
        let ids = (0..scopes.len() as u128).map(id).collect();
        let seen = made(store.memories_by_id(vec![scope.clone()], ids, at(0)).await);
        assert_eq!(seen.iter().map(|it| it.id).collect::<Vec<_>>(), [id(n)]);
    }
    assert!(listed(&store, &[]).await.is_empty());
    assert!(found(&store, &[user("nobody")], "tea").await.is_empty());
    let others: Vec<_> = scopes[1..].to_vec();
    assert_eq!(made(store.delete_memory(others, whole(0)).await), Deletion::NotFound);
    assert_eq!(made(store.delete_memory(vec![Global], whole(0)).await), Deletion::Deleted(id(0)));
    assert_eq!(listed(&store, &scopes).await.len(), scopes.len() - 1);
}

pub async fn the_same_again_is_a_renewal(place: impl Place) {
    let store = place.open().await;
    let first = MemoryRecord {
        subjects: texts(&["Tea"]),
        expires_at: Some(at(100)),
        ..memory(1, &Global, "tea is hot")
    };
    assert_eq!(made(store.add_memory(first.clone()).await), first);
    let again = MemoryRecord {
        subjects: texts(&["the tea", "Bob"]),
        created_at: at(50),
        expires_at: None,
        source: "other".into(),
        ..memory(2, &Global, "tea is hot")
    };
    let renewed = MemoryRecord { subjects: texts(&["Tea", "Bob"]), expires_at: None, ..first };
    assert_eq!(made(store.add_memory(again).await), renewed);
    assert_eq!(all(&store, &[Global]).await, [renewed]);
    assert_eq!(found(&store, &[Global], "bob").await, [id(1)].into());
    made(store.add_memory(memory(3, &Global, "Tea is hot")).await);
    made(store.add_memory(memory(4, &user("u"), "tea is hot")).await);
    assert_eq!(listed(&store, &[Global, user("u")]).await.len(), 3);
}

pub async fn what_has_expired_is_not_there(place: impl Place) {
    let store = place.open().await;
    let short = MemoryRecord { expires_at: Some(at(10)), ..memory(1, &Global, "tea") };
    made(store.add_memory(short.clone()).await);
    let seen_at = async |now| {
        let query = MemoryQuery { alive_at: Some(now), ..everything(&[Global]) };
        let listed = made(store.memories(query).await).len();
        let words = words::of_query("tea");
        let found = made(store.memories_with(vec![Global], words, 9, now).await).len();
        let known = made(store.memories_by_id(vec![Global], vec![id(1)], now).await).len();
        (listed, found, known)
    };
    assert_eq!(seen_at(at(9)).await, (1, 1, 1));
    assert_eq!(seen_at(at(10)).await, (0, 0, 0));
    assert_eq!(all(&store, &[Global]).await, [short]);
    // What is added when it has expired is new.
    let anew = MemoryRecord { created_at: at(11), ..memory(2, &Global, "tea") };
    assert_eq!(made(store.add_memory(anew.clone()).await), anew);
    assert_eq!(all(&store, &[Global]).await, [anew]);
}

pub async fn what_expired_is_removed_in_portions(place: impl Place) {
    let store = place.open().await;
    for n in 0..5 {
        let expires_at = (n > 0).then(|| at(n as i64));
        let text = format!("tea {n}");
        made(store.add_memory(MemoryRecord { expires_at, ..memory(n, &Global, &text) }).await);
    }
    assert_eq!(made(store.remove_expired(at(1), 9).await), 0);
    assert_eq!(made(store.remove_expired(at(4), 2).await), 2);
    assert_eq!(made(store.remove_expired(at(4), 2).await), 1);
    assert_eq!(made(store.remove_expired(at(4), 2).await), 0);
    assert_eq!(listed(&store, &[Global]).await, [id(4), id(0)]);
    let gone = made(store.gone_memories((0..6).map(id).collect()).await);
    assert_eq!(gone, [id(1), id(2), id(3), id(5)], "and what was never there");
    assert_eq!(found(&store, &[Global], "tea").await, [id(0), id(4)].into());
}

pub async fn a_newer_memory_takes_the_place_of_the_older(place: impl Place) {
    let store = place.open().await;
    let about = |n, text, subjects: &[&str]| MemoryRecord {
        subjects: texts(subjects),
        ..memory(n, &Global, text)
    };
    made(store.add_memory(about(1, "Sarah lives in Paris", &["Sarah"])).await);
    made(store.add_memory(about(2, "Sarah works at the post office", &["Sarah"])).await);
    made(store.add_memory(about(3, "Sarah lives in Oslo", &["Sarah from work"])).await);
    made(
        store
            .add_memory(MemoryRecord {
                scope: user("u"),
                ..about(4, "Sarah lives in Bonn", &["Sarah"])
            })
            .await,
    );
    assert_eq!(listed(&store, &[Global, user("u")]).await.len(), 4);
    let newer = made(store.add_memory(about(5, "Sarah lives in Rome", &["@sarah"])).await);
    assert_eq!(newer.supersedes, [id(1)]);
    assert_eq!(made(store.gone_memories(vec![id(1), id(5)]).await), [id(1)]);
    assert_eq!(listed(&store, &[Global]).await, [id(5), id(3), id(2)]);
    assert!(found(&store, &[Global], "Paris").await.is_empty());
    assert_eq!(all(&store, &[Global]).await[0].supersedes, [id(1)]);
    assert_eq!(made(store.delete_memory(vec![Global], whole(1)).await), Deletion::NotFound);
    // Back to what it was: that is news again.
    let back = made(store.add_memory(about(6, "Sarah lives in Paris", &["my Sarah"])).await);
    assert_eq!((back.id, back.supersedes), (id(6), vec![id(5)]));
    // What was superseded goes with what took its place.
    made(store.delete_memory(vec![Global], whole(6)).await);
    assert_eq!(listed(&store, &[Global]).await, [id(3), id(2)]);
    let again = made(store.add_memory(about(1, "Sarah lives in Paris", &["Sarah"])).await);
    assert_eq!((again.id, again.supersedes), (id(1), Vec::new()));
}

pub async fn a_memory_is_found_by_its_words_and_subjects(place: impl Place) {
    let store = place.open().await;
    let texts = [
        "The user prefers dark roasted coffee",
        "A dog named Rex is in the house",
        "我喜欢绿茶",
        "Zwölf Boxkämpfer jagen Viktor",
        "before\0after",
    ];
    for (n, text) in (0..).zip(texts) {
        let subjects = if n == 1 { vec!["@Rover Smith".into()] } else { Vec::new() };
        made(store.add_memory(MemoryRecord { subjects, ..memory(n, &Global, text) }).await);
    }
    for (query, expected) in [
        ("what coffee does the user like?", vec![0]),
        ("coffees", vec![0]),
        ("REX", vec![1]),
        ("rover", vec![1]),
        ("@smith", vec![1]),
        ("绿茶", vec![2]),
        ("红茶", vec![]),
        ("boxkämpfer", vec![3]),
        ("after", vec![4]),
        ("is it in", vec![1]),
        ("submarine", vec![]),
        ("coffee rex", vec![0, 1]),
    ] {
        let expected: BTreeSet<_> = expected.into_iter().map(id).collect();
        assert_eq!(found(&store, &[Global], query).await, expected, "{query}");
    }
    assert_eq!(all(&store, &[Global]).await[0].content, texts[4]);
}

pub async fn a_query_is_data(place: impl Place) {
    let store = place.open().await;
    made(store.add_memory(memory(1, &user("u"), "secret")).await);
    made(store.add_memory(memory(2, &Global, "open")).await);
    for query in [
        "secret",
        "\"",
        "\"\"",
        "'",
        "secret\" OR \"secret",
        "scope:1",
        "{scope} : 1",
        "* OR secret",
        "NEAR(secret)",
        "NOT open",
        "secret AND",
        "(",
        ")",
        "^secret",
        "secret*",
        "a\0b",
        "-secret",
        "1",
        "2",
        "content : secret",
        "\u{feff}",
        "secret -- ",
        "; DROP TABLE memories",
    ] {
        let raw = made(store.memories_with(vec![Global], vec![query.into()], 9, at(0)).await);
        assert!(raw.iter().all(|it| it.id == id(2)), "{query}");
        found(&store, &[Global], query).await;
    }
    assert_eq!(found(&store, &[user("u")], "secret").await, [id(1)].into());
}

pub async fn a_memory_is_deleted_by_id_or_beginning(place: impl Place) {
    let store = place.open().await;
    let base = 0xabcd_ef12_u128 << 96;
    for (n, scope) in [(1, Global), (2, Global), (3, user("u"))] {
        let record =
            MemoryRecord { id: MemoryId(base + n), ..memory(n, &scope, &format!("tea {n}")) };
        made(store.add_memory(record).await);
    }
    let delete = async |scopes: &[MemoryScope], prefix: &str| match IdPrefix::parse(prefix) {
        Some(prefix) => made(store.delete_memory(scopes.to_vec(), prefix).await),
        None => panic!("no id begins with {prefix}"),
    };
    assert_eq!(delete(&[Global], "abcdef12").await, Deletion::Ambiguous);
    assert_eq!(delete(&[Global], "abcdef13").await, Deletion::NotFound);
    // Others do not count in it.
    assert_eq!(delete(&[user("u")], "ABCDEF12").await, Deletion::Deleted(MemoryId(base + 3)));
    let second = MemoryId(base + 2).to_string();
    assert_eq!(delete(&[Global], &second).await, Deletion::Deleted(MemoryId(base + 2)));
    assert_eq!(delete(&[Global], &second).await, Deletion::NotFound);
    assert_eq!(delete(&[Global], "abcdef12").await, Deletion::Deleted(MemoryId(base + 1)));
    assert!(found(&store, &[Global, user("u")], "tea").await.is_empty());
}

pub async fn memories_come_the_newest_first(place: impl Place) {
    let store = place.open().await;
    let scopes = [Global, user("u"), chat("c")];
    for n in 0..9_u128 {
        let scope = &scopes[n as usize % 3];
        // Three at each moment: the one that was added later is newer.
        let record =
            MemoryRecord { created_at: at(n as i64 / 3), ..memory(n, scope, &format!("tea {n}")) };
        made(store.add_memory(record).await);
    }
    let newest: Vec<_> = (0..9).rev().map(id).collect();
    assert_eq!(listed(&store, &scopes).await, newest);
    let page = async |limit, bytes_max| {
        let query = MemoryQuery { limit, bytes_max, ..everything(&scopes) };
        made(store.memories(query).await).len()
    };
    assert_eq!(page(4, usize::MAX).await, 4);
    assert_eq!((page(9, 10).await, page(9, 9).await, page(9, 0).await), (2, 1, 1));
}

pub async fn an_id_that_is_there_changes_nothing(place: impl Place) {
    let store = place.open().await;
    let first = memory(1, &user("u"), "tea");
    made(store.add_memory(first.clone()).await);
    let other = MemoryRecord { expires_at: Some(at(9)), ..memory(1, &user("u"), "coffee") };
    assert_eq!(made(store.add_memory(other).await), first);
    assert_eq!(all(&store, &[user("u")]).await, [first]);
}

pub async fn vectors_are_of_one_model(place: impl Place) {
    let store = place.open().await;
    let from_start = MemoryKey::default();
    for n in 0..4 {
        let subjects = texts(&["tea"]);
        let scope = if n == 3 { user("u") } else { Global };
        let text = ["hot", "cold water", "on a table", "here"][n as usize];
        made(store.add_memory(MemoryRecord { subjects, ..memory(n, &scope, text) }).await);
    }
    let waiting = made(store.unembedded("m", from_start, 9).await);
    assert_eq!(waiting.iter().map(|it| it.id).collect::<Vec<_>>(), [id(0), id(1), id(2), id(3)]);
    let keys = made(store.scope_keys(vec![user("nobody"), Global, user("u")]).await);
    assert_eq!([waiting[0].scope, waiting[3].scope].as_slice(), keys);
    assert_eq!(waiting[1].content, "cold water");
    assert_eq!(waiting[0].subjects, ["tea"]);
    assert_eq!(made(store.unembedded("m", waiting[1].key, 1).await), [waiting[2].clone()]);
    made(store.delete_memory(vec![Global], whole(0)).await);
    let vectors = waiting.iter().take(3).map(|it| (it.key, vec![1, 2])).collect();
    made(store.put_vectors("m", vectors).await);
    assert_eq!(made(store.unembedded("m", from_start, 9).await), [waiting[3].clone()]);
    let stored = made(store.vectors("m", from_start, 9).await);
    assert_eq!(stored.iter().map(|it| it.id).collect::<Vec<_>>(), [id(1), id(2)]);
    assert_eq!((&stored[0].vector, stored[0].scope), (&vec![1, 2], keys[0]));
    assert_eq!(made(store.vectors("m", stored[0].key, 9).await), stored[1..]);
    assert_eq!(made(store.unembedded("other", from_start, 9).await).len(), 3);
    made(store.put_vectors("other", vec![(stored[0].key, vec![3])]).await);
    assert_eq!(made(store.vectors("m", from_start, 9).await), stored[1..]);
    assert_eq!(made(store.vectors("other", from_start, 9).await)[0].vector, [3]);
}

pub async fn what_one_process_adds_the_other_finds(place: impl Place) {
    let (one, other) = (place.open().await, place.open().await);
    made(one.add_memory(memory(1, &Global, "tea")).await);
    made(other.add_memory(memory(2, &Global, "green tea")).await);
    assert_eq!(made(other.add_memory(memory(3, &Global, "tea")).await).id, id(1));
    for store in [&one, &other] {
        assert_eq!(found(store, &[Global], "tea").await, [id(1), id(2)].into());
    }
    drop(one);
    assert_eq!(listed(&other, &[Global]).await, [id(2), id(1)]);
}

/// Numbers that begin with different digits.
pub async fn what_is_an_agents_goes_with_it_and_follows_its_name(place: impl Place) {
    let store = place.open().await;
    let of = |name: &str| MemoryScope::of_agent(&sample::id(name));
    for name in ["a", "b", "kept"] {
        let lease = made(store.create(agent(name)).await);
        if name == "kept" {
            made(store.keep(lease).await);
        }
    }
    made(store.create(child("c", "b")).await);
    for (n, scope) in (0..).zip(["a", "b", "c", "kept"].into_iter().flat_map(of)) {
        made(store.add_memory(memory(n, &scope, "tea")).await);
    }
    let bystander = memory(90, &user("b"), "tea");
    made(store.add_memory(bystander).await);
    // Renamed, it has what it had, and what somebody kept for the name.
    made(store.add_memory(memory(91, &of("d")[0], "milk")).await);
    let keys = made(store.scope_keys(of("a").into()).await);
    made(store.rename(&sample::id("a"), &sample::id("d")).await);
    assert_eq!(made(store.scope_keys(of("d").into()).await), keys);
    assert!(made(store.scope_keys(of("a").into()).await).is_empty());
    let ids = async |scopes: &[MemoryScope]| BTreeSet::from_iter(listed(&store, scopes).await);
    assert_eq!(ids(&of("d")).await, [id(0), id(1), id(91)].into());
    assert_eq!(found(&store, &of("d"), "milk tea").await, [id(0), id(1), id(91)].into());
    assert!(ids(&of("a")).await.is_empty());
    // One that is made anew under an old name has nothing of who had it before.
    made(store.destroy(vec![sample::id("b"), sample::id("kept")]).await);
    made(store.create(agent("b")).await);
    made(store.create(agent("a")).await);
    for name in ["a", "b", "c"] {
        assert!(ids(&of(name)).await.is_empty(), "{name}");
        assert!(found(&store, &of(name), "tea").await.is_empty(), "{name}");
    }
    // What was saved by name stays, and what is nobody's agent's.
    assert_eq!(ids(&of("kept")).await.len(), 2);
    assert_eq!(ids(&[user("b")]).await, [id(90)].into());
}

fn id(n: u128) -> MemoryId {
    MemoryId((n + 1) << 96 | n)
}

fn whole(n: u128) -> IdPrefix {
    IdPrefix { first: id(n), last: id(n) }
}

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000_000 + second)
}

fn user(name: &str) -> MemoryScope {
    User(name.into())
}

fn chat(name: &str) -> MemoryScope {
    Chat(name.into())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn memory(n: u128, scope: &MemoryScope, content: &str) -> MemoryRecord {
    MemoryRecord {
        id: id(n),
        scope: scope.clone(),
        content: content.into(),
        source: "test".into(),
        subjects: Vec::new(),
        created_at: at(0),
        expires_at: None,
        supersedes: Vec::new(),
    }
}

fn everything(scopes: &[MemoryScope]) -> MemoryQuery {
    MemoryQuery { scopes: scopes.to_vec(), alive_at: None, limit: 1000, bytes_max: usize::MAX }
}

async fn all(store: &impl Store, scopes: &[MemoryScope]) -> Vec<MemoryRecord> {
    made(store.memories(everything(scopes)).await)
}

async fn listed(store: &impl Store, scopes: &[MemoryScope]) -> Vec<MemoryId> {
    all(store, scopes).await.into_iter().map(|memory| memory.id).collect()
}

async fn found(store: &impl Store, scopes: &[MemoryScope], query: &str) -> BTreeSet<MemoryId> {
    let words = words::of_query(query);
    let found = made(store.memories_with(scopes.to_vec(), words, 1000, at(0)).await);
    found.into_iter().map(|memory| memory.id).collect()
}
