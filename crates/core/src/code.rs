//! Checking code without running it. What parses and lints it stands outside, behind [`Checker`]; here are the bounds and
//! the time that a check has.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

use crate::authority::AskedBy;

/// Longest code that is checked. What is longer is generated, and a tree takes a hundred times its text's memory.
pub const CODE_BYTES_MAX: usize = 2 << 20;

/// More than any linter's own configuration names.
pub const RULES_MAX: usize = 256;

/// Longer than the name of any rule.
pub const RULE_BYTES_MAX: usize = 128;

/// Findings that are told of one code. What is broken in more places is broken as a whole.
pub const FINDINGS_MAX: usize = 1_000;

/// Whether the text of a language can be read at all. Checked always; no linter has a rule of this name.
pub const SYNTAX_RULE: &str = "syntax";

/// Whatever the linter of a language thinks everybody should hold.
pub const RECOMMENDED_RULES: &str = "recommended";

/// Who parses and lints. Nothing that it is given is ever run.
#[async_trait]
pub trait Checker: Send + Sync {
    /// Checks code that is within the bounds. When this is dropped, the check ends.
    async fn check(&self, source: Source) -> Result<Report, CheckError>;
}

/// Checks nothing.
#[async_trait]
impl Checker for () {
    async fn check(&self, _: Source) -> Result<Report, CheckError> {
        Err(CheckError::NotStarted("nothing here can check code".into()))
    }
}

/// What is to be checked.
#[derive(Clone, Debug)]
pub struct Source {
    pub code: String,
    /// Its name, or another that people have for it.
    pub language: String,
    /// Rules beside [`SYNTAX_RULE`], by their own names.
    pub rules: Vec<String>,
    pub asked_by: AskedBy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The language by the one name we have for it.
    pub language: String,
    /// In the order of the code, at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// How many errors there are, those that are not told included.
    pub errors: u64,
    pub warnings: u64,
    /// What was looked for. When the code cannot be read, [`SYNTAX_RULE`] alone.
    pub rules_applied: Vec<String>,
    /// What was asked for and cannot be checked.
    pub rules_unsupported: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub rule: String,
    pub severity: Severity,
    pub message: String,
    pub start: Position,
    /// Behind the last character.
    pub end: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The code cannot be read, or breaks a rule that was asked for by its name.
    Error,
    /// It breaks one of the recommended rules.
    Warning,
}

/// Both from 1; the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

#[derive(Debug, Error)]
pub enum CheckError {
    #[error("language {name:?} is not known; known are {known}")]
    UnknownLanguage { name: String, known: String },
    #[error("code must have at most {CODE_BYTES_MAX} bytes")]
    TooLong,
    #[error("code must be text: it has a NUL character")]
    Nul,
    #[error("rules must be at most {RULES_MAX}")]
    TooManyRules,
    #[error("a rule must be 1 to {RULE_BYTES_MAX} bytes long")]
    Rule(usize),
    #[error("the code could not be checked within {0:?}")]
    TimedOut(Duration),
    #[error("the code could not be checked within {0} s")]
    TooSlow(u64),
    #[error("the code could not be checked within {0} MiB of memory")]
    TooLarge(u64),
    #[error("the code nests too deeply to be checked")]
    TooDeep,
    #[error("what was to read the code broke")]
    Broke,
    #[error("{0} checks wait already")]
    Full(usize),
    #[error("a process for the check cannot be started: {0}")]
    NotStarted(String),
}

/// Checks, as those who ask for them see them.
pub struct Checks {
    checker: Arc<dyn Checker>,
}

impl Checks {
    pub fn new(checker: Arc<dyn Checker>) -> Self {
        Self { checker }
    }

    /// Checks code, for as long as `timeout` at most.
    pub async fn check(&self, source: Source, timeout: Duration) -> Result<Report, CheckError> {
        within_bounds(&source)?;
        let checked = tokio::time::timeout(timeout, self.checker.check(source)).await;
        checked.map_err(|_| CheckError::TimedOut(timeout))?
    }
}

fn within_bounds(source: &Source) -> Result<(), CheckError> {
    if source.code.len() > CODE_BYTES_MAX {
        return Err(CheckError::TooLong);
    }
    if source.code.contains('\0') {
        return Err(CheckError::Nul);
    }
    if source.rules.len() > RULES_MAX {
        return Err(CheckError::TooManyRules);
    }
    let fits = |rule: &String| (1..=RULE_BYTES_MAX).contains(&rule.len());
    match source.rules.iter().position(|rule| !fits(rule)) {
        Some(index) => Err(CheckError::Rule(index)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(code: String, rules: Vec<String>) -> Source {
        Source { code, language: "json".into(), rules, asked_by: AskedBy::Administrator }
    }

    fn check(code: String, rules: Vec<String>, expected: Result<(), &str>) {
        let source = source(code, rules);
        let got = within_bounds(&source).map_err(|error| error.to_string());
        assert_eq!(got.as_ref().map_err(String::as_str), expected.as_ref().map_err(|why| *why));
    }

    #[test]
    fn bounds_hold_just_under_and_just_over() {
        check("x".repeat(CODE_BYTES_MAX), vec![], Ok(()));
        check("x".repeat(CODE_BYTES_MAX + 1), vec![], Err("code must have at most 2097152 bytes"));
        check("a\0".into(), vec![], Err("code must be text: it has a NUL character"));
        check(String::new(), vec!["r".into(); RULES_MAX], Ok(()));
        check(String::new(), vec!["r".into(); RULES_MAX + 1], Err("rules must be at most 256"));
        check(String::new(), vec!["r".repeat(RULE_BYTES_MAX)], Ok(()));
        for rule in [String::new(), "r".repeat(RULE_BYTES_MAX + 1)] {
            check(String::new(), vec![rule], Err("a rule must be 1 to 128 bytes long"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_ends_with_its_time() {
        struct Never;
        #[async_trait]
        impl Checker for Never {
            async fn check(&self, _: Source) -> Result<Report, CheckError> {
                std::future::pending().await
            }
        }
        let checks = Checks { checker: Arc::new(Never) };
        let source = source(String::new(), vec![]);
        let checked = checks.check(source, Duration::from_secs(30)).await;
        assert!(matches!(checked, Err(CheckError::TimedOut(_))), "{checked:?}");
    }
}
