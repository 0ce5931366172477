//! The client over the framed Unix socket.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use nexus_protocol::answer;
use nexus_protocol::envelope::Call;
use nexus_protocol::key::Door;
use nexus_protocol::turn::{Send as SendMessage, SendParams, SendResult};
use nexus_protocol::watch::{Watch, WatchParams};
use nexus_protocol::{Api, CallError, Method, Target, WatchApi};
use nexus_signing::SigningKey;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::incoming::Incoming;
use crate::outgoing;
use crate::retry::{Again, retrying, timeout_for};
use crate::stream::SendStream;
use crate::watch::WatchStream;

/// Largest frame, both ways; the server's own limit.
pub(crate) const FRAME_BYTES_MAX: usize = 10 << 20;

/// Connections kept for the next call. More calls at once than this are rare on one machine.
const IDLE_MAX: usize = 8;

/// Calls a server over its Unix socket: the peer's user is the credential. A connection answers one call at a time,
/// so calls made side by side each have their own, and a `cancel` does not wait behind its `send`.
pub struct UnixClient {
    path: PathBuf,
    timeout: Option<Duration>,
    signing_key: Option<SigningKey>,
    door: Option<Door>,
    id_last: AtomicU64,
    idle: Mutex<Vec<Connection>>,
}

/// The codec writes a frame's header and body in one piece, as the framing asks.
pub(crate) type Connection = Framed<UnixStream, LengthDelimitedCodec>;

impl UnixClient {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (id_last, idle) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        let path = path.into();
        Self { path, timeout: None, signing_key: None, door: None, id_last, idle }
    }

    /// How long a call may take, its retries included. Without it a read has 30 s and all else no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Signs every call.
    pub fn signing_key(mut self, key: SigningKey) -> Self {
        self.signing_key = Some(key);
        self
    }

    /// Says of every call that it was made of one of another protocol.
    pub fn through(mut self, door: Door) -> Self {
        self.door = Some(door);
        self
    }

    /// Calls a method known by name only.
    pub async fn call_value(
        &self,
        target: &Target,
        method: &str,
        params: &Value,
    ) -> Result<Value, CallError> {
        let (id, body) = self.prepare(target, method, params)?;
        self.exchange(id, body, self.timeout, Again::of_value(params)).await
    }

    /// Sends a message and returns its answer as it is made.
    pub async fn send_stream(
        &self,
        agent_id: &str,
        params: SendParams,
    ) -> Result<SendStream, CallError> {
        let params = SendParams { stream: Some(true), ..params };
        let target = Target::Agent(agent_id.into());
        let (id, incoming) = self.open::<SendMessage>(&target, &params).await?;
        Ok(SendStream::new(id, incoming, self.timeout))
    }

    /// Watches agents: everything that happens to them. It has a connection for itself, and no time limit.
    pub async fn watch(&self, params: WatchParams) -> Result<WatchStream, CallError> {
        let (id, incoming) = self.open::<Watch>(&Target::Server, &params).await?;
        Ok(WatchStream::new(id, incoming))
    }

    /// Begins a call whose answer comes in pieces, on a connection of its own.
    async fn open<M: Method>(
        &self,
        target: &Target,
        params: &M::Params,
    ) -> Result<(u64, Incoming), CallError> {
        let (id, body) = self.prepare(target, M::NAME, params)?;
        let opening = retrying(self.timeout, Again::of::<M>(params), || async {
            let body = outgoing::signed(self.signing_key.as_ref(), &body)?;
            let mut connection = self.connection().await?;
            let lost = |error: io::Error| CallError::Transport(error.to_string());
            connection.send(body).await.map_err(lost)?;
            Ok(Incoming::Frames(Box::new(connection)))
        });
        Ok((id, opening.await?))
    }

    fn prepare<P: Serialize>(
        &self,
        target: &Target,
        method: &str,
        params: &P,
    ) -> Result<(u64, Bytes), CallError> {
        let id = self.id_last.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((id, frame(id, target, method, params, self.door)?))
    }

    async fn exchange<R: DeserializeOwned>(
        &self,
        id: u64,
        body: Bytes,
        timeout: Option<Duration>,
        again: Again,
    ) -> Result<R, CallError> {
        retrying(timeout, again, || async {
            let body = outgoing::signed(self.signing_key.as_ref(), &body)?;
            let mut connection = self.connection().await?;
            let answer = roundtrip(&mut connection, body).await?;
            // Only a connection with nothing under way goes back; one whose call was dropped is closed with it.
            self.keep(connection);
            answer::result(answer::envelope(&answer)?, id)
        })
        .await
    }

    async fn connection(&self) -> Result<Connection, CallError> {
        while let Some(connection) = self.take_idle() {
            if is_quiet(&connection) {
                return Ok(connection);
            }
        }
        let failed =
            |error: io::Error| CallError::Connect(format!("{}: {error}", self.path.display()));
        let stream = UnixStream::connect(&self.path).await.map_err(failed)?;
        let owner = stream.peer_cred().map_err(failed)?.uid();
        check_peer(owner, rustix::process::geteuid().as_raw()).map_err(failed)?;
        Ok(Framed::new(stream, codec()))
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

impl WatchApi for UnixClient {
    type Watch = WatchStream;

    async fn send_held(&self, agent_id: &str, params: SendParams) -> Result<SendResult, CallError> {
        self.send_stream(agent_id, params).await?.finish().await
    }

    async fn watch(&self, params: WatchParams) -> Result<WatchStream, CallError> {
        self.watch(params).await
    }
}

impl Api for UnixClient {
    async fn call<M: Method>(
        &self,
        target: &Target,
        params: M::Params,
    ) -> Result<M::Result, CallError> {
        let (id, body) = self.prepare(target, M::NAME, &params)?;
        let again = Again::of::<M>(&params);
        self.exchange(id, body, timeout_for(M::KIND, self.timeout), again).await
    }
}

/// Where another user could lay a socket before the server did, he would be told everything that is said to agents.
fn check_peer(owner: u32, us: u32) -> io::Result<()> {
    if owner == us || owner == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("who listens there is another user ({owner})")))
}

pub(crate) fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder()
        .length_field_length(4)
        .big_endian()
        .max_frame_length(FRAME_BYTES_MAX)
        .new_codec()
}

/// What a frame says that calls a method.
pub(crate) fn frame<P: Serialize>(
    id: u64,
    target: &Target,
    method: &str,
    params: &P,
    door: Option<Door>,
) -> Result<Bytes, CallError> {
    let body = match target {
        Target::Server => serde_json::to_vec(&Call::new(id, method, params).through(door)),
        Target::Agent(agent_id) => addressed(params, agent_id)
            .and_then(|params| serde_json::to_vec(&Call::new(id, method, &params).through(door))),
    };
    let body = body.map_err(|error| CallError::Call(error.to_string()))?;
    match body.len() > FRAME_BYTES_MAX {
        true => Err(CallError::Call(format!("it is over {FRAME_BYTES_MAX} bytes"))),
        false => Ok(body.into()),
    }
}

/// The socket has one endpoint; an agent's method names its agent in the parameters.
fn addressed<P: Serialize>(params: &P, agent_id: &str) -> Result<Value, serde_json::Error> {
    let mut params = serde_json::to_value(params)?;
    if params.is_null() {
        params = Value::Object(serde_json::Map::new());
    }
    if let Some(members) = params.as_object_mut() {
        members.insert("agent_id".into(), agent_id.into());
    }
    Ok(params)
}

/// Sends one call and returns its answer, passing over the notifications of a stream.
async fn roundtrip(connection: &mut Connection, body: Bytes) -> Result<BytesMut, CallError> {
    let lost = |error: io::Error| CallError::Transport(error.to_string());
    connection.send(body).await.map_err(lost)?;
    loop {
        let closed = || CallError::Transport("the server closed it before the answer".into());
        let message = connection.next().await.ok_or_else(closed)?.map_err(lost)?;
        if answer::envelope(&message)?.method.is_none() {
            return Ok(message);
        }
    }
}

/// Whether the peer neither closed the connection nor said anything unasked.
fn is_quiet(connection: &Connection) -> bool {
    let read = connection.get_ref().try_read(&mut [0]);
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests;
