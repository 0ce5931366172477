//! The load generator: requests made once, raw connections, and no more work per answer than finding its end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stats::Latencies;

/// The bytes of a call over HTTP.
pub fn post(path: &str, headers: &str, body: &str) -> Bytes {
    let bytes = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}content-type: application/json\r\ncontent-length: {bytes}\r\n\r\n{body}"
    )
    .into()
}

/// A keep-alive connection with one call in flight.
pub struct Http {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Http {
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(64 * 1024) })
    }

    /// Sends a request and reads its answer, which must have a length and a status of 200. Returns the body.
    pub async fn call(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let (head_end, body_bytes) = loop {
            self.read().await?;
            if let Some(head_end) = find(&self.buffer, b"\r\n\r\n") {
                break (head_end + 4, content_length(&self.buffer[..head_end + 2])?);
            }
        };
        while self.buffer.len() < head_end + body_bytes {
            self.read().await?;
        }
        ensure!(
            self.buffer.starts_with(b"HTTP/1.1 200"),
            "not a 200: {}",
            String::from_utf8_lossy(&self.buffer)
        );
        Ok(&self.buffer[head_end..])
    }

    /// As `call`, for an answer in chunks. Returns the whole answer, chunk headers and all.
    pub async fn stream(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        self.read_to_end_of_stream().await
    }

    /// Reads on to the end of an answer in chunks.
    pub async fn read_to_end_of_stream(&mut self) -> anyhow::Result<&[u8]> {
        self.read_until(|answer| answer.ends_with(b"\r\n0\r\n\r\n")).await
    }

    /// Reads on until this holds of the answer.
    pub async fn read_until(&mut self, is_enough: impl Fn(&[u8]) -> bool) -> anyhow::Result<&[u8]> {
        while !is_enough(&self.buffer) {
            self.read().await?;
        }
        Ok(&self.buffer)
    }

    /// Calls, and reads the answer as JSON.
    pub async fn result(&mut self, request: &[u8]) -> anyhow::Result<Value> {
        let mut answer: Value = serde_json::from_slice(self.call(request).await?)?;
        ensure!(answer["error"].is_null(), "the call failed: {answer}");
        Ok(answer["result"].take())
    }

    /// The latest answer, head and body.
    pub fn answer(&self) -> &[u8] {
        &self.buffer
    }

    /// The body of the latest answer.
    pub fn body(&self) -> anyhow::Result<&[u8]> {
        let head_end = find(&self.buffer, b"\r\n\r\n").context("no answer yet")?;
        Ok(&self.buffer[head_end + 4..])
    }

    /// Sends bytes and waits for nothing.
    pub async fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        self.buffer.reserve(16 * 1024);
        ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the connection was closed");
        Ok(())
    }
}

pub fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn content_length(head: &[u8]) -> anyhow::Result<usize> {
    const NAME: &[u8] = b"content-length: ";
    for line in head.split(|byte| *byte == b'\n') {
        if line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME) {
            let digits = line[NAME.len()..].trim_ascii();
            return Ok(std::str::from_utf8(digits)?.parse()?);
        }
    }
    bail!("an answer without a length: {}", String::from_utf8_lossy(head))
}

/// How long each connection goes on.
#[derive(Clone, Copy)]
pub enum Until {
    Time(Duration),
    Calls(usize),
}

pub struct Load {
    pub per_second: f64,
    pub latencies: Latencies,
}

/// One connection for each request, which it repeats.
pub async fn hammer(address: SocketAddr, requests: &[Bytes], until: Until) -> anyhow::Result<Load> {
    let connections = requests.iter().map(|_| Http::connect(address));
    let connections = try_join_all(connections).await.context("connecting")?;
    let started = Instant::now();
    let tasks =
        connections.into_iter().zip(requests.iter().cloned()).map(|(mut connection, request)| {
            tokio::spawn(async move {
                let (mut latencies, mut from) = (Vec::with_capacity(4096), Instant::now());
                while !is_over(until, from - started, latencies.len()) {
                    let body = connection.call(&request).await?;
                    let is_result = find(&body[..body.len().min(64)], b"\"result\"").is_some();
                    ensure!(is_result, "not a result: {}", String::from_utf8_lossy(body));
                    let now = Instant::now();
                    latencies.push(now - from);
                    from = now;
                }
                Ok(latencies)
            })
        });
    let mut latencies = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        latencies.append(&mut task.await??);
    }
    let elapsed = started.elapsed().as_secs_f64();
    Ok(Load { per_second: latencies.len() as f64 / elapsed, latencies: Latencies::new(latencies) })
}

fn is_over(until: Until, elapsed: Duration, calls: usize) -> bool {
    match until {
        Until::Time(time) => elapsed >= time,
        Until::Calls(max) => calls >= max,
    }
}
