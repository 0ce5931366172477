//! The bytes of an HTTP connection, with three things hyper leaves out.
//!
//! What hyper itself refuses, bytes that are no HTTP and a head far over the limit, it answers with a bare status. Here
//! the body that every answer has is added. And the clock of a request starts with its first byte: hyper tells only
//! when it began to wait. And a client that does not read its answer is given up.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nexus_protocol::RpcError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error_message;
use super::patience::Patience;
use super::stall::Stall;

pub struct Courtesy<S> {
    stream: S,
    patience: Patience,
    stall: Stall,
    /// The rest of an answer that took the place of hyper's.
    pending: Vec<u8>,
}

impl<S> Courtesy<S> {
    pub fn new(stream: S, patience: Patience) -> Self {
        Self { stream, patience, stall: Stall::new(), pending: Vec::new() }
    }
}

/// What is written instead, if `bytes` end with a refusal of hyper's own: of ours, none is without a body.
fn courteous(bytes: &[u8]) -> Option<Vec<u8>> {
    let head_start = bytes.ends_with(b"\r\n\r\n").then(|| rfind(bytes, b"HTTP/1.1 "))??;
    let (before, head) = bytes.split_at(head_start);
    let status = [(400, "Bad Request"), (414, "URI Too Long"), (431, REQUEST_TOO_LARGE)]
        .into_iter()
        .find(|(status, _)| head.starts_with(format!("HTTP/1.1 {status} ").as_bytes()))?;
    rfind(head, b"content-length: 0\r\n")?;
    let why = match status.0 {
        400 => "this is not HTTP/1.1",
        414 => "the path is too long",
        _ => "the headers are far too large",
    };
    let answer = refusal(status, &RpcError::invalid_request(why));
    Some([before, &answer].concat())
}

const REQUEST_TOO_LARGE: &str = "Request Header Fields Too Large";

/// An answer after which the connection is closed, for where there is no hyper to write it.
pub fn refusal((status, reason): (u16, &str), error: &RpcError) -> Vec<u8> {
    let body = error_message(error);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.as_bytes(), &body].concat()
}

fn rfind(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).rposition(|window| window == wanted)
}

impl<S: AsyncRead + Unpin> AsyncRead for Courtesy<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.patience.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Courtesy<S> {
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.pending))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => drop(self.pending.drain(..bytes)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Courtesy<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(cx))?;
        match courteous(bytes) {
            Some(instead) => {
                self.pending = instead;
                Poll::Ready(Ok(bytes.len()))
            }
            None => {
                let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
                self.stall.watch(written, cx)
            }
        }
    }

    /// A refusal of hyper's own is all that it writes then, in one piece.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(cx))?;
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        match (filled.next(), filled.next()) {
            (Some(only), None) => self.poll_write(cx, only),
            _ => {
                let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
                self.stall.watch(written, cx)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_hyper_refuses_is_replaced() {
        let bare =
            |status| format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let earlier = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        for (bytes, status) in [
            (bare("400 Bad Request"), "400 Bad Request"),
            (bare("431 Request Header Fields Too Large"), "431 Request Header"),
            (format!("{earlier}{}", bare("400 Bad Request")), "400 Bad Request"),
        ] {
            let text = String::from_utf8(courteous(bytes.as_bytes()).unwrap()).unwrap();
            let answer = text.strip_prefix(earlier).unwrap_or(&text);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
            assert!(answer.ends_with("}}") && answer.contains("-32600"), "{text}");
        }
        let ours = "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}";
        for bytes in [bare("202 Accepted"), earlier.into(), ours.into(), String::new()] {
            assert_eq!(courteous(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
