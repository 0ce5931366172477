//! Streams in any pieces, whole or damaged.

use proptest::prelude::*;

use super::*;

/// A step with thoughts, text, and calls, in letters of more than one byte.
fn sample(wire: Wire) -> Vec<u8> {
    let events = match wire {
        Wire::Responses => vec![
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs"}}),
            json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hmm 🦀"}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": {
                "type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hmm 🦀"}], "encrypted_content": "e"}}),
            json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "phase": "commentary"}}),
            json!({"type": "response.output_text.delta", "output_index": 1, "delta": "Grüße\n"}),
            json!({"type": "response.output_text.delta", "output_index": 1, "delta": "日本"}),
            json!({"type": "response.output_item.added", "output_index": 2, "item": {
                "type": "function_call", "call_id": "c", "name": "f", "arguments": ""}}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"a\":"}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "\"é\"}"}),
            json!({"type": "response.completed", "response": {"output": [], "usage": {"input_tokens": 3, "output_tokens": 4}}}),
        ],
        Wire::GenerateContent => vec![
            json!({"candidates": [{"content": {"parts": [{"text": "Hmm 🦀", "thought": true}]}}]}),
            json!({"candidates": [{"content": {"parts": [{"text": "Grüße\n"}, {"text": "日本", "thoughtSignature": "s"}]}}]}),
            json!({"candidates": [{"content": {"parts": [
                {"functionCall": {"id": "c", "name": "f", "args": {"a": "é"}}, "thoughtSignature": "t"}]}}]}),
            json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}}),
        ],
        Wire::Messages => vec![
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hmm 🦀"}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "ping"}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Grüße\n"}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "日本"}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "c", "name": "f", "input": {}}}),
            json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":"}}),
            json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "\"é\"}"}}),
            json!({"type": "content_block_stop", "index": 2}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}}),
            json!({"type": "message_stop"}),
        ],
        Wire::Chat => vec![
            json!({"choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "Hmm 🦀"}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": "Grüße\n"}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": "日本"}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":"}}]}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "\"é\"}"}}]}}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
        ],
        Wire::Ollama => vec![
            json!({"message": {"content": "", "thinking": "Hmm 🦀"}, "done": false}),
            json!({"message": {"content": "Grüße\n"}, "done": false}),
            json!({"message": {"content": "日本"}, "done": false}),
            json!({"message": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": "é"}}}]}, "done": false}),
            json!({"done": true, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4}),
        ],
    };
    stream(wire, &events)
}

/// The bytes cut at these places.
fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

#[test]
fn the_samples_say_something() {
    for wire in WIRES {
        let read = read(wire, [&*sample(wire)]);
        assert_eq!((&*read.text, &*read.thoughts), ("Grüße\n日本", "Hmm 🦀"), "{wire:?}");
        let answer = read.answer();
        assert_eq!((answer.usage.input, answer.usage.output), (3, 4), "{wire:?}");
        let call = Part::Call(ToolCall::new("c", "f", json!({"a": "é"})));
        assert_eq!(answer.parts.last(), Some(&call), "{wire:?}");
    }
}

proptest! {
    #[test]
    fn any_split_reads_alike(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        for wire in WIRES {
            let bytes = sample(wire);
            prop_assert_eq!(read(wire, pieces(&bytes, &cuts)), read(wire, [&*bytes]));
        }
    }

    /// The ids of calls that have lost theirs are made up, so only the rest is compared.
    #[test]
    fn damage_is_an_error_or_an_answer_and_reads_alike_too(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
    ) {
        for wire in WIRES {
            let mut bytes = sample(wire);
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes.truncate(end.index(bytes.len()) + 1);
            let (whole, split) = (read(wire, [&*bytes]), read(wire, pieces(&bytes, &cuts)));
            prop_assert_eq!((&whole.text, &whole.thoughts), (&split.text, &split.thoughts));
            let ok = |read: &Read| read.end.as_ref().unwrap().is_ok();
            prop_assert_eq!(ok(&whole), ok(&split));
        }
    }
}

/// A reader that goes down with each bracket would end the process.
#[test]
fn deep_json_is_an_error_or_passed_over() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for wire in WIRES {
        for event in [deep.clone(), format!("{{\"new\": {deep}}}")] {
            let framed = match wire {
                Wire::Ollama => format!("{event}\n"),
                _ => format!("data: {event}\n\n"),
            };
            let bytes = [framed.into_bytes(), sample(wire)].concat();
            let read = read(wire, [&*bytes]);
            // A member that nobody asks for is passed over without a look at what is in it.
            let expected = if read.end.unwrap().is_ok() { "Grüße\n日本" } else { "" };
            assert_eq!(read.text, expected, "{wire:?}");
            assert!(expected.is_empty() || event.starts_with('{'), "{wire:?}");
        }
    }
}

#[test]
fn broken_letters_are_an_error_and_what_came_before_stands() {
    for wire in WIRES {
        let mut bytes = sample(wire);
        let letter = "日".as_bytes();
        let at = bytes.windows(letter.len()).position(|window| window == letter).unwrap();
        bytes[at] = 0xff;
        let read = read(wire, [&*bytes]);
        assert!(read.end.unwrap().is_err(), "{wire:?}");
        // One wire has both texts in one event.
        let before = if wire == Wire::GenerateContent { "" } else { "Grüße\n" };
        assert_eq!((&*read.text, &*read.thoughts), (before, "Hmm 🦀"), "{wire:?}");
    }
}
