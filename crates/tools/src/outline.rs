//! The `outline` tool: what a source file defines, by tree-sitter's grammars. They are generated code that may take any
//! time and memory, so they run [apart](super::apart).

use std::fmt::Write as _;
use std::path::Path;

use nexus_core::permission::ToolClass;
use nexus_core::tool::Need;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tree_sitter::{Node, Parser, Tree};

use super::apart::{Done, Work};
use super::file_tool::FileTool;
use super::files::Files;
use super::text::{OUTPUT_BYTES_MAX, read_text, start};

/// Longest file that is parsed. Longer ones are generated, and a tree takes many times its text's memory.
const PARSED_BYTES_MAX: usize = 2 << 20;

/// Longest part of a definition's first line that is shown.
const SIGNATURE_BYTES_MAX: usize = 160;

pub(super) struct Outline;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OutlineArgs {
    path: String,
}

impl FileTool for Outline {
    const NAME: &'static str = "outline";
    const DESCRIPTION: &'static str = "Functions and types of a source file, with line numbers.";
    const CLASS: ToolClass = ToolClass::Look;
    type Args = OutlineArgs;
    type Output = String;

    fn needs(args: &OutlineArgs) -> Result<Vec<Need>, String> {
        Ok(vec![Need::Read(args.path.clone())])
    }

    fn run(args: OutlineArgs, files: &Files) -> Result<String, String> {
        let path = &args.path;
        let text = read_text(files, path)?;
        let language = Language::of(path, &text)
            .ok_or_else(|| format!("{path} is in no language that outline knows"))?;
        if text.len() > PARSED_BYTES_MAX {
            return Err(format!("{path} is too long to outline: use search_text"));
        }
        let done = files.apart(&Work::Outline(Source { language, text }));
        let done: Done = done.map_err(|why| format!("{path} could not be outlined: {why}"))?;
        Ok(if done.count == 0 { format!("{path} defines nothing.") } else { done.text })
    }
}

/// What is to be outlined.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Source {
    language: Language,
    text: String,
}

pub(super) fn outline(source: &Source) -> Result<Done, String> {
    let Source { language, text } = source;
    let mut parser = Parser::new();
    parser.set_language(&language.grammar()).map_err(|error| error.to_string())?;
    let tree = parser.parse(text, None).ok_or("its grammar gave up")?;
    Ok(definitions(&tree, text, *language))
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Language {
    Rust,
    Python,
    JavaScript,
    TypeScript,
    Tsx,
    Go,
    Java,
    C,
    Bash,
}

impl Language {
    fn of(path: &str, text: &str) -> Option<Self> {
        Some(match Path::new(path).extension().and_then(|extension| extension.to_str()) {
            Some("rs") => Self::Rust,
            Some("py" | "pyi") => Self::Python,
            Some("js" | "jsx" | "mjs" | "cjs") => Self::JavaScript,
            Some("ts" | "mts" | "cts") => Self::TypeScript,
            Some("tsx") => Self::Tsx,
            Some("go") => Self::Go,
            Some("java") => Self::Java,
            Some("c" | "h") => Self::C,
            Some("sh" | "bash") => Self::Bash,
            None if text.starts_with("#!") => match text.lines().next()? {
                first if first.contains("python") => Self::Python,
                first if first.contains("node") => Self::JavaScript,
                first if first.ends_with("sh") => Self::Bash,
                _ => return None,
            },
            _ => return None,
        })
    }

    fn grammar(self) -> tree_sitter::Language {
        match self {
            Self::Rust => tree_sitter_rust::LANGUAGE,
            Self::Python => tree_sitter_python::LANGUAGE,
            Self::JavaScript => tree_sitter_javascript::LANGUAGE,
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX,
            Self::Go => tree_sitter_go::LANGUAGE,
            Self::Java => tree_sitter_java::LANGUAGE,
            Self::C => tree_sitter_c::LANGUAGE,
            Self::Bash => tree_sitter_bash::LANGUAGE,
        }
        .into()
    }

    /// What a node of the grammar is for an outline.
    fn role(self, node: Node<'_>) -> Role {
        match (self, node.kind()) {
            (Self::Rust, "function_item" | "function_signature_item" | "macro_definition")
            | (Self::Python, "function_definition")
            | (
                Self::JavaScript | Self::TypeScript | Self::Tsx,
                "function_declaration"
                | "generator_function_declaration"
                | "function_signature"
                | "method_definition"
                | "method_signature"
                | "abstract_method_signature",
            )
            | (Self::Go, "function_declaration" | "method_declaration" | "type_spec")
            | (Self::Java, "method_declaration" | "constructor_declaration")
            | (Self::C, "function_definition" | "type_definition")
            | (Self::Bash, "function_definition")
            | (Self::Rust, "type_item" | "struct_item" | "enum_item" | "union_item")
            | (Self::TypeScript | Self::Tsx, "type_alias_declaration" | "enum_declaration") => {
                Role::Leaf
            }
            (Self::Rust, "trait_item" | "impl_item" | "mod_item")
            | (Self::Python, "class_definition")
            | (
                Self::JavaScript | Self::TypeScript | Self::Tsx,
                "class_declaration"
                | "abstract_class_declaration"
                | "interface_declaration"
                | "internal_module",
            )
            | (
                Self::Java,
                "class_declaration"
                | "interface_declaration"
                | "enum_declaration"
                | "record_declaration"
                | "annotation_type_declaration",
            ) => Role::Group,
            (Self::JavaScript | Self::TypeScript | Self::Tsx, "variable_declarator")
                if has_child(
                    node,
                    "value",
                    &["arrow_function", "function_expression", "class"],
                ) =>
            {
                Role::Leaf
            }
            (Self::C, "struct_specifier" | "union_specifier" | "enum_specifier")
                if node.child_by_field_name("body").is_some() =>
            {
                Role::Leaf
            }
            (Self::C, "declaration") if has_child(node, "declarator", &["function_declarator"]) => {
                Role::Leaf
            }
            // What stands within code is of no interest.
            (_, "block" | "statement_block" | "compound_statement") => Role::Code,
            _ => Role::Other,
        }
    }
}

enum Role {
    /// A definition that is shown without what it holds.
    Leaf,
    /// A definition whose members are shown too.
    Group,
    Code,
    Other,
}

fn has_child(node: Node<'_>, field: &str, kinds: &[&str]) -> bool {
    node.child_by_field_name(field).is_some_and(|child| kinds.contains(&child.kind()))
}

/// The definitions in the order of the file, members indented beneath what holds them. Walks with a cursor: a file can
/// nest deeper than a stack.
fn definitions(tree: &Tree, text: &str, language: Language) -> Done {
    let mut outline = Done { text: String::new(), count: 0 };
    let mut cursor = tree.walk();
    // For each level of the tree, whether its node is a group.
    let mut groups = Vec::new();
    loop {
        let node = cursor.node();
        let role = language.role(node);
        if matches!(role, Role::Leaf | Role::Group) {
            if outline.text.len() > OUTPUT_BYTES_MAX {
                outline.text.insert_str(0, "[cut; use search_text for the rest]\n");
                return outline;
            }
            let depth = groups.iter().filter(|group| **group).count();
            push(&mut outline.text, node, text, depth);
            outline.count += 1;
        }
        let is_group = matches!(role, Role::Group);
        // The code of a class's or a module's body is called a block in some grammars.
        let holds_members = !matches!(role, Role::Leaf | Role::Code)
            || matches!(role, Role::Code) && groups.last() == Some(&true);
        if holds_members && cursor.goto_first_child() {
            groups.push(is_group);
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return outline;
            }
            groups.pop();
        }
    }
}

fn push(outline: &mut String, node: Node<'_>, text: &str, depth: usize) {
    let (first, last) = (node.start_position().row + 1, node.end_position().row + 1);
    let source = text.get(node.start_byte()..node.end_byte()).unwrap_or_default();
    let line = source.lines().next().unwrap_or_default();
    let signature = start(line.trim_end_matches([' ', '{', '\t']), SIGNATURE_BYTES_MAX);
    let indent = "  ".repeat(depth);
    let _ = writeln!(outline, "{indent}{first}-{last} {signature}");
}
