//! What the server and its workers say to each other: frames of JSON behind their length.

use nexus_core::code::{Finding, Position, Report, Severity};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes before each frame, which say how long it is, the highest first.
pub const LENGTH_BYTES: usize = 4;

/// What is to be checked.
#[derive(Serialize, Deserialize)]
pub struct Order<'a> {
    pub language: &'a str,
    pub code: String,
    pub rules: Vec<String>,
}

/// What came of it.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    Checked(Checked),
    TooDeep,
    Broke,
}

/// A report, as it travels.
#[derive(Serialize, Deserialize)]
pub struct Checked {
    findings: Vec<Found>,
    errors: u64,
    warnings: u64,
    rules_applied: Vec<String>,
    rules_unsupported: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Found {
    rule: String,
    is_error: bool,
    message: String,
    start: (u32, u32),
    end: (u32, u32),
}

/// A frame that holds `value`.
pub fn encode(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, value)?;
    // Nothing that is said is longer than some megabytes.
    let length = u32::try_from(frame.len() - LENGTH_BYTES).unwrap_or(u32::MAX);
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

pub fn decode<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(body)
}

impl From<Report> for Checked {
    fn from(report: Report) -> Self {
        let told = |finding: Finding| Found {
            rule: finding.rule,
            is_error: finding.severity == Severity::Error,
            message: finding.message,
            start: (finding.start.line, finding.start.column),
            end: (finding.end.line, finding.end.column),
        };
        Self {
            findings: report.findings.into_iter().map(told).collect(),
            errors: report.errors,
            warnings: report.warnings,
            rules_applied: report.rules_applied,
            rules_unsupported: report.rules_unsupported,
        }
    }
}

impl Checked {
    pub fn into_report(self, language: &str) -> Report {
        let place = |(line, column): (u32, u32)| Position { line, column };
        let finding = |found: Found| Finding {
            rule: found.rule,
            severity: if found.is_error { Severity::Error } else { Severity::Warning },
            message: found.message,
            start: place(found.start),
            end: place(found.end),
        };
        Report {
            language: language.into(),
            findings: self.findings.into_iter().map(finding).collect(),
            errors: self.errors,
            warnings: self.warnings,
            rules_applied: self.rules_applied,
            rules_unsupported: self.rules_unsupported,
        }
    }
}
