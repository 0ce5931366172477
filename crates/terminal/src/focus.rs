//! Who gets a key: the input, or a question that appeared while somebody typed. A question takes no key that was meant for
//! the input.

use std::time::{Duration, Instant};

/// So long nothing is typed before a question gets the keys, and so long they are still the input's after that.
pub const QUIET: Duration = Duration::from_millis(500);

/// Whether a question that stands on the screen has the keys.
#[derive(Default)]
pub struct Focus {
    /// When the last key came.
    key: Option<Instant>,
    /// Since when the question has them.
    since: Option<Instant>,
    /// The person turned away from it, and has to turn to it again.
    is_left: bool,
}

impl Focus {
    /// Looks whether the question gets the keys now, being asked since `asked`. Returns when to look again.
    pub fn look(&mut self, now: Instant, asked: Instant, is_input_empty: bool) -> Option<Instant> {
        if self.since.is_some() || self.is_left || !is_input_empty {
            return None;
        }
        let quiet = self.key.map_or(asked, |key| key.max(asked)) + QUIET;
        if now < quiet {
            return Some(quiet);
        }
        self.since = Some(now);
        None
    }

    /// The person asked for it: Shift-Tab.
    pub fn turn_to(&mut self, now: Instant) {
        self.since = Some(now);
        self.is_left = false;
        self.key = Some(now);
    }

    /// Back to the input, unanswered: it stays there until somebody turns to it.
    pub fn leave(&mut self) {
        self.since = None;
        self.is_left = true;
    }

    pub fn has(&self) -> bool {
        self.since.is_some()
    }

    /// Whether a key that comes now is the question's. One that comes too soon is the input's, and takes the focus back.
    pub fn takes_key(&mut self, now: Instant) -> bool {
        self.key = Some(now);
        match self.since {
            Some(since) if now >= since + QUIET => true,
            _ => {
                self.since = None;
                false
            }
        }
    }

    /// The question is gone, or another one stands there.
    pub fn forget(&mut self) {
        self.since = None;
        self.is_left = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_question_waits_for_quiet_and_then_a_moment_more() {
        let start = Instant::now();
        let mut focus = Focus::default();
        assert!(!focus.takes_key(at(start, 0)));
        // Asked at 100: the last thing that happened.
        assert_eq!(focus.look(at(start, 599), at(start, 100), true), Some(at(start, 600)));
        assert_eq!(focus.look(at(start, 600), at(start, 100), true), None);
        assert!(focus.has());
        let mut too_soon = Focus { ..Focus::default() };
        too_soon.look(at(start, 600), at(start, 100), true);
        assert!(!too_soon.takes_key(at(start, 1_099)));
        assert!(!too_soon.has());
        assert!(focus.takes_key(at(start, 1_100)));
    }

    #[test]
    fn text_in_the_input_keeps_the_keys_there() {
        let start = Instant::now();
        let mut focus = Focus::default();
        focus.look(at(start, 10_000), start, false);
        assert!(!focus.has());
        focus.turn_to(at(start, 10_000));
        assert!(!focus.takes_key(at(start, 10_100)));
        focus.turn_to(at(start, 11_000));
        assert!(focus.takes_key(at(start, 11_500)));
        focus.leave();
        focus.look(at(start, 99_000), start, true);
        assert!(!focus.has());
    }

    proptest! {
        /// Whoever types at a person's pace, with pauses shorter than twice the quiet, never answers a question that appears at
        /// whatever moment.
        #[test]
        fn typing_answers_nothing(
            gaps in proptest::collection::vec(0_u64..1_000, 1..200),
            appears in 0_u64..20_000,
            empties in proptest::collection::vec(any::<bool>(), 200),
        ) {
            let start = Instant::now();
            let asked = at(start, appears);
            let mut focus = Focus::default();
            let mut now = 0;
            focus.takes_key(at(start, now));
            for (gap, is_empty) in gaps.iter().zip(empties) {
                // The loop looks at every moment between two keys.
                for moment in (now..now + gap).step_by(7) {
                    if moment >= appears {
                        focus.look(at(start, moment), asked, is_empty);
                    }
                }
                now += gap;
                prop_assert!(!focus.takes_key(at(start, now)));
            }
        }
    }
}
