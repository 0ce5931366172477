//! Names in motion: whoever makes, finds, renames and ends agents of the same few names at the same time, directory and
//! store agree when they are done.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use nexus_core::gate::Explanation;
use nexus_core::lifecycle::{AgentSpec, Status};
use nexus_core::logs::AgentLogs;
use nexus_core::message::SharedMessage;
use nexus_core::session::LoadSpec;
use nexus_core::store::{AgentQuery, AgentStore as _, SessionStore as _, StoreError};
use nexus_core::{Agent, AgentId};
use nexus_testkit::store::MemoryStore;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::fakes::{ADMIN, World, child, id, lines, trusted, until};

#[tokio::test]
async fn a_child_that_is_made_while_its_parent_is_renamed_is_its_child() {
    for name in ["k", ".k"] {
        let world = World::new();
        world.make(trusted("p")).await;
        // Looking at the place takes a thread, and so a moment in which the parent gets another name.
        let spec = AgentSpec { cwd: Some("/usr".into()), ..child(name, "p") };
        let agents = world.engine.agents.clone();
        let mut making = async move { agents.create(&ADMIN, spec).await }.boxed();
        assert!(poll_fn(|cx| Poll::Ready(making.as_mut().poll(cx))).await.is_pending());
        world.engine.sessions.rename(&ADMIN, &id("p"), &id("q")).await.unwrap();
        let made = making.await.unwrap();
        assert_eq!(made.look().parent, Some(id("q")));
        let own = nexus_core::Requester::Agent(id("q"));
        world
            .engine
            .agents
            .find(&own, &id(name), nexus_core::authority::Action::Manage)
            .await
            .unwrap();
        let gone = world.engine.agents.destroy(&ADMIN, &id("q")).await.unwrap();
        assert_eq!(gone, [id("q"), id(name)]);
        assert!(world.cards().await.is_empty());
    }
}

/// The store knows the new name before the directory does: the child is asked for in between.
#[tokio::test]
async fn a_child_that_is_stored_after_its_parent_was_renamed_is_its_child() {
    for name in ["k", ".k"] {
        let world = World::new();
        world.make(trusted("p")).await;
        let held = world.store.hold();
        let engine = world.engine.clone();
        let renaming =
            tokio::spawn(async move { engine.sessions.rename(&ADMIN, &id("p"), &id("q")).await });
        world.store.until_waiting(1).await;
        let (agents, spec) = (world.engine.agents.clone(), child(name, "p"));
        let making = tokio::spawn(async move { agents.create(&ADMIN, spec).await });
        match id(name).is_temp() {
            true => tokio::task::yield_now().await,
            false => world.store.until_waiting(2).await,
        }
        drop(held);
        renaming.await.unwrap().unwrap();
        let made = making.await.unwrap().unwrap();
        until(|| made.look().parent == Some(id("q"))).await;
        let gone = world.engine.agents.destroy(&ADMIN, &id("q")).await.unwrap();
        assert_eq!(gone, [id("q"), id(name)]);
    }
}

/// Only the first of the two writes is on its way when the second is asked for.
#[tokio::test]
async fn a_rename_and_an_end_at_once_leave_one_of_the_two_names_or_none() {
    for rename_first in [true, false] {
        let world = World::new();
        world.make(trusted("p")).await;
        world.make(child(".k", "p")).await;
        let held = world.store.hold();
        let (engine, other) = (world.engine.clone(), world.engine.clone());
        let rename =
            async move { engine.sessions.rename(&ADMIN, &id("p"), &id("q")).await.is_ok() };
        let destroy = async move { other.agents.destroy(&ADMIN, &id("p")).await.unwrap().len() };
        let (renamed, gone) = match rename_first {
            true => {
                let renaming = tokio::spawn(rename);
                world.store.until_waiting(1).await;
                let destroying = tokio::spawn(destroy);
                tokio::task::yield_now().await;
                drop(held);
                (renaming.await.unwrap(), destroying.await.unwrap())
            }
            false => {
                let destroying = tokio::spawn(destroy);
                world.store.until_waiting(1).await;
                let renaming = tokio::spawn(rename);
                tokio::task::yield_now().await;
                drop(held);
                (renaming.await.unwrap(), destroying.await.unwrap())
            }
        };
        assert_eq!((renamed, gone), if rename_first { (true, 0) } else { (false, 2) });
        assert_eq!(world.cards().await.len(), if rename_first { 2 } else { 0 });
        check(&world, &["p", "q", ".k"]).await;
    }
}

/// Stops each rename between the store, which has it, and the directory, which has not, until it is let go on.
struct Stopping {
    stopped: mpsc::Sender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl AgentLogs for Stopping {
    fn messages(&self, _: &AgentId, _: &[SharedMessage]) {}

    fn renamed(&self, _: &AgentId, _: &AgentId) {
        self.stopped.send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
    }
}

/// A process on `store` whose rename of `from` to `to` is stopped in the middle, and what lets it go on.
async fn stopped_in_the_middle(
    store: Arc<MemoryStore>,
    make: Vec<AgentSpec>,
    (from, to): (&'static str, &'static str),
) -> (World, Agent, mpsc::Sender<()>, JoinHandle<bool>) {
    let ((stopped, is_stopped), (let_go, go_on)) = (mpsc::channel(), mpsc::channel());
    let logs = Stopping { stopped, go_on: Mutex::new(go_on) };
    let world = World::logging(store, Arc::new(logs), |_| {});
    for spec in make {
        world.make(spec).await;
    }
    let agent = world.find(from).await.unwrap();
    let engine = world.engine.clone();
    let renaming =
        tokio::spawn(
            async move { engine.sessions.rename(&ADMIN, &id(from), &id(to)).await.is_ok() },
        );
    tokio::task::spawn_blocking(move || is_stopped.recv()).await.unwrap().unwrap();
    (world, agent, let_go, renaming)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_agent_that_is_being_renamed_is_not_ended_under_its_old_name() {
    let specs = vec![trusted("p"), child(".k", "p")];
    let (world, agent, let_go, renaming) =
        stopped_in_the_middle(Arc::default(), specs, ("p", "q")).await;
    let engine = world.engine.clone();
    let ending = tokio::spawn(async move { engine.agents.destroy(&ADMIN, &id("p")).await });
    for _ in 0..1000 {
        // It has the time to do what it must not.
        tokio::task::yield_now().await;
    }
    let_go.send(()).unwrap();
    assert!(renaming.await.unwrap());
    assert_eq!(ending.await.unwrap().unwrap(), []);
    world.say(&agent, "still there?").await.unwrap();
    assert_eq!((agent.id(), world.cards().await.len()), (id("q"), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_agent_that_is_being_renamed_may_what_it_may() {
    let there = World::new();
    there.make(trusted("p")).await;
    there.make(child("k", "p")).await;
    there.engine.agents.sweep(Duration::ZERO, Duration::ZERO).await;
    there.find("p").await.unwrap();
    let store = Arc::new(there.store.neighbour());
    let (world, kid, let_go, renaming) = stopped_in_the_middle(store, vec![], ("k", "n")).await;
    let explained = world.engine.gate.explain(&kid, "echo", &json!({"read": "/usr"})).await;
    let_go.send(()).unwrap();
    assert!(renaming.await.unwrap());
    assert_eq!(explained, Explanation::Allowed);
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// One of the hundred: what it does is drawn, and whether it succeeds is all the same.
async fn do_something(world: World, mut random: fastrand::Rng) {
    let (agents, sessions) = (&world.engine.agents, &world.engine.sessions);
    let [name, other] = [0, 1].map(|_| NAMES[random.usize(..NAMES.len())]);
    let temporary = format!(".{name}");
    match random.u8(..15) {
        0 | 1 => drop(agents.create(&ADMIN, trusted(name)).await),
        2 => drop(agents.create(&ADMIN, child("k", name)).await),
        3 => drop(agents.create(&ADMIN, child(&temporary, name)).await),
        4 => drop(agents.destroy(&ADMIN, &id(name)).await),
        5 | 6 => drop(sessions.rename(&ADMIN, &id(name), &id(other)).await),
        10 => drop(sessions.save(&ADMIN, &id(&temporary), &id(other)).await),
        11 => drop(sessions.save(&ADMIN, &id(name), &id(other)).await),
        12 => drop(sessions.delete(&ADMIN, &id(name)).await),
        13 | 14 => {
            let (session, agent) = (id(name), Some(id(other)));
            let spec =
                LoadSpec { session, agent, preset: None, model: None, hand: Default::default() };
            drop(sessions.load(&ADMIN, spec).await);
        }
        7 => drop(world.find(name).await),
        8 => drop(agents.sweep(Duration::ZERO, Duration::from_secs(3600)).await),
        _ => {
            if let Ok(agent) = world.find(name).await {
                drop(world.say(&agent, "hello").await);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn names_that_many_want_at_once_are_had_by_one() {
    for seed in 0..24 {
        let world = World::with(|settings| settings.max_queued = 1000);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut tasks = Vec::new();
        for _ in 0..100 {
            tasks.push(tokio::spawn(do_something(world.clone(), random.fork())));
        }
        let all = futures_util::future::join_all(tasks);
        // Fails a test that would hang; nothing waits for it.
        let done = tokio::time::timeout(Duration::from_secs(60), all).await;
        for task in done.unwrap_or_else(|_| panic!("seed {seed}: nobody gets on")) {
            task.unwrap();
        }
        check(&world, &ALL).await;
    }
}

const ALL: [&str; 7] = ["a", "b", "c", "k", ".a", ".b", ".c"];

/// As above, but every third caller goes away before it is answered, and every tenth call of the store fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_go_away_and_a_store_that_fails_tear_no_name() {
    for seed in 0..24 {
        let world = World::with(|settings| settings.max_queued = 1000);
        let mut random = fastrand::Rng::with_seed(seed);
        let armed = Arc::new(AtomicBool::new(true));
        let (fails, mut faults) = (armed.clone(), random.fork());
        world.store.fail_when(move |_| {
            let now = faults.u8(..10) == 0 && fails.load(Ordering::Relaxed);
            now.then_some(StoreError::Busy)
        });
        let mut tasks = Vec::new();
        for _ in 0..100 {
            tasks.push(tokio::spawn(do_something(world.clone(), random.fork())));
            if random.u8(..3) == 0 {
                tasks[random.usize(..tasks.len())].abort();
            }
        }
        let all = async {
            futures_util::future::join_all(tasks).await;
            // What was begun for callers that went away goes on; in the end each agent has its task, and nobody else.
            let tasks = tokio::runtime::Handle::current().metrics();
            let live = |name: &&str| world.engine.agents.live(&id(name)).is_some();
            until(|| tasks.num_alive_tasks() == ALL.iter().filter(|name| live(name)).count()).await;
        };
        let done = tokio::time::timeout(Duration::from_secs(60), all).await;
        assert!(done.is_ok(), "seed {seed}: nobody gets on");
        armed.store(false, Ordering::Relaxed);
        check(&world, &ALL).await;
        drop(world);
    }
}

/// Directory and store agree on who there is, on who descends from whom and on what was said.
async fn check(world: &World, names: &[&str]) {
    let store = world.store.neighbour();
    let all = AgentQuery { after: None, limit: 100, line_of: None, working: false };
    let rows = store.agents(all).await.unwrap().agents;
    let cards = world.cards().await;
    let stored: BTreeSet<_> = rows.iter().map(|row| row.record.id.clone()).collect();
    let listed: BTreeSet<_> = cards.iter().map(|card| card.record.id.clone()).collect();
    assert!(stored.is_subset(&listed), "{stored:?} {listed:?}");
    for row in &rows {
        let card = cards.iter().find(|card| card.record.id == row.record.id).unwrap();
        assert_eq!(card.record.parent, row.record.parent, "{}", row.record.id);
        assert_eq!(card.record.born, row.record.born);
    }
    for name in names {
        let live = world.engine.agents.live(&id(name));
        let card = cards.iter().find(|card| card.record.id == id(name));
        let shown = card.is_some_and(|card| card.status != Status::Stored);
        assert_eq!(live.is_some(), shown, "{name}");
        if let Some(parent) = card.and_then(|card| card.record.parent.clone()) {
            assert!(listed.contains(&parent), "{name} is a child of {parent}, who is not there");
        }
        let Ok(agent) = world.find(name).await else {
            assert!(card.is_none(), "{name} is listed and not found");
            continue;
        };
        world.say(&agent, "and now?").await.unwrap();
        if !agent.id().is_temp() {
            let kept = store.read_session(&id(name)).await.unwrap().unwrap().1;
            assert_eq!(world.history(&agent).await, lines(&kept), "{name}");
        }
    }
    // What is beneath an agent goes with it, whatever it was called before.
    for row in rows.iter().filter(|row| row.record.parent.is_none()) {
        let root = &row.record.id;
        let beneath = cards.iter().filter(|card| card.record.parent.as_ref() == Some(root));
        let beneath: BTreeSet<_> = beneath.map(|card| card.record.id.clone()).collect();
        let gone = world.engine.agents.destroy(&ADMIN, root).await.unwrap();
        assert_eq!(gone[1..].iter().cloned().collect::<BTreeSet<_>>(), beneath);
    }
    assert!(world.cards().await.is_empty());
}
