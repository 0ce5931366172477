//! An MCP host over HTTP, by hand.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::harness::http::Head;
use crate::harness::{Http, HttpRequest, Response, Server};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2026-07-28: every request stands for itself.
    Modern,
    /// 2025-11-25: `initialize`, and a session.
    Legacy,
}

pub const ERAS: [Era; 2] = [Era::Modern, Era::Legacy];

pub struct Host<'a> {
    server: &'a Server,
    token: Option<String>,
    era: Era,
    capabilities: Value,
    session: Option<String>,
    id_last: AtomicU64,
}

/// What comes for one request.
pub struct Answers {
    http: Http,
    head: Head,
    id: u64,
    rest: Vec<u8>,
}

impl<'a> Host<'a> {
    /// With the server's token.
    pub async fn connect(server: &'a Server, era: Era, capabilities: Value) -> Self {
        Self::connect_with(server, server.token.clone(), era, capabilities).await
    }

    /// With an agent's own token.
    pub async fn of_agent(server: &'a Server, agent: &str, era: Era, capabilities: Value) -> Self {
        let made = server.wire().ok("create_agent_token", json!({"agent_id": agent})).await;
        let token = made["token"].as_str().map(str::to_owned);
        Self::connect_with(server, token, era, capabilities).await
    }

    /// With a key that is made so.
    pub async fn with_key(server: &'a Server, key: Value, capabilities: Value) -> Self {
        let made = server.wire().ok("create_key", key).await;
        let token = made["key"].as_str().map(str::to_owned);
        Self::connect_with(server, token, Era::Modern, capabilities).await
    }

    pub async fn connect_with(
        server: &'a Server,
        token: Option<String>,
        era: Era,
        capabilities: Value,
    ) -> Self {
        let id_last = AtomicU64::new(0);
        let mut host = Self { server, token, era, capabilities, session: None, id_last };
        if era == Era::Legacy {
            let params = json!({
                "protocolVersion": "2025-11-25", "capabilities": host.capabilities,
                "clientInfo": {"name": "test", "version": "1"},
            });
            let answers = host.open("initialize", params).await;
            host.session = Some(answers.head.header("mcp-session-id").unwrap().into());
            let answer = answers.answer().await;
            assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
            let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            assert_eq!(host.post(&told).await.status, 202);
        }
        host
    }

    fn request(&self, message: &Value) -> HttpRequest {
        let request = HttpRequest::post(self.server.address, "/mcp", message.to_string())
            .bearer(self.token.as_deref())
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        match (self.era, &self.session) {
            (Era::Legacy, Some(session)) => request
                .header("Mcp-Session-Id", session.as_str())
                .header("Mcp-Protocol-Version", "2025-11-25"),
            (Era::Legacy, None) => request,
            (Era::Modern, _) => {
                let method = message["method"].as_str().unwrap_or_default();
                let params = &message["params"];
                let name = params["name"].as_str().or(params["uri"].as_str());
                let name = name.or(params["taskId"].as_str());
                let request = request
                    .header("Mcp-Protocol-Version", "2026-07-28")
                    .header("Mcp-Method", method);
                name.into_iter().fold(request, |request, name| request.header("Mcp-Name", name))
            }
        }
    }

    /// Posts a message as it is.
    pub async fn post(&self, message: &Value) -> Response {
        self.server.ask(self.request(message)).await
    }

    pub async fn open(&self, method: &str, mut params: Value) -> Answers {
        let id = self.id_last.fetch_add(1, Ordering::Relaxed) + 1;
        if self.era == Era::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                self.capabilities.clone();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] =
                json!({"name": "test", "version": "1"});
        }
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut http = self.server.http().await;
        http.write(&self.request(&message).bytes()).await;
        let head = http.head().await.unwrap();
        Answers { http, head, id, rest: Vec::new() }
    }

    /// What a session is told beside its calls.
    pub async fn listen(&self) -> Answers {
        let request = self.request(&Value::Null).verb("GET").body("");
        let mut http = self.server.http().await;
        http.write(&request.header("Accept", "text/event-stream").bytes()).await;
        let head = http.head().await.unwrap();
        Answers { http, head, id: 0, rest: Vec::new() }
    }

    /// The answer to a request, whatever it is.
    pub async fn call(&self, method: &str, params: Value) -> Value {
        self.open(method, params).await.answer().await
    }

    pub async fn ok(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// The result of a tool.
    pub async fn tool(&self, name: &str, arguments: Value) -> Value {
        self.ok("tools/call", json!({"name": name, "arguments": arguments})).await
    }
}

/// Whether a turn of the agent runs or waits.
pub async fn is_busy(server: &Server, agent: &str) -> bool {
    let context = server.wire().ok("get_context", json!({"agent_id": agent})).await;
    !context["turns"].as_array().unwrap().is_empty()
}

impl Answers {
    /// The next message, the answer or something before it.
    pub async fn next(&mut self) -> Value {
        if self.head.header("content-type") == Some("application/json") {
            return serde_json::from_slice(&self.http.body(&self.head).await).unwrap();
        }
        loop {
            if let Some(end) = self.rest.windows(2).position(|it| it == b"\n\n") {
                let event: Vec<u8> = self.rest.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                let data: String =
                    event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
                if !data.trim().is_empty() {
                    return serde_json::from_str(&data).unwrap();
                }
                continue;
            }
            let chunk = self.http.chunk().await.expect("the stream ended without an answer");
            self.rest.extend(chunk);
        }
    }

    /// Waits until the server ends it, whatever it says before.
    pub async fn end(mut self) {
        while self.http.chunk().await.is_some() {}
    }

    /// The answer, and what came before it is passed over.
    pub async fn answer(mut self) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == self.id && message.get("method").is_none() {
                return message;
            }
            assert!(message["id"].is_null() || message.get("method").is_some(), "{message}");
            if message["id"].is_null() && message.get("error").is_some() {
                return message;
            }
        }
    }
}
