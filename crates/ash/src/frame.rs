//! Frames on the socket: a length of four bytes, big-endian, then that many bytes of JSON; and the socket itself, with a
//! moment at which waiting for it ends.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Largest frame, both ways.
pub const FRAME_BYTES_MAX: usize = 10 * 1024 * 1024;

/// How often a server whose line is full is asked again.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// A socket that is waited for until `deadline`.
pub struct PatientSocket {
    stream: UnixStream,
    deadline: Instant,
}

/// What came instead of a frame.
#[derive(Debug)]
pub enum NoFrame {
    TooLarge(usize),
    Io(io::Error),
}

impl PatientSocket {
    /// Connects. The standard library would wait without end for a server that accepts nobody.
    pub fn connect(path: &Path, timeout: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + timeout;
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::AGAIN) if Instant::now() >= deadline => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(Errno::AGAIN) => std::thread::sleep(FULL_PAUSE),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(Self { stream, deadline })
    }

    /// Begins to wait anew.
    pub fn wait(&mut self, timeout: Duration) {
        self.deadline = Instant::now() + timeout;
    }

    /// Sends a frame in one piece: a server may read its head with one `recv`.
    pub fn send(&mut self, body: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(4 + body.len());
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(body);
        self.write_all(&frame)
    }

    /// The next frame. Sets no memory aside for a length that is only announced.
    pub fn receive(&mut self) -> Result<Vec<u8>, NoFrame> {
        let mut head = [0; 4];
        self.read_exact(&mut head)?;
        let length = u32::from_be_bytes(head) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(NoFrame::TooLarge(length));
        }
        let mut body = Vec::new();
        self.take(length as u64).read_to_end(&mut body)?;
        if body.len() < length {
            return Err(NoFrame::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(body)
    }

    fn remaining(&self) -> io::Result<Option<Duration>> {
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            remaining => Ok(Some(remaining)),
        }
    }
}

impl From<io::Error> for NoFrame {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Read for PatientSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.remaining()?)?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for PatientSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.remaining()?)?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}
