//! Making, restoring and ending agents; who may do it; the ceiling.

use std::sync::Arc;

use nexus_core::authority::{Action, Denied};
use nexus_core::create::{AgentSpec, CreateError};
use nexus_core::engine::AccessError;
use nexus_core::permission::{DEPTH_MAX, Level, Reach};
use nexus_core::pool::Status;
use nexus_core::{Agent, Engine, Requester};

use crate::fakes::{ADMIN, World, history, id};

fn spec(name: &str) -> AgentSpec {
    AgentSpec { name: Some(name.into()), ..AgentSpec::default() }
}

fn trusted(name: &str) -> AgentSpec {
    AgentSpec { preset: Some("trusted".into()), ..spec(name) }
}

fn child(name: &str, parent: &str) -> AgentSpec {
    AgentSpec { parent: Some(id(parent)), ..spec(name) }
}

async fn refused(engine: &Engine, requester: &Requester, spec: AgentSpec) -> String {
    match engine.create_agent(requester, spec).await {
        Ok(agent) => format!("made {}", agent.id()),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn names_are_generated_checked_and_taken_once() {
    let World { engine, .. } = World::new().await;
    let make = async |name: Option<&str>| {
        let spec = AgentSpec { name: name.map(Into::into), ..AgentSpec::default() };
        engine.create_agent(&ADMIN, spec).await.map(|agent| agent.id().to_string())
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
    let world = Arc::new(World::new().await);
    let tries = (0..32).map(|_| {
        let world = world.clone();
        tokio::spawn(async move { world.engine.create_agent(&ADMIN, spec("a")).await.is_ok() })
    });
    let made = futures_util::future::join_all(tries).await;
    assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 1);
}

#[tokio::test]
async fn a_restart_restores_what_was_there_and_forgets_the_temporary() {
    let World { engine, store, model: _ } = &World::new().await;
    let parent = engine.create_agent(&ADMIN, trusted("p")).await.unwrap();
    let kid = engine.create_agent(&ADMIN, child("k", "p")).await.unwrap();
    engine.create_agent(&ADMIN, spec(".")).await.unwrap();
    let turn = engine.start_turn(
        &kid,
        nexus_core::turn::TurnInput { content: "hi".into(), ..Default::default() },
    );
    turn.unwrap().wait(None).await.unwrap();

    let again = World::on(store.clone(), |_| {}).await;
    let cards = again.engine.list_agents(&ADMIN);
    let names: Vec<_> = cards.iter().map(|card| (card.record.id.as_str(), card.status)).collect();
    assert_eq!(names, [("p", Status::Stored), ("k", Status::Stored)]);
    let restored = again.engine.agent(&ADMIN, &id("k"), Action::Read).await.unwrap();
    assert_eq!(history(&restored), history(&kid));
    assert_eq!(restored.permissions(), kid.permissions());
    assert_eq!(restored.ceiling_for_children(), kid.ceiling_for_children());
    assert_eq!((restored.parent(), restored.depth), (Some(parent.id()), 1));
    let temporary = again.engine.agent(&ADMIN, &id(".1"), Action::Read).await;
    assert!(matches!(temporary, Err(AccessError::Unknown(_))));
}

#[tokio::test]
async fn a_child_is_below_its_parent_in_everything() {
    let dir = std::env::temp_dir().canonicalize().unwrap();
    let World { engine, .. } = World::new().await;
    let parent = AgentSpec {
        cwd: Some(dir.display().to_string()),
        disable_tools: vec!["exec".into()],
        ..trusted("p")
    };
    engine.create_agent(&ADMIN, parent).await.unwrap();

    let kid = engine.create_agent(&ADMIN, child("k", "p")).await.unwrap();
    let permissions = kid.permissions();
    assert_eq!(permissions.level, Level::Sandboxed);
    assert_eq!(permissions.read, Reach::beneath([dir.clone()]));
    assert!(permissions.disabled_tools.contains("exec"), "what the parent lacks, the child lacks");
    assert!(
        permissions
            .within(&engine.agent(&ADMIN, &id("p"), Action::Read).await.unwrap().permissions())
            .is_ok()
    );

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
    let World { engine, .. } = World::new().await;
    let with = |preset: &str| AgentSpec { preset: Some(preset.into()), ..spec("x") };
    assert!(
        refused(&engine, &ADMIN, with("yolo")).await.contains("only from the interactive terminal")
    );
    assert!(
        refused(&engine, &ADMIN, with("god")).await.contains("known: sandboxed, worker, trusted")
    );
    let model = AgentSpec { model: Some("gpt-0".into()), ..spec("x") };
    assert!(refused(&engine, &ADMIN, model).await.contains("unknown model: gpt-0"));
    let cwd = AgentSpec { cwd: Some("/no/such/place".into()), ..spec("x") };
    assert!(refused(&engine, &ADMIN, cwd).await.contains("no such file or directory"));
}

#[tokio::test]
async fn an_agent_makes_children_of_its_own_if_it_may() {
    let World { engine, .. } = World::new().await;
    engine.create_agent(&ADMIN, trusted("p")).await.unwrap();
    engine.create_agent(&ADMIN, spec("sandboxed")).await.unwrap();
    let parent = Requester::Agent(id("p"));
    let kid = engine.create_agent(&parent, spec("k")).await.unwrap();
    assert_eq!(kid.parent(), Some(id("p")));
    let denied = |result: Result<Arc<Agent>, CreateError>| match result {
        Err(CreateError::Access(AccessError::Denied(denied))) => denied,
        _ => panic!("not denied"),
    };
    let other = engine.create_agent(&parent, child("x", "sandboxed")).await;
    assert_eq!(denied(other), Denied::Parent(id("p")));
    let sandboxed = engine.create_agent(&Requester::Agent(id("sandboxed")), spec("x")).await;
    assert_eq!(denied(sandboxed), Denied::Create(id("sandboxed")));
    let unknown = engine.create_agent(&Requester::Agent(id("ghost")), spec("x")).await;
    assert!(matches!(unknown, Err(CreateError::UnknownParent(_))));
}

#[tokio::test]
async fn destroying_takes_the_descendants_along() {
    let World { engine, store, .. } = World::new().await;
    engine.create_agent(&ADMIN, trusted("p")).await.unwrap();
    engine.create_agent(&ADMIN, child("k1", "p")).await.unwrap();
    engine.create_agent(&ADMIN, child(".k2", "p")).await.unwrap();
    engine.create_agent(&ADMIN, spec("other")).await.unwrap();

    let sibling = engine.destroy_agent(&Requester::Agent(id("other")), &id("p")).await;
    assert!(matches!(sibling, Err(AccessError::Denied(_))));
    let gone = engine.destroy_agent(&Requester::Agent(id("p")), &id("p")).await.unwrap();
    assert_eq!(gone, [id("p"), id(".k2"), id("k1")]);
    assert_eq!(engine.destroy_agent(&ADMIN, &id("p")).await.unwrap(), []);
    assert!(matches!(
        engine.agent(&ADMIN, &id("k1"), Action::Read).await,
        Err(AccessError::Unknown(_))
    ));
    let left = World::on(store, |_| {}).await.engine.list_agents(&ADMIN);
    assert_eq!(left.len(), 1);
}

#[tokio::test]
async fn a_child_does_not_outlive_a_temporary_parent() {
    let World { engine, .. } = World::new().await;
    engine.create_agent(&ADMIN, trusted(".p")).await.unwrap();
    let permanent = engine.create_agent(&ADMIN, child("k", ".p")).await;
    assert!(matches!(permanent, Err(CreateError::OutlivesParent)));
    engine.create_agent(&ADMIN, child(".k", ".p")).await.unwrap();
    let unnamed = AgentSpec { parent: Some(id(".p")), ..AgentSpec::default() };
    assert!(engine.create_agent(&ADMIN, unnamed).await.unwrap().id().is_temp());
}

#[tokio::test]
async fn an_agent_sees_its_own_line_only() {
    let World { engine, .. } = World::new().await;
    engine.create_agent(&ADMIN, trusted("p")).await.unwrap();
    engine.create_agent(&ADMIN, child("k", "p")).await.unwrap();
    engine.create_agent(&ADMIN, spec("other")).await.unwrap();
    let sees = |name: &str| -> Vec<String> {
        let cards = engine.list_agents(&Requester::Agent(id(name)));
        cards.iter().map(|card| card.record.id.to_string()).collect()
    };
    assert_eq!(sees("p"), ["p", "k"]);
    assert_eq!(sees("k"), ["p", "k"]);
    assert_eq!(sees("other"), ["other"]);
}

#[tokio::test]
async fn the_server_stops_when_every_agent_is_done() {
    let World { engine, .. } = World::new().await;
    engine.create_agent(&ADMIN, spec("a")).await.unwrap();
    engine.create_agent(&ADMIN, spec("b")).await.unwrap();
    engine.shut_down_agent(&ADMIN, &id("a")).await.unwrap();
    assert!(!engine.stop_requested().is_cancelled());
    engine.shut_down_agent(&ADMIN, &id("b")).await.unwrap();
    assert!(engine.stop_requested().is_cancelled());
    assert!(engine.request_stop(&Requester::Agent(id("a"))).is_err());

    let agent = engine.agent(&ADMIN, &id("a"), Action::Read).await.unwrap();
    engine.start_turn(&agent, Default::default()).unwrap().wait(None).await.unwrap();
    assert!(!agent.progress().should_shutdown, "whoever is used again is not done");
}

/// The depth limit is above what today's levels allow, so it is checked on a store whose agents were nested by hand.
#[tokio::test]
async fn agents_nest_so_deep_and_no_deeper() {
    let World { engine, store, .. } = World::new().await;
    let template = engine.create_agent(&ADMIN, trusted("t")).await.unwrap().record();
    for (name, depth) in [("under", DEPTH_MAX - 1), ("at", DEPTH_MAX)] {
        let record = nexus_core::store::AgentRecord { id: id(name), depth, ..template.clone() };
        nexus_core::store::Store::create(&*store, record).await.unwrap();
    }
    assert!(engine.create_agent(&ADMIN, child("x", "under")).await.is_ok());
    assert!(matches!(
        engine.create_agent(&ADMIN, child("y", "at")).await,
        Err(CreateError::TooDeep)
    ));
}
