//! The scripted model is believed because the vendors' own clients read it, and what we send because their types take it.

use nexus_testkit::vendors::{self, Checked};
use nexus_testkit::{Reply, ScriptedModel, StopSaid, Wire};
use serde_json::{Value, json};

/// What the clients of all wires understand of a reply, in the order of [`Wire::ALL`].
type Expected = [Value; Wire::ALL.len()];

struct Case {
    question: &'static str,
    reply: Reply,
    expected: Expected,
}

/// What every client says of the usual usage.
fn usage() -> Value {
    json!({"input": 10, "output": 5, "cache_read": 0, "cache_write": 0, "reasoning": 0})
}

/// The same understood by all, but for the word by which each says why it stopped.
fn alike(heard: Value, stops: [&str; 5]) -> Expected {
    stops.map(|stop| {
        let mut heard = heard.clone();
        heard["stop"] = json!(stop);
        heard.as_object_mut().map(|members| members.entry("usage").or_insert_with(usage));
        heard
    })
}

const END: [&str; 5] = ["stop", "end_turn", "completed", "STOP", "stop"];
const CALLS: [&str; 5] = ["tool_calls", "tool_use", "completed", "STOP", "stop"];
const CUT: [&str; 5] = ["length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "length"];

fn with(mut expected: Expected, wires: &[Wire], key: &str, value: Value) -> Expected {
    for (wire, heard) in Wire::ALL.into_iter().zip(&mut expected) {
        if wires.contains(&wire) {
            heard[key] = value.clone();
        }
    }
    expected
}

fn without(mut expected: Expected, wires: &[Wire], key: &str) -> Expected {
    for (wire, heard) in Wire::ALL.into_iter().zip(&mut expected) {
        if wires.contains(&wire) {
            heard.as_object_mut().map(|members| members.remove(key));
        }
    }
    expected
}

fn cases() -> Vec<Case> {
    let streamed = |reply, expected| Case { question: "stream", reply, expected };
    let whole = |reply, expected| Case { question: "whole", reply, expected };
    let mut cases = Vec::new();

    let text = alike(json!({"text": "One, two, three."}), END);
    cases.push(streamed(Reply::chunks(["One, ", "two, ", "three."]), text.clone()));
    cases.push(whole(Reply::chunks(["One, ", "two, ", "three."]), text.clone()));
    let pinged =
        Reply::nothing().then_ping().then_text("One, two, ").then_ping().then_text("three.");
    cases.push(streamed(pinged, text));

    for question in ["stream", "whole"] {
        cases.push(Case { question, reply: thinking(), expected: thinking_heard() });
        cases.push(Case { question, reply: no(), expected: no_heard() });
        cases.push(Case { question, reply: counted(), expected: counted_heard() });
    }
    cases.push(streamed(
        Reply::nothing().then_redacted("aGlkZGVu").then_text("Yes."),
        redacted_heard(),
    ));
    cases.push(streamed(
        Reply::text("So far").stop(StopSaid::MaxTokens),
        alike(json!({"text": "So far"}), CUT),
    ));
    cases.push(streamed(cut_call(), cut_call_heard()));
    cases.push(streamed(
        Reply::text("So far").then_error("server_error", "Something broke."),
        broken_heard(),
    ));
    cases.push(streamed(Reply::status(429).message("Slower.").retry_after("7"), limited_heard()));
    cases
}

fn thinking() -> Reply {
    Reply::nothing()
        .then_thought_signed("Which files are there?", "c2lnbmF0dXJl")
        .then_text("I look.")
        .then_tool_call_as("call_1", "list", "{\"path\": \".\", \"deep\": true}")
        .then_tool_call_as("call_2", "now", "{}")
}

fn thinking_heard() -> Expected {
    let calls = |first: Value, second: Value, ids: [Value; 2]| {
        let [one, two] = ids;
        json!([{"id": one, "name": "list", "arguments": first}, {"id": two, "name": "now", "arguments": second}])
    };
    let ids = || [json!("call_1"), json!("call_2")];
    let read = calls(json!({"path": ".", "deep": true}), json!({}), ids());
    let unread = calls(json!("{\"path\": \".\", \"deep\": true}"), json!("{}"), ids());
    let nameless = calls(json!({"path": ".", "deep": true}), json!({}), [Value::Null, Value::Null]);
    let heard = json!({
        "text": "I look.", "thought": "Which files are there?", "signatures": ["c2lnbmF0dXJl"], "calls": read,
    });
    let heard = alike(heard, CALLS);
    let heard = with(heard, &[Wire::Chat, Wire::Responses], "calls", unread);
    let heard = with(heard, &[Wire::Ollama], "calls", nameless);
    without(heard, &[Wire::Chat, Wire::Ollama], "signatures")
}

fn no() -> Reply {
    let category = Some("bio".to_owned());
    let stop = StopSaid::Refusal { category, explanation: Some("It is not safe.".to_owned()) };
    Reply::refusal("I won't.").stop(stop)
}

fn no_heard() -> Expected {
    let refused = [Wire::Chat, Wire::Responses];
    let heard =
        alike(json!({"text": "I won't."}), ["stop", "refusal", "completed", "SAFETY", "stop"]);
    let heard = with(without(heard, &refused, "text"), &refused, "refusal", json!("I won't."));
    let details = json!({"type": "refusal", "category": "bio", "explanation": "It is not safe."});
    with(heard, &[Wire::Messages], "details", details)
}

fn counted() -> Reply {
    Reply::text("Yes.").usage(1000, 90).cached(600).cache_written(300).reasoning_tokens(40)
}

fn counted_heard() -> Expected {
    let all = json!({"input": 1000, "output": 90, "cache_read": 600, "cache_write": 300, "reasoning": 40});
    let no_writes =
        json!({"input": 1000, "output": 90, "cache_read": 600, "cache_write": 0, "reasoning": 40});
    let plain =
        json!({"input": 1000, "output": 90, "cache_read": 0, "cache_write": 0, "reasoning": 0});
    let heard = alike(json!({"text": "Yes.", "usage": all}), END);
    let heard = with(heard, &[Wire::GenerateContent], "usage", no_writes);
    with(heard, &[Wire::Ollama], "usage", plain)
}

fn redacted_heard() -> Expected {
    let heard = alike(json!({"text": "Yes."}), END);
    let heard = with(heard, &[Wire::Messages], "redacted", json!(["aGlkZGVu"]));
    with(heard, &[Wire::Responses, Wire::GenerateContent], "signatures", json!(["aGlkZGVu"]))
}

fn cut_call() -> Reply {
    Reply::text("I write.").then_cut_call("write", "{\"path\": \"a.txt\", \"text\": \"On")
}

/// The id differs from run to run and is taken out before this is compared.
fn cut_call_heard() -> Expected {
    let heard = alike(json!({"text": "I write."}), CUT);
    let unread = json!([{"name": "write", "arguments": "{\"path\": \"a.txt\", \"text\": \"On"}]);
    let heard = with(heard, &[Wire::Chat, Wire::Responses], "calls", unread);
    // This client shows what it could make of the part that came.
    let guessed = json!([{"name": "write", "arguments": {"path": "a.txt"}}]);
    with(heard, &[Wire::Messages], "calls", guessed)
}

fn broken_heard() -> Expected {
    let error = |kind: &str, status: Value| {
        let mut error = json!({"kind": kind, "message": "Something broke."});
        if !status.is_null() {
            error["status"] = status;
        }
        error
    };
    [
        json!({"text": "So far", "error": error("APIError", Value::Null)}),
        json!({"error": error("APIStatusError", json!(200))}),
        json!({"error": error("ResponseErrorEvent", Value::Null), "stop": "server_error"}),
        json!({"text": "So far", "usage": usage(), "error": error("ServerError", json!(500))}),
        json!({"text": "So far", "error": error("ResponseError", json!(-1))}),
    ]
}

fn limited_heard() -> Expected {
    let error = |kind: &str, wait: Value| {
        let mut error = json!({"kind": kind, "message": "Slower.", "status": 429});
        if !wait.is_null() {
            error["wait"] = wait;
        }
        json!({"error": error})
    };
    [
        error("RateLimitError", json!("7")),
        error("RateLimitError", json!("7")),
        error("RateLimitError", json!("7")),
        error("ClientError", json!("7s")),
        error("ResponseError", Value::Null),
    ]
}

async fn check(wire: Wire) {
    let model = ScriptedModel::start().await;
    let cases = cases();
    let questions: Vec<&str> = cases.iter().map(|case| case.question).collect();
    for case in &cases {
        model.push(case.reply.clone());
    }
    let root = model.root();
    let reading = tokio::task::spawn_blocking(move || vendors::read(&root, wire, &questions));
    let Ok(heard) = reading.await else { panic!("the client of {wire:?} failed") };
    let Some(heard) = heard else { return };
    assert_eq!(heard.len(), cases.len());
    let at = Wire::ALL.iter().position(|it| *it == wire).unwrap_or_default();
    for (case, mut heard) in cases.into_iter().zip(heard) {
        let expected = &case.expected[at];
        if expected["calls"][0].get("id").is_none() {
            let call = heard.pointer_mut("/calls/0").and_then(Value::as_object_mut);
            call.map(|call| call.remove("id"));
        }
        assert_eq!(&heard, expected, "{wire:?} {}: {:#?}", case.question, case.reply);
    }
    assert_eq!(model.disconnects(), 0);
}

#[tokio::test]
async fn openai_reads_chat() {
    check(Wire::Chat).await;
}

#[tokio::test]
async fn anthropic_reads_messages() {
    check(Wire::Messages).await;
}

#[tokio::test]
async fn openai_reads_responses() {
    check(Wire::Responses).await;
}

#[tokio::test]
async fn google_reads_generate_content() {
    check(Wire::GenerateContent).await;
}

#[tokio::test]
async fn ollama_reads_ollama() {
    check(Wire::Ollama).await;
}

/// A tool call and its result, as each wire has them, and the keys at which the vendors' types stumble.
fn bodies(wire: Wire) -> (Value, Vec<(&'static str, Value)>) {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": false});
    let (tools, arguments) = (
        json!([{"type": "function", "function": {
            "name": "read", "description": "Reads a file.", "parameters": schema,
        }}]),
        json!({"path": "a"}),
    );
    match wire {
        Wire::Chat => (
            json!({
                "model": "m", "stream": true, "stream_options": {"include_usage": true}, "tools": tools,
                "max_completion_tokens": 100, "reasoning_effort": "low",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "Hi"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]},
                    {"role": "assistant", "content": null, "tool_calls": [{
                        "id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "c1", "content": "text"},
                ],
            }),
            vec![
                ("/messages/1/content", json!(7)),
                ("/messages/3/tool_call_id", Value::Null),
                ("/odd", json!(1)),
            ],
        ),
        Wire::Messages => (
            json!({
                "model": "m", "stream": true, "max_tokens": 100,
                "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                "tools": [{"name": "read", "description": "Reads a file.", "input_schema": schema}],
                "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"},
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image", "source": {
                        "type": "base64", "media_type": "image/png", "data": "aGk="}}]},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": "", "signature": "s"},
                        {"type": "redacted_thinking", "data": "d"},
                        {"type": "tool_use", "id": "c1", "name": "read", "input": arguments}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "text", "is_error": true}]},
                ],
            }),
            vec![
                ("/max_tokens", Value::Null),
                ("/messages/1/content/0/signature", Value::Null),
                ("/messages/2/content/0/odd", json!(1)),
            ],
        ),
        Wire::Responses => (
            json!({
                "model": "m", "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
                "instructions": "Be brief.", "stream_options": {"include_obfuscation": false},
                "reasoning": {"effort": "low", "summary": "auto"}, "prompt_cache_key": "k", "max_output_tokens": 100,
                "tools": [{"type": "function", "name": "read", "description": "", "parameters": schema, "strict": false}],
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "Hi"},
                        {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}]},
                    {"type": "reasoning", "summary": [], "encrypted_content": "e"},
                    {"type": "message", "role": "assistant", "content": [
                        {"type": "output_text", "text": "I look.", "annotations": []}]},
                    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c1", "output": "text"},
                ],
            }),
            vec![
                ("/input/3/name", Value::Null),
                ("/input/4/output", json!(7)),
                ("/tools/0/strict", Value::Null),
                ("/reasoning/odd", json!(1)),
            ],
        ),
        Wire::GenerateContent => (
            json!({
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "tools": [{"functionDeclarations": [{
                    "name": "read", "description": "Reads a file.", "parametersJsonSchema": schema}]}],
                "generationConfig": {"maxOutputTokens": 100, "thinkingConfig": {
                    "includeThoughts": true, "thinkingLevel": "LOW"}},
                "contents": [
                    {"role": "user", "parts": [
                        {"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
                    {"role": "model", "parts": [{"functionCall": {"name": "read", "args": arguments, "id": "c1"},
                        "thoughtSignature": "c2lnbg=="}]},
                    {"role": "user", "parts": [{"functionResponse": {
                        "name": "read", "id": "c1", "response": {"output": "text"}}}]},
                ],
            }),
            vec![
                ("/contents/0/parts/0/txt", json!("Hi")),
                ("/contents", json!([])),
                ("/generationConfig/thinkingConfig/thinkingLevel", json!("ODD")),
            ],
        ),
        Wire::Ollama => (
            json!({
                "model": "m", "stream": true, "truncate": false, "shift": false, "keep_alive": "30m", "think": "low",
                "options": {"num_ctx": 4096, "num_predict": 100}, "tools": tools,
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hi", "images": ["aGk="]},
                    {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [{
                        "id": "c1", "function": {"index": 0, "name": "read", "arguments": arguments}}]},
                    {"role": "tool", "content": "text", "tool_name": "read", "tool_call_id": "c1"},
                ],
            }),
            vec![
                ("/messages/1/content", json!(7)),
                ("/messages/2/tool_calls/0/function/arguments", json!("{}")),
                ("/options/odd", json!(1)),
                ("/odd", json!(1)),
            ],
        ),
    }
}

/// The body with something else at this place; `Null` takes away what is there.
fn broken(body: &Value, place: &str, value: Value) -> Value {
    let mut body = body.clone();
    let (parent, key) = place.rsplit_once('/').unwrap_or_default();
    let Some(members) = body.pointer_mut(parent).and_then(Value::as_object_mut) else {
        panic!("{place} is not there");
    };
    match value {
        Value::Null => drop(members.remove(key)),
        value => drop(members.insert(key.to_owned(), value)),
    }
    body
}

#[test]
fn the_types_take_a_good_body_and_refuse_each_that_is_broken() {
    for wire in Wire::ALL {
        let (good, breaks) = bodies(wire);
        let bad = breaks.iter().map(|(place, value)| broken(&good, place, value.clone()));
        let all: Vec<Value> = std::iter::once(good.clone()).chain(bad).collect();
        let Checked::Found(findings) = vendors::validate(wire, &all) else { continue };
        assert!(findings[0].is_fine(), "{wire:?}: {:?}", findings[0]);
        for ((place, _), finding) in breaks.iter().zip(&findings[1..]) {
            assert!(!finding.is_fine(), "{wire:?} with {place}");
            let key = place.rsplit('/').next().unwrap_or_default().to_lowercase();
            let told = format!("{finding:?}").to_lowercase();
            assert!(told.contains(&key), "{wire:?} with {place}: {finding:?}");
        }
    }
}

#[test]
fn a_key_may_be_allowed_that_the_types_do_not_know() {
    let (mut body, _) = bodies(Wire::Chat);
    body["messages"][2]["reasoning_content"] = json!("Hm.");
    vendors::assert_valid(Wire::Chat, &[body], |place| place == "messages.2.reasoning_content");
}
