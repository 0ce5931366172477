//! HTTP/1.1 by hand, so that a test can send what no client library would.

use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{check, within};

/// One connection.
pub struct Http(BufReader<TcpStream>);

/// A request; every part of it can be made wrong.
#[derive(Clone)]
pub struct HttpRequest {
    verb: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

#[derive(Debug)]
pub struct Head {
    pub status: u16,
    headers: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: Head,
    pub body: Vec<u8>,
}

impl HttpRequest {
    pub fn post(address: SocketAddr, path: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("Host".into(), address.to_string().into_bytes())];
        Self { verb: "POST".into(), path: path.into(), headers, body: body.into() }
    }

    pub fn bearer(self, token: Option<&str>) -> Self {
        match token {
            Some(token) => self.header("Authorization", format!("Bearer {token}")),
            None => self.without("Authorization"),
        }
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = verb.into();
        self
    }

    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Adds a header, or replaces the one of this name.
    pub fn header(self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        let mut request = self.without(name);
        request.headers.push((name.into(), value.into()));
        request
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self
    }

    /// How many headers it is sent with.
    pub fn header_count(&self) -> usize {
        self.all_headers().len()
    }

    /// Their bytes with separators, without the blank line.
    pub fn header_bytes(&self) -> usize {
        self.all_headers().iter().map(|(name, value)| name.len() + value.len() + 4).sum()
    }

    pub fn head_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.verb, self.path).into_bytes();
        for (name, value) in self.all_headers() {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(&value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    pub fn body_bytes(&self) -> &[u8] {
        &self.body
    }

    pub fn bytes(&self) -> Vec<u8> {
        [self.head_bytes(), self.body.clone()].concat()
    }

    /// With the length of the body, unless the request says how it is framed.
    fn all_headers(&self) -> Vec<(String, Vec<u8>)> {
        let mut headers = self.headers.clone();
        let framed = |name: &str| {
            name.eq_ignore_ascii_case("Content-Length")
                || name.eq_ignore_ascii_case("Transfer-Encoding")
        };
        if !headers.iter().any(|(name, _)| framed(name)) {
            headers.push(("Content-Length".into(), self.body.len().to_string().into_bytes()));
        }
        headers
    }
}

impl Http {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = within("a connection", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        within("the server to read", self.0.write_all(bytes)).await.unwrap();
    }

    /// Writes to a server that may answer and close before it has read everything.
    pub async fn write_some(&mut self, bytes: &[u8]) {
        let _ = within("the server to read", self.0.write_all(bytes)).await;
    }

    /// The next response.
    pub async fn response(&mut self) -> Response {
        self.response_or_close().await.expect("the server closed without an answer")
    }

    /// The next response, or `None` when the server closed instead.
    pub async fn response_or_close(&mut self) -> Option<Response> {
        let head = self.head().await?;
        let body = self.body(&head).await;
        Some(Response { status: head.status, head, body })
    }

    /// The body that follows `head`.
    pub async fn body(&mut self, head: &Head) -> Vec<u8> {
        let mut body = Vec::new();
        if let Some(length) = head.header("content-length") {
            body = vec![0; length.parse().unwrap()];
            within("a body", self.0.read_exact(&mut body)).await.unwrap();
        } else if head.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().await {
                body.extend(chunk);
            }
        }
        body
    }

    /// The head of the next response, `None` when the server closed.
    pub async fn head(&mut self) -> Option<Head> {
        let status_line = self.line().await?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut headers = Vec::new();
        loop {
            let line = self.line().await.expect("a whole head");
            let Some((name, value)) = line.split_once(": ") else {
                assert_eq!(line, "", "not a header");
                let status = status.unwrap_or_else(|| panic!("not a status: {status_line}"));
                return Some(Head { status, headers });
            };
            headers.push((name.to_ascii_lowercase(), value.into()));
        }
    }

    /// The next chunk of a chunked body, `None` after the last.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = self.line().await.expect("the length of a chunk");
        let mut chunk = vec![0; usize::from_str_radix(&length, 16).unwrap()];
        within("a chunk", self.0.read_exact(&mut chunk)).await.unwrap();
        assert_eq!(self.line().await.as_deref(), Some(""));
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Waits until the server closes, and returns what it sent before.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match within("the server to close", self.0.read_to_end(&mut rest)).await {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
            _ => rest,
        }
    }

    /// A line without its end; `None` when the server closed.
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match within("a line", self.0.read_line(&mut line)).await {
            Ok(0) => None,
            Ok(_) => Some(line.strip_suffix("\r\n").expect("a whole line").into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Head {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(|(name, _)| &**name)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| &**value)
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The body as an answer.
    pub fn answer(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        check::message(str::from_utf8(&self.body).expect("an answer is UTF-8"))
    }

    /// The status and the code of the error.
    pub fn refusal(&self) -> (u16, i64) {
        (self.status, self.answer()["error"]["code"].as_i64().expect("an error"))
    }
}
