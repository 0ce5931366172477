//! The client's end of the pipes: what is answered, told and asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol_schema::v1::{Error, SessionNotification, SessionUpdate};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Messages that may wait to be read. Whoever has more to say waits, so that a client that does not read costs no memory.
const WAITING_MAX: usize = 64;

#[derive(Clone)]
pub struct Client {
    lines: mpsc::Sender<String>,
    asked: Arc<Mutex<Asked>>,
    gone: CancellationToken,
}

/// What the client was asked and has not answered.
#[derive(Default)]
struct Asked {
    id_last: u64,
    open: HashMap<u64, oneshot::Sender<Answer>>,
}

type Answer = Result<Value, Value>;

/// Why the client did not say anything that could be understood: it refused, it is gone, or it said something else.
#[derive(Debug)]
pub struct Unanswered;

impl Client {
    /// Writes to `output` until all that know of the client have forgotten it.
    pub fn open<W>(output: W) -> (Self, JoinHandle<()>)
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (lines, waiting) = mpsc::channel(WAITING_MAX);
        let gone = CancellationToken::new();
        let writer = tokio::spawn(write(waiting, output, gone.clone()));
        (Self { lines, asked: Arc::default(), gone }, writer)
    }

    /// Nobody reads any more.
    pub async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// Answers a request; `null` where its id could not be read.
    pub async fn answer(&self, id: Option<&RawValue>, outcome: Result<Value, Error>) {
        let mut message = json!({"jsonrpc": "2.0", "id": id});
        match outcome {
            Ok(result) => message["result"] = result,
            Err(error) => message["error"] = json!(error),
        }
        self.say(&message).await;
    }

    pub async fn update(&self, session: &str, update: SessionUpdate) {
        let params = SessionNotification::new(session.to_owned(), update);
        self.say(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params})).await;
    }

    /// Asks the client, and waits for what it says. Whoever drops this has withdrawn the question.
    pub async fn ask<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<R, Unanswered> {
        let (sender, answer) = oneshot::channel();
        let id = self.lock().opened(sender);
        let open = Open { client: self, id };
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        let answer = answer.await.map_err(|_| Unanswered)?.map_err(|_| Unanswered)?;
        drop(open);
        serde_json::from_value(answer).map_err(|_| Unanswered)
    }

    /// What the client says to something that it was asked. What nobody waits for any more is passed over.
    pub fn answered(&self, id: &RawValue, answer: Answer) {
        let asked = id.get().parse().ok().and_then(|id: u64| self.lock().open.remove(&id));
        if let Some(asked) = asked {
            let _ = asked.send(answer);
        }
    }

    /// Where nobody reads any more, nothing is said.
    async fn say(&self, message: &Value) {
        let _ = self.lines.send(message.to_string()).await;
    }

    /// The same without waiting; somebody else waits.
    fn say_later(&self, message: Value) {
        let lines = self.lines.clone();
        tokio::spawn(async move { lines.send(message.to_string()).await });
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    fn opened(&mut self, sender: oneshot::Sender<Answer>) -> u64 {
        self.id_last += 1;
        self.open.insert(self.id_last, sender);
        self.id_last
    }
}

/// A question that waits for its answer.
struct Open<'a> {
    client: &'a Client,
    id: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.client.lock().open.remove(&self.id).is_some() {
            let params = json!({"requestId": self.id});
            let method = "$/cancel_request";
            self.client.say_later(json!({"jsonrpc": "2.0", "method": method, "params": params}));
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(
    mut waiting: mpsc::Receiver<String>,
    mut output: W,
    gone: CancellationToken,
) {
    while let Some(mut line) = waiting.recv().await {
        line.push('\n');
        let written = async {
            output.write_all(line.as_bytes()).await?;
            output.flush().await
        };
        if written.await.is_err() {
            break;
        }
    }
    gone.cancel();
}
