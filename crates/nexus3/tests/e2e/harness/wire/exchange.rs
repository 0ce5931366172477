//! One request and what comes back for it, message by message.

use std::sync::Arc;

use nexus_server::transport::memory::{MemoryConnection, Notifications};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::super::{Framed, Http, check, within};

/// Notifications, then the answer. Dropping it hangs up, except on stdio.
pub struct Exchange {
    source: Source,
    answered: bool,
}

enum Source {
    Events {
        connection: Http,
        unread: Vec<u8>,
    },
    Body(Option<String>),
    Frames(Framed),
    Lines(mpsc::UnboundedReceiver<String>),
    Memory {
        notifications: Notifications,
        /// Owns the connection, which ends with it.
        call: AbortOnDropHandle<Option<Vec<u8>>>,
    },
}

impl Exchange {
    pub(super) async fn http(mut connection: Http) -> Self {
        let head = connection.head().await.expect("the server closed without an answer");
        if head.header("content-type") == Some("text/event-stream") {
            assert_eq!(head.status, 200);
            return Self::of(Source::Events { connection, unread: Vec::new() });
        }
        let body = connection.body(&head).await;
        Self::body(String::from_utf8(body).unwrap())
    }

    /// An answer that comes at once.
    pub(super) fn body(answer: String) -> Self {
        Self::of(Source::Body(Some(answer)))
    }

    pub(super) fn unix(connection: Framed) -> Self {
        Self::of(Source::Frames(connection))
    }

    pub(super) fn stdio(lines: mpsc::UnboundedReceiver<String>) -> Self {
        Self::of(Source::Lines(lines))
    }

    pub(super) fn memory(
        connection: MemoryConnection,
        notifications: Notifications,
        message: Vec<u8>,
    ) -> Self {
        let connection = Arc::new(connection);
        let call = tokio::spawn(async move { connection.request(message).await });
        Self::of(Source::Memory { notifications, call: AbortOnDropHandle::new(call) })
    }

    fn of(source: Source) -> Self {
        Self { source, answered: false }
    }

    /// The next message, checked; `None` after the answer.
    pub async fn next(&mut self) -> Option<Value> {
        self.next_raw().await.map(|raw| check::message(&raw))
    }

    /// The text of the next message.
    pub async fn next_raw(&mut self) -> Option<String> {
        if self.answered {
            return self.nothing_more().await;
        }
        let raw =
            within("a message", self.source.next()).await.expect("a stream without its answer");
        self.answered = check::message(&raw).get("method").is_none();
        Some(raw)
    }

    /// All that is left: the notifications and the answer.
    pub async fn all(mut self) -> (Vec<Value>, Value) {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        let answer = messages.pop().unwrap();
        (messages, answer)
    }

    /// The answer is the last event of a stream over HTTP. On the other transports the wire itself finds strays.
    async fn nothing_more(&mut self) -> Option<String> {
        if let Source::Events { .. } = &self.source {
            assert_eq!(within("the end of the body", self.source.next()).await, None);
        }
        None
    }
}

impl Source {
    async fn next(&mut self) -> Option<String> {
        match self {
            Self::Body(body) => body.take(),
            Self::Frames(connection) => connection.frame().await,
            Self::Lines(lines) => lines.recv().await,
            Self::Events { connection, unread } => event(connection, unread).await,
            Self::Memory { notifications, call } => tokio::select! {
                biased;
                Some(notification) = notifications.recv() => Some(String::from_utf8(notification).unwrap()),
                answer = call => answer.unwrap().map(|answer| String::from_utf8(answer).unwrap()),
            },
        }
    }
}

/// The data of the next server-sent event.
async fn event(connection: &mut Http, unread: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = unread.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<_> = unread.drain(..end + 2).collect();
            if event.starts_with(b":") {
                continue;
            }
            let data = event[..end].strip_prefix(b"data: ").expect("an event of data only");
            return Some(str::from_utf8(data).expect("an event is UTF-8").into());
        }
        match connection.chunk().await {
            Some(chunk) => unread.extend(chunk),
            None => {
                assert!(unread.is_empty(), "half an event");
                return None;
            }
        }
    }
}
