//! Sessions: saved, copied, loaded, renamed, deleted.

use nexus_core::agent::AgentSettings;
use nexus_core::store::{
    AgentRecord, AgentStore, Append, Census, Copied, Progress, SessionPage, SessionQuery,
    SessionStore, StoreError,
};

use super::{Place, found, made, names, refused, sessions, speaking, texts};
use crate::store::sample::{agent, child, copy, id, said, settings, step};

pub async fn a_copy_shares_its_past_and_goes_its_own_way(place: impl Place) {
    let store = place.open().await;
    let lease = speaking(&store, "a", &["0", "1"]).await;
    assert!(made(store.copy_session(&id("a"), copy("b"), false).await));
    assert!(!made(store.copy_session(&id("nobody"), copy("c"), false).await));
    made(store.append(lease, step(2, &["2a"])).await);
    let loaded = found(store.load(&id("b"), None).await);
    refused!(store.append(loaded.lease, step(3, &["x"])).await, StoreError::Failed(_));
    made(store.append(loaded.lease, step(2, &["2b", "3b"])).await);
    made(store.copy_session(&id("b"), copy("c"), false).await);
    assert_eq!(texts(&store, "a").await, ["0", "1", "2a"]);
    let both = made(store.messages(loaded.lease.agent, 1, 2, usize::MAX).await);
    let both: Vec<_> = both.iter().map(|it| it.text().into_owned()).collect();
    assert_eq!(both, ["1", "2b"]);
    for (name, index, said) in
        [("c", 0, Some("0")), ("c", 3, Some("3b")), ("c", 4, None), ("x", 0, None)]
    {
        let message = made(store.session_message(&id(name), index).await);
        assert_eq!(message.map(|it| it.text().into_owned()).as_deref(), said, "{index} of {name}");
    }
    made(store.delete(&id("a")).await);
    assert_eq!(texts(&store, "b").await, ["0", "1", "2b", "3b"]);
    made(store.delete(&id("b")).await);
    assert_eq!(texts(&store, "c").await, ["0", "1", "2b", "3b"]);
}

pub async fn a_copy_may_keep_the_beginning_alone(place: impl Place) {
    let store = place.open().await;
    let lease = speaking(&store, "a", &["0", "1", "2", "3"]).await;
    let some = |name: &str, max| Copied { length_max: Some(max), ..copy(name) };
    made(store.copy_session(&id("a"), some("b", 3), false).await);
    made(store.copy_session(&id("a"), some("all", 4), false).await);
    made(store.copy_session(&id("a"), some("more", 5), false).await);
    made(store.copy_session(&id("a"), some("none", 0), false).await);
    made(store.append(lease, step(4, &["4"])).await);
    let loaded = found(store.load(&id("b"), None).await);
    assert_eq!(loaded.record.message_count, 3);
    made(store.append(loaded.lease, step(3, &["3b", "4b"])).await);
    // Also where what is kept lies in a log before its own, and when that has gone.
    made(store.copy_session(&id("b"), some("c", 2), false).await);
    made(store.copy_session(&id("b"), some("d", 4), false).await);
    made(store.delete(&id("a")).await);
    made(store.delete(&id("b")).await);
    assert_eq!(texts(&store, "c").await, ["0", "1"]);
    assert_eq!(texts(&store, "d").await, ["0", "1", "2", "3b"]);
    for name in ["all", "more"] {
        assert_eq!(texts(&store, name).await, ["0", "1", "2", "3"], "{name}");
    }
    assert_eq!(texts(&store, "none").await, [""; 0]);
}

pub async fn a_copy_stands_where_its_source_stands(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("p")).await);
    let mut source = AgentRecord { ceiling: Some(settings().permissions), ..child("a", "p") };
    source.settings.grants.write_paths.insert("/w/out".into());
    source.progress.should_shutdown = true;
    made(store.create(source).await);
    let mut settings = settings();
    settings.system_prompt = Some("Be brief.".into());
    let progress = Progress { last_iteration_count: 3, ..Progress::default() };
    let copied = |name: &str| {
        let (name, settings) = (id(name), settings.clone());
        Copied { name, settings, progress, made_by: Some(id("p")), length_max: None }
    };
    made(store.copy_session(&id("a"), copied("b"), false).await);
    found(store.load_copy(&id("a"), copied("c")).await);
    let a = found(store.session(&id("a")).await);
    for (name, saved) in [("b", true), ("c", false)] {
        let copy = found(store.session(&id(name)).await);
        assert_eq!((copy.saved, copy.made_by), (saved, Some(id("p"))));
        assert!(copy.record.created_at > a.record.created_at);
        assert!(copy.record.born > a.record.born);
        let AgentRecord { created_at, born, .. } = copy.record;
        let (settings, same) = (settings.clone(), a.record.clone());
        let same = AgentRecord { id: id(name), created_at, born, settings, progress, ..same };
        assert_eq!(format!("{same:?}"), format!("{:?}", copy.record));
    }
}

pub async fn a_tree_is_counted_with_what_was_saved_of_it(place: impl Place) {
    let store = place.open().await;
    for (name, parent) in [("p", None), ("k", Some("p")), ("l", Some("p")), ("g", Some("k"))] {
        made(store.create(AgentRecord { parent: parent.map(id), ..agent(name) }).await);
    }
    made(store.create(agent("other")).await);
    let census = async |root: &str, parent: Option<&str>| {
        let Census { children, tree } =
            made(store.census(&id(root), parent.map(id).as_ref(), 100).await);
        (children, tree)
    };
    assert_eq!(census("p", Some("p")).await, (2, 4));
    assert_eq!(census("p", Some("k")).await, (1, 4));
    assert_eq!(census("p", Some("g")).await, (0, 4));
    assert_eq!(census("other", None).await, (0, 1));
    assert_eq!(census("nobody", None).await, (0, 0));
    // One that was saved beneath an agent, and one that an agent without a parent saved of itself.
    made(store.copy_session(&id("l"), copy("l2"), false).await);
    let own = Copied { made_by: Some(id("p")), ..copy("p2") };
    made(store.copy_session(&id("p"), own, false).await);
    made(store.copy_session(&id("p"), copy("persons"), false).await);
    assert_eq!(census("p", Some("p")).await, (2, 6));
    made(store.rename(&id("p"), &id("q")).await);
    assert_eq!(census("q", Some("q")).await, (2, 6));
    let Census { tree, .. } = made(store.census(&id("q"), None, 2).await);
    assert!(tree >= 2, "as many as were asked for");
}

pub async fn a_saved_session_is_no_agent_until_it_is_loaded(place: impl Place) {
    let store = place.open().await;
    speaking(&store, "a", &["0"]).await;
    made(store.copy_session(&id("a"), copy("b"), false).await);
    assert_eq!(names(&store).await, [id("a")]);
    refused!(store.copy_session(&id("a"), copy("b"), false).await, StoreError::Saved(_));
    refused!(store.load_copy(&id("a"), copy("b")).await, StoreError::Saved(_));
    let settings = AgentSettings { model: Some("other".into()), ..settings() };
    let loaded = found(store.load(&id("b"), Some(settings.clone())).await);
    assert_eq!(loaded.record.settings, settings);
    assert_eq!(loaded.window.messages.len(), 1);
    assert_eq!(names(&store).await, ["a", "b"].map(id));
    refused!(store.load_copy(&id("a"), copy("b")).await, StoreError::Exists(name) if name == id("b"));
    let copied = found(store.load_copy(&id("a"), copy("c")).await);
    made(store.append(copied.lease, step(1, &["1"])).await);
    assert_eq!(texts(&store, "c").await, ["0", "1"]);
    assert_eq!(texts(&store, "a").await, ["0"]);
    assert!(made(store.load_copy(&id("nobody"), copy("n")).await).is_none());
    assert!(made(store.load(&id("nobody"), None).await).is_none());
}

pub async fn an_agent_can_be_loaded_where_it_stands(place: impl Place) {
    let store = place.open().await;
    let old = speaking(&store, "a", &["0"]).await;
    let born = found(store.session(&id("a")).await).record.born;
    let loaded = found(store.load(&id("a"), None).await);
    assert_eq!((loaded.lease.agent, loaded.record.born), (old.agent, born));
    refused!(store.append(old, step(1, &["x"])).await, StoreError::LeaseLost);
    made(store.append(loaded.lease, step(1, &["1"])).await);
}

pub async fn what_was_saved_by_name_outlives_its_agent(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("p")).await);
    for name in ["k", "kept"] {
        let lease = made(store.create(child(name, "p")).await);
        made(store.append(lease, step(0, &[name])).await);
        if name == "kept" {
            made(store.keep(lease).await);
        }
    }
    made(store.copy_session(&id("k"), copy("copy"), false).await);
    assert_eq!(made(store.destroy(vec![id("p")]).await), ["p", "k", "kept"].map(id));
    assert!(names(&store).await.is_empty());
    let mut left = sessions(&store).await;
    left.sort();
    assert_eq!(left, ["copy", "kept"].map(id));
    for name in ["copy", "kept"] {
        let session = found(store.session(&id(name)).await);
        assert_eq!((session.saved, session.record.parent), (true, None), "{name}");
        assert_eq!(session.made_by, Some(id("p")), "{name}");
    }
    assert_eq!(texts(&store, "copy").await, ["k"]);
    let loaded = found(store.load(&id("kept"), None).await);
    assert_eq!(loaded.window.messages.len(), 1);
    assert_eq!(made(store.destroy(vec![id("kept")]).await), [id("kept")], "and again");
    assert!(found(store.session(&id("kept")).await).saved);
}

pub async fn a_later_save_replaces_its_copy_and_no_other(place: impl Place) {
    let store = place.open().await;
    let lease = speaking(&store, "a", &["0"]).await;
    made(store.copy_session(&id("a"), copy("snap"), true).await);
    made(store.append(lease, step(1, &["1"])).await);
    made(store.copy_session(&id("a"), copy("snap"), true).await);
    assert_eq!(texts(&store, "snap").await, ["0", "1"]);
    speaking(&store, "b", &["other"]).await;
    refused!(store.copy_session(&id("b"), copy("snap"), true).await, StoreError::Saved(_));
    found(store.load(&id("snap"), None).await);
    refused!(store.copy_session(&id("a"), copy("snap"), true).await, StoreError::Exists(_));
    made(store.destroy(vec![id("a")]).await);
    assert_eq!(texts(&store, "snap").await, ["0", "1"]);
}

pub async fn a_name_changes_in_all_that_refers_to_it(place: impl Place) {
    let store = place.open().await;
    let lease = speaking(&store, "a", &["0"]).await;
    made(store.create(child("k", "a")).await);
    made(store.copy_session(&id("a"), copy("saved"), false).await);
    refused!(store.rename(&id("a"), &id("k")).await, StoreError::Exists(_));
    refused!(store.rename(&id("a"), &id("saved")).await, StoreError::Saved(_));
    assert!(made(store.rename(&id("a"), &id("b")).await).is_some());
    assert!(made(store.rename(&id("a"), &id("c")).await).is_none());
    made(store.append(lease, step(1, &["1"])).await);
    assert_eq!(texts(&store, "b").await, ["0", "1"], "the lease follows");
    let lineage = made(store.lineage(&id("k")).await);
    assert_eq!(lineage[1].id, id("b"));
    assert!(made(store.session(&id("a")).await).is_none());
    assert!(made(store.rename(&id("saved"), &id("a")).await).is_some());
    assert!(found(store.session(&id("a")).await).saved);
}

pub async fn a_child_is_made_beneath_whoever_bears_the_key(place: impl Place) {
    let store = place.open().await;
    let parent = made(store.create(agent("a")).await).agent;
    made(store.rename(&id("a"), &id("b")).await);
    made(store.create(agent("a")).await);
    made(store.create_child(child("k", "a"), parent).await);
    assert_eq!(made(store.lineage(&id("k")).await)[1].id, id("b"));
    made(store.destroy(vec![id("b")]).await);
    let orphan = store.create_child(child("l", "b"), parent).await;
    refused!(orphan, StoreError::UnknownParent(name) if name == id("b"));
    assert_eq!(names(&store).await, [id("a")]);
}

pub async fn a_temporary_agent_is_settled_with_all_it_said(place: impl Place) {
    let store = place.open().await;
    let messages = vec![said("0"), said("1")];
    let (lease, _) = made(store.settle(&id(".1"), agent("t"), messages).await);
    made(store.append(lease, step(2, &["2"])).await);
    refused!(store.settle(&id(".2"), agent("t"), Vec::new()).await, StoreError::Exists(_));
    let orphan = store.settle(&id(".2"), child("u", "nobody"), Vec::new()).await;
    refused!(orphan, StoreError::UnknownParent(_));
    made(store.destroy(vec![id("t")]).await);
    assert_eq!(texts(&store, "t").await, ["0", "1", "2"], "it was saved by name");
    refused!(store.settle(&id(".2"), agent("t"), Vec::new()).await, StoreError::Saved(_));
}

pub async fn sessions_come_by_page_the_last_changed_first(place: impl Place) {
    let store = place.open().await;
    let parents = [("p", None), ("k", Some("p")), ("g", Some("k")), ("q", None), ("r", Some("q"))];
    let mut first = None;
    for (name, parent) in parents {
        let record = AgentRecord { parent: parent.map(id), ..agent(name) };
        let lease = made(store.create(record).await);
        made(store.append(lease, step(0, &["x"])).await);
        first = first.or(Some(lease));
    }
    made(store.copy_session(&id("g"), copy("gc"), false).await);
    let page = async |offset: u64, limit: u32, line_of: Option<&str>| {
        let query = SessionQuery { offset, limit, line_of: line_of.map(id) };
        let SessionPage { total, sessions } = made(store.sessions(query).await);
        let names: Vec<_> = sessions.iter().map(|it| it.record.id.to_string()).collect();
        (total, names.join(" "))
    };
    assert_eq!(page(0, 50, None).await, (6, "gc r q g k p".into()));
    assert_eq!(page(2, 3, None).await, (6, "q g k".into()));
    assert_eq!(page(u64::MAX, 1, None).await, (6, String::new()));
    assert_eq!(page(0, 50, Some("k")).await, (3, "gc g k".into()));
    assert_eq!(page(0, 50, Some("nobody")).await, (0, String::new()));
    let Some(lease) = first else { return };
    made(store.append(lease, Append { progress: None, ..step(1, &["y"]) }).await);
    assert_eq!(page(0, 50, None).await.1, "gc r q g k p", "the turn has only begun");
    made(store.append(lease, step(2, &["z"])).await);
    assert_eq!(page(0, 50, None).await.1, "p gc r q g k");
}

pub async fn a_session_is_deleted_saved_or_not(place: impl Place) {
    let store = place.open().await;
    let lease = speaking(&store, "a", &["0"]).await;
    made(store.keep(lease).await);
    made(store.create(child("k", "a")).await);
    made(store.copy_session(&id("k"), copy("saved"), false).await);
    assert_eq!(made(store.delete(&id("a")).await), ["a", "k"].map(id));
    assert_eq!(sessions(&store).await, [id("saved")]);
    assert_eq!(made(store.delete(&id("saved")).await), [id("saved")]);
    assert!(made(store.delete(&id("saved")).await).is_empty());
    assert!(sessions(&store).await.is_empty());
}

pub async fn a_session_is_read_whoever_holds_it(place: impl Place) {
    let (here, there) = (place.open().await, place.open().await);
    let lease = speaking(&here, "a", &["0"]).await;
    assert_eq!(texts(&there, "a").await, ["0"]);
    assert!(made(there.copy_session(&id("a"), copy("b"), false).await));
    made(here.append(lease, step(1, &["1"])).await);
    assert_eq!(texts(&there, "a").await, ["0", "1"]);
    let copy = found(there.load_copy(&id("a"), copy("c")).await);
    assert_eq!(copy.window.messages.len(), 2);
    assert_eq!(texts(&here, "b").await, ["0"]);
}
