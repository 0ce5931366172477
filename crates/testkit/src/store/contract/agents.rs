//! Agents: made, written, read by page, ended.

use futures_util::future::join_all;
use nexus_core::message::Role;
use nexus_core::store::{
    AgentPage, AgentQuery, AgentRecord, AgentStore, Append, Progress, SessionStore, Store,
    StoreError, Window,
};

use super::{Place, found, made, names, refused, sessions, speaking, texts};
use crate::store::sample::{agent, child, copy, id, said, settings, spoken, step, summary};

pub async fn a_taken_name_is_refused(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("a")).await);
    refused!(store.create(agent("a")).await, StoreError::Exists(name) if name == id("a"));
    made(store.copy_session(&id("a"), copy("b"), false).await);
    refused!(store.create(agent("b")).await, StoreError::Saved(name) if name == id("b"));
    assert_eq!(names(&store).await, [id("a")]);
}

pub async fn a_permanent_parent_must_be_stored(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("a")).await);
    made(store.copy_session(&id("a"), copy("saved"), false).await);
    for parent in ["nobody", "saved"] {
        let orphan = store.create(child("k", parent)).await;
        refused!(orphan, StoreError::UnknownParent(name) if name == id(parent));
    }
    made(store.create(child("k", "a")).await);
    made(store.create(child("t", ".1")).await);
    made(store.destroy(vec![id("a")]).await);
    refused!(store.create(child("l", "a")).await, StoreError::UnknownParent(_));
}

pub async fn an_agent_comes_back_as_it_was_made(place: impl Place) {
    let store = place.open().await;
    made(store.create(agent("p")).await);
    let mut settings = settings();
    settings.grants.write_paths.insert("/w/out".into());
    settings.grants.exec_dirs.insert("exec".into(), ["/w".into()].into());
    settings.permissions.disabled_tools.insert("x\"\0\u{1f600}".into());
    settings.model = Some("m".into());
    settings.system_prompt = Some("Be brief.\n".into());
    let progress = Progress {
        halted_at_iteration_limit: true,
        last_iteration_count: 7,
        should_shutdown: true,
    };
    let ceiling = Some(settings.permissions.clone());
    let record = AgentRecord { ceiling, settings, progress, ..child("a", "p") };
    let lease = made(store.create(record.clone()).await);
    let stored = found(store.acquire(&id("a")).await);
    assert_eq!(stored.lease.agent, lease.agent);
    assert!(stored.record.born > 0);
    assert!(stored.record.root > 0);
    // All fields print what they hold. What is not taken need not say where its conversation began.
    let print = |record: AgentRecord| format!("{:?}", AgentRecord { root: 0, ..record });
    let expected = print(AgentRecord { born: stored.record.born, ..record });
    assert_eq!(print(stored.record), expected);
    assert_eq!((stored.window.first, stored.window.messages.len()), (0, 0));
    assert_eq!(print(made(store.lineage(&id("a")).await)[0].clone()), expected);
    assert_eq!(print(found(store.session(&id("a")).await).record), expected);
    let page = made(store.agents(query(Some("p"), 1)).await);
    assert_eq!(print(page.agents[0].record.clone()), expected);
}

pub async fn who_is_not_stored_is_nobody(place: impl Place) {
    let store = place.open().await;
    speaking(&store, "a", &["0"]).await;
    made(store.copy_session(&id("a"), copy("saved"), false).await);
    for name in ["nobody", "saved", ".1"] {
        assert!(made(store.acquire(&id(name)).await).is_none(), "{name}");
        assert!(made(store.lineage(&id(name)).await).is_empty(), "{name}");
        assert!(made(store.destroy(vec![id(name)]).await).is_empty(), "{name}");
    }
    assert!(made(store.session(&id("nobody")).await).is_none());
    assert!(made(store.read_session(&id("nobody")).await).is_none());
    assert!(made(store.delete(&id("nobody")).await).is_empty());
}

pub async fn each_that_had_a_name_is_told_from_the_others(place: impl Place) {
    let store = place.open().await;
    let born = async |name: &str| found(store.session(&id(name)).await).record.born;
    let first = made(store.create(agent("a")).await);
    let mut last = born("a").await;
    made(store.release(found(store.acquire(&id("a")).await).lease).await);
    assert_eq!(born("a").await, last, "it is the same one");
    made(store.destroy(vec![id("a")]).await);
    let second = made(store.create(agent("a")).await);
    assert_ne!(first.agent, second.agent);
    assert!(born("a").await > last, "made anew");
    last = born("a").await;
    assert_eq!(made(store.rename(&id("a"), &id("b")).await), Some(born("b").await));
    assert!(born("b").await > last, "renamed");
    last = born("b").await;
    made(store.copy_session(&id("b"), copy("saved"), false).await);
    let loaded = found(store.load(&id("saved"), None).await);
    assert!(loaded.record.born > last, "loaded");
    last = loaded.record.born;
    assert!(
        found(store.load_copy(&id("b"), copy("c")).await).record.born > last,
        "loaded as a copy"
    );
    last = born("c").await;
    let (_, settled) = made(store.settle(&id(".1"), agent("d"), Vec::new()).await);
    assert_eq!(settled, born("d").await);
    assert!(settled > last, "settled");
}

pub async fn settings_are_replaced_as_a_whole(place: impl Place) {
    let store = place.open().await;
    let lease = made(store.create(agent("a")).await);
    let mut changed = settings();
    changed.permissions.blocked.insert("/w/secret".into());
    changed.grants.write_paths.insert("/w/out".into());
    changed.cwd = "/elsewhere".into();
    changed.system_prompt = Some("Be brief.".into());
    made(store.update(lease, changed.clone()).await);
    assert_eq!(made(store.lineage(&id("a")).await)[0].settings, changed);
    made(store.update(lease, settings()).await);
    assert_eq!(found(store.acquire(&id("a")).await).record.settings, settings());
}

pub async fn an_append_goes_on_where_the_last_ended(place: impl Place) {
    let store = place.open().await;
    let lease = speaking(&store, "a", &["0", "1"]).await;
    for first_index in [0, 1, 3, u64::MAX] {
        refused!(store.append(lease, step(first_index, &["x"])).await, StoreError::Failed(_));
    }
    made(store.append(lease, step(2, &["2"])).await);
    assert_eq!(texts(&store, "a").await, ["0", "1", "2"]);
    let record = found(store.acquire(&id("a")).await).record;
    assert_eq!(record.message_count, 3);
    assert_eq!(record.last_action_at, Some(said("").meta.at));
}

pub async fn a_write_is_queued_when_it_is_called(place: impl Place) {
    let store = place.open().await;
    let lease = made(store.create(agent("a")).await);
    let first = store.append(lease, step(0, &["0"]));
    let changed = store
        .update(lease, nexus_core::agent::AgentSettings { model: Some("m".into()), ..settings() });
    let second = store.append(lease, step(1, &["1"]));
    made(second.await);
    drop((first, changed));
    assert_eq!(texts(&store, "a").await, ["0", "1"]);
    let record = found(store.acquire(&id("a")).await).record;
    assert_eq!(record.settings.model.as_deref(), Some("m"));
}

pub async fn many_writers_keep_their_order(place: impl Place) {
    let store = place.open().await;
    let write = async |name: String| {
        let lease = made(store.create(agent(&name)).await);
        let appends = (0..50).map(|index: u64| {
            let text = index.to_string();
            store.append(lease, step(index, &[&text]))
        });
        join_all(appends).await.into_iter().for_each(made);
    };
    join_all((0..8).map(|writer| write(format!("a{writer}")))).await;
    drop(store);
    let store = place.open().await;
    let expected: Vec<_> = (0..50).map(|index| index.to_string()).collect();
    for writer in 0..8 {
        assert_eq!(texts(&store, &format!("a{writer}")).await, expected);
    }
}

pub async fn progress_is_left_alone_unless_it_is_given(place: impl Place) {
    let store = place.open().await;
    let lease = made(store.create(agent("a")).await);
    let halted = Progress {
        halted_at_iteration_limit: true,
        last_iteration_count: 7,
        should_shutdown: false,
    };
    made(store.append(lease, Append { progress: Some(halted), ..step(0, &["0"]) }).await);
    made(store.append(lease, Append { progress: None, ..step(1, &["1"]) }).await);
    assert_eq!(made(store.lineage(&id("a")).await)[0].progress, halted);
    made(store.append(lease, Append { progress: Some(Progress::default()), ..step(2, &[]) }).await);
    assert_eq!(made(store.lineage(&id("a")).await)[0].progress, Progress::default());
}

pub async fn a_history_is_read_by_range(place: impl Place) {
    let store = place.open().await;
    let words: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let lease = speaking(&store, "a", &words).await;
    speaking(&store, "b", &["other"]).await;
    made(store.append(lease, step(100, &["100"])).await);
    let read = async |first: u64, limit: u32| -> Vec<String> {
        let messages = made(store.messages(lease.agent, first, limit, usize::MAX).await);
        messages.iter().map(|message| message.text().into_owned()).collect()
    };
    assert_eq!(read(0, 2).await, ["0", "1"]);
    assert_eq!(read(31, 3).await, ["31", "32", "33"]);
    assert_eq!(read(99, 9).await, ["99", "100"]);
    assert_eq!(read(101, 9).await, [""; 0]);
    assert_eq!(read(u64::MAX, 9).await, [""; 0]);
    assert_eq!(read(3, 0).await, [""; 0]);
    assert_eq!(read(0, u32::MAX).await.len(), 101);
    // Ten of one letter and the others of two.
    let within =
        async |bytes_max: usize| made(store.messages(lease.agent, 0, 99, bytes_max).await).len();
    assert_eq!(
        [within(1).await, within(10).await, within(11).await, within(13).await],
        [1, 10, 11, 12]
    );
    made(store.destroy(vec![id("a")]).await);
    refused!(store.messages(lease.agent, 0, 9, usize::MAX).await, StoreError::Ended);
}

pub async fn without_a_summary_the_window_is_all(place: impl Place) {
    let store = place.open().await;
    let lease = made(store.create(agent("a")).await);
    let messages = (0..70).map(|n| spoken(Role::Assistant, n.to_string())).collect();
    made(store.append(lease, Append { messages, ..Append::default() }).await);
    let Window { first, messages } = found(store.acquire(&id("a")).await).window;
    let said: Vec<_> = messages.iter().map(|it| it.text().into_owned()).collect();
    let expected: Vec<_> = (0..70).map(|n| n.to_string()).collect();
    assert_eq!((first, said), (0, expected));
}

/// `u` user, `a` assistant, `s3` summary of the first 3; where the window begins stands beside it.
pub async fn the_window_begins_with_what_was_asked_before_the_summary(place: impl Place) {
    let cases = [
        ("u a u a s2 u", 0),
        ("u a u a s3 u", 2),
        ("u a u a s4 a", 2),
        ("u a u a s4 a u a", 2),
        ("u a s2 u a u s5 a", 3),
        ("u a s9", 0),
        ("u a s0 u", 0),
        ("a a a s2 a", 2),
        ("u s1 s2 a", 0),
    ];
    let store = place.open().await;
    for (at, (history, expected)) in cases.into_iter().enumerate() {
        let (name, other) = (format!("a{at}"), format!("copy{at}"));
        let lease = made(store.create(agent(&name)).await);
        let messages = history.split(' ').map(|word| match word.split_at(1) {
            ("u", _) => said(word),
            ("a", _) => spoken(Role::Assistant, word),
            (_, covers) => summary(made(covers.parse())),
        });
        let messages: Vec<_> = messages.collect();
        let length = messages.len();
        made(store.append(lease, Append { messages, ..Append::default() }).await);
        for stored in
            [store.acquire(&id(&name)).await, store.load_copy(&id(&name), copy(&other)).await]
        {
            let Window { first, messages } = found(stored).window;
            assert_eq!((first, messages.len()), (expected as u64, length - expected), "{history}");
        }
    }
}

pub async fn agents_come_by_page(place: impl Place) {
    let store = place.open().await;
    for name in ["c", "a", "d", "b"] {
        made(store.create(agent(name)).await);
    }
    made(store.copy_session(&id("a"), copy("saved"), false).await);
    made(store.create(agent("e")).await);
    let page = async |after: Option<&str>, limit: u32| {
        let AgentPage { agents, more } = made(store.agents(query(after, limit)).await);
        (agents.iter().map(|it| it.record.id.to_string()).collect::<Vec<_>>().join(" "), more)
    };
    assert_eq!(page(None, 2).await, ("c a".into(), true));
    assert_eq!(page(Some("a"), 2).await, ("d b".into(), true));
    assert_eq!(page(Some("b"), 2).await, ("e".into(), false));
    assert_eq!(page(None, 5).await, ("c a d b e".into(), false));
    assert_eq!(page(Some("e"), 5).await, (String::new(), false));
    assert_eq!(page(Some("nobody"), 5).await, (String::new(), false));
}

pub async fn those_told_to_shut_down_can_be_left_out(place: impl Place) {
    let store = place.open().await;
    for name in ["a", "b", "c"] {
        let progress = Progress { should_shutdown: name == "b", ..Progress::default() };
        made(store.create(AgentRecord { progress, ..agent(name) }).await);
    }
    let page = made(store.agents(AgentQuery { working: true, ..query(None, 2) }).await);
    let working: Vec<_> = page.agents.iter().map(|it| it.record.id.as_str()).collect();
    assert_eq!((working, page.more), (vec!["a", "c"], false));
    assert_eq!(names(&store).await.len(), 3);
}

pub async fn a_line_is_an_agent_with_those_above_and_below(place: impl Place) {
    let store = place.open().await;
    family(&store).await;
    made(store.copy_session(&id("g"), copy("saved"), false).await);
    let line = async |of: &str| {
        let query = AgentQuery { line_of: Some(id(of)), ..query(None, 100) };
        let agents = made(store.agents(query).await).agents;
        let shown = agents.iter().map(|it| format!("{}:{}", it.record.id, it.child_count));
        shown.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("k").await, "p:2 k:1 g:0");
    assert_eq!(line("l").await, "p:2 l:0");
    assert_eq!(line("p").await, "p:2 k:1 l:0 g:0");
    assert_eq!(line("other").await, "other:0");
    assert_eq!(line("nobody").await, "");
    let query = AgentQuery { line_of: Some(id("p")), ..query(Some("p"), 2) };
    let page = made(store.agents(query).await);
    let shown: Vec<_> = page.agents.iter().map(|it| it.record.id.as_str()).collect();
    assert_eq!((shown, page.more), (vec!["k", "l"], true));
}

pub async fn a_lineage_leads_up_from_the_agent(place: impl Place) {
    let (store, other) = (place.open().await, place.open().await);
    family(&store).await;
    made(store.create(child("t", ".1")).await);
    let lineage = async |of: &str| {
        let records = made(other.lineage(&id(of)).await);
        records.iter().map(|it| it.id.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(lineage("g").await, "g k p");
    assert_eq!(lineage("p").await, "p");
    assert_eq!(lineage("t").await, "t", "its parent is stored nowhere");
    assert_eq!(lineage("nobody").await, "");
}

pub async fn descendants_end_with_their_ancestor(place: impl Place) {
    let store = place.open().await;
    family(&store).await;
    let all = vec![id("nobody"), id("g"), id("p"), id("g")];
    assert_eq!(made(store.destroy(all).await), ["p", "k", "l", "g"].map(id), "parents first");
    assert_eq!(names(&store).await, [id("other")]);
    assert!(made(store.destroy(Vec::new()).await).is_empty());
}

pub async fn what_was_ended_leaves_nothing_behind(place: impl Place) {
    let store = place.open().await;
    for name in ["a", "b"] {
        speaking(&store, name, &[name]).await;
    }
    made(store.destroy(vec![id("a")]).await);
    assert!(made(store.acquire(&id("a")).await).is_none());
    assert_eq!(sessions(&store).await, [id("b")]);
    speaking(&store, "a", &[]).await;
    assert_eq!(texts(&store, "a").await, [""; 0]);
    assert_eq!(texts(&store, "b").await, ["b"]);
}

fn query(after: Option<&str>, limit: u32) -> AgentQuery {
    AgentQuery { after: after.map(id), limit, line_of: None, working: false }
}

/// `p` with its children `k` and `l`, `g` beneath `k`, and one that is nobody's.
async fn family(store: &impl Store) {
    let grandchild = AgentRecord { depth: 2, ..child("g", "k") };
    for record in [agent("p"), child("k", "p"), child("l", "p"), agent("other"), grandchild] {
        made(store.create(record).await);
    }
}
