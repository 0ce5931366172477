//! Words put into rows.

use super::inline::{Cut, Piece, Word};
use crate::shown::Shown;
use crate::style::{Line, Span, Style};

/// Fewest columns that text is given, however deep it stands.
const TEXT_COLUMNS_MIN: usize = 10;

/// What stands before the rows of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix {
    /// Before each row.
    pub bars: usize,
    /// Before the first, as `  1. `.
    pub first: String,
    /// Columns before the others.
    pub hang: usize,
}

pub(super) struct Row {
    pub line: Line,
    /// Where the source can be cut so that this row is the first.
    pub cut: Option<Cut>,
}

/// Without a width, everything is one row.
pub(super) fn rows(words: &[Word], prefix: &Prefix, width: Option<usize>) -> Vec<Row> {
    let before = 2 * prefix.bars + prefix.hang;
    let room = width.map(|width| width.saturating_sub(before).max(TEXT_COLUMNS_MIN));
    let mut rows = Vec::new();
    let mut row: Vec<&Word> = Vec::new();
    let mut taken = 0;
    for word in words {
        let needed = word.width + usize::from(word.gap);
        if room.is_some_and(|room| !row.is_empty() && taken + needed > room) {
            rows.push(finish(&row, prefix, rows.is_empty()));
            row.clear();
            taken = 0;
        }
        taken += if row.is_empty() { word.width } else { needed };
        row.push(word);
    }
    if !row.is_empty() || rows.is_empty() {
        rows.push(finish(&row, prefix, rows.is_empty()));
    }
    rows
}

fn finish(words: &[&Word], prefix: &Prefix, first: bool) -> Row {
    let mut line = Line::default();
    if prefix.bars > 0 {
        line.push(Shown::from("│ ".repeat(prefix.bars)), Style::DIM);
    }
    let lead = if first { prefix.first.clone() } else { " ".repeat(prefix.hang) };
    let mut pieces: Vec<Piece> = Vec::new();
    if !lead.is_empty() {
        pieces.push(Piece { text: lead, style: Style::PLAIN, link: None });
    }
    for (index, word) in words.iter().enumerate() {
        for (number, piece) in word.pieces.iter().enumerate() {
            if number == 0 && index > 0 && word.gap {
                let inside = pieces
                    .last()
                    .is_some_and(|last| last.style == piece.style && last.link == piece.link);
                let (style, link) =
                    if inside { (piece.style, piece.link.clone()) } else { (Style::PLAIN, None) };
                join(&mut pieces, &Piece { text: " ".into(), style, link });
            }
            join(&mut pieces, piece);
        }
    }
    line.spans.extend(pieces.into_iter().map(span));
    Row { line, cut: words.first().and_then(|word| word.cut.clone()) }
}

fn join(pieces: &mut Vec<Piece>, piece: &Piece) {
    match pieces.last_mut() {
        Some(last) if last.style == piece.style && last.link == piece.link => {
            last.text.push_str(&piece.text)
        }
        _ => pieces.push(piece.clone()),
    }
}

/// Pieces go through the door again: the characters that entities name were not there when the source did.
pub(super) fn span(piece: Piece) -> Span {
    let text = Shown::from(piece.text);
    Span { text, style: piece.style, link: piece.link.map(Shown::from) }
}
