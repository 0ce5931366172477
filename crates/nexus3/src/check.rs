//! `nexus3 check`: checks files without running them; no server is needed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures_util::future::join_all;
use nexus_check::{Language, Workers};
use nexus_core::authority::AskedBy;
use nexus_core::code::{Checks, Report, Severity, Source};
use nexus_server::check_result;
use nexus_tools::sandbox::Launcher;
use serde_json::{Value, json};

use crate::input;
use crate::output::{complain, print_json, say};

#[derive(Args)]
pub struct CheckArgs {
    /// Files to check; - for standard input, which needs --language
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Rule of the language's linter by its own name (no-unused-vars, F401), or recommended; may be repeated
    #[arg(short, long = "rule", value_name = "RULE")]
    rules: Vec<String>,
    /// Language of the files; by their names when absent
    #[arg(short, long)]
    language: Option<String>,
    /// Print JSON, one line for each file
    #[arg(long)]
    json: bool,
}

/// Somewhere a file could not be checked.
const NOT_CHECKED: u8 = 2;

/// As a call of validate_code.
const TIMEOUT: Duration = Duration::from_secs(30);

pub async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let workers = Workers::new(Launcher::own().program().to_owned());
    let checks = Checks::new(Arc::new(workers));
    let (mut invalid, mut not_checked) = (false, false);
    // As many at once as can wait, in the order that they were given.
    for files in args.files.chunks(FILES_AT_ONCE) {
        let reports = join_all(files.iter().map(|file| check(&checks, file, &args))).await;
        for (file, report) in files.iter().zip(reports) {
            let name = file.display().to_string();
            match report {
                Ok(report) => {
                    invalid |= report.errors > 0;
                    show(&name, report, args.json)?;
                }
                Err(error) => {
                    not_checked = true;
                    complain(format_args!("{name}: {error:#}"));
                }
            }
        }
    }
    Ok(match (not_checked, invalid) {
        (true, _) => ExitCode::from(NOT_CHECKED),
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::SUCCESS,
    })
}

/// Files that are in memory at once.
const FILES_AT_ONCE: usize = 16;

async fn check(checks: &Checks, file: &Path, args: &CheckArgs) -> anyhow::Result<Report> {
    let code = match file == Path::new("-") {
        true => input::read_all(io::stdin(), "standard input")?,
        false => input::read_all(File::open(file)?, "the file")?,
    };
    let language = match &args.language {
        Some(language) => language.clone(),
        None => Language::of_file(file, &code)
            .with_context(|| {
                format!("its language is not known; name it with --language: {}", Language::known())
            })?
            .name()
            .into(),
    };
    let (rules, asked_by) = (args.rules.clone(), AskedBy::Administrator);
    let source = Source { code, language, rules, asked_by };
    Ok(checks.check(source, TIMEOUT).await?)
}

fn show(name: &str, report: Report, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let mut line = json!({"file": name});
        if let (Value::Object(line), Value::Object(result)) =
            (&mut line, serde_json::to_value(check_result(report))?)
        {
            line.extend(result);
        }
        return print_json(format!("{line}\n"));
    }
    for finding in &report.findings {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let (place, rule, message) = (finding.start, &finding.rule, &finding.message);
        let (line, column) = (place.line, place.column);
        say(format!("{name}:{line}:{column}: {severity}: {message} [{rule}]\n"))?;
    }
    let told = report.findings.len() as u64;
    let more = (report.errors + report.warnings).saturating_sub(told);
    if more > 0 {
        say(format!("{name}: {more} more\n"))?;
    }
    if !report.rules_unsupported.is_empty() {
        let rules = report.rules_unsupported.join(", ");
        complain(format_args!("{name}: not checked in {}: {rules}", report.language));
    }
    Ok(())
}
