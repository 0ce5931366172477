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
        let (result, error) = match outcome {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        self.say(&Answered { jsonrpc: "2.0", id, result, error }).await;
    }

    pub async fn update(&self, session: &str, update: SessionUpdate) {
        let params = SessionNotification::new(session.to_owned(), update);
        self.say(&Said { jsonrpc: "2.0", id: None, method: "session/update", params }).await;
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
        self.say(&Said { jsonrpc: "2.0", id: Some(id), method, params }).await;
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
    async fn say(&self, message: &impl Serialize) {
        let Ok(line) = serde_json::to_string(message) else { return };
        let _ = self.lines.send(line).await;
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
            // Whoever drops does not wait; somebody else does.
            let (client, params) = (self.client.clone(), json!({"requestId": self.id}));
            tokio::spawn(async move {
                let method = "$/cancel_request";
                client.say(&Said { jsonrpc: "2.0", id: None, method, params }).await;
            });
        }
    }
}

/// A request or a notification of ours.
#[derive(Serialize)]
struct Said<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: P,
}

#[derive(Serialize)]
struct Answered<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

/// What waits is written at once, as far as it is there.
async fn write<W: AsyncWrite + Unpin>(
    mut waiting: mpsc::Receiver<String>,
    mut output: W,
    gone: CancellationToken,
) {
    let mut lines = Vec::new();
    while waiting.recv_many(&mut lines, WAITING_MAX).await > 0 {
        let mut all = String::new();
        for line in lines.drain(..) {
            all.push_str(&line);
            all.push('\n');
        }
        let written = async {
            output.write_all(all.as_bytes()).await?;
            output.flush().await
        };
        if written.await.is_err() {
            break;
        }
    }
    gone.cancel();
}
