//! What is written to the terminal. Finished lines are plain output and belong to the terminal; only the live part, the
//! last rows, is drawn again. Everything moves relative to the cursor, so nothing is asked of the emulator.

use std::fmt::Write as _;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::style::{Colour, Line, Style, TAB};

/// The live part as it is to stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    pub rows: Vec<Line>,
    /// Row, and columns before the caret in it.
    pub caret: (usize, usize),
}

/// What an emulator does with its lines when its width changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflow {
    /// They stay as they are.
    None,
    /// It breaks them anew, and the cursor stays with its character.
    All,
    /// As xterm.js: the cursor's own row is not broken, and a row that is broken below moves the cursor down. So nothing
    /// should stand below it.
    Above,
}

/// Makes bytes of what is to be seen, and knows what is.
pub struct Screen {
    width: usize,
    colours: bool,
    reflow: Reflow,
    drawn: Live,
    /// The width for which it was drawn.
    drawn_width: usize,
}

const BEGIN: &str = "\x1b[?2026h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?2026l";
/// From the start of this row to the end of the screen. Not by one sequence: tmux takes the whole screen for cleared when
/// that comes from its first cell, and keeps what was there in its scrollback.
const ERASE: &str = "\r\x1b[K\x1b[C\x1b[J\r";
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";
const SAVE: &str = "\x1b7";
const RESTORE: &str = "\x1b8";

impl Screen {
    pub fn new(width: usize, colours: bool, reflow: Reflow) -> Self {
        let drawn = Live::default();
        Self { width: width.max(1), colours, reflow, drawn, drawn_width: width.max(1) }
    }

    pub fn reflow(&self) -> Reflow {
        self.reflow
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn set_colours(&mut self, colours: bool) {
        self.colours = colours;
    }

    /// The emulator has another width now. What is drawn is drawn anew with the next frame.
    pub fn resize(&mut self, width: usize) {
        self.width = width.max(1);
    }

    /// Prints finished lines above the live part, and draws that as it is now. Nothing when nothing changed.
    pub fn frame(&mut self, finished: &[Line], live: Live) -> String {
        let is_same_place = finished.is_empty()
            && self.drawn_width == self.width
            && self.drawn.rows.len() == live.rows.len()
            && !live.rows.is_empty();
        if is_same_place && self.drawn == live {
            return String::new();
        }
        let mut out = String::with_capacity(1024);
        out.push_str(BEGIN);
        if is_same_place {
            self.redraw(&mut out, &live);
        } else {
            self.erase_into(&mut out);
            for line in finished {
                encode(&mut out, line, self.colours);
                out.push_str("\r\n");
            }
            self.draw(&mut out, &live);
        }
        out.push_str(END);
        self.drawn = live;
        self.drawn_width = self.width;
        out
    }

    /// Takes the live part away; the cursor stands where it began.
    pub fn erase(&mut self) -> String {
        let mut out = String::new();
        self.erase_into(&mut out);
        self.drawn = Live::default();
        out
    }

    /// Forgets what is drawn, as after another program had the screen.
    pub fn forget(&mut self) {
        self.drawn = Live::default();
    }

    fn erase_into(&self, out: &mut String) {
        let up = self.rows_above();
        if up > 0 {
            let _ = write!(out, "\x1b[{up}A");
        }
        out.push_str(ERASE);
    }

    /// How many rows of the live part are above the cursor, as the emulator has them now.
    fn rows_above(&self) -> usize {
        let (row, column) = self.drawn.caret;
        if self.reflow == Reflow::None || self.drawn_width == self.width {
            return row;
        }
        let broken = |line: &Line| line.width().min(self.drawn_width).div_ceil(self.width).max(1);
        let above: usize = self.drawn.rows.iter().take(row).map(broken).sum();
        match self.reflow {
            Reflow::Above => above,
            _ => above + column.min(self.drawn_width.saturating_sub(1)) / self.width,
        }
    }

    /// Draws all rows, the cursor being where the first belongs.
    fn draw(&self, out: &mut String, live: &Live) {
        let below = live.rows.len().saturating_sub(1);
        // Room first: what scrolls later would move the place of the caret.
        for _ in 0..below {
            out.push('\n');
        }
        if below > 0 {
            let _ = write!(out, "\x1b[{below}A");
        }
        out.push('\r');
        out.push_str(WRAP_OFF);
        for (row, line) in live.rows.iter().enumerate() {
            if row > 0 {
                out.push_str("\r\n");
            }
            self.row(out, line, (row == live.caret.0).then_some(live.caret.1));
        }
        out.push_str(RESTORE);
        out.push_str(WRAP_ON);
    }

    /// Writes the rows that changed, each at its place.
    fn redraw(&self, out: &mut String, live: &Live) {
        out.push_str(WRAP_OFF);
        let mut at = self.drawn.caret.0;
        for (row, (line, old)) in live.rows.iter().zip(&self.drawn.rows).enumerate() {
            let has_caret = row == live.caret.0;
            if line == old && !has_caret {
                continue;
            }
            step(out, at, row);
            at = row;
            out.push('\r');
            self.row(out, line, has_caret.then_some(live.caret.1));
            out.push_str("\x1b[K");
        }
        out.push_str(RESTORE);
        out.push_str(WRAP_ON);
    }

    /// One row, cut at the width; the place of the caret is kept while it is written.
    fn row(&self, out: &mut String, line: &Line, caret: Option<usize>) {
        let mut column = 0;
        let mut caret = caret.map(|caret| caret.min(self.width - 1));
        let mut pen = Pen::new(self.colours);
        'row: for span in &line.spans {
            pen.dip(out, span.style, span.text.as_str());
            for grapheme in span.text.as_str().graphemes(true) {
                if caret.is_some_and(|caret| column >= caret) {
                    out.push_str(SAVE);
                    caret = None;
                }
                let blank = TAB - column % TAB;
                let width = if grapheme == "\t" { blank } else { grapheme.width() };
                if column + width > self.width {
                    column = self.width;
                    break 'row;
                }
                match grapheme {
                    "\t" => out.extend(std::iter::repeat_n(' ', blank)),
                    "\n" | "\r\n" => out.push(' '),
                    _ => out.push_str(grapheme),
                }
                column += width;
            }
        }
        pen.take(out, Style::default());
        if let Some(caret) = caret {
            // Beyond the text: blanks lead there.
            let blanks = caret.saturating_sub(column);
            out.extend(std::iter::repeat_n(' ', blanks));
            out.push_str(SAVE);
        }
    }
}

fn step(out: &mut String, from: usize, to: usize) {
    if to > from {
        let _ = write!(out, "\x1b[{}B", to - from);
    } else if from > to {
        let _ = write!(out, "\x1b[{}A", from - to);
    }
}

/// A finished line as it is printed: never broken by us, so that what is copied is what was said.
pub fn encode(out: &mut String, line: &Line, colours: bool) {
    let mut pen = Pen::new(colours);
    for span in &line.spans {
        let link = span.link.as_ref().filter(|_| colours);
        if let Some(link) = link {
            let _ = write!(out, "\x1b]8;id={};{}\x1b\\", id(link.as_str()), link.as_str());
        }
        pen.dip(out, span.style, span.text.as_str());
        // A line end inside would be a line that nobody asked for.
        out.extend(span.text.as_str().chars().map(|c| if c == '\n' { ' ' } else { c }));
        if link.is_some() {
            out.push_str("\x1b]8;;\x1b\\");
        }
    }
    pen.take(out, Style::default());
}

/// Parts of one link have one id, so that an emulator marks them together.
fn id(link: &str) -> u32 {
    link.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// How the next letter looks to the terminal.
struct Pen {
    colours: bool,
    style: Style,
}

impl Pen {
    /// As lines begin and end: nothing is set.
    fn new(colours: bool) -> Self {
        Self { colours, style: Style::default() }
    }

    /// Says how `text` looks, where it looks different.
    fn dip(&mut self, out: &mut String, style: Style, text: &str) {
        // Blanks have no colour.
        let is_blank = text.bytes().all(|byte| byte == b' ');
        let shows = |style: Style| style.underline || style.reverse;
        if !is_blank || shows(style) || shows(self.style) {
            self.take(out, style);
        }
    }

    fn take(&mut self, out: &mut String, style: Style) {
        let style = match self.colours {
            true => style,
            false => Style { dim: false, italic: false, colour: None, ..style },
        };
        let before = std::mem::replace(&mut self.style, style);
        if before == style {
            return;
        }
        let mut codes = codes(style);
        if let (Some(colour), true) =
            (style.colour, Style { colour: before.colour, ..style } == before)
        {
            codes = format!(";{}", number(colour));
        } else if before != Style::default() {
            // Nothing, then what is to be.
            codes.insert_str(0, if codes.is_empty() { ";" } else { ";0" });
        }
        let _ = write!(out, "\x1b[{}m", &codes[1..]);
    }
}

fn codes(style: Style) -> String {
    let mut codes = String::new();
    let flags = [
        (style.bold, 1),
        (style.underline, 4),
        (style.reverse, 7),
        (style.dim, 2),
        (style.italic, 3),
    ];
    let flags = flags.into_iter().filter_map(|(is_set, code)| is_set.then_some(code));
    for code in flags.chain(style.colour.map(number)) {
        let _ = write!(codes, ";{code}");
    }
    codes
}

fn number(colour: Colour) -> u32 {
    match colour {
        Colour::Black => 30,
        Colour::Red => 31,
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Blue => 34,
        Colour::Magenta => 35,
        Colour::Cyan => 36,
        Colour::White => 37,
        Colour::BrightBlack => 90,
        Colour::BrightRed => 91,
        Colour::BrightGreen => 92,
        Colour::BrightYellow => 93,
        Colour::BrightBlue => 94,
        Colour::BrightMagenta => 95,
        Colour::BrightCyan => 96,
        Colour::BrightWhite => 97,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|text| Line::plain(*text)).collect()
    }

    fn emulator(rows: u16, columns: u16, scrollback: usize) -> vt100::Parser {
        vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), scrollback)
    }

    fn live(texts: &[&str], caret: (usize, usize)) -> Live {
        Live { rows: lines(texts), caret }
    }

    /// Everything that was ever on the screen, oldest first, without empty rows at the end.
    fn everything(emulator: &mut vt100::Parser) -> Vec<String> {
        let (rows, width) = emulator.screen().size();
        let (rows, width) = (u16::from(rows), u16::from(width));
        emulator.screen_mut().set_scrollback(usize::MAX);
        let above = emulator.screen().scrollback();
        let mut all = Vec::new();
        for back in (1..=above).rev() {
            emulator.screen_mut().set_scrollback(back);
            all.extend(emulator.screen().rows(0, width).next());
        }
        emulator.screen_mut().set_scrollback(0);
        all.extend(emulator.screen().rows(0, width).take(usize::from(rows)));
        while all.last().is_some_and(String::is_empty) {
            all.pop();
        }
        all
    }

    #[test]
    fn finished_lines_stay_and_the_live_part_is_below_them() {
        let mut emulator = emulator(6, 20, 1_000);
        let mut screen = Screen::new(20, true, Reflow::None);
        let mut finished = Vec::new();
        for number in 0..50 {
            let text = format!("line {number}");
            let rows: &[&str] =
                if number % 3 == 0 { &["api> x", "status"] } else { &["w", "api> x", "s"] };
            emulator.process(
                screen.frame(&lines(&[&text]), live(rows, (rows.len() - 2, 6))).as_bytes(),
            );
            finished.push(text);
        }
        let all = everything(&mut emulator);
        assert_eq!(all[..50], finished);
        assert_eq!(all[50..], ["w", "api> x", "s"]);
        assert_eq!(emulator.screen().cursor_position(), (4, 6));
        emulator.process(screen.erase().as_bytes());
        assert_eq!(everything(&mut emulator), finished);
    }

    #[test]
    fn what_did_not_change_is_not_written() {
        let mut screen = Screen::new(40, true, Reflow::None);
        screen.frame(&[], live(&["one", "in> ", "three"], (1, 4)));
        assert_eq!(screen.frame(&[], live(&["one", "in> ", "three"], (1, 4))), "");
        let echo = screen.frame(&[], live(&["one", "in> a", "three"], (1, 5)));
        assert!(!echo.contains("one") && !echo.contains("three"), "{echo:?}");
        assert!(echo.len() < 80, "{echo:?}");
    }

    #[test]
    fn a_row_is_cut_and_a_finished_line_is_not() {
        let mut emulator = emulator(8, 10, 100);
        let mut screen = Screen::new(10, true, Reflow::None);
        let long = "0123456789abcdef";
        emulator.process(screen.frame(&lines(&[long]), live(&[long, "in> "], (1, 4))).as_bytes());
        assert_eq!(everything(&mut emulator), ["0123456789", "abcdef", "0123456789", "in> "]);
        assert_eq!(emulator.screen().cursor_position(), (3, 4));
    }

    #[test]
    fn wide_characters_are_never_cut_in_two() {
        let mut emulator = emulator(4, 5, 100);
        let mut screen = Screen::new(5, true, Reflow::None);
        emulator.process(screen.frame(&[], live(&["日本語", "x"], (1, 1))).as_bytes());
        assert_eq!(everything(&mut emulator), ["日本", "x"]);
    }

    #[test]
    fn without_colours_only_weight_is_left() {
        let line = Line::styled("a", Style::colour(Colour::Red).bold().dim());
        let (mut with, mut without) = (String::new(), String::new());
        encode(&mut with, &line, true);
        encode(&mut without, &line, false);
        assert_eq!(with, "\x1b[1;2;31ma\x1b[m");
        assert_eq!(without, "\x1b[1ma\x1b[m");
    }

    #[test]
    fn nothing_that_loses_scrollback_is_ever_written() {
        let mut screen = Screen::new(20, true, Reflow::All);
        let mut all = String::new();
        for number in 0..100 {
            screen.resize(5 + number % 30);
            all += &screen.frame(&lines(&["x"]), live(&["abcdefghij", "in> "], (1, 4)));
            all += &screen.erase();
        }
        for forbidden in
            ["\x1b[2J", "\x1b[3J", "\x1b[?1049", "\x1b[?47", "\x1b[S", "\x1b[6n", "\x1b[c"]
        {
            assert!(!all.contains(forbidden), "{forbidden:?}");
        }
        // No scroll region either: `CSI … r`.
        assert!(!all.split("\x1b[").any(|rest| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('r')
        }));
    }

    proptest! {
        /// Whatever is drawn and printed in whatever order: each finished line once, in order, and the caret in its row.
        #[test]
        fn every_finished_line_stands_once(steps in proptest::collection::vec((0_usize..4, 1_usize..5, 0_usize..12), 1..60)) {
            let mut emulator = emulator(8, 30, 10_000);
            let mut screen = Screen::new(30, true, Reflow::None);
            let mut finished = Vec::new();
            for (count, rows, column) in steps {
                let new: Vec<Line> = (0..count).map(|_| {
                    finished.push(format!("finished {}", finished.len()));
                    Line::plain(finished.last().unwrap().as_str())
                }).collect();
                let rows: Vec<Line> = (0..rows).map(|row| Line::plain(format!("live {row} {column}"))).collect();
                let caret = (rows.len() - 1, column);
                emulator.process(screen.frame(&new, Live { rows, caret }).as_bytes());
                prop_assert_eq!(emulator.screen().cursor_position().1, column as u16);
            }
            let all = everything(&mut emulator);
            let printed: Vec<_> = all.iter().filter(|row| row.starts_with("finished")).cloned().collect();
            prop_assert_eq!(printed, finished);
            let drawn = all.iter().filter(|row| row.starts_with("live")).count();
            prop_assert_eq!(drawn, screen.drawn.rows.len());
        }
    }
}
