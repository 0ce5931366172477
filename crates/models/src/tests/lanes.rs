//! Lanes over HTTP: what all calls to a provider have in common. Their rules are tested in `lane`, in time that passes by
//! itself; here it is that calls keep to them.

use std::sync::Mutex;

use futures_util::future::join_all;
use nexus_core::provider::{Asker, Waiting};
use nexus_testkit::{Gate, Reply, ScriptedModel};

use super::*;

async fn ask_each(provider: &Arc<dyn Provider>, count: usize) -> Vec<Heard> {
    let ask = |number: usize| {
        // A tree never has all of a lane.
        let mut call = call([user("Hi")]);
        call.asker.root = number.to_string().into();
        hear(&**provider, call)
    };
    join_all((0..count).map(ask)).await
}

/// Lets everything happen that is about to.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn sixteen_that_are_refused_together_send_one_probe_and_then_all_go_through() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.storm(16, "0.05");
        let gate = Gate::new();
        model.push(Reply::text("Now.").held_by(&gate));
        let provider = provider(kind, &model);
        let watching = async {
            model.wait_for_requests(17).await;
            settle().await;
            assert_eq!(model.request_count(), 17, "{kind:?}: the others wait for the probe");
            gate.release();
        };
        let (heard, ()) = tokio::join!(ask_each(&provider, 16), watching);
        assert!(heard.iter().all(|heard| heard.end.is_ok()), "{kind:?}: {heard:?}");
        assert_eq!(model.request_count(), 32, "{kind:?}");
    }
}

#[tokio::test]
async fn a_call_holds_its_place_until_its_answer_is_over_or_dropped() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let one = ProviderSettings { max_concurrent_calls: 1, ..settings(kind, &model) };
        let provider = build(&one).unwrap();
        let gate = Gate::new();
        for reply in [
            Reply::text("One").then_gate(&gate),
            Reply::text("One").then_hang(),
            Reply::text("One").then_cut(),
        ] {
            let before = model.request_count();
            model.push(reply);
            let mut events = provider.stream(call([user("Hi")])).await.unwrap();
            while !matches!(events.next().await, Some(Ok(ProviderEvent::Text(_)))) {}
            let second = tokio::spawn({
                let provider = provider.clone();
                async move { hear(&*provider, call([user("Hi")])).await }
            });
            settle().await;
            if before == 0 {
                assert_eq!(model.request_count(), 1, "{kind:?}: the first goes on");
                gate.release();
                while events.next().await.is_some() {}
            }
            drop(events);
            assert!(second.await.unwrap().end.is_ok(), "{kind:?}");
        }
    }
}

#[tokio::test]
async fn an_overload_within_an_answer_stops_the_lane_too() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let patient = ProviderSettings {
            retry_backoff: Duration::from_secs(20),
            queue_timeout: Duration::from_millis(10),
            ..settings(kind, &model)
        };
        let provider = build(&patient).unwrap();
        model.push(Reply::text("Half").then_error("overloaded_error", "busy"));
        let heard = hear(&*provider, call([user("Hi")])).await;
        assert_eq!(heard.failure(), "the provider is not available (busy)");
        let heard = hear(&*provider, call([user("Hi")])).await;
        assert_eq!(
            heard.failure(),
            "the provider had no room for the call in time (it waited 0.01 s; 0 calls are under way and 0 wait)"
        );
        assert_eq!(model.request_count(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn a_wait_that_nobody_sleeps_through_is_returned_at_once() {
    for kind in FORMATS {
        for status in [429, 503] {
            let model = ScriptedModel::start().await;
            let patient = ProviderSettings { max_retries: 3, ..settings(kind, &model) };
            let provider = build(&patient).unwrap();
            model.push(Reply::status(status).retry_after("61").message("later"));
            let first = hear(&*provider, call([user("Hi")])).await.end.unwrap_err();
            let second = hear(&*provider, call([user("Hi")])).await.end.unwrap_err();
            match status {
                429 => {
                    let limited = |error: &ProviderError| match error {
                        ProviderError::RateLimited { retry_after, .. } => retry_after.unwrap(),
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(limited(&first), Duration::from_secs(61));
                    assert!(limited(&second) <= Duration::from_secs(61));
                }
                _ => assert_eq!(first, second),
            }
            assert_eq!(model.request_count(), 1, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_fails_again_and_again_is_not_asked_for_a_while() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let once = ProviderSettings { max_retries: 0, ..settings(kind, &model) };
        let provider = build(&once).unwrap();
        for _ in 0..5 {
            model.push(Reply::status(500).message("broken"));
            let heard = hear(&*provider, call([user("Hi")])).await;
            assert_eq!(heard.failure(), "the provider is not available (500: broken)");
        }
        let error = hear(&*provider, call([user("Hi")])).await.end.unwrap_err();
        let ProviderError::Resting { message, retry_after } = error else { panic!("{error:?}") };
        assert_eq!(message, "it failed again and again; the last time: 500: broken");
        assert!(retry_after <= Duration::from_secs(15), "{retry_after:?}");
        assert_eq!(model.request_count(), 5, "{kind:?}");
    }
}

#[tokio::test]
async fn one_that_is_silent_or_not_there_rests_as_well() {
    let model = ScriptedModel::start().await;
    let hasty = ProviderSettings {
        max_retries: 4,
        first_event_timeout: Duration::from_millis(20),
        ..settings(Kind::OpenAi, &model)
    };
    let provider = build(&hasty).unwrap();
    model.set_default(Reply::hang());
    assert_eq!(hear(&*provider, call([user("Hi")])).await.end, Err(ProviderError::Timeout));
    let end = hear(&*provider, call([user("Hi")])).await.end;
    assert!(matches!(end, Err(ProviderError::Resting { .. })), "{end:?}");

    let provider = build(&hasty).unwrap();
    drop(model);
    settle().await;
    let end = hear(&*provider, call([user("Hi")])).await.end;
    assert!(matches!(end, Err(ProviderError::Unavailable(_))), "{end:?}");
    let end = hear(&*provider, call([user("Hi")])).await.end;
    assert!(matches!(end, Err(ProviderError::Resting { .. })), "{end:?}");
}

#[tokio::test]
async fn refusals_of_the_request_never_open_the_breaker() {
    let model = ScriptedModel::start().await;
    let provider = provider(Kind::OpenAi, &model);
    for status in [400, 401, 403, 404, 422] {
        for _ in 0..6 {
            model.push(Reply::status(status));
            let end = hear(&*provider, call([user("Hi")])).await.end;
            assert!(!matches!(end, Ok(_) | Err(ProviderError::Resting { .. })), "{end:?}");
        }
    }
    assert!(hear(&*provider, call([user("Hi")])).await.end.is_ok());
}

#[tokio::test]
async fn retries_end_after_so_many() {
    for (max_retries, requests) in [(0, 1), (3, 4)] {
        let model = ScriptedModel::start().await;
        model.set_default(Reply::status(429).retry_after("0"));
        let settings = ProviderSettings { max_retries, ..settings(Kind::OpenAi, &model) };
        let end = hear(&*build(&settings).unwrap(), call([user("Hi")])).await.end;
        assert!(matches!(end, Err(ProviderError::RateLimited { .. })), "{end:?}");
        assert_eq!(model.request_count(), requests);
    }
}

#[tokio::test]
async fn sixty_four_agents_fit_into_what_a_provider_takes() {
    const AGENTS: usize = 64;
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.at_once(8);
        model.set_default(Reply::chunks(["a", "b"]).chunk_delay(Duration::from_millis(10)));
        let patient = ProviderSettings { max_retries: 3, ..settings(kind, &model) };
        let heard = ask_each(&build(&patient).unwrap(), AGENTS).await;
        assert!(heard.iter().all(|heard| heard.end.is_ok()), "{kind:?}: {heard:?}");
        assert!(model.refused() <= 8, "{kind:?}: {} refusals", model.refused());
        assert_eq!(model.request_count(), AGENTS + model.refused(), "{kind:?}");
    }
}

#[tokio::test]
async fn a_call_is_sent_as_its_asker_and_tells_it_of_the_wait() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.storm(1, "1");
        let told = Arc::new(Mutex::new(Vec::new()));
        let waiting = Arc::new({
            let told = told.clone();
            move |waiting: Waiting| told.lock().unwrap().push(waiting.reason)
        });
        let call = call([user("Hi")]);
        let asker = Asker { waiting: Some(waiting), ..call.asker.clone() };
        let heard = hear(&*provider(kind, &model), ModelCall { asker, ..call }).await;
        assert!(heard.end.is_ok(), "{kind:?}");
        assert_eq!(*told.lock().unwrap(), ["rate_limit"], "{kind:?}");
    }
}

/// A failure that is no overload concerns the call alone, which then waits outside of its lane.
#[tokio::test]
async fn a_call_that_is_sent_again_says_that_it_waits() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(Reply::status(500));
        let told = Arc::new(Mutex::new(Vec::new()));
        let waiting = Arc::new({
            let told = told.clone();
            move |waiting| told.lock().unwrap().push(waiting)
        });
        let call = call([user("Hi")]);
        let asker = Asker { waiting: Some(waiting), ..call.asker.clone() };
        let heard = hear(&*provider(kind, &model), ModelCall { asker, ..call }).await;
        assert!(heard.end.is_ok(), "{kind:?}");
        let told = told.lock().unwrap().clone();
        let [Waiting { reason: "retry", wait: Some(wait) }] = told[..] else { panic!("{told:?}") };
        assert!(!wait.is_zero() && wait <= Duration::from_millis(2), "{kind:?}: {wait:?}");
    }
}

#[tokio::test]
async fn who_may_ask_another_model_is_answered_instead_of_waiting_long() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(Reply::status(429).retry_after("21").message("later"));
        let provider = provider(kind, &model);
        let call = call([user("Hi")]);
        let asker = Asker { wait_max: Some(Duration::from_secs(20)), ..call.asker.clone() };
        let call = ModelCall { asker, ..call };
        let end = hear(&*provider, call.clone()).await.end;
        assert!(matches!(end, Err(ProviderError::RateLimited { .. })), "{kind:?}: {end:?}");
        let end = hear(&*provider, call).await.end;
        assert!(matches!(end, Err(ProviderError::Crowded(_))), "{kind:?}: {end:?}");
        assert_eq!(model.request_count(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn what_is_left_of_a_providers_limits_is_kept_to() {
    let used_up = [
        (Kind::OpenAi, "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests", "30s"),
        (Kind::OpenAi, "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", "30s"),
        (
            Kind::Anthropic,
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
            "2999-01-01T00:00:00Z",
        ),
    ];
    for (kind, remaining, reset, when) in used_up {
        let model = ScriptedModel::start().await;
        let hasty =
            ProviderSettings { queue_timeout: Duration::from_millis(10), ..settings(kind, &model) };
        let provider = build(&hasty).unwrap();
        model.push(Reply::text("One").header(remaining, "0").header(reset, when));
        assert!(hear(&*provider, call([user("Hi")])).await.end.is_ok());
        let longer = call([user("Hi"), assistant("Hello."), user(&"word ".repeat(100))]);
        let end = hear(&*provider, longer).await.end;
        assert!(matches!(end, Err(ProviderError::Crowded(_))), "{remaining}: {end:?}");
        assert_eq!(model.request_count(), 1, "{remaining}");
    }
}
