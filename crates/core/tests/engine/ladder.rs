//! Who is asked for a summary, in which order, and what is taken for one. Whatever models do, it ends, and with less.

use std::sync::Arc;

use nexus_core::authority::AskedBy;
use nexus_core::compact::Compaction;
use nexus_core::message::{Message, Part, StopReason};
use nexus_core::model::{Effort, Reasoning};
use nexus_core::provider::{Answer, ModelCall, ProviderError, Recurs, Urgency};
use nexus_core::turn::TurnError;
use nexus_core::usage::{Bill, Prices, Rates, Usage};
use nexus_core::{Agent, ToolCall};
use serde_json::json;

use crate::compaction::{AROUND, compacted, wide, widened};
use crate::fakes::{Script, World, answer, history, lines, trusted};

fn says(text: &str, reason: StopReason) -> Script {
    Script::Answer(answer([Part::text(text)], reason))
}

fn text(text: String) -> Script {
    says(&text, StopReason::EndTurn)
}

/// Letters of all that a call shows.
fn letters(call: &ModelCall) -> usize {
    let tools = call.tools.iter().map(|tool| tool.text_bytes()).sum::<usize>();
    call.system.len() + tools + call.messages.iter().map(|it| it.text_bytes()).sum::<usize>()
}

/// Who was asked since `from`, and how.
fn asked(world: &World, from: usize) -> Vec<String> {
    let line = |call: &ModelCall| {
        let in_place = &*call.system == "prompt";
        format!("{} {}", call.model.alias, if in_place { "in place" } else { "transcript" })
    };
    world.model.calls()[from..].iter().map(line).collect()
}

/// A world with a model `m` of 20,000 tokens that has two fallbacks, and an agent with something to summarise.
async fn talked(change: impl FnOnce(&World)) -> (World, Agent) {
    let world = World::new();
    for alias in ["one", "two"] {
        world.models.describe(alias, 20_000, |_| {});
    }
    world.models.describe("m", 20_000, |info| {
        info.fallback = vec!["one".into(), "unknown".into(), "m".into(), "two".into()];
    });
    change(&world);
    let agent = world.agent("a").await;
    world.say(&agent, &"x".repeat(3_000)).await.unwrap();
    world.say(&agent, &"y".repeat(3_000)).await.unwrap();
    (world, agent)
}

#[tokio::test]
async fn the_own_model_is_asked_at_the_end_of_the_conversation_as_it_stands() {
    let (world, agent) = talked(|_| {}).await;
    let effort = Some(Effort::High);
    let reasoning = Reasoning::Asked { effort, budget_tokens: None, shown: true };
    world.engine.tuning.set_model(&agent, "m".into(), Some(reasoning)).await.unwrap();
    world.say(&agent, "short").await.unwrap();
    let last = world.model.calls().pop().unwrap();
    world.model.script([Script::Say("about letters")]);
    assert!(matches!(compacted(&world, &agent).await, Compaction::Done { .. }));
    let call = world.model.calls().pop().unwrap();
    assert_eq!(
        (&call.system, &call.tools, call.earlier),
        (&last.system, &last.tools, last.earlier)
    );
    assert_eq!((call.reasoning, last.reasoning), (reasoning, reasoning));
    assert_eq!(call.asker.urgency, Urgency::Background);
    assert_eq!(call.asker.conversation, last.asker.conversation);
    // All that was sent before, the answer to it, and what is asked for now.
    let shown: Vec<_> = call.messages.iter().collect();
    assert_eq!(shown.len(), last.messages.len() + 2);
    let begins_alike = last.messages.iter().zip(&shown).all(|(one, other)| Arc::ptr_eq(one, other));
    assert!(begins_alike);
    let [Part::Context(words)] = &*shown.last().unwrap().parts else { panic!("who said that?") };
    assert!(words.contains("begins with \"yyy"), "it is told what is kept: {words}");
    assert_eq!(shown.last().unwrap().meta.turn, shown[shown.len() - 2].meta.turn);
    assert_eq!(history(&agent).last().unwrap(), "Summary: about letters");
}

#[tokio::test]
async fn in_the_middle_of_a_turn_too() {
    let world = wide();
    let agent = world.agent("a").await;
    world.say(&agent, &"x".repeat(10_000)).await.unwrap();
    world.model.call_echo(json!({"text": "z".repeat(4_000)}));
    world.model.script([Script::Say("about letters"), Script::Say("done")]);
    assert_eq!(world.say(&agent, "echo").await.unwrap().content, "done");
    assert_eq!(asked(&world, 1), ["m in place"; 3]);
    let calls = world.model.calls();
    assert_eq!(calls[2].messages.len(), calls[1].messages.len() + 3);
    assert_eq!(world.model.last_context(), ["Summary: about letters", "User: echo"]);
}

/// What is no summary, and goes to the next.
fn failures() -> Vec<(&'static str, Script)> {
    let call = Part::Call(ToolCall::new("c", "echo", json!({})));
    let error = |error| Script::Refuse(error);
    vec![
        ("empty", says(" \n", StopReason::EndTurn)),
        ("silent", Script::Answer(answer([], StopReason::EndTurn))),
        ("refused", says("I cannot help with that", StopReason::Refusal)),
        ("filtered", says("so far", StopReason::ContentFilter)),
        ("cut", says("about let", StopReason::MaxTokens)),
        ("full", says("about let", StopReason::ContextWindow)),
        ("called", Script::Answer(answer([Part::text("first"), call], StopReason::EndTurn))),
        ("too long", text("z".repeat(9_000))),
        ("broken", Script::Break("about")),
        ("fallen", Script::Fall("about")),
        ("down", Script::Fail),
        ("a dead key", error(ProviderError::Credentials("no".into()))),
        ("too much", error(ProviderError::TooLong { message: "no".into(), window: None })),
    ]
}

#[tokio::test]
async fn what_is_no_summary_goes_to_the_next() {
    for (name, failure) in failures() {
        let (world, agent) = talked(|_| {}).await;
        world.model.script([failure, Script::Say("about letters")]);
        let Compaction::Done { before, after } = compacted(&world, &agent).await else {
            panic!("{name}: nothing was done")
        };
        assert!(after < before, "{name}");
        assert_eq!(asked(&world, 2), ["m in place", "m transcript"], "{name}");
        assert_eq!(history(&agent).last().unwrap(), "Summary: about letters", "{name}");
    }
}

#[tokio::test]
async fn every_rung_follows_on_the_one_before() {
    let rungs = ["m in place", "m transcript", "one transcript", "two transcript"];
    for failing in 0..=rungs.len() {
        let (world, agent) = talked(|_| {}).await;
        world.model.script((0..failing).map(|_| Script::Fail));
        world.model.script((failing < rungs.len()).then(|| Script::Say("about letters")));
        assert!(matches!(compacted(&world, &agent).await, Compaction::Done { .. }));
        assert_eq!(asked(&world, 2), rungs[..(failing + 1).min(rungs.len())], "{failing}");
        let summary = agent.snapshot().conversation.context().iter().next().unwrap().clone();
        match failing < rungs.len() {
            true => assert_eq!(summary.text(), "about letters"),
            false => assert!(summary.text().contains("No model could summarise"), "{summary:?}"),
        }
        // Whatever it was, the agent goes on.
        assert_eq!(world.say(&agent, "and now?").await.unwrap().content, "ok");
    }
}

#[tokio::test]
async fn a_configured_model_goes_first_and_the_own_one_after_it() {
    let world = World::with(|settings| settings.compaction.model = Some("small".into()));
    world.models.describe("small", 8_000, |_| {});
    world.models.describe("m", 20_000, |info| info.fallback = vec!["small".into()]);
    let agent = world.agent("a").await;
    world.say(&agent, &"x".repeat(3_000)).await.unwrap();
    world.say(&agent, &"y".repeat(3_000)).await.unwrap();
    world.model.script([Script::Fail, Script::Fail]);
    assert!(matches!(compacted(&world, &agent).await, Compaction::Done { .. }));
    // Nobody is asked the same again.
    assert_eq!(asked(&world, 2), ["small transcript", "m transcript"]);
    assert!(history(&agent).last().unwrap().contains("No model could summarise"));
}

/// One that is not there, or is the agent's own, is as if none were configured.
#[tokio::test]
async fn a_configured_model_that_is_none_is_passed_over() {
    for name in ["nobody", "m", "alias"] {
        let world = World::with(|settings| settings.compaction.model = Some(name.into()));
        world.models.describe("m", 20_000, |_| {});
        world.models.describe("alias", 20_000, |info| info.id = "m-1".into());
        let agent = world.agent("a").await;
        world.say(&agent, &"x".repeat(3_000)).await.unwrap();
        assert!(matches!(compacted(&world, &agent).await, Compaction::Done { .. }));
        assert_eq!(asked(&world, 1), ["m in place"], "{name}");
    }
}

#[tokio::test]
async fn a_summariser_with_a_tenth_of_the_window_is_shown_pieces() {
    let world = World::with(|settings| settings.compaction.model = Some("small".into()));
    world.models.describe("m", 200_000, |_| {});
    world.models.describe("small", 20_000, |info| info.max_output = Some(50_000));
    let agent = world.agent("a").await;
    for number in 0..32 {
        world.say(&agent, &format!("<{number}> {}", "x".repeat(5_500))).await.unwrap();
    }
    assert_eq!(world.model.calls().len(), 32, "there was room until now");
    world.say(&agent, &format!("<32> {}", "x".repeat(5_500))).await.unwrap();
    let calls = world.model.calls();
    let pieces = &calls[32..calls.len() - 1];
    assert!((11..=13).contains(&pieces.len()), "{}", pieces.len());
    let mut seen = String::new();
    for call in pieces {
        assert_eq!((&*call.model.alias, call.asker.urgency), ("small", Urgency::Background));
        assert_eq!(call.recurs, Recurs::Nothing, "a piece is shown once");
        assert!(letters(call) <= 12_000, "{}", letters(call));
        assert!((7_000..20_000).contains(&call.max_tokens.unwrap()), "{:?}", call.max_tokens);
        seen.push_str(&call.messages.last().unwrap().text());
    }
    let shown = world.model.last_context();
    let first_kept = shown[1].strip_prefix("User: ").unwrap()[..4].to_owned();
    assert_eq!(shown[0], format!("Summary: {}", vec!["ok"; pieces.len()].join("\n\n")));
    let places: Vec<_> = (0..32).map(|number| seen.find(&format!("User: <{number}>"))).collect();
    let summarised = places.iter().take_while(|place| place.is_some()).count();
    assert!(places[..summarised].is_sorted() && places[summarised..].iter().all(Option::is_none));
    assert_eq!(first_kept, format!("<{summarised}>"), "all is summarised or kept");
}

/// An agent whose history is ten times as long as its model's window by now.
async fn ten_windows(world: &World) -> Agent {
    world.models.describe("m", 500_000, |_| {});
    let agent = world.agent("a").await;
    for number in 0..100 {
        world.say(&agent, &format!("<{number}> {}", "x".repeat(2_000))).await.unwrap();
    }
    widened(world.clone());
    agent
}

#[tokio::test]
async fn ten_windows_of_history_are_summarised_at_the_price_of_one_pass() {
    // Short summaries, and such that have to be summarised again.
    for (length, calls) in [(2, 20), (1_200, 23)] {
        let world = World::new();
        let agent = ten_windows(&world).await;
        let pass: usize =
            agent.snapshot().conversation.context().iter().map(|it| it.text_bytes()).sum();
        assert!(pass > 200_000);
        let before = world.model.calls().len();
        world.model.script((0..20).map(|_| text("s".repeat(length))));
        assert_eq!(world.say(&agent, "and now?").await.unwrap().content, "ok");
        let asked = world.model.calls().split_off(before);
        assert_eq!(asked.len(), calls + 1, "with summaries of {length}");
        let price: usize = asked[..calls].iter().map(letters).sum();
        let ratio = price as f64 / pass as f64;
        assert!((0.9..=1.3).contains(&ratio), "{ratio} with summaries of {length}");
        let shown = world.model.last_context();
        assert!(shown[0].starts_with("Summary: "), "{shown:?}");
        assert!(letters(asked.last().unwrap()) < 18_000);
    }
}

/// A model that does not say it any shorter is asked so often and no more.
#[tokio::test]
async fn a_model_that_says_too_much_is_given_up() {
    for (length, asked, is_summary) in [(11_000, 20, false), (5_500, 35, false), (3_000, 30, true)]
    {
        let world = World::new();
        let agent = ten_windows(&world).await;
        let before = world.model.calls().len();
        world.model.script((0..asked).map(|_| text("s".repeat(length))));
        let done = compacted(&world, &agent).await;
        let Compaction::Done { before: from, after } = done else { panic!("{done:?}") };
        assert!(after < 18_000 && after < from, "{after}");
        assert_eq!(world.model.calls().len() - before, asked, "for summaries of {length}");
        assert_eq!(history(&agent).pop().unwrap().starts_with("Summary: sss"), is_summary);
        // What it cost is with what stands there in the end.
        assert_eq!(agent.look().bill.calls as usize, before + asked);
        assert_eq!(last_bill(&agent).calls as usize, asked);
        assert_eq!(world.say(&agent, "and now?").await.unwrap().content, "ok");
    }
}

#[tokio::test]
async fn a_message_too_large_for_a_piece_loses_its_middle() {
    let world = World::with(|settings| settings.compaction.model = Some("small".into()));
    world.models.describe("m", 20_000, |_| {});
    world.models.describe("small", 5_000, |_| {});
    let agent = world.agent("a").await;
    let long = format!("begin {} end", "x".repeat(9_000));
    world.say(&agent, &long).await.unwrap();
    assert!(matches!(compacted(&world, &agent).await, Compaction::Done { .. }));
    let calls = world.model.calls();
    let piece = calls[1].messages.last().unwrap().text().into_owned();
    assert!(piece.starts_with("User: begin x") && piece.contains("x end"), "{piece}");
    assert!(piece.contains("bytes left out]"), "{piece}");
    assert!(letters(&calls[1]) <= 3_000);
}

/// Its window is so small that its instructions fill it.
#[tokio::test]
async fn a_summariser_that_is_too_small_is_not_asked() {
    let world = World::with(|settings| settings.compaction.model = Some("small".into()));
    world.models.describe("m", 20_000, |_| {});
    world.models.describe("small", 600, |_| {});
    let agent = world.agent("a").await;
    world.say(&agent, &"x".repeat(5_000)).await.unwrap();
    assert!(matches!(compacted(&world, &agent).await, Compaction::Done { .. }));
    assert_eq!(asked(&world, 1), ["m transcript"]);
}

#[tokio::test]
async fn a_digest_says_what_happened() {
    let world = World::new();
    world.models.describe("m", 100_000, |_| {});
    let agent = world.make(trusted("a")).await;
    for number in 1..=20 {
        if number == 6 {
            let write = |path: &str| ("write_file", json!({"write": path, "text": "done"}));
            let read = ("echo", json!({"read": "/c.rs"}));
            let refused = write("/protected/d.rs");
            let calls = vec![write("/b.rs"), write("/a.rs"), read, refused, write("/b.rs")];
            world.model.script([Script::Call(calls)]);
        }
        let said = format!("question {number}, sk-abcdefghijklmnop {}", "x".repeat(480));
        world.say(&agent, &said).await.unwrap();
    }
    world.models.describe("m", 10_000, |_| {});
    world.model.script([Script::Fail]);
    let done = compacted(&world, &agent).await;
    assert!(matches!(done, Compaction::Done { .. }), "{done:?}");
    let digest = history(&agent).pop().unwrap();
    let kept = agent.snapshot().conversation.context().iter().nth(1).unwrap().text().into_owned();
    assert!(kept.starts_with("question 17,"), "{kept}");
    for number in 1..=16 {
        let quoted = digest.contains(&format!("The user: question {number},"));
        assert_eq!(quoted, !(6..=11).contains(&number), "{number} in {digest}");
    }
    for line in [
        "[6 more messages of the user.]",
        "Files written: /a.rs, /b.rs\n",
        "Tools called: echo (1), write_file (4)\n",
        "The last error: Refused:",
    ] {
        assert!(digest.contains(line), "{line} in {digest}");
    }
    assert!(!digest.contains("sk-abc") && digest.contains("question 1, [redacted]"), "{digest}");
    // It stands for what was said, so the next one tells it on.
    world.say(&agent, &"y".repeat(300)).await.unwrap();
    world.model.script((0..2).map(|_| Script::Fail));
    compacted(&world, &agent).await;
    let next = history(&agent).pop().unwrap();
    assert!(next.contains("An earlier summary: No model could"), "{next}");
}

/// Where it is the summary that has become too long, it is made shorter like all else.
#[tokio::test]
async fn a_summary_that_no_longer_fits_is_summarised() {
    for fails in [false, true] {
        let world = World::new();
        world.models.describe("m", 200_000, |_| {});
        let agent = world.agent("a").await;
        world.say(&agent, &"x".repeat(90_000)).await.unwrap();
        world.model.script([text("s".repeat(30_000))]);
        assert!(matches!(compacted(&world, &agent).await, Compaction::Done { .. }));
        widened(world.clone());
        world.model.script(fails.then_some(Script::Fail));
        assert_eq!(world.say(&agent, "and now?").await.unwrap().content, "ok");
        let shown = world.model.last_context();
        assert_eq!(shown.len(), 2);
        match fails {
            true => assert!(shown[0].contains("An earlier summary: sss"), "{}", shown[0]),
            false => assert_eq!(shown[0], "Summary: ok"),
        }
    }
}

/// Not worth a summary, so it is left alone, and what it cost is not forgotten.
#[tokio::test]
async fn a_summary_longer_than_what_it_stands_for_changes_nothing() {
    let world = wide();
    let agent = world.agent("a").await;
    world.say(&agent, "hello").await.unwrap();
    let used = Usage { input: 100, output: 10, ..Usage::default() };
    let longer = || {
        let parts = [Part::text("s".repeat(200))];
        Script::Answer(Answer { usage: used, ..answer(parts, StopReason::EndTurn) })
    };
    world.model.script([longer(), longer()]);
    let before = agent.look().bill;
    assert_eq!(compacted(&world, &agent).await, Compaction::Skipped("nothing_to_compact"));
    assert_eq!(history(&agent).len(), 2);
    let spent = agent.look().bill.usage;
    // In place, and as a transcript.
    assert_eq!(spent.discarded - before.usage.discarded, 220, "{spent:?}");
    assert_eq!((spent.input, spent.output), (before.usage.input, before.usage.output));
}

fn paid(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

fn with_usage(said: &str, reason: StopReason, usage: Usage) -> Script {
    Script::Answer(Answer { usage, ..answer([Part::text(said)], reason) })
}

fn last_bill(agent: &Agent) -> Bill {
    let now = agent.snapshot();
    let last: &Arc<Message> = now.conversation.history_from(0).next_back().unwrap();
    last.meta.made.as_ref().unwrap().bill
}

#[tokio::test]
async fn every_call_is_on_the_summarys_bill() {
    let rates = Rates { input: 1_000_000, output: 1_000_000, ..Rates::default() };
    let priced = |world: &World| {
        world.models.describe("one", 20_000, |_| {});
        world.models.describe("m", 20_000, |info| {
            info.prices = Some(Prices { base: rates, tiers: Vec::new() });
            info.fallback = vec!["one".into()];
        });
    };
    let (world, agent) = talked(priced).await;
    let before = agent.look().bill;
    world.model.script([
        with_usage("no", StopReason::Refusal, paid(100, 10)),
        with_usage("hal", StopReason::MaxTokens, paid(200, 20)),
        with_usage("about letters", StopReason::EndTurn, paid(300, 30)),
    ]);
    compacted(&world, &agent).await;
    let bill = last_bill(&agent);
    assert_eq!(bill.usage, Usage { discarded: 330, ..paid(300, 30) });
    assert_eq!((bill.calls, bill.unknown_calls, bill.cost.0), (3, 1, 330));
    assert_eq!(agent.look().bill, before + bill);
    let now = agent.snapshot();
    let made = now.conversation.history_from(0).next_back().unwrap().meta.made.clone().unwrap();
    assert_eq!(made.origin.model, "one-1");
}

#[tokio::test]
async fn a_digest_carries_the_bill_of_those_who_failed() {
    let (world, agent) = talked(|_| {}).await;
    let refused = || with_usage("no", StopReason::Refusal, paid(100, 10));
    world.model.script([refused(), refused(), Script::Fail, Script::Break("about let")]);
    compacted(&world, &agent).await;
    let bill = last_bill(&agent);
    // One was never begun; of one that broke off there is only an estimate.
    assert_eq!((bill.calls, bill.usage.input, bill.usage.estimated), (3, 0, true));
    assert!(bill.usage.discarded > 220 + 700, "{bill:?}");
    let again = widened(world.restarted(|_| {}));
    let restored = again.find("a").await.unwrap();
    assert_eq!(restored.look().bill, agent.look().bill);
    let context = |agent: &Agent| lines(agent.snapshot().conversation.context().iter());
    assert_eq!(context(&restored), context(&agent), "a restart sees the same");
}

#[tokio::test]
async fn a_cancel_ends_every_rung_at_once() {
    for rung in 0..4 {
        let (world, agent) = talked(|_| {}).await;
        let before = agent.look().bill;
        world.model.script((0..rung).map(|_| Script::Fail));
        world.model.script([Script::Hang("about let")]);
        let calls = world.model.calls().len();
        let turns = world.engine.turns.clone();
        let asking = {
            let agent = agent.clone();
            tokio::spawn(async move { turns.compact(&agent, true, AskedBy::Administrator).await })
        };
        world.model.wait_for_calls(calls + rung + 1).await;
        agent.cancel_all();
        let done = asking.await.unwrap().unwrap();
        assert_eq!(done, Compaction::Skipped("cancelled"), "{rung}");
        assert_eq!(history(&agent).len(), 4, "{rung}");
        assert_eq!(world.model.calls().len(), calls + rung + 1, "{rung}");
        // What the provider had begun was paid for.
        let spent = agent.look().bill;
        assert_eq!(spent.calls, before.calls + 1, "{rung}");
        assert!(spent.usage.estimated && spent.usage.discarded > 800, "{spent:?}");
        assert_eq!(world.say(&agent, "on").await.unwrap().content, "ok");
    }
}

#[tokio::test]
async fn a_turn_that_is_cancelled_while_it_makes_room_is_cancelled() {
    let world = wide();
    let agent = world.agent("a").await;
    world.say(&agent, &"x".repeat(9_000)).await.unwrap();
    world.model.script([Script::Hang("")]);
    // Longer than the window, if nothing is summarised.
    let turn = world.start(&agent, &"y".repeat(15_000)).await.unwrap();
    world.model.wait_for_calls(2).await;
    turn.cancel.cancel();
    assert!(turn.wait(None).await.unwrap().cancelled);
}

/// What a model is to go on with is told along where it is not kept.
#[tokio::test]
async fn an_answer_that_is_to_go_on_can() {
    let world = World::with(|settings| settings.max_tool_iterations = 10);
    widened(world.clone());
    let agent = world.agent("a").await;
    let half = format!("{} the end of the half", "x".repeat(18_500));
    world.model.script([
        says(&half, StopReason::MaxTokens),
        Script::Say("about x"),
        Script::Say(", and the rest"),
    ]);
    let outcome = world.say(&agent, "Write much").await.unwrap();
    let rest = outcome.content.strip_prefix(&half);
    assert_eq!(rest, Some(", and the rest"), "{:?}", asked(&world, 0));
    let last = world.model.calls().pop().unwrap();
    let shown: Vec<_> = last.messages.iter().collect();
    assert_eq!(shown.len(), 2, "{:?}", lines(last.messages.iter()));
    let [Part::Text(_), Part::Context(request), Part::Context(ending)] = &*shown[0].parts else {
        panic!("{:?}", shown[0])
    };
    assert_eq!(request, "The user has asked: Write much");
    assert!(ending.ends_with("x the end of the half") && ending.len() < 1_100, "{ending}");
    assert!(!shown[1].has_words(), "it is told to go on");
}

/// What is kept to the letter must not leave too little for all else.
#[tokio::test]
async fn what_would_be_kept_gives_way() {
    let world = World::with(|settings| settings.compaction.recent_preserve_ratio = 0.8);
    world.models.describe("m", 20_000, |_| {});
    let agent = world.agent("a").await;
    for _ in 0..2 {
        world.say(&agent, &"x".repeat(5_000)).await.unwrap();
    }
    world.model.script([Script::Say("about x"), Script::Say("answer")]);
    assert_eq!(world.say(&agent, &"y".repeat(9_000)).await.unwrap().content, "answer");
    let shown = world.model.last_context();
    assert_eq!((&*shown[0], shown.len()), ("Summary: about x", 2));
}

/// A question that alone fills the window up to where summaries begin must not have every step summarised.
#[tokio::test]
async fn a_large_question_is_not_summarised_around_at_every_step() {
    let world = World::with(|settings| settings.max_tool_iterations = 9);
    world.models.describe("m", 20_000, |_| {});
    let agent = world.agent("a").await;
    for _ in 0..8 {
        world.model.call_echo(json!({"text": "z".repeat(100)}));
    }
    // 250 for each step, and 700 to go.
    let outcome = world.say(&agent, &"y".repeat(17_950)).await.unwrap();
    assert_eq!(outcome.content, "ok");
    let summaries = world.history(&agent).await;
    let summaries = summaries.iter().filter(|line| line.starts_with("Summary")).count();
    assert!((1..=3).contains(&summaries), "{summaries}");
}

/// Whatever is said, whatever models do and however their windows change: a message that fits is never refused, and the
/// agent goes on.
#[tokio::test]
async fn nothing_leaves_an_agent_that_cannot_go_on() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let world = World::with(|settings| settings.max_tool_iterations = 4);
        world.models.describe("one", 3_000, |_| {});
        let agent = world.agent("a").await;
        let brief = world.engine.compactor.count(&agent.snapshot()).await.unwrap().total();
        for round in 0..12 {
            let window = random.u32(2_000..30_000);
            world.models.describe("m", window, |info| info.fallback = vec!["one".into()]);
            let mut failures = failures();
            for _ in 0..random.usize(0..6) {
                let length = random.usize(0..3_000);
                let script = match random.u8(0..4) {
                    0 => failures.swap_remove(random.usize(0..failures.len())).1,
                    1 => Script::Call(vec![("echo", json!({"text": "z".repeat(length)}))]),
                    _ => text("s".repeat(length)),
                };
                world.model.script([script]);
            }
            // A word about the rest has to fit as well.
            let most = window as usize - brief as usize - AROUND - 40;
            let length = random.usize(0..most);
            if let Err(error) = world.say(&agent, &"y".repeat(length)).await {
                assert!(
                    matches!(error, TurnError::Provider(_) | TurnError::Overflow { .. }),
                    "seed {seed}, round {round}: {error}"
                );
            }
            world.model.unscript();
            let said = world.say(&agent, &"w".repeat(most)).await;
            assert!(said.is_ok(), "seed {seed}, round {round}: {said:?}");
            assert!(letters(world.model.calls().last().unwrap()) <= window as usize);
        }
    }
}
