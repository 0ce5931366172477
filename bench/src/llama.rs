//! llama.cpp by itself, as the baseline of the built-in model: a prompt, then one token after the other, the likeliest
//! each time, and nothing around it.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;

/// As llama.cpp's own programs read a prompt.
const BATCH_TOKENS: usize = 512;

const CONTEXT_TOKENS: u32 = 2048;

pub struct Weights(LlamaModel);

impl Weights {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let params = LlamaModelParams::default().with_progress_callback(|_| true);
        let model = LlamaModel::load_from_file(nexus_local::llama_backend()?, path, &params)?;
        Ok(Self(model))
    }

    pub fn bare(&self, threads: usize) -> anyhow::Result<Bare<'_>> {
        let threads = i32::try_from(threads)?;
        let params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(CONTEXT_TOKENS))
            .with_n_batch(BATCH_TOKENS as u32)
            .with_n_threads(threads)
            .with_n_threads_batch(threads);
        let context = self.0.new_context(nexus_local::llama_backend()?, params)?;
        Ok(Bare { model: &self.0, context, batch: LlamaBatch::new(BATCH_TOKENS, 1) })
    }
}

/// llama.cpp with so many threads.
pub struct Bare<'a> {
    model: &'a LlamaModel,
    context: LlamaContext<'a>,
    batch: LlamaBatch<'static>,
}

/// Tokens a second.
pub struct Speed {
    pub read: f64,
    pub written: f64,
}

impl Bare<'_> {
    /// Answers what a user said, in the form that the built-in model knows, with so many tokens.
    pub fn answer(&mut self, said: &str, tokens: u32) -> anyhow::Result<Speed> {
        let prompt = format!(
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
             <|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n"
        );
        let prompt = self.model.vocab().tokenize(prompt.as_bytes(), false, true);
        self.context.clear_kv_cache();
        let started = Instant::now();
        let mut position = 0;
        let mut token = LlamaToken::new(0);
        for part in prompt.chunks(BATCH_TOKENS) {
            token = self.read(part, position)?;
            position += part.len();
        }
        let first_word = started.elapsed();
        for _ in 1..tokens {
            token = self.read(&[token], position)?;
            position += 1;
        }
        let writing = started.elapsed() - first_word;
        Ok(Speed {
            read: prompt.len() as f64 / first_word.as_secs_f64(),
            written: f64::from(tokens - 1) / writing.as_secs_f64(),
        })
    }

    /// Reads `tokens` and returns the likeliest next one.
    fn read(&mut self, tokens: &[LlamaToken], position: usize) -> anyhow::Result<LlamaToken> {
        self.batch.clear();
        for (at, token) in tokens.iter().enumerate() {
            let position = i32::try_from(position + at)?;
            self.batch.add(*token, position, &[0], at + 1 == tokens.len())?;
        }
        self.context.decode(&mut self.batch)?;
        let logits = self.context.get_logits_ith(i32::try_from(tokens.len() - 1)?);
        let likeliest = (0..).zip(logits).max_by(|(_, a), (_, b)| a.total_cmp(b));
        let (token, _) = likeliest.context("the model says nothing")?;
        Ok(LlamaToken::new(token))
    }
}
