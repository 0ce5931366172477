//! What an observer is told: everything once, however it ended.

use nexus_core::engine::Load;
use serde_json::json;

use crate::compaction::{compacted, wide};
use crate::fakes::{Script, World, until};

/// What the observer is told when the model does this in one turn.
async fn check(scripts: impl IntoIterator<Item = Script>, expected: &[&str]) {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script(scripts);
    let _ = world.say(&agent, "go").await;
    assert_eq!(world.seen.take(), expected);
}

#[tokio::test]
async fn every_end_of_a_turn_and_its_calls_is_told_once() {
    check([Script::Say("hi")], &["m for a turn: Done, heard, 1", "turn of a: Done"]).await;
    let calls = vec![("echo", json!({"text": "x"}))];
    let steps = [Script::Call(calls), Script::Say("done")];
    let told = ["m for a turn: Done, heard, 1", "echo: Done", "m for a turn: Done, heard, 1"];
    check(steps, &[&told[..], &["turn of a: Done"]].concat()).await;
    let refused = vec![("nope", json!({}))];
    let told = ["m for a turn: Done, heard, 1", "nothing: Refused(\"known\")", told[2]];
    check([Script::Call(refused)], &[&told[..], &["turn of a: Done"]].concat()).await;
    // The call was not begun to be answered, so it costs nothing.
    let failed = ["m for a turn: Failed(\"unavailable\"), unheard, 0", "turn of a: Failed"];
    check([Script::Fail], &failed).await;
    let fallen = ["m for a turn: Failed(\"rejected\"), heard, 1", "turn of a: Failed"];
    check([Script::Fall("half")], &fallen).await;
    // One that was thrown away is told as well as the one in its place.
    let again = ["m for a turn: Failed(\"broken\"), unheard, 1", "m for a turn: Done, heard, 1"];
    check([Script::Break("")], &[&again[..], &["turn of a: Done"]].concat()).await;
    let panicked = ["m for a turn: Cancelled, unheard, 0", "turn of a: Failed"];
    check([Script::Panic], &panicked).await;
}

#[tokio::test]
async fn a_turn_at_its_limit_is_halted() {
    let call = || Script::Call(vec![("echo", json!({"text": "x"}))]);
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([call(), call(), call()]);
    world.say(&agent, "go").await.unwrap();
    assert_eq!(world.seen.take().last().unwrap(), "turn of a: Halted");
}

#[tokio::test]
async fn a_cancel_is_told_of_the_call_or_the_tool_that_it_met() {
    let hang = Script::Call(vec![("echo", json!({"hang": true}))]);
    for (script, met) in
        [(Script::Hang("par"), "m for a turn: Cancelled"), (hang, "echo: Cancelled")]
    {
        let world = World::new();
        let agent = world.agent("a").await;
        world.model.script([script]);
        let turn = world.start(&agent, "go").await.unwrap();
        world.model.wait_for_calls(1).await;
        until(|| met.starts_with('m') || agent.look().conversation.len() == 2).await;
        agent.cancel_all();
        assert!(turn.wait(None).await.unwrap().cancelled);
        let told = world.seen.take();
        assert!(told.iter().any(|line| line.starts_with(met)), "{told:?}");
        assert_eq!(told.last().unwrap(), "turn of a: Cancelled");
    }
}

#[tokio::test]
async fn summaries_are_told_of_no_turn() {
    let world = wide();
    let agent = world.agent("a").await;
    world.say(&agent, &"x".repeat(300)).await.unwrap();
    world.seen.take();
    world.model.script([Script::Fail, Script::Say("sum")]);
    compacted(&world, &agent).await;
    let failed = "m for a summary: Failed(\"unavailable\"), unheard, 0";
    assert_eq!(world.seen.take(), [failed, "m for a summary: Done, heard, 1"]);
}

#[tokio::test]
async fn the_load_is_what_runs_and_waits() {
    let world = World::with(|settings| settings.max_concurrent = 1);
    let (a, b) = (world.agent("a").await, world.agent("b").await);
    let load = |turns, turns_queued| Load { agents: 2, turns, turns_queued, approvals: 0 };
    assert_eq!(world.engine.load(), load(0, 0));
    world.model.script([Script::Hang("")]);
    let mut turns = vec![world.start(&a, "go").await.unwrap()];
    world.model.wait_for_calls(1).await;
    assert_eq!(world.engine.load(), load(1, 0));
    // One behind its agent, one for want of a slot.
    turns.push(world.start(&a, "go").await.unwrap());
    until(|| world.engine.load() == load(2, 1)).await;
    turns.push(world.start(&b, "go").await.unwrap());
    until(|| world.engine.load() == load(3, 2)).await;
    a.cancel_all();
    for turn in turns {
        turn.wait(None).await.unwrap();
    }
    until(|| world.engine.load() == load(0, 0)).await;
}
