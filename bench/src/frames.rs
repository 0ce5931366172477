//! Small calls over the framed socket and over standard input and output, against bare echoes with the same framing.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::Bench;
use crate::bare;
use crate::server::{Place, Server, config_without_model};
use crate::stats::median;
use crate::table::{Row, Table};

const IN_FLIGHT: usize = 16;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(&config_without_model()).await?;
    server.create_agents("a", 1).await?;
    let call = get_context(1);
    let one = call.to_string();
    let batch = Value::Array(vec![call; IN_FLIGHT]).to_string();
    // 16 in flight from one peer, as over standard input, and from 16 peers, who are woken, and wake us, for every single
    // call: what a call costs weighs more there.
    let cases = [
        ("framed socket, get_context, 16 frames in flight", &one, 1, IN_FLIGHT, 1),
        ("framed socket, get_context, one on each of 16 connections", &one, IN_FLIGHT, 1, 1),
        ("  batches of 16 (to the echo a batch is one message)", &batch, 1, 1, IN_FLIGHT),
    ];
    for (what, message, connections, window, calls) in cases {
        let request = frame(message.as_bytes());
        let socket = server.place.socket();
        let answer = one_answer(&socket, &request).await?;
        let bare_socket = server.place.file(&format!("bare-{window}-{calls}.sock"));
        let _bare = bare::start_frames(&server.place, &bare_socket, &answer).await?;
        let mut pairs = Vec::new();
        for _ in 0..bench.rounds() {
            let load = |path| flood(path, &request, connections, window, bench.round());
            pairs.push((load(&socket).await?, load(&bare_socket).await?));
        }
        let row = Compared::new(&pairs, calls as f64);
        table.add(if calls == 1 { row.judged(what) } else { row.row(what) });
    }
    stdio(bench, table, one).await
}

/// Calls in a second, ours and the echo's.
struct Compared {
    ours: f64,
    bare: f64,
    ratio: f64,
}

impl Compared {
    fn new(pairs: &[(f64, f64)], calls: f64) -> Self {
        Self {
            ours: calls * median(pairs.iter().map(|pair| pair.0)),
            bare: calls * median(pairs.iter().map(|pair| pair.1)),
            ratio: median(pairs.iter().map(|(ours, bare)| ours / bare)),
        }
    }

    fn row(&self, what: &str) -> Row {
        Row::new(what)
            .measured(format!("{:.0}/s", self.ours))
            .baseline(format!("{:.0}/s bare echo", self.bare))
            .ratio(self.ratio)
    }

    fn judged(&self, what: &str) -> Row {
        self.row(what).reach("≥ 0.7", self.ratio >= 0.7)
    }
}

fn get_context(id: u32) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "get_context", "params": {"agent_id": "a0"}})
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes(), body].concat()
}

async fn one_answer(socket: &Path, request: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(request).await?;
    let mut answer = vec![0; stream.read_u32().await? as usize];
    stream.read_exact(&mut answer).await?;
    ensure!(answer.windows(8).any(|part| part == b"\"result\""), "the call failed");
    Ok(answer)
}

/// Frames answered in a second.
async fn flood(
    socket: &Path,
    request: &[u8],
    connections: usize,
    window: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let streams = try_join_all((0..connections).map(|_| UnixStream::connect(socket))).await?;
    let started = Instant::now();
    let tasks = streams.into_iter().map(|stream| {
        let request = request.to_vec();
        tokio::spawn(async move {
            let (input, output) = stream.into_split();
            slide(input, output, &request, window, time, FrameEnds::default()).await
        })
    });
    let mut answers = 0;
    for task in tasks.collect::<Vec<_>>() {
        answers += task.await??;
    }
    Ok(answers as f64 / started.elapsed().as_secs_f64())
}

/// Keeps `window` requests in flight for a while; returns how many were answered.
async fn slide(
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    request: &[u8],
    window: usize,
    time: Duration,
    mut ends: impl Ends,
) -> anyhow::Result<usize> {
    let requests = request.repeat(window);
    let (started, mut buffer) = (Instant::now(), vec![0; 64 * 1024]);
    let (mut answers, mut open) = (0, window);
    output.write_all(&requests).await?;
    while open > 0 {
        let bytes = input.read(&mut buffer).await?;
        ensure!(bytes > 0, "the connection was closed");
        let ended = ends.count(&buffer[..bytes]);
        answers += ended;
        open -= ended;
        if ended > 0 && started.elapsed() < time {
            output.write_all(&requests[..request.len() * ended]).await?;
            open += ended;
        }
    }
    Ok(answers)
}

/// Counts the answers that end within the bytes read.
trait Ends: Send {
    fn count(&mut self, bytes: &[u8]) -> usize;
}

struct LineEnds;

impl Ends for LineEnds {
    fn count(&mut self, bytes: &[u8]) -> usize {
        bytes.iter().filter(|byte| **byte == b'\n').count()
    }
}

#[derive(Default)]
struct FrameEnds {
    header: [u8; 4],
    header_bytes: usize,
    body_left: usize,
}

impl Ends for FrameEnds {
    fn count(&mut self, mut bytes: &[u8]) -> usize {
        let mut ended = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if self.header_bytes < 4 {
                self.header[self.header_bytes] = *first;
                self.header_bytes += 1;
                self.body_left = u32::from_be_bytes(self.header) as usize;
                bytes = rest;
                continue;
            }
            let taken = self.body_left.min(bytes.len());
            self.body_left -= taken;
            bytes = &bytes[taken..];
            if self.body_left == 0 {
                self.header_bytes = 0;
                ended += 1;
            }
        }
        ended
    }
}

async fn stdio(bench: &Bench, table: &mut Table, call: String) -> anyhow::Result<()> {
    let request = [call.as_bytes(), b"\n"].concat();
    let place = Place::new(&config_without_model())?;
    let mut ours = Pipes::spawn(place.command(&["--stdio"])?.into())?;
    let create =
        json!({"jsonrpc": "2.0", "id": 0, "method": "create_agent", "params": {"agent_id": "a0"}});
    ours.line(format!("{create}\n").as_bytes()).await?;
    let answer = ours.line(&request).await?;
    for together in [false, true] {
        let command = bare::lines_command(&place, answer.trim_end().as_bytes(), together)?;
        let mut bare = Pipes::spawn(command.into())?;
        let mut pairs = Vec::new();
        for _ in 0..bench.rounds() {
            let time = bench.round();
            pairs.push((ours.flood(&request, time).await?, bare.flood(&request, time).await?));
        }
        let compared = Compared::new(&pairs, 1.0);
        table.add(match together {
            false => compared.judged("stdio, get_context, 16 lines in flight"),
            true => compared.row("  against an echo with one write for all lines of a read"),
        });
    }
    Ok(())
}

/// A child that is spoken to over its standard input and output. It ends with this.
struct Pipes {
    child: Child,
}

impl Pipes {
    fn spawn(mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        Ok(Self { child: command.spawn()? })
    }

    async fn line(&mut self, request: &[u8]) -> anyhow::Result<String> {
        let (input, output) = (&mut self.child.stdin, &mut self.child.stdout);
        input.as_mut().context("no input")?.write_all(request).await?;
        let output = output.as_mut().context("no output")?;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(output.read_u8().await?);
        }
        Ok(String::from_utf8(line)?)
    }

    /// Lines answered in a second.
    async fn flood(&mut self, request: &[u8], time: Duration) -> anyhow::Result<f64> {
        let (input, output) = (&mut self.child.stdin, &mut self.child.stdout);
        let (input, output) =
            (input.as_mut().context("no input")?, output.as_mut().context("no output")?);
        let started = Instant::now();
        let answers = slide(output, input, request, IN_FLIGHT, time, LineEnds).await?;
        Ok(answers as f64 / started.elapsed().as_secs_f64())
    }
}
