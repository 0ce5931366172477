//! The baselines: servers that do nothing but answer with given bytes. Each runs in a process of its own, this same
//! binary with `--bare-…`, so that it pays for the machine as the real server does.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::client::find;
use crate::mcp;
use crate::server::{Place, Process};

/// Longest wait for a baseline to come up.
const START_MAX: Duration = Duration::from_secs(10);

/// Runs a baseline, in its own process.
pub async fn run(kind: &str, args: &[String]) -> anyhow::Result<()> {
    match (kind, args) {
        ("--bare-http", [answer]) => http(&std::fs::read(answer)?).await,
        ("--bare-frames", [socket, answer]) => frames(socket, std::fs::read(answer)?.into()).await,
        ("--bare-lines", [answer, how]) => lines(&std::fs::read(answer)?, how == "together").await,
        ("--bare-mcp", [tools, _mark]) => mcp::serve(tools.parse()?),
        _ => bail!("{kind} {args:?} is no baseline"),
    }
}

/// A bare hyper server that answers every request with `answer`, an answer as it was read from the wire.
pub fn start_http(place: &Place, answer: &[u8]) -> anyhow::Result<(Process, SocketAddr)> {
    let file = place.file("answer.http");
    std::fs::write(&file, answer)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--bare-http").arg(file).stdout(Stdio::piped());
    let mut process = Process(command.spawn()?);
    let output = process.0.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let address = line.trim().parse().context("the bare server said no address")?;
    Ok((process, address))
}

/// A bare echo on a socket: every frame is answered with `answer`.
pub async fn start_frames(place: &Place, socket: &Path, answer: &[u8]) -> anyhow::Result<Process> {
    let file = place.file("answer.frame");
    std::fs::write(&file, answer)?;
    let mut command = Command::new(std::env::current_exe()?);
    let process = Process(command.arg("--bare-frames").arg(socket).arg(file).spawn()?);
    let started = Instant::now();
    while tokio::net::UnixStream::connect(socket).await.is_err() {
        if started.elapsed() > START_MAX {
            bail!("the bare echo did not come up");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(process)
}

/// The command of a bare echo on standard input and output: every line is answered with `answer`, each with a write of
/// its own, or together those that one read brought.
pub fn lines_command(place: &Place, answer: &[u8], together: bool) -> anyhow::Result<Command> {
    let file = place.file("answer.line");
    std::fs::write(&file, answer)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--bare-lines").arg(file).arg(if together { "together" } else { "each" });
    Ok(command)
}

async fn http(answer: &[u8]) -> anyhow::Result<()> {
    let head_end = find(answer, b"\r\n\r\n").context("no head")? + 4;
    let body = Bytes::copy_from_slice(&answer[head_end..]);
    let mut headers = HeaderMap::new();
    for line in std::str::from_utf8(&answer[..head_end])?.lines().skip(1) {
        let Some((name, value)) = line.split_once(": ") else { continue };
        // These two hyper writes by itself, for both.
        if name != "date" && name != "content-length" {
            headers.insert(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
        }
    }
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (headers, body) = (headers.clone(), body.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let mut response = Response::new(Full::new(body.clone()));
            *response.headers_mut() = headers.clone();
            async move {
                let _ = request.into_body().collect().await;
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn frames(socket: &str, answer: Bytes) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let answer = answer.clone();
        tokio::spawn(async move {
            let mut frames = Framed::new(stream, LengthDelimitedCodec::new());
            while let Some(Ok(_)) = frames.next().await {
                if frames.send(answer.clone()).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn lines(answer: &[u8], together: bool) -> anyhow::Result<()> {
    let (mut input, mut output) = (tokio::io::stdin(), tokio::io::stdout());
    let (mut buffer, mut out) = (BytesMut::with_capacity(64 * 1024), Vec::new());
    while input.read_buf(&mut buffer).await? > 0 {
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let _line = buffer.split_to(end + 1);
            out.extend_from_slice(answer);
            out.push(b'\n');
            if !together || !buffer.contains(&b'\n') {
                output.write_all(&out).await?;
                output.flush().await?;
                out.clear();
            }
        }
        buffer.reserve(8 * 1024);
    }
    Ok(())
}
