//! A table of models as it lies on disk: a first line about the table, then a line of JSON for each model, sorted by
//! key. It is searched as it stands. To decode it as a whole would cost every start milliseconds and megabytes for the
//! one or two models that anybody asks for.

use std::ops::Range;

use super::Entry;

#[derive(Clone, Copy)]
pub struct Table<'a> {
    first: &'a [u8],
    lines: &'a [u8],
}

/// How every line of a model begins.
const KEY: &[u8] = b"{\"key\":\"";

impl<'a> Table<'a> {
    /// Takes any bytes: a line that is none is not found.
    pub fn new(bytes: &'a [u8]) -> Self {
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        Self { first: &bytes[..end], lines: bytes.get(end + 1..).unwrap_or_default() }
    }

    /// What stands before the models.
    pub fn first_line(&self) -> &'a [u8] {
        self.first
    }

    pub fn find(&self, key: &str) -> Option<Entry> {
        let line = self.line(self.not_before(key));
        if key_of(&self.lines[line.clone()])? != key.as_bytes() {
            return None;
        }
        serde_json::from_slice(&self.lines[line]).ok()
    }

    /// The entries around the place where `key` stands or would stand, as far as there are any.
    pub fn neighbours(&self, key: &str) -> [Option<Entry>; 2] {
        let at = self.not_before(key);
        let entry = |line: Range<usize>| serde_json::from_slice(&self.lines[line]).ok();
        let before = at.checked_sub(1).map(|end| self.start_of(end)..at);
        [before.and_then(entry), entry(self.line(at))]
    }

    /// All whose keys begin with `prefix`, in order.
    pub fn starting_with(&self, prefix: &str) -> impl Iterator<Item = Entry> + use<'a> {
        let (this, prefix) = (*self, prefix.to_owned());
        let mut at = this.not_before(&prefix);
        let lines = std::iter::from_fn(move || {
            let line = this.line(at);
            at = line.end + 1;
            let line = this.lines.get(line).filter(|line| !line.is_empty())?;
            key_of(line)?.starts_with(prefix.as_bytes()).then_some(line)
        });
        lines.filter_map(|line| serde_json::from_slice(line).ok())
    }

    /// Where the first line begins whose key is not less than `key`; the end if all are.
    fn not_before(&self, key: &str) -> usize {
        let Range { mut start, mut end } = 0..self.lines.len();
        while start < end {
            let line = self.line(self.start_of(start + (end - start) / 2).max(start));
            match key_of(&self.lines[line.clone()]) {
                Some(found) if found < key.as_bytes() => start = line.end + 1,
                _ => end = line.start,
            }
        }
        start.min(self.lines.len())
    }

    /// Where the line begins in which the byte `at` lies.
    fn start_of(&self, at: usize) -> usize {
        let before = &self.lines[..at.min(self.lines.len())];
        before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)
    }

    /// The line that begins at `start`, without its end.
    fn line(&self, start: usize) -> Range<usize> {
        let start = start.min(self.lines.len());
        let rest = &self.lines[start..];
        let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        start..start + length
    }
}

fn key_of(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(KEY)?;
    Some(&rest[..rest.iter().position(|byte| *byte == b'"')?])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(keys: &[&str]) -> String {
        let mut text = String::from("{\"first\":1}\n");
        for (number, key) in keys.iter().enumerate() {
            text += &format!("{{\"key\":\"{key}\",\"window\":{}}}\n", number + 1);
        }
        text
    }

    fn keys(entries: impl IntoIterator<Item = Entry>) -> Vec<String> {
        entries.into_iter().map(|entry| entry.key).collect()
    }

    #[test]
    fn every_line_is_found_and_nothing_else() {
        let names = ["a/1", "a/10", "a/2", "b/x", "c/y"];
        for count in 0..=names.len() {
            let text = table(&names[..count]);
            let table = Table::new(text.as_bytes());
            assert_eq!(table.first_line(), b"{\"first\":1}");
            for (number, name) in names.iter().enumerate() {
                let window = table.find(name).map(|entry| entry.window);
                let expected = (number < count).then_some(Some(number as u32 + 1));
                assert_eq!(window, expected, "{name} of {count}");
            }
            for absent in ["", "a/", "a/1 ", "a/11", "z", "0"] {
                assert_eq!(table.find(absent), None, "{absent} of {count}");
            }
        }
    }

    #[test]
    fn a_last_line_needs_no_end() {
        let text = table(&["a/1", "b/2"]);
        let table = Table::new(text.trim_end().as_bytes());
        assert!(table.find("b/2").is_some());
        assert_eq!(keys(table.starting_with("")), ["a/1", "b/2"]);
    }

    #[test]
    fn those_around_a_key_and_behind_a_prefix_are_found() {
        let text = table(&["a/1", "b/1", "b/2", "bc/1"]);
        let table = Table::new(text.as_bytes());
        let around = |key: &str| table.neighbours(key).map(|it| it.map(|entry| entry.key));
        assert_eq!(around("b/15"), [Some("b/1".into()), Some("b/2".into())]);
        assert_eq!(around("b/1"), [Some("a/1".into()), Some("b/1".into())]);
        assert_eq!(around("0"), [None, Some("a/1".into())]);
        assert_eq!(around("z"), [Some("bc/1".into()), None]);
        assert_eq!(keys(table.starting_with("b/")), ["b/1", "b/2"]);
        assert_eq!(keys(table.starting_with("z")), [""; 0]);
        assert_eq!(Table::new(b"").find("a"), None);
        assert_eq!(Table::new(b"").neighbours("a"), [None, None]);
    }

    proptest! {
        /// A file that something has damaged is searched to an end, and says nothing that it does not hold.
        #[test]
        fn any_bytes_are_searched_to_an_end(
            pieces in prop::collection::vec(
                prop_oneof![
                    Just("\n".to_owned()),
                    Just("{\"key\":\"a/1\"}".to_owned()),
                    Just("{\"key\":\"".to_owned()),
                    ".{0,8}",
                ],
                0..24,
            ),
            key in "[a-c]/[0-3]",
        ) {
            let text = pieces.concat();
            let table = Table::new(text.as_bytes());
            if let Some(entry) = table.find(&key) {
                prop_assert_eq!(entry.key, key.as_str());
            }
            let _ = table.neighbours(&key);
            prop_assert!(table.starting_with(&key).count() <= text.len());
        }
    }
}
