//! Markdown as it comes: blocks that have ended are lines for ever, the open one can be looked at.

mod block;
mod inline;
mod table;
#[cfg(test)]
mod tests;
mod wrap;

use std::mem;

use self::block::{Fence, Start};
use self::table::Table;
use self::wrap::{Prefix, Row};
use crate::code::{Highlighter, Job, Theme};
use crate::shown::Shown;
use crate::style::{Line, Style};

/// An open block of prose is cut when it is this long, so that looking at it never costs more.
const OPEN_BYTES_MAX: usize = 16 * 1024;
/// By then a line has shown what it begins.
const UNDECIDED_BYTES_MAX: usize = 512;
/// A line of this length can be taken for text when room is short.
const DECIDED_BYTES_MIN: usize = 64;
/// What is shown of an open line of code.
const OPEN_CODE_BYTES_MAX: usize = 4096;
const QUOTES_MAX: usize = 8;
/// Deeper lists stand where this one does.
const INDENT_MAX: usize = 24;
const RULE_COLUMNS_MAX: usize = 40;

/// How text is laid out. It may change at any time; what is finished stays.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Columns for prose.
    pub width: usize,
    pub wrap: Wrap,
    pub theme: Theme,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    /// Prose is broken at words.
    Word,
    /// By the terminal alone, which then can lay it out anew.
    Terminal,
}

/// Streamed Markdown. The text has gone through a [`Sieve`](crate::shown::Sieve).
pub struct Markdown {
    pub look: Look,
    state: State,
    /// The line that has not ended, unless it is part of the open prose already.
    line: String,
    /// The line that has not ended is part of the open prose.
    inside: bool,
    highlighter: Option<Highlighter>,
}

#[derive(Clone, Default)]
struct State {
    open: Open,
    quotes: usize,
    /// Columns at which the text of the last list item begins; 0 outside of lists.
    list: usize,
    /// An empty line is due before what comes next.
    blank: bool,
    /// Something was printed.
    begun: bool,
}

#[derive(Clone, Default)]
enum Open {
    #[default]
    Nothing,
    Prose(Prose),
    Fence(Fence),
    Table(Table),
}

#[derive(Clone)]
struct Prose {
    kind: Kind,
    prefix: Prefix,
    style: Style,
    /// One line, whatever the lines of the source.
    source: String,
    lines: usize,
    /// Length at which it is cut.
    cut_at: usize,
}

struct Opening<'a> {
    quotes: usize,
    /// What is quoted.
    inner: &'a str,
    indent: usize,
    text: &'a str,
    /// It is as deep in quotes as what is before it, or goes on with it.
    stays: bool,
    /// It is code by its indent.
    code: bool,
    start: Start<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Paragraph,
    Heading,
    Item,
}

/// What was finished, and the code among it that waits for colours.
#[derive(Default)]
struct Out {
    lines: Vec<Line>,
    jobs: Vec<Job>,
    /// For each line of code among the jobs, its place in `lines`.
    places: Vec<usize>,
}

impl Markdown {
    pub fn new(look: Look) -> Self {
        Self {
            look,
            state: State::default(),
            line: String::new(),
            inside: false,
            highlighter: None,
        }
    }

    /// Colours code. Then `push` and `finish` may wait for it, [`WAIT_MAX`](crate::code::WAIT_MAX) at most.
    pub fn with_highlighter(mut self, highlighter: Highlighter) -> Self {
        self.highlighter = Some(highlighter);
        self
    }

    /// What is finished from here on looks like this.
    pub fn look_as(&mut self, look: Look) {
        self.look = look;
        if let Some(highlighter) = &mut self.highlighter {
            highlighter.set_theme(look.theme);
        }
    }

    /// The lines that this finishes.
    pub fn push(&mut self, text: &str) -> Vec<Line> {
        let mut out = Out::default();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find('\n');
            self.feed(&rest[..end.unwrap_or(rest.len())], &mut out);
            let Some(end) = end else { break };
            self.end_line(&mut out);
            rest = &rest[end + 1..];
        }
        self.colour(out)
    }

    /// The open block as it stands now.
    pub fn open(&self) -> Vec<Line> {
        let mut out = Out::default();
        let mut state = self.state.clone();
        state.keep_end();
        if !self.inside && !block::is_undecided(&self.line) {
            let shown = start_of(&self.line, OPEN_CODE_BYTES_MAX);
            state.apply(shown, self.look, &mut out);
        }
        if let Open::Prose(prose) = &mut state.open {
            prose.source = inline::closed(&prose.source);
        }
        state.close(self.look, &mut out);
        out.lines
    }

    /// Ends the text. The next is another.
    pub fn finish(&mut self) -> Vec<Line> {
        let mut out = Out::default();
        if self.inside || !self.line.is_empty() {
            self.end_line(&mut out);
        }
        self.state.close(self.look, &mut out);
        self.state = State::default();
        self.colour(out)
    }

    /// When the open block has more rows than this and is prose, all but its last are finished.
    pub fn overflow(&mut self, rows_max: usize) -> Vec<Line> {
        let mut out = Out::default();
        if self.open().len() > rows_max {
            if self.line.len() >= DECIDED_BYTES_MIN {
                self.take_in(&mut out);
            }
            self.state.spill(self.look, &mut out);
        }
        self.colour(out)
    }

    /// Takes a part of a line. The source is cut by its own length, never where a piece of it ended: so it comes to the
    /// same lines in whatever pieces it came.
    fn feed(&mut self, part: &str, out: &mut Out) {
        let mut rest = part;
        if !self.inside {
            let before = self.line.len();
            if before >= UNDECIDED_BYTES_MAX || before + part.len() < UNDECIDED_BYTES_MAX {
                self.line.push_str(part);
                return;
            }
            let (start, after) =
                rest.split_at(rest.ceil_char_boundary(UNDECIDED_BYTES_MAX - before));
            self.line.push_str(start);
            rest = after;
            self.take_in(out);
        }
        if self.inside {
            self.state.grow(rest, self.look, out);
        } else {
            self.line.push_str(rest);
        }
    }

    fn end_line(&mut self, out: &mut Out) {
        if mem::take(&mut self.inside) {
            self.state.end_line(self.look, out);
        } else {
            let line = mem::take(&mut self.line);
            self.state.apply(&line, self.look, out);
            self.state.end_line(self.look, out);
        }
    }

    /// Makes the line that has not ended part of the open prose, if it can be nothing else.
    fn take_in(&mut self, out: &mut Out) {
        if self.inside || block::is_undecided(&self.line) || !self.state.is_prose(&self.line) {
            return;
        }
        self.inside = true;
        let line = mem::take(&mut self.line);
        self.state.apply(&line, self.look, out);
    }

    fn colour(&mut self, out: Out) -> Vec<Line> {
        let Out { mut lines, jobs, places } = out;
        if let Some(highlighter) = self.highlighter.as_mut().filter(|_| !jobs.is_empty()) {
            for (place, painted) in places.into_iter().zip(highlighter.paint(jobs)) {
                // Where a mark was parted from its letter it is written out, and the code would no longer be what was said.
                if let (Some(line), Some(painted)) = (lines.get_mut(place), painted)
                    && line.text() == painted.text()
                {
                    *line = painted;
                }
            }
        }
        lines
    }
}

impl State {
    /// Takes a whole line, or the beginning of one that goes on as prose.
    fn apply(&mut self, line: &str, look: Look, out: &mut Out) {
        if let Open::Fence(fence) = &self.open {
            let (quotes, inner) = block::unquote(line, self.quotes);
            if quotes == self.quotes {
                if fence.is_closed_by(inner) {
                    self.open = Open::Nothing;
                } else {
                    let code = block::outdent(inner, fence.indent).to_owned();
                    self.code(code, out);
                }
                return;
            }
            self.open = Open::Nothing;
        }
        let Opening { quotes, inner, indent, text, stays, code, start } = self.place(line);
        if text.is_empty() {
            self.close(look, out);
            self.blank = self.begun;
            return;
        }
        if !stays {
            self.close(look, out);
            (self.quotes, self.list) = (quotes, 0);
        }
        if self.continues(text, look, out) {
            return;
        }
        if code {
            return self.code(block::outdent(inner, block::CODE_INDENT).to_owned(), out);
        }
        self.begin(start, indent, look, out);
    }

    /// Where a line stands that is not in a fence. It changes nothing: a line is taken in before it has ended only where
    /// this says that it is prose.
    fn place<'a>(&self, line: &'a str) -> Opening<'a> {
        let (quotes, inner) = block::unquote(line, QUOTES_MAX);
        let (indent, text) = block::indent(inner);
        let start = block::start(text, indent);
        let lazy = quotes < self.quotes
            && matches!((&self.open, &start), (Open::Prose(_), Start::Text(_)));
        let stays = quotes == self.quotes || lazy;
        let free = !stays || (self.list == 0 && matches!(self.open, Open::Nothing));
        let code = free && indent >= block::CODE_INDENT;
        Opening { quotes, inner, indent, text, stays, code, start }
    }

    /// What only the line before explains: an underline, or a row of a table.
    fn continues(&mut self, text: &str, look: Look, out: &mut Out) -> bool {
        match &mut self.open {
            Open::Prose(prose) if prose.kind == Kind::Paragraph && !prose.source.is_empty() => {
                if prose.lines == 1 && prose.source.contains('|') && block::is_table_rule(text) {
                    let mut table = Table::default();
                    table.push(&prose.source, look.width, look.theme.code());
                    table.push(text, look.width, look.theme.code());
                    self.open = Open::Table(table);
                    return true;
                }
                if block::is_underline(text) {
                    prose.style = Style::BOLD;
                    self.close(look, out);
                    return true;
                }
            }
            Open::Table(table) if text.contains('|') => {
                let lines = table.push(text, look.width, look.theme.code());
                lines.into_iter().for_each(|line| self.print(line, out));
                return true;
            }
            _ => {}
        }
        false
    }

    fn begin(&mut self, start: Start<'_>, indent: usize, look: Look, out: &mut Out) {
        if let (Start::Text(text), Open::Prose(prose)) = (&start, &mut self.open)
            && prose.kind != Kind::Heading
        {
            prose.lines += 1;
            let text =
                if prose.source.is_empty() { (*text).to_owned() } else { format!(" {text}") };
            return self.grow(&text, look, out);
        }
        self.close(look, out);
        let depth = indent.min(INDENT_MAX);
        if !matches!(start, Start::Item { .. } | Start::Fence(_)) && indent < self.list.min(2) {
            self.list = 0;
        }
        let inner = if self.list == 0 { 0 } else { depth.min(self.list) };
        match start {
            Start::Fence(fence) => {
                out.jobs.push(Job::Begin(fence.language.clone()));
                self.open = Open::Fence(fence);
            }
            Start::Rule => {
                let rule = "─".repeat(look.width.min(RULE_COLUMNS_MAX));
                self.print(Line::styled(Shown::from(rule), Style::DIM), out);
            }
            Start::Heading { level, text } => {
                let style = Style { underline: level == 1, ..Style::BOLD };
                self.begin_prose(Kind::Heading, " ".repeat(inner), style, text, look, out);
            }
            Start::Item { marker, text } => {
                let first = format!("{}{marker} ", " ".repeat(depth));
                self.list = first.chars().count();
                if let Start::Fence(fence) = block::start(text, indent + self.list - depth) {
                    self.begin_prose(Kind::Item, first, Style::PLAIN, "", look, out);
                    return self.begin(Start::Fence(fence), indent, look, out);
                }
                self.begin_prose(Kind::Item, first, Style::PLAIN, text, look, out);
            }
            Start::Row(row) => {
                let mut table = Table::default();
                let lines = table.push(row, look.width, look.theme.code());
                self.open = Open::Table(table);
                lines.into_iter().for_each(|line| self.print(line, out));
            }
            Start::Text(text) => {
                self.begin_prose(Kind::Paragraph, " ".repeat(inner), Style::PLAIN, text, look, out);
            }
        }
    }

    fn begin_prose(
        &mut self,
        kind: Kind,
        first: String,
        style: Style,
        text: &str,
        look: Look,
        out: &mut Out,
    ) {
        let hang = first.chars().count();
        let prefix = Prefix { bars: self.quotes, first, hang };
        let source = String::new();
        self.open =
            Open::Prose(Prose { kind, prefix, style, source, lines: 1, cut_at: OPEN_BYTES_MAX });
        self.grow(text, look, out);
    }

    /// Adds to the open prose, and cuts it where it becomes too long.
    fn grow(&mut self, text: &str, look: Look, out: &mut Out) {
        let mut rest = text;
        while !rest.is_empty() {
            let Open::Prose(prose) = &mut self.open else { return };
            let room = prose.cut_at.saturating_sub(prose.source.len()).min(rest.len());
            let (part, after) = rest.split_at(rest.ceil_char_boundary(room));
            prose.source.push_str(part);
            rest = after;
            if prose.source.len() >= prose.cut_at {
                self.spill(look, out);
            }
        }
    }

    /// All but the last row of the open prose becomes finished. Where there is nothing to cut, as in one endless word,
    /// it may first grow to twice its length: so that what is looked at again and again stays in proportion.
    fn spill(&mut self, look: Look, out: &mut Out) {
        let Open::Prose(prose) = &mut self.open else { return };
        let mut rows = prose.rows(look);
        if let Some(last) =
            rows.iter().skip(1).rposition(|row| row.cut.is_some()).map(|index| index + 1)
            && let Some(cut) = rows[last].cut.take()
        {
            prose.source = cut.reopen + &prose.source[cut.at..];
            prose.prefix.first = " ".repeat(prose.prefix.hang);
            prose.lines += 1;
            rows.truncate(last);
        } else {
            rows.clear();
        }
        prose.cut_at = OPEN_BYTES_MAX.max(2 * prose.source.len());
        rows.into_iter().for_each(|row| self.print(row.line, out));
    }

    /// Of prose that could not be cut, only the end is looked at.
    fn keep_end(&mut self) {
        if let Open::Prose(prose) = &mut self.open {
            let from = prose.source.len().saturating_sub(OPEN_BYTES_MAX);
            prose.source.drain(..prose.source.ceil_char_boundary(from));
        }
    }

    /// A line has ended: a heading with it, and a row where the line says so.
    fn end_line(&mut self, look: Look, out: &mut Out) {
        let Open::Prose(prose) = &mut self.open else { return };
        let text = prose.source.trim_end();
        let broken = prose.source.len() - text.len() >= 2
            || (text.ends_with('\\') && !text.ends_with("\\\\"));
        let length = if text.ends_with('\\') && broken { text.len() - 1 } else { text.len() };
        prose.source.truncate(length);
        if prose.kind == Kind::Heading {
            let text = prose.source.trim_end_matches('#');
            if text.is_empty() || text.ends_with(' ') {
                prose.source.truncate(text.trim_end().len());
            }
            self.close(look, out);
        } else if broken && !prose.source.is_empty() {
            let (kind, hang, style) = (prose.kind, prose.prefix.hang, prose.style);
            self.close(look, out);
            self.begin_prose(kind, " ".repeat(hang), style, "", look, out);
        }
    }

    fn close(&mut self, look: Look, out: &mut Out) {
        match mem::take(&mut self.open) {
            Open::Prose(prose) => {
                let empty = prose.source.trim().is_empty() && prose.prefix.first.trim().is_empty();
                if !empty {
                    prose.rows(look).into_iter().for_each(|row| self.print(row.line, out));
                }
            }
            Open::Table(mut table) => {
                let lines = table.flush(look.width, look.theme.code());
                lines.into_iter().for_each(|line| self.print(line, out));
            }
            Open::Fence(_) | Open::Nothing => {}
        }
    }

    fn code(&mut self, text: String, out: &mut Out) {
        self.print(Line::plain(Shown::from(text.as_str())), out);
        if matches!(self.open, Open::Fence(_)) {
            out.places.push(out.lines.len() - 1);
            out.jobs.push(Job::Line(text));
        }
    }

    fn print(&mut self, line: Line, out: &mut Out) {
        if mem::take(&mut self.blank) {
            out.lines.push(Line::default());
        }
        self.begun = true;
        out.lines.push(line);
    }

    /// Whether a line that begins so goes on as prose.
    fn is_prose(&self, line: &str) -> bool {
        let place = self.place(line);
        let prose = match place.start {
            Start::Text(_) | Start::Heading { .. } => true,
            Start::Item { text, .. } => !matches!(block::start(text, 0), Start::Fence(_)),
            Start::Fence(_) | Start::Rule | Start::Row(_) => false,
        };
        prose && !place.code && !matches!(self.open, Open::Fence(_) | Open::Table(_))
    }
}

impl Prose {
    fn rows(&self, look: Look) -> Vec<Row> {
        let words = inline::words(&self.source, self.style, look.theme.code());
        wrap::rows(&words, &self.prefix, (look.wrap == Wrap::Word).then_some(look.width))
    }
}

fn start_of(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// How much was parsed, for the tests that hold it in proportion.
#[cfg(test)]
mod work {
    use std::cell::Cell;

    thread_local!(static BYTES: Cell<usize> = const { Cell::new(0) });

    pub(super) fn count(bytes: usize) {
        BYTES.set(BYTES.get() + bytes);
    }

    pub(super) fn bytes() -> usize {
        BYTES.get()
    }
}
