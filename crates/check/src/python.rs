//! Python: read and checked by ruff.

use std::collections::HashSet;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::LazyLock;

use nexus_core::code::Severity;
use ruff_linter::RuleSelector;
use ruff_linter::codes::{Rule, RuleStatus};
use ruff_linter::linter::{ParseSource, lint_only};
use ruff_linter::rule_selector::PreviewOptions;
use ruff_linter::settings::{DEFAULT_SELECTORS, LinterSettings, flags};
use ruff_linter::source_kind::SourceKind;
use ruff_python_ast::PySourceType;

use super::{Findings, Rules};

/// What is neither asked for nor told of: no project, no configuration.
static SETTINGS: LazyLock<LinterSettings> = LazyLock::new(|| LinterSettings {
    rules: [].into_iter().collect(),
    ..LinterSettings::new(Path::new("/"))
});

/// Rules of ruff for what Python itself refuses to compile, such as a `return` outside of functions.
const SYNTAX: [&str; 9] =
    ["F404", "F622", "F701", "F702", "F704", "F706", "F707", "PLE0117", "PLE0118"];

pub fn check(code: &str, asked: &mut Rules, findings: &mut Findings<'_>) {
    asked.support(|name| !rules(name).is_empty());
    let named: HashSet<Rule> = asked.named().flat_map(rules).collect();
    let mut wanted: Vec<Rule> = SYNTAX.into_iter().flat_map(rules).collect();
    wanted.extend(&named);
    if asked.recommended() {
        wanted.extend(DEFAULT_SELECTORS.iter().flat_map(stable));
    }
    let mut settings = SETTINGS.clone();
    settings.rules = wanted.into_iter().collect();
    let source = SourceKind::Python { code: code.to_owned(), is_stub: false };
    let named: HashSet<String> = named.iter().map(|rule| rule.noqa_code().to_string()).collect();
    let linted = lint_only(
        Path::new("/code.py"),
        None,
        &settings,
        flags::Noqa::Enabled,
        &source,
        PySourceType::Python,
        ParseSource::None,
    );
    for found in linted.diagnostics {
        let at =
            found.range().map_or(0..0, |range| range.start().to_usize()..range.end().to_usize());
        let message = found.concise_message().to_string();
        match found.secondary_code() {
            _ if found.is_invalid_syntax() => findings.syntax(at, message),
            None => findings.syntax(at, message),
            Some(rule) if SYNTAX.contains(&rule.as_str()) && !named.contains(rule.as_str()) => {
                findings.syntax(at, message);
            }
            Some(rule) => {
                let rule = rule.to_string();
                let severity = match named.contains(&rule) {
                    true => Severity::Error,
                    false => Severity::Warning,
                };
                findings.add(at, &rule, severity, &message);
            }
        }
    }
}

/// The rules of a code, `F401`, or of all codes that begin so, `F`. None when ruff has none of that name.
fn rules(name: &str) -> Vec<Rule> {
    RuleSelector::from_str(name).map(|selector| stable(&selector)).unwrap_or_default()
}

fn stable(selector: &RuleSelector) -> Vec<Rule> {
    let is_there = |rule: &Rule| !matches!(rule.status(), RuleStatus::Removed { .. });
    selector.rules(&PreviewOptions::default()).filter(is_there).collect()
}
