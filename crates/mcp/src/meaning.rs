//! Tools found by what is meant. What a tool says of itself is turned into a vector once, beside what else is done, and kept
//! on disk; until it has one, a tool is found by its words alone.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nexus_core::embed::Embedder;
use nexus_core::fuse::FUSED_DEPTH;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, watch};

use crate::kept;
use crate::lock;

/// What is less alike means something else.
const LEAST: f32 = 0.25;

/// A search waits so long for the vectors of tools that have none yet, which is enough for a few dozen of them.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Texts that are embedded before they count.
const AT_ONCE: usize = 16;

/// Of one file. What is longer was not written here.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Vectors that are kept for tools which nobody has at the moment; more are forgotten with the next that come.
const KEPT_MAX: usize = 20_000;

type Key = [u8; 16];

pub struct Meanings {
    embedder: Arc<dyn Embedder>,
    file: PathBuf,
    read: OnceCell<()>,
    vectors: Mutex<HashMap<Key, Arc<[f32]>>>,
    /// Told when those are made that were missing; `None` while nobody makes any.
    making: Mutex<Option<watch::Receiver<()>>>,
}

impl Meanings {
    /// Touches nothing before the first search.
    pub fn new(embedder: Arc<dyn Embedder>, file: PathBuf) -> Self {
        let (vectors, making) = (Mutex::default(), Mutex::default());
        Self { embedder, file, read: OnceCell::new(), vectors, making }
    }

    /// Those of `texts` that mean about what is asked for, best first, by their places. None where that cannot be said.
    pub async fn nearest(self: &Arc<Self>, texts: Vec<String>, query: String) -> Vec<(usize, f32)> {
        self.read.get_or_init(|| self.read()).await;
        let keys: Vec<Key> = texts.iter().map(|text| key(text)).collect();
        self.complete(&keys, texts).await;
        let asked = match self.embedder.embed(vec![query]).await {
            Ok(vectors) => vectors.into_iter().next().unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "tools are searched by words alone");
                return Vec::new();
            }
        };
        let vectors = lock(&self.vectors);
        let alike = keys.iter().enumerate().filter_map(|(place, key)| {
            let vector = vectors.get(key)?;
            Some((place, vector.iter().zip(&asked).map(|(a, b)| a * b).sum::<f32>()))
        });
        let mut near: Vec<_> = alike.filter(|(_, alike)| *alike >= LEAST).collect();
        drop(vectors);
        near.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        near.truncate(FUSED_DEPTH as usize);
        near
    }

    /// Has the vectors made that are missing, and waits a moment for them. They are made whoever waits.
    async fn complete(self: &Arc<Self>, keys: &[Key], texts: Vec<String>) {
        let made = {
            let mut making = lock(&self.making);
            let missing: Vec<_> = {
                let vectors = lock(&self.vectors);
                let keyed = keys.iter().copied().zip(texts);
                keyed.filter(|(key, _)| !vectors.contains_key(key)).collect()
            };
            if missing.is_empty() {
                return;
            }
            making
                .get_or_insert_with(|| {
                    let (done, made) = watch::channel(());
                    tokio::spawn(self.clone().make(missing, done));
                    made
                })
                .clone()
        };
        let mut made = made;
        let _ = tokio::time::timeout(WAIT_MAX, made.changed()).await;
    }

    async fn make(self: Arc<Self>, missing: Vec<(Key, String)>, done: watch::Sender<()>) {
        for some in missing.chunks(AT_ONCE) {
            let texts = some.iter().map(|(_, text)| text.clone()).collect();
            let vectors = match self.embedder.embed(texts).await {
                Ok(vectors) => vectors,
                Err(error) => {
                    tracing::warn!(%error, "tools of MCP servers are found by words alone");
                    break;
                }
            };
            let made = some.iter().map(|(key, _)| *key).zip(vectors.into_iter().map(Arc::from));
            lock(&self.vectors).extend(made);
        }
        *lock(&self.making) = None;
        drop(done);
        let this = self.clone();
        let kept = tokio::task::spawn_blocking(move || this.write(&missing)).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!(%error, "the meanings of tools were not kept");
        }
    }

    async fn read(self: &Arc<Self>) {
        let this = self.clone();
        let read = move || {
            let Some(vectors) =
                read(&this.file, this.embedder.model_id(), this.embedder.dimensions())
            else {
                return;
            };
            lock(&this.vectors).extend(vectors);
        };
        let _ = tokio::task::spawn_blocking(read).await;
    }

    /// Touches the disk.
    fn write(&self, new: &[(Key, String)]) -> std::io::Result<()> {
        let mut text = header(self.embedder.model_id());
        {
            let mut vectors = lock(&self.vectors);
            if vectors.len() > KEPT_MAX {
                vectors.retain(|key, _| new.iter().any(|(it, _)| it == key));
            }
            for (key, vector) in vectors.iter() {
                text.extend_from_slice(key);
                vector.iter().for_each(|number| text.extend_from_slice(&number.to_le_bytes()));
            }
        }
        kept::replace(&self.file, &text)
    }
}

fn header(model: &str) -> Vec<u8> {
    format!("nexus3 meanings 1 {model}\n").into_bytes()
}

/// What was kept, if it is of this model. Touches the disk.
fn read(file: &Path, model: &str, dimensions: usize) -> Option<Vec<(Key, Arc<[f32]>)>> {
    if fs::metadata(file).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    let bytes = fs::read(file).ok()?;
    let entries = bytes.strip_prefix(&header(model)[..])?;
    let size = size_of::<Key>() + dimensions * size_of::<f32>();
    let (entries, rest) = (entries.chunks_exact(size), entries.len() % size);
    let entry = |entry: &[u8]| {
        let (key, numbers) = entry.split_first_chunk()?;
        let numbers = numbers.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        Some((*key, numbers.collect()))
    };
    if rest != 0 { None } else { entries.map(entry).collect() }
}

fn key(text: &str) -> Key {
    let digest: [u8; 32] = Sha256::digest(text).into();
    let (key, _) = digest.split_first_chunk().unwrap_or((&[0; 16], &[]));
    *key
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use nexus_core::embed::EmbedError;

    use super::*;

    /// What begins with the same letter means the same. Counts what it looked at.
    struct Letters {
        id: &'static str,
        seen: AtomicUsize,
        fails: bool,
    }

    #[async_trait]
    impl Embedder for Letters {
        fn model_id(&self) -> &str {
            self.id
        }

        fn dimensions(&self) -> usize {
            26
        }

        async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
            self.seen.fetch_add(texts.len(), Ordering::Relaxed);
            if self.fails {
                return Err(EmbedError::Failed("no".into()));
            }
            let vector = |text: String| {
                let mut vector = vec![0.0; 26];
                vector[usize::from(text.bytes().next().unwrap_or(b'a') - b'a')] = 1.0;
                vector
            };
            Ok(texts.into_iter().map(vector).collect())
        }
    }

    fn meanings(file: &Path, id: &'static str, fails: bool) -> (Arc<Meanings>, Arc<Letters>) {
        let letters = Arc::new(Letters { id, seen: AtomicUsize::new(0), fails });
        (Arc::new(Meanings::new(letters.clone(), file.to_path_buf())), letters)
    }

    async fn places(meanings: &Arc<Meanings>, texts: &[&str], query: &str) -> Vec<usize> {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let near = meanings.nearest(texts, query.into()).await;
        near.into_iter().map(|(place, _)| place).collect()
    }

    async fn written(file: &Path) {
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_text_is_looked_at_once_and_then_known() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mcp/meanings");
        let texts = ["apple", "boat", "ant", "car"];
        let (first, letters) = meanings(&file, "letters", false);
        assert_eq!(places(&first, &texts, "animal").await, [0, 2]);
        assert_eq!(places(&first, &texts, "bird").await, [1]);
        assert_eq!(places(&first, &texts, "zebra").await, [0; 0]);
        assert_eq!(letters.seen.load(Ordering::Relaxed), texts.len() + 3);
        written(&file).await;

        // After a restart too, and not by another model or from half a file.
        let (again, letters) = meanings(&file, "letters", false);
        assert_eq!(places(&again, &texts, "animal").await, [0, 2]);
        assert_eq!(letters.seen.load(Ordering::Relaxed), 1);
        assert!(read(&file, "letters", 26).is_some_and(|kept| kept.len() == texts.len()));
        assert!(read(&file, "others", 26).is_none());
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        assert!(read(&file, "letters", 26).is_none());
    }

    #[tokio::test]
    async fn where_nothing_can_be_said_nothing_is() {
        let dir = tempfile::tempdir().unwrap();
        let (meanings, _) = meanings(&dir.path().join("meanings"), "letters", true);
        assert_eq!(places(&meanings, &["apple"], "ant").await, [0; 0]);
        assert_eq!(places(&meanings, &[], "ant").await, [0; 0]);
    }
}
