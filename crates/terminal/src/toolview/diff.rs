//! What becomes of a file, as a diff with line numbers.

use nexus_protocol::permission::FileChange;

use super::{NAME_CHARS_MAX, more, one_line};
use crate::shown::Shown;
use crate::style::{Colour, Line, Style};

const PATH_CHARS_MAX: usize = 4 * NAME_CHARS_MAX;
/// Columns of a line number.
const NUMBER_COLUMNS: usize = 4;

/// The path with the sums, then at most so many lines. Signs say what colours do.
pub fn diff(change: &FileChange, short_id: &str, lines_max: usize) -> Vec<Line> {
    let mut lines = vec![
        Line::styled(Shown::from(one_line(&change.path, PATH_CHARS_MAX)), Style::BOLD)
            .with(Shown::from(format!("  +{}", change.added)), ADDED)
            .with(Shown::from(format!(" -{}", change.removed)), REMOVED),
    ];
    let mut reader = Reader::default();
    let mut left = 0_u64;
    for text in change.diff.lines() {
        let Some(line) = reader.line(text) else { continue };
        if lines.len() <= lines_max {
            lines.push(line);
        } else {
            left += 1;
        }
    }
    match (left, change.truncated) {
        (0, false) => {}
        (0, true) => lines.push(more("the rest of the change", short_id)),
        (1, false) => lines.push(more("1 more line", short_id)),
        (left, false) => lines.push(more(&format!("{left} more lines"), short_id)),
        (left, true) => lines.push(more(&format!("more than {left} lines"), short_id)),
    }
    lines
}

const ADDED: Style = Style::colour(Colour::Green);
const REMOVED: Style = Style::colour(Colour::Red);

/// A line of a diff as it is written, in its colour.
pub fn raw_line(line: &str) -> Line {
    let style = match line.as_bytes().first() {
        Some(b'+') => ADDED,
        Some(b'-') => REMOVED,
        Some(b'@') => Style::colour(Colour::Cyan),
        _ => Style::PLAIN,
    };
    Line::styled(line, style)
}

/// Where in the two files it is. What is left of a hunk tells a removed `-- x` from the name of a file.
#[derive(Default)]
struct Reader {
    old: Side,
    new: Side,
    hunks: usize,
}

#[derive(Default)]
struct Side {
    next: u64,
    left: u64,
}

impl Reader {
    fn line(&mut self, text: &str) -> Option<Line> {
        if self.old.left == 0 && self.new.left == 0 {
            if text.starts_with('\\') && self.hunks > 0 {
                return Some(Line::styled(Shown::from(text), Style::DIM));
            }
            let (old, new) = hunk(text)?;
            (self.old, self.new) = (old, new);
            self.hunks += 1;
            return (self.hunks > 1).then(|| Line::styled(Shown::ours("   ⋯"), Style::DIM));
        }
        let (number, sign, style) = match text.as_bytes().first() {
            Some(b'+') => (self.new.step(), '+', ADDED),
            Some(b'-') => (self.old.step(), '-', REMOVED),
            Some(b'\\') => return Some(Line::styled(Shown::from(text), Style::DIM)),
            _ => {
                self.old.step();
                (self.new.step(), ' ', Style::PLAIN)
            }
        };
        let said = text.get(1..).unwrap_or_default();
        let line = Line::styled(Shown::from(format!("{number:>NUMBER_COLUMNS$} ")), Style::DIM);
        Some(line.with(Shown::from(format!("{sign} {said}")), style))
    }
}

impl Side {
    fn step(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        self.left = self.left.saturating_sub(1);
        number
    }
}

/// `@@ -1,4 +1,5 @@`
fn hunk(text: &str) -> Option<(Side, Side)> {
    let (old, rest) = text.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let side = |range: &str| {
        let (next, left) = range.split_once(',').unwrap_or((range, "1"));
        Some(Side { next: next.parse().ok()?, left: left.parse().ok()? })
    };
    Some((side(old)?, side(new)?))
}
