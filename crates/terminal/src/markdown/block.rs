//! What one line of Markdown begins, goes on with or ends.

/// A line of code begins after this many columns.
pub(super) const CODE_INDENT: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start<'a> {
    Fence(Fence),
    Heading { level: usize, text: &'a str },
    Item { marker: String, text: &'a str },
    Rule,
    Row(&'a str),
    Text(&'a str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    mark: char,
    length: usize,
    pub indent: usize,
    pub language: String,
}

/// What a line begins, read without what is before it. It has no indent.
pub(super) fn start(line: &str, indent: usize) -> Start<'_> {
    if let Some(fence) = Fence::open(line, indent) {
        return Start::Fence(fence);
    }
    if is_rule(line) {
        return Start::Rule;
    }
    let level = line.len() - line.trim_start_matches('#').len();
    let after = &line[level..];
    if (1..=6).contains(&level) && (after.is_empty() || after.starts_with([' ', '\t'])) {
        return Start::Heading { level, text: after.trim_start() };
    }
    if let Some((marker, text)) = item(line) {
        return Start::Item { marker, text };
    }
    if line.starts_with('|') { Start::Row(line) } else { Start::Text(line) }
}

/// The depth of a quote, and what is quoted.
pub(super) fn unquote(line: &str, depth_max: usize) -> (usize, &str) {
    let (mut depth, mut rest) = (0, line);
    while depth < depth_max {
        let Some(inner) = unindented(rest).strip_prefix('>') else { break };
        depth += 1;
        rest = inner.strip_prefix(' ').unwrap_or(inner);
    }
    (depth, rest)
}

/// Columns of blanks before it, and what follows.
pub(super) fn indent(line: &str) -> (usize, &str) {
    let text = line.trim_start_matches([' ', '\t']);
    let blanks = &line[..line.len() - text.len()];
    (blanks.chars().map(|c| if c == '\t' { CODE_INDENT } else { 1 }).sum(), text)
}

/// Without this many columns of blanks, or as many as there are.
pub(super) fn outdent(line: &str, columns: usize) -> &str {
    let (mut rest, mut left) = (line, columns);
    while left > 0 {
        let Some(after) = rest.strip_prefix([' ', '\t']) else { break };
        left = left.saturating_sub(if rest.starts_with('\t') { CODE_INDENT } else { 1 });
        rest = after;
    }
    rest
}

/// It makes a heading of the text above it.
pub(super) fn is_underline(line: &str) -> bool {
    let line = line.trim_end();
    !line.is_empty() && (line.bytes().all(|b| b == b'=') || line.bytes().all(|b| b == b'-'))
}

/// It makes a table of the line above it.
pub(super) fn is_table_rule(line: &str) -> bool {
    line.contains('-') && line.contains('|') && line.bytes().all(|b| b"|-: \t".contains(&b))
}

/// Whether it may still become something else than text, so that it is not shown yet.
pub(super) fn is_undecided(line: &str) -> bool {
    line.chars().all(|c| "-=`#*|~>+_: \t".contains(c))
}

fn unindented(line: &str) -> &str {
    let (columns, text) = indent(line);
    if columns < CODE_INDENT { text } else { line }
}

fn is_rule(line: &str) -> bool {
    let mut marks = line.chars().filter(|c| !matches!(c, ' ' | '\t'));
    let Some(first @ ('-' | '*' | '_')) = marks.next() else { return false };
    let mut length = 1;
    marks.all(|c| {
        length += 1;
        c == first
    }) && length >= 3
}

fn item(line: &str) -> Option<(String, &str)> {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let length = match digits {
        0 if line.starts_with(['-', '*', '+']) => 1,
        1..=9 if line[digits..].starts_with(['.', ')']) => digits + 1,
        _ => return None,
    };
    let (marker, after) = line.split_at(length);
    if !after.is_empty() && !after.starts_with([' ', '\t']) {
        return None;
    }
    let marker = if digits == 0 { "•".into() } else { marker.to_owned() };
    Some((marker, after.trim_start()))
}

impl Fence {
    fn open(line: &str, indent: usize) -> Option<Self> {
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = line.trim_start_matches(mark);
        let length = line.len() - info.len();
        if length < 3 || (mark == '`' && info.contains('`')) {
            return None;
        }
        let word = info.split([' ', '\t', ',', '{', '}']).find(|word| !word.is_empty());
        Some(Self { mark, length, indent, language: word.unwrap_or_default().to_owned() })
    }

    pub(super) fn is_closed_by(&self, line: &str) -> bool {
        let (columns, text) = indent(line);
        let after = text.trim_start_matches(self.mark);
        columns < self.indent + CODE_INDENT
            && text.len() - after.len() >= self.length
            && after.trim().is_empty()
    }
}
