//! The two pipes of a server as rmcp wants them: messages within a bound, and an answer to the question for its era even
//! where the server gives none.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, ErrorCode, ErrorData, Implementation, InitializeResult, JsonRpcMessage,
    ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Of one message. Who sends more sends without end.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// For the answer to `server/discover`. A server of the older era may say nothing to what it does not know.
const DISCOVER_MAX: Duration = Duration::from_secs(3);

/// Why a server was not read any further, once that is so.
#[derive(Clone, Default)]
pub struct Breach(Arc<(OnceLock<String>, CancellationToken)>);

impl Breach {
    pub fn set(&self, why: String) {
        let (known, told) = &*self.0;
        let _ = known.set(why);
        told.cancel();
    }

    pub fn get(&self) -> Option<String> {
        self.0.0.get().cloned()
    }

    pub async fn happened(&self) {
        self.0.1.cancelled().await;
    }
}

/// What is said of a server whose message is longer than is read.
pub fn too_long() -> String {
    format!("it sent a message of more than {} MiB", MESSAGE_BYTES_MAX >> 20)
}

pub struct Pipes<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> {
    inner: AsyncRwTransport<RoleClient, Bounded<R>, W>,
    /// The question for the era that was not answered yet, and until when it is waited for.
    asked: Option<(RequestId, Instant)>,
    given_up: Option<GivenUp>,
}

/// A question for the era that was answered in the server's place. A server that only started slowly answers both: what it
/// says to the handshake of the older era decides, and where it says no, or nothing, what it said to the question.
struct GivenUp {
    question: RequestId,
    /// The handshake that followed.
    initialize: Option<RequestId>,
    /// What it said of itself, as one of the newer era.
    newer: Option<ServerResult>,
    /// Its no to the handshake.
    refused: Option<ServerJsonRpcMessage>,
    /// One of the two is there, and the other is waited for until then.
    until: Option<Instant>,
    /// Nothing more is heard of the two.
    is_settled: bool,
}

impl<R, W> Pipes<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    pub fn new(read: R, write: W, breach: Breach) -> Self {
        let read = Bounded { inner: read, line: 0, breach };
        let inner = AsyncRwTransport::new(read, write).with_max_line_length(usize::MAX);
        Self { inner, asked: None, given_up: None }
    }

    /// What is to be said when nothing came in time.
    fn silence(&mut self) -> Option<ServerJsonRpcMessage> {
        match self.asked.take() {
            Some((question, _)) => {
                self.given_up = Some(GivenUp::new(question.clone()));
                Some(unknown_method(question))
            }
            None => self.given_up.as_mut()?.settled(),
        }
    }
}

impl GivenUp {
    fn new(question: RequestId) -> Self {
        Self {
            question,
            initialize: None,
            newer: None,
            refused: None,
            until: None,
            is_settled: false,
        }
    }

    /// What rmcp is told of a message that may concern the handshake; nothing of what it must not hear, or not yet.
    fn heard(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let id = id_of(&message);
        let is_question = id == Some(&self.question);
        let is_handshake = id.is_some() && id == self.initialize.as_ref();
        if !is_question && !is_handshake {
            return Some(message);
        }
        if self.is_settled {
            return None;
        }
        match message {
            _ if is_question => {
                self.newer = newer(message);
                let is_older = self.newer.is_none();
                if is_older && self.refused.is_none() {
                    // Whatever it says to the handshake is its last word.
                    self.initialize = None;
                    return None;
                }
            }
            JsonRpcMessage::Error(_) => self.refused = Some(message),
            _ => {
                self.is_settled = true;
                return Some(message);
            }
        }
        match self.until.replace(Instant::now() + DISCOVER_MAX) {
            Some(_) => self.settled(),
            None => None,
        }
    }

    /// With what is known by now.
    fn settled(&mut self) -> Option<ServerJsonRpcMessage> {
        self.is_settled = true;
        self.until = None;
        match self.newer.take().zip(self.initialize.clone()) {
            Some((known, id)) => Some(JsonRpcMessage::response(known, id)),
            None => self.refused.take(),
        }
    }
}

/// What a server of the newer era said of itself, as the handshake of the older would have it.
fn newer(answer: ServerJsonRpcMessage) -> Option<ServerResult> {
    let JsonRpcMessage::Response(answer) = answer else { return None };
    let ServerResult::DiscoverResult(known) = answer.result else { return None };
    let version = ProtocolVersion::V_2026_07_28;
    if !known.supported_versions.contains(&version) {
        return None;
    }
    let named = known.server_info().unwrap_or_else(|| Implementation::new("", ""));
    let mut result = InitializeResult::new(known.capabilities).with_server_info(named);
    result.protocol_version = version;
    result.instructions = known.instructions;
    Some(ServerResult::InitializeResult(result))
}

fn id_of(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

impl<R, W> Transport<RoleClient> for Pipes<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item {
            match (&request.request, &mut self.given_up) {
                (ClientRequest::DiscoverRequest(_), _) => {
                    self.asked = Some((request.id.clone(), Instant::now() + DISCOVER_MAX));
                }
                (ClientRequest::InitializeRequest(_), Some(given_up)) => {
                    given_up.initialize = Some(request.id.clone());
                }
                _ => {}
            }
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let asked = self.asked.as_ref().map(|(_, until)| *until);
            let until = asked.or(self.given_up.as_ref().and_then(|it| it.until));
            let message = match until {
                None => self.inner.receive().await?,
                Some(until) => match tokio::time::timeout_at(until, self.inner.receive()).await {
                    Ok(Some(message)) => message,
                    Ok(None) => return self.given_up.as_mut()?.settled(),
                    Err(_) => match self.silence() {
                        Some(message) => return Some(message),
                        None => continue,
                    },
                },
            };
            if let Some((question, _)) = &self.asked
                && id_of(&message) == Some(question)
            {
                let question = question.clone();
                self.asked = None;
                return Some(of_era(message, &question));
            }
            let heard = match &mut self.given_up {
                Some(given_up) => given_up.heard(message),
                None => Some(message),
            };
            if heard.is_some() {
                return heard;
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.inner.close().await
    }
}

/// The answer to the question for the era. Who answers something else has not understood it, and is of the older one.
pub fn of_era(answer: ServerJsonRpcMessage, asked: &RequestId) -> ServerJsonRpcMessage {
    match &answer {
        JsonRpcMessage::Response(response)
            if !matches!(response.result, ServerResult::DiscoverResult(_)) =>
        {
            unknown_method(asked.clone())
        }
        _ => answer,
    }
}

fn unknown_method(id: RequestId) -> ServerJsonRpcMessage {
    let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer to server/discover", None);
    JsonRpcMessage::error(error, Some(id))
}

/// Ends the stream at a line that is too long, so that whoever waits for the answer in it hears so at once.
struct Bounded<R> {
    inner: R,
    /// Bytes since the last line break.
    line: usize,
    breach: Breach,
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let new = &buffer.filled()[before..];
        self.line = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => new.len() - at - 1,
            None => self.line + new.len(),
        };
        if self.line > MESSAGE_BYTES_MAX {
            self.breach.set(too_long());
            buffer.set_filled(before);
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn read(bytes: Vec<u8>) -> (io::Result<usize>, Option<String>) {
        let breach = Breach::default();
        let mut bounded = Bounded { inner: &bytes[..], line: 0, breach: breach.clone() };
        let mut into = Vec::new();
        let read = bounded.read_to_end(&mut into).await;
        (read, breach.get())
    }

    #[tokio::test]
    async fn just_the_longest_message_passes_and_one_byte_more_does_not() {
        let line = |bytes: usize| [vec![b'a'; bytes], vec![b'\n']].concat();
        let several = [line(MESSAGE_BYTES_MAX), line(MESSAGE_BYTES_MAX)].concat();
        let (passed, breach) = read(several).await;
        assert_eq!((passed.unwrap(), breach), (2 * MESSAGE_BYTES_MAX + 2, None));
        let (refused, breach) = read(vec![b'a'; MESSAGE_BYTES_MAX + 1]).await;
        assert!(refused.is_err() && breach.is_some_and(|why| why.contains("16 MiB")));
    }
}
