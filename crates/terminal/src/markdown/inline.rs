//! What stands inside a block of prose, as words in their styles.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::links;
use crate::style::Style;

/// What is never broken. Its pieces stand side by side.
#[derive(Debug)]
pub(super) struct Word {
    pub pieces: Vec<Piece>,
    pub width: usize,
    /// A blank stands before it.
    pub gap: bool,
    /// Absent where the text cannot be cut, as within a link.
    pub cut: Option<Cut>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub text: String,
    pub style: Style,
    pub link: Option<String>,
}

/// How the source goes on from a word when what is before it is gone.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    pub at: usize,
    /// The marks of emphasis that are open there.
    pub reopen: String,
}

/// It stands before each text that is parsed: what follows a word can only be the inside of a paragraph.
const GUARD: &str = "x ";

/// The words of a source that is one line.
pub(super) fn words(source: &str, base: Style, code: Style) -> Vec<Word> {
    #[cfg(test)]
    super::work::count(source.len());
    let guarded = format!("{GUARD}{source}");
    let mut writer = Writer { base, source: &guarded, ..Writer::default() };
    for (event, range) in Parser::new_ext(&guarded, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(Tag::Strong) => writer.open(range.start, 2),
            Event::Start(Tag::Emphasis) => writer.open(range.start, 1),
            Event::End(TagEnd::Strong | TagEnd::Emphasis) => {
                writer.marks.pop();
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                writer.links.push(Link { address: dest_url, text: String::new() });
            }
            Event::End(TagEnd::Link | TagEnd::Image) => writer.close_link(),
            Event::Text(text) => {
                let exact = text.len() == range.len();
                writer.text(&text, range.start, exact);
            }
            Event::Code(text) => writer.code(&text, range.start, code),
            Event::Html(text) | Event::InlineHtml(text) => writer.text(&text, range.start, true),
            Event::SoftBreak | Event::HardBreak => writer.gap = true,
            _ => {}
        }
    }
    let mut words = writer.words;
    if !words.is_empty() {
        words.remove(0);
    }
    words
}

/// A source that is still being written, with the marks that will close what is open: so that text does not change its look
/// when they come.
pub(super) fn closed(source: &str) -> String {
    let source = source.trim_end();
    let (mut strong, mut rest) = (false, source);
    while let Some(at) = rest.find(['\\', '`', '*']) {
        rest = &rest[at..];
        if rest.starts_with('\\') {
            rest = rest.get(2..).unwrap_or_default();
        } else if rest.starts_with('`') {
            let inside = rest.trim_start_matches('`');
            let run = &rest[..rest.len() - inside.len()];
            let Some(end) = end_of_code(inside, run.len()) else {
                let code = if inside.is_empty() { "" } else { run };
                return format!("{source}{code}{}", if strong { "**" } else { "" });
            };
            rest = &inside[end..];
        } else if let Some(after) = rest.strip_prefix("**") {
            strong = !strong && after.starts_with(|c: char| !c.is_whitespace());
            rest = after;
        } else {
            rest = &rest[1..];
        }
    }
    let half = source.ends_with('*') && !source.ends_with("**");
    let marks = match (strong, half) {
        (true, true) => "*",
        (true, false) => "**",
        (false, _) => "",
    };
    format!("{source}{marks}")
}

/// Where the code ends that so many marks began.
fn end_of_code(inside: &str, marks: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = inside[from..].find('`') {
        let start = from + at;
        let after = inside[start..].trim_start_matches('`');
        from = inside.len() - after.len();
        if from - start == marks {
            return Some(from);
        }
    }
    None
}

#[derive(Default)]
struct Writer<'a> {
    source: &'a str,
    base: Style,
    words: Vec<Word>,
    gap: bool,
    /// Open emphasis, each as it is written.
    marks: Vec<&'a str>,
    links: Vec<Link<'a>>,
}

struct Link<'a> {
    address: CowStr<'a>,
    text: String,
}

impl<'a> Writer<'a> {
    fn open(&mut self, at: usize, length: usize) {
        self.marks.push(self.source.get(at..at + length).unwrap_or_default());
    }

    fn style(&self) -> Style {
        Style {
            bold: self.base.bold || self.marks.iter().any(|mark| mark.len() == 2),
            italic: self.base.italic || self.marks.iter().any(|mark| mark.len() == 1),
            underline: self.base.underline || !self.links.is_empty(),
            ..self.base
        }
    }

    fn text(&mut self, text: &str, start: usize, exact: bool) {
        if let Some(link) = self.links.last_mut() {
            link.text.push_str(text);
        }
        let style = self.style();
        let mut rest = text;
        while !rest.is_empty() {
            let blank = |c: char| matches!(c, ' ' | '\t' | '\n');
            let run = &rest[..rest.find(blank).unwrap_or(rest.len())];
            let mut from = if exact { start + text.len() - rest.len() } else { start };
            for part in breakable(run) {
                self.add(part, style, from);
                from += if exact { part.text.len() } else { 0 };
            }
            rest = &rest[run.len()..];
            let after = rest.trim_start_matches(blank);
            self.gap |= after.len() < rest.len();
            rest = after;
        }
    }

    fn code(&mut self, text: &str, start: usize, code: Style) {
        if let Some(link) = self.links.last_mut() {
            link.text.push_str(text);
        }
        let style =
            Style { colour: code.colour, bold: code.bold || self.style().bold, ..self.style() };
        self.add(Part { text, breaks: false }, style, start);
    }

    /// A text that differs from its address is followed by it, since a click must not lead where nobody expects.
    fn close_link(&mut self) {
        let Some(link) = self.links.last() else { return };
        let address = link.address.replace(['\n', '\t'], " ");
        if link.text.trim() != address.trim() && !address.is_empty() {
            self.gap = true;
            let style = Style { underline: self.base.underline, ..self.style() }.dim();
            self.add(Part { text: &format!("({address})"), breaks: false }, style, 0);
        }
        self.links.pop();
    }

    fn add(&mut self, part: Part<'_>, style: Style, from: usize) {
        let link = self
            .links
            .last()
            .map(|link| link.address.as_ref())
            .filter(|address| leads_to_the_web(address) || links::may_be_file(address));
        let piece = Piece { text: part.text.to_owned(), style, link: link.map(str::to_owned) };
        let width = part.text.width();
        let gap = std::mem::take(&mut self.gap);
        match self.words.last_mut() {
            Some(word) if !gap && !part.breaks => {
                word.width += width;
                word.pieces.push(piece);
            }
            _ => {
                let cut = self.cut(from);
                self.words.push(Word { pieces: vec![piece], width, gap, cut });
            }
        }
    }

    fn cut(&self, from: usize) -> Option<Cut> {
        if !self.links.is_empty() {
            return None;
        }
        let escaped = from > 0 && self.source.as_bytes().get(from - 1) == Some(&b'\\');
        let at = (from - usize::from(escaped)).checked_sub(GUARD.len())?;
        Some(Cut { at, reopen: self.marks.concat() })
    }
}

#[derive(Clone, Copy)]
struct Part<'a> {
    text: &'a str,
    /// A row may begin with it, although no blank is before it.
    breaks: bool,
}

/// Scripts without blanks are broken between their characters, but not before a mark that ends something.
fn breakable(run: &str) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let (mut from, mut wide_before, mut breaks) = (0, false, false);
    if !run.is_ascii() {
        for (at, cluster) in run.grapheme_indices(true) {
            let wide = cluster.width() > 1;
            let ends = cluster.starts_with([
                '、', '。', '，', '．', '！', '？', '：', '；', '）', '」', '』', '】', '》', '〉',
                '〕', 'ー', '.', ',', '!', '?', ':', ';', ')', ']',
            ]);
            if at > 0 && (wide || wide_before) && !ends {
                parts.push(Part { text: &run[from..at], breaks });
                (from, breaks) = (at, true);
            }
            wide_before = wide;
        }
    }
    if from < run.len() {
        parts.push(Part { text: &run[from..], breaks });
    }
    parts
}

fn leads_to_the_web(address: &str) -> bool {
    let web = |scheme: &str| {
        address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    (web("https://") || web("http://"))
        && !address.contains(|c: char| c.is_whitespace() || c.is_control())
}
