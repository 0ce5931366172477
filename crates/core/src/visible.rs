//! Text of others for a person's eyes: what would steer the screen that shows it is spelled out.
//!
//! What a model, a provider or a file's name says can hold escape sequences, and a terminal obeys them: it rewrites what
//! stood there, changes its title, or hides the rest of a line. Everything of that kind begins with a control character,
//! of 7 bits or of 8, or reorders what is written. Here it becomes what a programmer would type for it.

use std::borrow::Cow;

/// Text of several lines. Line ends and tabs stay.
pub fn text(text: &str) -> Cow<'_, str> {
    spelled(text, |c| matches!(c, '\n' | '\t') || !steers(c), |c| c.escape_default().to_string())
}

/// Text that has one line to itself: it cannot end that line, and what has no shape of its own is spelled out too.
pub fn line(text: &str) -> Cow<'_, str> {
    let shown = |c: char| matches!(c, '"' | '\'' | '\\') || c.escape_debug().count() == 1;
    spelled(text, shown, |c| c.escape_debug().to_string())
}

/// JSON, which stays the same value: there such characters lie in strings, and have an escape of their own.
pub fn json(text: &str) -> Cow<'_, str> {
    let escape = |c: char| format!("\\u{:04x}", u32::from(c));
    spelled(text, |c| c == '\n' || !steers(c), escape)
}

/// Whether a terminal takes the character for an order: the control characters, and those that turn the direction of
/// what follows. Marks that shape a script or join a picture are words of a language and stay.
fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn spelled(
    text: &str,
    shown: impl Fn(char) -> bool,
    escape: impl Fn(char) -> String,
) -> Cow<'_, str> {
    // Most of it is plain, and that is known without a look at its characters.
    let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if text.bytes().all(plain) || text.chars().all(&shown) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if shown(c) { out.push(c) } else { out.push_str(&escape(c)) }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spell: fn(&str) -> Cow<'_, str>, input: &str, expected: &str) {
        assert_eq!(spell(input), expected, "{input:?}");
    }

    /// Orders to a terminal, of each kind.
    const STEERING: [&str; 5] =
        ["\u{1b}[2J", "\u{9b}2J", "a\rb", "\u{7f}\u{8}\0", "\u{202e}\u{2066}"];

    #[test]
    fn nothing_that_steers_gets_through() {
        for spell in [text, line, json] {
            for input in STEERING {
                assert!(!spell(input).chars().any(steers), "{input:?}");
            }
            for c in ('\0'..='\u{9f}').filter(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
                assert!(!spell(&format!("x{c}y")).contains(c), "{c:?}");
            }
        }
    }

    #[test]
    fn text_keeps_its_lines_and_its_languages() {
        check(text, "one\n\ttwo \"3\"\n", "one\n\ttwo \"3\"\n");
        check(
            text,
            "zwölf \u{1f600} می\u{200c}خواهم 👩\u{200d}💻",
            "zwölf \u{1f600} می\u{200c}خواهم 👩\u{200d}💻",
        );
        check(text, "\u{1b}]0;title\u{7}\u{9b}2J\r\n", "\\u{1b}]0;title\\u{7}\\u{9b}2J\\r\n");
        check(text, "a\u{202e}b", "a\\u{202e}b");
    }

    #[test]
    fn a_line_stays_one() {
        check(line, "send", "send");
        check(line, "zwölf \u{1f600}", "zwölf \u{1f600}");
        check(line, r#""a\"b""#, r#""a\"b""#);
        check(line, "a\nb\r\t", r"a\nb\r\t");
        check(
            line,
            "\u{1b}[2J\u{9b}\u{7f}\0\u{202e}\u{200b}",
            r"\u{1b}[2J\u{9b}\u{7f}\0\u{202e}\u{200b}",
        );
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a": "\u{1b}[2J\u{9b}\u{7f}\u{202e}ä\n\t\"", "b": [1]});
        for written in [value.to_string(), format!("{value:#}\n")] {
            let spelled = json(&written);
            assert!(!spelled.chars().any(|c| c != '\n' && steers(c)), "{spelled}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&spelled).unwrap(), value);
        }
        check(json, "\"\u{9b}\"", r#""\u009b""#);
    }
}
