//! What the core asks of whoever turns text into vectors.

use async_trait::async_trait;
use thiserror::Error;

/// How much of a text is looked at. Embedding models read from 128 tokens on, and services refuse what is too long for
/// theirs.
const READ_BYTES_MAX: usize = 4 * 1024;

/// What is looked at of a text.
pub fn beginning(text: &str) -> &str {
    let text = text.trim_start();
    &text[..text.floor_char_boundary(READ_BYTES_MAX)]
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_cut_in_two() {
        let text = |letters: usize| format!("\n {}ä", "x".repeat(letters));
        assert_eq!(beginning(&text(READ_BYTES_MAX - 2)).len(), READ_BYTES_MAX);
        assert_eq!(beginning(&text(READ_BYTES_MAX - 1)).len(), READ_BYTES_MAX - 1);
    }
}
