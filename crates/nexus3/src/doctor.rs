//! `nexus3 doctor`: whether the store is whole, and what can be saved when it is not.

use std::process::ExitCode;

use nexus_store::{Checkup, Rows};

use crate::cli::DoctorArgs;
use crate::home;
use crate::output::say;
use crate::wiring;

/// Sessions that are named when they are not whole; the rest is counted.
const NAMED_MAX: usize = 20;

pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let home = wiring::home()?;
    let checkup = nexus_store::examine(&home, args.salvage.as_deref())?;
    let mut text = describe(&checkup);
    if let Some(warning) = home::warning(&home) {
        text += &format!("Warning: {warning}\n");
    }
    if let Some(file) = &args.salvage {
        let (file, path) = (file.display(), checkup.path.display());
        text += &format!("What can be read was written to {file}.\n");
        text += &format!(
            "To use it: stop every nexus3, put {path} and the files beside it that begin with its name aside, and move {file} there.\n"
        );
    } else if !checkup.is_whole() {
        text += "To write what can be read to a new database: nexus3 doctor --salvage FILE\n";
    }
    say(text)?;
    let well = checkup.is_whole() || args.salvage.is_some();
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn describe(checkup: &Checkup) -> String {
    let sum =
        |count: fn(&nexus_store::Readable) -> u64| checkup.sessions.iter().map(count).sum::<u64>();
    let (readable, all) = (sum(|session| session.readable), sum(|session| session.messages));
    let state = if checkup.is_whole() { "whole" } else { "damaged" };
    let mut text = format!(
        "{}: {state}, store version {}\n{} sessions with {readable} of {all} messages can be read\n",
        checkup.path.display(),
        checkup.version,
        checkup.sessions.len(),
    );
    if checkup.unreadable > 0 {
        text += &format!("up to {} sessions cannot be read\n", checkup.unreadable);
    }
    let rows = [
        ("memories", checkup.memories),
        ("plans", checkup.plans),
        ("entries of the shared context", checkup.context),
        ("keys", checkup.keys),
    ];
    for (what, Rows { readable, unreadable }) in rows {
        if readable + unreadable > 0 {
            text += &format!("{readable} {what} can be read\n");
        }
        if unreadable > 0 {
            text += &format!("up to {unreadable} {what} cannot be read\n");
        }
    }
    let cut: Vec<_> = checkup.sessions.iter().filter(|it| it.readable < it.messages).collect();
    for session in cut.iter().take(NAMED_MAX) {
        let nexus_store::Readable { name, messages, readable } = session;
        text += &format!("  {name}: the first {readable} of {messages} messages\n");
    }
    if cut.len() > NAMED_MAX {
        text += &format!("  and {} more\n", cut.len() - NAMED_MAX);
    }
    for problem in &checkup.problems {
        text += &format!("  SQLite: {}\n", problem.replace('\n', "\n  "));
    }
    text
}
