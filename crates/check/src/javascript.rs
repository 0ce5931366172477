//! JavaScript and TypeScript: read by swc, checked by `deno_lint`, whose rules have ESLint's names.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use deno_ast::diagnostics::Diagnostic as _;
use deno_ast::swc::parser::{EsSyntax, Syntax};
use deno_ast::{
    MediaType, ModuleSpecifier, ParseDiagnostic, ParseParams, ParsedSource, SourceRange,
    StartSourcePos,
};
use deno_lint::linter::{LintConfig, Linter, LinterOptions};
use deno_lint::rules::{LintRule, get_all_rules};
use deno_lint::tags;
use nexus_core::code::Severity;

use super::{Findings, Language, Rules};

static CODES: LazyLock<HashSet<Cow<'static, str>>> =
    LazyLock::new(|| get_all_rules().iter().map(|rule| rule.code().into()).collect());

pub fn check(code: &str, language: Language, asked: &mut Rules, findings: &mut Findings<'_>) {
    asked.support(|name| CODES.contains(name));
    let named: HashSet<&str> = asked.named().collect();
    let wanted = |rule: &dyn LintRule| {
        named.contains(rule.code())
            || asked.recommended() && rule.tags().contains(&tags::RECOMMENDED)
    };
    let lints = asked.recommended() || !named.is_empty();
    let Some(parsed) = parse(code, language, lints, findings) else { return };
    if !lints || findings.has_syntax_errors {
        return;
    }
    let linter = Linter::new(LinterOptions {
        rules: get_all_rules().into_iter().filter(|rule| wanted(&**rule)).collect(),
        all_rule_codes: CODES.clone(),
        custom_ignore_file_directive: None,
        custom_ignore_diagnostic_directive: None,
    });
    let config = LintConfig { default_jsx_factory: None, default_jsx_fragment_factory: None };
    for found in linter.lint_with_ast(&parsed, config, None) {
        let severity = match named.contains(&*found.details.code) {
            true => Severity::Error,
            false => Severity::Warning,
        };
        let at = found.range.map_or(0..0, |it| bytes(it.range));
        findings.add(at, &found.details.code, severity, &found.details.message);
    }
}

/// Reads the code, as a module or as a script. What a linter looks at beside is only made for one.
fn parse(
    code: &str,
    language: Language,
    lints: bool,
    findings: &mut Findings<'_>,
) -> Option<ParsedSource> {
    let (media_type, name) = match language {
        Language::TypeScript => (MediaType::TypeScript, "file:///code.ts"),
        Language::Tsx => (MediaType::Tsx, "file:///code.tsx"),
        Language::Jsx => (MediaType::Jsx, "file:///code.jsx"),
        _ => (MediaType::JavaScript, "file:///code.js"),
    };
    // As the language is, and not as Deno is lenient with it.
    let strict = EsSyntax {
        auto_accessors: true,
        decorators: true,
        explicit_resource_management: true,
        import_attributes: true,
        jsx: language == Language::Jsx,
        ..EsSyntax::default()
    };
    let is_typed = matches!(language, Language::TypeScript | Language::Tsx);
    let params = ParseParams {
        specifier: ModuleSpecifier::parse(name).ok()?,
        text: code.into(),
        media_type,
        capture_tokens: lints,
        scope_analysis: lints,
        maybe_syntax: (!is_typed).then_some(Syntax::Es(strict)),
    };
    let mut complain = |error: &ParseDiagnostic| {
        findings.syntax(bytes(error.range()), error.message());
    };
    match deno_ast::parse_program(params) {
        Ok(parsed) => {
            parsed.diagnostics().iter().for_each(&mut complain);
            Some(parsed)
        }
        Err(error) => {
            complain(&error);
            None
        }
    }
}

fn bytes(range: SourceRange) -> Range<usize> {
    range.as_byte_range(StartSourcePos::START_SOURCE_POS)
}
