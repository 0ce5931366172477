//! The built-in embedder: a small sentence transformer whose weights are part of the program.

use std::sync::Arc;

use async_trait::async_trait;
use nexus_core::embed::{EmbedError, Embedder};
use pocket_encoder::Encoder;

/// Loads its weights with the first text and keeps them.
pub struct LocalEmbedder {
    id: Arc<str>,
    dimensions: usize,
}

impl LocalEmbedder {
    pub fn new() -> Self {
        let info = pocket_encoder::model_info();
        Self { id: info.id.into(), dimensions: info.dimensions }
    }
}

impl Default for LocalEmbedder {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Embedder for LocalEmbedder {
    fn model_id(&self) -> &str {
        &self.id
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let work = move || match Encoder::new().and_then(|encoder| encoder.embed(&texts)) {
            Ok(vectors) => Ok(vectors),
            Err(pocket_encoder::Error::Input(reason)) => Err(EmbedError::Refused(reason.into())),
            Err(error) => Err(EmbedError::Failed(error.to_string())),
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(EmbedError::Failed(error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_means_the_same_lies_near() {
        let texts = [
            "The deployment failed because the disk was full.",
            "We ran out of storage space during the release.",
            "My cat likes to sleep in the sun.",
        ];
        let embedder = LocalEmbedder::new();
        let vectors = embedder.embed(texts.map(String::from).to_vec()).await.unwrap();
        assert!(vectors.iter().all(|vector| vector.len() == embedder.dimensions()));
        let near = |a: usize, b: usize| crate::kernels::dot(&vectors[a], &vectors[b]);
        assert!(near(0, 1) > near(0, 2) && near(0, 1) > near(1, 2));
    }

    #[tokio::test]
    async fn what_it_cannot_take_is_refused() {
        let refused = LocalEmbedder::new().embed(vec![" ".into()]).await;
        assert!(matches!(refused, Err(EmbedError::Refused(_))));
        assert_eq!(LocalEmbedder::new().embed(Vec::new()).await.unwrap().len(), 0);
    }
}
