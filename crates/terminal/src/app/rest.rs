//! What is freed is given back to the system when nothing happens any more.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The allocator keeps what was freed for a second, in case that it is wanted again. It looks for what is older only when
/// something large is freed, and in a conversation at rest nothing is.
const REST: Duration = Duration::from_millis(1_300);

/// Too large to share a page of the allocator's with anything.
const LARGE_BYTES: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Rest(Option<Instant>);

impl Rest {
    /// Something happened.
    pub fn stir(&mut self) {
        self.0 = Some(Instant::now() + REST);
    }

    /// When there is something to do though nothing comes.
    pub fn due(&self) -> Option<Instant> {
        self.0
    }

    pub fn look(&mut self, now: Instant) {
        if self.0.take_if(|at| now >= *at).is_some() {
            drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a terminal at rest would be woken for ever.
    #[test]
    fn it_is_looked_at_once() {
        let mut rest = Rest::default();
        assert_eq!(rest.due(), None);
        rest.stir();
        let due = rest.due().unwrap();
        rest.look(due - Duration::from_millis(1));
        assert_eq!(rest.due(), Some(due));
        rest.look(due);
        assert_eq!(rest.due(), None);
    }
}
