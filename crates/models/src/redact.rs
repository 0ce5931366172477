//! Keeps keys out of what people read.

use nexus_core::redact::{REDACTED, redact_from};
use nexus_core::visible;
use reqwest::Url;

use super::ProviderSettings;

/// Longest text of a provider that is passed on. It ends up in an error message, not on a page.
const MESSAGE_CHARS_MAX: usize = 300;

/// Shorter values are not taken for secrets: to blot them out would blot out words.
const SECRET_BYTES_MIN: usize = 6;

/// Whatever begins like a key in a provider's error is one, were it masked down to a few letters.
const KEY_CHARS_MIN: usize = 1;

/// The values a provider was given in confidence.
pub(super) struct Secrets {
    values: Vec<String>,
    /// What is said of the key when the provider does not take it.
    key_hint: String,
}

impl Secrets {
    pub fn of(settings: &ProviderSettings) -> Self {
        let headers = settings.extra_headers.iter().map(|(_, value)| value);
        let proxy = settings.proxy.as_deref().and_then(|text| Url::parse(text).ok());
        let proxy = proxy.and_then(|url| url.password().map(str::to_owned));
        let values = settings.api_key.iter().chain(headers).cloned().chain(proxy);
        let values = values.filter(|value| value.len() >= SECRET_BYTES_MIN).collect();
        let key_hint = match (&settings.key_variable, &settings.api_key) {
            (Some(variable), Some(_)) => {
                format!("; the key is that of {variable}: mend it there and start again")
            }
            (Some(variable), None) => {
                format!("; no key was sent: set {variable} and start again")
            }
            (None, _) => String::new(),
        };
        Self { values, key_hint }
    }

    /// What a person can do who reads that the provider does not take the key.
    pub fn key_hint(&self) -> &str {
        &self.key_hint
    }

    /// The text without the secrets.
    pub fn redact(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, secret| text.replace(secret, REDACTED))
    }

    /// A provider's own words, fit for an error message: one line, bounded, with nothing that would steer a terminal,
    /// and without anything that looks like a key, whole or masked by the provider.
    pub fn message(&self, text: &str) -> String {
        let text = redact_from(&self.redact(text), KEY_CHARS_MIN);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = match text.char_indices().nth(MESSAGE_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        };
        visible::line(&shown).into_owned()
    }
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
            proxy: Some("http://me:word-to-pass@proxy".to_owned()),
            ..ProviderSettings::new(Kind::OpenAi)
        })
    }

    #[test]
    fn secrets_do_not_pass() {
        assert_eq!(
            secrets().message("bad key 'key-of-mine' for team-secret"),
            "bad key '[redacted]' for [redacted]"
        );
        assert_eq!(secrets().message("407 for me:word-to-pass"), "407 for me:[redacted]");
        assert_eq!(
            secrets().message("Incorrect: 'sk-abc***xyz'. See"),
            "Incorrect: '[redacted]'. See"
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
        assert_eq!(secrets().message("a \u{1b}[2J"), r"a \u{1b}[2J");
    }
}
