//! The built-in model: GGUF weights, run in this process on the CPU, behind the core's `Provider`; and the built-in
//! embedder behind its `Embedder`. The heavy libraries of the program sit in this crate and nowhere else.
//!
//! [`tokenizer`] and [`template`] turn a conversation into tokens, [`engine`] runs the model for all agents at once,
//! [`sample`] and [`grammar`] choose what is said. What computes lies behind [`arithmetic`]: our own ([`weights`] reads
//! the file, [`forward`] runs the llama architecture on [`kernels`], [`kv`] remembers what was read), or, with the
//! feature `llama-cpp`, llama.cpp. [`head`] looks through a file before any of it is believed.

mod arithmetic;
mod embed;
mod engine;
mod forward;
mod grammar;
mod head;
mod kernels;
mod kv;
#[cfg(feature = "llama-cpp")]
mod llama_cpp;
mod memory;
mod provider;
mod said;
mod sample;
mod template;
#[cfg(test)]
mod tests;
mod tokenizer;
mod weights;

use std::path::{Path, PathBuf};

use thiserror::Error;

pub use embed::LocalEmbedder;
#[cfg(feature = "llama-cpp")]
pub use llama_cpp::backend as llama_backend;
pub use provider::{Local, threads};
pub use template::{WRITER_ARGUMENT, writer_main};

/// What models are computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Our own arithmetic, which runs the llama architecture.
    #[cfg_attr(not(feature = "llama-cpp"), default)]
    Own,
    /// llama.cpp, with all architectures it has.
    #[cfg(feature = "llama-cpp")]
    #[default]
    LlamaCpp,
}

impl Backend {
    /// As the log has it.
    fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            #[cfg(feature = "llama-cpp")]
            Self::LlamaCpp => "llama.cpp",
        }
    }

    fn load(self, path: &Path, threads: usize) -> Result<engine::Engine, Fault> {
        match self {
            Self::Own => forward::load(path, threads),
            #[cfg(feature = "llama-cpp")]
            Self::LlamaCpp => llama_cpp::load(path, threads),
        }
    }

    /// Reads a file's head and checks that it could be run, without loading it.
    pub fn inspect(self, path: &Path) -> Result<ModelFile, Fault> {
        match self {
            Self::Own => {
                let gguf = weights::Gguf::open(path)?;
                let shape = gguf.shape()?;
                tokenizer::Vocabulary::read(&gguf)?;
                let name = gguf.text("general.name").map(String::from);
                Ok(ModelFile { name, window: shape.window })
            }
            #[cfg(feature = "llama-cpp")]
            Self::LlamaCpp => llama_cpp::inspect(path),
        }
    }
}

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
    #[cfg(feature = "llama-cpp")]
    #[error("llama.cpp cannot be used on this machine: {reason}")]
    Machine { reason: String },
    #[error("no thread for the model could be started: {reason}")]
    Threads { reason: String },
    #[error("reading the weights failed inside the program: the file is probably damaged")]
    Panicked,
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Checks that a file could be run, without loading it.
pub fn inspect(path: &Path) -> Result<ModelFile, Fault> {
    Backend::default().inspect(path)
}

/// What a model file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFile {
    pub name: Option<String>,
    /// Most tokens the model sees at once.
    pub window: usize,
}
