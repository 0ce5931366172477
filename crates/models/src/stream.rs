//! Reads an answer: body to events of the wire format to events of the core.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use nexus_core::logs::RAW_TARGET;
use nexus_core::provider::{EventStream, ProviderError, ProviderEvent};
use nexus_sse as sse;
use reqwest::{Response, Url};
use tracing::Level;

use super::ahead::Body;
use super::bounds::Bounds;
use super::errors::{self, Failure};
use super::heard::{Heard, over};
use super::lane::Permit;
use super::lines::Lines;
use super::redact::Secrets;
use super::silence::{self, Silence};

/// How long the end of the body may lag behind the terminator. Only a body read to its end leaves a connection that
/// can be used again, but an answer that is complete must not wait for one.
const DRAIN_MAX: Duration = Duration::from_millis(50);

/// What is particular to one wire format.
pub(super) trait Decode: Send + 'static {
    /// Whether events are lines of JSON, not server-sent events.
    const LINES: bool = false;

    /// Takes the data of one event.
    fn event(&mut self, data: &[u8], heard: &mut Heard) -> Result<Phase, Complaint>;

    /// Takes a whole answer, from a service that does not stream although it was asked to.
    fn document(&mut self, data: &[u8], heard: &mut Heard) -> Result<(), Complaint>;
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

impl Complaint {
    /// A whole answer that does not say that it is one.
    pub fn endless() -> Self {
        Self::Undecodable(serde::de::Error::custom("it does not say why it ended"))
    }
}

impl From<serde_json::Error> for Complaint {
    fn from(error: serde_json::Error) -> Self {
        Self::Undecodable(error)
    }
}

/// What an answer is read with.
pub(super) struct Terms {
    pub bounds: Bounds,
    pub secrets: Arc<Secrets>,
    /// The most tokens the answer was allowed to have.
    pub limit: Option<u32>,
    pub silence: Silence,
    /// Held until the answer is over or dropped.
    pub permit: Permit,
}

/// The events of an answer. Dropping the stream drops the connection.
pub(super) fn events<D: Decode>(response: Response, decode: D, terms: Terms) -> EventStream {
    let most = terms.bounds.event_bytes_max as usize;
    let framing = if is_document(&response) {
        Framing::Document(Vec::new())
    } else if D::LINES {
        Framing::Lines(Lines::new(most))
    } else {
        Framing::Events(sse::Decoder::new(most))
    };
    let Terms { bounds, secrets, limit, silence, permit } = terms;
    let reading = Reading {
        endpoint: response.url().clone(),
        status: response.status().as_u16(),
        body: Body::new(response.bytes_stream().boxed()),
        bounds,
        secrets,
        limit,
        silence,
        permit: Some(permit),
        body_bytes: 0,
        framing,
        decode,
        heard: Heard::default(),
        progress: Phase::Open,
        over: false,
    };
    stream::unfold(Box::new(reading), Reading::next).boxed()
}

/// Whether the body is one JSON document.
fn is_document(response: &Response) -> bool {
    let content_type = response.headers().get(reqwest::header::CONTENT_TYPE);
    content_type
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.trim_start().starts_with("application/json"))
}

/// How events lie in the body.
enum Framing {
    Events(sse::Decoder),
    Lines(Lines),
    Document(Vec<u8>),
}

struct Reading<D> {
    endpoint: Url,
    status: u16,
    body: Body<reqwest::Error>,
    bounds: Bounds,
    secrets: Arc<Secrets>,
    limit: Option<u32>,
    silence: Silence,
    /// Given back as soon as the answer is complete, though somebody still listens to it.
    permit: Option<Permit>,
    /// Read so far.
    body_bytes: usize,
    framing: Framing,
    decode: D,
    heard: Heard,
    progress: Phase,
    /// Nothing follows what was heard.
    over: bool,
}

impl<D: Decode> Reading<D> {
    async fn next(
        mut self: Box<Self>,
    ) -> Option<(Result<ProviderEvent, ProviderError>, Box<Self>)> {
        loop {
            if let Some(event) = self.heard.next() {
                return Some((event, self));
            }
            if self.over {
                return None;
            }
            self.read().await;
        }
    }

    async fn read(&mut self) {
        match self.silence.wait(self.body.chunk()).await {
            Ok(Ok(Some(bytes))) => {
                self.body_bytes += bytes.len();
                let most = self.bounds.body_bytes_max;
                if self.body_bytes > most as usize {
                    return self.fail(over("all that was sent for it", most));
                }
                match &mut self.framing {
                    Framing::Events(events) => events.push(&bytes),
                    Framing::Lines(lines) => lines.push(&bytes),
                    Framing::Document(document) => {
                        let most = self.bounds.event_bytes_max;
                        if document.len() + bytes.len() > most as usize {
                            return self.fail(over("the answer", most));
                        }
                        document.extend_from_slice(&bytes);
                    }
                }
                self.decode();
                if self.progress == Phase::Over && !self.over {
                    self.drain().await;
                    self.finish();
                }
            }
            Ok(Ok(None)) => {
                match &mut self.framing {
                    Framing::Events(events) => events.push_end(),
                    Framing::Lines(lines) => lines.push_end(),
                    Framing::Document(document) => {
                        let document = std::mem::take(document);
                        return self.whole(&document);
                    }
                }
                self.decode();
                if !self.over {
                    self.end(ProviderError::Broken("the answer ended too early".to_owned()));
                }
            }
            Ok(Err(error)) => self.end(errors::broken(&error)),
            Err(silence::TooLong) => self.end(errors::silent()),
        }
    }

    fn decode(&mut self) {
        while !self.over && self.progress < Phase::Over {
            let next = match &mut self.framing {
                Framing::Events(events) => events.next_event().map_err(|sse::TooLong| ()),
                Framing::Lines(lines) => lines.next_line().map_err(|super::lines::TooLong| ()),
                Framing::Document(_) => return,
            };
            let data = match next {
                Ok(Some(data)) => data,
                Ok(None) => return,
                Err(()) => return self.fail(over("an event", self.bounds.event_bytes_max)),
            };
            raw_chunk(&self.endpoint, self.status, data, &self.secrets);
            let said = self.heard.bytes();
            match self.decode.event(data, &mut self.heard) {
                Ok(progress) => {
                    self.progress = self.progress.max(progress);
                    self.silence.heard_event();
                    if self.heard.bytes() > said {
                        self.silence.heard_content();
                    }
                    if let Some(permit) = &mut self.permit {
                        permit.heard();
                    }
                    if let Err(error) = self.heard.check(&self.bounds) {
                        return self.fail(error);
                    }
                    self.heard.tell_usage();
                }
                Err(complaint) => return self.complain(complaint),
            }
        }
    }

    /// The whole answer came as one document.
    fn whole(&mut self, document: &[u8]) {
        raw_chunk(&self.endpoint, self.status, document, &self.secrets);
        match self.decode.document(document, &mut self.heard) {
            Ok(()) => match self.heard.check(&self.bounds) {
                Ok(()) => self.finish(),
                Err(error) => self.fail(error),
            },
            Err(complaint) => self.complain(complaint),
        }
    }

    fn complain(&mut self, complaint: Complaint) {
        self.fail(match complaint {
            Complaint::Undecodable(error) => {
                ProviderError::Broken(format!("an event could not be read: {error}")).into()
            }
            Complaint::Error(error) => errors::in_stream(&error, &self.secrets),
        });
    }

    /// The body is over, well or not: what the model has finished saying stands.
    fn end(&mut self, otherwise: impl Into<Failure>) {
        if self.progress >= Phase::Answered { self.finish() } else { self.fail(otherwise) }
    }

    fn finish(&mut self) {
        if let Some(mut permit) = self.permit.take() {
            permit.finished();
        }
        self.heard.finish(self.limit);
        self.over = true;
    }

    fn fail(&mut self, failure: impl Into<Failure>) {
        let failure = failure.into();
        if let Some(mut permit) = self.permit.take() {
            permit.failed(&failure);
        }
        self.heard.fail(failure.error);
        self.over = true;
    }

    async fn drain(&mut self) {
        let rest = async { while let Ok(Some(_)) = self.body.chunk().await {} };
        // In time or not, the answer is complete.
        let _ = tokio::time::timeout(DRAIN_MAX, rest).await;
    }
}

fn raw_chunk(endpoint: &Url, status: u16, data: &[u8], secrets: &Secrets) {
    if tracing::enabled!(target: RAW_TARGET, Level::DEBUG) {
        let body = secrets.redact(&String::from_utf8_lossy(data));
        let endpoint = endpoint.as_str();
        tracing::debug!(target: RAW_TARGET, kind = "chunk", endpoint, status, body);
    }
}
