//! Lines as they are printed: pieces of harmless text, each in one style.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::shown::Shown;

/// How far apart the places are to which a tab leads.
pub const TAB: usize = 8;

/// One line of output, without its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub spans: Vec<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub text: Shown,
    pub style: Style,
    /// Where a click leads.
    pub link: Option<Shown>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// The terminal's own colour when absent.
    pub colour: Option<Colour>,
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub underline: bool,
    pub reverse: bool,
}

/// The colours of the user's own palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Black,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
    White,
    BrightBlack,
    BrightRed,
    BrightGreen,
    BrightYellow,
    BrightBlue,
    BrightMagenta,
    BrightCyan,
    BrightWhite,
}

impl Line {
    pub fn plain(text: impl Into<Shown>) -> Self {
        Self::styled(text, Style::default())
    }

    pub fn styled(text: impl Into<Shown>, style: Style) -> Self {
        let mut line = Self::default();
        line.push(text, style);
        line
    }

    pub fn push(&mut self, text: impl Into<Shown>, style: Style) {
        self.spans.push(Span { text: text.into(), style, link: None });
    }

    /// With this piece at its end.
    pub fn with(mut self, text: impl Into<Shown>, style: Style) -> Self {
        self.push(text, style);
        self
    }

    /// Columns that it takes on a screen without end.
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| span.text.as_str().width()).sum()
    }

    /// The same as rows of this width, for those who have to see all of it. A tab is as wide as it would be on a screen.
    pub fn broken(&self, width: usize) -> Vec<Self> {
        let mut rows = vec![Self::default()];
        let mut column = 0;
        for span in &self.spans {
            let mut piece = String::new();
            for grapheme in span.text.as_str().graphemes(true) {
                let blanks = TAB - column % TAB;
                let columns = if grapheme == "\t" { blanks } else { grapheme.width() };
                if column > 0 && column.saturating_add(columns) > width {
                    rows.last_mut().into_iter().for_each(|row| row.add(&mut piece, span));
                    rows.push(Self::default());
                    column = 0;
                }
                match grapheme {
                    "\t" => piece.extend(std::iter::repeat_n(' ', columns)),
                    grapheme => piece.push_str(grapheme),
                }
                column += columns;
            }
            rows.last_mut().into_iter().for_each(|row| row.add(&mut piece, span));
        }
        rows
    }

    /// Adds this piece of `span`, if there is something in it.
    fn add(&mut self, piece: &mut String, span: &Span) {
        let text = std::mem::take(piece);
        if !text.is_empty() {
            self.spans.push(Span { text: text.into(), style: span.style, link: span.link.clone() });
        }
    }

    /// What it says.
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }
}

impl Style {
    pub const fn colour(colour: Colour) -> Self {
        Self { colour: Some(colour), ..Self::PLAIN }
    }

    pub const PLAIN: Self = Self {
        colour: None,
        bold: false,
        dim: false,
        italic: false,
        underline: false,
        reverse: false,
    };

    pub const DIM: Self = Self { dim: true, ..Self::PLAIN };

    pub const BOLD: Self = Self { bold: true, ..Self::PLAIN };

    pub const fn bold(mut self) -> Self {
        self.bold = true;
        self
    }

    pub const fn dim(mut self) -> Self {
        self.dim = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_between_letters_and_keeps_its_styles() {
        let line = Line::plain("ab").with("cd\u{65e5}e", Style::BOLD);
        let rows = line.broken(3);
        assert_eq!(rows.iter().map(Line::text).collect::<Vec<_>>(), ["abc", "d\u{65e5}", "e"]);
        assert_eq!(rows[0].spans[1].style, Style::BOLD);
        assert_eq!(Line::plain("a\tb").broken(80)[0].text(), "a       b");
        assert_eq!(Line::plain("").broken(3).len(), 1);
        // A letter that is wider than the screen stands there all the same.
        assert_eq!(Line::plain("\u{65e5}\u{65e5}").broken(1).len(), 2);
    }
}
