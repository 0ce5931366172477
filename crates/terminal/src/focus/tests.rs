//! Whoever types answers nothing, whatever appears.

use proptest::prelude::*;

use super::*;
use crate::app::asked_on;

fn at(start: Instant, milliseconds: u64) -> Instant {
    start + Duration::from_millis(milliseconds)
}

/// A question that stands on the screen since `seen`.
fn asked(start: Instant, seen: u64) -> Focus {
    let mut focus = Focus::default();
    assert!(!focus.takes_key(start));
    focus.drawn(at(start, seen), true);
    focus
}

#[test]
fn a_question_waits_for_quiet_and_then_a_moment_more() {
    let start = Instant::now();
    let mut focus = asked(start, 100);
    // Seen at 100: the last thing that happened.
    assert_eq!(focus.look(at(start, 599), Caller::Other, true), Some(at(start, 600)));
    assert_eq!(focus.look(at(start, 600), Caller::Other, true), None);
    assert!(focus.has());
    let mut too_soon = asked(start, 100);
    too_soon.look(at(start, 600), Caller::Other, true);
    assert!(!too_soon.takes_key(at(start, 1_099)));
    assert!(!too_soon.has());
    assert!(focus.takes_key(at(start, 1_100)));
}

#[test]
fn what_the_person_called_for_has_the_keys_when_it_was_there_for_a_moment() {
    let start = Instant::now();
    let mut focus = asked(start, 100);
    assert_eq!(focus.look(at(start, 100), Caller::Person, true), None);
    assert!(focus.takes_key(at(start, 600)));
    let mut too_soon = asked(start, 100);
    too_soon.look(at(start, 100), Caller::Person, true);
    assert!(!too_soon.takes_key(at(start, 599)));
    // From then on it is as with any other.
    assert_eq!(too_soon.look(at(start, 600), Caller::Person, true), Some(at(start, 1_099)));
    too_soon.look(at(start, 1_099), Caller::Person, true);
    assert!(too_soon.takes_key(at(start, 1_599)));
}

#[test]
fn text_in_the_input_keeps_the_keys_there() {
    let start = Instant::now();
    let mut focus = asked(start, 0);
    focus.look(at(start, 10_000), Caller::Other, false);
    assert!(!focus.has());
    focus.turn_to(at(start, 10_000));
    assert!(!focus.takes_key(at(start, 10_100)));
    focus.turn_to(at(start, 11_000));
    assert!(focus.takes_key(at(start, 11_500)));
    focus.leave();
    focus.look(at(start, 99_000), Caller::Other, true);
    assert!(!focus.has());
}

#[test]
fn what_is_not_on_the_screen_is_not_answered() {
    let start = Instant::now();
    let mut focus = Focus::default();
    assert_eq!(focus.look(at(start, 9_000), Caller::Person, true), None);
    focus.turn_to(at(start, 9_000));
    assert!(!focus.takes_key(at(start, 20_000)));
    // It stood there, and then the window got small.
    let mut focus = asked(start, 0);
    focus.look(at(start, 5_000), Caller::Other, true);
    focus.drawn(at(start, 6_000), false);
    assert!(!focus.takes_key(at(start, 20_000)));
}

/// What happens between two keys.
#[derive(Clone, Debug)]
struct Step {
    gap: u64,
    is_input_empty: bool,
    /// Another question takes the place of whatever stands there.
    appears: bool,
    resizes: Option<(usize, usize)>,
}

fn steps(gap_max: u64) -> impl Strategy<Value = Vec<Step>> {
    let size = (1_usize..12, 1_usize..48);
    let step = (0..gap_max, any::<bool>(), any::<bool>(), proptest::option::of(size));
    let step = step.prop_map(|(gap, is_input_empty, appears, resizes)| Step {
        gap,
        is_input_empty,
        appears,
        resizes,
    });
    proptest::collection::vec(step, 1..100)
}

/// Types as the steps say; the loop draws and looks at every moment between two keys. For each key, whether it was the
/// question's, and the size of the screen.
fn typed(caller: Caller, steps: Vec<Step>) -> Vec<(bool, (usize, usize))> {
    let (start, mut now) = (Instant::now(), 0);
    let (mut focus, mut size, mut is_asked) = (Focus::default(), (24, 80), false);
    let mut is_seen = true;
    focus.takes_key(start);
    let mut taken = Vec::new();
    for step in steps {
        let (half, end) = (now + step.gap / 2, now + step.gap);
        for moment in now..end {
            if moment == half {
                is_asked |= step.appears;
                if step.appears {
                    focus.forget();
                }
                if let Some(changed) = step.resizes {
                    size = changed;
                    is_seen = asked_on(size.0, size.1).1;
                    focus.unseen();
                }
            }
            if moment % 7 == 0 {
                focus.drawn(at(start, moment), is_asked && is_seen);
                focus.look(at(start, moment), caller, step.is_input_empty);
            }
        }
        now = end;
        taken.push((focus.takes_key(at(start, now)), size));
    }
    taken
}

proptest! {
    /// Whoever types at a person's pace, with pauses shorter than twice the quiet, answers nothing that somebody else asks
    /// at whatever moment, on a screen of whatever size.
    #[test]
    fn typing_answers_nothing(steps in steps(2 * QUIET.as_millis() as u64)) {
        prop_assert!(typed(Caller::Other, steps).iter().all(|(is_taken, _)| !is_taken));
    }

    /// And with pauses shorter than that, nothing that a command of his own asks.
    #[test]
    fn typing_answers_nothing_that_a_command_asks(steps in steps(QUIET.as_millis() as u64)) {
        prop_assert!(typed(Caller::Person, steps).iter().all(|(is_taken, _)| !is_taken));
    }

    /// However long somebody waits: a question is not answered where nothing of it stands on the screen.
    #[test]
    fn nothing_is_answered_that_cannot_be_seen(steps in steps(3_000)) {
        for caller in [Caller::Other, Caller::Person] {
            for (is_taken, (rows, columns)) in typed(caller, steps.clone()) {
                let drawn = || asked_on(rows, columns).0;
                prop_assert!(!is_taken || drawn().iter().any(|row| row.starts_with("│ T")));
            }
        }
    }
}
