//! Turns of agents as chat completions.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use super::super::host::is_busy;
use super::{CHAT, Streamed, chat, data, get, json_of, post, refused, said, saying, talking};
use crate::harness::{HttpRequest, Server, eventually};
use crate::support::create;

#[tokio::test]
async fn an_agent_answers_and_its_own_history_counts() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().push(Reply::text("Forty-two.").usage(100, 7).cached(60));
    let request = post(&server, CHAT, &saying("agent:a", "How much?"));
    let response = server.ask(request.header("X-Nexus-Request-Id", "mine")).await;
    let answer = json_of(&response);
    assert_eq!((answer["object"].as_str(), said(&answer)), (Some("chat.completion"), "Forty-two."));
    assert_eq!((&answer["model"], &answer["id"]), (&json!("agent:a"), &json!("chatcmpl-mine")));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(100), &json!(7)));
    assert_eq!(usage["total_tokens"], 107);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 60);
    assert_eq!(response.header("x-nexus-request-id"), Some("mine"));
    assert_eq!(response.header("x-nexus-agent"), Some("a"));
    // Of what a client says was said before, only what follows the last answer is new.
    let mut body = talking("agent:a", &["something else", "made up", "And now?"]);
    body["messages"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"role": "system", "content": "Be a pirate."}));
    body["temperature"] = json!(0.5);
    body["top_p"] = json!(null);
    let response = server.ask(post(&server, CHAT, &body)).await;
    assert_eq!(response.header("x-nexus-ignored"), Some("temperature, system messages"));
    let messages = server.wire().ok("get_messages", json!({"agent_id": "a"})).await;
    let told: Vec<_> =
        messages["messages"].as_array().unwrap().iter().map(|it| &it["content"]).collect();
    assert_eq!(told[..3], [&json!("How much?"), &json!("Forty-two."), &json!("And now?")]);
    assert_eq!(messages["messages"][0]["meta"]["source"], "openai");
    assert!(!server.model().last_request().body.to_string().contains("pirate"));
}

#[tokio::test]
async fn what_can_be_named_is_listed() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let listed = json_of(&server.ask(get(&server, "/v1/models")).await);
    assert_eq!(listed["object"], "list");
    let ids: Vec<_> = listed["data"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    for id in ["agent:a", "new:sandboxed", "new:trusted", "scripted", "scripted/scripted"] {
        assert!(ids.contains(&&json!(id)), "{id}: {listed}");
    }
    for path in ["agent:a", "agent%3Aa", "scripted", "scripted/scripted", "scripted%2Fscripted"] {
        let found = json_of(&server.ask(get(&server, &format!("/v1/models/{path}"))).await);
        assert_eq!(found["object"], "model", "{path}: {found}");
    }
    let (status, error) = refused(&server, get(&server, "/v1/models/agent:nobody")).await;
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn a_streamed_turn_arrives_in_pieces_and_says_what_it_took() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let gate = Gate::new();
    server.model().push(Reply::text("One ").then_gate(&gate).then_text("two.").usage(11, 3));
    let mut body = saying("agent:a", "Count.");
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let request = post(&server, CHAT, &body).header("Accept", "application/json");
    let mut stream = Streamed::open(&server, request).await;
    assert!(stream.header("x-nexus-request-id").is_some_and(|id| id.starts_with("v1-")));
    let first = data(&stream.next().await.unwrap());
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(first.get("usage"), Some(&Value::Null));
    // Nothing waits for the rest.
    let second = data(&stream.next().await.unwrap());
    assert_eq!(second["choices"][0]["delta"], json!({"content": "One "}));
    gate.release();
    let rest: Vec<_> = stream.rest().await.iter().map(|it| data(it)).collect();
    let text = rest.iter().filter_map(|it| it["choices"][0]["delta"]["content"].as_str());
    assert_eq!(text.collect::<String>(), "two.");
    let [.., end, usage, done] = rest.as_slice() else { panic!("{rest:?}") };
    assert_eq!(end["choices"][0]["finish_reason"], "stop");
    assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(14)));
    assert_eq!(done, "[DONE]");
    let whole = [&[first.clone(), second], &rest[..rest.len() - 1]].concat();
    assert!(whole.iter().all(|it| it["id"] == first["id"] && it.get("usage").is_some()));
}

#[tokio::test]
async fn tools_are_told_to_those_who_ask_for_it() {
    for asks in [false, true] {
        let server = Server::start().await;
        create(&server.wire(), "a").await;
        server.model().push(
            Reply::text("Let me see.").then_tool_call("list_directory", json!({"path": "."})),
        );
        server.model().push(Reply::text("Nothing there."));
        let mut body = saying("agent:a", "Look.");
        body["stream"] = json!(true);
        let mut request = post(&server, CHAT, &body);
        if asks {
            request = request.header("X-Nexus-Events", "1");
        }
        let rest = Streamed::open(&server, request).await.rest().await;
        let rest: Vec<_> = rest.iter().map(|it| data(it)).collect();
        let told: Vec<_> =
            rest.iter().filter_map(|it| it["nexus_event"]["type"].as_str()).collect();
        assert_eq!(told, if asks { vec!["tool_call", "tool_result"] } else { vec![] });
        let text = rest.iter().filter_map(|it| it["choices"][0]["delta"]["content"].as_str());
        assert_eq!(text.collect::<String>(), "Let me see.\n\nNothing there.");
        assert!(rest.iter().all(|it| it == "[DONE]" || it.get("usage").is_none()));
    }
}

/// While nothing is said, a comment keeps the connection.
#[tokio::test]
async fn who_waits_is_told_that_somebody_is_there_and_who_hangs_up_has_cancelled() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().push(Reply::hang());
    let mut body = saying("agent:a", "x");
    body["stream"] = json!(true);
    let mut stream = Streamed::open(&server, post(&server, CHAT, &body)).await;
    assert_eq!(data(&stream.next().await.unwrap())["choices"][0]["delta"]["role"], "assistant");
    assert!(stream.next().await.unwrap().starts_with(": "));
    assert!(is_busy(&server, "a").await);
    drop(stream);
    eventually("the turn to end", async || !is_busy(&server, "a").await).await;
    eventually("the model to be left", async || server.model().disconnects() == 1).await;
}

#[tokio::test]
async fn a_plain_turn_goes_on_when_its_caller_is_gone_and_is_cancelled_by_its_name() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let gate = Gate::new();
    server.model().push(Reply::text("Done.").held_by(&gate));
    let mut http = server.http().await;
    http.write(&post(&server, CHAT, &saying("agent:a", "x")).bytes()).await;
    eventually("the turn to run", async || is_busy(&server, "a").await).await;
    drop(http);
    gate.release();
    let wire = server.wire();
    let answered = async || wire.ok("get_messages", json!({"agent_id": "a"})).await["total"] == 2;
    eventually("the answer", answered).await;
    server.model().push(Reply::hang());
    let request = post(&server, CHAT, &saying("agent:a", "y")).header("X-Nexus-Request-Id", "r");
    let (response, ()) = tokio::join!(server.ask(request), async {
        eventually("the turn to run", async || is_busy(&server, "a").await).await;
        wire.ok("cancel", json!({"agent_id": "a", "request_id": "r"})).await;
    });
    assert_eq!((response.status, response.header("x-should-retry")), (409, Some("false")));
    assert_eq!(json_of(&response)["error"]["code"], "cancelled");
}

#[tokio::test]
async fn an_answer_has_the_shape_and_the_length_that_were_asked_for() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    let mut body = saying("agent:a", "x");
    body["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
    body["max_completion_tokens"] = json!(77);
    server.model().push(Reply::text(r#"{"n": 3}"#));
    assert_eq!(said(&chat(&server, &body).await), r#"{"n": 3}"#);
    let asked = server.model().last_request().body.clone();
    assert_eq!(
        asked["response_format"]["json_schema"]["schema"]["required"],
        json!(["n"]),
        "{asked}"
    );
    assert_eq!(asked["max_tokens"], 77, "{asked}");
    body["response_format"] = json!({"type": "json_object"});
    server.model().push(Reply::text("{}"));
    chat(&server, &body).await;
    assert!(server.model().last_request().body["response_format"].is_object());
    body["response_format"] =
        json!({"type": "json_schema", "json_schema": {"schema": {"type": 3}}});
    let (status, error) = refused(&server, post(&server, CHAT, &body)).await;
    assert_eq!((status, &error["param"]), (400, &json!("response_format")), "{error}");
}

#[tokio::test]
async fn images_come_with_the_text() {
    let keys =
        json!({"models": {"scripted": {"context_window": 200_000, "input": ["text", "image"]}}});
    let server = crate::harness::Setup::new().provider_keys(keys).start().await;
    create(&server.wire(), "a").await;
    let url = format!("data:image/png;base64,{PIXEL}");
    let parts = json!([{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]);
    let body = json!({"model": "agent:a", "messages": [{"role": "user", "content": parts}]});
    server.model().push(Reply::text("A pixel."));
    assert_eq!(said(&chat(&server, &body).await), "A pixel.");
    assert!(server.model().last_request().body.to_string().contains("data:image/png;base64,"));
    let broken = json!([{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]);
    let body = json!({"model": "agent:a", "messages": [{"role": "user", "content": broken}]});
    let (status, error) = refused(&server, post(&server, CHAT, &body)).await;
    assert_eq!((status, &error["param"]), (400, &json!("messages")), "{error}");
}

pub const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[tokio::test]
async fn a_turn_that_fails_says_so_and_is_not_to_be_made_again() {
    let server =
        crate::harness::Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    create(&server.wire(), "a").await;
    server.model().push(Reply::status(400).message("the prompt is too odd"));
    let response = server.ask(post(&server, CHAT, &saying("agent:a", "x"))).await;
    assert_eq!((response.status, response.header("x-should-retry")), (500, Some("false")));
    let error = json_of(&response)["error"].clone();
    assert_eq!(error["type"], "server_error");
    assert!(error["message"].as_str().unwrap().contains("the prompt is too odd"), "{error}");
    server.model().push(Reply::status(429).retry_after("7"));
    let response = server.ask(post(&server, CHAT, &saying("agent:a", "x"))).await;
    assert_eq!((response.status, response.header("retry-after")), (429, Some("7")));
    // In a stream it is the last that is said.
    let gate = Gate::new();
    let looks = Reply::text("So").then_tool_call("list_directory", json!({"path": "."}));
    server.model().push(looks);
    server.model().push(Reply::status(400).message("it broke").held_by(&gate));
    let mut body = saying("agent:a", "x");
    body["stream"] = json!(true);
    let mut stream = Streamed::open(&server, post(&server, CHAT, &body)).await;
    gate.release();
    let rest = stream.rest().await;
    let last = data(rest.last().unwrap());
    assert!(last["error"]["message"].as_str().unwrap().contains("it broke"), "{rest:?}");
}

#[tokio::test]
async fn everybody_reaches_what_is_his() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    create(&wire, "b").await;
    let token = wire.ok("create_agent_token", json!({"agent_id": "a"})).await["token"].clone();
    let key =
        wire.ok("create_key", json!({"name": "k", "doors": ["openai"], "preset": "trusted"})).await;
    let ask = |token: &Value, model: &str| {
        let body = saying(model, "x").to_string();
        HttpRequest::post(server.address, CHAT, body).bearer(token.as_str())
    };
    assert_eq!(server.ask(ask(&token, "agent:a")).await.status, 200);
    assert_eq!(refused(&server, ask(&token, "agent:b")).await.0, 403);
    assert_eq!(server.ask(ask(&key["key"], "agent:door-k")).await.status, 200);
    assert_eq!(refused(&server, ask(&key["key"], "agent:a")).await.0, 403);
    let response = server.ask(ask(&key["key"], "new:sandboxed")).await;
    assert_eq!(response.status, 200);
    let agent = response.header("x-nexus-agent").unwrap().to_owned();
    let listed = wire.ok("list_agents", json!({})).await;
    let made = listed["agents"].as_array().unwrap().iter().find(|it| it["agent_id"] == *agent);
    assert_eq!(made.unwrap()["parent_agent_id"], "door-k");
    let messages = wire.ok("get_messages", json!({"agent_id": agent})).await;
    assert_eq!(messages["messages"][0]["meta"]["source"], "openai:k");
    // A key for another door does not open this one.
    let other = wire.ok("create_key", json!({"name": "m", "doors": ["mcp"]})).await;
    let (status, error) = refused(&server, ask(&other["key"], "agent:door-m")).await;
    assert_eq!((status, &error["code"]), (401, &json!("invalid_api_key")));
}

#[tokio::test]
async fn a_key_that_is_revoked_ends_what_it_streams() {
    let server = Server::start().await;
    let wire = server.wire();
    let key = wire.ok("create_key", json!({"name": "k", "doors": ["openai"]})).await;
    server.model().push(Reply::text("So far").then_hang());
    let mut body = saying("agent:door-k", "x");
    body["stream"] = json!(true);
    let request = post(&server, CHAT, &body).bearer(key["key"].as_str());
    let mut stream = Streamed::open(&server, request.clone()).await;
    stream.next().await.unwrap();
    assert_eq!(data(&stream.next().await.unwrap())["choices"][0]["delta"]["content"], "So far");
    wire.ok("revoke_key", json!({"name": "k"})).await;
    let rest = stream.rest().await;
    assert_eq!(data(rest.last().unwrap())["error"]["code"], "cancelled", "{rest:?}");
    assert_eq!(refused(&server, request).await.0, 401);
}
