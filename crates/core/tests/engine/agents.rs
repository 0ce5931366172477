//! Making, restoring and ending agents; who may do it; the ceiling.

use std::sync::Arc;

use nexus_core::authority::{Action, Denied};
use nexus_core::lifecycle::{AccessError, AgentSpec, CreateError, ListQuery, Status};
use nexus_core::permission::{DEPTH_MAX, Level, Reach};
use nexus_core::store::{AgentRecord, AgentStore as _};
use nexus_core::{Agent, Engine, Requester};

use crate::fakes::{ADMIN, World, child, history, id, named, trusted, until};

async fn refused(engine: &Engine, requester: &Requester, spec: AgentSpec) -> String {
    match engine.agents.create(requester, spec).await {
        Ok(agent) => format!("made {}", agent.id()),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn names_are_generated_checked_and_taken_once() {
    let World { engine, .. } = World::new();
    let make = async |name: Option<&str>| {
        let spec = AgentSpec { name: name.map(Into::into), ..AgentSpec::default() };
        engine.agents.create(&ADMIN, spec).await.map(|agent| agent.id().to_string())
    };
    let generated = make(None).await.unwrap();
    assert!(
        generated.len() == 8 && generated.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{generated}"
    );
    assert_eq!(make(Some(".")).await.unwrap(), ".1");
    assert_eq!(make(Some(".")).await.unwrap(), ".2");
    assert_eq!(make(Some("a")).await.unwrap(), "a");
    assert!(matches!(make(Some("a")).await, Err(CreateError::Exists(_))));
    assert!(matches!(make(Some("a/b")).await, Err(CreateError::Name(_))));
}

#[tokio::test]
async fn of_many_who_make_one_name_one_succeeds() {
    let world = Arc::new(World::new());
    let tries = (0..32).map(|_| {
        let world = world.clone();
        tokio::spawn(async move { world.engine.agents.create(&ADMIN, named("a")).await.is_ok() })
    });
    let made = futures_util::future::join_all(tries).await;
    assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 1);
}

#[tokio::test]
async fn a_restart_restores_what_was_there_and_forgets_the_temporary() {
    let world = World::new();
    let engine = &world.engine;
    let parent = engine.agents.create(&ADMIN, trusted("p")).await.unwrap();
    let kid = engine.agents.create(&ADMIN, child("k", "p")).await.unwrap();
    engine.agents.create(&ADMIN, named(".")).await.unwrap();
    world.say(&kid, "hi").await.unwrap();

    let again = world.restarted(|_| {});
    let cards = again.cards().await;
    let names: Vec<_> = cards.iter().map(|card| (card.record.id.as_str(), card.status)).collect();
    assert_eq!(names, [("p", Status::Stored), ("k", Status::Stored)]);
    let restored = again.engine.agents.find(&ADMIN, &id("k"), Action::Read).await.unwrap();
    assert_eq!(history(&restored), history(&kid));
    let (before, after) = (kid.snapshot(), restored.snapshot());
    assert_eq!(after.settings, before.settings);
    assert_eq!(after.ceiling_for_children(), before.ceiling_for_children());
    assert_eq!((after.parent.clone(), after.depth), (Some(parent.id()), 1));
    let temporary = again.engine.agents.find(&ADMIN, &id(".1"), Action::Read).await;
    assert!(matches!(temporary, Err(AccessError::Unknown(_))));
}

#[tokio::test]
async fn a_child_is_below_its_parent_in_everything() {
    let dir = std::env::temp_dir().canonicalize().unwrap();
    let World { engine, .. } = World::new();
    let parent = AgentSpec {
        cwd: Some(dir.display().to_string()),
        disable_tools: vec!["exec".into()],
        ..trusted("p")
    };
    engine.agents.create(&ADMIN, parent).await.unwrap();

    let kid = engine.agents.create(&ADMIN, child("k", "p")).await.unwrap();
    let permissions = kid.snapshot().settings.permissions.clone();
    assert_eq!(permissions.level, Level::Sandboxed);
    assert_eq!(permissions.read, Reach::beneath([dir.clone()]));
    assert!(permissions.disabled_tools.contains("exec"), "what the parent lacks, the child lacks");
    let parent = engine.agents.find(&ADMIN, &id("p"), Action::Read).await.unwrap();
    assert!(permissions.within(&parent.look().settings.permissions).is_ok());

    let above = AgentSpec { preset: Some("trusted".into()), ..child("x", "p") };
    assert!(
        refused(&engine, &ADMIN, above)
            .await
            .contains("a child's level must be below its parent's")
    );
    let elsewhere = AgentSpec { write_paths: vec!["/".into()], ..child("x", "p") };
    assert!(
        refused(&engine, &ADMIN, elsewhere).await.contains("lies outside what the parent may use")
    );
    let under_sandboxed = child("x", "k");
    assert!(
        refused(&engine, &ADMIN, under_sandboxed).await.contains("a child's level must be below")
    );
    assert!(refused(&engine, &ADMIN, child("x", "nobody")).await.contains("unknown parent agent"));
}

#[tokio::test]
async fn nobody_gets_yolo_and_unknown_presets_are_named() {
    let World { engine, .. } = World::new();
    let with = |preset: &str| AgentSpec { preset: Some(preset.into()), ..named("x") };
    assert!(
        refused(&engine, &ADMIN, with("yolo")).await.contains("only from the interactive terminal")
    );
    assert!(
        refused(&engine, &ADMIN, with("god")).await.contains("known: sandboxed, worker, trusted")
    );
    let model = AgentSpec { model: Some("gpt-0".into()), ..named("x") };
    assert!(refused(&engine, &ADMIN, model).await.contains("unknown model: gpt-0"));
    let cwd = AgentSpec { cwd: Some("/no/such/place".into()), ..named("x") };
    assert!(refused(&engine, &ADMIN, cwd).await.contains("no such file or directory"));
}

#[tokio::test]
async fn an_agent_makes_children_of_its_own_if_it_may() {
    let World { engine, .. } = World::new();
    engine.agents.create(&ADMIN, trusted("p")).await.unwrap();
    engine.agents.create(&ADMIN, named("sandboxed")).await.unwrap();
    let parent = Requester::Agent(id("p"));
    let kid = engine.agents.create(&parent, named("k")).await.unwrap();
    assert_eq!(kid.look().parent, Some(id("p")));
    let denied = |result: Result<Agent, CreateError>| match result {
        Err(CreateError::Access(AccessError::Denied(denied))) => denied,
        _ => panic!("not denied"),
    };
    let other = engine.agents.create(&parent, child("x", "sandboxed")).await;
    assert_eq!(denied(other), Denied::Parent(id("p")));
    let sandboxed = engine.agents.create(&Requester::Agent(id("sandboxed")), named("x")).await;
    assert_eq!(denied(sandboxed), Denied::Create(id("sandboxed")));
    let unknown = engine.agents.create(&Requester::Agent(id("ghost")), named("x")).await;
    assert!(matches!(unknown, Err(CreateError::UnknownParent(_))));
}

#[tokio::test]
async fn destroying_takes_the_descendants_along() {
    let world = World::new();
    let engine = &world.engine;
    engine.agents.create(&ADMIN, trusted("p")).await.unwrap();
    engine.agents.create(&ADMIN, child("k1", "p")).await.unwrap();
    engine.agents.create(&ADMIN, child(".k2", "p")).await.unwrap();
    engine.agents.create(&ADMIN, named("other")).await.unwrap();

    let sibling = engine.agents.destroy(&Requester::Agent(id("other")), &id("p")).await;
    assert!(matches!(sibling, Err(AccessError::Denied(_))));
    let gone = engine.agents.destroy(&Requester::Agent(id("p")), &id("p")).await.unwrap();
    assert_eq!(gone, [id("p"), id("k1"), id(".k2")]);
    assert_eq!(engine.agents.destroy(&ADMIN, &id("p")).await.unwrap(), []);
    assert!(matches!(
        engine.agents.find(&ADMIN, &id("k1"), Action::Read).await,
        Err(AccessError::Unknown(_))
    ));
    assert_eq!(world.restarted(|_| {}).cards().await.len(), 1);
}

#[tokio::test]
async fn a_child_does_not_outlive_a_temporary_parent() {
    let World { engine, .. } = World::new();
    engine.agents.create(&ADMIN, trusted(".p")).await.unwrap();
    let permanent = engine.agents.create(&ADMIN, child("k", ".p")).await;
    assert!(matches!(permanent, Err(CreateError::OutlivesParent)));
    engine.agents.create(&ADMIN, child(".k", ".p")).await.unwrap();
    let unnamed = AgentSpec { parent: Some(id(".p")), ..AgentSpec::default() };
    assert!(engine.agents.create(&ADMIN, unnamed).await.unwrap().id().is_temp());
}

#[tokio::test]
async fn an_agent_sees_its_own_line_only() {
    let World { engine, .. } = World::new();
    engine.agents.create(&ADMIN, trusted("p")).await.unwrap();
    engine.agents.create(&ADMIN, child("k", "p")).await.unwrap();
    engine.agents.create(&ADMIN, named("other")).await.unwrap();
    let sees = async |name: &str| -> Vec<String> {
        let page = engine.agents.list(&Requester::Agent(id(name)), ListQuery::default()).await;
        page.unwrap().cards.iter().map(|card| card.record.id.to_string()).collect()
    };
    assert_eq!(sees("p").await, ["p", "k"]);
    assert_eq!(sees("k").await, ["p", "k"]);
    assert_eq!(sees("other").await, ["other"]);
}

#[tokio::test]
async fn the_server_stops_when_every_agent_is_done() {
    let World { engine, .. } = World::new();
    engine.agents.create(&ADMIN, named("a")).await.unwrap();
    engine.agents.create(&ADMIN, named("b")).await.unwrap();
    engine.agents.shut_down(&ADMIN, &id("a")).await.unwrap();
    assert!(!engine.agents.stop_requested().is_cancelled());
    engine.agents.shut_down(&ADMIN, &id("b")).await.unwrap();
    assert!(engine.agents.stop_requested().is_cancelled());
    assert!(engine.agents.request_stop(&Requester::Agent(id("a"))).is_err());

    let agent = engine.agents.find(&ADMIN, &id("a"), Action::Read).await.unwrap();
    engine.turns.start(&agent, Default::default()).await.unwrap().wait(None).await.unwrap();
    assert!(!agent.look().progress.should_shutdown, "whoever is used again is not done");
}

#[tokio::test]
async fn nothing_is_left_of_an_engine_that_is_dropped() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.agent(".t").await;
    world.say(&agent, "hello").await.unwrap();
    let store = Arc::downgrade(&world.store);
    drop((agent, world));
    let tasks = tokio::runtime::Handle::current().metrics();
    until(|| tasks.num_alive_tasks() == 0).await;
    assert!(store.upgrade().is_none(), "the leases of its process are free");
}

/// The depth limit is above what today's levels allow, so it is checked on a store whose agents were nested by hand.
#[tokio::test]
async fn agents_nest_so_deep_and_no_deeper() {
    let World { engine, store, .. } = World::new();
    let template = engine.agents.create(&ADMIN, trusted("t")).await.unwrap().snapshot().record();
    for (name, depth) in [("under", DEPTH_MAX - 1), ("at", DEPTH_MAX)] {
        let record = AgentRecord { id: id(name), depth, ..template.clone() };
        store.create(record).await.unwrap();
    }
    assert!(engine.agents.create(&ADMIN, child("x", "under")).await.is_ok());
    assert!(matches!(
        engine.agents.create(&ADMIN, child("y", "at")).await,
        Err(CreateError::TooDeep)
    ));
}
