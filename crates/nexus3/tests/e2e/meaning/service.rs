//! A service of embeddings that does as it is told.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Numbers in each vector.
pub const DIMENSIONS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Embeds,
    /// Until it does something else.
    Waits,
    Answers(u16),
    /// Vectors of so many numbers.
    Makes(usize),
}

pub struct Service {
    pub url: String,
    does: watch::Sender<Does>,
    /// Models, and what they were asked to embed.
    asked: Arc<Mutex<BTreeSet<(String, String)>>>,
    serving: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Service {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (does, told) = watch::channel(Does::Embeds);
        let asked = Arc::new(Mutex::new(BTreeSet::new()));
        let noted = asked.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, told.clone(), noted.clone()));
            }
        });
        Self { url, does, asked, serving }
    }

    pub fn now(&self, does: Does) {
        self.does.send_replace(does);
    }

    /// Whether a model was asked for a text that has this in it.
    pub fn was_asked(&self, model: &str, text: &str) -> bool {
        let asked = self.asked.lock().unwrap();
        asked.iter().any(|(by, of)| by == model && of.contains(text))
    }
}

async fn answer(
    mut stream: TcpStream,
    mut told: watch::Receiver<Does>,
    asked: Arc<Mutex<BTreeSet<(String, String)>>>,
) {
    let Some(body) = body(&mut stream).await else { return };
    let model = body["model"].as_str().unwrap();
    let texts: Vec<&str> =
        body["input"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    asked.lock().unwrap().extend(texts.iter().map(|text| (model.to_owned(), (*text).to_owned())));
    let Ok(does) = told.wait_for(|does| *does != Does::Waits).await.map(|does| *does) else {
        return;
    };
    let vectors = |dimensions: usize| {
        let vector = |text: &str| {
            (0..dimensions).map(|axis| u8::from(axis == meaning(text))).collect::<Vec<_>>()
        };
        let entry =
            |(index, text): (usize, &&str)| json!({"index": index, "embedding": vector(text)});
        json!({"data": texts.iter().enumerate().map(entry).collect::<Vec<_>>()})
    };
    let (status, body) = match does {
        Does::Answers(status) => (status, json!({"error": {"message": "not today"}})),
        Does::Makes(dimensions) => (200, vectors(dimensions)),
        Does::Embeds | Does::Waits => (200, vectors(DIMENSIONS)),
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
}

/// What a text is about, as far as this service understands.
fn meaning(text: &str) -> usize {
    const TOPICS: [&[&str]; 2] = [&["peanuts", "snacks"], &["disk", "storage"]];
    let about = |words: &&[&str]| words.iter().any(|word| text.contains(word));
    TOPICS.iter().position(about).unwrap_or(TOPICS.len())
}

async fn body(stream: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if length.is_some_and(|length| body.len() >= length) {
                return serde_json::from_str(body).ok();
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
