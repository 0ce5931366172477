//! What is remembered.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use nexus_core::store::{
    AgentStore as _, Deletion, IdPrefix, MemoriesStore as _, MemoryId, MemoryKey, MemoryQuery,
    MemoryRecord, MemoryRoom, MemoryScope, SUBJECTS_MAX, SessionStore as _, Store,
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
        add(&store, memory(n, scope, "tea")).await;
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
    assert_eq!(add(&store, first.clone()).await, first);
    let again = MemoryRecord {
        subjects: texts(&["the tea", "Bob"]),
        created_at: at(50),
        expires_at: None,
        source: "other".into(),
        ..memory(2, &Global, "tea is hot")
    };
    let renewed = MemoryRecord { subjects: texts(&["Tea", "Bob"]), expires_at: None, ..first };
    assert_eq!(add(&store, again).await, renewed);
    assert_eq!(all(&store, &[Global]).await, [renewed]);
    assert_eq!(found(&store, &[Global], "bob").await, [id(1)].into());
    add(&store, memory(3, &Global, "Tea is hot")).await;
    add(&store, memory(4, &user("u"), "tea is hot")).await;
    assert_eq!(listed(&store, &[Global, user("u")]).await.len(), 3);
}

pub async fn a_renewed_memory_has_as_many_subjects_as_one_may_have(place: impl Place) {
    let store = place.open().await;
    let with = |n, subjects: std::ops::Range<usize>| MemoryRecord {
        subjects: subjects.map(|subject| format!("s{subject}")).collect(),
        ..memory(n, &Global, "tea")
    };
    add(&store, with(1, 0..SUBJECTS_MAX - 1)).await;
    // One that is known, one that there is room for, and one more.
    let renewed = add(&store, with(2, SUBJECTS_MAX - 2..SUBJECTS_MAX + 1)).await;
    assert_eq!(renewed.subjects, with(1, 0..SUBJECTS_MAX).subjects);
    assert_eq!(all(&store, &[Global]).await, [renewed]);
    let last = |n: usize| format!("s{n}");
    assert_eq!(found(&store, &[Global], &last(SUBJECTS_MAX - 1)).await, [id(1)].into());
    assert!(found(&store, &[Global], &last(SUBJECTS_MAX)).await.is_empty());
}

pub async fn what_comes_from_elsewhere_costs_nothing_that_is_here(place: impl Place) {
    let store = place.open().await;
    let tea = |n, expires_at| MemoryRecord { expires_at, ..memory(n, &Global, "tea") };
    let restore = async |it: MemoryRecord| made(store.restore_memory(it, at(20)).await);
    add(&store, tea(1, Some(at(50)))).await;
    for (expires_at, expected) in [
        (Some(at(40)), Some(at(50))),
        (Some(at(60)), Some(at(60))),
        (None, None),
        (Some(at(99)), None),
    ] {
        let there = restore(tea(2, expires_at)).await;
        assert_eq!((there.id, there.expires_at), (id(1), expected));
    }
    // What expired meanwhile is gone.
    add(&store, MemoryRecord { expires_at: Some(at(20)), ..memory(3, &Global, "milk") }).await;
    assert_eq!(restore(memory(4, &Global, "milk")).await.id, id(4));
    let about = |n, second, text| MemoryRecord {
        subjects: texts(&["Sarah"]),
        created_at: at(second),
        ..memory(n, &Global, text)
    };
    add(&store, about(5, 10, "Sarah lives in Rome")).await;
    let older = restore(about(6, 9, "Sarah lives in Paris")).await;
    assert!(older.supersedes.is_empty());
    let newer = restore(about(7, 11, "Sarah lives in Oslo")).await;
    assert_eq!(newer.supersedes, [id(5), id(6)]);
    assert_eq!(restore(about(5, 10, "Sarah lives in Rome")).await.id, id(5));
    assert_eq!(listed(&store, &[Global]).await, [id(7), id(4), id(1)]);
}

pub async fn what_has_expired_is_not_there(place: impl Place) {
    let store = place.open().await;
    let short = MemoryRecord { expires_at: Some(at(10)), ..memory(1, &Global, "tea") };
    add(&store, short.clone()).await;
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
    assert_eq!(add(&store, anew.clone()).await, anew);
    assert_eq!(all(&store, &[Global]).await, [anew]);
}

pub async fn what_expired_is_removed_in_portions(place: impl Place) {
    let store = place.open().await;
    for n in 0..5 {
        let expires_at = (n > 0).then(|| at(n as i64));
        let text = format!("tea {n}");
        add(&store, MemoryRecord { expires_at, ..memory(n, &Global, &text) }).await;
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
    add(&store, about(1, "Sarah lives in Paris", &["Sarah"])).await;
    add(&store, about(2, "Sarah works at the post office", &["Sarah"])).await;
    add(&store, about(3, "Sarah lives in Oslo", &["Sarah from work"])).await;
    add(&store, MemoryRecord { scope: user("u"), ..about(4, "Sarah lives in Bonn", &["Sarah"]) })
        .await;
    assert_eq!(listed(&store, &[Global, user("u")]).await.len(), 4);
    let newer = add(&store, about(5, "Sarah lives in Rome", &["@sarah"])).await;
    assert_eq!(newer.supersedes, [id(1)]);
    assert_eq!(made(store.gone_memories(vec![id(1), id(5)]).await), [id(1)]);
    assert_eq!(listed(&store, &[Global]).await, [id(5), id(3), id(2)]);
    assert!(found(&store, &[Global], "Paris").await.is_empty());
    assert_eq!(all(&store, &[Global]).await[0].supersedes, [id(1)]);
    assert_eq!(made(store.delete_memory(vec![Global], whole(1)).await), Deletion::NotFound);
    // Back to what it was: that is news again.
    let back = add(&store, about(6, "Sarah lives in Paris", &["my Sarah"])).await;
    assert_eq!((back.id, back.supersedes), (id(6), vec![id(5)]));
    // What was superseded goes with what took its place.
    made(store.delete_memory(vec![Global], whole(6)).await);
    assert_eq!(listed(&store, &[Global]).await, [id(3), id(2)]);
    let again = add(&store, about(1, "Sarah lives in Paris", &["Sarah"])).await;
    assert_eq!((again.id, again.supersedes), (id(1), Vec::new()));
}

pub async fn what_was_superseded_for_a_while_comes_back(place: impl Place) {
    let store = place.open().await;
    let about = |n, text, until: Option<i64>| MemoryRecord {
        subjects: texts(&["Sarah"]),
        expires_at: until.map(at),
        ..memory(n, &Global, text)
    };
    add(&store, about(0, "Sarah lives in Bonn", None)).await;
    add(&store, about(1, "Sarah lives in Paris", None)).await;
    let waiting = async |after| made(store.unembedded("m", after, 9).await);
    let first = waiting(MemoryKey::default()).await.remove(0).key;
    made(store.put_vectors("m", vec![(first, vec![1])]).await);
    add(&store, about(2, "Sarah lives in Rome", Some(10))).await;
    assert_eq!(listed(&store, &[Global]).await, [id(2)]);
    let last = waiting(first).await.remove(0).key;
    assert_eq!(made(store.remove_expired(at(11), 9).await), 1);
    assert_eq!(listed(&store, &[Global]).await, [id(1)]);
    assert_eq!(all(&store, &[Global]).await[0].supersedes, [id(0)]);
    assert_eq!(found(&store, &[Global], "Paris").await, [id(1)].into());
    // Whoever went on behind the last one finds it too.
    let back = waiting(last).await.remove(0);
    assert_eq!(back.id, id(1));
    made(store.put_vectors("m", vec![(back.key, vec![1])]).await);
    assert_eq!(made(store.vectors("m", last, 9).await)[0].id, id(1));
    // It is known by its subject again, too.
    let newer = add(&store, about(3, "Sarah lives in Oslo", None)).await;
    assert_eq!(newer.supersedes, [id(1)]);
    assert!(waiting(back.key).await[0].id == id(3), "no key is used twice");
}

pub async fn what_comes_back_is_one_with_what_says_the_same(place: impl Place) {
    let store = place.open().await;
    let about = |n, text, subject, until: Option<i64>| MemoryRecord {
        subjects: texts(&[subject]),
        expires_at: until.map(at),
        ..memory(n, &Global, text)
    };
    add(&store, about(1, "the town is Oslo", "Ann", None)).await;
    add(&store, about(2, "the town is Paris", "Ann", None)).await;
    add(&store, about(3, "the town is Rome", "Ann", Some(10))).await;
    let said_again = about(4, "the town is Paris", "Bob", Some(50));
    assert_eq!(add(&store, said_again.clone()).await, said_again);
    assert_eq!(made(store.remove_expired(at(11), 9).await), 1);
    let one = MemoryRecord {
        subjects: texts(&["Bob", "Ann"]),
        expires_at: None,
        supersedes: vec![id(1)],
        ..said_again
    };
    assert_eq!(all(&store, &[Global]).await, std::slice::from_ref(&one));
    assert_eq!(found(&store, &[Global], "ann").await, [id(4)].into());
    assert_eq!(made(store.gone_memories(vec![id(2), id(4)]).await), [id(2)]);
    assert_eq!(add(&store, about(5, "the town is Paris", "Bob", None)).await, one);
    // What it had superseded went over to that.
    let rent = memory(6, &Global, "rent");
    let oslo = about(1, "the town is Oslo", "Ann", None);
    fills(&store, &rent, 3, [&oslo, &one]).await;
    made(store.delete_memory(vec![Global], whole(4)).await);
    fills(&store, &memory(7, &Global, "tea"), 2, [&rent]).await;
}

/// As one who says each day how the day was.
pub async fn a_long_line_of_superseded_memories_goes_with_the_last(place: impl Place) {
    // SQLite would follow references a thousand deep.
    const LONG: u128 = 1_100;
    let store = place.open().await;
    let day = |n: u128| MemoryRecord {
        subjects: texts(&["day"]),
        ..memory(n, &Global, &format!("the day is {n}"))
    };
    join_all((0..LONG).map(|n| add(&store, day(n)))).await;
    assert_eq!(listed(&store, &[Global]).await, [id(LONG - 1)]);
    let gone = made(store.delete_memory(vec![Global], whole(LONG - 1)).await);
    assert_eq!(gone, Deletion::Deleted(id(LONG - 1)));
    fills(&store, &day(0), 1, []).await;
}

pub async fn a_scope_takes_what_it_has_room_for(place: impl Place) {
    let store = place.open().await;
    let teas: Vec<_> = (0..9).map(|n| memory(n, &Global, &format!("tea {n}"))).collect();
    let bytes = |of: &[MemoryRecord]| of.iter().map(MemoryRecord::bytes).sum::<u64>();
    // However many come at once.
    let room = MemoryRoom { count_max: 5, bytes_max: bytes(&teas) };
    let adding = teas.iter().map(|tea| store.add_memory(tea.clone(), Some(room)));
    let kept = join_all(adding).await.into_iter().filter_map(made);
    assert_eq!(kept.map(|tea| tea.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4].map(id));
    // The same again is no more than there was, unless it is about more.
    let full = MemoryRoom { count_max: 5, bytes_max: bytes(&teas[..5]) };
    let again = MemoryRecord { expires_at: Some(at(9)), ..memory(9, &Global, "tea 0") };
    let renewed = made(store.add_memory(again.clone(), Some(full)).await);
    assert_eq!(renewed, Some(MemoryRecord { id: id(0), ..again.clone() }));
    let more = MemoryRecord { subjects: texts(&["tea"]), expires_at: None, ..again };
    assert_eq!(made(store.add_memory(more.clone(), Some(full)).await), None);
    assert_eq!(all(&store, &[Global]).await.last(), renewed.as_ref());
    let wider = MemoryRoom { bytes_max: full.bytes_max + "\"tea\"".len() as u64, ..full };
    assert_eq!(made(store.add_memory(more, Some(wider)).await).map(|it| it.id), Some(id(0)));
    // What is removed makes room; what comes from elsewhere takes some, and what others have does not.
    add(&store, memory(10, &user("u"), "of somebody else")).await;
    assert_eq!(made(store.remove_expired(at(10), 9).await), 0);
    made(store.delete_memory(vec![Global], whole(0)).await);
    made(store.restore_memory(teas[7].clone(), at(0)).await);
    fills(&store, &teas[8], 6, teas[1..5].iter().chain([&teas[7]])).await;
}

pub async fn what_was_superseded_takes_room(place: impl Place) {
    let store = place.open().await;
    let towns = ["Paris", "Oslo", "Rome"].map(|town| format!("Sarah lives in {town}"));
    let sarah = |n: usize, until: Option<i64>| MemoryRecord {
        subjects: texts(&["Sarah \"S\""]),
        expires_at: until.map(at),
        ..memory(n as u128, &Global, &towns[n])
    };
    let [paris, oslo, rome] = [sarah(0, None), sarah(1, None), sarah(2, Some(10))];
    let [tea, milk, rent] =
        [(9, "tea"), (10, "milk"), (11, "rent")].map(|(n, text)| memory(n, &Global, text));
    add(&store, paris.clone()).await;
    add(&store, oslo.clone()).await;
    // However far down it lies.
    fills(&store, &rome, 3, [&paris, &oslo]).await;
    fills(&store, &tea, 4, [&paris, &oslo, &rome]).await;
    made(store.remove_expired(at(11), 9).await);
    fills(&store, &milk, 4, [&paris, &oslo, &tea]).await;
    made(store.delete_memory(vec![Global], whole(1)).await);
    fills(&store, &rent, 3, [&tea, &milk]).await;
}

/// However many subjects they share, a new memory is held against the newest 32 alone.
pub async fn a_new_memory_is_compared_with_few_others(place: impl Place) {
    const COMPARED: usize = 32;
    let store = place.open().await;
    let subjects = |of: std::ops::Range<usize>| of.map(|n| format!("s{n}")).collect::<Vec<_>>();
    for n in 0..=COMPARED {
        // Each shares another subject with the new one, and the last ones all of them.
        let own = if n < 9 { n..n + 1 } else { 0..SUBJECTS_MAX };
        let text = if n < 2 { format!("the price is {n}") } else { format!("{n}this {n}that") };
        let older = MemoryRecord { subjects: subjects(own), ..memory(n as u128, &Global, &text) };
        add(&store, older).await;
    }
    let all_of = subjects(0..SUBJECTS_MAX);
    let new = MemoryRecord { subjects: all_of, ..memory(99, &Global, "the price is high") };
    assert_eq!(add(&store, new).await.supersedes, [id(1)]);
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
        add(&store, MemoryRecord { subjects, ..memory(n, &Global, text) }).await;
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
    add(&store, memory(1, &user("u"), "secret")).await;
    add(&store, memory(2, &Global, "open")).await;
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
        add(&store, record).await;
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
        add(&store, record).await;
    }
    let newest: Vec<_> = (0..9).rev().map(id).collect();
    assert_eq!(listed(&store, &scopes).await, newest);
    let page = async |limit, bytes_max| {
        let query = MemoryQuery { limit, bytes_max, ..everything(&scopes) };
        made(store.memories(query).await).len()
    };
    assert_eq!(page(4, usize::MAX).await, 4);
    assert_eq!((page(9, 10).await, page(9, 9).await, page(9, 0).await), (2, 1, 1));
    // Subjects count, and what alone is too much hides nothing behind it.
    let fat = MemoryRecord { subjects: texts(&["of twelve by"]), ..memory(9, &Global, "tea 9") };
    add(&store, MemoryRecord { created_at: at(9), ..fat }).await;
    assert_eq!((page(9, 20).await, page(9, 18).await, page(1, 18).await), (1, 3, 1));
}

pub async fn an_id_that_is_there_changes_nothing(place: impl Place) {
    let store = place.open().await;
    let first = memory(1, &user("u"), "tea");
    add(&store, first.clone()).await;
    let other = MemoryRecord { expires_at: Some(at(9)), ..memory(1, &user("u"), "coffee") };
    assert_eq!(add(&store, other).await, first);
    assert_eq!(all(&store, &[user("u")]).await, [first]);
}

pub async fn vectors_are_of_one_model(place: impl Place) {
    let store = place.open().await;
    let from_start = MemoryKey::default();
    for n in 0..4 {
        let subjects = texts(&["tea"]);
        let scope = if n == 3 { user("u") } else { Global };
        let text = ["hot", "cold water", "on a table", "here"][n as usize];
        add(&store, MemoryRecord { subjects, ..memory(n, &scope, text) }).await;
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
    add(&one, memory(1, &Global, "tea")).await;
    add(&other, memory(2, &Global, "green tea")).await;
    assert_eq!(add(&other, memory(3, &Global, "tea")).await.id, id(1));
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
        add(&store, memory(n, &scope, "tea")).await;
    }
    let bystander = memory(90, &user("b"), "tea");
    add(&store, bystander).await;
    // Renamed, it has what it had, and what somebody kept for the name.
    add(&store, memory(91, &of("d")[0], "milk")).await;
    let keys = made(store.scope_keys(of("a").into()).await);
    made(store.rename(&sample::id("a"), &sample::id("d")).await);
    assert_eq!(made(store.scope_keys(of("d").into()).await), keys);
    assert!(made(store.scope_keys(of("a").into()).await).is_empty());
    let ids = async |scopes: &[MemoryScope]| BTreeSet::from_iter(listed(&store, scopes).await);
    assert_eq!(ids(&of("d")).await, [id(0), id(1), id(91)].into());
    assert_eq!(found(&store, &of("d"), "milk tea").await, [id(0), id(1), id(91)].into());
    let [own, _] = of("d");
    let both = [&memory(0, &own, "tea"), &memory(91, &own, "milk")];
    fills(&store, &memory(92, &own, "cocoa"), 3, both).await;
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

/// Adds the last memory that its scope has room for, which has these by now.
async fn fills<'a>(
    store: &impl Store,
    last: &'a MemoryRecord,
    count_max: u64,
    there: impl IntoIterator<Item = &'a MemoryRecord>,
) {
    let bytes_max = there.into_iter().chain([last]).map(MemoryRecord::bytes).sum();
    let room = MemoryRoom { count_max, bytes_max };
    let fewer = MemoryRoom { count_max: count_max - 1, ..room };
    let shorter = MemoryRoom { bytes_max: bytes_max - 1, ..room };
    for (room, expected) in [(fewer, None), (shorter, None), (room, Some(last.id))] {
        let kept = made(store.add_memory(last.clone(), Some(room)).await);
        assert_eq!(kept.map(|it| it.id), expected, "{room:?}");
    }
}

/// Where there is room for whatever comes.
async fn add(store: &impl Store, memory: MemoryRecord) -> MemoryRecord {
    super::found(store.add_memory(memory, None).await)
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
