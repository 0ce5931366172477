//! Who gets a key: the input, or a question that appeared while somebody typed. A question takes no key that was meant for
//! the input, and none while it does not stand on the screen.

use std::time::{Duration, Instant};

/// So long nothing is typed before a question gets the keys, and so long they are still the input's after that.
pub const QUIET: Duration = Duration::from_millis(500);

/// Below this only the input is drawn, or in its place what one key answers.
const ROWS_MIN: usize = 6;
const COLUMNS_MIN: usize = 24;

/// Whether a screen of this size has room for questions and lists.
pub fn has_room(rows: usize, columns: usize) -> bool {
    rows >= ROWS_MIN && columns >= COLUMNS_MIN
}

/// Whether a question that stands on the screen has the keys.
#[derive(Default)]
pub struct Focus {
    /// When the last key came.
    key: Option<Instant>,
    /// Since when the question stands on the screen.
    seen: Option<Instant>,
    /// Since when the question has them.
    since: Option<Instant>,
    /// The person turned away from it, and has to turn to it again.
    is_left: bool,
}

/// Who put the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Somebody else: it can come at any moment, so it waits for quiet.
    Other,
    /// The person, with a command: he waits for it, and it gets the keys at once where none came since it stands there.
    Person,
}

impl Focus {
    /// With each frame: whether the question stands in it.
    pub fn drawn(&mut self, now: Instant, is_seen: bool) {
        if is_seen {
            self.seen.get_or_insert(now);
        } else {
            self.unseen();
        }
    }

    /// What is on the screen is not what was drawn any more.
    pub fn unseen(&mut self) {
        self.seen = None;
        self.since = None;
    }

    /// Looks whether the question gets the keys now. Returns when to look again.
    pub fn look(&mut self, now: Instant, caller: Caller, is_input_empty: bool) -> Option<Instant> {
        let seen = self.seen?;
        if self.since.is_some() || self.is_left || !is_input_empty {
            return None;
        }
        let quiet = match (caller, self.key) {
            (_, Some(key)) if key > seen => key + QUIET,
            (Caller::Person, _) => seen,
            (Caller::Other, _) => seen + QUIET,
        };
        if now < quiet {
            return Some(quiet);
        }
        self.since = Some(now);
        None
    }

    /// The person asked for it: Shift-Tab.
    pub fn turn_to(&mut self, now: Instant) {
        if self.seen.is_some() {
            self.since = Some(now);
            self.is_left = false;
            self.key = Some(now);
        }
    }

    /// Something was typed that answers nothing: what comes behind it is the input's, too.
    pub fn typed(&mut self) {
        self.since = None;
    }

    /// Back to the input, unanswered: it stays there until somebody turns to it.
    pub fn leave(&mut self) {
        self.since = None;
        self.is_left = true;
    }

    pub fn has(&self) -> bool {
        self.since.is_some()
    }

    /// Whether there is something on the screen that could be turned to.
    pub fn sees(&self) -> bool {
        self.seen.is_some()
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
        self.unseen();
        self.is_left = false;
    }
}

#[cfg(test)]
mod tests;
