//! Asks services which models they have and what these can. Only a person's command does: a server asks nobody for what it
//! was not asked for itself.

mod read;
#[cfg(test)]
pub(crate) mod tests;

use nexus_core::provider::ProviderError;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use thiserror::Error;

use super::catalogue::Entry;
use super::http::Http;
use super::{BuildError, Kind, ProviderSettings, base_url, endpoint};

/// What came of asking.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Keys are the service's own ids.
    Models(Vec<Entry>),
    /// The service lists its models, and says nothing of what they can.
    Silent,
}

#[derive(Debug, Error)]
pub enum AskError {
    #[error(transparent)]
    Settings(#[from] BuildError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
    #[error("the answer is no JSON")]
    NotJson,
}

/// Lists come by page; one that never ends is none.
const PAGES_MAX: usize = 20;

/// Models of an Ollama that are looked at, each with a question of its own.
const SHOWN_MAX: usize = 256;

pub async fn models(settings: &ProviderSettings) -> Result<Answer, AskError> {
    let base = base_url(settings)?;
    let service = Service { http: Http::new(settings, &base, headers(settings)?)?, base };
    let models = match settings.kind {
        Kind::Anthropic => service.anthropic().await?,
        Kind::OpenRouter => read::openrouter(&service.get(&["models"], &[]).await?),
        Kind::Gemini => service.gemini().await?,
        Kind::Ollama => service.ollama().await?,
        Kind::OpenAi => service.compatible().await?,
        // What a deployment is, only its owner knows.
        Kind::Azure => Vec::new(),
    };
    Ok(if models.is_empty() { Answer::Silent } else { Answer::Models(models) })
}

/// Anthropic answers nobody who does not say which of its interfaces is meant.
fn headers(settings: &ProviderSettings) -> Result<HeaderMap, BuildError> {
    let mut headers = HeaderMap::new();
    if settings.kind == Kind::Anthropic {
        let version = settings.api_version.as_deref().unwrap_or("2023-06-01");
        let version = HeaderValue::from_str(version).map_err(|_| BuildError::ApiVersion)?;
        headers.insert(HeaderName::from_static("anthropic-version"), version);
    }
    Ok(headers)
}

struct Service {
    http: Http,
    base: Url,
}

impl Service {
    async fn anthropic(&self) -> Result<Vec<Entry>, AskError> {
        self.pages(&[("limit", "1000")], "after_id", read::anthropic).await
    }

    async fn gemini(&self) -> Result<Vec<Entry>, AskError> {
        self.pages(&[("pageSize", "1000")], "pageToken", read::gemini).await
    }

    /// All pages of a list, each of which says how the next is asked for.
    async fn pages(
        &self,
        first: &[(&str, &str)],
        next: &str,
        read: fn(&Value) -> (Vec<Entry>, Option<String>),
    ) -> Result<Vec<Entry>, AskError> {
        let mut models = Vec::new();
        let mut place = None;
        for _ in 0..PAGES_MAX {
            let place_of_page = place.iter().map(|place: &String| (next, place.as_str()));
            let query: Vec<_> = first.iter().copied().chain(place_of_page).collect();
            let (page, further) = read(&self.get(&["models"], &query).await?);
            models.extend(page);
            if further.is_none() || further == place {
                break;
            }
            place = further;
        }
        Ok(models)
    }

    async fn compatible(&self) -> Result<Vec<Entry>, AskError> {
        let list = self.get(&["models"], &[]).await?;
        let models = read::compatible(&list);
        // llama.cpp lists its one model, and says elsewhere what it can.
        match read::ids(&list).as_slice() {
            [only] if models.is_empty() => {
                let props = self.http.ask(&endpoint(&self.root(), &["props"]), None).await;
                let props = props.ok().and_then(|props| serde_json::from_slice(&props).ok());
                let loaded = props.and_then(|props: Value| read::llama_cpp(only, &props));
                Ok(loaded.into_iter().collect())
            }
            _ => Ok(models),
        }
    }

    async fn ollama(&self) -> Result<Vec<Entry>, AskError> {
        let root = self.root();
        let tags = json_of(&self.http.ask(&endpoint(&root, &["api", "tags"]), None).await?)?;
        let mut models = Vec::new();
        for name in read::ollama_names(&tags).into_iter().take(SHOWN_MAX) {
            let question = json!({"model": name}).to_string().into_bytes();
            let url = endpoint(&root, &["api", "show"]);
            let shown = json_of(&self.http.ask(&url, Some(question)).await?)?;
            models.push(read::ollama(&name, &shown));
        }
        Ok(models)
    }

    async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, AskError> {
        let mut url = endpoint(&self.base, path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        json_of(&self.http.ask(&url, None).await?)
    }

    /// Where a server's own interface begins: beside the one that imitates another's.
    fn root(&self) -> Url {
        let mut root = self.base.clone();
        let path = root.path().trim_end_matches('/').to_owned();
        root.set_path(path.strip_suffix("/v1").unwrap_or(&path));
        root
    }
}

fn json_of(bytes: &[u8]) -> Result<Value, AskError> {
    serde_json::from_slice(bytes).map_err(|_| AskError::NotJson)
}
