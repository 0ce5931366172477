//! Where an agent's system prompt comes from.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;

/// How long instructions that were read are taken to be as they were.
const FRESH: Duration = Duration::from_secs(1);

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

/// The layered prompt of an agent, as it was last read.
#[derive(Default)]
pub(crate) struct PromptPlace(Mutex<Option<(Instant, Prompt)>>);

impl PromptPlace {
    /// The prompt, if it was read a moment ago.
    pub fn fresh(&self) -> Option<Prompt> {
        let place = lock(&self.0);
        place.as_ref().filter(|(read, _)| read.elapsed() < FRESH).map(|(_, prompt)| prompt.clone())
    }

    /// Keeps a prompt that was just read. One that says the same as the last stays the same value.
    pub fn put(&self, mut prompt: Prompt) -> Prompt {
        let mut place = lock(&self.0);
        if let Some((_, before)) = &*place
            && before.text == prompt.text
        {
            prompt.text = before.text.clone();
        }
        *place = Some((Instant::now(), prompt.clone()));
        prompt
    }
}
