//! How many calls are let through at a time: as many as are configured, or as the provider was found to take.

use std::time::Duration;

use tokio::time::Instant;

/// Calls that have to go well before one more is let through.
const SUCCESSES: u32 = 20;

/// How long a provider is believed to be full at what it refused. Each time that proves right, for twice as long.
const BELIEVED: Duration = Duration::from_secs(5 * 60);
const BELIEVED_MAX: Duration = Duration::from_secs(30 * 60);

#[derive(Debug)]
pub(super) struct Room {
    most: u32,
    now: u32,
    successes: u32,
    full: Option<Full>,
}

/// What a provider that answered some of several calls and refused the others can take is known: fewer than `at`.
#[derive(Debug)]
struct Full {
    at: u32,
    believed: Duration,
    until: Instant,
}

impl Room {
    pub fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { most, now: most, successes: 0, full: None }
    }

    pub fn now(&self) -> u32 {
        self.now
    }

    pub fn succeeded(&mut self, now: Instant) {
        if self.now == self.most {
            return;
        }
        self.successes += 1;
        if self.full.as_ref().is_some_and(|full| full.until <= now) {
            self.full = None;
        }
        let full_there = self.full.as_ref().is_some_and(|full| self.now + 1 >= full.at);
        if self.successes >= SUCCESSES && !full_there {
            self.now += 1;
            self.successes = 0;
        }
    }

    /// A call was refused while `others` were under way. Only the first of those that were sent together halves.
    pub fn refused(&mut self, others: u32, is_first: bool, now: Instant) {
        if is_first {
            self.now = (self.now / 2).max(1);
            self.successes = 0;
        }
        if others == 0 {
            // All were refused: that is a limit of rates, and says nothing of how many at a time.
            self.full = None;
            return;
        }
        let known = self.full.take();
        let believed = match &known {
            Some(full) if is_first => (full.believed * 2).min(BELIEVED_MAX),
            Some(full) => full.believed,
            None => BELIEVED,
        };
        let at = match known {
            Some(full) if !is_first => full.at.min(others + 1),
            _ => others + 1,
        };
        self.full = Some(Full { at, believed, until: now + believed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn succeed(room: &mut Room, times: u32, now: Instant) {
        (0..times).for_each(|_| room.succeeded(now));
    }

    #[test]
    fn it_halves_once_for_calls_sent_together_and_never_below_one() {
        let now = Instant::now();
        let mut room = Room::new(16);
        for others in (0..16).rev() {
            room.refused(others, others == 15, now);
        }
        assert_eq!(room.now(), 8);
        for expected in [4, 2, 1, 1] {
            room.refused(0, true, now);
            assert_eq!(room.now(), expected);
        }
    }

    #[test]
    fn it_grows_by_one_for_twenty_that_went_well_up_to_what_is_configured() {
        let now = Instant::now();
        let mut room = Room::new(4);
        room.refused(0, true, now);
        succeed(&mut room, SUCCESSES - 1, now);
        assert_eq!(room.now(), 2);
        succeed(&mut room, 1, now);
        assert_eq!(room.now(), 3);
        succeed(&mut room, 10 * SUCCESSES, now);
        assert_eq!(room.now(), 4);
    }

    #[test]
    fn it_does_not_run_into_the_same_wall_again_at_once() {
        let start = Instant::now();
        let mut room = Room::new(16);
        // Eight were taken, eight refused.
        (0..8).for_each(|gone| room.refused(15 - gone, gone == 0, start));
        succeed(&mut room, 1000, start + BELIEVED / 2);
        assert_eq!(room.now(), 8, "nine are known to be too many");
        succeed(&mut room, 1, start + BELIEVED);
        assert_eq!(room.now(), 9, "after a while that is tried again");
        room.refused(8, true, start + BELIEVED);
        succeed(&mut room, 1000, start + BELIEVED);
        assert_eq!(room.now(), 8);
    }

    #[test]
    fn what_proved_right_is_believed_for_longer() {
        let mut now = Instant::now();
        let mut room = Room::new(16);
        for times in [1, 2, 4, 6, 6] {
            room.refused(8, true, now);
            succeed(&mut room, 1000, now + BELIEVED * times - Duration::from_secs(1));
            assert_eq!(room.now(), 8, "{times}");
            now += BELIEVED * times - Duration::from_secs(1);
        }
    }
}
