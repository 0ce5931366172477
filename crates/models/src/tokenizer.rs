//! Counting tokens with the tokenizer of OpenAI's current models. The tokenizers of other services are not public;
//! theirs gives numbers close enough to plan a context with.

use nexus_core::tokens::TokenCounter;

/// Counts in `o200k_base`. The tables cost about 60 MB and 70 ms, so they are loaded by the first count, not before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokenizer;

impl TokenCounter for Tokenizer {
    fn count(&self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        u32::try_from(bpe_openai::o200k_base().count(text)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_as_openai_does() {
        let check =
            |text: &str, expected: u32| assert_eq!(Tokenizer.count(text), expected, "{text:?}");
        check("", 0);
        check("hello world", 2);
        check("Hello, world!", 4);
        check("<|endoftext|>", 7);
        check("こんにちは", 1);
        check("a\n\n\n   b", 4);
    }

    #[test]
    fn long_runs_of_one_character_are_counted_quickly() {
        let started = std::time::Instant::now();
        assert!(Tokenizer.count(&"a".repeat(200_000)) > 1000);
        assert!(started.elapsed() < std::time::Duration::from_secs(5));
    }
}
