//! Takes secrets out of text that is about to be kept or shown in another form.

/// How the secrets of the services in use here begin.
const PREFIXES: [&str; 11] = [
    "nxk_",
    "nxa_",
    "sk-",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
];

/// Shortest run of characters behind a prefix that is taken for a secret: shorter ones are words.
const SECRET_CHARS_MIN: usize = 12;

/// What stands in a secret's place.
pub const REDACTED: &str = "[redacted]";

/// `text` with every secret it recognises replaced by `[redacted]`.
pub fn redact(text: &str) -> String {
    redact_from(text, SECRET_CHARS_MIN)
}

/// As [`redact`], where so many characters behind a prefix make a secret.
pub fn redact_from(text: &str, chars_min: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((start, end)) = next_secret(rest, chars_min) {
        out.push_str(&rest[..start]);
        out.push_str(REDACTED);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Where the first secret stands. A secret starts at a word's start: `task-…` holds no `sk-`.
fn next_secret(text: &str, chars_min: usize) -> Option<(usize, usize)> {
    // Services that quote a key mask its middle with asterisks.
    let part_of_secret = |c: char| c.is_ascii_alphanumeric() || "_-*".contains(c);
    PREFIXES
        .iter()
        .flat_map(|prefix| text.match_indices(prefix).map(move |(start, _)| (start, prefix.len())))
        .filter(|(start, _)| !text[..*start].ends_with(part_of_secret))
        .map(|(start, prefix)| {
            let body = text[start + prefix..]
                .find(|c| !part_of_secret(c))
                .unwrap_or(text.len() - start - prefix);
            (start, start + prefix + body, body)
        })
        .filter(|(_, _, body)| *body >= chars_min)
        .map(|(start, end, _)| (start, end))
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_and_words_stay() {
        let key = "sk-abcdefghijkl";
        assert_eq!(redact(&format!("a {key}, nxk_ABCDEFGHIJKL.")), "a [redacted], [redacted].");
        assert_eq!(redact("'sk-abcd****wxyz'."), "'[redacted]'.");
        assert_eq!(redact_from("a sk-short, a sk-", 1), "a [redacted], a sk-");
        for kept in ["task-abcdefghijklmnop", "sk-short", "sk-abcdefghijk", "ask AKIA", ""] {
            assert_eq!(redact(kept), kept);
        }
    }
}
