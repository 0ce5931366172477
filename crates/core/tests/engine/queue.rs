//! An agent's line of turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nexus_core::AgentId;
use nexus_core::authority::AskedBy;
use nexus_core::logs::AgentLogs;
use nexus_core::message::SharedMessage;
use nexus_core::store::StoreError;
use nexus_core::turn::TurnError;

use crate::fakes::{Script, World, history, turn_id, until};

#[tokio::test]
async fn a_turn_that_waits_is_over_as_soon_as_it_is_cancelled() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("")]);
    let running = world.start_named(&agent, "running").await.unwrap();
    let waiting = world.start_named(&agent, "waiting").await.unwrap();
    let behind = world.start_named(&agent, "behind").await.unwrap();
    world.model.wait_for_calls(1).await;
    let names = |running: bool| {
        let now = agent.snapshot();
        let cards = now.turns.iter().filter(move |card| card.running == running);
        cards.map(|card| card.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(true), names(false)),
        (vec![turn_id("running")], vec![turn_id("waiting"), turn_id("behind")],)
    );
    assert!(agent.cancel(&turn_id("waiting")).await);
    let ended = waiting.wait(None).await.unwrap();
    assert!(ended.cancelled && ended.content.is_empty());
    assert_eq!((names(true), names(false)), (vec![turn_id("running")], vec![turn_id("behind")]));
    // Its name is free again, behind those that wait.
    let again = world.start_named(&agent, "waiting").await.unwrap();
    assert_eq!(agent.cancel_all(), 3);
    for turn in [running, behind, again] {
        assert!(turn.wait(None).await.unwrap().cancelled);
    }
    assert_eq!(history(&agent), ["User: running"]);
}

#[tokio::test]
async fn so_many_turns_wait_for_one_agent_and_no_more() {
    const WAITING: usize = 256;
    let world = World::with(|settings| settings.max_queued = 10 * WAITING);
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("")]);
    let running = world.start(&agent, "running").await.unwrap();
    world.model.wait_for_calls(1).await;
    let mut waiting = Vec::new();
    for n in 0..WAITING {
        waiting.push(world.start_named(&agent, &n.to_string()).await.unwrap());
    }
    assert!(matches!(world.start(&agent, "one more").await, Err(TurnError::Overloaded)));
    let twice = world.start_named(&agent, "7").await;
    assert!(matches!(twice, Err(TurnError::Duplicate(_))));
    waiting.pop().unwrap().cancel.cancel();
    let last = loop {
        match world.start_named(&agent, "last").await {
            Ok(last) => break last,
            Err(error) => assert!(matches!(error, TurnError::Overloaded), "{error}"),
        }
    };
    running.cancel.cancel();
    running.wait(None).await.unwrap();
    for turn in waiting {
        assert!(!turn.wait(None).await.unwrap().cancelled);
    }
    last.wait(None).await.unwrap();
    let said = world.history(&agent).await.into_iter();
    let said: Vec<_> = said.filter(|it| it.starts_with("User")).collect();
    let expected = (0..WAITING - 1).map(|n| format!("User: {n}"));
    let expected = std::iter::once("User: running".to_string()).chain(expected);
    assert_eq!(said, expected.chain(["User: last".to_string()]).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_server_that_stops_cancels_what_runs_and_what_waits() {
    let world = World::new();
    let (a, b) = (world.agent("a").await, world.agent(".b").await);
    let mut turns = Vec::new();
    for agent in [&a, &b] {
        world.model.script([Script::Hang("x")]);
        turns.push(world.start_named(agent, "running").await.unwrap());
        turns.push(world.start_named(agent, "waiting").await.unwrap());
    }
    world.model.wait_for_calls(2).await;
    world.engine.turns.stop(Duration::ZERO).await;
    for turn in turns {
        assert!(turn.wait(None).await.unwrap().cancelled);
    }
    assert!(matches!(world.start(&a, "more").await, Err(TurnError::Stopping)));
    assert!(matches!(
        world.engine.turns.compact(&a, true, AskedBy::Administrator).await,
        Err(TurnError::Stopping)
    ));
}

#[tokio::test]
async fn a_turn_that_panics_frees_its_agent() {
    let world = World::with(|settings| settings.max_concurrent = 1);
    let agent = world.agent("a").await;
    world.model.script([Script::Panic, Script::Say("fine")]);
    let broken = world.start_named(&agent, "one").await.unwrap();
    let next = world.start_named(&agent, "two").await.unwrap();
    assert!(matches!(broken.wait(None).await, Err(TurnError::Panicked)));
    assert_eq!(next.wait(None).await.unwrap().content, "fine");
    assert_eq!(world.say(&agent, "three").await.unwrap().content, "ok");
    assert_eq!(agent.turns_in_flight(), 0);
    world.engine.turns.stop(Duration::ZERO).await;
}

/// Panics on the agent's own task when it is told to.
#[derive(Default)]
struct Breaking(AtomicBool);

impl AgentLogs for Breaking {
    fn messages(&self, _: &AgentId, _: &[SharedMessage]) {
        assert!(!self.0.swap(false, Ordering::Relaxed), "the log was told to");
    }

    fn renamed(&self, _: &AgentId, _: &AgentId) {}
}

#[tokio::test]
async fn an_agent_whose_task_panics_is_restored() {
    let logs = Arc::new(Breaking::default());
    let world = World::logging(Arc::default(), logs.clone(), |_| {});
    let agent = world.agent("a").await;
    world.say(&agent, "one").await.unwrap();
    world.model.script([Script::Hang("")]);
    let broken = world.start_named(&agent, "two").await.unwrap();
    let waiting = world.start(&agent, "three").await.unwrap();
    until(|| agent.look().conversation.len() == 3).await;
    logs.0.store(true, Ordering::Relaxed);
    broken.cancel.cancel();
    for turn in [broken, waiting] {
        let ended = turn.wait(None).await;
        assert!(matches!(ended, Err(TurnError::Panicked)), "{ended:?}");
    }
    let gone = world.say(&agent, "four").await;
    assert!(matches!(gone, Err(TurnError::Store(StoreError::Failed(_)))), "{gone:?}");
    let again = world.find("a").await.unwrap();
    assert_eq!(history(&again), ["User: one", "Assistant: ok", "User: two"]);
    world.say(&again, "five").await.unwrap();
    assert_eq!(world.cards().await.len(), 1);
    world.engine.turns.stop(Duration::ZERO).await;
}
