//! Keeps keys out of what people read.

use super::ProviderSettings;

/// Longest text of a provider that is passed on. It ends up in an error message, not on a page.
const MESSAGE_CHARS_MAX: usize = 300;

/// Shorter values are not taken for secrets: to blot them out would blot out words.
const SECRET_BYTES_MIN: usize = 6;

const REDACTED: &str = "[redacted]";

/// The values a provider was given in confidence.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub fn of(settings: &ProviderSettings) -> Self {
        let headers = settings.extra_headers.iter().map(|(_, value)| value);
        let values = settings.api_key.iter().chain(headers);
        Self(values.filter(|value| value.len() >= SECRET_BYTES_MIN).cloned().collect())
    }

    /// The text without the secrets.
    pub fn redact(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, REDACTED))
    }

    /// A provider's own words, fit for an error message: one line, bounded, and without anything that looks like a
    /// key, whole or masked by the provider.
    pub fn message(&self, text: &str) -> String {
        let words: Vec<_> = self
            .redact(text)
            .split_whitespace()
            .map(|word| if looks_like_key(word) { REDACTED.to_owned() } else { word.to_owned() })
            .collect();
        let text = words.join(" ");
        match text.char_indices().nth(MESSAGE_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

fn looks_like_key(word: &str) -> bool {
    word.trim_start_matches(|c: char| !c.is_alphanumeric()).starts_with("sk-")
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    fn secrets() -> Secrets {
        Secrets::of(&ProviderSettings {
            api_key: Some("key-of-mine".to_owned()),
            extra_headers: vec![
                ("x-team".to_owned(), "team-secret".to_owned()),
                ("x".to_owned(), "a".to_owned()),
            ],
            ..ProviderSettings::new(Kind::OpenAi)
        })
    }

    #[test]
    fn secrets_do_not_pass() {
        assert_eq!(
            secrets().message("bad key 'key-of-mine' for team-secret"),
            "bad key '[redacted]' for [redacted]"
        );
        assert_eq!(
            secrets().message("Incorrect: 'sk-abc***xyz'. See"),
            "Incorrect: [redacted] See"
        );
    }

    #[test]
    fn a_message_is_one_bounded_line() {
        assert_eq!(secrets().message("a\n b\tc"), "a b c");
        assert_eq!(
            secrets().message(&"é".repeat(MESSAGE_CHARS_MAX)),
            "é".repeat(MESSAGE_CHARS_MAX)
        );
        let long = secrets().message(&"é".repeat(MESSAGE_CHARS_MAX + 1));
        assert_eq!(long, format!("{}…", "é".repeat(MESSAGE_CHARS_MAX)));
    }
}
