//! Checking code without running it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::{Bounded, object};
use crate::schema::nul;

method! {
    /// Parses code and checks it by rules of a linter. The code is never run. Code that cannot be read is no error of the
    /// call but a diagnostic of the rule `syntax`.
    ValidateCode = "validate_code", Server Control, ValidateCodeParams => ValidateCodeResult
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidateCodeParams {
    /// At most 2,097,152 bytes, without NUL.
    #[schemars(length(max = 2_097_152), extend("not" = nul()))]
    pub code: String,
    /// `javascript`, `typescript`, `jsx`, `tsx`, `python`, `rust`, `go`, `java`, `c`, `cpp`, `bash`, `json`, `yaml`,
    /// `toml`, `html`, `css`, `sql`, or another name of one of these, such as `js` or `c++`.
    pub language: String,
    /// Rules of the language's linter by their own names, at most 256 of at most 128 bytes, or `recommended`; the syntax
    /// alone when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 128)))]
    pub rules: Option<Vec<String>>,
    #[serde(
        default,
        deserialize_with = "object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub options: Option<ValidateCodeOptions>,
}

/// Members that are not known are passed over.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ValidateCodeOptions {
    /// Answers -32000 `TIMEOUT` when it takes longer; 30,000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Bounded<1, 3_600_000>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ValidateCodeResult {
    /// Whether there is no error.
    pub valid: bool,
    /// The language by the first of its names.
    pub language: String,
    /// In the order of the code, at most 1,000.
    pub diagnostics: Vec<CodeDiagnostic>,
    /// Those that are not among `diagnostics` included, as in `warning_count`.
    pub error_count: u64,
    pub warning_count: u64,
    /// `syntax`, and the rules that were asked for and looked for. When the syntax is wrong, no other rule is applied.
    pub rules_applied: Vec<String>,
    /// What was asked for and cannot be checked in this language.
    pub rules_unsupported: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CodeDiagnostic {
    pub rule: String,
    /// `error` for the syntax and for rules that were asked for by name; `warning` for those of `recommended`.
    pub severity: CodeSeverity,
    pub message: String,
    /// From 1, as the column, which counts characters.
    pub line: u32,
    pub column: u32,
    /// Behind the last character.
    pub end_line: u32,
    pub end_column: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodeSeverity {
    Error,
    Warning,
}
