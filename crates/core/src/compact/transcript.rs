//! A conversation as text, in pieces that a summariser can be shown.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::list::List;
use crate::message::{Message, Part, Role, SharedMessage};
use crate::redact::redact;

/// Longest part of one result, or of one call's arguments, that a summariser is shown: a huge output must not push the
/// rest out.
const OUTPUT_BYTES_MAX: usize = 8_000;

/// A part of this of a piece is left to what stands beside an entry that is too large.
const NEIGHBOURS: u64 = 8;

/// About what is said of a middle that is not there.
const NOTE_BYTES: usize = 32;

/// How often a text that is too long is cut shorter before the rest is given up. Each time a quarter goes.
const CUTS_MAX: usize = 32;

/// The messages in words, each for itself. What only tells a model to go on is left out.
pub(super) fn entries(messages: &List<SharedMessage>) -> Vec<String> {
    let says = |message: &&SharedMessage| message.role != Role::User || message.has_words();
    messages.iter().filter(says).map(|message| entry(message)).collect()
}

fn entry(message: &Message) -> String {
    let mut entry = match message.role {
        Role::User => "User: ",
        Role::Assistant => "Assistant: ",
        Role::Tool if message.meta.failed => "Tool result (failed): ",
        Role::Tool => "Tool result: ",
        Role::Summary => "Earlier summary: ",
    }
    .to_owned();
    for part in &message.parts {
        match part {
            Part::Text(text) if message.role == Role::Tool => {
                entry.push_str(&without_middle(text, OUTPUT_BYTES_MAX));
            }
            Part::Text(text) => entry.push_str(text),
            // What a summary was given along belongs to it; elsewhere it was for the moment.
            Part::Context(text) if message.role == Role::Summary => {
                let _ = write!(entry, "\n{text}");
            }
            Part::Call(call) => {
                let arguments = call.arguments.to_string();
                let arguments = without_middle(&arguments, OUTPUT_BYTES_MAX);
                let _ = write!(entry, "\n[called {} with {arguments}]", call.name);
            }
            Part::Attachment(attachment) => {
                let name = attachment.name.as_deref().unwrap_or(&attachment.media_type);
                let _ = write!(entry, "\n[attached: {name}]");
            }
            Part::Context(_) | Part::Thought(_) => {}
        }
    }
    redact(&entry)
}

/// Puts entries together to pieces of at most `most` tokens, cut between entries. One that is too large for a piece of
/// its own loses its middle, and leaves something of the piece to its neighbours if they are small.
pub(super) fn pieces(
    entries: Vec<String>,
    most: u64,
    count: impl Fn(&str) -> u64,
) -> Vec<(String, u64)> {
    let mut pieces: Vec<(String, u64)> = Vec::new();
    for entry in entries {
        let tokens = count(&entry);
        let begun = pieces.last().map_or(0, |(_, sum)| *sum);
        let (entry, tokens) = match tokens <= most {
            true => (entry, tokens),
            false => {
                let beside = if begun <= most / NEIGHBOURS { begun } else { 0 };
                fitted(&entry, tokens, most - most / NEIGHBOURS - beside, &count)
            }
        };
        match pieces.last_mut() {
            // One for the line between them.
            Some((piece, sum)) if *sum + tokens < most => {
                piece.push('\n');
                piece.push_str(&entry);
                *sum += tokens + 1;
            }
            _ => pieces.push((entry, tokens)),
        }
    }
    pieces
}

/// As much of the beginning and the end of an entry, which has so many tokens, as fits.
fn fitted(entry: &str, tokens: u64, most: u64, count: impl Fn(&str) -> u64) -> (String, u64) {
    let share = entry.len() as u128 * u128::from(most) / u128::from(tokens);
    let mut bytes = (share as usize).saturating_sub(NOTE_BYTES);
    for _ in 0..CUTS_MAX {
        let shorter = without_middle(entry, bytes);
        let tokens = count(&shorter);
        if tokens <= most {
            return (shorter.into_owned(), tokens);
        }
        bytes = bytes / 4 * 3;
    }
    (String::new(), 0)
}

/// A text, without its middle where it is longer than this; its end is worth less than its beginning.
pub(super) fn without_middle(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let tail = bytes_max / 3;
    let head = text.floor_char_boundary(bytes_max - tail);
    let tail = text.ceil_char_boundary(text.len() - tail);
    let gone = tail - head;
    Cow::Owned(format!("{}\n[{gone} bytes left out]\n{}", &text[..head], &text[tail..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{Meta, Thought, ToolCall};

    fn letters(text: &str) -> u64 {
        text.len() as u64
    }

    fn check(entries: &[usize], most: u64, expected: &[u64]) {
        let entries = entries.iter().map(|length| "x".repeat(*length)).collect();
        let pieces = pieces(entries, most, letters);
        for (piece, tokens) in &pieces {
            assert_eq!(letters(piece), *tokens);
            assert!(*tokens <= most, "{piece}");
        }
        let sizes: Vec<_> = pieces.iter().map(|(_, tokens)| *tokens).collect();
        assert_eq!(sizes, expected);
    }

    #[test]
    fn pieces_end_between_messages() {
        check(&[], 10, &[]);
        check(&[4, 5], 10, &[10]);
        check(&[4, 6], 10, &[4, 6]);
        check(&[10, 10, 1], 10, &[10, 10, 1]);
    }

    #[test]
    fn what_is_too_large_takes_its_neighbours_along() {
        let lengths = |entries: &[usize]| {
            let entries = entries.iter().map(|length| "x".repeat(*length)).collect();
            pieces(entries, 1_000, letters).len()
        };
        assert_eq!(lengths(&[100, 1_001, 100]), 1);
        assert_eq!(lengths(&[200, 1_001]), 2);
        assert_eq!(lengths(&[100, 1_001, 200]), 2);
        assert_eq!(lengths(&[1_001, 1_001]), 2);
    }

    #[test]
    fn what_is_too_large_for_a_piece_loses_its_middle() {
        let text = format!("{}{}", "a".repeat(500), "z".repeat(500));
        let cut = &pieces(vec![text.clone()], 1_000, letters)[0].0;
        assert_eq!(*cut, text, "just under");
        let cut = &pieces(vec![format!("{text}z")], 1_000, letters)[0].0;
        assert!(cut.starts_with("aaa") && cut.ends_with("zzz"), "{cut}");
        assert!(cut.contains("bytes left out"), "{cut}");
        // A piece too small for a note is none.
        assert_eq!(pieces(vec![text], 3, letters)[0].0, "");
        let wide = "ü".repeat(100);
        assert!(without_middle(&wide, 51).len() < wide.len());
    }

    #[test]
    fn an_entry_says_who_said_what() {
        let call = ToolCall::new("1", "look", json!({"at": "sk-abcdefghijklmnop"}));
        let parts = vec![
            Part::Thought(Thought { text: "hm".into(), payload: None }),
            Part::text("So."),
            Part::Call(call),
        ];
        let said = Message::of_parts(Role::Assistant, parts, Meta::default());
        assert_eq!(entry(&said), "Assistant: So.\n[called look with {\"at\":\"[redacted]\"}]");
        let asked = vec![Part::Context("The time".into()), Part::text("Hello")];
        assert_eq!(entry(&Message::of_parts(Role::User, asked, Meta::default())), "User: Hello");
        let meta = Meta { failed: true, ..Meta::default() };
        let long = Message::tool_result("1", "y".repeat(OUTPUT_BYTES_MAX + 1), meta);
        let long = entry(&long);
        assert!(long.starts_with("Tool result (failed): yyy") && long.contains("bytes left out"));
    }
}
