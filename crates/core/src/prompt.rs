//! Where an agent's system prompt comes from.

use std::path::Path;
use std::sync::Arc;

/// Builds the layered prompt for a working directory. Reads files, so it runs off the async threads.
pub trait Prompts: Send + Sync {
    fn load(&self, cwd: &Path) -> Prompt;
}

#[derive(Clone, Debug)]
pub struct Prompt {
    pub text: Arc<str>,
    /// The most specific file it was read from, if any.
    pub source: Option<std::path::PathBuf>,
}
