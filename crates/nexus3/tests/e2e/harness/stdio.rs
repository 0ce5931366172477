//! A running `nexus3 --stdio`, line by line.

use std::process::ExitStatus;
use std::sync::Arc;

use nexus_testkit::ScriptedModel;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::process::Process;
use super::{World, check, within};

pub struct Stdio {
    pub world: Arc<World>,
    pub process: Process,
    /// Dropped to end the input.
    pub input: Option<ChildStdin>,
    /// Dropped to stop reading for good.
    pub output: Option<BufReader<ChildStdout>>,
}

impl Stdio {
    pub(super) fn start(command: Command, world: Arc<World>) -> Self {
        let (process, input, output) = Process::spawn(command);
        Self { world, process, input: Some(input), output: Some(BufReader::new(output)) }
    }

    pub fn model(&self) -> &ScriptedModel {
        &self.world.model
    }

    /// Writes a line and its end.
    pub async fn send(&mut self, line: impl AsRef<[u8]>) {
        self.write(&[line.as_ref(), b"\n"].concat()).await;
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the input is open");
        within("the server to read", input.write_all(bytes)).await.unwrap();
        input.flush().await.unwrap();
    }

    /// The next line, `None` at the end.
    pub async fn line(&mut self) -> Option<String> {
        let output = self.output.as_mut().expect("the output is open");
        within("a line", next_line(output)).await
    }

    /// The next message, checked.
    pub async fn message(&mut self) -> Value {
        check::message(&self.line().await.expect("the output ended without an answer"))
    }

    /// Ends the input, and returns what is still said and how the process ends.
    pub async fn finish(&mut self) -> (Vec<Value>, ExitStatus) {
        self.input = None;
        let mut rest = Vec::new();
        while let Some(line) = self.line().await {
            rest.push(check::message(&line));
        }
        (rest, self.process.exit().await)
    }
}

pub(super) async fn next_line(output: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = String::new();
    let read = output.read_line(&mut line).await.expect("the output is UTF-8");
    (read > 0).then(|| line.strip_suffix('\n').expect("a whole line").into())
}
