//! Providers that refuse, hang, break off or talk nonsense.

use nexus_core::provider::EventStream;
use nexus_testkit::{Gate, Reply, ScriptedModel};

use super::*;

/// What comes of a first reply, and after how many requests.
async fn check(
    kind: Kind,
    replies: impl IntoIterator<Item = Reply>,
    expected: Result<&str, &str>,
    requests: usize,
) {
    let model = ScriptedModel::start().await;
    for reply in replies {
        model.push(reply);
    }
    let heard = ask(kind, &model).await;
    let outcome = match &heard.end {
        Ok(_) => Ok(heard.text()),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(outcome, expected.map(str::to_owned).map_err(str::to_owned), "{kind:?}");
    assert_eq!(model.request_count(), requests, "{kind:?}: requests");
}

#[tokio::test]
async fn what_will_not_get_better_is_not_tried_again() {
    for kind in FORMATS {
        let refused = |status: u16| [Reply::status(status).message("no")];
        check(kind, refused(400), Err("the provider refused the request (400: no)"), 1).await;
        check(kind, refused(401), Err("the provider refused the credentials (401: no)"), 1).await;
        check(kind, refused(403), Err("the provider refused the credentials (403: no)"), 1).await;
        check(kind, refused(404), Err("the provider refused the request (404: no)"), 1).await;
        check(kind, refused(422), Err("the provider refused the request (422: no)"), 1).await;
    }
}

#[tokio::test]
async fn what_may_get_better_is_tried_again() {
    for kind in FORMATS {
        for status in [429, 500, 502, 503, 504, 529] {
            check(kind, [Reply::status(status), Reply::text("Now.")], Ok("Now."), 2).await;
        }
        let twice = |status: u16| {
            [Reply::status(status).message("busy"), Reply::status(status).message("busy")]
        };
        check(kind, twice(503), Err("the provider is not available (503: busy)"), 2).await;
        check(kind, twice(429), Err("the provider's rate limit was hit (429: busy)"), 2).await;
    }
}

#[tokio::test]
async fn retry_after_decides_the_wait() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(Reply::status(429).retry_after("0"));
        // The test would outlast its limit if the backoff were waited for.
        let patient =
            ProviderSettings { retry_backoff: Duration::from_secs(3600), ..settings(kind, &model) };
        let provider = build(&patient).unwrap();
        assert!(hear(&*provider, call([user("Hi")])).await.end.is_ok(), "{kind:?}");

        model.push(Reply::status(429).retry_after("17"));
        let impatient = ProviderSettings { max_retries: 0, ..settings(kind, &model) };
        let heard = hear(&*build(&impatient).unwrap(), call([user("Hi")])).await;
        let wait = match heard.end {
            Err(ProviderError::RateLimited { retry_after, .. }) => retry_after,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait, Some(Duration::from_secs(17)));
    }
}

#[tokio::test]
async fn nobody_there_is_unavailable() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let provider = provider(kind, &model);
        let origin = model.url().trim_end_matches("/v1").to_owned();
        drop(model);
        // The port is closed once the server's task is gone.
        tokio::task::yield_now().await;
        let failure = hear(&*provider, call([user("Hi")])).await.failure();
        let start = format!(
            "the provider is not available (cannot connect to {origin}: Connection refused"
        );
        assert!(failure.starts_with(&start), "{failure}");
        assert!(failure.contains("is it running, and is its base_url right?"), "{failure}");
    }
}

#[tokio::test]
async fn silence_is_a_timeout_before_the_answer_and_within_it() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let hasty = ProviderSettings {
            first_event_timeout: Duration::from_millis(50),
            idle_timeout: Duration::from_millis(50),
            ..settings(kind, &model)
        };
        let provider = build(&hasty).unwrap();

        model.push(Reply::hang());
        model.push(Reply::hang());
        let heard = hear(&*provider, call([user("Hi")])).await;
        assert_eq!(heard.failure(), "the provider did not answer in time", "{kind:?}");
        assert_eq!(model.request_count(), 2, "{kind:?}: one retry");

        model.push(Reply::text("Well").then_hang());
        let heard = hear(&*provider, call([user("Hi")])).await;
        assert_eq!(heard.texts, ["Well"]);
        assert_eq!(heard.failure(), "the provider did not answer in time", "{kind:?}");
        assert_eq!(model.request_count(), 3, "{kind:?}: no retry once something was heard");
    }
}

#[tokio::test]
async fn dropping_a_call_drops_the_connection() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        model.push(Reply::hang());
        let provider = provider(kind, &model);
        let waiting = tokio::spawn({
            let provider = provider.clone();
            async move { hear(&*provider, call([user("Hi")])).await }
        });
        model.wait_for_requests(1).await;
        waiting.abort();
        model.wait_for_disconnects(1).await;

        model.push(Reply::chunks(["One", "Two"]).then_hang());
        let mut events = provider.stream(call([user("Hi")])).await.unwrap();
        assert_eq!(next(&mut events).await, Some(ProviderEvent::Text("One".to_owned())));
        drop(events);
        model.wait_for_disconnects(2).await;
        assert_eq!(model.request_count(), 2, "{kind:?}: a dropped call is not tried again");
    }
}

#[tokio::test]
async fn dropping_a_call_between_two_attempts_ends_it() {
    let model = ScriptedModel::start().await;
    model.push(Reply::status(503).retry_after("60"));
    let provider = provider(Kind::OpenAi, &model);
    let waiting = tokio::spawn(async move { hear(&*provider, call([user("Hi")])).await });
    model.wait_for_requests(1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(model.request_count(), 1);
}

#[tokio::test]
async fn text_is_passed_on_as_it_comes() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let gate = Gate::new();
        model.push(Reply::text("One").then_gate(&gate).then_text("Two"));
        let mut events = provider(kind, &model).stream(call([user("Hi")])).await.unwrap();
        assert_eq!(next(&mut events).await, Some(ProviderEvent::Text("One".to_owned())));
        gate.release();
        assert_eq!(next(&mut events).await, Some(ProviderEvent::Text("Two".to_owned())));
        assert!(matches!(next(&mut events).await, Some(ProviderEvent::Done(_))));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_broken_and_what_was_said_is_kept() {
    for kind in FORMATS {
        let tool = || Reply::text("Half").then_tool_call_as("c", "f", "{}");
        for reply in [tool().then_cut(), tool().then_garbage(), tool().then_error("odd", "odd")] {
            let model = ScriptedModel::start().await;
            model.push(reply);
            let heard = ask(kind, &model).await;
            assert_eq!(heard.texts, ["Half"], "{kind:?}");
            assert!(heard.calls.is_empty(), "{kind:?}: a call of an answer that failed");
            assert!(
                heard.failure().starts_with("the provider broke off ("),
                "{kind:?}: {}",
                heard.failure()
            );
            assert_eq!(
                model.request_count(),
                1,
                "{kind:?}: what was streamed cannot be taken back"
            );
        }
    }
}

#[tokio::test]
async fn a_body_that_ends_too_early_is_broken() {
    check(
        Kind::OpenAi,
        [Reply::raw(["data: {\"choices\":[{\"delta\":{\"content\":\"Half\"}}]}\n\n"])],
        Err("the provider broke off (the answer ended too early)"),
        1,
    )
    .await;
    check(
        Kind::Anthropic,
        [Reply::raw(["data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"Half\"}}\n\n"])],
        Err("the provider broke off (the answer ended too early)"),
        1,
    )
    .await;
}

#[tokio::test]
async fn an_error_within_the_stream_keeps_its_meaning() {
    for kind in FORMATS {
        let error = |code: &str| [Reply::text("Half").then_error(code, "so it is")];
        check(kind, error("overloaded_error"), Err("the provider is not available (so it is)"), 1)
            .await;
        check(
            kind,
            error("rate_limit_error"),
            Err("the provider's rate limit was hit (so it is)"),
            1,
        )
        .await;
        check(
            kind,
            error("invalid_request_error"),
            Err("the provider refused the request (so it is)"),
            1,
        )
        .await;
    }
}

#[tokio::test]
async fn no_error_holds_the_key() {
    for kind in FORMATS {
        let said = format!("bad key {KEY}, or was it sk-abc***def?");
        for reply in
            [Reply::status(401).message(&said), Reply::text("Half").then_error("odd", &said)]
        {
            let model = ScriptedModel::start().await;
            model.push(reply);
            let failure = ask(kind, &model).await.failure();
            assert!(
                failure.contains("bad key [redacted], or was it [redacted]"),
                "{kind:?}: {failure}"
            );
        }
        let model = ScriptedModel::start().await;
        model.push(Reply::status(400).message("x".repeat(10_000)));
        assert!(ask(kind, &model).await.failure().chars().count() < 400);
    }
}

/// The next event that is no count.
async fn next(events: &mut EventStream) -> Option<ProviderEvent> {
    loop {
        match events.next().await? {
            Ok(ProviderEvent::Usage(_)) => {}
            event => return event.ok(),
        }
    }
}

#[tokio::test]
async fn the_provider_may_say_whether_to_try_again() {
    for kind in FORMATS {
        let told = |status: u16, again: &str| {
            Reply::status(status).message("no").header("x-should-retry", again)
        };
        check(kind, [told(400, "true"), Reply::text("Now.")], Ok("Now."), 2).await;
        check(kind, [told(500, "false")], Err("the provider is not available (500: no)"), 1).await;
    }
}

#[tokio::test]
async fn what_is_spent_for_good_is_not_tried_again() {
    let spent =
        r#"{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    for kind in FORMATS {
        let reply = Reply::status(429).body(spent);
        check(kind, [reply], Err("the provider's rate limit was hit (429: pay)"), 1).await;
    }
}

#[tokio::test]
async fn a_conversation_that_is_too_long_says_so_with_the_window() {
    for kind in FORMATS {
        let model = ScriptedModel::start().await;
        let said = "prompt is too long: 210000 tokens > 200000 maximum";
        model.push(Reply::status(400).message(said));
        let end = ask(kind, &model).await.end.unwrap_err();
        let message = format!("400: {said}");
        assert_eq!(end, ProviderError::TooLong { message, window: Some(200_000) });
        assert_eq!(model.request_count(), 1, "{kind:?}");
    }
}
