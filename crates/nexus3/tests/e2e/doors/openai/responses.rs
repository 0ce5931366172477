//! `/v1/responses`: agents and models in the shape of OpenAI's newer interface.

use nexus_testkit::{Reply, StopSaid};
use serde_json::{Value, json};

use super::super::host::is_busy;
use super::repeats::{again, joined};
use super::{CHAT, Streamed, get, json_of, post, refused, saying};
use crate::harness::{Server, Setup, eventually};
use crate::support::create;

pub const RESPONSES: &str = "/v1/responses";

const MODELS: [&str; 3] = ["agent:a", "new:sandboxed", "scripted"];

pub fn asking(model: &str, input: impl Into<Value>) -> Value {
    json!({"model": model, "input": input.into()})
}

async fn respond(server: &Server, body: &Value) -> Value {
    let response = server.ask(post(server, RESPONSES, body)).await;
    assert_eq!(response.status, 200, "{:?}", String::from_utf8_lossy(&response.body));
    json_of(&response)
}

/// All texts of an answer, as the clients add them up.
fn text(response: &Value) -> String {
    let items = response["output"].as_array().unwrap().iter();
    let parts = items.filter_map(|it| it["content"].as_array()).flatten();
    parts.filter_map(|it| it["text"].as_str()).collect()
}

/// What an event of a stream says. It is named twice.
pub fn event(written: &str) -> Value {
    let (name, data) = written.split_once('\n').unwrap_or_else(|| panic!("{written}"));
    let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(name.strip_prefix("event: "), data["type"].as_str(), "{written}");
    data
}

async fn told(server: &Server, body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let rest = Streamed::open(server, post(server, RESPONSES, &body)).await.rest().await;
    let events: Vec<_> = rest.iter().map(|it| event(it)).collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{events:?}");
    }
    events
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|it| it["type"].as_str().unwrap()).collect()
}

/// Without what is never the same.
fn plain(mut response: Value) -> Value {
    for member in ["id", "created_at"] {
        response[member].take();
    }
    for item in response["output"].as_array_mut().unwrap() {
        item["id"].take();
    }
    response
}

#[tokio::test]
async fn agents_and_models_answer_whole_and_in_pieces() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    for model in MODELS {
        let reply = || Reply::chunks(["One ", "two."]).usage(100, 7).cached(60);
        server.model().push(reply());
        let mut body = asking(model, "Count.");
        body["metadata"] = json!({"a": "b"});
        body["instructions"] = json!("Be brief.");
        let answer = respond(&server, &body).await;
        assert_eq!(
            (&answer["object"], &answer["status"]),
            (&json!("response"), &json!("completed"))
        );
        assert_eq!((text(&answer).as_str(), &answer["model"]), ("One two.", &json!(model)));
        let message = &answer["output"][0];
        assert_eq!(
            (&message["type"], &message["role"], &message["status"]),
            (&json!("message"), &json!("assistant"), &json!("completed"))
        );
        assert_eq!(message["content"][0]["type"], "output_text");
        let usage = json!({
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
            "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 107,
        });
        assert_eq!(answer["usage"], usage);
        assert_eq!(
            (&answer["metadata"], &answer["instructions"], &answer["error"]),
            (&json!({"a": "b"}), &json!("Be brief."), &json!(null))
        );
        server.model().push(reply());
        let events = told(&server, &body).await;
        // Pieces that wait for a reader of a turn are joined: how many there are is a matter of time.
        let (pieces, frame): (Vec<_>, Vec<_>) =
            events.iter().cloned().partition(|it| it["type"] == "response.output_text.delta");
        let expected = [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ];
        assert_eq!(kinds(&frame), expected, "{model}");
        assert_eq!(frame[0]["response"]["status"], "in_progress");
        assert_eq!(events[4], pieces[0], "text comes where its part has begun");
        let text: String = pieces.iter().filter_map(|it| it["delta"].as_str()).collect();
        assert_eq!((text.as_str(), &frame[4]["text"]), ("One two.", &json!("One two.")));
        let last = events.last().unwrap()["response"].clone();
        assert_eq!(frame[6]["item"], last["output"][0]);
        assert_eq!(plain(last), plain(answer));
    }
}

#[tokio::test]
async fn what_a_model_thinks_stands_before_what_it_says() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    for model in MODELS {
        let reply = || Reply::thought("Hmm.").then_text("Yes.");
        server.model().push(reply());
        let answer = respond(&server, &asking(model, "x")).await;
        let [thought, message] = &answer["output"].as_array().unwrap()[..] else {
            panic!("{answer}")
        };
        assert_eq!(thought["type"], "reasoning");
        assert_eq!(thought["summary"], json!([{"type": "summary_text", "text": "Hmm."}]));
        assert_eq!((&message["type"], text(&answer).as_str()), (&json!("message"), "Yes."));
        server.model().push(reply());
        let events = told(&server, &asking(model, "x")).await;
        let thinking: Vec<_> =
            kinds(&events).into_iter().filter(|it| it.contains("reasoning")).collect();
        let expected = [
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
        ];
        assert_eq!(thinking, expected, "{model}");
        assert_eq!(plain(events.last().unwrap()["response"].clone()), plain(answer));
    }
}

#[tokio::test]
async fn a_conversation_goes_on_from_an_answer() {
    let server = Server::start().await;
    let new = |input: &str, previous: &Value| {
        let mut body = asking("new:sandboxed", input);
        body["previous_response_id"] = previous.clone();
        body
    };
    let ask = async |body: &Value| {
        let response = server.ask(post(&server, RESPONSES, body)).await;
        assert_eq!(response.status, 200, "{:?}", json_of(&response));
        let answer = json_of(&response);
        (answer["id"].clone(), response.header("x-nexus-agent").unwrap().to_owned())
    };
    let said = async |agent: &str| -> Vec<String> {
        let found = server.wire().ok("get_messages", json!({"agent_id": agent})).await;
        let found = found["messages"].as_array().unwrap().clone();
        found.iter().map(|it| it["content"].as_str().unwrap().to_owned()).collect()
    };
    for text in ["a1", "a2", "b2", "a3"] {
        server.model().push(Reply::text(text));
    }
    let mut first = new("u1", &json!(null));
    first["instructions"] = json!("Be kind.");
    let (first, agent) = ask(&first).await;
    let (second, same) = ask(&new("u2", &first)).await;
    assert_eq!(agent, same);
    // Instructions are the agent's, and are not said again.
    assert!(server.model().last_request().body.to_string().contains("Be kind."));
    // The same answer once more: a fork.
    let (_, fork) = ask(&new("v2", &first)).await;
    assert_ne!(fork, agent);
    let (third, same) = ask(&new("u3", &second)).await;
    assert_eq!(agent, same);
    assert_eq!(said(&agent).await, ["u1", "a1", "u2", "a2", "u3", "a3"]);
    assert_eq!(said(&fork).await, ["u1", "a1", "v2", "b2"]);
    // It is the chain of chats: what was begun here goes on there, and the other way round.
    server.model().push(Reply::text("a4"));
    let mut body = super::talking("new:sandboxed", &["u1", "a1", "u2", "a2", "u3", "a3", "u4"]);
    let system = json!({"role": "system", "content": "Be kind."});
    body["messages"].as_array_mut().unwrap().insert(0, system);
    let response = server.ask(post(&server, CHAT, &body)).await;
    assert_eq!(response.header("x-nexus-agent"), Some(agent.as_str()));
    // Its agent is gone: what was said is taken over.
    server.wire().ok("destroy_agent", json!({"agent_id": agent})).await;
    server.model().push(Reply::text("c4"));
    let (_, other) = ask(&new("u4", &third)).await;
    assert_ne!(other, agent);
    assert_eq!(said(&other).await.len(), 8);
    // Other instructions are another conversation.
    server.model().push(Reply::text("d2"));
    let mut body = new("u2", &first);
    body["instructions"] = json!("Be rude.");
    let (_, rude) = ask(&body).await;
    assert_eq!(said(&rude).await, ["u1", "a1", "u2", "d2"]);
}

#[tokio::test]
async fn an_agent_and_a_model_go_on_each_in_its_way() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    create(&server.wire(), "b").await;
    server.model().push(Reply::text("a1"));
    let first = respond(&server, &asking("scripted", "u1")).await;
    let mut body = asking("scripted", "u2");
    body["previous_response_id"] = first["id"].clone();
    body["instructions"] = json!("Be kind.");
    respond(&server, &body).await;
    let asked = server.model().last_request().body["messages"].clone();
    let expected = json!([
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": "u1"},
        {"role": "assistant", "content": "a1"}, {"role": "user", "content": "u2"},
    ]);
    assert_eq!(asked, expected);
    // An agent has a history of its own.
    let first = respond(&server, &asking("agent:a", "u1")).await;
    for (agent, ignored) in [("a", None), ("b", Some("previous_response_id"))] {
        let mut body = asking(&format!("agent:{agent}"), "u2");
        body["previous_response_id"] = first["id"].clone();
        let response = server.ask(post(&server, RESPONSES, &body)).await;
        assert_eq!((response.status, response.header("x-nexus-ignored")), (200, ignored));
        let messages = server.wire().ok("get_messages", json!({"agent_id": agent})).await;
        assert_eq!(messages["total"], if agent == "a" { 4 } else { 2 });
    }
}

#[tokio::test]
async fn an_answer_is_shown_again_to_who_asked_for_it_until_it_is_forgotten() {
    let server = Server::start().await;
    let wire = server.wire();
    create(&wire, "a").await;
    let key = wire.ok("create_key", json!({"name": "k", "doors": ["openai"]})).await["key"].clone();
    for model in MODELS {
        let answer = respond(&server, &asking(model, "x")).await;
        let id = answer["id"].as_str().unwrap();
        let at = |rest: &str| get(&server, &format!("{RESPONSES}/{id}{rest}"));
        assert_eq!(json_of(&server.ask(at("")).await), answer);
        assert_eq!(refused(&server, at("?stream=true")).await.1["param"], "stream");
        assert_eq!(refused(&server, at("/cancel").verb("POST")).await.0, 400);
        assert_eq!(refused(&server, at("/input_items")).await.0, 404);
        assert_eq!(refused(&server, at("").verb("PUT")).await.0, 405);
        // Another caller's is unknown.
        assert_eq!(refused(&server, at("").bearer(key.as_str())).await.0, 404);
        assert_eq!(refused(&server, at("").verb("DELETE").bearer(key.as_str())).await.0, 404);
        let mut body = asking("scripted", "y");
        body["previous_response_id"] = json!(id);
        let foreign = post(&server, RESPONSES, &body).bearer(key.as_str());
        let known = server.ask(post(&server, RESPONSES, &body)).await.status;
        let (status, error) = refused(&server, foreign).await;
        assert_eq!((known, status), (200, 400), "{error}");
        assert_eq!(error["code"], "previous_response_not_found");
        let gone = json_of(&server.ask(at("").verb("DELETE")).await);
        assert_eq!(gone, json!({"id": id, "object": "response", "deleted": true}));
        for request in [at(""), at("").verb("DELETE"), at("/cancel").verb("POST")] {
            assert_eq!(refused(&server, request).await.0, 404);
        }
        // One that is not to be stored is not, whoever gave it.
        let mut body = asking(model, "x");
        body["store"] = json!(false);
        let id = respond(&server, &body).await["id"].clone();
        let path = format!("{RESPONSES}/{}", id.as_str().unwrap());
        assert_eq!(refused(&server, get(&server, &path)).await.0, 404);
        body["previous_response_id"] = id;
        let (status, error) = refused(&server, post(&server, RESPONSES, &body)).await;
        assert_eq!((status, &error["param"]), (400, &json!("previous_response_id")));
    }
}

fn weather() -> Value {
    json!({"type": "function", "name": "weather", "description": "d", "strict": true,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}})
}

#[tokio::test]
async fn tools_are_the_callers() {
    let server = Server::start().await;
    let mut body = asking("scripted", "How is it in Bonn?");
    body["tools"] = json!([weather()]);
    body["tool_choice"] = json!({"type": "function", "name": "weather"});
    body["parallel_tool_calls"] = json!(false);
    server.model().push(Reply::tool_call("weather", json!({"city": "Bonn"})));
    let answer = respond(&server, &body).await;
    let call = answer["output"][0].clone();
    assert_eq!(
        (&call["type"], &call["name"], &call["status"], &answer["status"]),
        (&json!("function_call"), &json!("weather"), &json!("completed"), &json!("completed"))
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Bonn"}));
    let asked = server.model().last_request().body.clone();
    let named = json!({"type": "function", "function": {"name": "weather"}});
    assert_eq!((&asked["tool_choice"], &asked["parallel_tool_calls"]), (&named, &json!(false)));
    // Its result goes back with the call: said again, named, or known from the answer before.
    let result =
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"});
    let user = json!({"role": "user", "content": "How is it in Bonn?"});
    let reference = json!({"type": "item_reference", "id": call["id"]});
    for (input, previous) in [
        (json!([user, call, result]), json!(null)),
        (json!([user, reference, result]), json!(null)),
        (json!([result]), answer["id"].clone()),
    ] {
        let mut body = asking("scripted", input);
        body["tools"] = json!([weather()]);
        body["previous_response_id"] = previous;
        server.model().push(Reply::text("Sunny."));
        assert_eq!(text(&respond(&server, &body).await), "Sunny.");
        let asked = server.model().last_request().body["messages"].clone();
        assert_eq!(asked.as_array().unwrap().len(), 3, "{asked}");
        assert_eq!(asked[1]["tool_calls"][0]["function"]["name"], "weather", "{asked}");
        assert_eq!((&asked[2]["role"], &asked[2]["content"]), (&json!("tool"), &json!("sunny")));
    }
    // In a stream.
    server.model().push(Reply::text("So:").then_tool_call("weather", json!({"city": "Ulm"})));
    let events = told(&server, &body).await;
    let called: Vec<_> = events.iter().filter(|it| it["output_index"] == 1).collect();
    let expected = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ];
    assert_eq!(called.iter().map(|it| it["type"].as_str().unwrap()).collect::<Vec<_>>(), expected);
    assert_eq!(called[1]["delta"], called[2]["arguments"]);
    assert_eq!(called[3]["item"], events.last().unwrap()["response"]["output"][1]);
}

#[tokio::test]
async fn what_cannot_be_done_is_named() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let result = json!([{"type": "function_call_output", "call_id": "1", "output": "x"}]);
    let web = json!([{"type": "web_search"}]);
    for (models, change, status, param) in [
        (&MODELS[..], json!({"model": "agent:nobody"}), 404, "model"),
        (&MODELS, json!({"model": "no-such-model"}), 404, "model"),
        (&MODELS, json!({"input": null}), 400, "input"),
        (&MODELS, json!({"input": " "}), 400, "input"),
        (&MODELS, json!({"input": [{"role": "assistant", "content": "x"}]}), 400, "input"),
        (&MODELS, json!({"input": [{"role": "king", "content": "x"}]}), 400, "input[0]"),
        (&MODELS, json!({"input": result}), 400, "input"),
        (&MODELS, json!({"tools": web}), 400, "tools[0]"),
        (&MODELS[..2], json!({"tools": [weather()]}), 400, "tools"),
        (&MODELS, json!({"background": true}), 400, "background"),
        (&MODELS, json!({"conversation": "c"}), 400, "conversation"),
        (&MODELS, json!({"previous_response_id": "resp_x"}), 400, "previous_response_id"),
        (&MODELS, json!({"text": {"format": {"type": "json_schema"}}}), 400, "text.format"),
        (&MODELS, json!({"max_output_tokens": 0}), 400, "max_output_tokens"),
        (&MODELS[..2], json!({"top_logprobs": 3}), 400, "top_logprobs"),
        (&MODELS[2..], json!({"tool_choice": "required"}), 400, "tool_choice"),
        (
            &MODELS[2..],
            json!({"tools": [weather()], "tool_choice": {"type": "function", "name": "f"}}),
            400,
            "tool_choice",
        ),
        (
            &MODELS[2..],
            json!({"tools": [weather()], "tool_choice": {"type": "mcp", "name": "f"}}),
            400,
            "tool_choice",
        ),
    ] {
        for model in models {
            for stream in [false, true] {
                let mut body = asking(model, "x");
                body["stream"] = stream.into();
                for (name, value) in change.as_object().unwrap() {
                    body[name] = value.clone();
                }
                let (got, error) = refused(&server, post(&server, RESPONSES, &body)).await;
                assert_eq!(
                    (got, error["param"].as_str()),
                    (status, Some(param)),
                    "{body}: {error}"
                );
            }
        }
    }
    assert_eq!(server.model().request_count(), 0);
    // Two names for one conversation.
    let answer = respond(&server, &asking("new:sandboxed", "x")).await;
    let mut body = asking("new:sandboxed", "y");
    body["previous_response_id"] = answer["id"].clone();
    let request = post(&server, RESPONSES, &body).header("X-Nexus-Session", "s");
    assert_eq!(refused(&server, request).await.1["param"], "previous_response_id");
    // A shape that is none is the turn's to refuse.
    let mut body = asking("agent:a", "x");
    body["text"] = json!({"format": {"type": "json_schema", "name": "n", "schema": {"type": 3}}});
    assert_eq!(refused(&server, post(&server, RESPONSES, &body)).await.1["param"], "text.format");
}

#[tokio::test]
async fn what_is_not_applied_is_named() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let mut body = asking("agent:a", "x");
    for (name, value) in [
        ("instructions", json!("Be a pirate.")),
        ("temperature", json!(0.5)),
        ("reasoning", json!({"effort": "low"})),
        ("include", json!(["reasoning.encrypted_content"])),
        ("truncation", json!("auto")),
        ("text", json!({"verbosity": "low"})),
        ("parallel_tool_calls", json!(null)),
        ("stream_options", json!({"include_obfuscation": false})),
    ] {
        body[name] = value;
    }
    let response = server.ask(post(&server, RESPONSES, &body)).await;
    let named = "temperature, reasoning, include, text.verbosity, truncation, instructions";
    assert_eq!((response.status, response.header("x-nexus-ignored")), (200, Some(named)));
    assert!(!server.model().last_request().body.to_string().contains("pirate"));
    body["model"] = json!("scripted");
    let response = server.ask(post(&server, RESPONSES, &body)).await;
    let named = "reasoning, include, text.verbosity, truncation";
    assert_eq!((response.status, response.header("x-nexus-ignored")), (200, Some(named)));
    let asked = server.model().last_request().body.clone();
    assert!(asked["temperature"] == 0.5 && asked.to_string().contains("pirate"), "{asked}");
}

#[tokio::test]
async fn an_answer_has_the_shape_and_the_length_that_were_asked_for() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    for model in MODELS {
        let mut body = asking(model, "x");
        body["text"] = json!({"format": {"type": "json_schema", "name": "n", "strict": true, "schema": schema}});
        body["max_output_tokens"] = json!(77);
        server.model().push(Reply::text(r#"{"n": 3}"#));
        assert_eq!(text(&respond(&server, &body).await), r#"{"n": 3}"#);
        let asked = server.model().last_request().body.clone();
        let held = &asked["response_format"]["json_schema"]["schema"]["required"];
        assert_eq!((held, &asked["max_tokens"]), (&json!(["n"]), &json!(77)), "{asked}");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_says_why() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    for model in MODELS {
        for (stop, reason) in [
            (StopSaid::MaxTokens, "max_output_tokens"),
            (StopSaid::ContentFilter, "content_filter"),
        ] {
            let mut body = asking(model, "x");
            body["max_output_tokens"] = json!(5);
            server.model().push(Reply::text("So far").stop(stop.clone()));
            let answer = respond(&server, &body).await;
            assert_eq!(answer["status"], "incomplete", "{answer}");
            assert_eq!(answer["incomplete_details"]["reason"], reason);
            assert_eq!(answer["output"][0]["status"], "incomplete");
            server.model().push(Reply::text("So far").stop(stop.clone()));
            let events = told(&server, &body).await;
            assert_eq!(kinds(&events).last(), Some(&"response.incomplete"), "{model}");
        }
    }
}

#[tokio::test]
async fn images_come_with_the_text() {
    let keys =
        json!({"models": {"scripted": {"context_window": 200_000, "input": ["text", "image"]}}});
    let server = Setup::new().provider_keys(keys).start().await;
    create(&server.wire(), "a").await;
    for model in MODELS {
        let url = format!("data:image/png;base64,{}", super::turns::PIXEL);
        let parts = json!([{"type": "input_text", "text": "What is it?"},
            {"type": "input_image", "image_url": url, "detail": "auto"}]);
        let body = asking(model, json!([{"type": "message", "role": "user", "content": parts}]));
        server.model().push(Reply::text("A pixel."));
        assert_eq!(text(&respond(&server, &body).await), "A pixel.");
        assert!(server.model().last_request().body.to_string().contains("data:image/png;base64,"));
    }
}

#[tokio::test]
async fn a_repeat_joins_the_turn_that_runs_or_gets_its_answer() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    for model in &MODELS[..2] {
        let before = server.model().request_count();
        let request = post(&server, RESPONSES, &asking(model, "x"));
        let joined = joined(&server, &request).await;
        assert_eq!(text(&joined), "Once.", "{model}");
        assert_eq!(json_of(&server.ask(again(&request, 2)).await), joined);
        // What was answered while nobody listened is known as well.
        let path = format!("{RESPONSES}/{}", joined["id"].as_str().unwrap());
        assert_eq!(json_of(&server.ask(get(&server, &path)).await), joined);
        assert_eq!(server.model().request_count(), before + 1, "{model}");
    }
    // A key of the caller's names one request at one path.
    let keyed = |path: &str, body: &Value| post(&server, path, body).header("Idempotency-Key", "k");
    let first = server.ask(keyed(RESPONSES, &asking("agent:a", "x"))).await;
    let second = server.ask(keyed(RESPONSES, &asking("agent:a", "x"))).await;
    assert_eq!(json_of(&first), json_of(&second));
    assert_eq!(refused(&server, keyed(RESPONSES, &asking("agent:a", "y"))).await.0, 400);
    assert_eq!(refused(&server, keyed(CHAT, &saying("agent:a", "x"))).await.0, 400);
}

#[tokio::test]
async fn who_hangs_up_has_cancelled() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    for (count, model, stream) in
        [(1, "agent:a", true), (2, "scripted", true), (3, "scripted", false)]
    {
        server.model().push(Reply::text("So").then_hang());
        let mut body = asking(model, "x");
        body["stream"] = stream.into();
        let mut http = server.http().await;
        http.write(&post(&server, RESPONSES, &body).bytes()).await;
        eventually("the model to be asked", async || server.model().request_count() == count).await;
        drop(http);
        eventually("the model to be left", async || server.model().disconnects() == count).await;
    }
    eventually("the turn to end", async || !is_busy(&server, "a").await).await;
}

#[tokio::test]
async fn a_key_that_is_revoked_ends_what_it_streams() {
    let server = Server::start().await;
    let wire = server.wire();
    for model in ["agent:door-k", "scripted"] {
        let key = wire.ok("create_key", json!({"name": "k", "doors": ["openai"]})).await;
        server.model().push(Reply::text("So far").then_hang());
        let mut body = asking(model, "x");
        body["stream"] = json!(true);
        let request = post(&server, RESPONSES, &body).bearer(key["key"].as_str());
        let mut stream = Streamed::open(&server, request.clone()).await;
        while event(&stream.next().await.unwrap())["type"] != "response.output_text.delta" {}
        wire.ok("revoke_key", json!({"name": "k"})).await;
        let rest: Vec<_> = stream.rest().await.iter().map(|it| event(it)).collect();
        let [.., error, failed] = &rest[..] else { panic!("{rest:?}") };
        assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("cancelled")));
        assert_eq!(failed["type"], "response.failed");
        assert_eq!(failed["response"]["status"], "failed");
        assert_eq!(text(&failed["response"]), "So far");
        assert_eq!(refused(&server, request).await.0, 401);
        wire.ok("destroy_agent", json!({"agent_id": "door-k"})).await;
    }
}

#[tokio::test]
async fn what_fails_says_so() {
    let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
    create(&server.wire(), "a").await;
    server.model().push(Reply::status(400).message("the prompt is too odd"));
    let response = server.ask(post(&server, RESPONSES, &asking("agent:a", "x"))).await;
    assert_eq!((response.status, response.header("x-should-retry")), (500, Some("false")));
    server.model().push(Reply::status(400).message("the prompt is too odd"));
    let (status, error) =
        refused(&server, post(&server, RESPONSES, &asking("scripted", "x"))).await;
    assert_eq!(status, 400, "{error}");
    // In a stream.
    server.model().set_script(|_| Reply::text("So far").then_error("server_error", "it broke"));
    for model in ["agent:a", "scripted"] {
        let events = told(&server, &asking(model, "x")).await;
        let [.., error, failed] = &events[..] else { panic!("{events:?}") };
        assert_eq!((&error["type"], &failed["type"]), (&json!("error"), &json!("response.failed")));
        assert!(error["message"].as_str().unwrap().contains("it broke"), "{error}");
        assert_eq!(failed["response"]["error"]["message"], error["message"]);
    }
}

/// With `X-Nexus-Events: 1` tools are told as well.
#[tokio::test]
async fn tools_of_agents_are_told_to_who_asks() {
    let server = Server::start().await;
    create(&server.wire(), "a").await;
    for asks in [false, true] {
        let looks =
            Reply::text("Let me see.").then_tool_call("list_directory", json!({"path": "."}));
        server.model().push(looks);
        server.model().push(Reply::text("Nothing there."));
        let mut body = asking("agent:a", "x");
        body["stream"] = json!(true);
        let mut request = post(&server, RESPONSES, &body);
        if asks {
            request = request.header("X-Nexus-Events", "1");
        }
        let rest = Streamed::open(&server, request).await.rest().await;
        let events: Vec<_> = rest.iter().map(|it| event(it)).collect();
        let told = events.iter().filter(|it| it["type"] == "nexus_event").count();
        assert_eq!(told, if asks { 2 } else { 0 });
        assert_eq!(text(&events.last().unwrap()["response"]), "Let me see.\n\nNothing there.");
    }
}
