//! Sends spans in batches. Nobody waits for it: what does not go fast enough is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use nexus_outward::cause;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Dropped;
use super::settings::Settings;
use super::span::Span;

/// How long the program waits at its end for what is still to be sent.
pub const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Waits between the tries of a batch grow from the one to the other.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Longest that a receiver may ask to be left alone.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// At most one line of the log in this time.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// How much of an answer is read.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024;

const QUEUE_FULL: &str = "they come faster than the receiver takes them";

pub struct Exporter {
    settings: Settings,
    /// Made with the first batch: to set TLS up takes longer than all else a server does when it starts.
    client: Option<Client>,
    queue: mpsc::Receiver<Span>,
    /// What is being sent.
    batch: Vec<Span>,
    dropped: Arc<Dropped>,
    /// When the log had the last line.
    said: Option<Instant>,
    stop: CancellationToken,
}

/// Why a request was in vain.
#[derive(Debug)]
struct Failure {
    why: String,
    is_passing: bool,
    retry_after: Option<Duration>,
}

impl Exporter {
    pub fn new(
        settings: Settings,
        queue: mpsc::Receiver<Span>,
        dropped: Arc<Dropped>,
        stop: CancellationToken,
    ) -> Self {
        Self { settings, client: None, queue, batch: Vec::new(), dropped, said: None, stop }
    }

    /// Sends until it is stopped, and then what is left, for [`FLUSH_MAX`] at most.
    pub async fn run(mut self) {
        let stop = self.stop.clone();
        let late = async {
            stop.cancelled().await;
            sleep(FLUSH_MAX).await;
        };
        tokio::select! {
            biased;
            () = self.work() => {}
            () = late => {}
        }
        // From here on, who puts one into the queue hears that it is lost.
        self.queue.close();
        self.dropped.add((self.batch.len() + self.queue.len()) as u64);
        // The last word is said whenever the one before it was.
        self.said = None;
        self.say("the program ended before they were sent");
    }

    async fn work(&mut self) {
        while self.gather().await {
            self.deliver().await;
        }
    }

    /// Fills the batch: until there are enough, or the first of them has waited long enough. False when nothing comes any
    /// more.
    async fn gather(&mut self) -> bool {
        let (most, stop) = (self.settings.batch_max, self.stop.clone());
        let mut due = None;
        while self.batch.len() < most && !stop.is_cancelled() {
            let room = most - self.batch.len();
            let waited = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                came = self.queue.recv_many(&mut self.batch, room) => {
                    if came == 0 {
                        break;
                    }
                    due = due.or_else(|| Some(Instant::now() + self.settings.delay));
                }
                () = waited => break,
                () = stop.cancelled() => {}
            }
        }
        while self.batch.len() < most
            && let Ok(span) = self.queue.try_recv()
        {
            self.batch.push(span);
        }
        !self.batch.is_empty()
    }

    /// Sends the batch until it is taken, or there is no point in trying again.
    async fn deliver(&mut self) {
        let body = self.settings.protocol.write(&self.settings.resource, &self.batch);
        let end = Instant::now() + self.settings.export_max;
        let mut backoff = BACKOFF_MIN;
        loop {
            let failure = match self.post(body.clone(), end).await {
                Ok(rejected) => {
                    self.batch.clear();
                    self.dropped.add(rejected);
                    let why = if rejected > 0 { "the receiver rejected some" } else { QUEUE_FULL };
                    return self.say(why);
                }
                Err(failure) => failure,
            };
            let wait = failure.retry_after.unwrap_or_default().max(spread(backoff));
            backoff = (backoff * 2).min(BACKOFF_MAX);
            let is_time = !self.stop.is_cancelled() && Instant::now() + wait < end;
            if failure.is_passing && is_time {
                tracing::debug!(why = failure.why, ?wait, "the spans are sent again");
                self.pause(wait).await;
                continue;
            }
            self.dropped.add(self.batch.len() as u64);
            self.batch.clear();
            self.say(&failure.why);
            // Who asked to be left alone is, also by the next batch.
            return self.pause(failure.retry_after.unwrap_or_default()).await;
        }
    }

    /// How many spans the receiver took no notice of.
    async fn post(&mut self, body: Vec<u8>, end: Instant) -> Result<u64, Failure> {
        let client = match &self.client {
            Some(client) => client,
            None => {
                let made = nexus_outward::client(&self.settings.endpoint, Ok).await;
                self.client.insert(made.map_err(Failure::lasting)?)
            }
        };
        let Settings { endpoint, headers, protocol, timeout, .. } = &self.settings;
        let request = (client.post(endpoint.clone()).headers(headers.clone()))
            .header(CONTENT_TYPE, protocol.content_type())
            .body(body);
        let end = end.min(Instant::now() + *timeout);
        let sent = timeout_at(end, request.send()).await;
        let mut response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Failure::passing(cause(&error))),
            Err(_) => return Err(Failure::passing("the receiver did not answer in time".into())),
        };
        let mut answer = Vec::new();
        // In time or not: the status says whether the spans were taken.
        let _ = timeout_at(end, read(&mut response, &mut answer)).await;
        let status = response.status();
        if status.is_success() {
            return Ok(protocol.rejected(&answer).min(self.batch.len() as u64));
        }
        let why = format!("the receiver answers {}", status.as_u16());
        // Those that the protocol names, and no other.
        let is_passing = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        let retry_after = if is_passing { retry_after(response.headers()) } else { None };
        Err(Failure { why, is_passing, retry_after })
    }

    /// Waits, unless the program ends.
    async fn pause(&self, wait: Duration) {
        let _ = self.stop.run_until_cancelled(sleep(wait)).await;
    }

    /// Writes into the log what was dropped since the last line, if that is long enough ago.
    fn say(&mut self, why: &str) {
        if self.said.is_some_and(|said| said.elapsed() < SAID_EVERY) {
            return;
        }
        let spans = self.dropped.unsaid.swap(0, Ordering::Relaxed);
        if spans > 0 {
            self.said = Some(Instant::now());
            tracing::warn!(spans, why, "spans are dropped");
        }
    }
}

impl Failure {
    fn passing(why: String) -> Self {
        Self { why, is_passing: true, retry_after: None }
    }

    fn lasting(why: String) -> Self {
        Self { why, is_passing: false, retry_after: None }
    }
}

async fn read(response: &mut Response, answer: &mut Vec<u8>) {
    while answer.len() < ANSWER_BYTES_MAX
        && let Ok(Some(bytes)) = response.chunk().await
    {
        answer.extend_from_slice(&bytes);
    }
    answer.truncate(ANSWER_BYTES_MAX);
}

/// Up to as much again, so that those that failed together do not come back together.
fn spread(wait: Duration) -> Duration {
    wait + wait * (getrandom::u32().unwrap_or_default() % 1024) / 1024
}

/// For how long a receiver wants to be left alone, in seconds or until a moment.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = DateTimeParser::new().parse_timestamp(text).ok()?;
            Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()
        }
    };
    Some(asked.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use reqwest::header::HeaderValue;
    use tokio::time::advance;

    use super::*;
    use crate::settings;

    #[tokio::test(start_paused = true)]
    async fn the_log_has_a_line_a_minute() {
        let env = |name: &str| (name == "OTEL_TRACES_EXPORTER").then(|| "otlp".to_owned());
        let settings = settings::read(&env).settings.unwrap();
        let dropped = Arc::new(Dropped { unsaid: AtomicU64::new(0), tell: Box::new(|_| ()) });
        let (_queue, waiting) = mpsc::channel(1);
        let mut exporter =
            Exporter::new(settings, waiting, dropped.clone(), CancellationToken::new());
        let mut unsaid = |spans| {
            dropped.add(spans);
            exporter.say("a test");
            dropped.unsaid.load(Ordering::Relaxed)
        };
        assert_eq!((unsaid(2), unsaid(3)), (0, 3));
        advance(SAID_EVERY - Duration::from_millis(1)).await;
        assert_eq!(unsaid(1), 4);
        advance(Duration::from_millis(1)).await;
        assert_eq!((unsaid(0), unsaid(1)), (0, 1));
    }

    #[test]
    fn a_receiver_may_ask_for_minutes() {
        let check = |value: &'static str, expected: Option<u64>| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            assert_eq!(retry_after(&headers), expected.map(Duration::from_secs), "{value}");
        };
        check("0", Some(0));
        check("300", Some(300));
        check("301", Some(300));
        check("18446744073709551615", Some(300));
        check("Wed, 21 Oct 2015 07:28:00 GMT", Some(0));
        check("Tue, 31 Dec 2999 23:59:59 GMT", Some(300));
        check("soon", None);
        check("-1", None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
