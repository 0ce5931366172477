//! The framed socket, byte by byte.

use std::io;
use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::{check, within};

pub struct Framed(UnixStream);

impl Framed {
    pub async fn connect(path: &Path) -> Self {
        Self(within("a connection", UnixStream::connect(path)).await.unwrap())
    }

    /// One end of a pair.
    pub fn over(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// Bytes as they are, without a header.
    pub async fn write(&mut self, bytes: &[u8]) {
        within("the server to read", self.0.write_all(bytes)).await.unwrap();
    }

    pub async fn send(&mut self, message: &[u8]) {
        let header = (message.len() as u32).to_be_bytes();
        self.write(&[&header, message].concat()).await;
    }

    /// The next frame, `None` when the server closed.
    pub async fn frame(&mut self) -> Option<String> {
        let mut header = [0; 4];
        match within("a frame", self.0.read_exact(&mut header)).await {
            Err(error) if is_close(&error) => return None,
            read => read.unwrap(),
        };
        let mut body = vec![0; u32::from_be_bytes(header) as usize];
        within("a frame's body", self.0.read_exact(&mut body)).await.unwrap();
        Some(String::from_utf8(body).expect("a frame is UTF-8"))
    }

    /// The next message, checked.
    pub async fn message(&mut self) -> Value {
        check::message(&self.frame().await.expect("the server closed without an answer"))
    }

    /// Sends no more, but still reads.
    pub async fn end_input(&mut self) {
        self.0.shutdown().await.unwrap();
    }

    /// What one `recv` returns.
    pub async fn read_once(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut bytes = vec![0; bytes_max];
        let read = within("bytes", self.0.read(&mut bytes)).await.unwrap();
        bytes.truncate(read);
        bytes
    }
}

fn is_close(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}
