//! The built-in embedder: a small sentence transformer whose weights are part of the program.

use std::sync::Arc;

use async_trait::async_trait;
use nexus_core::embed::{EmbedError, Embedder, beginning};
use pocket_encoder::Encoder;

/// Loads its weights with the first text, some 70 MB, and keeps them.
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
        let work = move || {
            let encoder = Encoder::new()?;
            // One by one: many at once are no faster to it, and bounded.
            let vectors = texts.iter().map(|text| encoder.embed(&[beginning(text)]));
            vectors.collect::<Result<Vec<_>, _>>().map(|vectors| vectors.concat())
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(vectors)) => Ok(vectors),
            Ok(Err(pocket_encoder::Error::Input(why))) => Err(EmbedError::Refused(why.into())),
            Ok(Err(error)) => Err(EmbedError::Failed(error.to_string())),
            Err(error) => Err(EmbedError::Failed(error.to_string())),
        }
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
    async fn a_long_text_is_taken_by_its_beginning() {
        let beginning = "The deployment failed. ".repeat(40);
        let long = format!("\n{beginning}{}", "ä".repeat(1024 * 1024));
        let vectors = LocalEmbedder::new().embed(vec![beginning, long]).await.unwrap();
        assert_eq!(vectors[0], vectors[1]);
    }

    /// The index codes vectors and looks at few of them: here at one in eight, as it does among very many.
    #[tokio::test]
    async fn an_index_finds_the_nearest_of_its_vectors() {
        let things =
            ["the deployment", "her sister", "the old bicycle", "our meeting", "the invoice"];
        let events = [
            "was late on Monday",
            "is allergic to nuts",
            "needs a new chain",
            "moved to three o'clock",
            "has not been paid",
            "comes from Lisbon",
            "broke twice this year",
            "likes to be left alone",
        ];
        let asides =
            ["", "as far as I know, ", "I was told that ", "do not forget: ", "once again "];
        let mut texts = Vec::new();
        for thing in things {
            for event in events {
                texts.extend(asides.map(|aside| format!("{aside}{thing} {event}")));
            }
        }
        let questions = ["what was broken?", "who has an allergy", "when do we meet", "open bills"];
        let embedder = LocalEmbedder::new();
        let rows = embedder.embed(texts).await.unwrap();
        let queries = embedder.embed(questions.map(String::from).to_vec()).await.unwrap();
        let mut index = nexus_meaning::Index::new(embedder.dimensions());
        for (id, row) in (0..).zip(&rows) {
            index.insert(id, 0, row).unwrap();
        }
        let mut found = 0;
        for query in &queries {
            let near = index.nearest_among(query, &[0], 10, rows.len() / 8).unwrap();
            let mut exact: Vec<(u64, f32)> =
                (0..).zip(rows.iter().map(|row| crate::kernels::dot(row, query))).collect();
            exact.sort_by(|a, b| b.1.total_cmp(&a.1));
            let is_near = |id| near.iter().any(|(near, _)| *near == id);
            found += exact[..10].iter().filter(|(id, _)| is_near(*id)).count();
        }
        assert!(found * 100 >= 95 * 10 * queries.len(), "{found} of {}", 10 * queries.len());
    }

    #[tokio::test]
    async fn what_it_cannot_take_is_refused() {
        let refused = LocalEmbedder::new().embed(vec![" ".into()]).await;
        assert!(matches!(refused, Err(EmbedError::Refused(_))));
        assert_eq!(LocalEmbedder::new().embed(Vec::new()).await.unwrap().len(), 0);
    }
}
