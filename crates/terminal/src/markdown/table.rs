//! Tables: aligned where they fit, else as they were written.

use unicode_width::UnicodeWidthStr as _;

use super::inline::{self, Piece};
use super::{block, wrap};
use crate::shown::Shown;
use crate::style::{Line, Style};

/// Rows that are held back, for all of them to be aligned.
pub(super) const ROWS_MAX: usize = 30;
/// Bytes of them.
pub(super) const BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    held: Vec<String>,
    bytes: usize,
    /// How the rows that were printed are laid out, once some were.
    printed: Option<Layout>,
}

#[derive(Clone, Debug)]
enum Layout {
    AsWritten,
    Aligned(Vec<Column>),
}

#[derive(Clone, Debug)]
struct Column {
    width: usize,
    to_the_right: bool,
}

impl Table {
    /// The row as it is finished, or nothing while rows are held.
    pub(super) fn push(&mut self, row: &str, width: usize, code: Style) -> Vec<Line> {
        self.bytes += row.len();
        self.held.push(row.trim_end().to_owned());
        let full = self.held.len() >= ROWS_MAX || self.bytes >= BYTES_MAX;
        if full || self.printed.is_some() { self.flush(width, code) } else { Vec::new() }
    }

    pub(super) fn flush(&mut self, width: usize, code: Style) -> Vec<Line> {
        let rows: Vec<Vec<Cell>> = self.held.iter().map(|row| cells(row, code)).collect();
        let first = self.printed.is_none();
        let layout = self.printed.get_or_insert_with(|| layout(&self.held, &rows, width));
        let held = std::mem::take(&mut self.held);
        let columns = match layout {
            Layout::AsWritten => {
                return held.iter().map(|row| Line::plain(Shown::from(row.as_str()))).collect();
            }
            Layout::Aligned(columns) => columns,
        };
        let line = |(index, row): (usize, &Vec<Cell>)| match (first, index) {
            (true, 0) => aligned(row, columns, Style::BOLD),
            (true, 1) => rule(columns),
            _ => aligned(row, columns, Style::PLAIN),
        };
        rows.iter().enumerate().map(line).collect()
    }
}

struct Cell {
    pieces: Vec<Piece>,
    width: usize,
}

fn cells(row: &str, code: Style) -> Vec<Cell> {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let mut texts = vec![String::new()];
    let mut escaped = false;
    for c in row.chars() {
        match texts.last_mut() {
            Some(text) if c != '|' || escaped => text.push(c),
            _ => texts.push(String::new()),
        }
        escaped = c == '\\' && !escaped;
    }
    if texts.last().is_some_and(|text| text.trim().is_empty()) {
        texts.pop();
    }
    texts.iter().map(|text| cell(text.trim(), code)).collect()
}

fn cell(text: &str, code: Style) -> Cell {
    let mut pieces = Vec::new();
    for (index, word) in inline::words(text, Style::PLAIN, code).into_iter().enumerate() {
        if index > 0 && word.gap {
            pieces.push(Piece { text: " ".into(), style: Style::PLAIN, link: None });
        }
        pieces.extend(word.pieces);
    }
    let width = pieces.iter().map(|piece| Shown::from(piece.text.as_str()).as_str().width()).sum();
    Cell { pieces, width }
}

fn layout(written: &[String], rows: &[Vec<Cell>], width: usize) -> Layout {
    let Some(mark) = written.get(1).filter(|row| block::is_table_rule(row)) else {
        return Layout::AsWritten;
    };
    let count = rows.first().map_or(0, Vec::len);
    if rows.iter().any(|row| row.len() > count) {
        return Layout::AsWritten;
    }
    let marks: Vec<&str> = mark.trim().trim_matches('|').split('|').map(str::trim).collect();
    let widest = |column: usize| {
        let cells = rows.iter().enumerate().filter(|(index, _)| *index != 1);
        cells
            .filter_map(|(_, row)| row.get(column))
            .map(|cell| cell.width)
            .max()
            .unwrap_or_default()
            .max(1)
    };
    let to_the_right = |column| {
        marks.get(column).is_some_and(|mark: &&str| mark.ends_with(':') && !mark.starts_with(':'))
    };
    let columns: Vec<Column> = (0..count)
        .map(|index| Column { width: widest(index), to_the_right: to_the_right(index) })
        .collect();
    let taken: usize = columns.iter().map(|column| column.width + 3).sum::<usize>() + 1;
    if taken <= width { Layout::Aligned(columns) } else { Layout::AsWritten }
}

fn aligned(row: &[Cell], columns: &[Column], style: Style) -> Line {
    let mut line = Line::default();
    for (index, cell) in row.iter().enumerate() {
        let column = columns.get(index);
        let room = column.map_or(0, |column| column.width.saturating_sub(cell.width));
        let left = if column.is_some_and(|column| column.to_the_right) { room } else { 0 };
        line.push(Shown::ours("| "), Style::DIM);
        line.push(Shown::from(" ".repeat(left)), Style::PLAIN);
        for piece in &cell.pieces {
            let style = Style { bold: style.bold || piece.style.bold, ..piece.style };
            line.spans.push(wrap::span(Piece { style, ..piece.clone() }));
        }
        line.push(Shown::from(" ".repeat(room - left + 1)), Style::PLAIN);
    }
    for column in columns.iter().skip(row.len()) {
        line.push(Shown::ours("| "), Style::DIM);
        line.push(Shown::from(" ".repeat(column.width + 1)), Style::PLAIN);
    }
    line.push(Shown::ours("|"), Style::DIM);
    line.spans.retain(|span| !span.text.as_str().is_empty());
    line
}

fn rule(columns: &[Column]) -> Line {
    let marks: String =
        columns.iter().map(|column| format!("|{}", "-".repeat(column.width + 2))).collect();
    Line::styled(Shown::from(marks + "|"), Style::DIM)
}
