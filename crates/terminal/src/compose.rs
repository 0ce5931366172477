//! The input as rows: what is written, broken at the width, with the place of the caret.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::editor::Editor;
use crate::style::{Colour, Line, Style};

/// The input as it stands on the screen.
pub struct Composed {
    pub rows: Vec<Line>,
    pub caret: (usize, usize),
}

/// Breaks what is written at `width`, behind the prompt in the first row and below it in the others.
pub fn compose(editor: &Editor, prompt: &str, style: Style, width: usize) -> Composed {
    let mut rows = Rows::new(prompt, style, width);
    let mut caret = None;
    for (at, grapheme) in editor.raw().grapheme_indices(true) {
        if at == editor.caret() {
            caret = Some(rows.place(grapheme));
        }
        rows.put(editor, grapheme);
    }
    let caret = caret.unwrap_or_else(|| rows.place(" "));
    if caret.0 > rows.rows.len() {
        rows.end();
    }
    rows.end();
    Composed { rows: rows.rows, caret }
}

/// Where the caret would stand in the row above or below; `None` at the first and last.
pub fn beside(editor: &Editor, prompt: &str, width: usize, down: bool) -> Option<usize> {
    let places = places(editor, prompt, width);
    let (_, row, column) = *places.iter().find(|(at, ..)| *at == editor.caret())?;
    let wanted = if down { row + 1 } else { row.checked_sub(1)? };
    let in_row = places.iter().filter(|(_, row, _)| *row == wanted);
    in_row.min_by_key(|(_, _, at)| at.abs_diff(column)).map(|(at, ..)| *at)
}

/// Each place where the caret can stand: byte, row, column.
fn places(editor: &Editor, prompt: &str, width: usize) -> Vec<(usize, usize, usize)> {
    let mut rows = Rows::new(prompt, Style::PLAIN, width);
    let mut places = Vec::new();
    for (at, grapheme) in editor.raw().grapheme_indices(true) {
        let (row, column) = rows.place(grapheme);
        places.push((at, row, column));
        rows.put(editor, grapheme);
    }
    let (row, column) = rows.place(" ");
    places.push((editor.raw().len(), row, column));
    places
}

struct Rows {
    rows: Vec<Line>,
    row: Vec<(String, Style)>,
    column: usize,
    indent: usize,
    width: usize,
}

impl Rows {
    fn new(prompt: &str, style: Style, width: usize) -> Self {
        let width = width.max(2);
        let indent = if prompt.width() * 2 > width { 0 } else { prompt.width() };
        let row = if indent > 0 { vec![(prompt.to_owned(), style)] } else { Vec::new() };
        Self { rows: Vec::new(), row, column: indent, indent, width }
    }

    /// Row and column where this would stand.
    fn place(&self, grapheme: &str) -> (usize, usize) {
        let fits = grapheme == "\n" || self.column + grapheme.width().max(1) <= self.width;
        match fits && self.column < self.width {
            true => (self.rows.len(), self.column),
            false => (self.rows.len() + 1, self.indent),
        }
    }

    /// A grapheme of what is written.
    fn put(&mut self, editor: &Editor, grapheme: &str) {
        match grapheme.chars().next().and_then(|c| editor.label(c)) {
            Some(label) => self.push(&label, Style::colour(Colour::Cyan)),
            None if grapheme == "\n" => self.end(),
            None if grapheme == "\t" => self.push("    ", Style::PLAIN),
            None => self.push(grapheme, Style::PLAIN),
        }
    }

    fn push(&mut self, text: &str, style: Style) {
        for grapheme in text.graphemes(true) {
            if self.column + grapheme.width() > self.width {
                self.end();
            }
            self.column += grapheme.width();
            match self.row.last_mut() {
                Some((text, last)) if *last == style => text.push_str(grapheme),
                _ => self.row.push((grapheme.to_owned(), style)),
            }
        }
    }

    fn end(&mut self) {
        let mut line = Line::default();
        // Typed text is foreign, too: it may have been pasted from anywhere.
        self.row.drain(..).for_each(|(text, style)| line.push(text, style));
        self.rows.push(line);
        self.column = self.indent;
        if self.indent > 0 {
            self.row.push((" ".repeat(self.indent), Style::PLAIN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, width: usize) -> (Vec<String>, (usize, usize)) {
        let mut editor = Editor::default();
        editor.set(text);
        let composed = compose(&editor, "api> ", Style::PLAIN, width);
        (composed.rows.iter().map(Line::text).collect(), composed.caret)
    }

    #[test]
    fn text_is_broken_and_the_caret_is_behind_it() {
        assert_eq!(rows("", 20), (vec!["api> ".into()], (0, 5)));
        assert_eq!(rows("hello", 20), (vec!["api> hello".into()], (0, 10)));
        assert_eq!(rows("a\nb", 20), (vec!["api> a".into(), "     b".into()], (1, 6)));
        // Full to the last column: the caret begins the next row.
        let (texts, caret) = rows("0123456", 12);
        assert_eq!((texts, caret), (vec!["api> 0123456".into(), "     ".into()], (1, 5)));
        let (texts, caret) = rows("01234567", 12);
        assert_eq!((texts, caret), (vec!["api> 0123456".into(), "     7".into()], (1, 6)));
        // No room for the prompt.
        assert_eq!(rows("hello", 4), (vec!["hell".into(), "o".into()], (1, 1)));
        assert_eq!(rows("日本語", 10).0.len(), 2);
    }

    #[test]
    fn up_and_down_keep_the_column() {
        let mut editor = Editor::default();
        editor.set("first line\nx\nthird line");
        let up = beside(&editor, "api> ", 40, false).unwrap();
        assert_eq!(up, 12);
        editor.place(up);
        assert_eq!(beside(&editor, "api> ", 40, true), Some(14));
        editor.place(3);
        assert_eq!(beside(&editor, "api> ", 40, false), None);
        assert_eq!(beside(&editor, "api> ", 40, true), Some(12));
    }
}
