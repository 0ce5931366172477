//! What the messages of Anthropic have of their own: blocks of kinds that nobody here knows.

use super::*;

/// A block that comes in pieces, then a text.
fn in_pieces(block: Value, deltas: &[Value]) -> Vec<Value> {
    let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
    let deltas = deltas
        .iter()
        .map(|delta| json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    let rest = [
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "So."}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ];
    [start].into_iter().chain(deltas).chain(rest).collect()
}

#[test]
fn a_block_of_an_unknown_kind_goes_back_whole() {
    let call = |input: Value| json!({"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": input});
    let text = |text: &str| json!({"type": "text_delta", "text": text});
    let input = |json: &str| json!({"type": "input_json_delta", "partial_json": json});
    for (begun, deltas, whole) in [
        (
            call(json!({})),
            vec![input(""), input("{\"a\": [1,"), input(" 2]}")],
            call(json!({"a": [1, 2]})),
        ),
        (call(json!({"a": 1})), vec![], call(json!({"a": 1}))),
        (
            json!({"type": "new", "text": "O"}),
            vec![text("ne, "), text("two.")],
            json!({"type": "new", "text": "One, two."}),
        ),
        (
            json!({"type": "new", "text": null}),
            vec![text("One."), json!({"type": "signature_delta", "signature": "c2ln"})],
            json!({"type": "new", "text": "One.", "signature": "c2ln"}),
        ),
    ] {
        let heard = hear(Wire::Messages, &in_pieces(begun, &deltas));
        assert_eq!(heard.text, "So.", "it is no part of what is said");
        let answer = heard.answer();
        assert!(answer.parts.iter().all(|part| !matches!(part, Part::Call(_))), "none of ours");
        let back = &sent_back(Wire::Messages, answer)[0]["content"];
        assert_eq!(back[0], whole);
        assert_eq!(back[1]["text"], "So.");
    }
}

#[test]
fn an_unknown_block_whose_end_is_missing_is_left_out() {
    let block = json!({"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "input": {}});
    let cut = json!({"type": "input_json_delta", "partial_json": "{\"a\": "});
    let answer = hear(Wire::Messages, &in_pieces(block, &[cut])).answer();
    assert_eq!(answer.parts, [Part::text("So.")]);
}

#[test]
fn an_unknown_block_that_holds_more_than_is_read_is_left_out() {
    // As many values as the arguments of a call may hold, and one more.
    for (values, parts) in [(64 * 1024, 2), (64 * 1024 + 1, 1)] {
        let list = |values: usize| format!("[{}]", vec!["0"; values - 1].join(","));
        let input = json!({"type": "input_json_delta", "partial_json": list(values)});
        let later = in_pieces(json!({"type": "new", "input": {}}), &[input]);
        // Its name and its list are one each.
        let held: Value = serde_json::from_str(&list(values - 2)).unwrap();
        let text = json!({"type": "text_delta", "text": "x"});
        let at_once = in_pieces(json!({"type": "new", "input": held}), &[text]);
        for events in [later, at_once] {
            let answer = hear(Wire::Messages, &events).answer();
            assert_eq!(answer.parts.len(), parts, "{values}");
            assert_eq!(answer.parts.last(), Some(&Part::text("So.")));
        }
    }
}

#[test]
fn what_is_held_back_counts_before_it_is_whole() {
    let events = [
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "new"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"text": "abc", "partial_json": "{}"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "thinking", "thinking": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"signature": "abcd"}}),
    ];
    let (mut answer, mut heard) = (wires::messages::Answer::default(), Heard::default());
    let mut bytes = Vec::new();
    for event in &events {
        assert!(answer.event(event.to_string().as_bytes(), &mut heard).is_ok());
        bytes.push(heard.bytes());
    }
    let block = json!({"raw": {"type": "new", "text": "abc", "input": {}}}).to_string().len();
    assert_eq!(bytes, [0, 5, block, block + 4]);
}
