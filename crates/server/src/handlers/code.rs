//! Checking code without running it.

use std::time::Duration;

use nexus_core::code::{Finding, Report, Severity, Source};
use nexus_protocol::RpcError;
use nexus_protocol::code::{
    CodeDiagnostic, CodeSeverity, ValidateCode, ValidateCodeParams, ValidateCodeResult,
};

use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;

/// Of every task method, unless the call says otherwise.
const TIMEOUT_MS: u32 = 30_000;

pub fn register(table: &mut Table) {
    table.on::<ValidateCode, _, _>(validate);
}

async fn validate(cx: Cx, params: ValidateCodeParams) -> Result<ValidateCodeResult, RpcError> {
    let timeout_ms = params.options.and_then(|options| options.timeout_ms);
    let timeout_ms = timeout_ms.map_or(TIMEOUT_MS, |timeout| timeout.get());
    let source = Source {
        code: params.code,
        language: params.language,
        rules: params.rules.unwrap_or_default(),
        asked_by: (&cx.caller.requester).into(),
    };
    let timeout = Duration::from_millis(timeout_ms.into());
    let report = cx.services().engine.checks.check(source, timeout).await.map_err(wire)?;
    Ok(result(report))
}

/// A report as it travels.
pub fn result(report: Report) -> ValidateCodeResult {
    ValidateCodeResult {
        valid: report.errors == 0,
        language: report.language,
        diagnostics: report.findings.into_iter().map(diagnostic).collect(),
        error_count: report.errors,
        warning_count: report.warnings,
        rules_applied: report.rules_applied,
        rules_unsupported: report.rules_unsupported,
    }
}

fn diagnostic(finding: Finding) -> CodeDiagnostic {
    CodeDiagnostic {
        rule: finding.rule,
        severity: match finding.severity {
            Severity::Error => CodeSeverity::Error,
            Severity::Warning => CodeSeverity::Warning,
        },
        message: finding.message,
        line: finding.start.line,
        column: finding.start.column,
        end_line: finding.end.line,
        end_column: finding.end.column,
    }
}
