//! Models without an agent.

use nexus_testkit::{Gate, Reply};
use serde_json::{Value, json};

use super::{CHAT, Streamed, chat, data, get, json_of, post, refused, said, saying};
use crate::harness::wire::request;
use crate::harness::{Provider, Server, Setup, eventually};
use crate::support::{create, names};

#[tokio::test]
async fn a_model_answers_by_each_of_its_names_and_nothing_is_kept() {
    let keys = json!({"models": {"scripted": {"context_window": 200_000}, "big": {"id": "big-1", "context_window": 100_000}}});
    let server = Setup::new().provider_keys(keys).start().await;
    for (name, id) in [
        ("scripted", "scripted"),
        ("big", "big-1"),
        ("scripted/big", "big-1"),
        ("scripted/other-2", "other-2"),
    ] {
        server.model().push(Reply::text("Hello.").usage(9, 2));
        let mut body = saying(name, "Hi");
        body["messages"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"role": "system", "content": "Be kind."}));
        let answer = chat(&server, &body).await;
        assert_eq!((said(&answer), &answer["model"]), ("Hello.", &json!(name)));
        assert_eq!(answer["usage"]["total_tokens"], 11);
        let asked = server.model().last_request().body.clone();
        assert_eq!(asked["model"], id, "{name}");
        let expected =
            json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]);
        assert_eq!(asked["messages"], expected);
        assert!(asked.get("tools").is_none(), "{asked}");
    }
    assert_eq!(names(&server.wire()).await, Vec::<String>::new());
    let (status, error) = refused(&server, post(&server, CHAT, &saying("nowhere/x", "Hi"))).await;
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn what_shapes_an_answer_is_passed_on_where_the_provider_has_it() {
    let mut body = saying("scripted", "Hi");
    for (name, value) in [
        ("temperature", json!(0.25)),
        ("top_p", json!(0.5)),
        ("seed", json!(7)),
        ("stop", json!(["END"])),
        ("max_tokens", json!(33)),
        ("user", json!("me")),
    ] {
        body[name] = value;
    }
    let server = Server::start().await;
    let response = server.ask(post(&server, CHAT, &body)).await;
    assert_eq!((response.status, response.header("x-nexus-ignored")), (200, Some("user")));
    let asked = server.model().last_request().body.clone();
    let passed = ["temperature", "top_p", "seed", "stop", "max_tokens"].map(|it| asked[it].clone());
    assert_eq!(passed, [json!(0.25), json!(0.5), json!(7), json!(["END"]), json!(33)]);
    let server = Setup::new().provider(Provider::Anthropic).start().await;
    let response = server.ask(post(&server, CHAT, &body)).await;
    assert_eq!(response.header("x-nexus-ignored"), Some("user, seed"));
    let asked = server.model().last_request().body.clone();
    assert_eq!((&asked["temperature"], &asked["stop_sequences"]), (&json!(0.25), &json!(["END"])));
}

#[tokio::test]
async fn what_is_passed_on_has_its_type() {
    let server = Server::start().await;
    for (name, value) in [
        ("temperature", json!("hot")),
        ("top_p", json!([0.5])),
        ("presence_penalty", json!(true)),
        ("seed", json!(0.5)),
        ("top_k", json!("7")),
        ("logit_bias", json!([1])),
        ("parallel_tool_calls", json!("no")),
    ] {
        let mut body = saying("scripted", "Hi");
        body[name] = value;
        let (status, error) = refused(&server, post(&server, CHAT, &body)).await;
        assert_eq!((status, error["param"].as_str()), (400, Some(name)), "{error}");
    }
    assert_eq!(server.model().request_count(), 0);
}

/// What a provider does not heed ends here.
#[tokio::test]
async fn an_answer_ends_before_a_text_that_ends_it() {
    let server = Server::start().await;
    let mut body = saying("scripted", "Hi");
    body["stop"] = json!("END");
    server.model().push(Reply::chunks(["One E", "ND two"]).then_hang());
    let answer = chat(&server, &body).await;
    assert_eq!((said(&answer), &answer["choices"][0]["finish_reason"]), ("One ", &json!("stop")));
    eventually("the model to be left", async || server.model().disconnects() == 1).await;
    for wrong in [json!(""), json!(["a", "b", "c", "d", "e"]), json!(3)] {
        body["stop"] = wrong;
        assert_eq!(refused(&server, post(&server, CHAT, &body)).await.1["param"], "stop");
    }
}

#[tokio::test]
async fn tools_are_the_callers() {
    let server = Server::start().await;
    let tool = json!({"type": "function", "function": {"name": "weather", "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}});
    let mut body = saying("scripted", "How is it in Bonn?");
    body["tools"] = json!([tool]);
    body["tool_choice"] = json!("required");
    server.model().push(Reply::tool_call("weather", json!({"city": "Bonn"})));
    let answer = chat(&server, &body).await;
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &json!(null))
    );
    let call = choice["message"]["tool_calls"][0].clone();
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("weather")));
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Bonn"}));
    let asked = server.model().last_request().body.clone();
    assert_eq!(
        (&asked["tools"][0]["function"]["name"], &asked["tool_choice"]),
        (&json!("weather"), &json!("required"))
    );
    // Its result goes back with the call.
    body["tool_choice"] = json!("auto");
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "sunny"});
    let messages = body["messages"].as_array_mut().unwrap();
    messages.extend([choice["message"].clone(), result.clone()]);
    server.model().push(Reply::text("Sunny."));
    assert_eq!(said(&chat(&server, &body).await), "Sunny.");
    let asked = server.model().last_request().body["messages"].clone();
    assert_eq!(
        (&asked[2]["role"], &asked[2]["content"]),
        (&json!("tool"), &json!("sunny")),
        "{asked}"
    );
    // In a stream the call comes whole.
    body["stream"] = json!(true);
    server.model().push(Reply::tool_call("weather", json!({"city": "Ulm"})));
    let rest = Streamed::open(&server, post(&server, CHAT, &body)).await.rest().await;
    let rest: Vec<_> = rest.iter().map(|it| data(it)).collect();
    let called = rest.iter().find_map(|it| it["choices"][0]["delta"].get("tool_calls")).unwrap();
    assert_eq!(
        (&called[0]["index"], &called[0]["function"]["name"]),
        (&json!(0), &json!("weather"))
    );
    assert!(rest.iter().any(|it| it["choices"][0]["finish_reason"] == "tool_calls"));
    // What does not fit together is named.
    body["stream"] = json!(false);
    for (change, param) in [
        (
            json!({"tool_choice": {"type": "function", "function": {"name": "other"}}}),
            "tool_choice",
        ),
        (json!({"tool_choice": "maybe"}), "tool_choice"),
        (json!({"tools": [], "tool_choice": "required"}), "tool_choice"),
        (json!({"messages": [{"role": "user", "content": "x"}, result]}), "messages"),
        (
            json!({"messages": [{"role": "user", "content": "x"}, choice["message"], {"role": "user", "content": "y"}]}),
            "messages",
        ),
        (json!({"messages": [{"role": "user", "content": "x"}, choice["message"]]}), "messages"),
        (
            json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}),
            "messages",
        ),
        (json!({"messages": [{"role": "user", "content": " "}]}), "messages"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"n": 9}), "n"),
    ] {
        let mut wrong = body.clone();
        for (name, value) in change.as_object().unwrap() {
            wrong[name] = value.clone();
        }
        let (status, error) = refused(&server, post(&server, CHAT, &wrong)).await;
        assert_eq!((status, error["param"].as_str()), (400, Some(param)), "{change}: {error}");
    }
}

#[tokio::test]
async fn several_answers_are_given_beside_each_other() {
    let server = Server::start().await;
    let mut body = saying("scripted", "Hi");
    body["n"] = json!(8);
    let gate = Gate::new();
    for number in 0..8 {
        server.model().push(Reply::text(format!("a{number}")).usage(5, 1).held_by(&gate));
    }
    let request = post(&server, CHAT, &body);
    let (response, ()) = tokio::join!(server.ask(request), async {
        eventually("all to be asked", async || server.model().request_count() == 8).await;
        gate.release();
    });
    let answer = json_of(&response);
    let choices = answer["choices"].as_array().unwrap();
    let mut texts: Vec<_> =
        choices.iter().map(|it| it["message"]["content"].as_str().unwrap()).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7"]);
    assert_eq!((&choices[7]["index"], &answer["usage"]["total_tokens"]), (&json!(7), &json!(48)));
    body["n"] = json!(2);
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let rest = Streamed::open(&server, post(&server, CHAT, &body)).await.rest().await;
    let rest: Vec<_> = rest.iter().map(|it| data(it)).collect();
    for index in [0, 1] {
        let ends = rest.iter().filter(|it| {
            it["choices"][0]["index"] == index && it["choices"][0]["finish_reason"] == "stop"
        });
        assert_eq!(ends.count(), 1, "{rest:?}");
    }
    assert_eq!(rest.last().unwrap(), "[DONE]");
    assert_eq!(rest[rest.len() - 2]["choices"], json!([]));
}

/// Plain or streamed: nobody waits, so the call ends.
#[tokio::test]
async fn who_hangs_up_has_cancelled() {
    let server = Server::start().await;
    for (count, stream) in [(1, false), (2, true)] {
        server.model().push(Reply::hang());
        let mut body = saying("scripted", "x");
        body["stream"] = stream.into();
        let mut http = server.http().await;
        http.write(&post(&server, CHAT, &body).bytes()).await;
        eventually("the model to be asked", async || server.model().request_count() == count).await;
        drop(http);
        eventually("the model to be left", async || server.model().disconnects() == count).await;
    }
}

#[tokio::test]
async fn what_a_provider_says_is_told_in_the_doors_words() {
    let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    for (reply, status, kind) in [
        (Reply::status(400).message("an odd prompt"), 400, "invalid_request_error"),
        (Reply::status(401).message("who?"), 500, "server_error"),
        (Reply::status(500).message("broke"), 503, "server_error"),
        (Reply::status(429).retry_after("3"), 429, "rate_limit_error"),
    ] {
        // After the last of them the provider is left alone for a while.
        for stream in [true, false].into_iter().filter(|stream| !stream || status != 429) {
            server.model().push(reply.clone());
            let mut body = saying("scripted", "x");
            body["stream"] = stream.into();
            let (got, error) = refused(&server, post(&server, CHAT, &body)).await;
            assert_eq!((got, error["type"].as_str()), (status, Some(kind)), "{error}");
        }
    }
}

/// What is used in a key's name counts as its agent's.
#[tokio::test]
async fn what_a_key_uses_is_counted() {
    let server = Server::start().await;
    let wire = server.wire();
    let made = wire.ok("create_key", json!({"name": "k", "doors": ["openai"]})).await;
    server.model().push(Reply::text("Hello.").usage(100, 20));
    let request = post(&server, CHAT, &saying("scripted", "x")).bearer(made["key"].as_str());
    assert_eq!(server.ask(request).await.status, 200);
    let used = async || {
        let usage = wire.ok("get_usage", json!({"agent_id": "door-k", "tree": true})).await;
        usage["usage"]["input"] == 100
    };
    eventually("it to be counted", used).await;
}

#[tokio::test]
async fn a_key_that_is_revoked_ends_what_it_streams() {
    let server = Server::start().await;
    let wire = server.wire();
    let key = wire.ok("create_key", json!({"name": "k", "doors": ["openai"]})).await;
    server.model().push(Reply::text("So far").then_hang());
    let mut body = saying("scripted", "x");
    body["stream"] = json!(true);
    let request = post(&server, CHAT, &body).bearer(key["key"].as_str());
    let mut stream = Streamed::open(&server, request).await;
    stream.next().await.unwrap();
    stream.next().await.unwrap();
    wire.ok("revoke_key", json!({"name": "k"})).await;
    let rest = stream.rest().await;
    assert_eq!(data(rest.last().unwrap())["error"]["code"], "cancelled", "{rest:?}");
    eventually("the model to be left", async || server.model().disconnects() == 1).await;
}

/// How likely tokens were, where the provider says it; where it has no word for it the request is refused.
#[tokio::test]
async fn likelihoods_are_passed_on_where_the_provider_has_them() {
    let entry = |token: &str| {
        let top = json!([{"token": token, "logprob": -0.5, "bytes": null}]);
        json!({"token": token, "logprob": -0.5, "bytes": [104, 105], "top_logprobs": top})
    };
    let chunk = |text: &str, entries: Value| {
        let choice =
            json!({"index": 0, "delta": {"content": text}, "logprobs": {"content": entries}});
        format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
    };
    let reply = || {
        let end =
            json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        let end = format!("data: {end}\n\ndata: [DONE]\n\n");
        // What cannot be read costs nothing but itself.
        let odd = chunk("?", json!([{"token": 3}]));
        Reply::raw([chunk("hi", json!([entry("h"), entry("i")])), odd, end])
    };
    let server = Server::start().await;
    let mut body = saying("scripted", "x");
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(1);
    server.model().push(reply());
    let answer = chat(&server, &body).await;
    assert_eq!(said(&answer), "hi?");
    let asked = server.model().last_request().body.clone();
    assert_eq!((&asked["logprobs"], &asked["top_logprobs"]), (&json!(true), &json!(1)));
    let expected = json!({"content": [entry("h"), entry("i")], "refusal": null});
    assert_eq!(answer["choices"][0]["logprobs"], expected);
    body["stream"] = json!(true);
    server.model().push(reply());
    let rest = Streamed::open(&server, post(&server, CHAT, &body)).await.rest().await;
    let told: Vec<_> = rest.iter().map(|it| data(it)).collect();
    assert!(told.iter().any(|it| it["choices"][0]["logprobs"] == expected), "{told:?}");
    // The same at /v1/responses.
    let mut body =
        json!({"model": "scripted", "input": "x", "include": ["message.output_text.logprobs"]});
    server.model().push(reply());
    let answer = json_of(&server.ask(post(&server, "/v1/responses", &body)).await);
    assert_eq!(answer["output"][0]["content"][0]["logprobs"], expected["content"], "{answer}");
    body["stream"] = json!(true);
    server.model().push(reply());
    let rest = Streamed::open(&server, post(&server, "/v1/responses", &body)).await.rest().await;
    assert!(rest.iter().any(|it| it.contains("output_text.delta") && it.contains("top_logprobs")));
    // A model that is not asked for them says nothing of them.
    server.model().push(reply());
    let answer = chat(&server, &saying("scripted", "x")).await;
    assert_eq!(answer["choices"][0]["logprobs"], json!(null));
    let server = Setup::new().provider(Provider::Anthropic).start().await;
    let mut body = saying("scripted", "x");
    body["logprobs"] = json!(true);
    let (status, error) = refused(&server, post(&server, CHAT, &body)).await;
    assert_eq!((status, &error["param"]), (400, &json!("logprobs")), "{error}");
    assert_eq!(server.model().request_count(), 0);
}

/// OpenAI's clients ask for it with every schema they make themselves. Only some services know it.
#[tokio::test]
async fn a_strict_schema_is_passed_on_where_the_provider_knows_it() {
    let schema =
        json!({"type": "object", "properties": {}, "additionalProperties": false, "required": []});
    let asked = |model: &str| {
        let mut body = saying(model, "Hi");
        let named = json!({"name": "n", "schema": schema, "strict": true});
        body["response_format"] = json!({"type": "json_schema", "json_schema": named});
        body
    };
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().set_default(Reply::text("{}"));
    let response = server.ask(post(&server, CHAT, &asked("scripted"))).await;
    assert_eq!((response.status, response.header("x-nexus-ignored")), (200, None));
    let sent = server.model().last_request().body["response_format"]["json_schema"].clone();
    assert_eq!((&sent["strict"], &sent["schema"]), (&json!(true), &schema));
    let response = server.ask(post(&server, CHAT, &asked("agent:a"))).await;
    assert_eq!((response.status, response.header("x-nexus-ignored")), (200, Some("strict")));
    let server = Setup::new().provider(Provider::Anthropic).start().await;
    server.model().set_default(Reply::text("{}"));
    let response = server.ask(post(&server, CHAT, &asked("scripted"))).await;
    assert_eq!((response.status, response.header("x-nexus-ignored")), (200, Some("strict")));
}

#[tokio::test]
async fn metadata_and_names_that_mean_nothing_are_named() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    server.model().set_default(Reply::text("Hello."));
    for (model, metadata, ignored) in [
        ("scripted", json!({"trace": "7"}), Some("metadata")),
        ("scripted", json!({"nexus_session": "s"}), Some("nexus_session")),
        ("agent:a", json!({"nexus_session": "s"}), Some("nexus_session")),
        ("new:sandboxed", json!({"nexus_session": "s"}), None),
        ("new:sandboxed", json!({}), None),
    ] {
        let mut body = saying(model, "Hi");
        body["metadata"] = metadata.clone();
        let response = server.ask(post(&server, CHAT, &body)).await;
        let got = (response.status, response.header("x-nexus-ignored"));
        assert_eq!(got, (200, ignored), "{model} {metadata}");
    }
}

/// Where two providers have an alias, it alone means neither, and what is listed can be asked for.
#[tokio::test]
async fn twins_are_listed_by_names_that_lead_to_them() {
    let twin = json!({"type": "openai", "base_url": "http://127.0.0.1:9/v1", "models": {"scripted": {"id": "other"}}});
    let server = Setup::new().config(json!({"providers": {"twin": twin}})).start().await;
    let listed = json_of(&server.ask(get(&server, "/v1/models")).await);
    let ids = listed["data"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap());
    let ids: Vec<_> = ids.filter(|id| id.ends_with("scripted")).collect();
    assert_eq!(ids, ["scripted/scripted", "twin/scripted"]);
}

/// What an agent asks models for beside its turns is on the account of its tree, choice by choice.
#[tokio::test]
async fn calls_in_an_agents_name_have_its_trees_share() {
    let server = Setup::new().server(json!({"max_tree_turns": 2})).start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let made = wire.ok("create_agent_token", json!({"agent_id": "a"})).await;
    let token = made["token"].as_str().unwrap();
    let choices = |count: u32| {
        let mut body = saying("scripted", "Hi");
        body["n"] = json!(count);
        post(&server, CHAT, &body)
    };
    let (status, error) = refused(&server, choices(3).bearer(Some(token))).await;
    assert_eq!((status, &error["code"]), (503, &json!("overloaded")));
    assert!(error["message"].as_str().unwrap().contains("server.max_tree_turns"), "{error}");
    assert_eq!(server.model().request_count(), 0, "all or none");
    let gate = Gate::new();
    for _ in 0..2 {
        server.model().push(Reply::text("Done.").held_by(&gate));
    }
    let before = server.model().request_count();
    let mut held = server.http().await;
    held.write(&choices(2).bearer(Some(token)).bytes()).await;
    eventually("both to be asked", async || server.model().request_count() == before + 2).await;
    // A turn is of the same share; what the administrator asks for is not.
    let send = json!({"agent_id": "a", "content": "x"});
    let send = server.post(request(1, "send", send)).bearer(Some(token));
    assert_eq!(server.ask(send).await.answer()["error"]["code"], -32001);
    assert_eq!(server.ask(choices(3)).await.status, 200);
    gate.release();
    assert_eq!(held.response().await.status, 200);
    assert_eq!(server.ask(choices(2).bearer(Some(token))).await.status, 200);
}
