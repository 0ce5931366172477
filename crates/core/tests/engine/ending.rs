//! Cancelling has one meaning: whatever was begun is given the time to end itself, then it is dropped, and the turn is
//! over when it is. And what ends takes its family along, at the cost of the family.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nexus_core::store::{AgentQuery, AgentStore as _, StoreError};
use nexus_core::tool::ENDING_MAX;
use nexus_core::turn::{TurnError, TurnHandle};
use nexus_core::{Agent, AgentId};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fakes::{ADMIN, Script, World, child, history, id, named, trusted};

/// A turn whose model has called `echo`, which has begun: the first tool of its world.
async fn calling(world: &World, agent: &Agent, arguments: Value) -> TurnHandle {
    world.model.call_echo(arguments);
    let turn = world.start(agent, "go").await.unwrap();
    world.until_begun(1).await;
    turn
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_ends_politely_is_waited_for_and_heard() {
    let world = World::new();
    let agent = world.agent("a").await;
    let ending = ENDING_MAX.as_secs() - 1;
    let hangs = json!({"hang": true, "ending_s": ending, "text": "half of it"});
    let turn = calling(&world, &agent, hangs).await;
    let began = Instant::now();
    turn.cancel.cancel();
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert_eq!(began.elapsed(), Duration::from_secs(ending), "the turn was over with its tool");
    assert_eq!(history(&agent)[2], "Tool: Interrupted: the turn was cancelled.\nhalf of it");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hears_nothing_is_dropped() {
    let slow = json!({"hang": true, "ending_s": ENDING_MAX.as_secs() + 1, "text": "unheard"});
    for deaf in [json!({"deaf": true}), slow] {
        let world = World::new();
        let agent = world.agent("a").await;
        let turn = calling(&world, &agent, deaf).await;
        let began = Instant::now();
        turn.cancel.cancel();
        assert!(turn.wait(None).await.unwrap().cancelled);
        assert_eq!(began.elapsed(), ENDING_MAX);
        assert_eq!(history(&agent)[2], "Tool: Interrupted: the turn was cancelled.");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_time_is_over_is_told_to_end() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.call_echo(json!({"hang": true, "text": "so far"}));
    let began = Instant::now();
    assert!(!world.say(&agent, "go").await.unwrap().cancelled, "the turn goes on");
    assert_eq!(began.elapsed(), Duration::from_secs(60));
    assert_eq!(history(&agent)[2], "Tool: Failed: the tool took longer than 60 s\nso far");
}

#[tokio::test]
async fn no_tool_is_begun_after_a_cancel() {
    let world = World::with(|settings| settings.max_concurrent_tools = 1);
    let agent = world.agent("a").await;
    let calls = vec![("echo", json!({"hang": true})), ("echo", json!({"text": "was run"}))];
    world.model.script([Script::Call(calls)]);
    let turn = world.start(&agent, "go").await.unwrap();
    world.until_begun(1).await;
    turn.cancel.cancel();
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert_eq!(history(&agent)[2..], ["Tool: Interrupted: the turn was cancelled."; 2]);
}

#[tokio::test(start_paused = true)]
async fn the_next_turn_waits_for_the_tools_of_one_whose_result_was_not_written() {
    let world = World::new();
    let agent = world.agent("a").await;
    let quick = json!({"text": "quick", "yields": 50});
    let slow = json!({"hang": true, "ending_s": 3, "text": "slow"});
    world.model.script([Script::Call(vec![("echo", quick), ("echo", slow)])]);
    let turn = world.start(&agent, "go").await.unwrap();
    let next = world.start(&agent, "next").await.unwrap();
    world.until_begun(2).await;
    // What comes next is what the quick one came to. It yields first.
    world.store.fail_next(1, StoreError::DiskFull);
    let began = Instant::now();
    let ended = turn.wait(None).await;
    assert!(matches!(ended, Err(TurnError::Store(StoreError::DiskFull))), "{ended:?}");
    assert_eq!(began.elapsed(), Duration::from_secs(3), "the turn was over with its tools");
    assert!(!next.wait(None).await.unwrap().cancelled);
    assert_eq!(history(&agent)[2..], ["User: next", "Assistant: ok"]);
}

#[tokio::test]
async fn a_tool_that_panics_leaves_the_others_of_its_step_alone() {
    let world = World::new();
    let agent = world.agent("a").await;
    let others = json!({"yields": 50, "text": "went on"});
    let calls = vec![("echo", json!({"panic": true})), ("echo", others)];
    world.model.script([Script::Call(calls)]);
    assert_eq!(world.say(&agent, "go").await.unwrap().content, "ok");
    let broke =
        "Tool: Failed: the tool broke inside the server. What it did until then is not known.";
    assert_eq!(history(&agent)[2..], [broke, "Tool: went on", "Assistant: ok"]);
}

#[tokio::test(start_paused = true)]
async fn the_next_turn_waits_for_the_end_of_a_cancelled_one() {
    let world = World::new();
    let agent = world.agent("a").await;
    let turn = calling(&world, &agent, json!({"hang": true, "ending_s": 3, "text": "late"})).await;
    let next = world.start(&agent, "next").await.unwrap();
    turn.cancel.cancel();
    assert!(!next.wait(None).await.unwrap().cancelled);
    let late = "Tool: Interrupted: the turn was cancelled.\nlate";
    assert_eq!(history(&agent)[2..], [late, "User: next", "Assistant: ok"]);
}

/// Whether the store has an agent of that name.
async fn is_stored(world: &World, name: &str) -> bool {
    let all = AgentQuery { after: None, limit: 100, line_of: None, working: false };
    let agents = world.store.neighbour().agents(all).await.unwrap().agents;
    agents.iter().any(|agent| agent.record.id == id(name))
}

/// Cancels a turn of `p` while its tool waits for the store. With `in_time` the store goes on before the tool's time to
/// end is over.
async fn cancelled_while_the_store_waits(arguments: Value, in_time: bool) -> (World, Agent) {
    let world = World::new();
    let parent = world.make(trusted("p")).await;
    let kid = world.make(child("k", "p")).await;
    world.say(&kid, "hello").await.unwrap();
    let turn = calling(&world, &parent, arguments).await;
    // What the model said is stored: what waits from here on is the tool's. It yields first.
    let held = world.store.hold();
    world.store.until_waiting(1).await;
    turn.cancel.cancel();
    tokio::time::sleep(if in_time { ENDING_MAX / 2 } else { ENDING_MAX * 2 }).await;
    // The turn has to write down what its tool came to.
    drop(held);
    assert!(turn.wait(None).await.unwrap().cancelled);
    (world, parent)
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_destroyed_by_a_cancelled_turn_is_gone_everywhere() {
    for in_time in [true, false] {
        let destroy = json!({"destroy": "k", "yields": 50});
        let (world, parent) = cancelled_while_the_store_waits(destroy, in_time).await;
        let told = history(&parent)[2].contains("ended 1");
        assert_eq!(told, in_time, "{:?}", history(&parent));
        assert!(!is_stored(&world, "k").await);
        assert!(world.find("k").await.is_err());
        assert_eq!(world.cards().await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_made_by_a_cancelled_turn_is_there_everywhere() {
    for in_time in [true, false] {
        let make = json!({"make": "n", "yields": 50});
        let (world, parent) = cancelled_while_the_store_waits(make, in_time).await;
        let told = history(&parent)[2].contains("made n");
        assert_eq!(told, in_time, "{:?}", history(&parent));
        assert!(is_stored(&world, "n").await);
        let made = world.find("n").await.unwrap();
        assert_eq!(made.look().parent, Some(id("p")));
        world.say(&made, "hello").await.unwrap();
        let again = world.restarted(|_| {});
        assert_eq!(history(&again.find("n").await.unwrap()), ["User: hello", "Assistant: ok"]);
    }
}

/// The parent is cancelled, and somebody sends to the child that its tool is about to end.
#[tokio::test(start_paused = true)]
async fn what_is_sent_to_a_child_that_is_being_destroyed_is_stored_or_refused() {
    let world = World::new();
    let parent = world.make(trusted("p")).await;
    let kid = world.make(child("k", "p")).await;
    let turn = calling(&world, &parent, json!({"destroy": "k", "yields": 50})).await;
    let held = world.store.hold();
    world.store.until_waiting(1).await;
    turn.cancel.cancel();
    let sent = world.start(&kid, "are you there?").await.unwrap();
    drop(held);
    let answer = sent.wait(None).await;
    assert!(answer.is_err() || answer.as_ref().is_ok_and(|it| it.cancelled), "{answer:?}");
    turn.wait(None).await.unwrap();
    assert!(world.find("k").await.is_err());
}

const FAMILY: usize = 16_000;

/// `p` and `FAMILY` children of it, or as many temporary ones, beside another agent.
async fn family(world: &World, temporary: bool) {
    let dot = if temporary { "." } else { "" };
    world.make(trusted(&format!("{dot}p"))).await;
    for n in 0..FAMILY {
        world.make(child(&format!("{dot}k{n}"), &format!("{dot}p"))).await;
    }
    world.make(named("other")).await;
}

async fn ends_at_the_cost_of_the_family(temporary: bool, calls: u64) {
    let world = World::new();
    family(&world, temporary).await;
    let root = id(if temporary { ".p" } else { "p" });
    let before = world.store.calls();
    let gone = world.engine.agents.destroy(&ADMIN, &root).await.unwrap();
    assert_eq!(world.store.calls() - before, calls);
    assert_eq!(gone.len(), FAMILY + 1);
    assert_eq!(gone[0], root, "the parent first");
    assert_eq!(world.cards().await.len(), 1);
    assert!(world.engine.agents.live(&gone[FAMILY]).is_none());
}

#[tokio::test]
async fn a_stored_family_ends_in_one_call_of_the_store() {
    ends_at_the_cost_of_the_family(false, 1).await;
}

#[tokio::test]
async fn a_temporary_family_ends_without_the_store() {
    ends_at_the_cost_of_the_family(true, 0).await;
}

#[tokio::test]
async fn ancestors_go_before_their_descendants() {
    let world = World::new();
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    world.store.fail_when(move |call| {
        counted.fetch_add(u64::from(call.method == "destroy"), Ordering::Relaxed);
        None
    });
    // Levels fall from parent to child, so a family is made of two generations; a renamed one keeps its order.
    world.make(trusted("z")).await;
    for name in ["a", "m", ".t"] {
        world.make(child(name, "z")).await;
    }
    world.engine.sessions.rename(&ADMIN, &id("a"), &id("y")).await.unwrap();
    world.engine.sessions.rename(&ADMIN, &id("z"), &id("zz")).await.unwrap();
    let gone = world.engine.agents.destroy(&ADMIN, &id("zz")).await.unwrap();
    assert_eq!(gone[0], id("zz"));
    let mut rest: Vec<&AgentId> = gone[1..].iter().collect();
    rest.sort();
    assert_eq!(rest, [&id(".t"), &id("m"), &id("y")]);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}
