//! Keys of callers.

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::store::{
    AgentStore as _, Door, KeyAdded, KeyAgent, KeyRecord, KeyStore as _, StoreError,
};

use super::super::sample;
use super::{Place, made};

const MANY: u64 = 100;

fn key(name: &str) -> KeyRecord {
    KeyRecord {
        name: name.into(),
        secret: format!("secret of {name}"),
        doors: Vec::new(),
        methods: None,
        agent: None,
        created_at: Timestamp::UNIX_EPOCH,
        expires_at: Timestamp::from_second(4_000_000_000).unwrap_or_default(),
    }
}

pub async fn a_key_comes_back_as_it_was_made(place: impl Place) {
    let store = place.open().await;
    let agent = AgentId::parse("w").ok().map(|id| KeyAgent { id, born: 7 });
    let methods = Some(vec!["send".into(), "memory.*".into()]);
    let opens = KeyRecord { doors: vec![Door::Mcp], agent: agent.clone(), ..key("c") };
    let bound = KeyRecord { agent, methods, ..key("b") };
    for key in [&opens, &bound, &key("a")] {
        assert_eq!(made(store.add_key(key.clone(), MANY).await), KeyAdded::Done(()));
    }
    let kept = made(store.keys().await);
    assert!(kept == [key("a"), bound, opens], "by name, with all that they hold: {kept:?}");
}

pub async fn a_name_is_given_once(place: impl Place) {
    let (store, other) = (place.open().await, place.open().await);
    assert_eq!(made(store.add_key(key("a"), MANY).await), KeyAdded::Done(()));
    let another = KeyRecord { secret: "another".into(), ..key("a") };
    assert_eq!(made(other.add_key(another.clone(), MANY).await), KeyAdded::Exists);
    assert!(made(other.keys().await) == [key("a")], "what one process added the other sees");
    assert!(made(other.remove_key("a").await));
    assert!(!made(store.remove_key("a").await), "it is gone");
    assert!(made(store.keys().await).is_empty());
    assert_eq!(made(store.add_key(another, MANY).await), KeyAdded::Done(()));
}

pub async fn there_is_room_for_so_many(place: impl Place) {
    let store = place.open().await;
    for name in ["a", "b"] {
        assert_eq!(made(store.add_key(key(name), 2).await), KeyAdded::Done(()));
    }
    assert_eq!(made(store.add_key(key("c"), 2).await), KeyAdded::Full);
    assert_eq!(made(store.add_key(key("a"), 2).await), KeyAdded::Exists);
    assert!(made(store.remove_key("b").await));
    assert_eq!(made(store.add_key(key("c"), 2).await), KeyAdded::Done(()));
}

pub async fn a_key_and_its_agent_are_one_step(place: impl Place) {
    let store = place.open().await;
    let opens = |name: &str| KeyRecord { doors: vec![Door::Mcp], ..key(name) };
    let added = store.add_key_with_agent(opens("a"), sample::agent("w"), 2).await;
    let KeyAdded::Done(lease) = made(added) else { panic!("the first key was not added") };
    let line = made(store.lineage(&sample::id("w")).await);
    assert_eq!(line[0].born, lease.fence.0, "an agent is born with its first lease");
    let agent = Some(KeyAgent { id: sample::id("w"), born: lease.fence.0 });
    assert!(made(store.keys().await) == [KeyRecord { agent, ..opens("a") }]);
    // What one of them cannot be, the other is not either.
    let again = store.add_key_with_agent(opens("a"), sample::agent("x"), 2).await;
    assert_eq!(made(again), KeyAdded::Exists);
    let taken = store.add_key_with_agent(opens("b"), sample::agent("w"), 2).await;
    assert!(matches!(taken, Err(StoreError::Exists(_))), "{taken:?}");
    assert_eq!(made(store.keys().await).len(), 1);
    assert_eq!(made(store.add_key(key("b"), 2).await), KeyAdded::Done(()));
    let full = store.add_key_with_agent(opens("c"), sample::agent("x"), 2).await;
    assert_eq!(made(full), KeyAdded::Full);
    assert!(made(store.lineage(&sample::id("x")).await).is_empty());
}
