use std::sync::Arc;

use nexus_core::message::{Message, Meta, SharedMessage};
use nexus_core::model::ModelInfo;
use nexus_core::provider::Asker;

use super::*;

fn said(role: Role, text: &str) -> SharedMessage {
    Arc::new(Message::new(role, text, Meta::default()))
}

fn call(agent: &str) -> ModelCall {
    let asker = Asker { conversation: "c".into(), agent: agent.into(), ..Asker::default() };
    let model = Arc::new(ModelInfo::undescribed("p", "chat", "m"));
    ModelCall { asker, ..ModelCall::of(model, [said(Role::User, "x")]) }
}

/// Blocks of one letter each, `|` before those of the last turn.
fn blocks(letters: &str) -> Blocks {
    let turn = letters.find('|').unwrap();
    let mut hash = FixedState::default().build_hasher();
    let ends = letters.bytes().filter(|it| *it != b'|').map(|letter| {
        hash.write(&[letter]);
        hash.finish()
    });
    Blocks { ends: ends.collect(), turn, asked: 0 }
}

#[track_caller]
fn check(requests: &[(&str, bool)]) {
    let (prefixes, call) = (Prefixes::default(), call("a"));
    for (request, expected) in requests {
        let kept = prefixes.is_kept(&call, &blocks(request));
        assert_eq!(kept, *expected, "{request} in {requests:?}");
    }
}

#[test]
fn a_conversation_grows_at_its_end() {
    check(&[("|a", true), ("|abc", true), ("abcd|e", true), ("abcd|efg", true)]);
}

#[test]
fn what_was_not_answered_may_be_left_out() {
    check(&[("|a", true), ("|b", true), ("bc|d", true), ("bc|e", true), ("bce|f", true)]);
    // With all that came of it.
    check(&[("ab|c", true), ("ab|cdef", true), ("ab|g", true)]);
}

#[test]
fn what_no_later_call_says_again_is_compared_and_forgotten() {
    let (prefixes, call) = (Prefixes::default(), call("a"));
    let summary = ModelCall { recurs: Recurs::Beginning, ..call.clone() };
    let kept = |call: &ModelCall, request: &str| prefixes.is_kept(call, &blocks(request));
    assert!(kept(&summary, "|xy"), "it is the first");
    assert!(kept(&call, "ab|cd"));
    // What is asked for at its end is no turn of its own.
    assert!(kept(&summary, "ab|cdes"));
    assert!(kept(&call, "ab|cdef"));
    assert!(!kept(&summary, "ab|cxs"));
    assert!(kept(&call, "ab|cdefg"));
}

#[test]
fn a_block_that_is_kept_must_not_change() {
    check(&[("|ab", true), ("|ac", false)]);
    check(&[("ab|cd", true), ("ab|ce", false)]);
    check(&[("ab|cd", true), ("ab|c", false)]);
    check(&[("ab|c", true), ("xb|c", false), ("xb|cde", true)]);
    check(&[("ab|cd", true), ("xbcd|e", false)]);
    check(&[("ab|cd", true), ("a|e", false)]);
}

#[test]
fn another_epoch_begins_anew() {
    let base = call("a");
    let prompt = ModelCall { system: "other".into(), ..base.clone() };
    let earlier = ModelCall { earlier: 1, ..base.clone() };
    let summary =
        ModelCall { messages: [said(Role::Summary, "s")].into_iter().collect(), ..base.clone() };
    let model = Arc::new(ModelInfo::undescribed("p", "chat", "n"));
    for other in [prompt, earlier, summary, ModelCall { model, ..base.clone() }] {
        let prefixes = Prefixes::default();
        assert!(prefixes.is_kept(&base, &blocks("|ab")));
        assert!(prefixes.is_kept(&other, &blocks("|xy")));
        assert!(!prefixes.is_kept(&other, &blocks("|xz")));
    }
}

#[test]
fn conversations_do_not_meet() {
    let prefixes = Prefixes::default();
    let mut born_anew = call("a");
    born_anew.asker.born = 7;
    let alone = ModelCall { recurs: Recurs::Nothing, ..call("a") };
    for other in [call("a"), call("b"), born_anew, alone] {
        assert!(prefixes.is_kept(&other, &blocks("|ab")));
    }
    // Nobody's conversation, such as a bare model's.
    let nobody = ModelCall { asker: Asker::default(), ..call("a") };
    assert!(prefixes.is_kept(&nobody, &blocks("|ab")) && prefixes.is_kept(&nobody, &blocks("|ac")));
    assert!(!prefixes.is_kept(&call("b"), &blocks("|ac")));
}

#[test]
fn many_are_kept_in_mind_and_not_more() {
    let prefixes = Prefixes::default();
    for number in 0..3 * CONVERSATIONS_MAX {
        assert!(prefixes.is_kept(&call(&number.to_string()), &blocks("|ab")));
    }
    let known = prefixes.0.lock().unwrap();
    assert!(known.now.len() + known.earlier.len() <= CONVERSATIONS_MAX);
    drop(known);
    assert!(!prefixes.is_kept(&call(&(3 * CONVERSATIONS_MAX - 1).to_string()), &blocks("|ac")));
    assert!(prefixes.is_kept(&call("0"), &blocks("|ac")));
}
