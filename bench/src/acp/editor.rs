//! An editor without a window: a program on pipes that is asked something and answers with a line. Blocking reads: what is
//! measured is the other end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::server::{Place, Process};

/// What a call begins with that comes from the other end. Answers begin with their id.
const TOLD: &[u8] = br#"{"jsonrpc":"2.0","method""#;

/// As much as a pipe holds.
const READ_BYTES: usize = 64 << 10;

pub struct Editor {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Editor {
    /// Runs the program and says nothing yet.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        let output = BufReader::with_capacity(READ_BYTES, output);
        Ok(Self { process: Process(child), input, output })
    }

    /// Opens the home itself, or goes through the server that listens in the place.
    pub fn open(place: &Place, is_embedded: bool) -> anyhow::Result<Self> {
        let socket = place.socket();
        let socket = socket.to_str().context("a path that is no text")?;
        let how: &[&str] = if is_embedded { &["--embedded"] } else { &["--connect", socket] };
        let mut editor = Self::start(place.command(&[&["acp"], how].concat())?)?;
        editor.result("initialize", &initialize())?;
        Ok(editor)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Asks, and returns the answer and how much was told before it.
    pub fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<(Vec<u8>, usize)> {
        let asked = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.input.write_all(format!("{asked}\n").as_bytes())?;
        let mut told = 0;
        loop {
            let mut line = Vec::new();
            ensure!(self.output.read_until(b'\n', &mut line)? > 0, "{method}: it hung up");
            if !line.starts_with(TOLD) {
                return Ok((line, told));
            }
            told += 1;
        }
    }

    pub fn result(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        let (line, _) = self.ask(method, params)?;
        result(&line)
    }

    /// Hangs up, and waits until the program has put its things in order.
    pub fn leave(self) -> anyhow::Result<()> {
        let Self { mut process, input, mut output } = self;
        drop(input);
        output.read_to_end(&mut Vec::new())?;
        let status = process.0.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

pub fn initialize() -> Value {
    json!({"protocolVersion": 1, "clientCapabilities": {}})
}

/// What an answer says.
pub fn result(line: &[u8]) -> anyhow::Result<Value> {
    let mut answer: Value = serde_json::from_slice(line)?;
    ensure!(answer["error"].is_null(), "the call failed: {answer}");
    Ok(answer["result"].take())
}
