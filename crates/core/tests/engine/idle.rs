//! Agents leave memory when nobody asks for them, and come back whole.

use std::time::Duration;

use nexus_core::authority::Action;
use nexus_core::lifecycle::{AccessError, AgentSpec, Status};
use nexus_core::store::StoreError;
use nexus_core::turn::TurnError;

use crate::fakes::{ADMIN, LONG, Script, World, history, id, turn_id};

const NOW: Duration = Duration::ZERO;

async fn statuses(world: &World) -> Vec<(String, Status)> {
    let cards = world.cards().await;
    cards.iter().map(|card| (card.record.id.to_string(), card.status)).collect()
}

#[tokio::test]
async fn an_idle_agent_leaves_memory_and_comes_back_whole() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.say(&agent, "hi").await.unwrap();
    let before = history(&agent);
    assert_eq!(world.engine.agents.sweep(LONG, LONG).await, 0, "it was just spoken to");
    assert_eq!(world.engine.agents.sweep(NOW, LONG).await, 1);
    let left = world.say(&agent, "still there?").await;
    assert!(matches!(left, Err(TurnError::Store(StoreError::LeaseLost))), "{left:?}");
    assert_eq!(statuses(&world).await, [("a".to_string(), Status::Stored)]);
    assert_eq!(world.engine.agents.sweep(NOW, LONG).await, 0);
    let back = world.engine.agents.find(&ADMIN, &id("a"), Action::Read).await.unwrap();
    assert_eq!(history(&back), before);
    world.say(&back, "again").await.unwrap();
    assert_eq!(history(&back).len(), 4);
}

#[tokio::test]
async fn an_agent_with_a_turn_stays() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("so far")]);
    let input = nexus_core::turn::TurnInput {
        content: "hi".into(),
        id: Some(turn_id("t")),
        ..Default::default()
    };
    let turn = world.engine.turns.start(&agent, input).await.unwrap();
    world.model.wait_for_calls(1).await;
    assert_eq!(world.engine.agents.sweep(NOW, NOW).await, 0);
    assert!(agent.cancel(&turn_id("t")).await);
    turn.wait(None).await.unwrap();
}

#[tokio::test]
async fn an_idle_temporary_agent_ends_with_its_children_and_not_before_them() {
    let world = World::new();
    let spec = |name: &str, parent: Option<&str>| AgentSpec {
        name: Some(name.into()),
        preset: Some(if parent.is_some() { "sandboxed" } else { "trusted" }.into()),
        parent: parent.map(id),
        ..AgentSpec::default()
    };
    world.engine.agents.create(&ADMIN, spec(".p", None)).await.unwrap();
    let kid = world.engine.agents.create(&ADMIN, spec(".k", Some(".p"))).await.unwrap();
    world.model.script([Script::Hang("")]);
    let turn = world.engine.turns.start(&kid, Default::default()).await.unwrap();
    assert_eq!(world.engine.agents.sweep(LONG, NOW).await, 0, "its child is at work");
    turn.cancel.cancel();
    turn.wait(None).await.unwrap();
    assert_eq!(world.engine.agents.sweep(LONG, LONG).await, 0);
    assert_eq!(world.engine.agents.sweep(LONG, NOW).await, 2);
    let gone = world.engine.agents.find(&ADMIN, &id(".p"), Action::Read).await;
    assert!(matches!(gone, Err(AccessError::Unknown(_))));
}
