//! The built-in model: GGUF weights of the llama architecture, run in this process on the CPU, behind the core's
//! `Provider`; and the built-in embedder behind its `Embedder`. The heavy libraries of the program sit in this crate
//! and nowhere else.
//!
//! [`weights`] reads the file, [`tokenizer`] and [`template`] turn a conversation into tokens, [`engine`] runs the
//! model for all agents at once with [`forward`] on [`kernels`], [`kv`] remembers what was read, [`sample`] and
//! [`grammar`] choose what is said.

mod embed;
mod engine;
mod forward;
mod grammar;
mod kernels;
mod kv;
mod memory;
mod provider;
mod sample;
mod template;
#[cfg(test)]
mod tests;
mod tokenizer;
mod weights;

use std::path::PathBuf;

use thiserror::Error;

pub use embed::LocalEmbedder;
pub use provider::Local;

/// Why a model cannot be run. Files are told by their names: the sentence goes to callers, whom the server's directories
/// do not concern.
#[derive(Debug, Error)]
pub enum Fault {
    #[error("there are no weights called {}; to get the built-in model: nexus3 model pull", name(.path))]
    NoWeights { path: PathBuf },
    #[error("{} cannot be read: {reason}", name(.path))]
    Unreadable { path: PathBuf, reason: String },
    #[error("{} is damaged or no GGUF file: {reason}; to get the built-in model anew: nexus3 model pull", name(.path))]
    Damaged { path: PathBuf, reason: String },
    #[error("{} holds a model this program cannot run: {reason}", name(.path))]
    Unsupported { path: PathBuf, reason: String },
    #[error(
        "too little memory for the model: it needs {needed_mib} MiB and {available_mib} MiB are free"
    )]
    Memory { needed_mib: u64, available_mib: u64 },
    #[error("no thread for the model could be started: {reason}")]
    Threads { reason: String },
    #[error("reading the weights failed inside the program: the file is probably damaged")]
    Panicked,
}

fn name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads a file's head and checks that it could be run, without loading it.
pub fn inspect(path: &std::path::Path) -> Result<ModelFile, Fault> {
    let gguf = weights::Gguf::open(path)?;
    let shape = gguf.shape()?;
    tokenizer::Vocabulary::read(&gguf)?;
    Ok(ModelFile { name: gguf.text("general.name").map(String::from), window: shape.window })
}

/// What a model file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFile {
    pub name: Option<String>,
    /// Most tokens the model sees at once.
    pub window: usize,
}
