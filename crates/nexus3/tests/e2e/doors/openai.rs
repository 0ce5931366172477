//! Agents and models for programs that are written against OpenAI's interface: what is asked and answered, byte by byte.

mod borders;
pub mod clients;
mod conversations;
mod embeddings;
mod faults;
mod golden;
mod models;
mod repeats;
mod responses;
mod turns;

use serde_json::{Value, json};

use crate::harness::{Http, HttpRequest, Response, Server};

pub const CHAT: &str = "/v1/chat/completions";

/// A request with the server's token.
pub fn post(server: &Server, path: &str, body: &Value) -> HttpRequest {
    HttpRequest::post(server.address, path, body.to_string())
        .bearer(server.token.as_deref())
        .header("Content-Type", "application/json")
}

pub fn get(server: &Server, path: &str) -> HttpRequest {
    HttpRequest::post(server.address, path, "").verb("GET").bearer(server.token.as_deref())
}

pub fn json_of(response: &Response) -> Value {
    serde_json::from_slice(&response.body)
        .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&response.body)))
}

/// What is said to a model, in one message of the user's.
pub fn saying(model: &str, text: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": text}]})
}

/// The same, in a conversation: what the user and the assistant say by turns.
pub fn talking(model: &str, said: &[&str]) -> Value {
    let message = |(index, text): (usize, &&str)| {
        let role = ["user", "assistant"][index % 2];
        json!({"role": role, "content": text})
    };
    json!({"model": model, "messages": said.iter().enumerate().map(message).collect::<Vec<_>>()})
}

/// The answer to a chat, which must be one.
pub async fn chat(server: &Server, body: &Value) -> Value {
    let response = server.ask(post(server, CHAT, body)).await;
    assert_eq!(response.status, 200, "{:?}", String::from_utf8_lossy(&response.body));
    json_of(&response)
}

/// Its text.
pub fn said(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// The status and the error of a request that must be refused.
pub async fn refused(server: &Server, request: HttpRequest) -> (u16, Value) {
    let response = server.ask(request).await;
    let said = json_of(&response);
    let error = said["error"].clone();
    for member in ["message", "type", "param", "code"] {
        assert!(error.get(member).is_some(), "{said}");
    }
    assert!(!error["message"].as_str().unwrap().is_empty());
    (response.status, error)
}

/// A stream as it arrives.
pub struct Streamed {
    http: Http,
    head: crate::harness::http::Head,
    rest: String,
}

impl Streamed {
    pub async fn open(server: &Server, request: HttpRequest) -> Self {
        let mut http = server.http().await;
        http.write(&request.bytes()).await;
        let head = http.head().await.unwrap();
        assert_eq!(head.status, 200);
        assert!(head.header("content-type").unwrap().starts_with("text/event-stream"));
        Self { http, head, rest: String::new() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The next event, or comment; `None` at the end.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let event = event.to_owned();
                self.rest = rest.to_owned();
                return Some(event);
            }
            let chunk = self.http.chunk().await?;
            self.rest.push_str(str::from_utf8(&chunk).unwrap());
        }
    }

    /// All that is left.
    pub async fn rest(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

/// What a line of a stream says.
pub fn data(event: &str) -> Value {
    let text = event.strip_prefix("data: ").unwrap_or_else(|| panic!("{event}"));
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}
