//! Why a model stopped: cut answers, refusals, silence, broken streams, thoughts that are not taken back.

use nexus_core::lifecycle::AgentSpec;
use nexus_core::message::{Part, StopReason, Thought};
use nexus_core::provider::{Answer, ProviderError};
use nexus_core::spending::SpendingError;
use nexus_core::store::{SpendingBy, SpendingQuery};
use nexus_core::turn::{TurnError, TurnInput};
use nexus_core::usage::Usage;
use nexus_core::{Agent, Requester, ToolCall};
use serde_json::json;

use crate::fakes::{ADMIN, Script, World, answer, child, history, id, trusted};

fn says(text: &str, reason: StopReason) -> Script {
    Script::Answer(answer([Part::text(text)], reason))
}

fn cut_call() -> Part {
    let cut = Some(17);
    Part::Call(ToolCall { cut, ..ToolCall::new("c9", "echo", json!({})) })
}

/// An answer that was cut before it said anything, and what its provider has counted.
pub fn silently_cut(input: u64, output: u64) -> Script {
    let usage = Usage { input, output, ..Usage::default() };
    Script::Answer(Answer { usage, ..answer([], StopReason::MaxTokens) })
}

#[tokio::test]
async fn a_cut_answer_goes_on_where_it_ended() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([says("one tw", StopReason::MaxTokens), Script::Say("o three")]);
    let outcome = world.say(&agent, "count").await.unwrap();
    assert_eq!((&*outcome.content, outcome.stop.reason), ("one two three", StopReason::EndTurn));
    assert_eq!(outcome.steps, 2);
    let calls = world.model.calls();
    let Some(Part::Context(words)) = calls[1].messages.last().unwrap().parts.first() else {
        panic!("the model was not told to go on")
    };
    assert!(words.contains("Go on exactly where it ended"), "{words}");
    // Nobody said it, so it is not shown as something that was.
    assert_eq!(
        history(&agent),
        ["User: count", "Assistant: one tw", "User: ", "Assistant: o three"]
    );
}

#[tokio::test]
async fn a_model_that_is_cut_again_and_again_is_stopped() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script((0..9).map(|_| says("x", StopReason::MaxTokens)));
    let world_of_ten = World::with(|settings| settings.max_tool_iterations = 10);
    let other = world_of_ten.agent("a").await;
    world_of_ten.model.script((0..9).map(|_| says("x", StopReason::MaxTokens)));
    let outcome = world_of_ten.say(&other, "go").await.unwrap();
    assert_eq!((&*outcome.content, outcome.stop.reason), ("xxxx", StopReason::MaxTokens));
    // The limit on steps holds for them too.
    let outcome = world.say(&agent, "go").await.unwrap();
    assert_eq!(outcome.stop.reason, StopReason::IterationLimit);
}

#[tokio::test]
async fn a_cut_call_is_never_run_and_its_neighbour_is() {
    let world = World::new();
    let agent = world.agent("a").await;
    let whole = Part::Call(ToolCall::new("c1", "echo", json!({"text": "ran"})));
    world.model.script([Script::Answer(answer([whole, cut_call()], StopReason::EndTurn))]);
    let outcome = world.say(&agent, "go").await.unwrap();
    assert_eq!(outcome.content, "ok");
    let said = history(&agent);
    assert_eq!(said.iter().filter(|line| *line == "Tool: ran").count(), 1, "{said:?}");
    assert!(said.iter().any(|it| it.contains("Not run") && it.contains("17 bytes")), "{said:?}");
    world.until_begun(1).await;
}

#[tokio::test]
async fn calls_that_are_cut_three_times_end_the_turn() {
    let world = World::with(|settings| {
        settings.max_tool_iterations = 100;
        settings.compaction.enabled = false;
    });
    // The second is what services say that hide the cut.
    for (said, calls) in [(StopReason::MaxTokens, 3), (StopReason::EndTurn, 7)] {
        let agent = world.agent(said.name()).await;
        world.model.script((0..3).map(|_| Script::Answer(answer([cut_call()], said))));
        let outcome = world.say(&agent, "go").await.unwrap();
        assert_eq!((outcome.stop.reason, outcome.steps), (StopReason::MaxTokens, 3), "{said:?}");
        assert_eq!(world.model.calls().len(), calls, "{said:?}");
        // What was cut has its result, so the next turn is valid.
        world.say(&agent, "on").await.unwrap();
    }
}

#[tokio::test]
async fn a_cut_at_the_callers_own_limit_is_an_outcome() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.model.script([says("one tw", StopReason::MaxTokens)]);
    let input =
        TurnInput { content: "count".into(), max_output_tokens: Some(2), ..TurnInput::default() };
    let outcome = world.engine.turns.start(&agent, input).await.unwrap().wait(None).await.unwrap();
    assert_eq!((&*outcome.content, outcome.stop.reason), ("one tw", StopReason::MaxTokens));
    let calls = world.model.calls();
    assert_eq!((calls.len(), calls[0].max_tokens), (1, Some(2)));
}

#[tokio::test]
async fn the_models_own_limit_is_tried_as_far_as_the_window_leaves_room() {
    // Its window; what the second call may have, if there is one.
    for (window, larger) in
        [(1_000_000, Some(100_000)), (90_000, Some(90_000 - 2_048)), (60_000, None)]
    {
        let world = World::new();
        world.models.describe("m", window, |info| info.max_output = Some(100_000));
        let agent = world.agent("a").await;
        world.model.script([silently_cut(20, 64_000), Script::Say("whole")]);
        let outcome = world.say(&agent, "go").await.unwrap();
        let calls = world.model.calls();
        let limits: Vec<u32> = calls.iter().map(|call| call.max_tokens.unwrap()).collect();
        match larger {
            Some(most) => {
                assert_eq!((limits[0], limits.len()), (64_000, 2), "{window}");
                assert!(limits[1] <= most && limits[1] > most - 1_000, "{window}: {limits:?}");
                assert_eq!((&*outcome.content, outcome.steps), ("whole", 1), "{window}");
            }
            // Further steps are the rest of a cut answer, and no larger.
            None => {
                assert!(limits.iter().all(|limit| *limit <= limits[0]), "{window}: {limits:?}");
                assert!(outcome.steps > 1, "{window}");
            }
        }
    }
}

#[tokio::test]
async fn a_refused_exchange_is_not_shown_again() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.say(&agent, "hello").await.unwrap();
    for reason in [StopReason::Refusal, StopReason::ContentFilter] {
        world.model.script([Script::Call(vec![("echo", json!({}))]), says("no", reason)]);
        let outcome = world.say(&agent, "something bad").await.unwrap();
        assert_eq!((&*outcome.content, outcome.stop.reason), ("no", reason));
        world.say(&agent, "something good").await.unwrap();
        let shown = world.model.last_context();
        assert!(!shown.iter().any(|line| line.contains("bad") || line.contains("no")), "{shown:?}");
        assert_eq!(shown.last().unwrap(), "User: something good");
    }
    // It is still there to be read.
    assert!(history(&agent).contains(&"User: something bad".to_owned()));
}

#[tokio::test]
async fn what_was_refused_without_a_word_is_not_shown_again() {
    let world = World::new();
    let agent = world.agent("a").await;
    world.say(&agent, "hello").await.unwrap();
    let filtered = ProviderError::Filtered("it is about cats".into());
    for (refusal, reason) in [
        (Script::Answer(answer([], StopReason::Refusal)), StopReason::Refusal),
        (Script::Refuse(filtered), StopReason::ContentFilter),
    ] {
        world.model.script([Script::Call(vec![("echo", json!({"text": "bad"}))]), refusal]);
        let outcome = world.say(&agent, "something bad").await.unwrap();
        assert_eq!((&*outcome.content, outcome.stop.reason), ("", reason));
        if reason == StopReason::ContentFilter {
            let details = json!({"explanation": "it is about cats"});
            assert_eq!(outcome.stop.details, Some(details));
        }
        world.say(&agent, "something good").await.unwrap();
        let shown = world.model.last_context();
        assert!(!shown.iter().any(|line| line.contains("bad")), "{shown:?}");
        assert_eq!(shown.last().unwrap(), "User: something good");
    }
}

#[tokio::test]
async fn silence_is_asked_once_more_and_then_said() {
    let world = World::new();
    let agent = world.agent("a").await;
    let nothing = || Script::Answer(answer([], StopReason::EndTurn));
    world.model.script([nothing(), Script::Say("there")]);
    assert_eq!(world.say(&agent, "one").await.unwrap().content, "there");
    world.model.script([nothing(), nothing()]);
    let outcome = world.say(&agent, "two").await.unwrap();
    assert_eq!((&*outcome.content, outcome.stop.reason), ("", StopReason::Empty));
    assert_eq!(world.model.calls().len(), 4);
}

#[tokio::test]
async fn a_stream_that_breaks_goes_on() {
    let world = World::with(|settings| settings.max_tool_iterations = 10);
    let agent = world.agent("a").await;
    // Before a word: again, twice.
    world.model.script([Script::Break(""), Script::Break(""), Script::Say("fine")]);
    assert_eq!(world.say(&agent, "one").await.unwrap().content, "fine");
    world.model.script([Script::Break(""), Script::Break(""), Script::Break("")]);
    assert!(matches!(world.say(&agent, "two").await, Err(TurnError::Provider(_))));
    // After words: they are kept, and the model goes on.
    world.model.script([Script::Break("half an ans"), Script::Say("wer")]);
    let outcome = world.say(&agent, "three").await.unwrap();
    assert_eq!(outcome.content, "half an answer");
    // Up to a point.
    world.model.script((0..9).map(|_| Script::Break("x")));
    let before = world.model.calls().len();
    assert!(matches!(world.say(&agent, "four").await, Err(TurnError::Provider(_))));
    assert_eq!(world.model.calls().len() - before, 4);
}

#[tokio::test]
async fn thoughts_that_are_refused_are_left_out_from_there_on() {
    let world = World::new();
    let agent = world.agent("a").await;
    let thought = Thought { text: "hm".into(), payload: Some("{\"signature\":\"s\"}".into()) };
    let thinks = || {
        Script::Answer(answer(
            [Part::Thought(thought.clone()), Part::text("hi")],
            StopReason::EndTurn,
        ))
    };
    world.model.script([thinks()]);
    world.say(&agent, "one").await.unwrap();
    let refuse = || {
        Script::Refuse(ProviderError::Thoughts { message: "bad signature".into(), missed: false })
    };
    world.model.script([refuse(), thinks()]);
    world.say(&agent, "two").await.unwrap();
    let calls = world.model.calls();
    assert_eq!([calls[1].earlier, calls[2].earlier], [0, 3]);
    // The next turn knows it too, in this process and in another.
    world.say(&agent, "three").await.unwrap();
    assert_eq!(world.model.calls()[3].earlier, 2);
    let again = world.restarted(|_| {});
    let agent = again.find("a").await.unwrap();
    again.say(&agent, "four").await.unwrap();
    assert_eq!(again.model.calls()[0].earlier, 2);
    // Refused twice, it is an error.
    again.model.script([refuse(), refuse()]);
    assert!(matches!(again.say(&agent, "five").await, Err(TurnError::Provider(_))));
}

#[tokio::test]
async fn thoughts_that_are_missed_go_back_from_there_on() {
    let world = World::new();
    let agent = world.agent("a").await;
    let missed = || {
        let message = "reasoning_content must be passed back".into();
        Script::Refuse(ProviderError::Thoughts { message, missed: true })
    };
    world.model.script([missed()]);
    world.say(&agent, "one").await.unwrap();
    world.say(&agent, "two").await.unwrap();
    let always = |at: usize| world.model.calls()[at].model.thinking.replayed_always;
    assert_eq!([always(0), always(1), always(2)], [false, true, true]);
    assert!(world.model.calls().iter().all(|call| call.earlier == 0));
    // Missed with all of them there, it is an error.
    world.model.script([missed(), missed()]);
    assert!(matches!(world.say(&agent, "three").await, Err(TurnError::Provider(_))));
}

fn used(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

fn with_usage(script: Answer, usage: Usage) -> Script {
    Script::Answer(Answer { usage, ..script })
}

async fn bill_of(world: &World, agent: &Agent, said: &str) -> nexus_core::usage::Bill {
    world.say(agent, said).await.unwrap().bill
}

#[tokio::test]
async fn everything_that_was_billed_is_counted() {
    let world = World::new();
    let agent = world.agent("a").await;
    let text = |text: &str| answer([Part::text(text)], StopReason::EndTurn);
    world.model.script([with_usage(text("hi"), used(10, 5))]);
    let first = bill_of(&world, &agent, "one").await;
    assert_eq!((first.usage, first.calls, first.unknown_calls), (used(10, 5), 1, 1));
    // An answer that was thrown away was paid for too.
    let nothing = with_usage(answer([], StopReason::EndTurn), used(7, 1));
    world.model.script([nothing, with_usage(text("there"), used(20, 2))]);
    let second = bill_of(&world, &agent, "two").await;
    assert_eq!(second.usage, Usage { discarded: 8, ..used(20, 2) });
    assert_eq!(agent.look().bill, first + second);
    // And what came to nothing at all, by an estimate.
    world.model.script([Script::Fall("half")]);
    assert!(world.say(&agent, "three").await.is_err());
    let all = agent.look().bill;
    assert_eq!(all.calls, 4);
    assert!(all.usage.estimated && all.usage.input > 30, "{all:?}");
    let again = world.restarted(|_| {});
    assert_eq!(again.find("a").await.unwrap().look().bill, all);
}

#[tokio::test]
async fn a_model_that_pauses_gets_its_words_back() {
    let world = World::with(|settings| settings.max_tool_iterations = 10);
    let agent = world.agent("a").await;
    world.model.script([says("searching", StopReason::Pause), Script::Say("found")]);
    let outcome = world.say(&agent, "look").await.unwrap();
    assert_eq!(outcome.content, "searching\n\nfound");
    assert_eq!(world.model.last_context(), ["User: look", "Assistant: searching"]);
    world.model.script((0..9).map(|_| says("x", StopReason::Pause)));
    let before = world.model.calls().len();
    assert_eq!(world.say(&agent, "look").await.unwrap().stop.reason, StopReason::Pause);
    assert_eq!(world.model.calls().len() - before, 6);
}

#[tokio::test]
async fn what_a_tree_used_outlives_those_who_used_it() {
    let world = World::new();
    let used_by = |input| {
        let said = answer([Part::text("hi")], StopReason::EndTurn);
        with_usage(said, used(input, 1))
    };
    let root = world.make(trusted("root")).await;
    let inner =
        world.make(AgentSpec { preset: Some("worker".into()), ..child("inner", "root") }).await;
    let temporary = world.make(child(".t", "root")).await;
    for (agent, input) in [(&root, 100), (&inner, 20), (&temporary, 3)] {
        world.model.script([used_by(input)]);
        world.say(agent, "go").await.unwrap();
    }
    let report = async |of: Option<&str>, tree, by, requester: &Requester| {
        let query = SpendingQuery { of: of.map(id), tree, by, since: None };
        let report = world.engine.spending.report(requester, query).await?;
        let rows: Vec<_> =
            report.rows.into_iter().map(|row| (row.key, row.bill.usage.input)).collect();
        Ok::<_, SpendingError>((report.total.usage.input, rows))
    };
    let by = SpendingBy::Agent;
    assert_eq!(report(Some("root"), false, by, &ADMIN).await.unwrap().0, 100);
    let (total, rows) = report(Some("root"), true, by, &ADMIN).await.unwrap();
    assert_eq!(total, 123);
    assert_eq!(rows, [("root".into(), 100), ("inner".into(), 20), (".t".into(), 3)]);
    assert_eq!(report(None, false, by, &ADMIN).await.unwrap().0, 123);
    let (_, rows) = report(None, false, SpendingBy::Model, &ADMIN).await.unwrap();
    assert_eq!(rows, [("fake/m-1".into(), 123)]);
    // Whoever is gone was paid for all the same.
    for name in ["inner", ".t"] {
        world.engine.agents.destroy(&ADMIN, &id(name)).await.unwrap();
    }
    assert_eq!(report(Some("root"), true, by, &ADMIN).await.unwrap().0, 123);
    assert_eq!(report(Some("root"), false, by, &ADMIN).await.unwrap().0, 100);
    // An agent sees its own, and nobody else's.
    let stranger = Requester::Agent(id("root"));
    world.agent("other").await;
    assert_eq!(report(Some("root"), true, by, &stranger).await.unwrap().0, 123);
    assert!(matches!(
        report(Some("other"), true, by, &stranger).await,
        Err(SpendingError::Denied(_))
    ));
    assert!(matches!(report(None, true, by, &stranger).await, Err(SpendingError::Denied(_))));
    assert!(matches!(report(Some("no"), true, by, &ADMIN).await, Err(SpendingError::Unknown(_))));
}
