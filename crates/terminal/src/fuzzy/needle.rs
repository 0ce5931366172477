//! How well a path fits a few letters.

/// What is looked for: words whose letters all stand in the path, in their order.
pub(super) struct Needle {
    words: Vec<Vec<char>>,
    /// Somebody who types an upper-case letter means it.
    heed_case: bool,
}

const LETTER: i32 = 4;
/// The letter begins a part of the path.
const BEGINS: i32 = 6;
/// The letter follows the one before it.
const FOLLOWS: i32 = 5;
const GAP_MAX: i32 = 6;
/// All letters are in the name of the file.
const IN_NAME: i32 = 8;

impl Needle {
    pub(super) fn new(query: &str) -> Self {
        let words = query.split_whitespace().map(|word| word.chars().collect()).collect();
        Self { words, heed_case: query.chars().any(char::is_uppercase) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Higher is better. `letters` is room to work in.
    pub(super) fn score(&self, path: &str, letters: &mut Vec<char>) -> Option<i32> {
        letters.clear();
        let folded =
            |c: char| if self.heed_case { c } else { c.to_lowercase().next().unwrap_or(c) };
        letters.extend(path.chars().map(folded));
        let name = letters.iter().rposition(|&c| c == '/').map_or(0, |at| at + 1);
        let mut total = 0;
        for word in &self.words {
            let anywhere = fit(word, letters)?;
            let in_name = fit(word, &letters[name..]).map_or(i32::MIN, |score| score + IN_NAME);
            total += anywhere.max(in_name);
        }
        Some(total)
    }
}

/// The first end that all letters have, and from there back the nearest of each.
fn fit(word: &[char], letters: &[char]) -> Option<i32> {
    let mut wanted = word.iter();
    let mut next = wanted.next()?;
    let end = letters.iter().position(|c| {
        if c != next {
            return false;
        }
        match wanted.next() {
            Some(after) => {
                next = after;
                false
            }
            None => true,
        }
    })?;
    let (mut score, mut at) = (0, end + 1);
    for (index, wanted) in word.iter().rev().enumerate() {
        let found = letters[..at].iter().rposition(|c| c == wanted)?;
        let gap = i32::try_from(at - 1 - found).unwrap_or(GAP_MAX);
        let begins = found == 0 || matches!(letters[found - 1], '/' | '_' | '-' | '.' | ' ');
        score += LETTER + if begins { BEGINS } else { 0 };
        score += match (index, gap) {
            (0, _) => 0,
            (_, 0) => FOLLOWS,
            (_, gap) => -gap.min(GAP_MAX),
        };
        at = found;
    }
    Some(score)
}
