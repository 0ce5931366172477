//! The text that is being written: editing as in readline, undo, and pastes that stand as one unit.

use std::mem;

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation as _};

/// A paste of so many lines or bytes stands as one unit.
const UNIT_LINES_MIN: usize = 6;
const UNIT_BYTES_MIN: usize = 2 << 10;

/// Stands for the first paste, the next for the second: characters that nobody types.
const UNIT_FIRST: u32 = 0xF_0000;
const UNITS_MAX: u32 = 0xFFFD;

/// Steps that can be undone.
const UNDO_MAX: usize = 500;

#[derive(Default)]
pub struct Editor {
    text: String,
    /// In bytes, on the border of a grapheme.
    caret: usize,
    /// What the units stand for.
    pastes: Vec<String>,
    killed: String,
    undo: Vec<(String, usize)>,
    redo: Vec<(String, usize)>,
    /// Letters typed in a row are one step.
    is_typing: bool,
}

impl Editor {
    /// What would be sent.
    pub fn text(&self) -> String {
        let mut whole = String::with_capacity(self.text.len());
        for c in self.text.chars() {
            match unit(c).and_then(|unit| self.pastes.get(unit)) {
                Some(paste) => whole.push_str(paste),
                None => whole.push(c),
            }
        }
        whole
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn caret(&self) -> usize {
        self.caret
    }

    /// As it stands, units included; what [`label`](Self::label) names.
    pub fn raw(&self) -> &str {
        &self.text
    }

    /// How a unit is shown; `None` for a character that is itself.
    pub fn label(&self, c: char) -> Option<String> {
        let paste = self.pastes.get(unit(c)?)?;
        let lines = paste.lines().count();
        Some(match lines {
            0 | 1 => format!("[pasted {} characters]", paste.chars().count()),
            _ => format!("[pasted {lines} lines]"),
        })
    }

    pub fn clear(&mut self) -> String {
        let text = self.text();
        self.step();
        self.text.clear();
        self.caret = 0;
        text
    }

    /// Replaces everything, and stands at the end.
    pub fn set(&mut self, text: &str) {
        self.step();
        self.text = own(text);
        self.caret = self.text.len();
    }

    pub fn insert(&mut self, c: char) {
        if !mem::replace(&mut self.is_typing, true) {
            self.keep_step();
        }
        let c = if unit(c).is_some() { char::REPLACEMENT_CHARACTER } else { c };
        self.text.insert(self.caret, c);
        self.caret += c.len_utf8();
    }

    /// Puts a paste in: as text, or as a unit where it is long. Pasting the same again behind its unit opens it.
    pub fn paste(&mut self, text: &str) {
        self.step();
        let is_long = text.len() >= UNIT_BYTES_MIN || text.lines().count() >= UNIT_LINES_MIN;
        if !is_long {
            return self.put(&own(text));
        }
        let before = self.text[..self.caret].chars().next_back();
        if let Some(c) = before
            && unit(c).and_then(|unit| self.pastes.get(unit)).is_some_and(|paste| paste == text)
        {
            self.caret -= c.len_utf8();
            self.text.remove(self.caret);
            return self.put(&own(text));
        }
        let unit = UNIT_FIRST + (self.pastes.len() as u32).min(UNITS_MAX);
        match char::from_u32(unit) {
            Some(unit) => {
                self.pastes.push(text.into());
                self.put(unit.encode_utf8(&mut [0; 4]));
            }
            None => self.put(&own(text)),
        }
    }

    fn put(&mut self, text: &str) {
        self.text.insert_str(self.caret, text);
        self.caret += text.len();
    }

    pub fn left(&mut self) {
        self.is_typing = false;
        self.caret = self.before();
    }

    pub fn right(&mut self) {
        self.is_typing = false;
        self.caret = self.after();
    }

    pub fn word_left(&mut self) {
        self.is_typing = false;
        self.caret = self.word_before();
    }

    pub fn word_right(&mut self) {
        self.is_typing = false;
        self.caret = self.word_after();
    }

    pub fn line_start(&mut self) {
        self.is_typing = false;
        self.caret = self.start();
    }

    pub fn line_end(&mut self) {
        self.is_typing = false;
        self.caret = self.end();
    }

    pub fn place(&mut self, caret: usize) {
        self.is_typing = false;
        self.caret = caret.min(self.text.len());
        while !self.text.is_char_boundary(self.caret) {
            self.caret -= 1;
        }
    }

    pub fn backspace(&mut self) {
        self.remove(self.before(), self.caret, false);
    }

    pub fn delete(&mut self) {
        self.remove(self.caret, self.after(), false);
    }

    /// The word before the caret, as Ctrl-W: what stands between blanks.
    pub fn kill_word(&mut self) {
        let kept = self.text[..self.caret].trim_end_matches([' ', '\t', '\n']);
        let from = kept.rfind([' ', '\t', '\n']).map_or(0, |at| at + 1);
        self.remove(from, self.caret, true);
    }

    /// As Alt-Backspace: a word of letters.
    pub fn kill_word_left(&mut self) {
        self.remove(self.word_before(), self.caret, true);
    }

    pub fn kill_word_right(&mut self) {
        self.remove(self.caret, self.word_after(), true);
    }

    pub fn kill_to_start(&mut self) {
        self.remove(self.start(), self.caret, true);
    }

    /// To the end of the line, or the end of the line itself.
    pub fn kill_to_end(&mut self) {
        let end = self.end();
        let end = if end == self.caret { self.after() } else { end };
        self.remove(self.caret, end, true);
    }

    pub fn yank(&mut self) {
        let killed = self.killed.clone();
        self.step();
        self.put(&killed);
    }

    pub fn undo(&mut self) {
        self.is_typing = false;
        if let Some((text, caret)) = self.undo.pop() {
            self.redo.push((mem::replace(&mut self.text, text), self.caret));
            self.caret = caret;
        }
    }

    pub fn redo(&mut self) {
        self.is_typing = false;
        if let Some((text, caret)) = self.redo.pop() {
            self.undo.push((mem::replace(&mut self.text, text), self.caret));
            self.caret = caret;
        }
    }

    /// The word that stands before the caret, and where it begins: what a completion replaces.
    pub fn word(&self) -> (usize, &str) {
        let before = &self.text[..self.caret];
        let from = before.rfind([' ', '\t', '\n']).map_or(0, |at| at + 1);
        (from, &before[from..])
    }

    /// Puts `text` in the place of what stands from `from` to the caret.
    pub fn replace(&mut self, from: usize, text: &str) {
        self.step();
        self.text.replace_range(from..self.caret, "");
        self.caret = from;
        self.put(&own(text));
    }

    fn remove(&mut self, from: usize, to: usize, is_kept: bool) {
        if from >= to {
            return;
        }
        self.step();
        let removed: String = self.text.drain(from..to).collect();
        if is_kept {
            self.killed = removed;
        }
        self.caret = from;
    }

    fn step(&mut self) {
        self.is_typing = false;
        self.keep_step();
    }

    fn keep_step(&mut self) {
        self.redo.clear();
        if self.undo.len() == UNDO_MAX {
            self.undo.remove(0);
        }
        self.undo.push((self.text.clone(), self.caret));
    }

    fn before(&self) -> usize {
        let mut cursor = GraphemeCursor::new(self.caret, self.text.len(), true);
        cursor.prev_boundary(&self.text, 0).ok().flatten().unwrap_or(0)
    }

    fn after(&self) -> usize {
        let mut cursor = GraphemeCursor::new(self.caret, self.text.len(), true);
        cursor.next_boundary(&self.text, 0).ok().flatten().unwrap_or(self.text.len())
    }

    fn word_before(&self) -> usize {
        let mut words = self.text[..self.caret].split_word_bound_indices();
        words.rfind(|(_, word)| is_word(word)).map_or(0, |(at, _)| at)
    }

    fn word_after(&self) -> usize {
        let mut words = self.text[self.caret..].split_word_bound_indices();
        let word = words.find(|(_, word)| is_word(word));
        word.map_or(self.text.len(), |(at, word)| self.caret + at + word.len())
    }

    fn start(&self) -> usize {
        self.text[..self.caret].rfind('\n').map_or(0, |at| at + 1)
    }

    fn end(&self) -> usize {
        self.text[self.caret..].find('\n').map_or(self.text.len(), |at| self.caret + at)
    }
}

fn is_word(word: &str) -> bool {
    word.chars().any(|c| c.is_alphanumeric() || unit(c).is_some())
}

/// Which paste the character stands for.
fn unit(c: char) -> Option<usize> {
    let number = u32::from(c).checked_sub(UNIT_FIRST)?;
    (number <= UNITS_MAX).then_some(number as usize)
}

/// Text in which nothing stands for a paste.
fn own(text: &str) -> String {
    text.chars().map(|c| if unit(c).is_some() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn typed(text: &str) -> Editor {
        let mut editor = Editor::default();
        text.chars().for_each(|c| editor.insert(c));
        editor
    }

    #[test]
    fn moves_and_kills_as_readline() {
        let mut editor = typed("cargo test -p core");
        editor.kill_word();
        assert_eq!(editor.text(), "cargo test -p ");
        editor.word_left();
        editor.word_left();
        assert_eq!(editor.caret(), 6);
        editor.kill_to_end();
        assert_eq!(editor.text(), "cargo ");
        editor.yank();
        assert_eq!(editor.text(), "cargo test -p ");
        editor.line_start();
        editor.kill_word_right();
        assert_eq!(editor.text(), " test -p ");
        editor.undo();
        editor.undo();
        assert_eq!(editor.text(), "cargo ");
        editor.redo();
        assert_eq!(editor.text(), "cargo test -p ");
    }

    #[test]
    fn letters_typed_in_a_row_are_undone_together() {
        let mut editor = typed("hello");
        editor.left();
        editor.insert('!');
        editor.undo();
        assert_eq!(editor.text(), "hello");
        editor.undo();
        assert_eq!(editor.text(), "");
    }

    #[test]
    fn a_grapheme_is_one_place() {
        let mut editor = typed("a👩‍👩‍👧e\u{301}");
        editor.backspace();
        assert_eq!(editor.text(), "a👩‍👩‍👧");
        editor.backspace();
        assert_eq!(editor.text(), "a");
    }

    #[test]
    fn a_long_paste_is_a_unit_and_opens_when_pasted_again() {
        let short = "1\n2\n3\n4\n5";
        let mut editor = Editor::default();
        editor.paste(short);
        assert_eq!(editor.raw(), short);
        let long = "1\n2\n3\n4\n5\n6";
        let mut editor = Editor::default();
        editor.paste(long);
        assert_eq!(editor.raw().chars().count(), 1);
        assert_eq!(editor.raw().chars().find_map(|c| editor.label(c)).unwrap(), "[pasted 6 lines]");
        assert_eq!(editor.text(), long);
        editor.paste(long);
        assert_eq!(editor.raw(), long);
        let mut editor = Editor::default();
        editor.paste(&"x".repeat(UNIT_BYTES_MIN - 1));
        assert_eq!(editor.raw().len(), UNIT_BYTES_MIN - 1);
        let mut editor = Editor::default();
        editor.paste(&"x".repeat(UNIT_BYTES_MIN));
        assert_eq!(editor.raw().chars().count(), 1);
        editor.backspace();
        assert!(editor.is_empty());
    }

    #[test]
    fn nobody_types_a_unit() {
        let mut editor = Editor::default();
        editor.paste(&"x\n".repeat(9));
        editor.insert('\u{F0000}');
        editor.paste("\u{F0000}");
        assert_eq!(editor.text().matches("x\n").count(), 9);
    }

    proptest! {
        /// Whatever is done, the caret stands on a border and nothing panics.
        #[test]
        fn the_caret_is_always_in_the_text(actions in proptest::collection::vec((0_u8..18, any::<char>()), 0..60)) {
            let mut editor = Editor::default();
            for (action, c) in actions {
                match action {
                    0..5 => editor.insert(c),
                    5 => editor.left(),
                    6 => editor.right(),
                    7 => editor.word_left(),
                    8 => editor.word_right(),
                    9 => editor.backspace(),
                    10 => editor.delete(),
                    11 => editor.kill_word(),
                    12 => editor.kill_to_end(),
                    13 => editor.yank(),
                    14 => editor.undo(),
                    15 => editor.redo(),
                    16 => editor.paste(&c.to_string().repeat(900)),
                    _ => editor.insert('\n'),
                }
                prop_assert!(editor.text.is_char_boundary(editor.caret));
                prop_assert!(editor.caret <= editor.text.len());
            }
        }
    }
}
