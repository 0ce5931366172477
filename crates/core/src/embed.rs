//! What the core asks of whoever turns text into vectors.

use async_trait::async_trait;
use thiserror::Error;

/// Makes vectors that lie near each other where texts mean the same. Vectors of different models do not compare: what
/// keeps one keeps the model's id with it.
#[async_trait]
pub trait Embedder: Send + Sync {
    fn model_id(&self) -> &str;

    /// Numbers in each vector.
    fn dimensions(&self) -> usize;

    /// One vector of unit length for each text, in order.
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError>;
}

#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum EmbedError {
    #[error("the text cannot be embedded ({0})")]
    Refused(String),
    #[error("the embedder failed ({0})")]
    Failed(String),
}
