//! Keeping a conversation within the window. The fake tokenizer counts one token a letter; the window is 1,000.

use nexus_core::compact::Compaction;
use nexus_core::turn::TurnError;
use serde_json::json;

use crate::fakes::{Script, WINDOW, World, history};

#[tokio::test]
async fn the_older_part_is_summarised_when_the_window_fills() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let long = "x".repeat(400);
    world.say(&agent, &long).await.unwrap();
    world.say(&agent, "short").await.unwrap();
    let before = world.model.calls().len();
    world.model.script([Script::Say("about x, key sk-abcdefghijklmnop"), Script::Say("answer")]);
    let outcome = world.say(&agent, &"y".repeat(500)).await.unwrap();
    assert_eq!(outcome.content, "answer");

    let calls = world.model.calls();
    assert_eq!(calls.len(), before + 2, "one call to summarise, one to answer");
    assert!(
        calls[before].messages[0].content.contains(&long),
        "the summariser sees what it summarises"
    );
    let shown = world.model.last_context();
    assert_eq!(shown[0], "Summary: about x, key [redacted]");
    assert_eq!(shown[1..3], ["User: short", "Assistant: ok"]);
    assert_eq!(shown.len(), 4);
    assert_eq!(history(&agent).len(), 7, "the history keeps everything, and the summary");
}

#[tokio::test]
async fn compact_on_demand_says_what_it_saved() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    assert_eq!(
        world.engine.compact(&agent, true).await.unwrap(),
        Compaction::Skipped("nothing_to_compact")
    );
    world.say(&agent, &"x".repeat(300)).await.unwrap();
    assert_eq!(
        world.engine.compact(&agent, false).await.unwrap(),
        Compaction::Skipped("below_threshold")
    );
    world.model.script([Script::Say("sum")]);
    let Compaction::Done { before, after } = world.engine.compact(&agent, true).await.unwrap()
    else {
        panic!("nothing was compacted")
    };
    assert!(before > after + 250, "{before} {after}");
    assert_eq!(world.engine.count_tokens(&agent).await.total(), after);
}

#[tokio::test]
async fn a_failed_summary_changes_nothing() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.say(&agent, &"x".repeat(300)).await.unwrap();
    world.model.script([Script::Fail]);
    assert!(matches!(world.engine.compact(&agent, true).await, Err(TurnError::Provider(_))));
    assert_eq!(history(&agent).len(), 2);
}

#[tokio::test]
async fn a_message_that_cannot_fit_is_refused_before_the_model_is_asked() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let fixed = world.engine.count_tokens(&agent).await.total() as usize;
    let fits = WINDOW as usize - fixed;
    let too_long = world.say(&agent, &"x".repeat(fits + 1)).await;
    assert!(matches!(too_long, Err(TurnError::ContextTooLong { window: 1000, .. })));
    assert_eq!(world.model.calls().len(), 0);
    world.say(&agent, &"x".repeat(fits)).await.unwrap();
}

#[tokio::test]
async fn a_call_that_fills_the_window_leaves_what_was_asked() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let huge = Script::Call(vec![("echo", json!({"text": "z".repeat(20_000)}))]);
    world.model.script([huge, Script::Say("it echoed"), Script::Say("done")]);
    assert_eq!(world.say(&agent, "Echo much").await.unwrap().content, "done");
    let calls = world.model.calls();
    let transcript = &calls[1].messages[0].content;
    assert!(transcript.len() < 20_000, "the summariser is shown {} bytes", transcript.len());
    assert_eq!(world.model.last_context(), ["Summary: it echoed", "User: Echo much"]);
}
