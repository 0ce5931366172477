//! A Unix socket with framed messages: a 4-byte big-endian length, then that many bytes of JSON, both ways.

use std::fs;
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use nexus_core::Requester;
use nexus_protocol::RpcError;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::codec::{Decoder, FramedRead};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::patience::Patience;
use super::rarely::Rarely;
use super::{Begun, OUTBOX_MESSAGES_MAX, begin, error_message, finished, too_large};
use crate::dispatcher::{Caller, Dispatcher, Peer, Reply, Target};

/// Largest frame, both ways.
pub const FRAME_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Answers gather up to this size while further requests wait in the buffer.
const READY_BYTES_MAX: usize = 64 * 1024;

/// How long a peer may go on sending what is not taken any more.
const LINGER: Duration = Duration::from_secs(2);

/// A bound socket, not yet served. Its file is removed when this is dropped.
pub struct UnixServer {
    listener: UnixListener,
    file: SocketFile,
}

/// Why a socket cannot be had.
#[derive(Debug, Error)]
pub enum BindError {
    #[error("another server is listening on {0}")]
    Live(PathBuf),
    #[error("{0} exists and is not a socket")]
    NotASocket(PathBuf),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl UnixServer {
    /// Binds the socket at `path`. A stale socket is replaced; anything else that is there stays.
    ///
    /// The socket is made in a private directory beside its place and moved there when its mode is set, so there is no
    /// moment at which others could connect, and no moment at which another server's socket could be overwritten.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let failed = |source| BindError::Io { path: path.into(), source };
        let parent =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        clear_stale(path)?;
        let draft = Draft::make(parent).map_err(failed)?;
        let listener = UnixListener::bind(draft.socket()).map_err(failed)?;
        fs::set_permissions(draft.socket(), fs::Permissions::from_mode(0o600)).map_err(failed)?;
        match renameat_with(CWD, draft.socket(), CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Err(BindError::Live(path.into())),
            Err(error) => return Err(failed(error.into())),
        }
        let identity = identity(path).map_err(failed)?;
        Ok(Self { listener, file: SocketFile { path: path.into(), identity } })
    }

    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Serves until `stop`; then closes idle connections and lets running calls finish.
    pub async fn run(
        self,
        dispatcher: Arc<Dispatcher>,
        idle_timeout: Duration,
        stop: CancellationToken,
    ) {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) if is_own_user(&stream) => {
                    let connection =
                        Connection::new(dispatcher.for_connection(), stream, idle_timeout);
                    connections.spawn(connection.run(stop.clone()));
                }
                Ok(_) => tracing::warn!("a connection of another user was refused"),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(self);
        connections.close();
        connections.wait().await;
    }
}

/// Removes a socket that nobody listens on.
fn clear_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io { path: path.into(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket(path.into()));
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(_) => Err(BindError::Live(path.into())),
    }
}

/// A private directory in which a socket gets its mode. Short names: a socket's path has room for 107 bytes.
struct Draft(PathBuf);

impl Draft {
    fn make(parent: &Path) -> io::Result<Self> {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let path = parent.join(format!(".{:08x}", u32::from_be_bytes(bytes)));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_dir(&self.0);
    }
}

struct SocketFile {
    path: PathBuf,
    /// Device and inode: another server's socket at the same path is not ours to remove.
    identity: (u64, u64),
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_own_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

/// One peer. Its requests are answered in order; while one runs, at most one more is read ahead.
struct Connection {
    dispatcher: Arc<Dispatcher>,
    frames: FramedRead<OwnedReadHalf, Frames>,
    output: OwnedWriteHalf,
    /// Frames that are ready to leave.
    ready: Vec<u8>,
    caller: Caller,
    closed: CancellationToken,
    notifications: mpsc::Receiver<Vec<u8>>,
    /// How long the peer may be silent.
    patience: Patience,
}

impl Connection {
    fn new(dispatcher: Arc<Dispatcher>, stream: UnixStream, idle_timeout: Duration) -> Self {
        let (input, output) = stream.into_split();
        let (outbox, notifications) = mpsc::channel(OUTBOX_MESSAGES_MAX);
        let closed = CancellationToken::new();
        let caller = Caller {
            requester: Requester::Administrator,
            target: Target::Server,
            peer: Some(Arc::new(Peer { outbox, closed: closed.clone() })),
            answer_bytes_max: FRAME_BYTES_MAX,
        };
        Self {
            dispatcher,
            frames: FramedRead::new(input, Frames),
            output,
            ready: Vec::new(),
            caller,
            closed,
            notifications,
            patience: Patience::new(idle_timeout),
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let closed = self.closed.clone().drop_guard();
        // Whatever ended it, this connection is all that is lost.
        let _ = self.serve(&stop).await;
        drop(closed);
    }

    async fn serve(&mut self, stop: &CancellationToken) -> io::Result<()> {
        // Of its own, so that connections do not meet at one lock.
        let (stop, patience) = (stop.child_token(), self.patience.clone());
        let mut ending = Rarely::new(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = patience.over() => {}
            }
        });
        let mut ahead = None;
        loop {
            // While requests wait in the buffer their answers gather; they leave together.
            let frame = match ahead.take().or_else(|| self.buffered_frame()) {
                Some(frame) => Some(frame),
                None => {
                    self.flush().await?;
                    self.next_frame(&mut ending).await
                }
            };
            let message = match frame {
                Some(Ok(frame)) => frame.freeze(),
                Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    // The length was over the limit. What follows it cannot be told from a header.
                    self.queue(&error_message(&too_large(FRAME_BYTES_MAX)));
                    self.flush().await?;
                    return self.linger(&mut ending).await;
                }
                Some(Err(_)) | None => return self.flush().await,
            };
            if !self.answer(message, &mut ahead).await? {
                return self.flush().await;
            }
        }
    }

    /// The next frame, if it has come in full.
    fn buffered_frame(&mut self) -> Ahead {
        Frames.decode(self.frames.read_buffer_mut()).transpose()
    }

    /// The next frame; `None` when the peer is gone, was silent for too long, or the server stops.
    async fn next_frame(
        &mut self,
        ending: &mut Rarely<impl Future<Output = ()>>,
    ) -> Option<io::Result<BytesMut>> {
        self.patience.begin();
        tokio::select! {
            biased;
            () = ending => None,
            frame = self.frames.next() => frame,
        }
    }

    /// Takes what the peer still sends and throws it away. Closed at once, the peer would fail in the middle of its frame
    /// and never read why.
    async fn linger(&mut self, ending: &mut Rarely<impl Future<Output = ()>>) -> io::Result<()> {
        self.output.shutdown().await?;
        let mut nowhere = tokio::io::sink();
        let rest = tokio::io::copy(self.frames.get_mut(), &mut nowhere);
        tokio::select! {
            biased;
            () = ending => {}
            _ = tokio::time::timeout(LINGER, rest) => {}
        }
        Ok(())
    }

    /// Carries out a message and queues its answer. False when the peer is gone.
    async fn answer(&mut self, message: Bytes, ahead: &mut Ahead) -> io::Result<bool> {
        let (reply, open) = match begin(&self.dispatcher, self.caller.clone(), message) {
            Begun::Done(reply) => (reply, true),
            Begun::Running(worker) => {
                self.flush().await?;
                self.follow(worker, ahead).await?
            }
        };
        while let Ok(notification) = self.notifications.try_recv() {
            self.queue(&notification);
        }
        if let Some(body) = reply.body {
            self.queue(&body);
        }
        if self.ready.len() > READY_BYTES_MAX {
            self.flush().await?;
        }
        Ok(open)
    }

    /// Waits for a call that takes time, and meanwhile writes what it streams and notices when the peer goes.
    async fn follow(
        &mut self,
        mut worker: tokio::task::JoinHandle<Reply>,
        ahead: &mut Ahead,
    ) -> io::Result<(Reply, bool)> {
        let mut open = true;
        loop {
            tokio::select! {
                biased;
                Some(notification) = self.notifications.recv() => {
                    self.queue(&notification);
                    self.flush().await?;
                }
                joined = &mut worker => return Ok((finished(joined), open)),
                frame = self.frames.next(), if open && ahead.is_none() => match frame {
                    Some(frame) => *ahead = Some(frame),
                    None => {
                        open = false;
                        self.closed.cancel();
                    }
                },
            }
        }
    }

    /// Puts a frame with those that are ready to leave.
    fn queue(&mut self, body: &[u8]) {
        if body.len() > FRAME_BYTES_MAX {
            let error = format!("The answer is larger than {FRAME_BYTES_MAX} bytes");
            return self.queue(&error_message(&RpcError::internal(error)));
        }
        self.ready.extend_from_slice(&(body.len() as u32).to_be_bytes());
        self.ready.extend_from_slice(body);
    }

    /// Writes what is ready. Header and body leave together: clients in the field read the header with one `recv`.
    async fn flush(&mut self) -> io::Result<()> {
        if !self.ready.is_empty() {
            self.output.write_all(&self.ready).await?;
            self.ready.clear();
            self.ready.shrink_to(READY_BYTES_MAX);
        }
        Ok(())
    }
}

/// Cuts the input into frames. Unlike the codec that comes with tokio it sets no memory aside for a length that is only
/// announced: what a peer did not send costs nothing.
struct Frames;

impl Decoder for Frames {
    type Item = BytesMut;
    type Error = io::Error;

    /// `InvalidData` when a frame is over the limit.
    fn decode(&mut self, input: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        let Some(header) = input.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*header) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if input.len() < 4 + length {
            return Ok(None);
        }
        input.advance(4);
        Ok(Some(input.split_to(length)))
    }
}

/// A frame that was read while the one before it still ran.
type Ahead = Option<io::Result<BytesMut>>;
