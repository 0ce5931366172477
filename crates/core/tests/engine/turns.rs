//! Turns: steps, tools, cancel, failure, queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nexus_core::events::{EventSink, TurnEvent};
use nexus_core::message::Part;
use nexus_core::store::StoreError;
use nexus_core::turn::{TurnError, TurnInput};
use serde_json::json;

use crate::fakes::{ADMIN, Script, World, history, id, turn_id, until};

#[tokio::test]
async fn an_answer_is_kept_and_shown_to_the_next_turn() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Say("hi"), Script::Say("still here")]);
    assert_eq!(world.say(&agent, "hello").await.unwrap().content, "hi");
    assert_eq!(world.say(&agent, "there?").await.unwrap().content, "still here");
    assert_eq!(world.model.last_context(), ["User: hello", "Assistant: hi", "User: there?"]);
    let call = &world.model.calls()[0];
    assert_eq!((&*call.system, call.model.id.as_str()), ("prompt", "m-1"));
    let [Part::Context(time), Part::Text(said)] = &*call.messages.last().unwrap().parts else {
        panic!("{:?}", call.messages.last())
    };
    assert!(time.starts_with("Current time: "), "{time}");
    assert_eq!(said, "hello");
}

#[tokio::test]
async fn tools_run_side_by_side_and_answer_in_order() {
    let world = World::new();
    let agent = world.agent("a").await;
    let calls = vec![
        ("echo", json!({"text": "slow", "yields": 50})),
        ("echo", json!({"text": "fast"})),
        ("nope", json!({})),
    ];
    world.model.script([Script::Call(calls), Script::Say("done")]);
    let outcome = world.say(&agent, "go").await.unwrap();
    assert_eq!(outcome.content, "done");
    assert!(!outcome.halted_at_iteration_limit);
    let refused = "Tool: Refused: there is no tool named nope.";
    let shown = ["User: go", "Assistant: ", "Tool: slow", "Tool: fast", refused];
    assert_eq!(world.model.last_context(), shown);
    // Written down as each ended, in whatever order.
    let kept: std::collections::BTreeSet<_> = history(&agent).into_iter().collect();
    assert_eq!(kept.len(), 6);
    assert!(shown.iter().all(|line| kept.contains(*line)), "{kept:?}");
    assert_eq!(agent.look().progress.last_iteration_count, 2);
}

#[tokio::test]
async fn a_disabled_tool_is_neither_offered_nor_run() {
    let world = World::new();
    let spec = nexus_core::lifecycle::AgentSpec {
        disable_tools: vec!["echo".into()],
        ..Default::default()
    };
    let agent = world.engine.agents.create(&ADMIN, spec).await.unwrap();
    world.model.script([Script::Call(vec![("echo", json!({"text": "x"}))])]);
    world.say(&agent, "go").await.unwrap();
    assert!(world.model.calls()[0].tools.is_empty());
    assert_eq!(history(&agent)[2], "Tool: Refused: the tool echo is disabled for this agent.");
}

#[tokio::test]
async fn the_iteration_limit_ends_a_model_that_never_stops() {
    let call = || Script::Call(vec![("echo", json!({"text": "x"}))]);
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([call(), call(), Script::Say("just in time")]);
    assert!(!world.say(&agent, "go").await.unwrap().halted_at_iteration_limit);

    world.model.script([call(), call(), call()]);
    assert!(world.say(&agent, "go").await.unwrap().halted_at_iteration_limit);
    assert!(agent.look().progress.halted_at_iteration_limit);
    assert_eq!(agent.look().progress.last_iteration_count, 3);

    assert_eq!(world.say(&agent, "and now?").await.unwrap().content, "ok");
    assert!(!agent.look().progress.halted_at_iteration_limit);
}

#[tokio::test]
async fn the_text_of_all_steps_is_the_content_and_the_pieces_joined() {
    struct Pieces(Arc<Mutex<String>>);
    impl EventSink for Pieces {
        fn event(&mut self, event: TurnEvent<'_>) -> bool {
            if let TurnEvent::Text(piece) = event {
                self.0.lock().unwrap().push_str(piece);
            }
            true
        }
    }
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([
        Script::Say("first"),
        Script::Call(vec![("echo", json!({}))]),
        Script::Say("second"),
    ]);
    let pieces = Arc::new(Mutex::new(String::new()));
    world.say(&agent, "one").await.unwrap();
    let sink = Some(Box::new(Pieces(pieces.clone())) as Box<dyn EventSink>);
    let input = TurnInput { content: "two".into(), sink, ..TurnInput::default() };
    let outcome = world.engine.turns.start(&agent, input).await.unwrap().wait(None).await.unwrap();
    assert_eq!(outcome.content, "second");
    assert_eq!(*pieces.lock().unwrap(), outcome.content);
}

#[tokio::test]
async fn a_cancelled_turn_answers_with_what_was_said() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("par")]);
    let input = TurnInput { content: "go".into(), id: Some(turn_id("t")), ..TurnInput::default() };
    let turn = world.engine.turns.start(&agent, input).await.unwrap();
    world.model.wait_for_calls(1).await;
    until(|| !agent.look().conversation.is_empty()).await;
    assert!(agent.cancel(&turn_id("t")).await);
    let outcome = turn.wait(None).await.unwrap();
    assert!(outcome.cancelled);
    // Whether the piece had arrived before the cancel is a race; if it had, it is kept.
    let kept = history(&agent);
    assert!(
        outcome.content == "par" && kept[1] == "Assistant: par [interrupted]" || kept.len() == 1
    );
    assert!(!agent.cancel(&turn_id("t")).await, "the name is free again");
    assert_eq!(world.say(&agent, "next").await.unwrap().content, "ok");
}

#[tokio::test]
async fn a_cancel_ends_a_running_tool() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Call(vec![("echo", json!({"hang": true}))])]);
    let input = TurnInput { content: "go".into(), id: Some(turn_id("t")), ..TurnInput::default() };
    let turn = world.engine.turns.start(&agent, input).await.unwrap();
    until(|| agent.look().conversation.len() == 2).await;
    agent.cancel(&turn_id("t")).await;
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert_eq!(history(&agent)[2], "Tool: Interrupted: the turn was cancelled.");
}

#[tokio::test]
async fn a_failed_call_leaves_a_valid_history() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Fail, Script::Fall("half an ans"), Script::Say("fine")]);
    assert!(matches!(world.say(&agent, "one").await, Err(TurnError::Provider(_))));
    assert!(matches!(world.say(&agent, "two").await, Err(TurnError::Provider(_))));
    assert_eq!(world.model.last_context(), ["User: two"]);
    assert_eq!(world.say(&agent, "three").await.unwrap().content, "fine");
    let shown = ["User: two", "Assistant: half an ans [interrupted]", "User: three"];
    assert_eq!(world.model.last_context(), shown);
    assert_eq!(agent.look().conversation.len(), 5);
}

#[tokio::test]
async fn what_the_store_refuses_is_not_shown() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.say(&agent, "one").await.unwrap();
    let full = Arc::new(AtomicBool::new(true));
    let is_full = full.clone();
    world.store.fail_when(move |call| {
        let fails = call.method == "append" && is_full.load(Ordering::Relaxed);
        fails.then_some(StoreError::DiskFull)
    });
    let failed = world.say(&agent, "two").await;
    assert!(matches!(failed, Err(TurnError::Store(StoreError::DiskFull))));
    assert_eq!(agent.look().conversation.len(), 2);
    full.store(false, Ordering::Relaxed);
    world.say(&agent, "three").await.unwrap();
    assert_eq!(world.model.last_context(), ["User: one", "Assistant: ok", "User: three"]);
}

#[tokio::test]
async fn turns_of_one_agent_run_in_order_and_names_are_taken_once() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("")]);
    let start = async |name: &str| world.start_named(&agent, name).await;
    let first = start("1").await.unwrap();
    let (second, third) = (start("2").await.unwrap(), start("3").await.unwrap());
    assert!(matches!(start("2").await, Err(TurnError::Duplicate(_))));
    world.model.wait_for_calls(1).await;
    agent.cancel(&turn_id("2")).await;
    let left = second.wait(None).await.unwrap();
    assert!(left.cancelled && left.content.is_empty());
    agent.cancel(&turn_id("1")).await;
    first.wait(None).await.unwrap();
    third.wait(None).await.unwrap();
    let said: Vec<_> =
        history(&agent).into_iter().filter(|line| line.starts_with("User")).collect();
    assert_eq!(said, ["User: 1", "User: 3"]);
}

#[tokio::test]
async fn a_timeout_cancels_the_turn() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("x")]);
    let turn = world.engine.turns.start(&agent, TurnInput::default()).await.unwrap();
    assert!(matches!(turn.wait(Some(Duration::from_millis(1))).await, Err(TurnError::Timeout)));
    assert_eq!(agent.turns_in_flight(), 0);
}

/// Four run and four wait; the ninth is refused.
#[tokio::test]
async fn the_queue_is_bounded() {
    let world = World::new();
    let mut turns = Vec::new();
    for n in 0..8 {
        let agent = world.agent(&format!("a{n}")).await;
        world.model.script([Script::Hang("")]);
        turns.push((
            agent.clone(),
            world.engine.turns.start(&agent, TurnInput::default()).await.unwrap(),
        ));
    }
    let ninth = world.agent("ninth").await;
    assert!(matches!(
        world.engine.turns.start(&ninth, TurnInput::default()).await,
        Err(TurnError::Overloaded)
    ));
    world.model.wait_for_calls(4).await;
    assert_eq!(world.model.calls().len(), 4, "only so many run at once");
    let (_, first) = turns.remove(0);
    first.cancel.cancel();
    first.wait(None).await.unwrap();
    assert!(world.engine.turns.start(&ninth, TurnInput::default()).await.is_ok());
}

#[tokio::test]
async fn stopping_waits_then_cancels_and_takes_nothing_new() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("x")]);
    let turn = world.engine.turns.start(&agent, TurnInput::default()).await.unwrap();
    world.model.wait_for_calls(1).await;
    world.engine.turns.stop(Duration::ZERO).await;
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert!(matches!(
        world.engine.turns.start(&agent, TurnInput::default()).await,
        Err(TurnError::Stopping)
    ));
}

#[tokio::test]
async fn destroying_an_agent_ends_its_turn() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([Script::Hang("x")]);
    let turn = world.engine.turns.start(&agent, TurnInput::default()).await.unwrap();
    world.model.wait_for_calls(1).await;
    world.engine.agents.destroy(&ADMIN, &id("a")).await.unwrap();
    assert!(turn.wait(None).await.unwrap().cancelled);
}
