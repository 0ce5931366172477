//! One call: connect, send, receive, and again where the connection failed and nothing can have run twice.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nexus_signing::{SigningKey, Unsignable};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::environment::Environment;
use crate::frame::{FRAME_BYTES_MAX, NoFrame, PatientSocket};

/// Every call has a connection of its own, so one id is enough.
const ID: u64 = 1;

/// The methods that may be sent again when an answer was lost: adding what is there renews it, and the others change
/// nothing the second time.
const SENT_AGAIN: &str = "memory.";

/// Whether the server knows the call again when it is sent once more, and does not carry it out twice.
fn has_key(params: &Map<String, Value>) -> bool {
    let options = params.get("options").and_then(Value::as_object);
    [Some(params), options]
        .into_iter()
        .flatten()
        .any(|it| it.get("idempotency_key").is_some_and(Value::is_string))
}

/// Calls a server.
pub struct Client<'a> {
    sockets: &'a [PathBuf],
    token: Option<&'a str>,
    signing_key: Option<&'a SigningKey>,
    timeout: Duration,
    pause: &'a dyn Fn(Duration),
}

/// Why there is no result.
#[derive(Debug, Error)]
pub enum CallError {
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error("no connection to {path} after {attempts} attempts")]
    Connection { path: PathBuf, attempts: u32, source: io::Error },
    #[error("{path} cannot be opened")]
    Closed { path: PathBuf, source: io::Error },
    #[error("{0} was sent and its answer was lost; it may have run, so it is not sent again")]
    Lost(String, #[source] io::Error),
    #[error("{path}: no answer within {} s (ASH_RPC_TIMEOUT)", .after.as_secs_f64())]
    Timeout { path: PathBuf, after: Duration },
    #[error("the request has {0} bytes, more than the {FRAME_BYTES_MAX} of a frame")]
    RequestTooLarge(usize),
    #[error("the answer has {0} bytes, more than the {FRAME_BYTES_MAX} of a frame")]
    AnswerTooLarge(usize),
    #[error("the answer is no JSON-RPC response")]
    Answer(#[source] Option<serde_json::Error>),
    #[error("the request cannot be signed")]
    Unsignable(#[from] Unsignable),
    #[error("{name} must be {expected}")]
    Environment { name: &'static str, expected: &'static str },
}

/// What the server answered instead of a result.
#[derive(Debug, Deserialize, Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    #[serde(default)]
    pub data: Value,
}

#[derive(Deserialize)]
struct Message {
    /// A notification has one.
    method: Option<String>,
    #[serde(default)]
    id: Value,
    /// `null` is a result too.
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<RpcError>,
}

/// How an attempt failed.
enum Failed {
    /// Before all of the request had left.
    Unsent(io::Error),
    /// When it had.
    Unanswered(io::Error),
    For(CallError),
}

impl<'a> Client<'a> {
    pub fn new(environment: &'a Environment) -> Self {
        Self {
            sockets: &environment.sockets,
            token: environment.token.as_deref(),
            signing_key: environment.signing_key.as_ref(),
            timeout: environment.timeout,
            pause: &std::thread::sleep,
        }
    }

    /// Waits between attempts by `pause`.
    pub fn pausing(self, pause: &'a dyn Fn(Duration)) -> Self {
        Self { pause, ..self }
    }

    /// The result of `method`. The environment's token goes with every call.
    pub fn call(
        &self,
        method: &str,
        mut params: Map<String, Value>,
        max_retries: u32,
        retry_delay: Duration,
    ) -> Result<Value, CallError> {
        if let Some(token) = self.token {
            params.insert("context_token".into(), token.into());
        }
        let sent_again = method.starts_with(SENT_AGAIN) || has_key(&params);
        let request = json!({"jsonrpc": "2.0", "method": method, "params": params, "id": ID});
        let request = request.to_string();
        let mut delay = retry_delay;
        let mut retries = 0;
        loop {
            let path = self.socket();
            let error = match self.attempt(path, &self.signed(&request)?) {
                Ok(result) => return Ok(result),
                Err(Failed::For(error)) => return Err(error),
                Err(Failed::Unanswered(error)) if !sent_again => {
                    return Err(CallError::Lost(method.into(), error));
                }
                Err(Failed::Unsent(error) | Failed::Unanswered(error)) => error,
            };
            if !is_transient(&error) {
                return Err(CallError::Closed { path: path.into(), source: error });
            }
            if retries == max_retries {
                let attempts = max_retries.saturating_add(1);
                return Err(CallError::Connection { path: path.into(), attempts, source: error });
            }
            (self.pause)(delay);
            delay = delay.saturating_mul(2);
            retries += 1;
        }
    }

    /// The request as it is sent this time.
    fn signed(&self, request: &str) -> Result<Vec<u8>, CallError> {
        let body = match self.signing_key {
            None => request.to_owned(),
            Some(key) => key.sign(request)?,
        };
        match body.len() {
            0..=FRAME_BYTES_MAX => Ok(body.into_bytes()),
            bytes => Err(CallError::RequestTooLarge(bytes)),
        }
    }

    /// The first socket that is there, or else the first.
    fn socket(&self) -> &Path {
        let mut sockets = self.sockets.iter().map(PathBuf::as_path);
        sockets
            .clone()
            .find(|path| path.exists())
            .or_else(|| sockets.next())
            .unwrap_or(Path::new(""))
    }

    fn attempt(&self, path: &Path, body: &[u8]) -> Result<Value, Failed> {
        let failed = |failed: fn(io::Error) -> Failed| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::TimedOut => {
                    Failed::For(CallError::Timeout { path: path.into(), after: self.timeout })
                }
                _ => failed(error),
            }
        };
        let mut line =
            PatientSocket::connect(path, self.timeout).map_err(failed(Failed::Unsent))?;
        line.wait(self.timeout);
        let sent = line.send(body).map_err(failed(Failed::Unsent));
        if let Err(timeout @ Failed::For(_)) = sent {
            return Err(timeout);
        }
        // Who did not take the request may have said why.
        loop {
            line.wait(self.timeout);
            let message = match line.receive() {
                Ok(message) => message,
                Err(NoFrame::TooLarge(bytes)) => {
                    return Err(Failed::For(CallError::AnswerTooLarge(bytes)));
                }
                Err(NoFrame::Io(error)) => {
                    return sent.and(Err(failed(Failed::Unanswered)(error)));
                }
            };
            if let Some(answer) = read(&message).transpose() {
                return answer.map_err(Failed::For);
            }
        }
    }
}

/// The result or the error in `message`; `None` for a notification.
fn read(message: &[u8]) -> Result<Option<Value>, CallError> {
    let message: Message =
        serde_json::from_slice(message).map_err(|error| CallError::Answer(Some(error)))?;
    match message {
        Message { method: Some(_), .. } => Ok(None),
        // Where the server could not read the request, its error has no id.
        Message { error: Some(error), id, .. } if id == ID || id.is_null() => Err(error.into()),
        Message { result: Some(result), id, .. } if id == ID => Ok(Some(result)),
        _ => Err(CallError::Answer(None)),
    }
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Whether the server may be there, and well, a moment later.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof,
    };
    matches!(
        error.kind(),
        NotFound
            | ConnectionRefused
            | ConnectionReset
            | ConnectionAborted
            | BrokenPipe
            | UnexpectedEof
    )
}
