//! Where the hunks of a diff go in a text: where they say, or as near to it as their lines are found.
//!
//! A hunk that is not where it says may be anywhere, and a text of equal lines resembles it everywhere: placing it then
//! costs the product of both lengths. So the effort is bounded, and ends with the call.

use diffy::{Hunk, Line};

use super::Files;

/// Most bytes that are compared for one diff, all its files together: a second of work at most. A diff of a thousand
/// lines whose line numbers are all wrong stays under it in a file of a hundred thousand.
pub(super) const COMPARED_BYTES_MAX: u64 = 1 << 30;

/// What it costs to look at a line, beside its bytes.
const LINE_BYTES: u64 = 16;

/// What may still be spent on placing hunks.
pub(super) struct Effort<'a> {
    pub files: &'a Files,
    pub bytes_left: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The lines of this hunk, counted from 0, are not there.
    Hunk(usize),
    TooMuch,
    Stopped,
}

/// The text with all hunks applied.
pub(super) fn fit(
    body: &str,
    hunks: &[Hunk<'_, str>],
    effort: &mut Effort<'_>,
) -> Result<String, Misfit> {
    let mut text = Lines::of(body);
    let mut places = Vec::new();
    // How much further down than they say the hunks so far were found.
    let mut drift = 0;
    for (number, hunk) in hunks.iter().enumerate() {
        let old: Vec<&str> = hunk.lines().iter().filter_map(of_old).collect();
        let range = hunk.old_range();
        // Without lines of its own, a hunk comes after the line it names.
        let said = if old.is_empty() { range.start() } else { range.start().saturating_sub(1) };
        let guess = said.saturating_add_signed(drift).min(text.lines.len());
        let place = text.find(&old, guess, effort)?.ok_or(Misfit::Hunk(number))?;
        drift = place.cast_signed() - said.cast_signed();
        text.taken[place..place + old.len()].fill(true);
        places.push((place, old.len(), hunk));
    }
    places.sort_by_key(|(place, ..)| *place);
    let mut changed = String::with_capacity(body.len());
    let mut copied = 0;
    for (place, len, hunk) in places {
        changed.extend(text.lines.get(copied..place).into_iter().flatten().copied());
        changed.extend(hunk.lines().iter().filter_map(of_new));
        copied = copied.max(place + len);
    }
    changed.extend(text.lines[copied..].iter().copied());
    Ok(changed)
}

fn of_old<'a>(line: &Line<'a, str>) -> Option<&'a str> {
    match line {
        Line::Context(text) | Line::Delete(text) => Some(text),
        Line::Insert(_) => None,
    }
}

fn of_new<'a>(line: &Line<'a, str>) -> Option<&'a str> {
    match line {
        Line::Context(text) | Line::Insert(text) => Some(text),
        Line::Delete(_) => None,
    }
}

struct Lines<'a> {
    /// With their line ends.
    lines: Vec<&'a str>,
    /// Which of them belong to a hunk already.
    taken: Vec<bool>,
}

impl<'a> Lines<'a> {
    fn of(body: &'a str) -> Self {
        let lines: Vec<&str> = body.split_inclusive('\n').collect();
        Self { taken: vec![false; lines.len()], lines }
    }

    /// The place nearest to `guess` where these lines are.
    fn find(
        &self,
        old: &[&str],
        guess: usize,
        effort: &mut Effort<'_>,
    ) -> Result<Option<usize>, Misfit> {
        let Some(last) = self.lines.len().checked_sub(old.len()) else { return Ok(None) };
        for away in 0..=guess.max(last) {
            let before = guess.checked_sub(away).filter(|place| *place <= last);
            let after = guess.checked_add(away).filter(|place| away > 0 && *place <= last);
            for place in before.into_iter().chain(after) {
                if self.has(old, place, effort)? {
                    return Ok(Some(place));
                }
            }
        }
        Ok(None)
    }

    fn has(&self, old: &[&str], place: usize, effort: &mut Effort<'_>) -> Result<bool, Misfit> {
        if effort.files.stopped() {
            return Err(Misfit::Stopped);
        }
        for (line, at) in old.iter().zip(place..) {
            // Texts of different lengths are told apart without a look at them.
            let compared = if line.len() == self.lines[at].len() { line.len() as u64 } else { 0 };
            let cost = LINE_BYTES + compared;
            effort.bytes_left = effort.bytes_left.checked_sub(cost).ok_or(Misfit::TooMuch)?;
            if self.taken[at] || *line != self.lines[at] {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use diffy::Patch;
    use nexus_core::permission::Preset;
    use nexus_core::tool::Access;

    use super::*;
    use crate::sandbox::Launcher;

    fn check(body: &str, hunks: &str, bytes: u64, expected: Result<&str, Misfit>) {
        let cwd = std::path::PathBuf::from("/");
        let permissions = Preset::built_in("sandboxed").unwrap().apply(&cwd, &[]);
        let access = Access { command_dir: cwd.clone(), cwd, permissions, footprint: None };
        let files = Files::new(access, Default::default(), Launcher::own(), 1568);
        let diff = format!("--- f\n+++ f\n{hunks}");
        let patch = Patch::from_str(&diff).unwrap();
        let fitted = fit(body, patch.hunks(), &mut Effort { files: &files, bytes_left: bytes });
        assert_eq!(fitted.as_deref(), expected.as_ref().map(|text| *text), "{hunks}");
    }

    #[test]
    fn hunks_go_where_they_say_or_near_it() {
        let most = COMPARED_BYTES_MAX;
        let swap = "@@ -2 +2 @@\n-a\n+x\n";
        check("a\na\na\n", swap, most, Ok("a\nx\na\n"));
        check("a\nb\nb\n", swap, most, Ok("x\nb\nb\n"));
        check("b\nb\na\n", swap, most, Ok("b\nb\nx\n"));
        check("b\n", swap, most, Err(Misfit::Hunk(0)));
        check("", swap, most, Err(Misfit::Hunk(0)));
        // The second is as far off as the first.
        let two = "@@ -1 +1 @@\n-a\n+x\n@@ -3 +3 @@\n-c\n+y\n";
        check("0\n0\n0\na\nc\nc\nc\n", two, most, Ok("0\n0\n0\nx\nc\ny\nc\n"));
        // Lines are taken once.
        let twice = "@@ -1 +1 @@\n-a\n+x\n@@ -2 +2 @@\n-a\n+y\n";
        check("a\n", twice, most, Err(Misfit::Hunk(1)));
        check("a\na\n", twice, most, Ok("x\ny\n"));
        // Nothing but new lines.
        check("a\nb\n", "@@ -1,0 +2 @@\n+x\n", most, Ok("a\nx\nb\n"));
        check("a\nb\n", "@@ -0,0 +1 @@\n+x\n", most, Ok("x\na\nb\n"));
        check("a\n", "@@ -9,0 +9 @@\n+x\n", most, Ok("a\nx\n"));
    }

    #[test]
    fn the_effort_is_bounded() {
        let swap = "@@ -1 +1 @@\n-a\n+x\n";
        let body = "b\nb\na\n";
        let cost = 3 * (LINE_BYTES + 2);
        check(body, swap, cost, Ok("b\nb\nx\n"));
        check(body, swap, cost - 1, Err(Misfit::TooMuch));
        check("long\nlong\na\n", swap, 3 * LINE_BYTES + 2, Ok("long\nlong\nx\n"));
    }
}
