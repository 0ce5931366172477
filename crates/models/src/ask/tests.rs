//! What is asked of whom, against servers that answer as the real ones do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::http::ASKED_BYTES_MAX;

/// A server that answers each request line with what `answer` says to it, and what it was sent.
pub(crate) struct Counterpart {
    base_url: String,
    heard: Arc<Mutex<Vec<String>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Counterpart {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Counterpart {
    pub(crate) async fn start(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = heard.clone();
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = request(&mut stream).await;
                let (status, body) = answer(request.lines().next().unwrap_or_default());
                told.lock().unwrap().push(request);
                let head = format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        Self { base_url, heard, serving }
    }

    pub(crate) fn settings(&self, kind: Kind) -> ProviderSettings {
        ProviderSettings {
            base_url: self.base_url.clone(),
            api_key: Some("the-key".into()),
            first_event_timeout: Duration::from_secs(20),
            ..ProviderSettings::new(kind)
        }
    }

    async fn ask(&self, kind: Kind) -> Result<Answer, AskError> {
        models(&self.settings(kind)).await
    }

    /// The requests that came.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// The request lines that came, without the version.
    pub(crate) fn lines(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let line = |request: &String| request.lines().next().unwrap().replace(" HTTP/1.1", "");
        heard.iter().map(line).collect()
    }
}

/// A whole request: its head, and as much body as that says.
async fn request(stream: &mut tokio::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return text;
        }
    }
}

fn windows(answer: Answer) -> Vec<(String, Option<u32>)> {
    let Answer::Models(models) = answer else { panic!("it said nothing") };
    models.into_iter().map(|entry| (entry.key, entry.window)).collect()
}

#[tokio::test]
async fn anthropic_is_asked_page_by_page_with_key_and_version() {
    let counterpart = Counterpart::start(|line| {
        let (id, more) = if line.contains("after_id=a") { ("b", false) } else { ("a", true) };
        let model = json!({"id": id, "max_input_tokens": 1000});
        (200, json!({"data": [model], "has_more": more, "last_id": id}).to_string())
    });
    let counterpart = counterpart.await;
    let answer = counterpart.ask(Kind::Anthropic).await.unwrap();
    assert_eq!(windows(answer), [("a".into(), Some(1000)), ("b".into(), Some(1000))]);
    let expected = ["GET /v1/models?limit=1000", "GET /v1/models?limit=1000&after_id=a"];
    assert_eq!(counterpart.lines(), expected);
    let first = counterpart.heard.lock().unwrap()[0].to_ascii_lowercase();
    assert!(first.contains("x-api-key: the-key"), "{first}");
    assert!(first.contains("anthropic-version: 2023-06-01"), "{first}");
}

#[tokio::test]
async fn a_list_that_never_ends_is_given_up() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let counterpart = Counterpart::start(move |_| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        let model = json!({"id": number, "max_input_tokens": 1000});
        (200, json!({"data": [model], "has_more": true, "last_id": number}).to_string())
    });
    let counterpart = counterpart.await;
    assert_eq!(windows(counterpart.ask(Kind::Anthropic).await.unwrap()).len(), PAGES_MAX);
    // One that goes round in a circle says nothing new.
    let circle = Counterpart::start(|_| {
        let model = json!({"id": "a", "max_input_tokens": 1000});
        (200, json!({"data": [model], "has_more": true, "last_id": "a"}).to_string())
    });
    let circle = circle.await;
    circle.ask(Kind::Anthropic).await.unwrap();
    assert_eq!(circle.lines().len(), 2);
}

#[tokio::test]
async fn each_service_is_asked_in_its_own_way() {
    let counterpart = Counterpart::start(|line| {
        let body = match line.split(' ').nth(1).unwrap_or_default() {
            "/api/v1/models" => json!({"data": [{"id": "a/b", "context_length": 2000}]}),
            "/v1/models" => json!({"data": [{"id": "vllm", "max_model_len": 3000}]}),
            "/api/tags" => json!({"models": [{"name": "q:1b"}, {"name": "l:8b"}]}),
            "/api/show" => json!({"model_info": {"q.context_length": 4000}}),
            path if path.starts_with("/v1beta/models") => json!({"models": [{"name": "models/g",
                "inputTokenLimit": 5000, "supportedGenerationMethods": ["generateContent"]}]}),
            _ => return (404, json!({}).to_string()),
        };
        (200, body.to_string())
    });
    let counterpart = counterpart.await;
    for (kind, expected) in [
        (Kind::OpenRouter, vec![("a/b", 2000)]),
        (Kind::OpenAi, vec![("vllm", 3000)]),
        (Kind::Ollama, vec![("q:1b", 4000), ("l:8b", 4000)]),
        (Kind::Gemini, vec![("g", 5000)]),
    ] {
        let expected: Vec<_> =
            expected.into_iter().map(|(id, window)| (id.to_owned(), Some(window))).collect();
        assert_eq!(windows(counterpart.ask(kind).await.unwrap()), expected, "{kind:?}");
    }
    assert_eq!(counterpart.ask(Kind::Azure).await.unwrap(), Answer::Silent);
    let asked = counterpart.heard.lock().unwrap();
    let shown = asked.iter().filter(|request| request.starts_with("POST /api/show"));
    let questions: Vec<_> =
        shown.map(|request| request.split("\r\n\r\n").nth(1).unwrap()).collect();
    assert_eq!(questions, [r#"{"model":"q:1b"}"#, r#"{"model":"l:8b"}"#]);
}

#[tokio::test]
async fn llama_cpp_says_elsewhere_what_its_model_can() {
    let counterpart = Counterpart::start(|line| match line.split(' ').nth(1) {
        Some("/v1/models") => (200, json!({"data": [{"id": "m.gguf"}]}).to_string()),
        Some("/props") => {
            (200, json!({"default_generation_settings": {"n_ctx": 8192}}).to_string())
        }
        _ => (404, String::new()),
    });
    let counterpart = counterpart.await;
    let answer = counterpart.ask(Kind::OpenAi).await.unwrap();
    assert_eq!(windows(answer), [("m.gguf".into(), Some(8192))]);

    // Others have one model too, and no such place.
    let other = Counterpart::start(|line| match line.contains("/v1/models") {
        true => (200, json!({"data": [{"id": "m"}]}).to_string()),
        false => (404, String::new()),
    })
    .await;
    assert_eq!(other.ask(Kind::OpenAi).await.unwrap(), Answer::Silent);
}

#[tokio::test]
async fn what_goes_wrong_is_said_without_the_key() {
    let refused = Counterpart::start(|_| {
        (401, json!({"error": {"message": "no such key: the-key"}}).to_string())
    })
    .await;
    let error = refused.ask(Kind::OpenRouter).await.unwrap_err().to_string();
    assert!(error.contains("401") && !error.contains("the-key"), "{error}");
    let odd = Counterpart::start(|_| (200, "hello".into())).await;
    assert!(matches!(odd.ask(Kind::OpenRouter).await, Err(AskError::NotJson)));
    let spacious =
        |bytes: usize| Counterpart::start(move |_| (200, "[]".to_owned() + &" ".repeat(bytes - 2)));
    let long = spacious(ASKED_BYTES_MAX).await;
    assert_eq!(long.ask(Kind::OpenRouter).await.unwrap(), Answer::Silent);
    let endless = spacious(ASKED_BYTES_MAX + 1).await;
    let error = endless.ask(Kind::OpenRouter).await.unwrap_err().to_string();
    assert!(error.contains("too long"), "{error}");
    let redirect = Counterpart::start(|_| (302, String::new())).await;
    assert!(redirect.ask(Kind::OpenRouter).await.is_err());
}
