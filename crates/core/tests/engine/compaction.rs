//! Keeping a conversation within the window. The fake tokenizer counts one token a letter.

use nexus_core::Agent;
use nexus_core::authority::AskedBy;
use nexus_core::compact::Compaction;
use nexus_core::store::SessionStore as _;
use nexus_core::turn::TurnError;
use serde_json::json;

use crate::fakes::{ADMIN, Script, WINDOW, World, history, id, lines};

/// What a message of the user has beside what is said: the time, and four tokens for the message.
pub const AROUND: usize = "Current time: 2026-11-16 05:50 UTC".len() + 4;

/// A world whose model has a window of 20,000: it is compacted at 18,000, and 5,000 are kept.
pub fn wide() -> World {
    widened(World::new())
}

pub fn widened(world: World) -> World {
    world.models.describe("m", 20_000, |_| {});
    world
}

pub async fn compacted(world: &World, agent: &Agent) -> Compaction {
    world.engine.turns.compact(agent, true, AskedBy::Administrator).await.unwrap()
}

#[tokio::test]
async fn the_older_part_is_summarised_when_the_window_fills() {
    let world = wide();
    let agent = world.agent("a").await;
    let long = "x".repeat(8_000);
    world.say(&agent, &long).await.unwrap();
    world.say(&agent, "short").await.unwrap();
    let before = world.model.calls().len();
    world.model.script([Script::Say("about x, key sk-abcdefghijklmnop"), Script::Say("answer")]);
    let outcome = world.say(&agent, &"y".repeat(10_000)).await.unwrap();
    assert_eq!(outcome.content, "answer");

    let calls = world.model.calls();
    assert_eq!(calls.len(), before + 2, "one call to summarise, one to answer");
    let first = calls[before].messages.iter().next().unwrap();
    assert_eq!(first.text(), long, "the summariser sees what it summarises");
    let shown = world.model.last_context();
    assert_eq!(shown[0], "Summary: about x, key [redacted]");
    assert_eq!(shown[1..3], ["User: short", "Assistant: ok"]);
    assert_eq!(shown.len(), 4);
    assert_eq!(world.history(&agent).await.len(), 7, "all is kept, and the summary");
}

/// It comes when it has to, and not a letter earlier.
#[tokio::test]
async fn the_window_fills_just_under_and_just_over() {
    for (more, calls) in [(0, 1), (1, 2)] {
        let world = wide();
        let agent = world.agent("a").await;
        world.say(&agent, &"x".repeat(9_000)).await.unwrap();
        let full = world.engine.compactor.count(&agent.snapshot()).await.unwrap().total() as usize;
        let before = world.model.calls().len();
        world.say(&agent, &"y".repeat(18_000 - full - AROUND + more)).await.unwrap();
        assert_eq!(world.model.calls().len() - before, calls, "{more} over");
    }
}

#[tokio::test]
async fn as_long_as_there_is_room_nothing_is_counted() {
    let world = wide();
    let agent = world.agent("a").await;
    for _ in 0..3 {
        world.say(&agent, &"x".repeat(2_000)).await.unwrap();
    }
    world.model.call_echo(json!({"text": "x".repeat(3_000)}));
    world.say(&agent, "echo").await.unwrap();
    assert_eq!(world.counter.counts.load(std::sync::atomic::Ordering::Relaxed), 0);
    world.say(&agent, &"x".repeat(6_000)).await.unwrap();
    assert!(world.counter.counts.load(std::sync::atomic::Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn compact_on_demand_says_what_it_saved() {
    let world = wide();
    let agent = world.agent("a").await;
    assert_eq!(compacted(&world, &agent).await, Compaction::Skipped("nothing_to_compact"));
    world.say(&agent, &"x".repeat(300)).await.unwrap();
    assert_eq!(
        world.engine.turns.compact(&agent, false, AskedBy::Administrator).await.unwrap(),
        Compaction::Skipped("below_threshold")
    );
    world.model.script([Script::Say("sum")]);
    let Compaction::Done { before, after } = compacted(&world, &agent).await else {
        panic!("nothing was compacted")
    };
    assert!(before > after + 250, "{before} {after}");
    assert_eq!(world.engine.compactor.count(&agent.snapshot()).await.unwrap().total(), after);
}

#[tokio::test]
async fn a_message_that_cannot_fit_is_refused_before_the_model_is_asked() {
    let world = World::new();
    let agent = world.agent("a").await;
    let fixed = world.engine.compactor.count(&agent.snapshot()).await.unwrap().total() as usize;
    let fits = WINDOW as usize - fixed - AROUND;
    let too_long = world.say(&agent, &"x".repeat(fits + 1)).await;
    assert!(
        matches!(too_long, Err(TurnError::ContextTooLong { tokens: 1001, window: 1000 })),
        "{too_long:?}"
    );
    assert_eq!(world.model.calls().len(), 0);
    assert!(history(&agent).is_empty(), "nothing was stored");
    world.say(&agent, &"x".repeat(fits)).await.unwrap();
    // The next turn is none the worse for it.
    world.say(&agent, "and now?").await.unwrap();
}

/// Nothing that was said before it could be made short enough, so it is not even tried.
#[tokio::test]
async fn a_message_that_cannot_fit_costs_no_summary() {
    let world = wide();
    let agent = world.agent("a").await;
    let fixed = world.engine.compactor.count(&agent.snapshot()).await.unwrap().total() as usize;
    // A summary has four tokens beside its text.
    let fits = 20_000 - fixed - AROUND - 4;
    world.say(&agent, &"x".repeat(9_000)).await.unwrap();
    let too_long = world.say(&agent, &"y".repeat(fits + 1)).await;
    assert!(
        matches!(too_long, Err(TurnError::ContextTooLong { tokens: 20_001, window: 20_000 })),
        "{too_long:?}"
    );
    assert_eq!((world.model.calls().len(), history(&agent).len()), (1, 2));
    // With room for a word about the rest, it goes.
    let word = "[2 earlier messages left out.]";
    assert!(world.say(&agent, &"y".repeat(fits - word.len() + 1)).await.is_err());
    world.say(&agent, &"y".repeat(fits - word.len())).await.unwrap();
    assert_eq!(world.model.last_context()[0], format!("Summary: {word}"));
    assert_eq!(world.model.calls().len(), 2, "no model could have said it shorter");
}

#[tokio::test]
async fn a_message_that_just_fits_has_the_rest_summarised() {
    let world = wide();
    let agent = world.agent("a").await;
    world.say(&agent, &"x".repeat(9_000)).await.unwrap();
    world.model.script([Script::Say("about x"), Script::Say("answer")]);
    let outcome = world.say(&agent, &"y".repeat(19_000)).await.unwrap();
    assert_eq!(outcome.content, "answer");
    assert_eq!(world.model.last_context()[0], "Summary: about x");
    // What comes next is as long as it must be, and the turns go on.
    world.model.call_echo(json!({"text": "z".repeat(300)}));
    world.say(&agent, "next").await.unwrap();
    world.say(&agent, "after").await.unwrap();
}

#[tokio::test]
async fn a_call_that_fills_the_window_leaves_what_was_asked() {
    let world = wide();
    let agent = world.agent("a").await;
    let huge = Script::Call(vec![("echo", json!({"text": "z".repeat(10_000)}))]);
    world.model.script([huge, Script::Say("called"), Script::Say("echoed"), Script::Say("done")]);
    assert_eq!(world.say(&agent, "Echo much").await.unwrap().content, "done");
    for call in &world.model.calls()[1..3] {
        let piece = call.messages.last().unwrap().text().into_owned();
        assert!(piece.len() < 10_000 && piece.contains("bytes left out"), "{}", piece.len());
    }
    assert_eq!(world.model.last_context(), ["Summary: called\n\nechoed", "User: Echo much"]);
}

/// An agent whose older part was summarised, twice, and the context it was shown last.
async fn summarised(world: &World) -> Agent {
    let agent = world.agent("a").await;
    world.models.describe("m", 4_000, |_| {});
    for (round, letter) in ["x", "y"].into_iter().enumerate() {
        world.say(&agent, &letter.repeat(900)).await.unwrap();
        world.say(&agent, &format!("short {round}")).await.unwrap();
        world.say(&agent, &format!("shorter {round}")).await.unwrap();
        world.model.script([Script::Say("about letters")]);
        let done = compacted(world, &agent).await;
        assert!(matches!(done, Compaction::Done { .. }), "{done:?}");
    }
    agent
}

#[tokio::test]
async fn what_a_summary_stands_for_leaves_memory_and_is_read_as_before() {
    let world = World::new();
    let agent = summarised(&world).await;
    let now = agent.snapshot();
    let (first, total) = (now.conversation.first(), now.conversation.len());
    assert!(0 < first && first < total, "{first} of {total}");
    assert_eq!(history(&agent).len() as u64, total - first);

    let stored = world.store.read_session(&id("a")).await.unwrap().unwrap().1;
    let stored = lines(&stored);
    assert_eq!(stored.len() as u64, total);
    for offset in 0..=total + 1 {
        for limit in [0, 1, 2, 3, total as u32, u32::MAX] {
            let page =
                world.engine.agents.history(&agent, offset, limit, usize::MAX).await.unwrap();
            let expected = stored.iter().skip(offset as usize).take(limit as usize);
            let expected: Vec<_> = expected.cloned().collect();
            assert_eq!(lines(&page.messages), expected, "{limit} from {offset}, border {first}");
            assert_eq!(page.total, total);
        }
    }
    // A page that ends early by its bytes has no gap in it.
    for (offset, expected) in [(0, 1), (first - 2, 1), (first - 1, total - first + 1)] {
        let page = world.engine.agents.history(&agent, offset, u32::MAX, 1).await.unwrap();
        let expected = &stored[offset as usize..][..expected as usize];
        assert_eq!(lines(&page.messages), expected, "from {offset}, border {first}");
    }
}

#[tokio::test]
async fn a_restart_after_a_summary_gives_the_same_context() {
    let world = World::new();
    let agent = summarised(&world).await;
    let before = agent.snapshot();
    let again = widened(world.restarted(|_| {}));
    let restored = again.find("a").await.unwrap();
    let after = restored.snapshot();
    assert_eq!(
        lines(after.conversation.context().iter()),
        lines(before.conversation.context().iter())
    );
    assert_eq!(after.conversation.first(), before.conversation.first());
    assert_eq!(after.conversation.len(), before.conversation.len());
    assert_eq!(after.conversation.context_bytes(), before.conversation.context_bytes());
    again.say(&restored, "and now?").await.unwrap();
    let mut expected = lines(before.conversation.context().iter());
    expected.push("User: and now?".into());
    assert_eq!(again.model.last_context(), expected);
    assert_eq!(again.history(&restored).await.len() as u64, before.conversation.len() + 2);
}

/// The store does not know it, so nothing of it may leave memory.
#[tokio::test]
async fn a_temporary_agent_keeps_all_it_said() {
    let world = wide();
    let agent = world.agent(".a").await;
    world.say(&agent, &"x".repeat(300)).await.unwrap();
    world.say(&agent, "short").await.unwrap();
    world.model.script([Script::Say("about x")]);
    compacted(&world, &agent).await;
    assert_eq!(history(&agent).len(), 5);
    assert_eq!(world.history(&agent).await, history(&agent));
    // Saved by name, it is stored whole, and then trims as others do.
    world.engine.sessions.save(&ADMIN, &id(".a"), &id("a")).await.unwrap();
    let again = world.restarted(|_| {});
    assert_eq!(again.history(&again.find("a").await.unwrap()).await, history(&agent));
}
