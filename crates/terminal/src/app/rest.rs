//! Memory that was freed is given back to the system when nothing is printed any more.

use std::thread;
use std::time::{Duration, Instant};

/// The allocator keeps what was freed for a second, in case that it is wanted again. It looks for what is older when it is
/// asked for memory, and at all of it when a thread ends; in a conversation at rest neither happens.
const REST: Duration = Duration::from_millis(1_200);

/// Fewer lines are not worth the wake-up.
const LINES_MIN: usize = 1_000;

#[derive(Default)]
pub(super) struct Rest {
    /// Lines printed since it was looked at last.
    lines: usize,
    due: Option<Instant>,
}

impl Rest {
    /// With each frame: so many lines were printed.
    pub fn printed(&mut self, lines: usize) {
        self.lines += lines;
        if self.lines >= LINES_MIN {
            self.due = Some(Instant::now() + REST);
        }
    }

    /// When there is something to do though nothing comes.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    pub fn look(&mut self, now: Instant) {
        if self.due.is_some_and(|at| now >= at) {
            *self = Self::default();
            // Without one there is only more memory in use.
            let _ = thread::Builder::new().name("rest".into()).spawn(|| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a terminal at rest would be woken for ever.
    #[test]
    fn it_is_looked_at_once_after_much_was_printed() {
        let mut rest = Rest::default();
        rest.printed(LINES_MIN - 1);
        assert_eq!(rest.due(), None);
        rest.printed(1);
        let due = rest.due().unwrap();
        rest.look(due - Duration::from_millis(1));
        assert_eq!(rest.due(), Some(due));
        rest.look(due);
        assert_eq!(rest.due(), None);
    }
}
