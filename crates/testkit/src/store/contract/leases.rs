//! Who may write an agent, when several processes want to.

use nexus_core::store::{AgentStore, Contact, Lease, SessionStore, Store, StoreError};

use super::{Place, found, made, names, refused, speaking, texts};
use crate::store::sample::{agent, child, id, settings, step};

pub async fn each_lease_makes_those_before_it_useless(place: impl Place) {
    let store = place.open().await;
    let old = made(store.create(agent("a")).await);
    let new = found(store.acquire(&id("a")).await).lease;
    assert_eq!(new.agent, old.agent);
    assert!(new.fence > old.fence);
    all_refused(&store, old, |error| matches!(error, StoreError::LeaseLost)).await;
    made(store.append(new, step(0, &["0"])).await);
    assert_eq!(texts(&store, "a").await, ["0"]);
}

pub async fn the_lease_of_an_ended_agent_is_told_from_a_lost_one(place: impl Place) {
    let store = place.open().await;
    let ended = |error: &StoreError| matches!(error, StoreError::Ended);
    let [gone, kept] =
        [made(store.create(agent("a")).await), made(store.create(agent("kept")).await)];
    made(store.keep(kept).await);
    made(store.destroy(vec![id("a"), id("kept")]).await);
    all_refused(&store, gone, ended).await;
    all_refused(&store, kept, ended).await;
    made(store.create(agent("a")).await);
    all_refused(&store, gone, ended).await;
    assert_eq!(texts(&store, "a").await, [""; 0], "its namesake is another");
}

pub async fn who_lives_elsewhere_is_not_taken(place: impl Place) {
    let (here, there) = (place.open().await, place.open().await);
    let lease = made(here.create(agent("a")).await);
    made(here.create(agent("b")).await);
    let among = || vec![id("a"), id("nobody")];
    let elsewhere = |name: &str| name == "a";
    refused!(there.acquire(&id("a")).await, StoreError::HeldElsewhere { id, .. } if elsewhere(id.as_str()));
    refused!(there.load(&id("a"), None).await, StoreError::HeldElsewhere { id, .. } if elsewhere(id.as_str()));
    refused!(there.rename(&id("a"), &id("c")).await, StoreError::HeldElsewhere { .. });
    refused!(there.delete(&id("a")).await, StoreError::HeldElsewhere { .. });
    assert_eq!(made(there.elsewhere(among()).await), [id("a")].into(), "nobody asked for b");
    assert!(made(here.elsewhere(among()).await).is_empty());
    // A lease is worth nothing to another process.
    all_refused(&there, lease, |error| matches!(error, StoreError::LeaseLost)).await;
    made(here.append(lease, step(0, &["0"])).await);
    assert_eq!(texts(&there, "a").await, ["0"], "but it can be read");
    made(here.release(lease).await);
    assert!(made(there.elsewhere(among()).await).is_empty());
}

pub async fn the_holder_says_where_it_is_reached(place: impl Place) {
    let (here, there) = (place.open().await, place.open().await);
    let contact = |name: &str| Contact {
        url: Some(format!("http://{name}")),
        socket: Some(format!("/run/{name}").into()),
    };
    let holder = async || match there.acquire(&id("a")).await {
        Err(StoreError::HeldElsewhere { holder, .. }) => holder,
        other => panic!("{:?}", other.map(drop)),
    };
    made(here.create(agent("a")).await);
    let before = holder().await;
    assert_eq!(before.contact, Contact::default());
    assert_ne!(before.pid, 0);
    made(here.announce(contact("one")).await);
    assert_eq!(holder().await.contact, contact("one"));
    made(here.announce(contact("two")).await);
    assert_eq!(holder().await.contact, contact("two"));
    assert_eq!(holder().await.pid, before.pid);
}

pub async fn a_family_ends_whole_or_not_at_all(place: impl Place) {
    let (here, there) = (place.open().await, place.open().await);
    made(here.create(agent("p")).await);
    made(there.create(child("k", "p")).await);
    made(here.create(agent("other")).await);
    refused!(here.destroy(vec![id("other"), id("p")]).await, StoreError::HeldElsewhere { id, .. } if id.as_str() == "k");
    refused!(here.delete(&id("p")).await, StoreError::HeldElsewhere { .. });
    assert_eq!(names(&here).await, ["p", "k", "other"].map(id));
    drop(there);
    assert_eq!(made(here.destroy(vec![id("p")]).await), ["p", "k"].map(id));
}

pub async fn the_agents_of_a_dead_process_are_taken_over(place: impl Place) {
    let (dying, heir) = (place.open().await, place.open().await);
    let lease = speaking(&dying, "a", &["0"]).await;
    drop(dying);
    let stored = found(heir.acquire(&id("a")).await);
    assert!(stored.lease.fence > lease.fence);
    assert_eq!(stored.window.messages.len(), 1);
    made(heir.append(stored.lease, step(1, &["1"])).await);
    assert_eq!(texts(&heir, "a").await, ["0", "1"]);
}

pub async fn a_released_agent_is_anybodys(place: impl Place) {
    let (here, there) = (place.open().await, place.open().await);
    let lease = made(here.create(agent("a")).await);
    made(here.release(lease).await);
    all_refused(&here, lease, |error| matches!(error, StoreError::LeaseLost)).await;
    let taken = found(there.acquire(&id("a")).await).lease;
    refused!(here.acquire(&id("a")).await, StoreError::HeldElsewhere { .. });
    made(there.release(taken).await);
    made(here.acquire(&id("a")).await);
}

pub async fn a_closed_store_refuses_and_holds_nothing(place: impl Place) {
    let (closing, other) = (place.open().await, place.open().await);
    let lease = made(closing.create(agent("a")).await);
    let queued = closing.append(lease, step(0, &["0"]));
    made(closing.close().await);
    made(queued.await);
    refused!(closing.append(lease, step(1, &["1"])).await, StoreError::Closed);
    refused!(closing.create(agent("b")).await, StoreError::Closed);
    refused!(closing.lineage(&id("a")).await, StoreError::Closed);
    refused!(closing.close().await, StoreError::Closed);
    let stored = found(other.acquire(&id("a")).await);
    assert_eq!(stored.window.messages.len(), 1);
    assert_eq!(names(&other).await, [id("a")]);
}

pub async fn what_others_write_is_noticed(place: impl Place) {
    let (here, there) = (place.open().await, place.open().await);
    made(here.create(agent("a")).await);
    let before = here.foreign_commits();
    made(here.create(agent("b")).await);
    assert_eq!(here.foreign_commits(), before, "its own");
    made(there.create(agent("c")).await);
    // Whoever writes looks around.
    made(here.create(agent("d")).await);
    assert!(here.foreign_commits() > before);
}

pub async fn no_lease_is_void_before_its_time(place: impl Place) {
    let store = place.open().await;
    let lease = made(store.create(agent("a")).await);
    assert!(store.void_through() < lease.fence);
}

/// Puts a lease to all that needs one.
async fn all_refused(store: &impl Store, lease: Lease, expected: impl Fn(&StoreError) -> bool) {
    let answers = [
        store.append(lease, step(0, &["x"])).await,
        store.update(lease, settings()).await,
        store.keep(lease).await,
        store.release(lease).await,
    ];
    for answer in answers {
        assert!(answer.as_ref().is_err_and(&expected), "{answer:?}");
    }
}
