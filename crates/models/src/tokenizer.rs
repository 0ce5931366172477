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

/// The text of tokens of `cl100k_base`; `None` where some are none, or make no text.
pub fn text_of_cl100k(tokens: &[u32]) -> Option<String> {
    let tokenizer = bpe_openai::cl100k_base();
    let known = tokenizer.bpe.num_tokens();
    let are_known = tokens.iter().all(|token| (*token as usize) < known);
    are_known.then(|| tokenizer.decode(tokens)).flatten()
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
    fn tokens_are_read_back() {
        let tokens = bpe_openai::cl100k_base().encode("Hello, world!");
        assert_eq!(text_of_cl100k(&tokens).as_deref(), Some("Hello, world!"));
        assert_eq!(text_of_cl100k(&[u32::MAX]), None);
        assert!(text_of_cl100k(&[100_255]).is_some());
        assert_eq!(text_of_cl100k(&[100_256]), None);
        assert_eq!(text_of_cl100k(&[]).as_deref(), Some(""));
    }

    #[test]
    fn long_runs_of_one_character_are_counted_quickly() {
        let started = std::time::Instant::now();
        assert!(Tokenizer.count(&"a".repeat(200_000)) > 1000);
        assert!(started.elapsed() < std::time::Duration::from_secs(5));
    }
}
