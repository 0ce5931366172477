//! Words of a server on their way to a model: without what people cannot see, and not without end.

/// Of one description. What is longer instructs more than it describes.
const DESCRIPTION_BYTES_MAX: usize = 2_048;

/// Before what a server says of a tool.
pub const IN_ITS_WORDS: &str = ", in its words: ";

/// Of what a server says of itself as a whole.
const INSTRUCTIONS_BYTES_MAX: usize = 1_024;

/// A description as a model is shown it: as the words of that server, and no one else's.
pub fn description(server: &str, written: &str) -> String {
    match shown(written, DESCRIPTION_BYTES_MAX).trim() {
        "" => format!("A tool of the MCP server {server}."),
        words => format!("A tool of the MCP server {server}{IN_ITS_WORDS}{words}"),
    }
}

/// What a server says of itself, as a model may be shown it; `None` where it says nothing.
pub fn instructions(written: &str) -> Option<String> {
    let text = shown(written, INSTRUCTIONS_BYTES_MAX);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn shown(written: &str, bytes_max: usize) -> String {
    let mut text: String = written.chars().filter(|c| is_seen(*c)).collect();
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text
}

/// Whether a person would see it: no control, no character of direction or of no width, no tag.
pub fn is_seen(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}');
    !hidden && (!c.is_control() || c == '\n' || c == '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_taken_out() {
        let hidden = "a\u{e0041}b\u{200b}c\u{202e}d\u{1b}[31me\u{feff}\nf";
        assert!(
            description("s", hidden).ends_with(": abcd[31me\nf"),
            "{}",
            description("s", hidden)
        );
        assert_eq!(description("s", " \u{200b}"), "A tool of the MCP server s.");
    }

    #[test]
    fn just_the_longest_is_whole_and_one_byte_more_is_cut() {
        assert!(description("s", &"a".repeat(DESCRIPTION_BYTES_MAX)).ends_with("aa"));
        assert!(description("s", &"a".repeat(DESCRIPTION_BYTES_MAX + 1)).ends_with("aa…"));
        let wide = description("s", &"é".repeat(DESCRIPTION_BYTES_MAX));
        assert!(wide.ends_with("é…"));
    }
}
