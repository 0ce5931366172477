//! Lines as they are printed: pieces of harmless text, each in one style.

use unicode_width::UnicodeWidthStr as _;

use crate::shown::Shown;

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
