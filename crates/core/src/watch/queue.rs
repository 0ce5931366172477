//! What waits for one watcher. Whoever puts something in never waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::event::Happening;
use crate::lock;

/// From so many on, text that follows text is joined.
const ITEMS_MAX: usize = 1024;

/// What may wait. Whoever is this far behind has missed something.
pub const HELD_BYTES_MAX: usize = 1024 * 1024;

/// What may wait before the watcher was told how things stand: until then it cannot take anything.
const OPENING_BYTES_MAX: usize = 16 * HELD_BYTES_MAX;

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    open: bool,
    /// Of what has a number up to this one, some is known to the watcher.
    known_until: u64,
    end: Option<Over>,
}

/// What happened, and its number among all that did.
pub(super) type Item = (u64, Arc<Happening>);

/// Why nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The reader was too slow, and has missed something.
    Gap,
    /// Somebody ended the watch.
    Unwatched,
    /// Nothing is left that it may see.
    Gone,
    Stopping,
}

impl Queue {
    pub fn push(&self, number: u64, happening: &Arc<Happening>) {
        let mut state = lock(&self.state);
        if state.end.is_none() {
            state.push(number, happening);
        }
    }

    /// Nothing more is taken; what waits is still given out, but for a reader that has missed something.
    pub fn end(&self, over: Over) {
        let mut state = lock(&self.state);
        if state.end.is_none() {
            state.end = Some(over);
        }
    }

    pub fn wake(&self) {
        self.filled.notify_one();
    }

    /// From now on somebody takes what comes, and of what has come only what `keep` wants. Some of what has a number up to
    /// `known_until` he knows.
    pub fn open(&self, known_until: u64, mut keep: impl FnMut(&Happening) -> bool) {
        let mut state = lock(&self.state);
        state.open = true;
        state.known_until = known_until;
        state.items.retain(|(_, happening)| keep(happening));
        state.bytes = state.items.iter().map(|(_, happening)| happening.event.bytes()).sum();
    }

    pub async fn next(&self) -> Result<Item, Over> {
        loop {
            {
                let mut state = lock(&self.state);
                if let Some(item) = state.items.pop_front() {
                    state.bytes -= item.1.event.bytes();
                    return Ok(item);
                }
                if let Some(over) = state.end {
                    return Err(over);
                }
            }
            self.filled.notified().await;
        }
    }
}

impl State {
    fn push(&mut self, number: u64, happening: &Arc<Happening>) {
        let bytes = happening.event.bytes();
        let bytes_max = if self.open { HELD_BYTES_MAX } else { OPENING_BYTES_MAX };
        // What comes now says nothing of the reader: a single large one passes.
        if self.bytes > bytes_max {
            self.items.clear();
            self.bytes = 0;
            self.end = Some(Over::Gap);
            return;
        }
        if self.open
            && self.items.len() >= ITEMS_MAX
            && let Some((of_last, last)) = self.items.back_mut()
            && *of_last > self.known_until
            && last.is_followed_by(happening)
        {
            let before = last.event.bytes();
            let last = Arc::make_mut(last);
            last.join(happening);
            *of_last = number;
            self.bytes += last.event.bytes() - before;
            return;
        }
        self.bytes += bytes;
        self.items.push_back((number, happening.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use futures_util::FutureExt as _;

    use super::super::event::{Event, JOINED_BYTES_MAX, Piece};
    use super::*;

    fn delta(offset: u64, text: &str) -> Arc<Happening> {
        let end = offset + text.chars().count() as u64;
        let piece = Piece { step: 1, offset, end, text: text.into() };
        Arc::new(Happening {
            agent: None,
            turn: None,
            at: crate::now(),
            event: Event::Delta(piece),
            encoded: OnceLock::new(),
        })
    }

    fn taken(queue: &Queue) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(Ok((_, it))) = queue.next().now_or_never() {
            let Event::Delta(piece) = &it.event else { continue };
            all.push(piece.text.clone());
        }
        all
    }

    /// With so many that the next is joined to the last.
    fn full() -> Queue {
        let queue = Queue::default();
        queue.open(0, |_| true);
        for offset in 0..ITEMS_MAX as u64 {
            queue.push(offset + 1, &delta(offset, "x"));
        }
        queue
    }

    #[test]
    fn text_is_joined_only_when_much_waits_and_only_what_follows() {
        let queue = full();
        let last = ITEMS_MAX as u64;
        queue.push(last, &delta(last, "y"));
        queue.push(last + 1, &delta(last + 1, "z"));
        queue.push(last + 2, &delta(last + 7, "after a gap"));
        let taken = taken(&queue);
        assert_eq!(taken.len(), ITEMS_MAX + 1);
        assert_eq!(taken[ITEMS_MAX - 1], "xyz");
        assert_eq!(taken[ITEMS_MAX], "after a gap");
    }

    #[test]
    fn joined_text_just_fits_and_just_does_not() {
        let queue = full();
        let (last, fits) = (ITEMS_MAX as u64, JOINED_BYTES_MAX as u64 - 1);
        queue.push(last + 1, &delta(last, &"y".repeat(fits as usize)));
        queue.push(last + 2, &delta(last + fits, "z"));
        let taken = taken(&queue);
        assert_eq!(taken.len(), ITEMS_MAX + 1);
        assert_eq!(taken[ITEMS_MAX - 1].len(), JOINED_BYTES_MAX);
        assert_eq!(taken[ITEMS_MAX], "z");
    }

    #[test]
    fn a_reader_just_under_and_just_over_its_bytes() {
        let text = "x".repeat(HELD_BYTES_MAX);
        let queue = Queue::default();
        queue.open(0, |_| true);
        queue.push(1, &delta(0, &text));
        assert!(matches!(queue.next().now_or_never(), Some(Ok(_))), "a single large one passes");
        queue.push(2, &delta(0, &text));
        queue.push(3, &delta(9, "y"));
        assert_eq!(queue.next().now_or_never().unwrap().unwrap_err(), Over::Gap);
        queue.push(4, &delta(10, "z"));
        assert_eq!(queue.next().now_or_never().unwrap().unwrap_err(), Over::Gap);
    }

    #[test]
    fn more_may_wait_until_somebody_can_take_it() {
        let text = "x".repeat(HELD_BYTES_MAX);
        let queue = Queue::default();
        for number in 0..OPENING_BYTES_MAX / (HELD_BYTES_MAX + 1024) {
            queue.push(number as u64, &delta(0, &text));
        }
        queue.open(0, |_| true);
        assert!(matches!(queue.next().now_or_never(), Some(Ok(_))));
    }

    #[test]
    fn what_came_before_the_end_is_still_given_out() {
        let queue = Queue::default();
        queue.open(0, |_| true);
        queue.push(1, &delta(0, "x"));
        queue.end(Over::Stopping);
        queue.push(2, &delta(1, "y"));
        assert_eq!(taken(&queue), ["x"]);
        assert_eq!(queue.next().now_or_never().unwrap().unwrap_err(), Over::Stopping);
    }
}
