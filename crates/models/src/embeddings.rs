//! Embeddings of a service: `POST /embeddings` as OpenAI has it, behind the core's `Embedder`.

use async_trait::async_trait;
use nexus_core::embed::{EmbedError, Embedder, beginning};
use nexus_core::provider::ProviderError;
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::json;

use super::http::Http;
use super::{BuildError, ProviderSettings, base_url, endpoint};

/// Texts of one request; services refuse many more than these.
const TEXTS_MAX: usize = 96;

/// An embedding model of a service.
pub struct RemoteEmbedder {
    http: Http,
    url: Url,
    id: String,
    model: String,
    dimensions: usize,
}

impl RemoteEmbedder {
    /// Vectors of `model`, which have so many numbers. Nothing is sent before the first text.
    pub fn new(
        settings: &ProviderSettings,
        model: &str,
        dimensions: usize,
    ) -> Result<Self, BuildError> {
        let base = base_url(settings)?;
        Ok(Self {
            http: Http::new(settings, &base, HeaderMap::new())?,
            // Two services may call different models by one name.
            id: format!("{}/{model}/{dimensions}", base.host_str().unwrap_or_default()),
            url: endpoint(&base, &["embeddings"]),
            model: model.to_owned(),
            dimensions,
        })
    }

    async fn ask(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let beginnings: Vec<&str> = texts.iter().map(|text| beginning(text)).collect();
        let body = json!({"model": self.model, "input": beginnings, "encoding_format": "float"});
        let answer = self.http.ask(&self.url, Some(body.to_string().into_bytes())).await;
        let answer = answer.map_err(|error| match error {
            // There is no such service or no such model, whatever the text.
            ProviderError::Rejected(said) if said.starts_with("404") => EmbedError::Failed(said),
            ProviderError::Rejected(_) | ProviderError::TooLong { .. } => {
                EmbedError::Refused(error.to_string())
            }
            error => EmbedError::Failed(error.to_string()),
        })?;
        let answer: Answer =
            serde_json::from_slice(&answer).map_err(|_| failed("the answer has no embeddings"))?;
        self.in_order(answer, texts.len())
    }

    /// The vectors by their index, each of the right size and of length one.
    fn in_order(&self, answer: Answer, count: usize) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors = vec![None; count];
        for Item { index, embedding } in answer.data {
            if embedding.len() != self.dimensions {
                let (found, wanted) = (embedding.len(), self.dimensions);
                return Err(failed(format!("a vector has {found} numbers and not {wanted}")));
            }
            let place = vectors.get_mut(index).ok_or_else(|| failed("a vector is one too many"))?;
            *place = Some(unit(embedding)?);
        }
        let vectors: Option<Vec<_>> = vectors.into_iter().collect();
        vectors.ok_or_else(|| failed("a vector is missing"))
    }
}

#[async_trait]
impl Embedder for RemoteEmbedder {
    fn model_id(&self) -> &str {
        &self.id
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
        if texts.iter().any(|text| text.trim().is_empty()) {
            return Err(EmbedError::Refused("text must not be empty".into()));
        }
        let mut vectors = Vec::with_capacity(texts.len());
        for texts in texts.chunks(TEXTS_MAX) {
            vectors.extend(self.ask(texts).await?);
        }
        Ok(vectors)
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

fn unit(vector: Vec<f32>) -> Result<Vec<f32>, EmbedError> {
    let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if !norm.is_finite() || norm == 0.0 {
        return Err(failed("a vector points nowhere"));
    }
    Ok(vector.into_iter().map(|x| (f64::from(x) / norm) as f32).collect())
}

fn failed(why: impl Into<String>) -> EmbedError {
    EmbedError::Failed(why.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::Kind;
    use crate::ask::tests::Counterpart;

    /// Numbers in each vector.
    const DIMENSIONS: usize = 2;

    fn embedder(settings: &ProviderSettings) -> RemoteEmbedder {
        RemoteEmbedder::new(settings, "small", DIMENSIONS).unwrap()
    }

    /// What comes of asking for two texts where the service answers this.
    async fn asked(status: u16, answer: Value) -> Result<Vec<Vec<f32>>, EmbedError> {
        let service = Counterpart::start(move |_| (status, answer.to_string())).await;
        let embedder = embedder(&service.settings(Kind::OpenAi));
        let vectors = embedder.embed(vec!["a".into(), "b".into()]).await;
        assert_eq!(service.lines(), ["POST /v1/embeddings"]);
        vectors
    }

    fn item(index: usize, embedding: Value) -> Value {
        json!({"object": "embedding", "index": index, "embedding": embedding})
    }

    #[tokio::test]
    async fn vectors_come_in_the_order_of_their_texts_and_of_length_one() {
        let answer = json!({"data": [item(1, json!([0, 2])), item(0, json!([3.0, 4.0]))]});
        assert_eq!(asked(200, answer).await.unwrap(), [[0.6, 0.8], [0.0, 1.0]]);
    }

    #[tokio::test]
    async fn the_service_is_sent_the_model_and_the_texts_with_the_key() {
        let answer = json!({"data": [item(0, json!([1, 0]))]}).to_string();
        let service = Counterpart::start(move |_| (200, answer.clone())).await;
        let embedder = embedder(&service.settings(Kind::OpenAi));
        embedder.embed(vec!["ä \"b\"".into()]).await.unwrap();
        let heard = service.heard();
        let (head, body) = heard[0].split_once("\r\n\r\n").unwrap();
        assert!(head.to_ascii_lowercase().contains("authorization: bearer the-key"), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        let sent = json!({"model": "small", "input": ["ä \"b\""], "encoding_format": "float"});
        assert_eq!(body, sent);
        assert_eq!((embedder.model_id(), embedder.dimensions()), ("127.0.0.1/small/2", 2));
    }

    #[tokio::test]
    async fn a_long_text_is_sent_by_its_beginning() {
        let answer = json!({"data": [item(0, json!([1, 0]))]}).to_string();
        let service = Counterpart::start(move |_| (200, answer.clone())).await;
        let long = format!(" \n{}", "words ".repeat(10_000));
        embedder(&service.settings(Kind::OpenAi)).embed(vec![long.clone()]).await.unwrap();
        let heard = service.heard();
        let (_, body) = heard[0].split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["input"], json!([beginning(&long)]));
        assert!(body["input"][0].as_str().unwrap().len() < long.len());
    }

    #[tokio::test]
    async fn many_texts_are_sent_in_several_requests() {
        let all = |count: usize| (0..count).map(|at| item(at, json!([1, 0]))).collect::<Vec<_>>();
        for (count, requests) in [(TEXTS_MAX, 1), (TEXTS_MAX + 1, 2)] {
            let sizes =
                std::sync::Mutex::new(vec![count - count.min(TEXTS_MAX), count.min(TEXTS_MAX)]);
            let service = Counterpart::start(move |_| {
                let size = sizes.lock().unwrap().pop().unwrap();
                (200, json!({"data": all(size)}).to_string())
            });
            let service = service.await;
            let embedder = embedder(&service.settings(Kind::OpenAi));
            let vectors = embedder.embed(vec!["a".into(); count]).await.unwrap();
            assert_eq!((vectors.len(), service.lines().len()), (count, requests));
        }
    }

    #[tokio::test]
    async fn what_is_not_one_good_vector_for_each_text_is_a_failure() {
        let good = item(0, json!([1, 0]));
        let cases = [
            (json!({"data": [good, item(1, json!([1, 0, 0]))]}), "3 numbers and not 2"),
            (json!({"data": [good, item(1, json!([]))]}), "0 numbers and not 2"),
            (json!({"data": [good, item(1, json!([0, 0]))]}), "points nowhere"),
            (json!({"data": [good]}), "a vector is missing"),
            (json!({"data": [good, good]}), "a vector is missing"),
            (json!({"data": [good, item(2, json!([1, 0]))]}), "one too many"),
            (json!({"data": [good, item(1, json!("AAAA"))]}), "no embeddings"),
            (json!({"error": "later"}), "no embeddings"),
            (json!("hello"), "no embeddings"),
        ];
        for (answer, expected) in cases {
            let Err(EmbedError::Failed(why)) = asked(200, answer).await else {
                panic!("{expected}")
            };
            assert!(why.contains(expected), "{why}");
        }
    }

    #[tokio::test]
    async fn errors_of_the_service_are_failures_and_its_refusals_are_refusals() {
        let error = json!({"error": {"message": "it is the text"}});
        let refused = asked(400, error.clone()).await;
        assert!(matches!(refused, Err(EmbedError::Refused(why)) if why.contains("it is the text")));
        for status in [401, 404, 429, 500, 503] {
            assert!(matches!(asked(status, error.clone()).await, Err(EmbedError::Failed(_))));
        }
    }

    #[tokio::test]
    async fn a_service_that_is_silent_or_not_there_is_a_failure() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = ProviderSettings {
            base_url: format!("http://{}", silent.local_addr().unwrap()),
            first_event_timeout: Duration::from_millis(50),
            ..ProviderSettings::new(Kind::OpenAi)
        };
        let embedder = embedder(&settings);
        let Err(EmbedError::Failed(why)) = embedder.embed(vec!["a".into()]).await else { panic!() };
        assert!(why.contains("did not answer in time"), "{why}");
        drop(silent);
        assert!(matches!(embedder.embed(vec!["a".into()]).await, Err(EmbedError::Failed(_))));
    }

    #[tokio::test]
    async fn blank_texts_are_refused_and_none_is_not_asked_for() {
        let service = Counterpart::start(|_| (500, String::new())).await;
        let embedder = embedder(&service.settings(Kind::OpenAi));
        assert!(matches!(embedder.embed(vec![" ".into()]).await, Err(EmbedError::Refused(_))));
        assert_eq!(embedder.embed(Vec::new()).await.unwrap().len(), 0);
        assert_eq!(service.lines().len(), 0);
    }
}
