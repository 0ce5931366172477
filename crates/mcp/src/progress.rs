//! How far a call is, shown to those who look on: a few times a second, however often the server says it.

use std::sync::Mutex;
use std::time::Duration;

use nexus_core::paced::Paced;
use nexus_core::progress::ToolProgress;
use nexus_core::tool::Onlookers;
use rmcp::model::ProgressNotificationParam;
use serde_json::Number;

use crate::clean::is_seen;
use crate::lock;

/// Between two that are shown. Where each is a line of its own, nobody reads faster.
const PAUSE: Duration = Duration::from_millis(250);

/// Of one message. It is to be read at a glance.
const MESSAGE_CHARS_MAX: usize = 500;

/// The largest integer that a float has exactly, as all before it.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Takes what a server says of one call to those who look on. Where nobody does, that is a load each time.
pub struct Relay<'a> {
    onlookers: &'a dyn Onlookers,
    /// What came last and was not shown. What came before it says nothing any more.
    last: Mutex<Option<ProgressNotificationParam>>,
    paced: Paced,
}

impl<'a> Relay<'a> {
    pub fn new(onlookers: &'a dyn Onlookers) -> Self {
        Self { onlookers, last: Mutex::default(), paced: Paced::new(PAUSE) }
    }

    pub fn put(&self, said: ProgressNotificationParam) {
        if self.onlookers.want_progress() {
            *lock(&self.last) = Some(said);
            self.paced.ring();
        }
    }

    /// Shows what is put while `work` goes on, and what is left when it is done.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        self.paced.during(work, || self.show()).await
    }

    fn show(&self) {
        let last = lock(&self.last).take();
        if let Some(shown) = last.and_then(shown) {
            self.onlookers.show_progress(shown);
        }
    }
}

/// As people see it: the server's numbers, and of its words a line.
fn shown(said: ProgressNotificationParam) -> Option<ToolProgress> {
    let message = said.message.unwrap_or_default();
    let message = message.chars().filter(|c| is_seen(*c)).take(MESSAGE_CHARS_MAX);
    let message: String = message.map(|c| if c.is_control() { ' ' } else { c }).collect();
    Some(ToolProgress {
        progress: number(said.progress)?,
        total: said.total.and_then(number),
        message: Some(message).filter(|it| !it.trim().is_empty()),
    })
}

/// As the server wrote it: an integer is one.
fn number(number: f64) -> Option<Number> {
    if number.fract() == 0.0 && number.abs() <= EXACT_MAX {
        return Some(Number::from(number as i64));
    }
    Number::from_f64(number)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::{Value, json};

    use super::*;

    #[derive(Default)]
    struct Screen {
        shown: Mutex<Vec<ToolProgress>>,
        away: AtomicBool,
    }

    impl Onlookers for Screen {
        fn want_changes(&self) -> bool {
            false
        }

        fn want_output(&self) -> bool {
            false
        }

        fn show_output(&self, _: String) {}

        fn want_progress(&self) -> bool {
            !self.away.load(Ordering::Relaxed)
        }

        fn show_progress(&self, progress: ToolProgress) {
            lock(&self.shown).push(progress);
        }
    }

    impl Screen {
        fn numbers(&self) -> Vec<String> {
            lock(&self.shown).iter().map(|it| it.progress.to_string()).collect()
        }
    }

    fn said(mut params: Value) -> ProgressNotificationParam {
        params["progressToken"] = json!(1);
        serde_json::from_value(params).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_shown_at_once_and_of_many_the_last() {
        let screen = Screen::default();
        let progress = Relay::new(&screen);
        let work = async {
            for step in 1..=1_000 {
                progress.put(said(json!({"progress": step})));
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(PAUSE * 3 / 2).await;
            assert_eq!(screen.numbers(), ["1", "1000"]);
            progress.put(said(json!({"progress": 1001})));
        };
        progress.during(work).await;
        assert_eq!(screen.numbers(), ["1", "1000", "1001"], "what is left is shown at the end");
    }

    #[tokio::test]
    async fn nothing_is_kept_for_nobody() {
        let screen = Screen { away: true.into(), ..Screen::default() };
        let progress = Relay::new(&screen);
        progress.during(async { progress.put(said(json!({"progress": 1}))) }).await;
        assert_eq!(screen.numbers(), [""; 0]);
    }

    #[test]
    fn numbers_are_the_servers_and_words_a_line_of_what_can_be_seen() {
        let check = |params: Value, progress: &str, total: Option<&str>, message: Option<&str>| {
            let shown = shown(said(params)).unwrap();
            assert_eq!(shown.progress.to_string(), progress);
            assert_eq!(shown.total.map(|it| it.to_string()).as_deref(), total);
            assert_eq!(shown.message.as_deref(), message);
        };
        check(
            json!({"progress": 3, "total": 20, "message": "at it"}),
            "3",
            Some("20"),
            Some("at it"),
        );
        check(json!({"progress": 0.25, "total": 1.5}), "0.25", Some("1.5"), None);
        check(json!({"progress": -1, "message": " \u{200b}"}), "-1", None, None);
        check(json!({"progress": 1e300}), "1e+300", None, None);
        check(
            json!({"progress": 1, "message": "a\nb\u{1b}[2J\u{202e}c"}),
            "1",
            None,
            Some("a b[2Jc"),
        );
        let (whole, longer) = ("é".repeat(MESSAGE_CHARS_MAX), "é".repeat(MESSAGE_CHARS_MAX + 1));
        check(json!({"progress": 1, "message": whole}), "1", None, Some(&whole));
        check(json!({"progress": 1, "message": longer}), "1", None, Some(&whole));
    }
}
