//! Texts at which an answer ends.

/// Looks for them in an answer that comes in pieces.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    texts: Vec<String>,
    /// What may be the beginning of one.
    held: String,
}

impl Stops {
    pub fn new(texts: Vec<String>) -> Self {
        Self { texts, held: String::new() }
    }

    /// What of the answer can be shown now, and whether it ends there.
    pub fn take(&mut self, piece: &str) -> (String, bool) {
        if self.texts.is_empty() {
            return (piece.to_owned(), false);
        }
        self.held.push_str(piece);
        let found = self.texts.iter().filter_map(|text| self.held.find(text.as_str())).min();
        if let Some(end) = found {
            self.held.truncate(end);
            return (std::mem::take(&mut self.held), true);
        }
        let begins = |at: &usize| {
            let rest = &self.held[*at..];
            self.texts.iter().any(|text| text.starts_with(rest))
        };
        let starts = self.held.char_indices().map(|(at, _)| at);
        let keep = starts.into_iter().find(begins).unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What was held back, at the end.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stops: &[&str], pieces: &[&str], expected: (&str, bool)) {
        let mut stops = Stops::new(stops.iter().map(|it| (*it).to_owned()).collect());
        let mut said = String::new();
        for piece in pieces {
            let (shown, ends) = stops.take(piece);
            said.push_str(&shown);
            if ends {
                return assert_eq!((said.as_str(), true), expected);
            }
        }
        said.push_str(&stops.rest());
        assert_eq!((said.as_str(), false), expected);
    }

    #[test]
    fn an_answer_ends_before_the_first_of_them() {
        check(&[], &["a", "b"], ("ab", false));
        check(&["END"], &["abEND", "c"], ("ab", true));
        check(&["END"], &["ab E", "N", "Dc"], ("ab ", true));
        check(&["END"], &["ab E", "N", "c"], ("ab ENc", false));
        check(&["END"], &["EEN", "D"], ("E", true));
        check(&["END", "b"], &["abEND"], ("a", true));
        check(&["ää"], &["xä", "ä"], ("x", true));
        check(&["ää"], &["xä"], ("xä", false));
    }
}
