//! Makes foreign text harmless as it comes, in pieces of any size.

use std::fmt::Write as _;
use std::mem;

use nexus_protocol::hidden::is_hidden;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthChar as _;

/// Longest sequence that is held back until it is whole. A longer one is shown as it is written.
pub const HELD_BYTES_MAX: usize = 4096;

/// Marks that may stand on one character. More of them would be drawn over other lines.
const MARKS_MAX: usize = 8;

const ESCAPE: char = '\u{1b}';
const CSI: char = '\u{9b}';
const JOINER: char = '\u{200d}';
const EMOJI_SELECTOR: char = '\u{fe0f}';
const KEYCAP: char = '\u{20e3}';

/// Colours (SGR) are dropped; every other control character is made visible, and so an escape sequence is only text.
/// A return before a line end goes, any other is visible: it would let a text write over itself. What comes out is the
/// same wherever the text is cut into pieces.
#[derive(Debug, Default)]
pub struct Sieve {
    held: Held,
    /// What a mark, selector or joiner would belong to; none at the start of a line.
    base: Option<char>,
    /// Marks that stand on it.
    marks: usize,
    /// It has its selector.
    selected: bool,
}

/// What cannot be judged before more has come.
#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Return,
    Escape,
    /// A control sequence without its last byte.
    Sequence(String),
    /// After an emoji.
    Joiner,
    /// After a digit, which a keycap may follow.
    Selector,
}

impl Sieve {
    /// What is harmless so far.
    pub fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let familiar = match self.held {
                Held::Nothing => {
                    rest.bytes().position(|b| !matches!(b, b' '..=b'~' | b'\n' | b'\t'))
                }
                _ => Some(0),
            };
            let length = familiar.unwrap_or(rest.len());
            if length == 0 {
                self.step(c, &mut out);
                rest = &rest[c.len_utf8()..];
                continue;
            }
            let (run, after) = rest.split_at(length);
            out.push_str(run);
            self.stand_on(run.chars().next_back());
            rest = after;
        }
        out
    }

    /// What was held back. The next text is another.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.release(&mut out);
        *self = Self::default();
        out
    }

    fn step(&mut self, c: char, out: &mut String) {
        match &mut self.held {
            Held::Nothing => return self.judge(c, out),
            Held::Return if c == '\n' => {
                self.held = Held::Nothing;
                return self.judge(c, out);
            }
            Held::Escape if c == '[' => {
                self.held = Held::Sequence("\u{1b}[".into());
                return;
            }
            Held::Sequence(sequence) => match c {
                ' '..='?' if sequence.len() + 1 < HELD_BYTES_MAX => return sequence.push(c),
                'm' if is_colour(sequence) => {
                    self.held = Held::Nothing;
                    return;
                }
                _ => {}
            },
            Held::Joiner if is_pictograph(c) => {
                self.held = Held::Nothing;
                out.push(JOINER);
                return self.judge(c, out);
            }
            Held::Selector if c == KEYCAP => {
                self.held = Held::Nothing;
                out.push(EMOJI_SELECTOR);
                self.selected = true;
                return self.judge(c, out);
            }
            _ => {}
        }
        self.release(out);
        self.judge(c, out);
    }

    fn judge(&mut self, c: char, out: &mut String) {
        match c {
            '\r' => self.held = Held::Return,
            ESCAPE => self.held = Held::Escape,
            CSI => self.held = Held::Sequence(CSI.into()),
            '\n' | '\t' => {
                out.push(c);
                self.stand_on(Some(c));
            }
            JOINER if self.base.is_some_and(is_pictograph) => self.held = Held::Joiner,
            '\u{fe0e}' | EMOJI_SELECTOR
                if !self.selected && self.base.is_some_and(is_pictograph) =>
            {
                out.push(c);
                self.selected = true;
            }
            EMOJI_SELECTOR
                if !self.selected && matches!(self.base, Some('0'..='9' | '#' | '*')) =>
            {
                self.held = Held::Selector;
            }
            '\u{1f3fb}'..='\u{1f3ff}' if self.base.is_some_and(is_pictograph) => out.push(c),
            _ if c.is_control() || is_hidden(c) => self.show(c, out),
            _ if c.width() == Some(0) => {
                if self.base.is_none() || self.marks == MARKS_MAX {
                    return self.show(c, out);
                }
                out.push(c);
                self.marks += 1;
            }
            _ => {
                out.push(c);
                self.stand_on(Some(c));
            }
        }
    }

    fn release(&mut self, out: &mut String) {
        match mem::take(&mut self.held) {
            Held::Nothing => {}
            Held::Return => self.show('\r', out),
            Held::Escape => self.show(ESCAPE, out),
            Held::Sequence(sequence) => {
                for c in sequence.chars() {
                    if c.is_control() {
                        self.show(c, out);
                    } else {
                        out.push(c);
                        self.stand_on(Some(c));
                    }
                }
            }
            Held::Joiner => self.show(JOINER, out),
            Held::Selector => self.show(EMOJI_SELECTOR, out),
        }
    }

    /// Writes what cannot be seen, or does something, as what it is.
    fn show(&mut self, c: char, out: &mut String) {
        let picture = match c {
            '\0'..='\u{1f}' => char::from_u32(u32::from(c) + 0x2400),
            '\u{7f}' => Some('\u{2421}'),
            _ => None,
        };
        match picture {
            Some(picture) => out.push(picture),
            None => {
                let _ = write!(out, "<U+{:04X}>", u32::from(c));
            }
        }
        self.stand_on(Some(picture.unwrap_or('>')));
    }

    fn stand_on(&mut self, c: Option<char>) {
        self.base = c.filter(|c| !matches!(c, '\n' | '\t'));
        self.marks = 0;
        self.selected = false;
    }
}

/// Only `CSI … m` without a private mark sets colours; with one it sets modes of the keyboard.
fn is_colour(sequence: &str) -> bool {
    sequence
        .trim_start_matches([ESCAPE, '[', CSI])
        .bytes()
        .all(|b| matches!(b, b'0'..=b'9' | b';' | b':'))
}

/// By the rule of Unicode that a joiner joins pictographs only, so that no table of them is kept here.
fn is_pictograph(c: char) -> bool {
    let mut joined = String::from(c);
    joined.push_str("\u{200d}\u{231a}");
    !c.is_ascii() && joined.graphemes(true).count() == 1
}
