//! A Unix socket with framed messages: a 4-byte big-endian length, then that many bytes of JSON, both ways.

use std::fs;
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use nexus_core::{Hand, Requester};
use nexus_protocol::RpcError;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{Connection, Frame, Framing, Terms};
use super::places::Places;
use super::stall::Stall;
use super::{error_message, not_accepted, too_many_connections};
use crate::behalf::Door;
use crate::dispatcher::Signer;
use crate::host::Host;

/// Largest frame, both ways.
pub const FRAME_BYTES_MAX: usize = 10 * 1024 * 1024;

/// What connections may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections_max: usize,
    /// How long a peer may be silent while none of its calls runs.
    pub idle_timeout: Duration,
}

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
    #[error("no socket can be had at {path}")]
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
    /// With a `door`, all who connect speak for its identity and reach its methods.
    pub async fn run(
        self,
        host: Arc<impl Host>,
        door: Option<Arc<Door>>,
        limits: Limits,
        stop: CancellationToken,
    ) {
        let connections = TaskTracker::new();
        let places = Places::new(limits.connections_max);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let stream = match accepted {
                Ok((stream, _)) if is_own_user(&stream) => stream,
                Ok(_) => {
                    tracing::warn!("a connection of another user was refused");
                    continue;
                }
                Err(error) => {
                    not_accepted(&error, &places).await;
                    continue;
                }
            };
            let Some(place) = places.take(&stop).await else {
                connections.spawn(turn_away(stream));
                continue;
            };
            let terms = Terms {
                requester: Requester::Administrator,
                hand: Hand::Program,
                signer: Signer::Nobody,
                door: door.clone(),
                answer_bytes_max: FRAME_BYTES_MAX,
                silence_max: Some(limits.idle_timeout),
                stall: Stall::new(),
                place: Some(Arc::new(place)),
            };
            let (host, stop) = (host.for_connection(), stop.clone());
            let connection = Connection::new(host, Frames::<1>, stream.into_split(), terms);
            connections.spawn(async move {
                // Whatever ended it, this connection is all that is lost.
                let _ = connection.run(&stop).await;
            });
        }
        drop(self);
        connections.close();
        connections.wait().await;
    }
}

/// Tells one connection too many that it is one too many.
async fn turn_away(mut stream: UnixStream) {
    let mut frame = Vec::new();
    Frames::<1>.encode(&error_message(&too_many_connections()), &mut frame);
    let _ = stream.write_all(&frame).await;
    let _ = stream.shutdown().await;
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

/// A length of four bytes, then that many of JSON; so many calls at once.
pub(super) struct Frames<const CALLS_MAX: usize>;

impl<const CALLS_MAX: usize> Framing for Frames<CALLS_MAX> {
    const CALLS_MAX: usize = CALLS_MAX;
    const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX;

    /// Sets no memory aside for a length that is only announced: what a peer did not send costs nothing.
    fn decode(&mut self, input: &mut BytesMut) -> Option<Frame> {
        let length = u32::from_be_bytes(*input.first_chunk::<4>()?) as usize;
        if length > FRAME_BYTES_MAX {
            // What follows cannot be told from a header.
            return Some(Frame::Endless);
        }
        if input.len() < 4 + length {
            return None;
        }
        input.advance(4);
        Some(Frame::Message(input.split_to(length).freeze()))
    }

    fn encode(&self, message: &[u8], out: &mut Vec<u8>) {
        if message.len() > FRAME_BYTES_MAX {
            let error = format!("The answer is larger than {FRAME_BYTES_MAX} bytes");
            return self.encode(&error_message(&RpcError::internal(error)), out);
        }
        out.extend_from_slice(&(message.len() as u32).to_be_bytes());
        out.extend_from_slice(message);
    }
}
