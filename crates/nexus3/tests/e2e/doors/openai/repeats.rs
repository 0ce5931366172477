//! Requests that clients make again by themselves: each is one turn.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use super::super::host::is_busy;
use super::{CHAT, Streamed, data, json_of, post, refused, said, saying};
use crate::harness::{HttpRequest, Server, Setup, eventually};
use crate::support::create;

pub fn again(request: &HttpRequest, count: usize) -> HttpRequest {
    request.clone().header("X-Stainless-Retry-Count", count.to_string())
}

/// What a request is answered that is made again while its turn runs: whoever made it first gave up waiting.
pub async fn joined(server: &Server, request: &HttpRequest) -> Value {
    let before = server.model().request_count();
    let gate = Gate::new();
    server.model().push(Reply::text("Once.").held_by(&gate));
    let mut http = server.http().await;
    http.write(&again(request, 0).bytes()).await;
    let asked = async || server.model().request_count() == before + 1;
    eventually("the turn to run", asked).await;
    drop(http);
    let (joined, ()) = tokio::join!(server.ask(again(request, 1)), async { gate.release() });
    assert_eq!(joined.status, 200);
    json_of(&joined)
}

#[tokio::test]
async fn a_repeat_joins_the_turn_that_runs_or_gets_its_answer() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    for model in ["agent:a", "new:sandboxed"] {
        let before = server.model().request_count();
        let request = post(&server, CHAT, &saying(model, "x"));
        let joined = joined(&server, &request).await;
        assert_eq!(said(&joined), "Once.", "{model}");
        assert_eq!(json_of(&server.ask(again(&request, 2)).await), joined);
        assert_eq!(server.model().request_count(), before + 1, "{model}");
        // The same on purpose is another.
        server.model().push(Reply::text("Twice."));
        assert_eq!(said(&json_of(&server.ask(again(&request, 0)).await)), "Twice.");
    }
}

#[tokio::test]
async fn a_key_names_a_request_and_keeps_a_stream_alive() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let gate = Gate::new();
    server.model().push(Reply::text("One ").then_gate(&gate).then_text("two."));
    let mut body = saying("agent:a", "x");
    body["stream"] = json!(true);
    let request = post(&server, CHAT, &body).header("Idempotency-Key", "k1");
    let mut stream = Streamed::open(&server, request.clone()).await;
    stream.next().await.unwrap();
    assert_eq!(data(&stream.next().await.unwrap())["choices"][0]["delta"]["content"], "One ");
    drop(stream);
    assert!(is_busy(&server, "a").await);
    // Whoever comes again hears it from the beginning.
    let mut stream = Streamed::open(&server, request.clone()).await;
    gate.release();
    let rest = stream.rest().await;
    let text: String = rest[..rest.len() - 1]
        .iter()
        .filter_map(|it| data(it)["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!((text.as_str(), server.model().request_count()), ("One two.", 1));
    let other = post(&server, CHAT, &saying("agent:a", "y")).header("Idempotency-Key", "k1");
    assert_eq!(refused(&server, other).await.0, 400);
}

/// What never began may be tried again.
#[tokio::test]
async fn a_repeat_of_what_was_refused_is_carried_out() {
    let server = Setup::new().server(json!({"max_queued": 0, "max_concurrent": 1})).start().await;
    create(&server.wire(), "a").await;
    create(&server.wire(), "b").await;
    server.model().push(Reply::hang());
    let mut body = saying("agent:a", "x");
    body["stream"] = json!(true);
    let stream = Streamed::open(&server, post(&server, CHAT, &body)).await;
    eventually("the model to be asked", async || server.model().request_count() == 1).await;
    let request = post(&server, CHAT, &saying("agent:b", "x"));
    let response = server.ask(again(&request, 0)).await;
    assert_eq!((response.status, response.header("x-should-retry")), (503, None));
    assert!(response.header("retry-after").is_some());
    drop(stream);
    eventually("the turn to end", async || !is_busy(&server, "a").await).await;
    server.model().push(Reply::text("Now."));
    assert_eq!(said(&json_of(&server.ask(again(&request, 1)).await)), "Now.");
}

/// A stream that was left is cancelled; asked for again, it is begun anew.
#[tokio::test]
async fn a_stream_that_was_left_is_begun_anew() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().push(Reply::hang());
    let mut body = saying("agent:a", "x");
    body["stream"] = json!(true);
    let request = post(&server, CHAT, &body);
    let stream = Streamed::open(&server, again(&request, 0)).await;
    eventually("the model to be asked", async || server.model().request_count() == 1).await;
    drop(stream);
    eventually("the turn to end", async || !is_busy(&server, "a").await).await;
    server.model().push(Reply::text("Again."));
    let rest = Streamed::open(&server, again(&request, 1)).await.rest().await;
    assert_eq!(rest.last().map(String::as_str), Some("data: [DONE]"));
}

/// The answer is another caller's.
#[tokio::test]
async fn repeats_are_their_callers() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let token = wire.ok("create_agent_token", json!({"agent_id": "a"})).await["token"].clone();
    server.model().push(Reply::text("mine"));
    let request = post(&server, CHAT, &saying("agent:a", "x")).header("Idempotency-Key", "k");
    assert_eq!(said(&json_of(&server.ask(request.clone()).await)), "mine");
    server.model().push(Reply::text("theirs"));
    let other = server.ask(request.bearer(token.as_str())).await;
    assert_eq!(said(&json_of(&other)), "theirs");
}

/// The AI SDK repeats without saying so, whatever it is told: a turn that failed is not taken again for it. Everybody else
/// who asks again means it.
#[tokio::test]
async fn a_failed_turn_answers_those_that_repeat_without_a_word() {
    let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    create(&server.wire(), "a").await;
    for model in ["agent:a", "new:sandboxed"] {
        let before = server.model().request_count();
        server.model().push(Reply::status(400));
        let plain = post(&server, CHAT, &saying(model, "x"));
        let request = plain
            .clone()
            .header("User-Agent", "ai/7.0.169 ai-sdk-provider-utils/5.0.79 node.js/24");
        let first = server.ask(request.clone()).await;
        assert_eq!((first.status, first.header("x-should-retry")), (500, Some("false")), "{model}");
        let second = server.ask(request.clone()).await;
        assert_eq!((second.status, json_of(&second)), (500, json_of(&first)), "{model}");
        assert_eq!(server.model().request_count(), before + 1, "{model}");
        server.model().push(Reply::text("Now."));
        assert_eq!(said(&json_of(&server.ask(plain).await)), "Now.", "{model}");
    }
}
