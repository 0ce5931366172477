//! Reads an answer: body to events of the wire format to events of the core.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use nexus_core::logs::RAW_TARGET;
use nexus_core::provider::{EventStream, ProviderError, ProviderEvent, Usage};
use nexus_sse as sse;
use reqwest::Response;
use tracing::Level;

use super::bounds::Bounds;
use super::calls::Calls;
use super::errors;
use super::redact::Secrets;

/// How long the end of the body may lag behind the terminator. Only a body read to its end leaves a connection that
/// can be used again, but an answer that is complete must not wait for one.
const DRAIN_MAX: Duration = Duration::from_millis(50);

/// What is particular to one wire format.
pub(super) trait Decode: Send + 'static {
    /// Takes the data of one event.
    fn event(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint>;

    /// The tokens that were counted.
    fn usage(&self) -> Usage;
}

/// What was decoded of an answer.
#[derive(Default)]
pub(super) struct Heard {
    /// What was not yet asked for.
    ready: VecDeque<Result<ProviderEvent, ProviderError>>,
    /// Held back until the answer is complete.
    pub calls: Calls,
    text_bytes: usize,
}

impl Heard {
    /// A piece of the text, which may be empty.
    pub fn text(&mut self, text: String) {
        if !text.is_empty() {
            self.text_bytes += text.len();
            self.ready.push_back(Ok(ProviderEvent::Text(text)));
        }
    }

    /// Refuses what is more than an answer may be.
    fn check(&self, bounds: &Bounds) -> Result<(), ProviderError> {
        if self.text_bytes + self.calls.bytes() > bounds.answer_bytes_max as usize {
            return Err(over("the answer", bounds.answer_bytes_max));
        }
        if self.calls.len() > bounds.calls_max as usize {
            let most = bounds.calls_max;
            return Err(ProviderError::Broken(format!(
                "the answer has more than {most} tool calls"
            )));
        }
        Ok(())
    }
}

fn over(what: &str, bytes_max: u32) -> ProviderError {
    ProviderError::Broken(format!("{what} is larger than {bytes_max} bytes"))
}

/// How far an answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    /// The model has ended; usage may follow. Services that break off here have said what matters.
    Answered,
    /// The terminator of the format was seen.
    Over,
}

/// Why an event cannot be taken.
pub(super) enum Complaint {
    Undecodable(serde_json::Error),
    /// The provider's own error object.
    Error(serde_json::Value),
}

impl From<serde_json::Error> for Complaint {
    fn from(error: serde_json::Error) -> Self {
        Self::Undecodable(error)
    }
}

/// The events of an answer. Dropping the stream drops the connection.
pub(super) fn events<D: Decode>(
    response: Response,
    decode: D,
    bounds: Bounds,
    secrets: Arc<Secrets>,
) -> EventStream {
    let reading = Reading {
        response,
        bounds,
        body_bytes: 0,
        sse: sse::Decoder::new(bounds.event_bytes_max as usize),
        decode,
        heard: Heard::default(),
        progress: Phase::Open,
        over: false,
        secrets,
    };
    stream::unfold(reading, Reading::next).boxed()
}

struct Reading<D> {
    response: Response,
    bounds: Bounds,
    /// Read so far.
    body_bytes: usize,
    sse: sse::Decoder,
    decode: D,
    heard: Heard,
    progress: Phase,
    /// Nothing follows what was heard.
    over: bool,
    secrets: Arc<Secrets>,
}

impl<D: Decode> Reading<D> {
    async fn next(mut self) -> Option<(Result<ProviderEvent, ProviderError>, Self)> {
        loop {
            if let Some(event) = self.heard.ready.pop_front() {
                return Some((event, self));
            }
            if self.over {
                return None;
            }
            self.read().await;
        }
    }

    async fn read(&mut self) {
        match self.response.chunk().await {
            Ok(Some(bytes)) => {
                self.body_bytes += bytes.len();
                if self.body_bytes > self.bounds.body_bytes_max as usize {
                    return self.fail(over("all that was sent for it", self.bounds.body_bytes_max));
                }
                self.sse.push(&bytes);
                self.decode();
                if self.progress == Phase::Over && !self.over {
                    self.drain().await;
                    self.finish();
                }
            }
            Ok(None) => {
                self.sse.push_end();
                self.decode();
                if !self.over {
                    self.end(ProviderError::Broken("the answer ended too early".to_owned()));
                }
            }
            Err(error) => self.end(errors::broken(&error)),
        }
    }

    fn decode(&mut self) {
        while !self.over && self.progress < Phase::Over {
            let data = match self.sse.next_event() {
                Ok(Some(data)) => data,
                Ok(None) => return,
                Err(sse::TooLong) => {
                    return self.fail(over("an event", self.bounds.event_bytes_max));
                }
            };
            if tracing::enabled!(target: RAW_TARGET, Level::DEBUG) {
                let body = self.secrets.redact(&String::from_utf8_lossy(data));
                let (endpoint, status) =
                    (self.response.url().as_str(), self.response.status().as_u16());
                tracing::debug!(target: RAW_TARGET, kind = "chunk", endpoint, status, body);
            }
            match self.decode.event(data, &mut self.heard) {
                Ok(progress) => {
                    self.progress = self.progress.max(progress);
                    if let Err(error) = self.heard.check(&self.bounds) {
                        return self.fail(error);
                    }
                }
                Err(Complaint::Undecodable(error)) => {
                    return self.fail(ProviderError::Broken(format!(
                        "an event could not be read: {error}"
                    )));
                }
                Err(Complaint::Error(error)) => {
                    return self.fail(errors::in_stream(&error, &self.secrets));
                }
            }
        }
    }

    /// The body is over, well or not: what the model has finished saying stands.
    fn end(&mut self, otherwise: ProviderError) {
        if self.progress >= Phase::Answered { self.finish() } else { self.fail(otherwise) }
    }

    fn finish(&mut self) {
        let calls = self.heard.calls.take().map(|call| Ok(ProviderEvent::ToolCall(call)));
        self.heard.ready.extend(calls);
        self.heard.ready.push_back(Ok(ProviderEvent::Done(self.decode.usage())));
        self.over = true;
    }

    fn fail(&mut self, error: ProviderError) {
        self.heard.ready.push_back(Err(error));
        self.over = true;
    }

    async fn drain(&mut self) {
        let rest = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        // In time or not, the answer is complete.
        let _ = tokio::time::timeout(DRAIN_MAX, rest).await;
    }
}
