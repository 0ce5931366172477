//! Whole bodies as golden text: other programs parse them.

use nexus_core::provider::{Asker, ToolSpec};

use super::*;

#[test]
fn a_whole_conversation_for_openai() {
    let golden = include_str!("../../tests/golden/responses.json");
    check(Wire::Responses, golden);
}

#[test]
fn a_whole_conversation_for_gemini() {
    let golden = include_str!("../../tests/golden/generate_content.json");
    check(Wire::GenerateContent, golden);
}

#[test]
fn a_whole_conversation_for_ollama() {
    let golden = include_str!("../../tests/golden/ollama.json");
    check(Wire::Ollama, golden);
}

/// Compares text, so that the order of the fields counts as well.
#[track_caller]
fn check(wire: Wire, golden: &str) {
    let body = body(wire, &conversation(wire));
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let golden: Value = serde_json::from_str(golden).unwrap();
    assert_eq!(pretty(&body), pretty(&golden), "\n{}", pretty(&body));
}

/// A member that a configuration may write as well would stand there twice.
#[test]
fn what_says_nothing_is_not_said_again() {
    for wire in WIRES {
        let blank = || own(wire, vec![thought("Hm.", Value::Null), Part::text(" \n")]);
        let called = own(wire, vec![Part::text("\n\n"), calls("c", "exec<|channel|>json")]);
        let messages = [user("Hi"), blank(), user("Well?"), called, result("c", "\n")];
        let call = ModelCall { system: " ".into(), ..call(wire, messages) };
        let sent = body(wire, &call).to_string();
        assert!(!sent.contains(r#"" \n""#), "{wire:?}: {sent}");
        assert!(sent.contains("(nothing)"), "{wire:?}: {sent}");
        // A name that services refuse would be refused with each later request.
        assert!(sent.contains("exec__channel__json") && !sent.contains("<|"), "{wire:?}: {sent}");
        if wire == Wire::Messages {
            assert_eq!(body(wire, &call).get("system"), None);
        }
    }
}

#[test]
fn no_member_is_written_that_a_configuration_may_write() {
    for wire in WIRES {
        let schema = Some(Arc::new(json!({"type": "object"})));
        for tools in [conversation(wire).tools, Arc::default()] {
            let call = ModelCall { schema: schema.clone(), tools, ..conversation(wire) };
            for name in body(wire, &call).as_object().unwrap().keys() {
                assert!(wire.own_members().contains(&name.as_str()), "{wire:?} {name}");
            }
        }
    }
}

/// Everything a conversation can hold, stopped in the middle of a tool loop.
pub(super) fn conversation(wire: Wire) -> ModelCall {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        parameters: r#"{"type":"object","properties":{"path":{"type":"string"}}}"#.into(),
    };
    let asked = |time: &str, text: &str| {
        let parts = vec![Part::Context(time.to_owned()), Part::text(text)];
        Arc::new(Message::of_parts(Role::User, parts, Meta::default()))
    };
    let wrong = Part::Call(ToolCall::new("call.2", "read_file", json!("{\"path\":")));
    let cut = Part::Call(ToolCall { cut: Some(11), ..ToolCall::new("call_4", "list", json!({})) });
    let failed = Message::tool_result("call.2", "", Meta { failed: true, ..Meta::default() });
    let call = ModelCall {
        tools: Arc::new([tool("list"), tool("read_file")]),
        system: "You are terse.".into(),
        max_tokens: Some(500),
        asker: Asker { conversation: "0f".repeat(16).into(), ..Asker::default() },
        ..call(
            wire,
            [
                Arc::new(Message::new(Role::Summary, "They said hello.", Meta::default())),
                asked("It is dawn.", "Read \"a\" and b."),
                own(
                    Wire::Messages,
                    vec![
                        thought("Hm.", json!({"signature": "x"})),
                        calls("call_1", "read_file"),
                        wrong,
                    ],
                ),
                result("call_1", "text of a\n"),
                Arc::new(failed),
                own(Wire::Messages, vec![Part::text("Done: é.")]),
                asked("It is noon.", "Again."),
                own(wire, vec![]),
                own(wire, [step_of(wire), vec![calls("call_3", "read_file"), cut]].concat()),
                result("call_3", "same"),
                result("call_4", "It was cut."),
            ],
        )
    };
    thinking(call, ThinkingKind::Effort, effort(Effort::High))
}

/// What the model itself said, as its wire keeps it.
fn step_of(wire: Wire) -> Vec<Part> {
    let reasoning = json!({"reasoning": {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Same?"}], "encrypted_content": "gAAA"}});
    match wire {
        Wire::Responses => vec![
            thought("Same?", reasoning),
            thought("", json!({"phase": "commentary"})),
            Part::text("Yes."),
        ],
        Wire::GenerateContent => vec![
            thought("Same?", Value::Null),
            Part::text("Y"),
            thought("", json!({"signature": "c2lnbjE=", "on": "text"})),
            Part::text("es."),
            thought("", json!({"signature": "c2lnbjI=", "on": "call"})),
        ],
        _ => vec![thought("Same?", Value::Null), Part::text("Yes.")],
    }
}
