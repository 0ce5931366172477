//! Words of texts: what a search looks for, how much of it a text has, and whether two texts say nearly the same.

use std::borrow::Cow;

/// Words of a query that are looked for. Whoever pastes a page as a query means its beginning.
pub const QUERY_WORDS_MAX: usize = 32;

/// The words that a query looks for, each once. Such as hardly any text is without are left out, unless there are no
/// others: a memory that shares but an "is" with the query is not about it. Signs of scripts without spaces are looked
/// for in pairs, `a b`.
pub fn of_query(query: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut run: Vec<String> = Vec::new();
    let end_run = |run: &mut Vec<String>, all: &mut Vec<String>| {
        match run.as_slice() {
            [] => {}
            [sign] => all.push(sign.clone()),
            signs => all.extend(signs.windows(2).map(|pair| pair.join(" "))),
        }
        run.clear();
    };
    for word in split(query) {
        if word.chars().next().is_some_and(is_sign) {
            run.push(word);
        } else {
            end_run(&mut run, &mut all);
            all.push(word);
        }
    }
    end_run(&mut run, &mut all);
    let mut telling: Vec<String> = Vec::new();
    let tells = all.iter().any(|word| !is_common(word));
    for word in all {
        let unwanted = telling.contains(&word) || tells && is_common(&word);
        if !unwanted && telling.len() < QUERY_WORDS_MAX {
            telling.push(word);
        }
    }
    telling
}

/// The text with a space around each sign of a script that writes none, so that a full-text index finds words in it.
pub fn spaced(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_sign) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() * 2);
    for sign in text.chars() {
        if is_sign(sign) {
            out.extend([' ', sign, ' ']);
        } else {
            out.push(sign);
        }
    }
    Cow::Owned(out)
}

/// How much of what a query looks for each text has, from 0 to 1. A word that few of the texts have weighs more. What
/// is a word of the text only to the index, which knows more of languages, is worth a little.
pub fn shares(query: &[String], texts: &[String]) -> Vec<f32> {
    let texts: Vec<Vec<String>> = texts.iter().map(|text| split(text)).collect();
    let has: Vec<Vec<bool>> =
        query.iter().map(|word| texts.iter().map(|text| is_in(word, text)).collect()).collect();
    let weights: Vec<f32> = has
        .iter()
        .map(|texts| {
            let holders = texts.iter().filter(|has| **has).count().max(1);
            (1.0 + texts.len() as f32 / holders as f32).ln()
        })
        .collect();
    let all: f32 = weights.iter().sum();
    (0..texts.len())
        .map(|text| {
            let found: f32 = has
                .iter()
                .zip(&weights)
                .filter(|(has, _)| has[text])
                .map(|(_, weight)| weight)
                .sum();
            (found / all).clamp(SHARE_MIN, 1.0)
        })
        .collect()
}

/// Of a text that only the index finds a word of the query in.
const SHARE_MIN: f32 = 0.01;

/// Whether a text holds one of the words, as a plain index would find it.
pub fn holds_any(query: &[String], text: &str) -> bool {
    let text = split(text);
    query.iter().any(|word| is_in(word, &text))
}

/// Whether two texts say nearly the same: a newer one then takes the place of the older. Seven of ten words are alike,
/// where any number is like any other, because it is numbers that change.
pub fn nearly_same(a: &str, b: &str) -> bool {
    let (a, b) = (split(a), split(b));
    let mut left: Vec<&String> = b.iter().collect();
    let alike = a.iter().filter(|word| {
        let found = left.iter().position(|other| same(word, other) || both_numbers(word, other));
        found.map(|at| left.swap_remove(at)).is_some()
    });
    let alike = alike.count();
    alike * 2 * 10 >= (a.len() + b.len()) * 7
}

/// A subject as it is compared: without case, and without the words before it that do not matter.
pub fn subject_key(subject: &str) -> String {
    let mut key = subject.trim().to_lowercase();
    loop {
        let rest = key.trim_start_matches('@').trim_start();
        let rest = ["my ", "the "].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
        if rest.len() == key.len() || rest.is_empty() {
            return key;
        }
        key = rest.trim_start().to_owned();
    }
}

/// The words of a text, in small letters. A sign of a script without spaces is a word.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text.split(|sign: char| !sign.is_alphanumeric()).filter(|run| !run.is_empty()) {
        let mut word = String::new();
        for sign in run.chars() {
            if is_sign(sign) {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                words.push(sign.to_string());
            } else {
                word.extend(sign.to_lowercase());
            }
        }
        if !word.is_empty() {
            words.push(word);
        }
    }
    words
}

fn is_in(word: &str, text: &[String]) -> bool {
    match word.split_once(' ') {
        Some((first, second)) => text.windows(2).any(|pair| pair[0] == first && pair[1] == second),
        None => text.iter().any(|other| same(word, other)),
    }
}

/// Whether two words are forms of one, as far as their beginnings tell.
fn same(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    if a.chars().any(char::is_numeric) || b.chars().any(char::is_numeric) {
        return false;
    }
    let common = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let (short, long) =
        (a.chars().count().min(b.chars().count()), a.chars().count().max(b.chars().count()));
    common >= 3 && common + 1 >= short && common + ENDING_MAX >= long
}

/// Letters of an ending.
const ENDING_MAX: usize = 3;

fn both_numbers(a: &str, b: &str) -> bool {
    let number = |word: &str| word.chars().all(char::is_numeric);
    number(a) && number(b)
}

/// Han, the two kana, and Thai, Lao, Burmese and Khmer.
fn is_sign(sign: char) -> bool {
    matches!(u32::from(sign),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3134F)
}

fn is_common(word: &str) -> bool {
    word.len() == 1 && word.is_ascii() && !word.bytes().all(|byte| byte.is_ascii_digit())
        || COMMON.contains(&word)
}

/// English words that are in any text.
const COMMON: &[&str] = &[
    "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "his",
    "how", "if", "in", "into", "is", "it", "its", "me", "my", "no", "not", "of", "on", "or", "our",
    "please", "she", "should", "so", "some", "tell", "than", "that", "the", "their", "them",
    "then", "there", "they", "this", "to", "was", "we", "were", "what", "when", "where", "which",
    "who", "whose", "why", "will", "with", "would", "you", "your",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_looks_for_what_tells_texts_apart() {
        #[track_caller]
        fn check(query: &str, expected: &[&str]) {
            assert_eq!(of_query(query), expected, "{query}");
        }
        check("What is Sarah's favourite colour?", &["sarah", "favourite", "colour"]);
        check("who am I", &["who", "am", "i"]);
        check("\"NEAR(a b)\" OR content:x* ^y", &["near", "content"]);
        check("tea Tea TEA", &["tea"]);
        check("7 things", &["7", "things"]);
        check("我喜欢咖啡 tea", &["我 喜", "喜 欢", "欢 咖", "咖 啡", "tea"]);
        check("茶", &["茶"]);
        check(" \u{0}?!", &[]);
    }

    #[test]
    fn a_query_has_no_more_words_than_are_looked_for() {
        let words = |count: usize| (0..count).map(|n| format!("w{n} ")).collect::<String>();
        assert_eq!(of_query(&words(QUERY_WORDS_MAX)).len(), QUERY_WORDS_MAX);
        assert_eq!(of_query(&words(QUERY_WORDS_MAX + 1)).len(), QUERY_WORDS_MAX);
    }

    #[test]
    fn nearly_the_same_is_told_from_about_the_same() {
        #[track_caller]
        fn check(a: &str, b: &str, expected: bool) {
            assert_eq!(nearly_same(a, b), expected, "{a} / {b}");
            assert_eq!(nearly_same(b, a), expected, "{b} / {a}");
        }
        check("Sarah lives in Paris", "Sarah lives in Rome", true);
        check("Sarah's birthday is March 3", "Sarah's birthday is May 5", true);
        check("Bob eats meat", "Bob does not eat meat", true);
        check("The door code is 4711", "The door code is 1234", true);
        check("Bob likes tea", "Bob likes coffee", false);
        check("Sarah lives in Paris", "Sarah works at the post office", false);
        check("Sarah lives in Paris", "", false);
    }

    #[test]
    fn subjects_are_compared_without_what_does_not_matter() {
        for form in ["Sarah", "@sarah", "my Sarah", "The sarah ", "@ SARAH", "my the sarah"] {
            assert_eq!(subject_key(form), "sarah", "{form}");
        }
        assert_eq!(subject_key("Theo"), "theo");
        assert_eq!(subject_key("my"), "my");
        assert_eq!(subject_key("@"), "@");
    }

    #[test]
    fn a_text_is_worth_what_it_has_of_the_query() {
        let texts = ["tea and coffee", "coffees", "nothing"].map(String::from);
        let shares = shares(&of_query("tea coffee"), &texts);
        assert_eq!((shares[0], shares[2]), (1.0, SHARE_MIN));
        assert!(shares[1] > 0.0 && shares[1] < 0.5);
    }
}
