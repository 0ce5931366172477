//! `POST /v1/embeddings`: the built-in model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::{Request, Response};
use nexus_protocol::StreamApi;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::Visitor;
use super::ask::{Fields, reading};
use super::door::{Door, Reply, json_response};
use super::failure::Failure;

/// Most texts of a request.
pub const INPUTS_MAX: usize = 2_048;

/// Longest text.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Tokens of a request, about: as many as OpenAI takes, and some seconds of a processor.
const TOKENS_MAX: usize = 300_000;

/// What the model reads at once, nearly: it takes 128 tokens, and its way to cut them is its own.
const PIECE_WEIGHT_MAX: usize = 120;

/// Letters of a word that make a token, about.
const LETTERS: usize = 5;

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a text, texts, or lists of tokens")]
enum Input {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Float,
    Base64,
}

/// Where requests wait, each caller's behind its own: the embedder goes from one caller to the next, however much one of
/// them asks for.
#[derive(Default)]
pub struct Lines(Mutex<HashMap<String, Arc<Semaphore>>>);

impl Lines {
    /// The line of a caller, in which one at a time is served.
    fn of(&self, visitor: &str) -> Arc<Semaphore> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| Arc::strong_count(line) > 1);
        let line = lines.entry(visitor.to_owned());
        line.or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

/// What is asked for.
struct Asked {
    model: String,
    /// Numbers of a vector.
    wanted: Option<usize>,
    encoding: Encoding,
    input: Input,
}

impl Asked {
    fn read(body: &[u8]) -> Result<Self, Failure> {
        let mut fields = Fields::read(body)?;
        Ok(Self {
            model: fields.required("model")?,
            wanted: fields.take("dimensions")?,
            encoding: fields.take("encoding_format")?.unwrap_or_default(),
            input: fields.required("input")?,
        })
    }
}

impl<A: StreamApi + Clone + Send + Sync + 'static> Door<A> {
    pub(super) async fn embed(
        &self,
        visitor: &Visitor,
        request: &Request<Bytes>,
    ) -> Result<Response<Reply>, Failure> {
        let Asked { model, wanted, encoding, input } = reading(request.body(), Asked::read).await?;
        let (name, dimensions) = self.models.embedder();
        if model != name {
            let message = format!("there is no model {model:?} that embeds; {name:?} does");
            return Err(Failure::no_model(message));
        }
        if let Some(other) = wanted.filter(|wanted| *wanted != dimensions) {
            let message = format!("dimensions: {name} has {dimensions}, and not {other}");
            return Err(Failure::invalid("dimensions", message));
        }
        let texts = self.texts(input)?;
        let tokens: usize = texts.iter().map(|text| weight(text)).sum();
        if tokens > TOKENS_MAX {
            let message = format!("input: at most about {TOKENS_MAX} tokens, got {tokens}");
            return Err(Failure::invalid("input", message));
        }
        let pieces: Vec<Vec<String>> = texts.iter().map(|text| pieces(text)).collect();
        let line = self.embedding.of(&visitor.name);
        let _turn = line.acquire().await.map_err(|_| Failure::broken("the embedder is gone"))?;
        let vectors = self.models.embed(pieces.iter().flatten().cloned().collect()).await?;
        let mut vectors = vectors.into_iter();
        let entries = pieces.iter().enumerate().map(|(index, pieces)| {
            let vector = averaged(vectors.by_ref().take(pieces.len()), dimensions);
            json!({"object": "embedding", "index": index, "embedding": written(&vector, encoding)})
        });
        let entries: Vec<_> = entries.collect();
        Ok(json_response(&json!({
            "object": "list", "model": name, "data": entries,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        })))
    }

    fn texts(&self, input: Input) -> Result<Vec<String>, Failure> {
        let wrong = |message: String| Err(Failure::invalid("input", format!("input: {message}")));
        let of_tokens = |tokens: Vec<u32>| {
            let unknown = || Failure::invalid("input", "input: these are no tokens of cl100k");
            self.models.text_of(&tokens).ok_or_else(unknown)
        };
        let texts = match input {
            Input::Text(text) => vec![text],
            Input::Texts(texts) => texts,
            Input::Tokens(tokens) => vec![of_tokens(tokens)?],
            Input::TokenLists(lists) if lists.len() > INPUTS_MAX => {
                return wrong(format!("at most {INPUTS_MAX} texts, got {}", lists.len()));
            }
            Input::TokenLists(lists) => {
                lists.into_iter().map(of_tokens).collect::<Result<_, _>>()?
            }
        };
        if texts.is_empty() || texts.len() > INPUTS_MAX {
            return wrong(format!("1 to {INPUTS_MAX} texts, got {}", texts.len()));
        }
        if texts.iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            return wrong(format!("a text has at most {TEXT_BYTES_MAX} bytes"));
        }
        match texts.iter().any(|text| text.trim().is_empty()) {
            true => wrong("a text is blank".into()),
            false => Ok(texts),
        }
    }
}

/// A text in pieces that the model reads whole.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut left = PIECE_WEIGHT_MAX;
    for word in text.split_inclusive(char::is_whitespace) {
        let mut rest = word;
        while !rest.is_empty() {
            let weight = weight(rest);
            let whole = weight <= PIECE_WEIGHT_MAX;
            // What is longer than a piece by itself is cut where it is full.
            let end = if whole { rest.len() } else { rest.floor_char_boundary(PIECE_WEIGHT_MAX) };
            let (part, behind) = rest.split_at(end);
            let part_weight = self::weight(part);
            if part_weight > left {
                pieces.push(String::new());
                left = PIECE_WEIGHT_MAX;
            }
            left = left.saturating_sub(part_weight);
            if let Some(piece) = pieces.last_mut() {
                piece.push_str(part);
            }
            rest = behind;
        }
    }
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

/// How many tokens a text is, about.
fn weight(text: &str) -> usize {
    let (mut tokens, mut letters) = (0, 0);
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() {
            letters += 1;
            continue;
        }
        tokens += letters / LETTERS + usize::from(letters % LETTERS > 0);
        letters = 0;
        tokens += usize::from(!letter.is_whitespace());
    }
    tokens + letters / LETTERS + usize::from(letters % LETTERS > 0)
}

/// The mean of vectors, of unit length.
fn averaged(vectors: impl Iterator<Item = Vec<f32>>, dimensions: usize) -> Vec<f32> {
    let mut sum = vec![0.0_f32; dimensions];
    for vector in vectors {
        sum.iter_mut().zip(vector).for_each(|(sum, number)| *sum += number);
    }
    let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        sum.iter_mut().for_each(|number| *number /= length);
    }
    sum
}

fn written(vector: &[f32], encoding: Encoding) -> Value {
    match encoding {
        Encoding::Float => json!(vector),
        Encoding::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
            STANDARD.encode(bytes).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_words_and_nothing_of_it_is_lost() {
        let short = "word ".repeat(PIECE_WEIGHT_MAX);
        assert_eq!(pieces(&short), std::slice::from_ref(&short));
        let long = "word ".repeat(PIECE_WEIGHT_MAX + 1);
        assert_eq!(pieces(&long), [short, "word ".to_owned()]);
        for odd in ["x".repeat(10_000), "ä".repeat(1_000), "词".repeat(500), "a, ".repeat(400)] {
            let cut = pieces(&odd);
            assert_eq!(cut.concat(), odd);
            assert!(cut.len() > 1 && cut.iter().all(|it| weight(it) <= PIECE_WEIGHT_MAX));
        }
        assert_eq!(pieces("  \n"), Vec::<String>::new());
    }

    #[test]
    fn each_caller_has_a_line_as_long_as_somebody_waits_in_it() {
        let lines = Lines::default();
        let (own, other) = (lines.of("a"), lines.of("b"));
        let _turn = own.try_acquire().unwrap();
        assert!(lines.of("a").try_acquire().is_err());
        assert!(other.try_acquire().is_ok());
        drop(other);
        lines.of("a");
        assert_eq!(lines.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_mean_has_unit_length() {
        let mean = averaged([vec![3.0, 0.0], vec![0.0, 3.0]].into_iter(), 2);
        assert!(mean.iter().all(|number| (number - 0.5_f32.sqrt()).abs() < 1e-6), "{mean:?}");
        assert_eq!(written(&[1.0], Encoding::Base64), "AACAPw==");
    }
}
