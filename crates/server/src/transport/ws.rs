//! A WebSocket: the messages of stdio, one in each text frame. Calls run side by side.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use nexus_core::Hand;
use nexus_core::store::Door;
use nexus_protocol::RpcError;
use tokio::io::{AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Terms};
use super::door::Visitor;
use super::http::{Rejection, refuse};
use super::places::Place;
use super::stall::Stall;
use super::unix::{FRAME_BYTES_MAX, Frames};
use super::weight::{Weighed, Weight};
use crate::dispatcher::{Dispatcher, Signer};

/// Where it is.
pub const PATH: &str = "/ws";

/// Calls of one peer that run at once.
const CALLS_MAX: usize = 16;

/// Between two questions whether the peer is still there. Who has not said anything by the next is gone.
const PING_EVERY: Duration = Duration::from_secs(30);

/// What a peer may take to say good-bye.
const FAREWELL: Duration = Duration::from_secs(2);

/// Of a ping or its answer, as clients send it, what stands before its words.
const CONTROL_HEAD_BYTES: usize = 6;

/// What may wait between the frames and the calls.
const BUFFER_BYTES: usize = 64 * 1024;

type Socket = WebSocketStream<Weighed<TokioIo<Upgraded>>>;

/// A connection that is about to change its protocol.
pub struct Upgrade {
    pub on: OnUpgrade,
    pub visitor: Visitor,
    pub place: Arc<Place>,
    /// Largest message that is taken.
    pub message_bytes_max: usize,
}

/// What a request that asks for a WebSocket is answered with.
pub fn accepted(method: &Method, headers: &HeaderMap) -> Result<HeaderValue, Rejection> {
    let invalid = |status, why: &str| Err(refuse(status, RpcError::invalid_request(why)));
    if *method != Method::GET {
        return invalid(StatusCode::METHOD_NOT_ALLOWED, "a WebSocket is opened with GET");
    }
    let says = |name: header::HeaderName, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|it| it.trim().eq_ignore_ascii_case(word))
    };
    if !says(header::UPGRADE, "websocket") || !says(header::CONNECTION, "upgrade") {
        return invalid(StatusCode::UPGRADE_REQUIRED, "this is a WebSocket: ask for the upgrade");
    }
    if !says(header::SEC_WEBSOCKET_VERSION, "13") {
        return invalid(StatusCode::UPGRADE_REQUIRED, "the version of WebSockets here is 13");
    }
    let accept =
        headers.get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    match accept.and_then(|accept| HeaderValue::from_str(&accept).ok()) {
        Some(accept) => Ok(accept),
        None => invalid(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is missing"),
    }
}

/// What the two directions of a connection know of each other.
#[derive(Default)]
struct BothWays {
    /// The peer has said something since it was last asked.
    heard: AtomicBool,
    /// Why it is ended, where the peer is to be told.
    why: OnceLock<CloseCode>,
    /// Nothing more is sent to it.
    over: CancellationToken,
}

/// Serves a peer until it is gone, or the `end` of its place, be that with the server's `stop` or before.
pub async fn serve(
    dispatcher: Arc<Dispatcher>,
    upgrade: Upgrade,
    end: &CancellationToken,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let Upgrade { on, visitor, place, message_bytes_max } = upgrade;
    let upgraded = on.await.map_err(|error| Error::Io(std::io::Error::other(error)))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(message_bytes_max))
        .max_frame_size(Some(message_bytes_max));
    let weight = Weight::new(dispatcher.freight().load(&visitor.requester));
    let io = Weighed { io: TokioIo::new(upgraded), weight: weight.clone() };
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (sink, stream) = socket.split();
    let terms = Terms {
        requester: visitor.requester.clone(),
        hand: Hand::Program,
        // What comes with a key for this door cannot be signed with another.
        signer: if visitor.key.is_some() { Signer::Process } else { Signer::Nobody },
        door: None,
        answer_bytes_max: FRAME_BYTES_MAX,
        silence_max: None,
        // A peer that does not read is noticed where its bytes are written.
        stall: Stall::never(),
        place: Some(place),
    };
    let (calls, frames) = tokio::io::duplex(BUFFER_BYTES);
    let framing = Frames::<CALLS_MAX>;
    let connection = Connection::new(dispatcher.clone(), framing, tokio::io::split(calls), terms)
        .through(Door::WebSocket);
    let (reader, writer) = tokio::io::split(frames);
    let line = BothWays::default();
    line.heard.store(true, Ordering::Relaxed);
    let outward = async {
        let revoked = dispatcher.services().key_ended(Door::WebSocket, visitor.key.as_deref());
        let told = outward(sink, reader, &line, revoked).await;
        line.over.cancel();
        told
    };
    let calls = async {
        let _ = connection.run(end).await;
        if end.is_cancelled() && !stop.is_cancelled() {
            // Another needs its place.
            let _ = line.why.set(CloseCode::Again);
        }
    };
    let ((), (), told) = tokio::join!(calls, inward(stream, writer, &line, &weight), outward);
    told
}

/// From the peer to its calls. Ends when the peer does, and what it has begun is then over for it.
async fn inward(
    mut socket: SplitStream<Socket>,
    writer: WriteHalf<DuplexStream>,
    line: &BothWays,
    weight: &Weight,
) {
    let mut calls = FramedWrite::new(writer, codec());
    while let Some(message) = line.over.run_until_cancelled(socket.next()).await {
        line.heard.store(true, Ordering::Relaxed);
        let why = match message {
            Some(Ok(Message::Text(text))) => {
                match line.over.run_until_cancelled(calls.send(Bytes::from(text))).await {
                    Some(Ok(())) => {
                        weight.lift();
                        continue;
                    }
                    _ => break,
                }
            }
            Some(Ok(Message::Ping(said) | Message::Pong(said))) => {
                weight.pass(CONTROL_HEAD_BYTES + said.len());
                continue;
            }
            Some(Ok(Message::Frame(_))) => continue,
            Some(Ok(Message::Binary(_))) => CloseCode::Unsupported,
            Some(Err(Error::Capacity(_))) => CloseCode::Size,
            Some(Err(Error::Utf8(_))) => CloseCode::Invalid,
            Some(Err(Error::Protocol(_))) => CloseCode::Protocol,
            Some(Err(Error::Io(_))) if weight.is_too_much() => CloseCode::Again,
            Some(Ok(Message::Close(_)) | Err(_)) | None => break,
        };
        let _ = line.why.set(why);
        break;
    }
    let _ = calls.get_mut().shutdown().await;
}

/// From its calls to the peer, until there are none any more.
async fn outward(
    mut socket: SplitSink<Socket, Message>,
    reader: ReadHalf<DuplexStream>,
    line: &BothWays,
    revoked: impl Future<Output = ()>,
) -> Result<(), Error> {
    let mut revoked = pin!(revoked);
    let mut answers = FramedRead::new(reader, codec());
    let mut pings = tokio::time::interval(PING_EVERY);
    pings.reset();
    loop {
        tokio::select! {
            biased;
            () = &mut revoked => {
                let _ = line.why.set(CloseCode::Policy);
                break;
            }
            answer = answers.next() => {
                let Some(Ok(answer)) = answer else { break };
                let text = Utf8Bytes::try_from(answer.freeze());
                socket.send(Message::Text(text.map_err(|_| Error::AttackAttempt)?)).await?;
            }
            _ = pings.tick() => {
                if !line.heard.swap(false, Ordering::Relaxed) {
                    return Err(Error::ConnectionClosed);
                }
                socket.send(Message::Ping(Bytes::new())).await?;
            }
        }
    }
    let code = line.why.get().copied().unwrap_or(CloseCode::Normal);
    let farewell = CloseFrame { code, reason: Utf8Bytes::default() };
    let closed = socket.send(Message::Close(Some(farewell)));
    tokio::time::timeout(FAREWELL, closed).await.unwrap_or(Err(Error::ConnectionClosed))
}

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(FRAME_BYTES_MAX).new_codec()
}
