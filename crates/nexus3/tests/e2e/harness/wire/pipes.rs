//! The two pipes of `nexus3 --stdio`, shared by calls that run side by side.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

use super::super::process::Process;
use super::super::stdio::next_line;
use super::super::{Stdio, within};

pub struct Pipes {
    process: Process,
    input: tokio::sync::Mutex<ChildStdin>,
    waiting: Arc<Mutex<Waiting>>,
    reader: JoinHandle<()>,
}

/// Who waits for what.
#[derive(Default)]
struct Waiting {
    calls: HashMap<String, UnboundedSender<String>>,
    /// The streams and watches that have begun, by their ids.
    streams: HashMap<String, UnboundedSender<String>>,
    /// What nobody waited for.
    strays: Vec<String>,
}

impl Pipes {
    pub fn new(stdio: Stdio) -> Self {
        let Stdio { process, input, output, .. } = stdio;
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let reader = tokio::spawn(read(output.unwrap(), waiting.clone()));
        Self { process, input: tokio::sync::Mutex::new(input.unwrap()), waiting, reader }
    }

    pub async fn send(&self, message: &[u8]) {
        let mut input = self.input.lock().await;
        let line = [message, b"\n"].concat();
        within("the server to read", input.write_all(&line)).await.unwrap();
        input.flush().await.unwrap();
    }

    /// Sends a message; what comes back for it arrives at the receiver.
    pub async fn begin(&self, message: &[u8]) -> UnboundedReceiver<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.waiting.lock().unwrap().calls.insert(key(message), sender);
        self.send(message).await;
        receiver
    }

    pub async fn finish(mut self) {
        drop(self.input);
        within("the end of the output", self.reader).await.unwrap();
        let status = self.process.exit().await;
        assert_eq!(status.code(), Some(0), "{}", self.process.log().text());
        assert_eq!(self.waiting.lock().unwrap().strays, [""; 0]);
    }
}

async fn read(mut output: BufReader<ChildStdout>, waiting: Arc<Mutex<Waiting>>) {
    // Idle pipes are no fault, so this waits for as long as the process lives.
    while let Some(line) = next_line(&mut output).await {
        waiting.lock().unwrap().deliver(line);
    }
}

impl Waiting {
    fn deliver(&mut self, line: String) {
        let message: Value = serde_json::from_str(&line).expect("a line is JSON");
        let params = &message["params"];
        let stream_id = params["stream_id"].as_str().or(params["watch_id"].as_str());
        let stream_id = stream_id.unwrap_or_default();
        let begins = message["method"] == "stream_start" || params["sequence"] == 1;
        let receiver = match message["method"].as_str() {
            Some("stream_start" | "watch_event") if begins => {
                let call = self.calls.get(&task(&line)).cloned();
                self.streams.extend(call.clone().map(|call| (stream_id.into(), call)));
                call
            }
            Some("stream_end") => self.streams.remove(stream_id),
            Some(_) => self.streams.get(stream_id).cloned(),
            None => self.answered(&key(line.as_bytes())),
        };
        match receiver {
            // Whoever hung up wants no more of it.
            Some(receiver) => drop(receiver.send(line)),
            None => self.strays.push(line),
        }
    }

    /// Who an answer is for. What could not be read is answered without an id: then it is for the only one who waits.
    fn answered(&mut self, key: &str) -> Option<UnboundedSender<String>> {
        let only = self.calls.keys().next().filter(|_| self.calls.len() == 1).cloned();
        let key = if key == "null" { only? } else { key.into() };
        self.calls.remove(&key)
    }
}

/// The id of the request that opened a stream or a watch, to the letter.
fn task(stream_start: &str) -> String {
    #[derive(Deserialize)]
    struct Start<'a> {
        #[serde(borrow)]
        params: HashMap<&'a str, &'a RawValue>,
    }
    let start: Start = serde_json::from_str(stream_start).unwrap();
    start.params["task_id"].get().into()
}

/// The id of a message to the letter; one name for all batches.
fn key(message: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Identified<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    if message.trim_ascii_start().starts_with(b"[") {
        return "batch".into();
    }
    let id = serde_json::from_slice::<Identified>(message).ok().and_then(|message| message.id);
    id.map_or("null", RawValue::get).into()
}
