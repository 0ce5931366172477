//! What a command prints, shown to those who look on while it runs: a few pieces a second, and not without end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nexus_core::paced::Paced;
use nexus_core::tool::Onlookers;

/// Between two pieces: ten a second are as many as a person can tell apart.
const PAUSE: Duration = Duration::from_millis(100);

/// Shown of one command. What it came to stands in its result.
const SHOWN_BYTES_MAX: usize = 64 << 10;

/// Takes what one command prints to those who look on. Where nobody does, that is a load for each read.
pub(super) struct Live<'a> {
    onlookers: &'a dyn Onlookers,
    state: Mutex<State>,
    paced: Paced,
}

#[derive(Default)]
struct State {
    waiting: String,
    /// Bytes that were shown or wait for it.
    taken: usize,
}

/// One of the two streams of a command.
pub(super) struct Printed<'a> {
    live: &'a Live<'a>,
    /// The beginning of a character whose end was not read yet.
    rest: Vec<u8>,
}

impl<'a> Live<'a> {
    pub fn new(onlookers: &'a dyn Onlookers) -> Self {
        Self { onlookers, state: Mutex::default(), paced: Paced::new(PAUSE) }
    }

    pub fn stream(&'a self) -> Printed<'a> {
        Printed { live: self, rest: Vec::new() }
    }

    /// Shows what arrives while `work` goes on, and what is left when it is done.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        self.paced.during(work, || self.show()).await
    }

    fn put(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = &text[..text.floor_char_boundary(SHOWN_BYTES_MAX - state.taken)];
        state.taken += fits.len();
        if fits.len() < text.len() {
            // Nothing that comes later may follow a piece that was left out.
            state.taken = SHOWN_BYTES_MAX;
        }
        state.waiting.push_str(fits);
        drop(state);
        self.paced.ring();
    }

    fn show(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let text = std::mem::take(&mut state.waiting);
        drop(state);
        if !text.is_empty() {
            self.onlookers.show_output(text);
        }
    }
}

impl Printed<'_> {
    pub fn put(&mut self, bytes: &[u8]) {
        if !self.live.onlookers.want_output() {
            self.rest.clear();
            return;
        }
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() - unfinished(&self.rest);
        self.live.put(&String::from_utf8_lossy(&self.rest[..whole]));
        self.rest.drain(..whole);
    }
}

/// Bytes at the end that begin a character and do not end it.
fn unfinished(bytes: &[u8]) -> usize {
    let is_begun = |length: &usize| {
        let tail = &bytes[bytes.len() - length..];
        str::from_utf8(tail)
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=bytes.len().min(3)).find(is_begun).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    struct Screen {
        shown: Mutex<Vec<String>>,
        away: AtomicBool,
    }

    impl Onlookers for Screen {
        fn want_changes(&self) -> bool {
            false
        }

        fn want_output(&self) -> bool {
            !self.away.load(Ordering::Relaxed)
        }

        fn show_output(&self, text: String) {
            self.shown.lock().unwrap().push(text);
        }
    }

    impl Screen {
        fn text(&self) -> String {
            self.shown.lock().unwrap().concat()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_fast_is_joined_to_ten_a_second() {
        let screen = Screen::default();
        let live = Live::new(&screen);
        let mut stdout = live.stream();
        live.during(async {
            for _ in 0..1_000 {
                stdout.put(b"x");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        let pieces = screen.shown.lock().unwrap().len();
        assert!((10..=11).contains(&pieces), "{pieces}");
        assert_eq!(screen.text().len(), 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_last_is_shown_although_nothing_follows() {
        let screen = Screen::default();
        let live = Live::new(&screen);
        let (mut stdout, mut stderr) = (live.stream(), live.stream());
        live.during(async {
            stdout.put(b"a");
            tokio::time::sleep(Duration::from_millis(1)).await;
            stderr.put(b"b");
            tokio::time::sleep(PAUSE).await;
            assert_eq!(screen.text(), "ab", "while it still runs");
            stdout.put(b"c");
        })
        .await;
        assert_eq!(screen.text(), "abc");
    }

    #[tokio::test]
    async fn just_so_much_is_shown_and_no_more() {
        for (printed, shown) in
            [(SHOWN_BYTES_MAX, SHOWN_BYTES_MAX), (SHOWN_BYTES_MAX + 1, SHOWN_BYTES_MAX)]
        {
            let screen = Screen::default();
            let live = Live::new(&screen);
            let mut stdout = live.stream();
            live.during(async { vec![b'x'; printed].chunks(1000).for_each(|it| stdout.put(it)) })
                .await;
            assert_eq!(screen.text().len(), shown);
        }
        let screen = Screen::default();
        let live = Live::new(&screen);
        let mut stdout = live.stream();
        stdout.put(&vec![b'x'; SHOWN_BYTES_MAX - 1]);
        stdout.put("ä".as_bytes());
        stdout.put(b"y");
        live.show();
        assert_eq!(screen.text().len(), SHOWN_BYTES_MAX - 1, "nothing behind what was left out");
    }

    #[test]
    fn a_character_that_is_read_in_pieces_is_shown_whole() {
        let screen = Screen::default();
        let live = Live::new(&screen);
        let mut stdout = live.stream();
        for byte in "a\u{e4}\u{20ac}\u{1f600}".bytes() {
            stdout.put(&[byte]);
        }
        stdout.put(b"\xff\xc3(");
        live.show();
        assert_eq!(screen.text(), "a\u{e4}\u{20ac}\u{1f600}\u{fffd}\u{fffd}(");
    }

    #[test]
    fn what_is_printed_while_nobody_looks_is_not_kept() {
        let screen = Screen::default();
        let live = Live::new(&screen);
        let mut stdout = live.stream();
        screen.away.store(true, Ordering::Relaxed);
        stdout.put(b"unseen\xc3");
        screen.away.store(false, Ordering::Relaxed);
        stdout.put(b"seen");
        live.show();
        assert_eq!(screen.text(), "seen");
    }
}
