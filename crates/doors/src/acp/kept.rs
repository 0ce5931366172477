//! Watches that stay open while nothing is asked in their sessions: of those sessions in which something was asked last.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// So many of one editor. A server has places for 64 such editors.
const KEPT_MAX: usize = 16;

#[derive(Default)]
pub struct Kept(Mutex<Places>);

#[derive(Default)]
struct Places {
    last: u64,
    /// The oldest first.
    taken: VecDeque<(u64, CancellationToken)>,
}

/// The place of a watch. Dropped, it is free.
pub struct Place<'a> {
    kept: &'a Kept,
    number: u64,
    given_up: CancellationToken,
}

impl Kept {
    /// A place for one more. Where there is none, the oldest is given up.
    pub fn take(&self) -> Place<'_> {
        let given_up = CancellationToken::new();
        let mut places = self.lock();
        places.last += 1;
        let number = places.last;
        places.taken.push_back((number, given_up.clone()));
        if places.taken.len() > KEPT_MAX
            && let Some((_, oldest)) = places.taken.pop_front()
        {
            oldest.cancel();
        }
        Place { kept: self, number, given_up }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Returns when it is another's.
    pub async fn given_up(&self) {
        self.given_up.cancelled().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.kept.lock().taken.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_given_up_for_one_more() {
        let kept = Kept::default();
        let mut places: Vec<_> = (0..KEPT_MAX).map(|_| kept.take()).collect();
        let given_up = |places: &[Place<'_>]| -> Vec<bool> {
            places.iter().map(|place| place.given_up.is_cancelled()).collect()
        };
        assert_eq!(given_up(&places), [false; KEPT_MAX]);
        // One that is free is given first.
        places.remove(3);
        places.push(kept.take());
        assert_eq!(given_up(&places), [false; KEPT_MAX]);
        places.push(kept.take());
        let expected: Vec<_> = (0..=KEPT_MAX).map(|index| index == 0).collect();
        assert_eq!(given_up(&places), expected);
    }
}
