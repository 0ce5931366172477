//! Figures and times as people read them, and lines that name what they hold.

use jiff::Timestamp;
use nexus_protocol::turn::RequestId;
use nexus_protocol::usage::UsageTotals;

use crate::style::{Line, Style};

/// `12,034`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 message`, `45 messages`.
pub fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", count(number))
}

/// Tokens, and what they cost as far as that is known: never guessed.
pub fn usage(totals: &UsageTotals) -> String {
    let tokens = counted(totals.tokens, "token");
    // What used nothing cost nothing, whether or not its model has a price.
    match totals.cost_usd.filter(|_| totals.tokens > 0) {
        Some(cost) if totals.cost_unknown_calls > 0 => format!("{tokens}, at least ${cost:.3}"),
        Some(cost) => format!("{tokens}, ${cost:.3}"),
        None => tokens,
    }
}

/// How long ago that was, as `2h ago`.
pub fn ago(at_seconds: f64, now: Timestamp) -> String {
    match now.as_second().saturating_sub(at_seconds as i64) {
        ..60 => "just now".into(),
        past @ 60..3_600 => format!("{}m ago", past / 60),
        past @ 3_600..86_400 => format!("{}h ago", past / 3_600),
        past => format!("{}d ago", past / 86_400),
    }
}

pub fn request(id: &RequestId) -> String {
    match id {
        RequestId::Number(number) => number.to_string(),
        RequestId::Text(text) => text.clone(),
    }
}

/// A line of what is told of one thing: what it is, dim, and its value.
pub fn field(name: &str, value: impl Into<String>) -> Line {
    Line::styled(format!("  {name:<10} "), Style::DIM).with(value.into(), Style::PLAIN)
}

/// A text of any length, line by line.
pub fn lines(text: &str) -> Vec<Line> {
    text.lines().map(Line::plain).collect()
}

/// Our own words in rows of at most so many columns, broken between words.
pub fn rows(text: &str, columns: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    for word in text.split_whitespace() {
        match rows.last_mut() {
            Some(row) if row.is_empty() => row.push_str(word),
            Some(row) if row.len() + 1 + word.len() <= columns => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.into()),
        }
    }
    rows
}

/// The first line of a text, at most so many characters of it.
pub fn brief(text: &str, chars_max: usize) -> String {
    let mut lines = text.trim().lines();
    let line = lines.next().unwrap_or_default();
    match line.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if lines.next().is_some() => format!("{line} …"),
        None => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check = |number, text| assert_eq!(count(number), text);
        check(0, "0");
        check(999, "999");
        check(1_000, "1,000");
        check(1_234_567, "1,234,567");
        assert_eq!(counted(1, "message"), "1 message");
        assert_eq!(counted(2_000, "message"), "2,000 messages");
    }

    #[test]
    fn costs_are_never_guessed() {
        let check = |cost_usd, cost_unknown_calls, text| {
            assert_eq!(usage(&UsageTotals { tokens: 1_200, cost_usd, cost_unknown_calls }), text);
        };
        check(None, 3, "1,200 tokens");
        let nothing = UsageTotals { tokens: 0, cost_usd: Some(0.0), cost_unknown_calls: 0 };
        assert_eq!(usage(&nothing), "0 tokens");
        check(Some(0.0314), 0, "1,200 tokens, $0.031");
        check(Some(0.0314), 1, "1,200 tokens, at least $0.031");
    }

    #[test]
    fn times() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let check = |past: i64, text| assert_eq!(ago((1_000_000 - past) as f64, now), text);
        check(-5, "just now");
        check(59, "just now");
        check(60, "1m ago");
        check(3_599, "59m ago");
        check(3_600, "1h ago");
        check(86_399, "23h ago");
        check(86_400, "1d ago");
    }

    #[test]
    fn words_in_rows() {
        assert_eq!(rows("", 5), [""]);
        assert_eq!(rows("a bc def", 4), ["a bc", "def"]);
        assert_eq!(rows("abcdef g", 3), ["abcdef", "g"]);
        assert_eq!(rows("a  b", usize::MAX), ["a b"]);
    }

    #[test]
    fn brief_texts() {
        assert_eq!(brief("four", 4), "four");
        assert_eq!(brief("fives", 4), "five…");
        assert_eq!(brief("\none\ntwo", 9), "one …");
    }
}
