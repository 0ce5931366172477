//! What the scripted model refuses when it is strict, and what it takes just so.

use nexus_testkit::{Reply, ScriptedModel, StopSaid, ThoughtField, Wire};
use serde_json::{Value, json};

use crate::client::{Answer, path, post};

async fn strict() -> ScriptedModel {
    let model = ScriptedModel::start().await;
    model.strict();
    model
}

/// Asks once; the answer must be the good one, or a refusal that says this.
async fn check(model: &ScriptedModel, wire: Wire, body: &Value, refusal: Option<&str>) {
    let answer = post(model, path(wire), body).await;
    let Some(refusal) = refusal else {
        assert_eq!(answer.status, 200, "{body:#} is refused: {}", answer.body);
        return;
    };
    assert_eq!(answer.status, 400, "{body:#} is not refused with {refusal:?}");
    assert!(message(&answer).contains(refusal), "{refusal:?} is not {}", answer.body);
    assert!(model.rejections().last().is_some_and(|told| told.contains(refusal)));
}

fn message(answer: &Answer) -> String {
    let document = answer.document();
    let error = &document["error"];
    error["message"].as_str().or(error.as_str()).unwrap_or_default().to_owned()
}

fn mark(ttl: &str) -> Value {
    json!({"type": "ephemeral", "ttl": ttl})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn marked(ttl: &str) -> Value {
    json!({"type": "text", "text": ttl, "cache_control": mark(ttl)})
}

fn claude(messages: Value) -> Value {
    json!({
        "model": "m", "stream": true, "max_tokens": 100, "system": "Be brief.",
        "tools": [{"name": "read", "input_schema": {"type": "object"}}], "messages": messages,
    })
}

fn user(content: Value) -> Value {
    json!({"role": "user", "content": content})
}

fn assistant(content: Value) -> Value {
    json!({"role": "assistant", "content": content})
}

fn used(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "read", "input": {}})
}

fn resulted(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "text"})
}

#[tokio::test]
async fn messages_refuse_what_anthropic_refuses() {
    let model = strict().await;
    let good = claude(json!([user(json!("Hi"))]));
    let changed = |key: &str, value: Value| {
        let mut body = good.clone();
        body[key] = value;
        body
    };
    let said = |messages: Value| claude(messages);
    let cases = [
        (good.clone(), None),
        (changed("max_tokens", Value::Null), Some("max_tokens: Field required")),
        (changed("temperature", json!(1)), Some("temperature: Extra inputs are not permitted")),
        (changed("top_p", json!(1)), Some("top_p: Extra inputs are not permitted")),
        (changed("messages", json!([])), Some("at least one message is required")),
        (
            said(
                json!([user(json!("Hi")), {"role": "system", "content": "Now."}, user(json!("Hi"))]),
            ),
            Some("messages.1: role 'system' is not supported on this model"),
        ),
        (
            said(json!([user(json!("Hi")), assistant(json!("Well"))])),
            Some("This model does not support assistant message prefill."),
        ),
        (
            said(json!([user(json!([]))])),
            Some("messages.0: all messages must have non-empty content"),
        ),
        (said(json!([user(json!([text("")]))])), Some("text content blocks must be non-empty")),
        (
            said(json!([user(json!([text(" ")]))])),
            Some("text content blocks must contain non-whitespace text"),
        ),
        (
            said(json!([
                user(json!("Hi")),
                assistant(json!([used("a.b")])),
                user(json!([resulted("a.b")]))
            ])),
            Some("String should match pattern '^[a-zA-Z0-9_-]+$'"),
        ),
        // Calls and results.
        (
            said(json!([
                user(json!("Hi")),
                assistant(json!([used("a")])),
                user(json!([resulted("a")]))
            ])),
            None,
        ),
        (
            said(json!([
                user(json!("Hi")),
                assistant(json!([used("a"), used("b")])),
                user(json!([resulted("a")]))
            ])),
            Some(
                "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b.",
            ),
        ),
        (
            said(json!([
                user(json!("Hi")),
                assistant(json!([used("a"), used("b")])),
                user(json!([resulted("a")])),
                user(json!([resulted("b")])),
            ])),
            None,
        ),
        (
            said(json!([user(json!("Hi")), assistant(json!([used("a")])), user(json!("On"))])),
            Some("`tool_use` ids were found without `tool_result` blocks immediately after: a."),
        ),
        (
            said(json!([user(json!([resulted("a")]))])),
            Some("unexpected `tool_use_id` found in `tool_result` blocks: a."),
        ),
        (
            said(json!([
                user(json!("Hi")),
                assistant(json!([used("a")])),
                user(json!([resulted("a")])),
                assistant(json!([used("a")])),
                user(json!([resulted("a")])),
            ])),
            Some("`tool_use` ids must be unique"),
        ),
        // Marks: four are taken, five are not; the longer come first.
        (
            said(json!([user(json!([marked("5m"), marked("5m"), marked("5m"), marked("5m")]))])),
            None,
        ),
        (
            said(json!([user(json!([
                marked("5m"),
                marked("5m"),
                marked("5m"),
                marked("5m"),
                marked("5m")
            ]))])),
            Some("A maximum of 4 blocks with cache_control may be provided. Found 5."),
        ),
        (said(json!([user(json!([marked("1h"), marked("5m")]))])), None),
        (
            said(json!([user(json!([marked("5m"), marked("1h")]))])),
            Some(
                "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block.",
            ),
        ),
        // Thoughts.
        (
            said(json!([
                user(json!("Hi")),
                assistant(
                    json!([{"type": "thinking", "thinking": "", "signature": "made up"}, text("So.")])
                ),
                user(json!("On")),
            ])),
            Some("messages.1.content.0: Invalid `signature` in `thinking` block"),
        ),
        (
            said(json!([
                user(json!("Hi")),
                assistant(json!([{"type": "redacted_thinking", "data": "made up"}, text("So.")])),
                user(json!("On")),
            ])),
            Some("messages.1.content.0: Invalid `data` in `redacted_thinking` block"),
        ),
        (
            {
                let mut body = changed("thinking", json!({"type": "adaptive"}));
                body["tool_choice"] = json!({"type": "any"});
                body
            },
            Some("Thinking may not be enabled when tool_choice forces tool use."),
        ),
    ];
    for (body, refusal) in &cases {
        check(&model, Wire::Messages, body, *refusal).await;
    }
    let refused = cases.iter().filter(|(_, refusal)| refusal.is_some()).count();
    assert_eq!(model.rejections().len(), refused);
}

#[tokio::test]
async fn a_thought_on_messages_is_taken_after_exactly_what_it_was_given_out_after() {
    let model = strict().await;
    model.push(
        Reply::thought("Look.")
            .then_text("I look.")
            .then_redacted("hidden")
            .then_thought_signed("", "alone")
            .then_tool_call_as("a", "read", "{\"path\": \"x\", \"all\": true}"),
    );
    check(&model, Wire::Messages, &claude(json!([user(json!("Hi"))])), None).await;
    let signed = |text: &str, signature: &str| json!({"type": "thinking", "thinking": text, "signature": signature});
    let first = signature_of_first_thought(&model).await;
    let answer = assistant(json!([
        signed("Look.", &first),
        text("I look."),
        {"type": "redacted_thinking", "data": "hidden"},
        signed("", "alone"),
        {"type": "tool_use", "id": "a", "name": "read", "input": {"all": true, "path": "x"}},
    ]));
    let next = claude(json!([user(json!([text("Hi")])), answer, user(json!([resulted("a")]))]));
    check(&model, Wire::Messages, &next, None).await;

    let bound = "The block is bound to a different conversation.";
    let changes: [(&str, Value, &str); 5] = [
        ("/system", json!("Be long."), "messages.1.content.0: Invalid `signature`"),
        ("/tools/0/name", json!("write"), "messages.1.content.0: Invalid `signature`"),
        ("/messages/0/content/0/text", json!("Hi?"), "messages.1.content.0: Invalid `signature`"),
        ("/messages/1/content/1/text", json!("I looked."), "messages.1.content.2: Invalid `data`"),
        ("/messages/1/content/2/data", json!("other"), "messages.1.content.2: Invalid `data`"),
    ];
    for (place, value, refusal) in changes {
        let mut body = next.clone();
        let Some(changed) = body.pointer_mut(place) else { panic!("{place} is not there") };
        *changed = value;
        check(&model, Wire::Messages, &body, Some(refusal)).await;
        let told = model.rejections().pop().unwrap_or_default();
        assert_eq!(told.contains(bound), !place.ends_with("/data"), "{told}");
    }
    // A mark is no change, and what comes after a thought may change.
    let mut marked = next.clone();
    marked["messages"][0]["content"][0]["cache_control"] = mark("5m");
    marked["messages"][2]["content"][0]["content"] = json!("other text");
    check(&model, Wire::Messages, &marked, None).await;
}

/// Asks once more for the same thought and reads its signature.
async fn signature_of_first_thought(model: &ScriptedModel) -> String {
    model.push(Reply::thought("Look.").as_document());
    let answer = post(model, path(Wire::Messages), &claude(json!([user(json!("Hi"))]))).await;
    answer.document()["content"][0]["signature"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn thinking_that_is_switched_on_is_wanted_back_before_its_calls() {
    let model = strict().await;
    model.push(Reply::thought("Look.").then_tool_call_as("a", "read", "{}"));
    let mut body = claude(json!([user(json!("Hi"))]));
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    check(&model, Wire::Messages, &body, None).await;
    let without =
        json!([user(json!("Hi")), assistant(json!([used("a")])), user(json!([resulted("a")]))]);
    body["messages"] = without.clone();
    let refusal = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.";
    check(&model, Wire::Messages, &body, Some(refusal)).await;
    // Who lets the model decide may leave it out.
    body["thinking"] = json!({"type": "adaptive"});
    check(&model, Wire::Messages, &body, None).await;
}

#[tokio::test]
async fn an_answer_that_paused_may_stand_last() {
    let model = strict().await;
    model.push(Reply::text("Searching.").stop(StopSaid::Pause));
    check(&model, Wire::Messages, &claude(json!([user(json!("Hi"))])), None).await;
    let paused = |said: &str| claude(json!([user(json!("Hi")), assistant(json!([text(said)]))]));
    check(&model, Wire::Messages, &paused("Searching."), None).await;
    let refusal = "This model does not support assistant message prefill.";
    check(&model, Wire::Messages, &paused("Searched."), Some(refusal)).await;
}

fn chat(messages: Value) -> Value {
    json!({"model": "m", "stream": true, "messages": messages})
}

fn called(ids: &[&str]) -> Value {
    let call = |id: &&str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}});
    json!({"role": "assistant", "content": null, "tool_calls": ids.iter().map(call).collect::<Vec<_>>()})
}

fn told(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "text"})
}

#[tokio::test]
async fn chat_refuses_what_templates_and_openai_refuse() {
    let model = strict().await;
    let system = json!({"role": "system", "content": "Be brief."});
    let hi = user(json!("Hi"));
    let unanswered = "The following tool_call_ids did not have response messages: b";
    let cases = [
        (json!([system, hi]), None),
        (json!([system, system, hi]), Some("System message must be at the beginning.")),
        (json!([hi, system, hi]), Some("System message must be at the beginning.")),
        (json!([hi, called(&["a", "b"]), told("b"), told("a")]), None),
        (json!([hi, called(&["a", "b"]), told("a")]), Some(unanswered)),
        (json!([hi, called(&["a", "b"]), told("a"), hi]), Some(unanswered)),
        (
            json!([hi, told("a")]),
            Some("must be a response to a preceeding message with 'tool_calls'"),
        ),
        (
            json!([hi, called(&["a"]), told("a"), hi, told("a")]),
            Some("must be a response to a preceeding message with 'tool_calls'"),
        ),
    ];
    for (messages, refusal) in cases {
        check(&model, Wire::Chat, &chat(messages), refusal).await;
    }
}

#[tokio::test]
async fn chat_wants_the_thoughts_of_this_turn_back_under_their_name() {
    let refusal = "The `reasoning_content` in the thinking mode must be passed back to the API.";
    let fields = [
        (ThoughtField::ReasoningContent, true),
        (ThoughtField::BothNames, true),
        (ThoughtField::Reasoning, false),
        (ThoughtField::ReasoningDetails, false),
    ];
    for (field, is_wanted) in fields {
        let model = strict().await;
        model.push(Reply::thought("Hm.").then_tool_call_as("a", "read", "{}").thoughts_as(field));
        let hi = user(json!("Hi"));
        check(&model, Wire::Chat, &chat(json!([hi])), None).await;
        let without = chat(json!([hi, called(&["a"]), told("a")]));
        check(&model, Wire::Chat, &without, is_wanted.then_some(refusal)).await;
        let mut with = without.clone();
        with["messages"][1]["reasoning_content"] = json!("Hm.");
        check(&model, Wire::Chat, &with, None).await;
        let later = chat(json!([hi, called(&["a"]), told("a"), assistant(json!("So.")), hi]));
        check(&model, Wire::Chat, &later, None).await;
    }
}

#[tokio::test]
async fn responses_refuse_ids_and_loose_ends() {
    let model = strict().await;
    model.push(Reply::thought("Hm.").then_redacted("hidden").then_tool_call_as("a", "read", "{}"));
    let asked =
        |input: Value| json!({"model": "m", "stream": true, "store": false, "input": input});
    let hi = user(json!("Hi"));
    check(&model, Wire::Responses, &asked(json!("Hi")), None).await;
    let call = json!({"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": "text"});
    let reasoning =
        |content: &str| json!({"type": "reasoning", "summary": [], "encrypted_content": content});
    let with_id = json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "read", "arguments": "{}"});
    let cases = [
        (json!([hi, reasoning("hidden"), call, output]), None),
        (json!([hi, with_id, output]), Some("Item with id 'fc_1' not found.")),
        (json!([hi, output]), Some("No tool call found for function call output with call_id a.")),
        (json!([hi, call]), Some("No tool output found for function call a.")),
        (
            json!([hi, reasoning("made up"), call, output]),
            Some("The encrypted content could not be verified."),
        ),
        (
            json!([hi, reasoning("hidden"), hi]),
            Some("of type 'reasoning' was provided without its required following item."),
        ),
    ];
    for (input, refusal) in cases {
        check(&model, Wire::Responses, &asked(input), refusal).await;
    }
    let mut kept = asked(json!([hi, with_id, output]));
    kept["store"] = json!(true);
    check(&model, Wire::Responses, &kept, None).await;
    let made_up = asked(json!([hi, reasoning("made up"), call, output]));
    let answer = post(&model, path(Wire::Responses), &made_up).await;
    assert_eq!(answer.document()["error"]["code"], "invalid_encrypted_content");
}

#[tokio::test]
async fn google_wants_the_signature_of_the_first_call_of_each_step() {
    let model = strict().await;
    model.push(
        Reply::nothing()
            .then_thought_signed("Hm.", "c2lnbg==")
            .then_tool_call_as("a", "read", "{}")
            .then_tool_call_as("b", "read", "{}"),
    );
    let asked = |contents: Value| json!({"contents": contents});
    let hi = json!({"role": "user", "parts": [{"text": "Hi"}]});
    check(&model, Wire::GenerateContent, &asked(json!([hi])), None).await;
    let call = |id: &str, signature: Option<&str>| {
        let mut part = json!({"functionCall": {"name": "read", "args": {}, "id": id}});
        if let Some(signature) = signature {
            part["thoughtSignature"] = json!(signature);
        }
        part
    };
    let response = |id: &str| json!({"functionResponse": {"name": "read", "id": id, "response": {"output": "text"}}});
    let step = |calls: Value, responses: Value| {
        asked(json!([hi, {"role": "model", "parts": calls}, {"role": "user", "parts": responses}]))
    };
    let both = json!([response("a"), response("b")]);
    let missing = Some("Function call is missing a thought_signature in functionCall parts.");
    let skip = Some("skip_thought_signature_validator");
    let cases = [
        (step(json!([call("a", Some("c2lnbg==")), call("b", None)]), both.clone()), None),
        (step(json!([call("a", None), call("b", None)]), both.clone()), missing),
        (step(json!([call("a", None), call("b", Some("c2lnbg=="))]), both.clone()), missing),
        (step(json!([call("a", skip), call("b", None)]), both.clone()), None),
        (step(json!([call("foreign", skip)]), json!([response("foreign")])), None),
        (step(json!([call("foreign", None)]), json!([response("foreign")])), missing),
        (
            step(json!([call("a", Some("c2lnbg==")), call("b", Some("bWFkZQ=="))]), both),
            Some("Corrupted thought signature."),
        ),
        (
            step(json!([call("a", Some("c2lnbg==")), call("b", None)]), json!([response("a")])),
            Some(
                "the number of function response parts is equal to the number of function call parts",
            ),
        ),
    ];
    for (body, refusal) in &cases {
        check(&model, Wire::GenerateContent, body, *refusal).await;
    }
}

#[tokio::test]
async fn ollama_refuses_what_its_window_does_not_hold() {
    let model = strict().await;
    let body = |bytes: usize, truncate: Value| {
        let around = json!([user(json!(""))])[0].to_string().len() + ",".len();
        let text = "a".repeat(bytes - around);
        json!({"model": "m", "messages": [user(json!(text))], "options": {"num_ctx": 1000}, "truncate": truncate})
    };
    let refusal = "the input length exceeds the context length";
    check(&model, Wire::Ollama, &body(4000, json!(false)), None).await;
    check(&model, Wire::Ollama, &body(4001, json!(false)), Some(refusal)).await;
    check(&model, Wire::Ollama, &body(4001, json!(true)), None).await;
    check(&model, Wire::Ollama, &body(4001, Value::Null), None).await;
}

#[tokio::test]
async fn a_refusal_uses_up_no_reply_and_only_a_strict_model_refuses() {
    let model = ScriptedModel::start().await;
    let bad = claude(json!([user(json!("Hi")), assistant(json!("Well"))]));
    check(&model, Wire::Messages, &bad, None).await;
    model.strict();
    model.push(Reply::text("kept"));
    check(&model, Wire::Messages, &bad, Some("prefill")).await;
    let answer = post(&model, path(Wire::Messages), &claude(json!([user(json!("Hi"))]))).await;
    assert!(answer.body.contains("kept"));
    assert_eq!((model.request_count(), model.requests().len()), (3, 3));
}
