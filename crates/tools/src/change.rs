//! What a change makes of a file's text, as a diff for a person. Bounded in time and length, however long the file is.

use std::fmt::Write as _;
use std::path::Path;

use diffy::{DiffOptions, Line};
use nexus_core::preview::{DIFF_BYTES_MAX, FileChange};

use super::text::{is_binary, start};

/// Lines that stand still around those that change.
const CONTEXT_LINES: usize = 3;

/// Lines that are compared with each other. The time for it grows with the square of their number; longer passages are
/// shown as taken out and put in whole.
const COMPARED_LINES_MAX: usize = 4_000;

/// How `new` differs from `old`, the contents of the file at `path`. `None` where either is no text, or nothing differs.
pub(super) fn change(path: &Path, old: &[u8], new: &[u8]) -> Option<FileChange> {
    if old == new || is_binary(old) || is_binary(new) {
        return None;
    }
    let (old, new) = (str::from_utf8(old).ok()?, str::from_utf8(new).ok()?);
    let mut shown = Shown::default();
    let (old, new) = (lines(old), lines(new));
    let same = |(a, b): &(&&str, &&str)| a == b;
    let before = old.iter().zip(&new).take_while(same).count();
    let rest = old.len().min(new.len()) - before;
    let after = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(same).count();
    // With what stands around it, so that hunks have their context.
    let first = before.saturating_sub(CONTEXT_LINES);
    let last = after.saturating_sub(CONTEXT_LINES);
    let (old, new) = (&old[first..old.len() - last], &new[first..new.len() - last]);
    if old.len() + new.len() <= COMPARED_LINES_MAX {
        shown.compare(first, &old.concat(), &new.concat());
    } else {
        let (before, after) = (before - first, after - last);
        shown.replace(first, (old, new), before, after);
    }
    let Shown { diff, added, removed, truncated } = shown;
    Some(FileChange { path: path.display().to_string(), diff, added, removed, truncated })
}

/// Lines with what ends them.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

#[derive(Default)]
struct Shown {
    diff: String,
    added: u64,
    removed: u64,
    truncated: bool,
}

impl Shown {
    /// Shows the smallest change from one text to the other; `first` lines stand before both.
    fn compare(&mut self, first: usize, old: &str, new: &str) {
        let patch = DiffOptions::new().set_context_len(CONTEXT_LINES).create_patch(old, new);
        for hunk in patch.hunks() {
            let (old, new) = (hunk.old_range(), hunk.new_range());
            self.header((old.start() + first, old.len()), (new.start() + first, new.len()));
            for line in hunk.lines() {
                match line {
                    Line::Context(text) => self.line(' ', text),
                    Line::Delete(text) => self.line('-', text),
                    Line::Insert(text) => self.line('+', text),
                }
            }
        }
    }

    /// Shows all lines as taken out and put in, but for those that stand still at both ends.
    fn replace(
        &mut self,
        first: usize,
        (old, new): (&[&str], &[&str]),
        before: usize,
        after: usize,
    ) {
        // What is empty lies behind a line, what is not begins with one.
        let start = |lines: &[&str]| first + usize::from(!lines.is_empty());
        self.header((start(old), old.len()), (start(new), new.len()));
        old[..before].iter().for_each(|line| self.line(' ', line));
        old[before..old.len() - after].iter().for_each(|line| self.line('-', line));
        new[before..new.len() - after].iter().for_each(|line| self.line('+', line));
        old[old.len() - after..].iter().for_each(|line| self.line(' ', line));
    }

    fn header(&mut self, (old, old_len): (usize, usize), (new, new_len): (usize, usize)) {
        let mut header = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(header, "@@ -{old},{old_len} +{new},{new_len} @@");
        self.put(&header);
    }

    fn line(&mut self, sign: char, text: &str) {
        match sign {
            '+' => self.added += 1,
            '-' => self.removed += 1,
            _ => {}
        }
        if !self.truncated {
            let end = if text.ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
            self.put(&format!("{sign}{text}{end}"));
        }
    }

    fn put(&mut self, line: &str) {
        if !self.truncated {
            let room = DIFF_BYTES_MAX - self.diff.len();
            self.diff.push_str(start(line, room));
            self.truncated = line.len() > room;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn diff(old: &str, new: &str) -> FileChange {
        change("/a".as_ref(), old.as_bytes(), new.as_bytes()).unwrap()
    }

    fn numbered(lines: std::ops::Range<usize>) -> String {
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn what_changes_is_shown_with_what_stands_around_it() {
        let old = numbered(1..100);
        let changed = diff(&old, &old.replace("50\n", "fifty\n"));
        let expected = "@@ -47,7 +47,7 @@\n 47\n 48\n 49\n-50\n+fifty\n 51\n 52\n 53\n";
        assert_eq!(changed.diff, expected);
        assert_eq!((changed.added, changed.removed, changed.truncated), (1, 1, false));
    }

    #[test]
    fn a_file_that_comes_or_goes() {
        assert_eq!(
            diff("", "a\nb").diff,
            "@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
        );
        assert_eq!(diff("a\n", "").diff, "@@ -1,1 +0,0 @@\n-a\n");
    }

    #[test]
    fn what_is_no_text_or_does_not_change_has_no_diff() {
        assert_eq!(change("/a".as_ref(), b"a\0", b"b"), None);
        assert_eq!(change("/a".as_ref(), b"a", b"\xff"), None);
        assert_eq!(change("/a".as_ref(), b"a", b"a"), None);
    }

    #[test]
    fn a_diff_of_just_the_most_is_whole_and_one_byte_more_is_cut() {
        let head = "@@ -0,0 +1,2 @@\n".len();
        let fits = format!("{}\nb\n", "a".repeat(DIFF_BYTES_MAX - head - 2 - 3));
        let whole = diff("", &fits);
        assert_eq!((whole.diff.len(), whole.truncated), (DIFF_BYTES_MAX, false));
        let cut = diff("", &format!("a{fits}"));
        assert_eq!((cut.diff.len(), cut.truncated), (DIFF_BYTES_MAX, true));
        assert_eq!(cut.added, 2, "all of it is counted");
    }

    #[test]
    fn more_lines_than_are_compared_are_taken_out_and_put_in_whole() {
        let some = |count: usize, end: &str| -> String {
            (0..count).map(|line| format!("{line}{end}\n")).collect()
        };
        // Every second line stays, which shows whether they were compared.
        let (old, half) = (some(COMPARED_LINES_MAX / 2, ""), COMPARED_LINES_MAX as u64 / 4);
        let every_second = |text: &str| -> String {
            let mut odd = false;
            let other = |line: &str| {
                odd = !odd;
                if odd { format!("x{line}\n") } else { format!("{line}\n") }
            };
            text.lines().map(other).collect()
        };
        assert_eq!(diff(&old, &every_second(&old)).removed, half);
        let longer = format!("first\n{old}");
        let whole = diff(&longer, &every_second(&longer));
        assert!(whole.removed > half + 1, "{}", whole.removed);
    }

    proptest! {
        /// What is shown leads from the one text to the other, compared or not.
        #[test]
        fn a_diff_can_be_applied(
            old in prop::collection::vec("[ab]{0,2}", 0..40),
            new in prop::collection::vec("[ab]{0,2}", 0..40),
            ends in any::<bool>(),
        ) {
            let (old, mut new) = (old.join("\n"), new.join("\n"));
            if ends && !new.is_empty() {
                new.push('\n');
            }
            prop_assume!(old != new);
            let patch = format!("--- a\n+++ b\n{}", diff(&old, &new).diff);
            let patch = diffy::Patch::from_str(&patch).unwrap();
            prop_assert_eq!(diffy::apply(&old, &patch).unwrap(), new.clone());
            let mut whole = Shown::default();
            let (old_lines, new_lines) = (lines(&old), lines(&new));
            whole.replace(0, (&old_lines, &new_lines), 0, 0);
            let patch = format!("--- a\n+++ b\n{}", whole.diff);
            let patch = diffy::Patch::from_str(&patch).unwrap();
            prop_assert_eq!(diffy::apply(&old, &patch).unwrap(), new);
        }
    }
}
