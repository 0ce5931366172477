//! Reading what a server sends back: answers, and what is told before them.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::api::CallError;
use crate::envelope::Outgoing;
use crate::stream::{
    self, STREAM_DATA, STREAM_END, STREAM_EVENT, STREAM_START, StreamData, StreamEnd, StreamStart,
};
use crate::turn::SendResult;
use crate::watch::{WATCH_EVENT, WatchEvent, WatchResult};

/// The message as an envelope, or what is wrong with it.
pub fn envelope(message: &[u8]) -> Result<Outgoing<'_>, CallError> {
    serde_json::from_slice(message)
        .map_err(|error| CallError::Answer(format!("{error} in {:?}", beginning(message))))
}

/// The result in an answer to call `id`. An error answer may lack the id: what could not be read, or whom the server
/// does not know, is answered with `null`.
pub fn result<R: DeserializeOwned>(answer: Outgoing<'_>, id: u64) -> Result<R, CallError> {
    let answered = answer.id.map(RawValue::get);
    if let Some(other) = answered.filter(|answered| *answered != id.to_string()) {
        return Err(CallError::Answer(format!("it is for call {other}, not {id}")));
    }
    if let Some(error) = answer.error {
        return Err(CallError::Rpc(error));
    }
    if answered.is_none() {
        return Err(CallError::Answer("it has neither an id nor an error".into()));
    }
    // The envelope does not tell an absent result from null, which is a result too.
    serde_json::from_str(answer.result.map_or("null", RawValue::get))
        .map_err(|error| CallError::Answer(format!("the result is unexpected: {error}")))
}

/// What happens in a streamed turn.
#[derive(Debug)]
pub enum StreamItem {
    Start {
        stream_id: String,
    },
    /// The next piece of the answer's text.
    Text(String),
    Event(stream::Event),
    /// A kind of event that this client does not know yet.
    Unknown(Box<RawValue>),
    End {
        total_chunks: u64,
    },
    /// The whole answer; nothing comes after it.
    Done(SendResult),
}

/// What a watch tells.
#[derive(Debug)]
pub enum WatchItem {
    Event(Box<WatchEvent>),
    /// A kind of event that this client does not know yet.
    Unknown(Box<RawValue>),
    /// The watch ended; nothing comes after it.
    Done(WatchResult),
}

/// One message of a call that tells things before it is answered.
pub trait Item: Sized {
    /// What a message says, which belongs to call `id`.
    fn read(message: &[u8], id: u64) -> Result<Self, CallError>;

    /// What happened in this process, which needs no reading.
    fn happened(event: Box<WatchEvent>) -> Result<Self, CallError> {
        Err(CallError::Answer(format!("nobody watches here: {:?}", event.happened)))
    }

    /// Nothing comes after it.
    fn is_last(&self) -> bool;
}

impl Item for StreamItem {
    fn read(message: &[u8], id: u64) -> Result<Self, CallError> {
        let message = envelope(message)?;
        match message.method.as_deref() {
            None => result(message, id).map(Self::Done),
            Some(STREAM_START) => {
                let start: StreamStart = params(&message)?;
                Ok(Self::Start { stream_id: start.stream_id.into_owned() })
            }
            Some(STREAM_DATA) => {
                let data: StreamData = params(&message)?;
                Ok(Self::Text(data.chunk.into_owned()))
            }
            Some(STREAM_END) => {
                let end: StreamEnd = params(&message)?;
                Ok(Self::End { total_chunks: end.total_chunks })
            }
            Some(STREAM_EVENT) => {
                let EventParams { event } = params(&message)?;
                Ok(match serde_json::from_str(event.get()) {
                    Ok(event) => Self::Event(event),
                    Err(_) => Self::Unknown(event),
                })
            }
            Some(_) => params(&message).map(Self::Unknown),
        }
    }

    fn is_last(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

impl Item for WatchItem {
    fn read(message: &[u8], id: u64) -> Result<Self, CallError> {
        let message = envelope(message)?;
        match message.method.as_deref() {
            None => result(message, id).map(Self::Done),
            Some(WATCH_EVENT) => {
                let raw: &RawValue = params(&message)?;
                Ok(match serde_json::from_str(raw.get()) {
                    Ok(event) => Self::Event(event),
                    Err(_) => Self::Unknown(raw.to_owned()),
                })
            }
            Some(_) => params(&message).map(Self::Unknown),
        }
    }

    fn happened(event: Box<WatchEvent>) -> Result<Self, CallError> {
        Ok(Self::Event(event))
    }

    fn is_last(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

/// The event is read by itself, so that one of a kind from a newer server is passed on.
#[derive(Deserialize)]
struct EventParams {
    event: Box<RawValue>,
}

/// What a notification says.
pub fn params<'a, P: Deserialize<'a>>(message: &Outgoing<'a>) -> Result<P, CallError> {
    serde_json::from_str(message.params.map_or("{}", RawValue::get))
        .map_err(|error| CallError::Answer(format!("a notification: {error}")))
}

fn beginning(message: &[u8]) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    String::from_utf8_lossy(message).chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn check(message: &str, expected: &str) {
        let got = envelope(message.as_bytes()).and_then(|answer| result::<Value>(answer, 7));
        let got = got.map_or_else(|error| error.to_string(), |value| value.to_string());
        assert!(got.starts_with(expected), "{message}: {got}");
    }

    #[test]
    fn answers() {
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#, r#"{"a":1}"#);
        check(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"Oops"}}"#, "Oops");
        check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"No"}}"#, "No");
        check(r#"{"jsonrpc":"2.0","id":8,"result":1}"#, "not an answer: it is for call 8, not 7");
        check(r#"{"jsonrpc":"2.0","id":7,"result":null}"#, "null");
        check(r#"{"result":1}"#, "not an answer: it has neither an id nor an error");
        check("<html>", "not an answer: expected value at line 1 column 1 in \"<html>\"");
    }
}
