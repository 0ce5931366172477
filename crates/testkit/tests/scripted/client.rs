//! A client that knows HTTP and no wire.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use nexus_testkit::{ScriptedModel, Wire};
use serde_json::{Value, json};
use tokio::net::TcpStream;

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn document(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    /// The data of a stream's events or lines that are JSON.
    pub fn events(&self) -> Vec<Value> {
        let data = self.body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

/// The path that a client of this wire asks, for a stream.
pub fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Chat => "/v1/chat/completions",
        Wire::Messages => "/v1/messages",
        Wire::Responses => "/v1/responses",
        Wire::GenerateContent => "/v1beta/models/scripted:streamGenerateContent?alt=sse",
        Wire::Ollama => "/api/chat",
    }
}

/// A short question of that wire, for a stream.
pub fn question(wire: Wire) -> Value {
    let messages = json!([{"role": "user", "content": "What now?"}]);
    match wire {
        Wire::Chat => json!({
            "model": "m", "messages": messages, "stream": true, "stream_options": {"include_usage": true},
        }),
        Wire::Messages => {
            json!({"model": "m", "messages": messages, "stream": true, "max_tokens": 100})
        }
        Wire::Responses => json!({"model": "m", "input": messages, "stream": true, "store": false}),
        Wire::GenerateContent => {
            json!({"contents": [{"role": "user", "parts": [{"text": "What now?"}]}]})
        }
        Wire::Ollama => json!({"model": "m", "messages": messages}),
    }
}

pub async fn ask(model: &ScriptedModel, wire: Wire) -> Answer {
    post(model, path(wire), &question(wire)).await
}

pub async fn post(model: &ScriptedModel, path: &str, body: &Value) -> Answer {
    read(begin(model, Method::POST, path, body).await).await
}

/// The head of an answer whose body is still to come.
pub async fn begin(
    model: &ScriptedModel,
    method: Method,
    path: &str,
    body: &Value,
) -> Response<Incoming> {
    let host = model.root().replace("http://", "");
    let stream = TcpStream::connect(&host).await.unwrap_or_else(|error| panic!("{error}"));
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.unwrap_or_else(|error| panic!("{error}"));
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", host)
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap_or_else(|error| panic!("{error}"));
    sender.send_request(request).await.unwrap_or_else(|error| panic!("{error}"))
}

/// All that comes, also of a body that breaks off.
pub async fn read(response: Response<Incoming>) -> Answer {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
    }
    let body = String::from_utf8(bytes).unwrap_or_else(|error| panic!("{error}"));
    Answer { status: head.status.as_u16(), headers: head.headers, body }
}
