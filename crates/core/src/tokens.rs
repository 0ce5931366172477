//! Counting tokens.

/// What a message costs beside its text: role and separators, as chat formats need them.
pub const PER_MESSAGE: u32 = 4;

/// A real tokenizer, or what comes closest for the model in use.
pub trait TokenCounter: Send + Sync {
    fn count(&self, text: &str) -> u32;
}
