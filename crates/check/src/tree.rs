//! Languages that are read by tree-sitter's grammars. A grammar goes on behind what it cannot read, and marks it; here the
//! marks become sentences.

use tree_sitter::{Node, Parser, Tree};

use super::{Findings, Language, Trouble};

/// Longest piece of code that a sentence shows.
const SHOWN_CHARS_MAX: usize = 40;

pub fn check(code: &str, language: Language, findings: &mut Findings<'_>) -> Result<(), Trouble> {
    let grammar = match language {
        Language::Rust => tree_sitter_rust::LANGUAGE,
        Language::Go => tree_sitter_go::LANGUAGE,
        Language::Java => tree_sitter_java::LANGUAGE,
        Language::C => tree_sitter_c::LANGUAGE,
        Language::Cpp => tree_sitter_cpp::LANGUAGE,
        Language::Bash => tree_sitter_bash::LANGUAGE,
        Language::Html => tree_sitter_html::LANGUAGE,
        Language::Css => tree_sitter_css::LANGUAGE,
        _ => return Err(Trouble::Broke),
    };
    let mut parser = Parser::new();
    parser.set_language(&grammar.into()).map_err(|_| Trouble::Broke)?;
    let tree = parser.parse(code, None).ok_or(Trouble::Broke)?;
    walk(&tree, language, |node| {
        if let Some((node, message)) = complaint(node, code, language) {
            findings.syntax(node.start_byte()..node.end_byte(), message);
        }
    });
    Ok(())
}

/// Visits the nodes in the order of the text, without a stack: a text can nest deeper than one. Where nothing is wrong
/// and nothing can be missed, it does not look inside.
fn walk(tree: &Tree, language: Language, mut visit: impl FnMut(Node<'_>)) {
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        visit(node);
        let looks_inside = !node.is_error() && (node.has_error() || language == Language::Html);
        if looks_inside && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}

/// What is wrong with a node itself, and where.
fn complaint<'a>(node: Node<'a>, code: &str, language: Language) -> Option<(Node<'a>, String)> {
    if node.is_missing() {
        return Some((node, missing(node)));
    }
    if node.is_error() {
        return Some(error(node, code));
    }
    if language == Language::Html {
        return html(node, code);
    }
    None
}

fn missing(node: Node<'_>) -> String {
    let kind = node.kind().replace('_', " ");
    match (node.is_named(), kind.starts_with(['a', 'e', 'i', 'o', 'u'])) {
        (false, _) => format!("`{}` is missing", node.kind()),
        (true, true) => format!("an {kind} is missing"),
        (true, false) => format!("a {kind} is missing"),
    }
}

/// The most telling thing in what could not be read: a bracket without its other half, else how it begins.
fn error<'a>(node: Node<'a>, code: &str) -> (Node<'a>, String) {
    let mut open: Vec<Node<'a>> = Vec::new();
    let mut cursor = node.walk();
    let mut inside = cursor.goto_first_child();
    while inside {
        let token = cursor.node();
        match token.kind() {
            "(" | "[" | "{" => open.push(token),
            ")" | "]" | "}" => match open.pop() {
                Some(other) if closes(other.kind(), token.kind()) => {}
                _ => return (token, format!("`{}` closes nothing", token.kind())),
            },
            _ => {}
        }
        inside = cursor.goto_next_sibling();
    }
    match open.pop() {
        Some(token) => (token, format!("`{}` is never closed", token.kind())),
        None => (node, unexpected(text(node, code))),
    }
}

fn closes(open: &str, close: &str) -> bool {
    matches!((open, close), ("(", ")") | ("[", "]") | ("{", "}"))
}

fn unexpected(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim_end();
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        _ if line.is_empty() => "something is missing here".into(),
        Some((end, _)) => format!("unexpected `{}…`", &line[..end]),
        None => format!("unexpected `{line}`"),
    }
}

/// What HTML's grammar reads without a mark: end tags without their start, and elements that are never closed.
fn html<'a>(node: Node<'a>, code: &str) -> Option<(Node<'a>, String)> {
    match node.kind() {
        "erroneous_end_tag" => {
            Some((node, format!("`{}` closes nothing", text(node, code).trim())))
        }
        "element" | "script_element" | "style_element" => {
            let start = node.child(0).filter(|child| child.kind() == "start_tag")?;
            let last = node.child(node.child_count().checked_sub(1)?)?;
            let name = text(start.child(1)?, code).to_ascii_lowercase();
            let may_stay_open = OPEN_ELEMENTS.contains(&name.as_str());
            (last.kind() != "end_tag" && !may_stay_open)
                .then(|| (start, format!("`<{name}>` is never closed")))
        }
        _ => None,
    }
}

/// Elements that have no end tag, or need none.
const OPEN_ELEMENTS: [&str; 35] = [
    "area", "base", "body", "br", "caption", "col", "colgroup", "dd", "dt", "embed", "head", "hr",
    "html", "img", "input", "li", "link", "meta", "optgroup", "option", "p", "param", "rb", "rp",
    "rt", "rtc", "source", "tbody", "td", "tfoot", "th", "thead", "tr", "track", "wbr",
];

fn text<'a>(node: Node<'_>, code: &'a str) -> &'a str {
    code.get(node.start_byte()..node.end_byte()).unwrap_or_default()
}
