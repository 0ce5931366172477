//! Words of texts: what a search looks for, how much of it a text has, and whether two texts say nearly the same.

use std::borrow::Cow;
use std::collections::HashMap;

/// How much of a text is read to rate it, or to see what it looks for: a search rates two hundred.
const READ_BYTES_MAX: usize = 4 << 10;

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
    for word in split(beginning(query)) {
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

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(READ_BYTES_MAX)]
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

/// How much of what a query looks for each text has in its beginning or its subjects, from 0 to 1. A word that few of the
/// texts have weighs more. What is a word of the text only to the index, which knows more of languages and reads all of
/// it, is worth a little.
pub fn shares<'a>(
    query: &[String],
    texts: impl IntoIterator<Item = (&'a str, &'a [String])>,
) -> Vec<f32> {
    let wanted = Wanted::of(query);
    let has = texts.into_iter().map(|(content, subjects)| {
        wanted.held(std::iter::once(beginning(content)).chain(subjects.iter().map(String::as_str)))
    });
    let has: Vec<Vec<bool>> = has.collect();
    let weights: Vec<f32> = (0..query.len())
        .map(|word| {
            let holders = has.iter().filter(|has| has[word]).count().max(1);
            (1.0 + has.len() as f32 / holders as f32).ln()
        })
        .collect();
    let all: f32 = weights.iter().sum();
    has.iter()
        .map(|has| {
            let held = has.iter().zip(&weights).filter(|(has, _)| **has);
            let found: f32 = held.map(|(_, weight)| weight).sum();
            (found / all).clamp(SHARE_MIN, 1.0)
        })
        .collect()
}

/// Of a text that only the index finds a word of the query in.
const SHARE_MIN: f32 = 0.01;

/// Whether a text holds one of the words, as a plain index would find it.
pub fn holds_any(query: &[String], text: &str) -> bool {
    Wanted::of(query).held([text]).contains(&true)
}

/// Words of a text that is held against another. What has more is a page, and no newer sentence contradicts a page;
/// whoever adds waits for the comparison, and everybody else who writes.
const COMPARED_WORDS_MAX: usize = 300;

/// Whether two texts say nearly the same: a newer one then takes the place of the older. Seven of ten words are alike,
/// where any number is like any other, because it is numbers that change.
pub fn nearly_same(a: &str, b: &str) -> bool {
    let words = |text| split(text).take(COMPARED_WORDS_MAX + 1).collect::<Vec<_>>();
    let (a, b) = (words(a), words(b));
    let enough = |alike: usize| alike * 2 * 10 >= (a.len() + b.len()) * 7;
    if a.len().max(b.len()) > COMPARED_WORDS_MAX || !enough(a.len().min(b.len())) {
        return false;
    }
    let apart = |words: &[String]| -> (Vec<String>, usize) {
        let others: Vec<_> = words.iter().filter(|word| !is_number(word)).cloned().collect();
        let numbers = words.len() - others.len();
        (others, numbers)
    };
    let ((a, a_numbers), (b, b_numbers)) = (apart(&a), apart(&b));
    let forms = Forms::of(b.iter().map(String::as_str).enumerate());
    let mut taken = vec![false; b.len()];
    let mut alike = a_numbers.min(b_numbers);
    for word in &a {
        if let Some(at) = forms.like(word).find(|at| !taken[*at]) {
            taken[at] = true;
            alike += 1;
        }
    }
    enough(alike)
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
fn split(text: &str) -> impl Iterator<Item = String> {
    let runs = text.split(|sign: char| !sign.is_alphanumeric()).filter(|run| !run.is_empty());
    runs.flat_map(|run| {
        let mut words = Vec::new();
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
        words
    })
}

/// The words of a query, as texts are held against them.
struct Wanted<'a> {
    count: usize,
    words: Forms<'a>,
    pairs: HashMap<(&'a str, &'a str), usize>,
}

impl<'a> Wanted<'a> {
    fn of(query: &'a [String]) -> Self {
        let (mut words, mut pairs) = (Vec::new(), HashMap::new());
        for (at, word) in query.iter().enumerate() {
            match word.split_once(' ') {
                Some(pair) => _ = pairs.insert(pair, at),
                None => words.push((at, word.as_str())),
            }
        }
        Self { count: query.len(), words: Forms::of(words), pairs }
    }

    /// Which of them are in the parts of a text.
    fn held<'b>(&self, parts: impl IntoIterator<Item = &'b str>) -> Vec<bool> {
        let mut held = vec![false; self.count];
        for part in parts {
            let mut before = String::new();
            for word in split(part) {
                self.words.like(&word).for_each(|at| held[at] = true);
                if let Some(at) = self.pairs.get(&(before.as_str(), word.as_str())) {
                    held[*at] = true;
                }
                before = word;
            }
        }
        held
    }
}

/// Numbered words, by the beginnings that they share with their forms: those that are like another word are found without
/// a look at each, whatever somebody made of them.
struct Forms<'a>(HashMap<&'a str, Alike>);

/// Words that begin alike.
#[derive(Default)]
struct Alike {
    /// With no more than a letter behind it.
    close: Vec<usize>,
    others: Vec<usize>,
}

impl<'a> Forms<'a> {
    fn of(words: impl IntoIterator<Item = (usize, &'a str)>) -> Self {
        let mut forms: HashMap<&str, Alike> = HashMap::new();
        for (at, word) in words {
            for (beginning, is_close) in beginnings(word) {
                let alike = forms.entry(beginning).or_default();
                if is_close { &mut alike.close } else { &mut alike.others }.push(at);
            }
        }
        Self(forms)
    }

    /// The words that are forms of this one, as far as their beginnings tell: they have all letters in common but one of
    /// the shorter's and [`ENDING_MAX`] of the longer's.
    fn like(&self, word: &str) -> impl Iterator<Item = usize> {
        beginnings(word).flat_map(|(beginning, is_close)| {
            let alike = self.0.get(beginning);
            let close = alike.map_or(&[][..], |alike| &alike.close);
            let others = alike.filter(|_| is_close).map_or(&[][..], |alike| &alike.others);
            close.iter().chain(others).copied()
        })
    }
}

/// What a word can have in common with its forms, the longest first, and whether that is all of it but a letter. Numbers
/// and short words have none but themselves.
fn beginnings(word: &str) -> impl Iterator<Item = (&str, bool)> {
    let letters = word.chars().count();
    let ending = match word.chars().any(char::is_numeric) {
        true => 0,
        false => letters.saturating_sub(BEGINNING_MIN).min(ENDING_MAX),
    };
    let ends = word.char_indices().rev().map(|(at, _)| at);
    let ends = std::iter::once(word.len()).chain(ends).take(ending + 1);
    ends.enumerate().map(|(less, end)| (&word[..end], less <= 1))
}

/// Letters of a beginning.
const BEGINNING_MIN: usize = 3;

/// Letters of an ending.
const ENDING_MAX: usize = 3;

fn is_number(word: &str) -> bool {
    word.chars().all(char::is_numeric)
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
        let subjects = ["the tea".to_owned()];
        let texts = [("tea and coffee", &[][..]), ("coffees", &[]), ("nothing", &[])];
        let shares_of = |texts: &[(&'static str, &[String])]| {
            shares(&of_query("tea coffee"), texts.iter().copied())
        };
        let shares = shares_of(&texts);
        assert_eq!((shares[0], shares[2]), (1.0, SHARE_MIN));
        assert!(shares[1] > 0.0 && shares[1] < 0.5);
        assert_eq!(shares_of(&[("a coffee", &subjects)]), [1.0]);
    }

    #[test]
    fn words_are_like_their_forms_and_no_others() {
        #[track_caller]
        fn check(word: &str, other: &str, expected: bool) {
            for (word, other) in [(word, other), (other, word)] {
                let forms = Forms::of([(7, word)]);
                assert_eq!(forms.like(other).next(), expected.then_some(7), "{word} {other}");
            }
        }
        for (word, other) in [
            ("tea", "tea"),
            ("tea", "teas"),
            ("walk", "walking"),
            ("live", "living"),
            ("city", "cities"),
            ("n12", "n12"),
            ("по", "по"),
            ("рыба", "рыбу"),
        ] {
            check(word, other, true);
        }
        for (word, other) in [
            ("te", "tea"),
            ("tea", "ten"),
            ("walk", "walkabout"),
            ("living", "livers"),
            ("n12", "n123"),
            ("abc1", "abc2"),
            ("post", "past"),
        ] {
            check(word, other, false);
        }
    }

    /// Each with each they would be compared for minutes.
    #[test]
    fn long_texts_are_compared_with_as_little_work_as_short_ones() {
        let long = "a ".repeat(32 << 10);
        assert!(!nearly_same(&long, &"b ".repeat(32 << 10)));
        let beginning_alike: String = (0..8_000).map(|n| format!("same{} ", letter(n))).collect();
        assert!(!nearly_same(&beginning_alike, &beginning_alike));
        let query: Vec<String> =
            (0..QUERY_WORDS_MAX).map(|n| format!("same{}", letter(n))).collect();
        for text in [&long, &beginning_alike] {
            let shares = shares(&query, std::iter::repeat_n((text.as_str(), &[][..]), 200));
            assert!(shares.iter().all(|share| *share == shares[0]));
        }
        assert_eq!(of_query(&beginning_alike).len(), QUERY_WORDS_MAX);
    }

    #[test]
    fn a_page_is_nobodys_contradiction() {
        let text = |words: usize| "word ".repeat(words);
        let (under, over) = (text(COMPARED_WORDS_MAX), text(COMPARED_WORDS_MAX + 1));
        assert!(nearly_same(&under, &under));
        assert!(!nearly_same(&over, &over) && !nearly_same(&under, &over));
    }

    #[test]
    fn a_text_is_rated_by_its_beginning() {
        let with_tea_at = |at: usize| format!("{}tea", " ".repeat(at));
        let (under, over) = (with_tea_at(READ_BYTES_MAX - 3), with_tea_at(READ_BYTES_MAX));
        let shares = shares(&of_query("tea"), [(under.as_str(), &[][..]), (&over, &[])]);
        assert_eq!(shares, [1.0, SHARE_MIN]);
    }

    /// Words of letters alone, no two of them forms of one.
    fn letter(n: usize) -> String {
        let letters = |n: usize| char::from(b'a' + (n % 26) as u8).to_string().repeat(5);
        format!("{}{}{}", letters(n), letters(n / 26), letters(n / 676))
    }
}
