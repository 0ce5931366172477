//! Another model takes over: when, and with what it is asked.

use std::time::Duration;

use nexus_core::model::ModelInfo;

use crate::fakes::{Script, World};

/// A world whose model `m` has one fallback, `one`.
fn world(m: impl FnOnce(&mut ModelInfo), one: (u32, Option<u32>)) -> World {
    let world = World::new();
    world.models.describe("m", 200_000, |info| {
        info.fallback = vec!["one".into()];
        m(info);
    });
    world.models.describe("one", one.0, |info| info.max_output = one.1);
    world
}

#[tokio::test]
async fn an_answer_of_a_fallback_is_bounded_as_that_model_wants_it() {
    for (one, expected) in [
        ((200_000, Some(16_384)), Some(16_384)),
        // What its window leaves: all but the prompt, the message and a margin of the 32nd part.
        ((8_000, Some(16_384)), Some(8_000 - 250)),
        ((200_000, None), None),
    ] {
        let world = world(|info| info.max_output = Some(128_000), one);
        let agent = world.agent("a").await;
        world.model.script([Script::Fail, Script::Say("from one")]);
        let outcome = world.say(&agent, "go").await.unwrap();
        assert_eq!((&*outcome.content, &*outcome.model), ("from one", "one"));
        let calls = world.model.calls();
        assert_eq!(calls[0].max_tokens, Some(64_000));
        match expected {
            Some(most) => {
                let bound = calls[1].max_tokens.unwrap();
                assert!(bound <= most && bound > most - 400, "{bound} of {most}");
            }
            None => assert_eq!(calls[1].max_tokens, None),
        }
    }
}

#[tokio::test]
async fn a_long_wait_is_not_slept_through_while_another_model_may_answer() {
    let world = world(|_| {}, (200_000, None));
    let agent = world.agent("a").await;
    let elsewhere = |window| {
        world.models.describe("one", window, |info| info.provider_name = "elsewhere".into());
    };
    elsewhere(200_000);
    world.model.script([Script::Fail, Script::Say("from one")]);
    world.say(&agent, "go").await.unwrap();
    // One that cannot be shown the conversation is none that may answer.
    elsewhere(1);
    world.say(&agent, "on").await.unwrap();
    // One of the same service would wait as long.
    world.models.describe("one", 200_000, |_| {});
    world.say(&agent, "on").await.unwrap();
    let waits: Vec<_> = world.model.calls().iter().map(|call| call.asker.wait_max).collect();
    assert_eq!(waits, [Some(Duration::from_secs(20)), None, None, None]);
}
