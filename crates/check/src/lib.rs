//! Checks code without running it: parsers for every language, linters for some. The heavy libraries sit here alone.
//!
//! They are made for the code of friends: they call themselves for each level of nesting, and take what memory they
//! like. So nobody calls [`check`] but a worker, a process of its own ([`worker_main`]), and [`Workers`] are how a
//! server reaches them.

mod data;
mod frame;
mod javascript;
mod language;
mod lines;
mod pool;
mod python;
#[cfg(test)]
mod tests;
mod tree;
mod worker;

use std::ops::Range;

use nexus_core::code::{FINDINGS_MAX, Finding, RECOMMENDED_RULES, Report, SYNTAX_RULE, Severity};

pub use language::Language;
use lines::Lines;
pub use pool::Workers;
pub use worker::{WORKER_ARGUMENT, worker_main};

/// Longest message that is told. Some repeat the code.
const MESSAGE_CHARS_MAX: usize = 500;

/// Why code could not be checked.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    TooDeep,
    Broke,
}

/// Checks code by `rules` and its syntax.
pub fn check(code: &str, language: Language, rules: &[String]) -> Result<Report, Trouble> {
    // A mark of the encoding, which is none of the code.
    let code = code.strip_prefix('\u{feff}').unwrap_or(code);
    let mut findings = Findings::new(code);
    let mut asked = Rules::new(rules);
    match language {
        Language::JavaScript | Language::TypeScript | Language::Jsx | Language::Tsx => {
            javascript::check(code, language, &mut asked, &mut findings);
        }
        Language::Python => python::check(code, &mut asked, &mut findings),
        Language::Json => data::json(code, &mut findings),
        Language::Yaml => data::yaml(code, &mut findings),
        Language::Toml => data::toml(code, &mut findings)?,
        Language::Sql => data::sql(code, &mut findings)?,
        _ => tree::check(code, language, &mut findings)?,
    }
    let is_readable = !findings.has_syntax_errors;
    let mut rules_applied = vec![SYNTAX_RULE.to_owned()];
    let supported = asked.rules.iter().filter(|rule| is_readable && rule.is_supported);
    rules_applied.extend(supported.map(|rule| rule.name.clone()));
    let unsupported = asked.rules.into_iter().filter(|rule| !rule.is_supported);
    Ok(Report {
        language: language.name().into(),
        rules_unsupported: unsupported.map(|rule| rule.name).collect(),
        rules_applied,
        ..findings.report()
    })
}

/// The rules that were asked for beside the syntax, each once.
struct Rules {
    rules: Vec<Asked>,
}

struct Asked {
    name: String,
    /// Until a linter says that it knows it, nobody does.
    is_supported: bool,
}

impl Rules {
    fn new(names: &[String]) -> Self {
        let mut rules: Vec<Asked> = Vec::new();
        for name in names {
            if name != SYNTAX_RULE && !rules.iter().any(|rule| rule.name == *name) {
                rules.push(Asked { name: name.clone(), is_supported: false });
            }
        }
        Self { rules }
    }

    /// Notes for each whether the linter knows it.
    fn support(&mut self, mut knows: impl FnMut(&str) -> bool) {
        for rule in &mut self.rules {
            rule.is_supported = rule.name == RECOMMENDED_RULES || knows(&rule.name);
        }
    }

    /// Those that were asked for by name.
    fn named(&self) -> impl Iterator<Item = &str> {
        let named = |rule: &&Asked| rule.is_supported && rule.name != RECOMMENDED_RULES;
        self.rules.iter().filter(named).map(|rule| rule.name.as_str())
    }

    fn recommended(&self) -> bool {
        self.rules.iter().any(|rule| rule.name == RECOMMENDED_RULES)
    }
}

/// What was found so far. All of it is counted, and so much kept.
struct Findings<'a> {
    lines: Lines<'a>,
    found: Vec<(Range<usize>, Finding)>,
    errors: u64,
    warnings: u64,
    has_syntax_errors: bool,
}

impl<'a> Findings<'a> {
    fn new(code: &'a str) -> Self {
        let lines = Lines::new(code);
        Self { lines, found: Vec::new(), errors: 0, warnings: 0, has_syntax_errors: false }
    }

    /// Something that cannot be read, by its bytes.
    fn syntax(&mut self, at: Range<usize>, message: impl AsRef<str>) {
        self.has_syntax_errors = true;
        self.add(at, SYNTAX_RULE, Severity::Error, message.as_ref());
    }

    fn add(&mut self, at: Range<usize>, rule: &str, severity: Severity, message: &str) {
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
        if self.found.len() == FINDINGS_MAX {
            return;
        }
        let message = match message.char_indices().nth(MESSAGE_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message.to_owned(),
        };
        let (start, end) = (self.lines.place(at.start), self.lines.place(at.end.max(at.start)));
        self.found.push((at, Finding { rule: rule.into(), severity, message, start, end }));
    }

    fn report(mut self) -> Report {
        self.found.sort_by_key(|(at, _)| (at.start, at.end));
        Report {
            language: String::new(),
            findings: self.found.into_iter().map(|(_, finding)| finding).collect(),
            errors: self.errors,
            warnings: self.warnings,
            rules_applied: Vec::new(),
            rules_unsupported: Vec::new(),
        }
    }
}
