//! Conversations that a provider finds too long, whatever we think of them, and what is learned of its counts.

use nexus_core::message::{Part, StopReason};
use nexus_core::provider::{Answer, Models as _, ProviderError};
use nexus_core::turn::TurnError;
use nexus_core::usage::Usage;
use nexus_core::{Agent, ToolCall};
use serde_json::json;

use crate::compaction::{AROUND, compacted, wide};
use crate::cuts::silently_cut;
use crate::fakes::{Script, World, answer, history, lines};

fn too_long(window: Option<u32>) -> Script {
    Script::Refuse(ProviderError::TooLong { message: "prompt is too long".into(), window })
}

/// An answer for which the provider has read so many tokens.
fn counted(said: &str, input: u64) -> Script {
    let usage = Usage { input, output: 1, ..Usage::default() };
    Script::Answer(Answer { usage, ..answer([Part::text(said)], StopReason::EndTurn) })
}

/// An agent that has talked for so many times 5,000 letters.
async fn talked(world: &World, times: usize) -> Agent {
    let agent = world.agent("a").await;
    for number in 0..times {
        world.say(&agent, &format!("<{number}> {}", "x".repeat(4_950))).await.unwrap();
    }
    agent
}

async fn weight(world: &World, agent: &Agent) -> u64 {
    world.engine.compactor.count(&agent.snapshot()).await.unwrap().total()
}

/// Letters of what each call since `from` has shown.
fn shown(world: &World, from: usize) -> Vec<usize> {
    let letters = |call: &nexus_core::provider::ModelCall| {
        call.messages.iter().map(|it| it.text_bytes()).sum::<usize>()
    };
    world.model.calls()[from..].iter().map(letters).collect()
}

#[tokio::test]
async fn a_window_that_a_provider_names_is_learned_and_kept_to() {
    let world = World::new();
    world.models.describe("m", 100_000, |_| {});
    let agent = talked(&world, 8).await;
    world.model.script([too_long(Some(20_000))]);
    assert_eq!(world.say(&agent, "and now?").await.unwrap().content, "ok");
    assert_eq!(world.models.resolve(Some("m")).unwrap().context_window, 20_000);
    let calls = world.model.calls();
    // The one that was refused, the pieces of a summary, and the one that was answered.
    let [refused, pieces @ .., answered] = &shown(&world, 8)[..] else { panic!("nothing came") };
    assert!(*refused > 39_000 && *answered < 18_000, "{refused} {answered}");
    assert!((3..=5).contains(&pieces.len()), "{pieces:?}");
    assert!(pieces.iter().all(|piece| *piece < 12_000), "{pieces:?}");
    assert_eq!(calls.last().unwrap().model.context_window, 20_000);
    assert_eq!(world.model.last_context().last().unwrap(), "User: and now?");
}

/// Then it is certain only that less than this will do.
#[tokio::test]
async fn a_provider_that_names_no_window_is_sent_less() {
    let world = World::new();
    world.models.describe("m", 100_000, |_| {});
    let agent = talked(&world, 8).await;
    world.model.script([too_long(None)]);
    assert_eq!(world.say(&agent, "and now?").await.unwrap().content, "ok");
    assert_eq!(world.models.resolve(Some("m")).unwrap().context_window, 100_000);
    let shown = shown(&world, 8);
    assert!(*shown.last().unwrap() < shown[0] / 2, "{shown:?}");
}

#[tokio::test]
async fn two_in_a_row_fail_the_turn_and_say_what_is_too_big() {
    let world = wide();
    let agent = talked(&world, 2).await;
    world.model.script([too_long(None), Script::Say("about"), Script::Say("x"), too_long(None)]);
    let failed = world.say(&agent, &"y".repeat(1_000)).await;
    let Err(TurnError::Overflow { reason, system, tools, messages, last }) = failed else {
        panic!("{failed:?}")
    };
    let told = world.model.calls().pop().unwrap();
    let tool_letters: usize = told.tools.iter().map(|tool| tool.text_bytes()).sum();
    assert_eq!(reason, "prompt is too long");
    assert_eq!((system, tools), (6, tool_letters as u64));
    assert_eq!(last, 1_000 + AROUND as u64);
    assert_eq!(messages, last + "about\n\nx".len() as u64 + 4);
    // The agent is none the worse for it.
    assert_eq!(world.say(&agent, "and now?").await.unwrap().content, "ok");
    assert_eq!(world.model.last_context(), ["Summary: about\n\nx", "User: and now?"]);
}

#[tokio::test]
async fn a_good_step_between_makes_them_two() {
    let world = World::with(|settings| settings.max_tool_iterations = 9);
    world.models.describe("m", 20_000, |_| {});
    let agent = talked(&world, 2).await;
    world.model.script([too_long(None), Script::Say("about"), Script::Say("x")]);
    world.model.call_echo(json!({"text": "z".repeat(3_000)}));
    world.model.script([too_long(None)]);
    assert_eq!(world.say(&agent, "echo").await.unwrap().content, "ok");
    let shown = world.model.last_context();
    assert!(shown[0].starts_with("Summary: ok"), "{shown:?}");
    assert_eq!(shown[1..], ["User: echo"]);
}

#[tokio::test]
async fn what_cannot_be_shortened_is_not_tried_again() {
    let world = wide();
    let agent = world.agent("a").await;
    world.model.script([too_long(Some(500))]);
    let failed = world.say(&agent, &"y".repeat(1_000)).await;
    assert!(matches!(failed, Err(TurnError::Overflow { .. })), "{failed:?}");
    assert_eq!(world.model.calls().len(), 1);
}

/// Whoever has switched it off is told.
#[tokio::test]
async fn nothing_is_summarised_where_nobody_wants_it() {
    let world = World::with(|settings| settings.compaction.enabled = false);
    world.models.describe("m", 20_000, |_| {});
    let agent = talked(&world, 2).await;
    world.model.script([too_long(None)]);
    let failed = world.say(&agent, "and now?").await;
    assert!(matches!(failed, Err(TurnError::Overflow { .. })), "{failed:?}");
    assert_eq!(world.model.calls().len(), 3);
    let full = weight(&world, &agent).await as usize;
    // Then the window is all there is.
    let next = 20_000 - full + "and now?".len();
    assert!(world.say(&agent, &"x".repeat(next + 1)).await.is_err());
    world.say(&agent, &"x".repeat(next)).await.unwrap();
    assert_eq!(world.model.calls().len(), 4);
}

#[tokio::test]
async fn a_turn_that_is_cancelled_while_it_is_shortened_is_cancelled() {
    let world = wide();
    let agent = talked(&world, 2).await;
    world.model.script([too_long(None), Script::Hang("about")]);
    let turn = world.start(&agent, "and now?").await.unwrap();
    world.model.wait_for_calls(4).await;
    turn.cancel.cancel();
    assert!(turn.wait(None).await.unwrap().cancelled);
    assert!(agent.look().bill.usage.discarded > 1_000, "{:?}", agent.look().bill);
}

/// Has an agent of 20,000 answered when it weighs a given number, of which the provider has read as many as `read` says.
/// Expects whether it is summarised.
async fn check_truncated(weighs: u64, read: impl Fn(u64) -> u64, summarised: bool) {
    let world = wide();
    let agent = world.agent("a").await;
    let brief = weight(&world, &agent).await;
    let next = (weighs - brief) as usize - AROUND;
    world.model.script([counted("heard", read(weighs))]);
    world.say(&agent, &"y".repeat(next)).await.unwrap();
    let last = history(&agent).pop().unwrap();
    assert_eq!(last.starts_with("Summary"), summarised, "{weighs} read as {}", read(weighs));
}

#[tokio::test]
async fn what_was_cut_in_silence_is_noticed_just_over_and_not_just_under() {
    check_truncated(10_002, |it| it / 2 - 1, true).await;
    check_truncated(10_002, |it| it / 2, false).await;
    check_truncated(10_000, |it| it / 2 - 1, false).await;
    // Nothing was said of it, or what cannot be.
    check_truncated(10_002, |_| 0, false).await;
    check_truncated(10_002, |_| 999, false).await;
    check_truncated(10_002, |_| 1_000, true).await;
}

/// What was streamed cannot be taken back; the next step, or turn, is shown less.
#[tokio::test]
async fn an_answer_to_half_a_conversation_is_kept_once_it_was_streamed() {
    let world = wide();
    let agent = talked(&world, 3).await;
    world.model.script([counted("heard", 4_000), Script::Say("about"), Script::Say("x")]);
    let outcome = world.say(&agent, "and now?").await.unwrap();
    assert_eq!(outcome.content, "heard");
    let context = lines(agent.snapshot().conversation.context().iter());
    assert!(context[0].starts_with("Summary: about"), "{context:?}");
    assert_eq!(context[1..], ["User: and now?", "Assistant: heard"]);
    world.say(&agent, "on").await.unwrap();
    assert_eq!(world.model.last_context().len(), 4);
}

/// Calls that were asked for without knowing all are not run: the model is asked again, once.
#[tokio::test]
async fn an_answer_to_half_a_conversation_is_thrown_away() {
    let world = wide();
    let agent = talked(&world, 3).await;
    let usage = Usage { input: 4_000, output: 100, ..Usage::default() };
    let call = Part::Call(ToolCall::new("c", "echo", json!({"text": "ran"})));
    let call = Answer { usage, ..answer([call], StopReason::EndTurn) };
    world.model.script([Script::Answer(call)]);
    let before = world.model.calls().len();
    let outcome = world.say(&agent, "and now?").await.unwrap();
    assert_eq!(outcome.content, "ok");
    assert_eq!(outcome.bill.usage.discarded, 4_100);
    let calls = shown(&world, before);
    assert!(*calls.last().unwrap() < 4_000, "{calls:?}");
    assert!(!history(&agent).iter().any(|line| line.contains("Tool: ")));
}

/// It may be that the model counts otherwise than anybody would think.
#[tokio::test]
async fn a_second_answer_is_taken_for_what_it_is() {
    let world = wide();
    let agent = talked(&world, 3).await;
    let silent = answer([], StopReason::EndTurn);
    let usage = Usage { input: 4_000, ..Usage::default() };
    let pieces = || (0..3).map(|_| Script::Say("about x"));
    world.model.script([Script::Answer(Answer { usage, ..silent })]);
    world.model.script(pieces());
    world.model.script([counted("heard", 1_000)]);
    // Of what is left, the question is more than half of 4,000, and less than half of it is read.
    let outcome = world.say(&agent, &"w".repeat(2_500)).await.unwrap();
    assert_eq!(outcome.content, "heard");
    assert_eq!(history(&agent).last().unwrap(), "Assistant: heard");
    assert_eq!(world.model.calls().len(), 3 + 1 + pieces().count() + 1);
}

#[tokio::test]
async fn a_model_that_counts_otherwise_is_believed() {
    let world = wide();
    world.models.describe("other", 20_000, |_| {});
    let agent = world.agent("a").await;
    // It takes two letters for a token.
    world.model.script([counted("heard", 2_550)]);
    world.say(&agent, &"x".repeat(5_000)).await.unwrap();
    world.say(&agent, &"y".repeat(25_000)).await.unwrap();
    assert_eq!(world.model.calls().len(), 2, "there was room for it");
    // What is known of the model stays when nothing is left of what it counted.
    world.model.script([Script::Say("about"), Script::Say("letters")]);
    compacted(&world, &agent).await;
    let before = world.model.calls().len();
    world.say(&agent, &"z".repeat(30_000)).await.unwrap();
    assert_eq!(world.model.calls().len(), before + 1);
    // Of another nothing is known.
    let other = world.agent("b").await;
    world.engine.tuning.set_model(&other, "other".into(), None).await.unwrap();
    assert!(world.say(&other, &"z".repeat(30_000)).await.is_err());
}

#[tokio::test]
async fn a_summary_of_half_a_conversation_is_none() {
    let world = wide();
    let agent = talked(&world, 3).await;
    // At the end of the conversation; then one of two pieces.
    world.model.script([counted("half", 4_000), counted("half", 4_000)]);
    compacted(&world, &agent).await;
    let summary = history(&agent).pop().unwrap();
    assert!(summary.contains("No model could summarise"), "{summary}");
}

/// What is learned while room is made may say that it was too little.
#[tokio::test]
async fn room_is_made_again_when_the_model_turns_out_to_count_more() {
    let world = World::new();
    world.models.describe("m", 100_000, |_| {});
    let agent = talked(&world, 8).await;
    world.models.describe("m", 20_000, |_| {});
    world.model.script((0..4).map(|_| counted("about x", 16_000)));
    assert_eq!(world.say(&agent, &"y".repeat(9_000)).await.unwrap().content, "ok");
    let history = world.history(&agent).await;
    assert_eq!(history.iter().filter(|line| line.starts_with("Summary")).count(), 2);
    assert_eq!(world.model.last_context().len(), 2);
}

#[tokio::test]
async fn a_turn_on_a_fallback_is_summarised_by_the_model_that_answers() {
    let world = World::with(|settings| settings.max_tool_iterations = 9);
    world.models.describe("m", 40_000, |info| info.fallback = vec!["one".into()]);
    world.models.describe("one", 20_000, |_| {});
    let agent = talked(&world, 2).await;
    world.model.script([Script::Fail]);
    world.model.call_echo(json!({"text": "z".repeat(4_000)}));
    world.model.script([Script::Say("about letters"), Script::Say("done")]);
    let outcome = world.say(&agent, "echo").await.unwrap();
    assert_eq!((&*outcome.content, &*outcome.model), ("done", "one"));
    let asked: Vec<_> = world.model.calls().iter().map(|call| call.model.alias.clone()).collect();
    assert_eq!(asked, ["m", "m", "m", "one", "one", "one"]);
    let now = agent.snapshot();
    let summary = now.conversation.context().iter().next().unwrap().clone();
    assert_eq!(summary.text(), "about letters");
    assert_eq!(summary.meta.made.as_ref().unwrap().origin.model, "one-1");
}

/// The answer itself has filled the window: what it said stays, and goes on behind a summary, of which there is one.
#[tokio::test]
async fn an_answer_that_fills_the_window_goes_on() {
    let world = World::with(|settings| settings.max_tool_iterations = 9);
    world.models.describe("m", 20_000, |_| {});
    let agent = talked(&world, 3).await;
    let usage = Usage { input: 15_200, output: 4_800, ..Usage::default() };
    let parts = [Part::text("half an ans")];
    let full = Answer { usage, ..answer(parts, StopReason::ContextWindow) };
    world.model.script([
        Script::Answer(full),
        Script::Say("about"),
        Script::Say("letters"),
        Script::Say("wer"),
    ]);
    let outcome = world.say(&agent, "go").await.unwrap();
    assert_eq!(outcome.content, "half an answer");
    let summaries = world.history(&agent).await;
    assert_eq!(summaries.iter().filter(|line| line.starts_with("Summary")).count(), 1);
    let shown = world.model.last_context();
    assert_eq!(shown[1..], ["User: go", "Assistant: half an ans", "User: "]);
}

/// Some services have one word for an answer that is too long and for a window that leaves no room for any.
#[tokio::test]
async fn an_answer_that_is_cut_before_its_first_token_is_a_full_window() {
    // What was counted, and whether it says that the window was full.
    for (input, output, full) in [(19_990, 0, true), (19_990, 1, false), (0, 0, false)] {
        let world = World::new();
        world.models.describe("m", 20_000, |_| {});
        let agent = talked(&world, 3).await;
        world.model.script([silently_cut(input, output)]);
        let outcome = world.say(&agent, "go").await.unwrap();
        let told = (&*outcome.content, outcome.stop.reason, outcome.steps);
        assert_eq!(
            told,
            ("ok", StopReason::EndTurn, if full { 1 } else { 2 }),
            "{input}, {output}"
        );
        let history = world.history(&agent).await;
        let summaries = history.iter().filter(|line| line.starts_with("Summary")).count();
        assert_eq!(summaries, usize::from(full), "{input}, {output}: {history:?}");
    }
}
