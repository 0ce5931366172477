//! The wire of `/v1` to the letter: what was asked and answered, as it lies in `golden/`. Whoever changes it on purpose
//! writes the files anew with `NEXUS3_WRITE_GOLDEN=1` and reads the difference.

use std::fmt::Write as _;
use std::path::Path;

use nexus_testkit::{Reply, StopSaid};
use serde_json::{Value, json};

use super::responses::{RESPONSES, asking};
use super::{CHAT, get, post, saying, talking};
use crate::harness::{HttpRequest, Server, Setup};
use crate::support::create;

struct Transcript {
    server: Server,
    text: String,
}

impl Transcript {
    async fn new() -> Self {
        let server = Setup::new().provider_keys(json!({"max_retries": 0})).start().await;
        create(&server.wire(), "a").await;
        Self { server, text: String::new() }
    }

    async fn post(&mut self, path: &str, body: &Value) -> String {
        let request = post(&self.server, path, body);
        self.ask(&format!("POST {path}\n{body}"), request).await
    }

    /// The same, whole and in pieces. `replies` is what the model says each time.
    async fn both(&mut self, path: &str, body: Value, reply: Reply) {
        for stream in [false, true] {
            self.server.model().push(reply.clone());
            let mut body = body.clone();
            if stream {
                body["stream"] = json!(true);
            }
            self.post(path, &body).await;
        }
    }

    /// Writes down a request and its answer, which is returned as it came.
    async fn ask(&mut self, said: &str, request: HttpRequest) -> String {
        let response = self.server.ask(request).await;
        let body = String::from_utf8(response.body.clone()).unwrap();
        writeln!(self.text, ">>> {said}\n<<< {}", response.status).unwrap();
        for name in [
            "content-type",
            "cache-control",
            "allow",
            "retry-after",
            "x-should-retry",
            "x-request-id",
            "x-nexus-request-id",
            "x-nexus-agent",
            "x-nexus-ignored",
        ] {
            if let Some(value) = response.header(name) {
                writeln!(self.text, "{name}: {value}").unwrap();
            }
        }
        writeln!(self.text, "\n{}\n", body.trim_end()).unwrap();
        body
    }

    fn check(self, name: &str) {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/doors/openai/golden").join(name);
        let text = settled(&self.text);
        if std::env::var_os("NEXUS3_WRITE_GOLDEN").is_some_and(|it| it == "1") {
            return std::fs::write(path, text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        for (number, (now, before)) in text.lines().zip(golden.lines()).enumerate() {
            assert_eq!(
                now,
                before,
                "line {} of {name}; NEXUS3_WRITE_GOLDEN=1 writes it anew",
                number + 1
            );
        }
        assert!(text == golden, "{name} has another length; NEXUS3_WRITE_GOLDEN=1 writes it anew");
    }
}

/// Without what is another each time: random names, times, and numbers that hang on the processor.
fn settled(text: &str) -> String {
    let mut text = text.to_owned();
    for (before, is_part) in [
        ("v1-", (|it| it.is_ascii_hexdigit()) as fn(char) -> bool),
        ("\"created\":", |it| it.is_ascii_digit()),
        ("\"created_at\":", |it| it.is_ascii_digit()),
        ("\"id\":\"call_", |it| it.is_ascii_alphanumeric() || it == '_'),
        ("\"call_id\":\"call_", |it| it.is_ascii_alphanumeric() || it == '_'),
        ("\"embedding\":", |it| it != ']' && it != '}'),
    ] {
        let mut pieces = text.split(before);
        let mut whole = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let rest = piece.trim_start_matches(is_part);
            whole.extend([before, "…", rest]);
        }
        text = whole;
    }
    text
}

#[tokio::test]
async fn chat() {
    let mut it = Transcript::new().await;
    // Pieces that wait for a reader of a turn are joined: how many there are is a matter of time.
    let whole = || Reply::text("Hello there.").usage(9, 2).cached(4);
    let hello = || Reply::chunks(["Hello", " there."]).usage(9, 2).cached(4);
    for model in ["agent:a", "new:sandboxed"] {
        it.both(CHAT, saying(model, "Hi"), whole()).await;
    }
    it.both(CHAT, saying("scripted", "Hi"), hello()).await;
    let mut body = talking("scripted", &["Hi", "Hello.", "Count."]);
    body["stream_options"] = json!({"include_usage": true});
    body["seed"] = json!(7);
    body["user"] = json!("me");
    it.both(CHAT, body, hello()).await;
    let mut body = saying("scripted", "How is it in Bonn?");
    body["tools"] = json!([{"type": "function", "function": {"name": "weather"}}]);
    let call = Reply::text("So: ").then_tool_call("weather", json!({"city": "Bonn"})).usage(9, 2);
    it.both(CHAT, body, call).await;
    let cut = Reply::text("So far").usage(9, 2).stop(StopSaid::MaxTokens);
    it.both(CHAT, saying("scripted", "Go on."), cut).await;
    it.check("chat.txt");
}

#[tokio::test]
async fn responses() {
    let mut it = Transcript::new().await;
    let hello =
        |pieces: &[&str]| Reply::thought("Hm.").then_chunks(pieces.to_vec()).usage(9, 2).cached(4);
    for model in ["agent:a", "new:sandboxed"] {
        it.both(RESPONSES, asking(model, "Hi"), hello(&["Hello there."])).await;
    }
    it.both(RESPONSES, asking("scripted", "Hi"), hello(&["Hello", " there."])).await;
    let mut body = asking("scripted", json!([{"role": "user", "content": "How is it in Bonn?"}]));
    body["tools"] =
        json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    body["instructions"] = json!("Be brief.");
    body["metadata"] = json!({"a": "b"});
    body["reasoning"] = json!({"effort": "low"});
    let call = Reply::text("So: ").then_tool_call("weather", json!({"city": "Bonn"})).usage(9, 2);
    it.both(RESPONSES, body, call).await;
    let cut = Reply::text("So far").usage(9, 2).stop(StopSaid::MaxTokens);
    it.both(RESPONSES, asking("scripted", "Go on."), cut).await;
    let mut body = asking("scripted", "Go on.");
    body["stream"] = json!(true);
    it.server.model().push(Reply::text("So far").then_error("server_error", "it broke"));
    it.post(RESPONSES, &body).await;
    // What is kept.
    it.server.model().push(Reply::text("One.").usage(9, 2));
    let first = it.post(RESPONSES, &asking("scripted", "Count.")).await;
    let first: Value = serde_json::from_str(&first).unwrap();
    let path = format!("{RESPONSES}/{}", first["id"].as_str().unwrap());
    let request = get(&it.server, &path);
    it.ask(&format!("GET {path}"), request.clone()).await;
    let mut body = asking("scripted", "On.");
    body["previous_response_id"] = first["id"].clone();
    it.server.model().push(Reply::text("Two.").usage(19, 2));
    it.post(RESPONSES, &body).await;
    it.ask(&format!("DELETE {path}"), request.clone().verb("DELETE")).await;
    it.ask(&format!("GET {path}"), request).await;
    it.post(RESPONSES, &body).await;
    it.check("responses.txt");
}

#[tokio::test]
async fn embeddings() {
    let mut it = Transcript::new().await;
    let request = get(&it.server, "/v1/models");
    let models = it.ask("GET /v1/models", request).await;
    let models: Value = serde_json::from_str(&models).unwrap();
    let model = models["data"].as_array().unwrap().last().unwrap()["id"].clone();
    for (encoding, input) in [("float", json!("one")), ("base64", json!(["one", "two"]))] {
        let body = json!({"model": model, "input": input, "encoding_format": encoding});
        it.post("/v1/embeddings", &body).await;
    }
    it.post("/v1/embeddings", &json!({"model": model, "input": "one", "dimensions": 7})).await;
    it.check("embeddings.txt");
}

#[tokio::test]
async fn errors() {
    let mut it = Transcript::new().await;
    it.post(CHAT, &saying("no-such-model", "x")).await;
    it.post(CHAT, &saying("agent:nobody", "x")).await;
    let mut body = saying("agent:a", "x");
    body["n"] = json!(2);
    it.post(CHAT, &body).await;
    it.post(RESPONSES, &asking("agent:a", " ")).await;
    let mut body = asking("scripted", "x");
    body["tools"] = json!([{"type": "web_search"}]);
    it.post(RESPONSES, &body).await;
    let wrong = post(&it.server, CHAT, &saying("agent:a", "x")).bearer(Some("nxd_wrong"));
    it.ask("POST /v1/chat/completions, with a wrong key", wrong).await;
    let wrong =
        post(&it.server, CHAT, &saying("agent:a", "x")).header("Origin", "http://x.example");
    it.ask("POST /v1/chat/completions, from a page", wrong).await;
    let wrong = get(&it.server, CHAT);
    it.ask("GET /v1/chat/completions", wrong).await;
    let wrong = get(&it.server, "/v1/audio/speech");
    it.ask("GET /v1/audio/speech", wrong).await;
    for (path, body) in [
        (CHAT, saying("agent:a", "x")),
        (CHAT, saying("scripted", "x")),
        (RESPONSES, asking("agent:a", "x")),
        (RESPONSES, asking("scripted", "x")),
    ] {
        it.server.model().push(Reply::status(400).message("the prompt is too odd"));
        it.post(path, &body).await;
    }
    let mut body = saying("scripted", "x");
    body["stream"] = json!(true);
    it.server.model().push(Reply::text("So far").then_error("server_error", "it broke"));
    it.post(CHAT, &body).await;
    it.check("errors.txt");
}
