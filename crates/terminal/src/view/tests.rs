//! What happens is told as the server tells it, and every line is printed once.

use nexus_protocol::watch::Happened;
use serde_json::{Value, json};

use super::*;
use crate::code::Theme;
use crate::markdown::Wrap;

/// The lines that are finished after all of this happened in one turn.
fn check(events: &[Value], expected: &[&str]) {
    let look = Look { width: 80, wrap: Wrap::Word, theme: Theme::Mono };
    let mut view = View::new("api".into(), Settings::default(), look);
    let mut lines = Vec::new();
    for event in events {
        let happened = json!({"agent_id": "api", "request_id": "r1", "at": "", "event": event});
        let happened: Happened = serde_json::from_value(happened).unwrap();
        lines.extend(view.happened(happened));
    }
    let lines: Vec<_> = lines.iter().map(Line::text).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, expected);
}

fn started() -> Value {
    json!({"type": "turn_started", "content": "fix it", "resumed": false, "model": null})
}

fn delta(step: u32, offset: u64, text: &str) -> Value {
    json!({"type": "delta", "step": step, "offset": offset, "text": text})
}

fn call() -> Value {
    json!({"id": "call_7f3a", "name": "read_file", "arguments": {"path": "a.py"}})
}

fn told_call() -> Value {
    let mut event = call();
    event["type"] = "tool_call".into();
    event
}

fn answer(index: u64, content: &str, calls: &[Value]) -> Value {
    let message = json!({
        "index": index, "role": "assistant", "content": content, "tool_calls": calls,
        "meta": {"request_id": "r1", "at": ""},
    });
    json!({"type": "message", "index": index, "message": message})
}

#[test]
fn how_far_a_call_is_stands_where_its_output_does() {
    let look = Look { width: 80, wrap: Wrap::Word, theme: Theme::Mono };
    let mut view = View::new("api".into(), Settings::default(), look);
    let progress = |progress: Value| {
        let mut event = json!({"type": "tool_progress", "id": "call_7f3a"});
        event.as_object_mut().unwrap().extend(progress.as_object().unwrap().clone());
        event
    };
    for event in [
        started(),
        told_call(),
        progress(json!({"progress": 3, "total": 20, "message": "tests"})),
        progress(json!({"progress": 0.5})),
    ] {
        let happened = json!({"agent_id": "api", "request_id": "r1", "at": "", "event": event});
        view.happened(serde_json::from_value(happened).unwrap());
    }
    let open: Vec<_> = view.open().iter().map(Line::text).collect();
    assert_eq!(open, ["  3/20 tests", "  0.5"]);
}

const CALLED: &str = "● read_file  a.py   [7f3a]";

#[test]
fn text_before_a_call_is_printed_once_whichever_way_it_is_told() {
    let expected = ["you> fix it", "I look.", CALLED, "Done."];
    let rest = [delta(2, 0, "Done."), answer(2, "Done.", &[])];
    let message = answer(1, "I look.", &[call()]);
    let ways = [
        vec![delta(1, 0, "I look."), told_call(), message.clone()],
        vec![delta(1, 0, "I lo"), delta(1, 4, "ok."), message.clone(), told_call()],
        vec![message],
    ];
    for way in ways {
        let events: Vec<_> = [started()].into_iter().chain(way).chain(rest.clone()).collect();
        check(&events, &expected);
    }
}

#[test]
fn what_did_not_come_as_it_was_said_comes_with_the_message() {
    let events = [started(), delta(1, 0, "One.\n\n"), answer(1, "One.\n\nTwo.", &[])];
    check(&events, &["you> fix it", "One.", "Two."]);
}

/// How things stand when a watch begins again: so many messages, and this of the turn that runs.
fn stands(messages: u64, turns: Value) -> Value {
    let agent = crate::testing::agent("api", json!({"message_count": messages, "turns": turns}));
    json!({"type": "snapshot", "agents": [agent], "approvals": [], "watchers": [], "more": false})
}

#[test]
fn a_turn_that_ended_while_the_reader_was_too_slow_is_printed_to_its_end() {
    let events = [
        started(),
        delta(1, 0, "One.\n\nTw"),
        stands(2, json!([])),
        answer(1, "One.\n\nTwo.\n\nThree.", &[]),
    ];
    let end = "─ 0.0 s · its end was not seen";
    check(&events, &["you> fix it", "One.", "Two.", "Three.", end]);
}

#[test]
fn what_was_missed_in_the_middle_is_printed_before_what_came_after_it() {
    let events = [
        started(),
        delta(1, 0, "One.\n\n"),
        delta(1, 12, "Three.\n\n"),
        delta(1, 20, "Four."),
        answer(1, "One.\n\nTwo.\n\nThree.\n\nFour.", &[]),
        delta(2, 0, "Five.\n\n"),
    ];
    check(&events, &["you> fix it", "One.", "Two.", "Three.", "Four.", "Five."]);
}

/// What is read of a turn by somebody who comes in the middle of it: what its messages said, then how it stands.
#[test]
fn who_comes_in_the_middle_of_a_turn_reads_each_text_once() {
    let look = Look { width: 80, wrap: Wrap::Word, theme: Theme::Mono };
    let lines_of = |text: &str, open: &[Value], step: u32| {
        let mut view = View::new("api".into(), Settings::default(), look);
        let mut lines = Vec::new();
        let message = answer(1, "I look.", &[call()])["message"].clone();
        view.message(1, serde_json::from_value(message).unwrap(), &mut lines);
        let running = json!([{
            "request_id": "r1", "status": "running", "content": "fix it", "started_at": "",
            "text": format!("I look.{text}"), "step": step, "open_calls": open,
            "offset": if text.is_empty() { 7 } else { text.len() },
        }]);
        let ended = json!({"type": "turn_ended", "status": "done", "message_count": 4,
            "duration_ms": 0, "usage": {"input": 0, "cache_read": 0, "cache_write": 0, "output": 0, "reasoning": 0}, "cost_usd": null});
        for event in [stands(2, running), ended] {
            let happened = json!({"agent_id": "api", "request_id": "r1", "at": "", "event": event});
            lines.extend(view.happened(serde_json::from_value(happened).unwrap()));
        }
        let lines = lines.iter().map(Line::text).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>()
    };
    let told = ["I look.", CALLED, "you> fix it"];
    let end = "─ 0.0 s · 1 tool";
    for open in [&[call()][..], &[]] {
        assert_eq!(lines_of("", open, 1), [&told[..], &[end]].concat(), "{open:?}");
    }
    assert_eq!(lines_of("Done.", &[], 2), [&told[..], &["Done.", end]].concat());
}

#[test]
fn a_compaction_has_no_end_beside_what_it_says() {
    let turn = |source: &str, content: &str| json!({"type": "turn_started", "content": content, "source": source, "resumed": false, "model": null});
    let compacted = json!({"type": "compacted", "tokens_before": 85_000, "tokens_after": 25_000});
    let ended = json!({
        "type": "turn_ended", "status": "done", "message_count": 3, "duration_ms": 0, "cost_usd": null,
        "usage": {"input": 0, "cache_read": 0, "cache_write": 0, "output": 0, "reasoning": 0},
    });
    let said = "Compacted: 85,000 -> 25,000 tokens";
    check(&[turn("compact", ""), compacted.clone(), ended.clone()], &[said]);
    let asked = turn("compact", "hello");
    check(&[asked, compacted, ended], &["▶ from compact: hello", said, "─ 0.0 s"]);
}

#[test]
fn a_call_that_waits_for_leave_says_so_once() {
    let asked = |agent: &str, kind: &str| {
        json!({"type": "approval_requested", "approval": {
            "approval_id": "appr_1", "agent_id": agent, "kind": kind, "tool": "read_file",
            "arguments": {}, "reason": "", "created_at": "", "status": "pending",
        }})
    };
    let events = [
        started(),
        told_call(),
        asked("api", "call"),
        asked("worker", "call"),
        asked("api", "elicitation"),
    ];
    check(&events, &["you> fix it", "● read_file  a.py   [7f3a]", "? waits for approval"]);
}

#[test]
fn what_is_said_after_another_theme_has_its_colours() {
    let look = |theme| Look { width: 80, wrap: Wrap::Word, theme };
    let mut view = View::new("api".into(), Settings::default(), look(Theme::Mono));
    let code = || "```rust\nlet a = \"x\";\n```\n";
    let coloured = |view: &mut View| {
        // The thread that colours knows the language from some time on; what comes before is plain.
        (0..4_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let lines = [view.text.push(code()), view.text.finish()].concat();
            lines.iter().flat_map(|line| &line.spans).any(|span| span.style.colour.is_some())
        })
    };
    view.look_as(look(Theme::Ansi));
    assert!(coloured(&mut view));
}
