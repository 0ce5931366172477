//! Nothing tears an agent: whoever calls may go away at any await, and the store may fail once at any call. Afterwards
//! memory and store say the same, and whoever tries again succeeds.
//!
//! Every operation that changes something is an entry of [`OPERATIONS`]; each is run on a world of its own, laid out by
//! [`lay_out`], once for every place at which it can be dropped or made to fail.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nexus_core::approval::Decision;
use nexus_core::authority::Action;
use nexus_core::authority::AskedBy;
use nexus_core::executor::{TaskOrder, Terms, Work};
use nexus_core::footprint::{Footprint, Ground};
use nexus_core::keys::NewKey;
use nexus_core::lifecycle::{AccessError, AgentSpec, Status};
use nexus_core::memory::{Identity, NewMemory};
use nexus_core::plan::TaskType;
use nexus_core::plans::PlanRequest;
use nexus_core::rights::PermissionChange;
use nexus_core::session::LoadSpec;
use nexus_core::shared_context::Change;
use nexus_core::store::{
    AgentQuery, AgentRecord, AgentStore as _, ApprovalQuery, ApprovalStatus, ApprovalStore as _,
    ContextKind, Door, KeyStore as _, SessionStore as _, StoreError,
};
use nexus_core::{Agent, AgentId, Requester};
use nexus_testkit::store::MemoryStore;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use crate::fakes::{ADMIN, LONG, Script, World, child, history, id, lines, named, trusted};

/// Something that somebody asks for. It may run twice on one world: the second time after it failed.
struct Operation {
    name: &'static str,
    run: fn(World) -> BoxFuture<'static, Result<(), String>>,
}

/// All names that an operation may give an agent or take from one.
const NAMES: [&str; 15] =
    ["a", "p", "k", "d", "dk", "s", "w", "n", "m", "c", ".t", ".n", ".m", "main", "door-n"];

const OPERATIONS: [Operation; 37] = [
    Operation {
        name: "use the default agent",
        run: |world| {
            async move { told(world.engine.agents.agent(&ADMIN, &id("main"), Action::Send).await) }
                .boxed()
        },
    },
    Operation { name: "create", run: |world| made(world, named("n")) },
    Operation { name: "create a child", run: |world| made(world, child("n", "p")) },
    Operation { name: "create a temporary child", run: |world| made(world, child(".n", "p")) },
    Operation { name: "create below a stored agent", run: |world| made(world, child("n", "d")) },
    Operation {
        name: "create as an agent",
        run: |world| {
            let own = Requester::Agent(id("p"));
            async move { told(world.engine.agents.create(&own, named("n")).await) }.boxed()
        },
    },
    Operation {
        name: "make a key for a door",
        run: |world| {
            let key = NewKey {
                name: "n".into(),
                doors: vec![Door::Mcp],
                methods: None,
                agent: None,
                days: 1,
            };
            async move {
                let (keys, agents) = (&world.engine.keys, &world.engine.agents);
                told(keys.create_with_agent(agents, &ADMIN, key, AgentSpec::default()).await)
            }
            .boxed()
        },
    },
    Operation { name: "destroy", run: |world| destroyed(world, "a") },
    Operation { name: "destroy a family", run: |world| destroyed(world, "p") },
    Operation { name: "destroy a stored family", run: |world| destroyed(world, "d") },
    Operation { name: "destroy a temporary agent", run: |world| destroyed(world, ".t") },
    Operation { name: "restore", run: |world| async move { told(world.find("dk").await) }.boxed() },
    Operation { name: "send", run: |world| said(world, "a") },
    Operation { name: "send to a stored agent", run: |world| said(world, "dk") },
    Operation {
        name: "send with a tool",
        run: |world| {
            world.model.call_echo(json!({"text": "called"}));
            said(world, "k")
        },
    },
    Operation { name: "compact", run: |world| compacted(world, "a") },
    Operation { name: "compact a stored agent", run: |world| compacted(world, "dk") },
    Operation {
        name: "set permissions",
        run: |world| {
            on(world, "k", |world, agent| {
                let off =
                    PermissionChange { disable_tools: vec!["echo".into()], ..Default::default() };
                async move { told(world.engine.permits.set(&ADMIN, &agent, off).await) }.boxed()
            })
        },
    },
    Operation {
        name: "set cwd",
        run: |world| {
            on(world, "a", |world, agent| {
                async move {
                    told(world.engine.tuning.set_cwd(&ADMIN, &agent, "/usr".into(), None).await)
                }
                .boxed()
            })
        },
    },
    Operation {
        name: "set model",
        run: |world| {
            on(world, "a", |world, agent| {
                async move { told(world.engine.tuning.set_model(&agent, "m".into(), None).await) }
                    .boxed()
            })
        },
    },
    Operation {
        name: "set system prompt",
        run: |world| {
            on(world, "a", |world, agent| {
                async move { told(world.engine.tuning.set_system_prompt(&agent, "x".into()).await) }
                    .boxed()
            })
        },
    },
    Operation { name: "save", run: |world| saved(world, "a", "a") },
    Operation { name: "save a copy", run: |world| saved(world, "a", "n") },
    Operation { name: "save a temporary agent", run: |world| saved(world, ".t", "n") },
    Operation { name: "rename", run: |world| renamed(world, "p", "n") },
    Operation { name: "rename a stored agent", run: |world| renamed(world, "d", "n") },
    Operation {
        name: "clone and load",
        run: |world| {
            async move {
                let sessions = &world.engine.sessions;
                if world.store.session(&id("c")).await.map_err(|it| it.to_string())?.is_none() {
                    told(sessions.copy(&ADMIN, &id("a"), &id("c")).await)?;
                }
                loaded(world, "c", "m").await
            }
            .boxed()
        },
    },
    Operation {
        name: "load and delete",
        run: |world| {
            async move {
                loaded(world.clone(), "s", "s").await.or_else(|error| {
                    match error.contains("live already") {
                        true => Ok(()),
                        false => Err(error),
                    }
                })?;
                loaded(world.clone(), "s", ".m").await.or_else(|error| {
                    match error.contains("live already") {
                        true => Ok(()),
                        false => Err(error),
                    }
                })?;
                told(world.engine.sessions.delete(&ADMIN, &id("s")).await)
            }
            .boxed()
        },
    },
    Operation {
        name: "fork",
        run: |world| {
            async move {
                told(world.engine.sessions.fork(&ADMIN, &id("a"), &id(".n"), Some(1)).await)
            }
            .boxed()
        },
    },
    Operation {
        name: "clone up to a message",
        run: |world| {
            async move {
                told(world.engine.sessions.copy_upto(&ADMIN, &id("a"), &id("c"), 1).await)
            }
            .boxed()
        },
    },
    Operation { name: "unload", run: |world| on(world, "a", released) },
    Operation { name: "carry out a task", run: carried_out },
    Operation { name: "make a plan", run: planned },
    Operation {
        name: "remember and forget",
        run: |world| {
            async move {
                let (memories, who) = (&world.engine.memories, Identity::default());
                let (content, source) = ("tea".into(), "test".into());
                let new = NewMemory { content, source, ..NewMemory::default() };
                let kept = memories.add(&ADMIN, &who, new).await.map_err(|it| it.to_string())?;
                told(memories.delete(&ADMIN, &who, &kept.id.to_string()).await)
            }
            .boxed()
        },
    },
    Operation {
        name: "change the shared context",
        run: |world| {
            let data = Map::from_iter([("key".into(), "k".into()), ("value".into(), 1.into())]);
            async move {
                let change = (Change::Add, ContextKind::State);
                told(world.engine.context.update(&ADMIN, change.0, change.1, data, None).await)
            }
            .boxed()
        },
    },
    Operation {
        name: "answer and shut down",
        run: |world| {
            async move {
                let waiting = world.engine.approvals.list(&ADMIN, None, false).await;
                for approval in waiting.map_err(|error| error.to_string())? {
                    let answered = world.engine.approvals.respond(
                        &ADMIN,
                        &approval.id,
                        Decision::AllowSession,
                    );
                    told(answered.await)?;
                }
                told(world.engine.agents.shut_down(&ADMIN, &id("k")).await)
            }
            .boxed()
        },
    },
    Operation {
        name: "sweep",
        run: |world| {
            async move {
                world.engine.agents.sweep(Duration::ZERO, Duration::ZERO).await;
                Ok(())
            }
            .boxed()
        },
    },
];

fn told<T>(outcome: Result<T, impl Display>) -> Result<(), String> {
    outcome.map(drop).map_err(|error| error.to_string())
}

fn made(world: World, spec: AgentSpec) -> BoxFuture<'static, Result<(), String>> {
    async move { told(world.engine.agents.create(&ADMIN, spec).await) }.boxed()
}

fn destroyed(world: World, name: &'static str) -> BoxFuture<'static, Result<(), String>> {
    async move { told(world.engine.agents.destroy(&ADMIN, &id(name)).await) }.boxed()
}

fn on(
    world: World,
    name: &'static str,
    run: fn(World, Agent) -> BoxFuture<'static, Result<(), String>>,
) -> BoxFuture<'static, Result<(), String>> {
    async move {
        let agent = world.find(name).await.map_err(|error| error.to_string())?;
        run(world, agent).await
    }
    .boxed()
}

fn said(world: World, name: &'static str) -> BoxFuture<'static, Result<(), String>> {
    on(world, name, |world, agent| {
        async move {
            let before = agent.look().conversation.len();
            told(world.say(&agent, "anything").await)?;
            // An answer that was given was stored.
            let kept = stored(&world.store.neighbour(), &agent.id()).await;
            assert!(kept.len() as u64 > before + 1, "{kept:?}");
            Ok(())
        }
        .boxed()
    })
}

fn compacted(world: World, name: &'static str) -> BoxFuture<'static, Result<(), String>> {
    on(world, name, |world, agent| {
        async move {
            let done = world.engine.turns.compact(&agent, true, AskedBy::Administrator).await;
            let summarised = history(&agent).iter().any(|line| line.starts_with("Summary"));
            assert!(done.is_err() || summarised, "{done:?}");
            told(done)
        }
        .boxed()
    })
}

fn saved(
    world: World,
    name: &'static str,
    to: &'static str,
) -> BoxFuture<'static, Result<(), String>> {
    async move { told(world.engine.sessions.save(&ADMIN, &id(name), &id(to)).await) }.boxed()
}

fn renamed(
    world: World,
    name: &'static str,
    to: &'static str,
) -> BoxFuture<'static, Result<(), String>> {
    async move { told(world.engine.sessions.rename(&ADMIN, &id(name), &id(to)).await) }.boxed()
}

fn loaded(
    world: World,
    session: &'static str,
    agent: &'static str,
) -> BoxFuture<'static, Result<(), String>> {
    async move {
        let spec = LoadSpec {
            session: id(session),
            agent: Some(id(agent)),
            preset: Some("sandboxed".into()),
            model: Some("m".into()),
            hand: Default::default(),
        };
        told(world.engine.sessions.load(&ADMIN, spec).await)
    }
    .boxed()
}

fn released(world: World, agent: Agent) -> BoxFuture<'static, Result<(), String>> {
    async move { told(world.engine.agents.release(&ADMIN, &agent.id()).await) }.boxed()
}

fn carried_out(world: World) -> BoxFuture<'static, Result<(), String>> {
    let order = TaskOrder {
        kind: TaskType::Analysis,
        prompt: "look".into(),
        background: Vec::new(),
        terms: Terms::default(),
    };
    let work = Work {
        footprint: Footprint::new(Ground::with([]), "task", []),
        cancel: CancellationToken::new(),
        deadline: None,
        patient: false,
        sink: None,
    };
    async move {
        let report = world.engine.executor.execute(&ADMIN, order, work).await;
        told(report.map_err(|failure| failure.error))
    }
    .boxed()
}

const PLAN: &str = r#"{"explanation": "x", "estimated_time_seconds": 1, "tasks": [{"id": "t", "type": "analysis",
    "description": "look", "dependencies": [], "priority": 1}]}"#;

fn planned(world: World) -> BoxFuture<'static, Result<(), String>> {
    world.model.script([Script::Say(PLAN)]);
    let request = PlanRequest { user_request: "plan".into(), ..PlanRequest::default() };
    let deadline = std::time::Instant::now() + LONG;
    async move {
        let (plans, cancel) = (&world.engine.plans, CancellationToken::new());
        told(plans.create(&ADMIN, request, cancel, deadline, None).await)
    }
    .boxed()
}

/// Live: `a`, the family `p` and `k`, the temporary `.t`, and `w`, whose turn waits for leave. Stored: the family `d` and
/// `dk`, and the session `s`. Each has something to say.
async fn lay_out() -> World {
    let world = World::asking();
    let other = world.beside();
    for (world, spec) in [
        (&world, trusted("p")),
        (&world, child("k", "p")),
        (&world, named("a")),
        (&world, named(".t")),
        (&other, trusted("d")),
        (&other, child("dk", "d")),
    ] {
        let agent = world.make(spec).await;
        // Long enough to be summarised.
        world.say(&agent, &"first".repeat(60)).await.unwrap();
        world.say(&agent, "second").await.unwrap();
    }
    other.engine.close().await.unwrap();
    world.engine.sessions.copy(&ADMIN, &id("a"), &id("s")).await.unwrap();
    let asking = world.make(AgentSpec { cwd: Some("/usr".into()), ..trusted("w") }).await;
    world.model.call_echo(json!({"write": "/etc/x", "text": "written"}));
    world.start(&asking, "write").await.unwrap();
    while world.engine.approvals.list(&ADMIN, None, false).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    world
}

/// Polls a future, and lets everybody else go on.
async fn step<T>(future: &mut BoxFuture<'static, T>) -> Option<T> {
    let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    settle().await;
    match polled {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// Lets everybody go on until nobody has anything left to do: each time through, whoever is awake runs once, and the
/// threads for what blocks are given the time to end.
async fn settle() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    tokio::task::spawn_blocking(|| {}).await.unwrap();
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// More polls than any operation needs when each of them is followed by `settle`.
const STEPS_MAX: usize = 64;

#[tokio::test(start_paused = true)]
async fn whoever_calls_may_go_away_at_any_await() {
    for operation in OPERATIONS {
        // Dropped after `steps` polls; with `held`, the last of them while the store keeps every write waiting.
        for held in [false, true] {
            for steps in 0.. {
                assert!(steps < STEPS_MAX, "{}: it never ends", operation.name);
                let world = lay_out().await;
                let mut call = (operation.run)(world.clone());
                let mut done = false;
                for _ in 0..steps {
                    done = done || step(&mut call).await.is_some();
                }
                if held && !done {
                    let _held = world.store.hold();
                    for _ in 0..3 {
                        done = done || step(&mut call).await.is_some();
                    }
                    drop(call);
                } else {
                    drop(call);
                }
                let what = format!("{}, dropped after {steps} steps, held: {held}", operation.name);
                at_rest(&world).await;
                agree(&world, &what).await;
                if done {
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_store_may_fail_once_at_any_call() {
    for operation in OPERATIONS {
        let world = lay_out().await;
        let before = world.store.calls();
        (operation.run)(world.clone()).await.unwrap();
        at_rest(&world).await;
        let calls = world.store.calls() - before;
        agree(&world, operation.name).await;
        for nth in 1..=calls {
            for error in [StoreError::Busy, StoreError::DiskFull, StoreError::Failed("x".into())] {
                let what = format!("{}, call {nth} of {calls}: {error}", operation.name);
                let world = lay_out().await;
                let armed = Arc::new(AtomicBool::new(true));
                let (place, fails) = (world.store.calls() + nth, armed.clone());
                world.store.fail_when(move |call| {
                    let now = call.number == place && fails.load(Ordering::Relaxed);
                    now.then(|| error.clone())
                });
                let outcome = (operation.run)(world.clone()).await;
                at_rest(&world).await;
                // It may have come with a call less this time: what follows must not fail for it.
                armed.store(false, Ordering::Relaxed);
                agree(&world, &what).await;
                if outcome.is_err() {
                    let again = (operation.run)(world.clone()).await;
                    assert_eq!(again, Ok(()), "{what}: tried again after {outcome:?}");
                    at_rest(&world).await;
                    agree(&world, &what).await;
                }
            }
        }
    }
}

/// Waits until what goes on without a caller has come to its end: but for a turn that waits for leave.
async fn at_rest(world: &World) {
    loop {
        settle().await;
        let calls = world.store.calls();
        let load = world.engine.load();
        let busy = load.turns > load.approvals;
        settle().await;
        if !busy && world.store.calls() == calls {
            return;
        }
    }
}

/// Memory and store say the same, and every agent there is goes on.
async fn agree(world: &World, what: &str) {
    // What it was told to say to one that came to nothing is said to nobody else.
    world.model.unscript();
    let store = world.store.neighbour();
    let all = AgentQuery { after: None, limit: 1000, line_of: None, working: false };
    let rows = store.agents(all).await.unwrap().agents;
    let ids: BTreeSet<_> = rows.iter().map(|row| row.record.id.clone()).collect();
    let cards = world.cards().await;
    let shown: BTreeSet<_> = cards.iter().map(|card| card.record.id.clone()).collect();
    let permanent: BTreeSet<_> = shown.iter().filter(|id| !id.is_temp()).cloned().collect();
    assert_eq!(permanent, ids, "{what}: what is listed");
    for row in &rows {
        let card = cards.iter().find(|card| card.record.id == row.record.id).unwrap();
        same(&card.record, &row.record, what);
        let temporary = cards.iter().filter(|it| {
            it.record.id.is_temp() && it.record.parent.as_ref() == Some(&row.record.id)
        });
        assert_eq!(card.child_count, row.child_count + temporary.count() as u64, "{what}");
        let live = world.engine.agents.live(&row.record.id).is_some();
        assert_eq!(card.status != Status::Stored, live, "{what}: {}", row.record.id);
    }
    let others: Vec<_> = shown.iter().filter(|id| !NAMES.contains(&id.as_str())).collect();
    assert!(others.is_empty(), "{what}: agents of nobody: {others:?}");
    for name in NAMES.map(id) {
        let is_live = world.engine.agents.live(&name).is_some();
        assert!(!is_live || shown.contains(&name), "{what}: {name} is live and not listed");
    }
    approvals_agree(world, &store, what).await;
    let keys = store.keys().await.unwrap();
    let holders = keys.iter().filter_map(|key| key.agent.clone()).map(|it| (it.id, it.born));
    let doors = rows.iter().filter(|row| row.record.id.as_str().starts_with("door-"));
    let agents = doors.map(|row| (row.record.id.clone(), row.record.born));
    assert!(holders.eq(agents), "{what}: keys and their agents: {keys:?}");
    for name in NAMES.map(id) {
        match world.engine.agents.find(&ADMIN, &name, Action::Manage).await {
            Ok(agent) => {
                assert!(shown.contains(&name), "{what}: {name} was found and not listed");
                goes_on(world, &store, &agent, what).await;
            }
            Err(AccessError::Unknown(_)) => {
                assert!(!shown.contains(&name), "{what}: {name} was listed and not found");
            }
            Err(error) => panic!("{what}: {name}: {error}"),
        }
    }
}

fn same(live: &AgentRecord, stored: &AgentRecord, what: &str) {
    let words = |it: &AgentRecord| -> Vec<Box<dyn Debug>> {
        vec![
            Box::new((it.id.clone(), it.born, it.parent.clone(), it.depth, it.created_at)),
            Box::new((it.ceiling.clone(), it.settings.clone(), it.progress)),
            Box::new((it.message_count, it.last_action_at)),
        ]
    };
    assert_eq!(format!("{:?}", words(live)), format!("{:?}", words(stored)), "{what}");
}

async fn approvals_agree(world: &World, store: &MemoryStore, what: &str) {
    let waiting = world.engine.approvals.list(&ADMIN, None, false).await.unwrap();
    let query = ApprovalQuery { limit: 1000, ..ApprovalQuery::default() };
    let mut pending = store.approvals(query).await.unwrap().approvals;
    pending.retain(|approval| approval.answer.status == ApprovalStatus::Pending);
    assert_eq!(waiting, pending, "{what}: what waits for leave");
}

/// What is in memory is in the store, and what is said next is too.
async fn goes_on(world: &World, store: &MemoryStore, agent: &Agent, what: &str) {
    let name = agent.id();
    if agent.turns_in_flight() > 0 {
        return;
    }
    let said = world.history(agent).await;
    if !name.is_temp() {
        assert_eq!(said, stored(store, &name).await, "{what}: what {name} said");
    }
    let answer = world.say(agent, "and now?").await;
    assert!(answer.is_ok(), "{what}: {name} does not go on: {answer:?}");
    let said = world.history(agent).await;
    let heard = said.iter().any(|line| line == "User: and now?");
    assert!(heard && said.last().is_some_and(|last| last == "Assistant: ok"), "{what}: {said:?}");
    if !name.is_temp() {
        assert_eq!(said, stored(store, &name).await, "{what}: what {name} said next");
    }
}

async fn stored(store: &MemoryStore, name: &AgentId) -> Vec<String> {
    let session = store.read_session(name).await.unwrap();
    lines(&session.map(|(_, messages)| messages).unwrap_or_default())
}
