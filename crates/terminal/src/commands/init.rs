//! `/init`: the files that a project, or a person, tells agents things by. No link is followed, because agents write in
//! these directories and could lay one.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::Path;

use nexus_client::Environment;

use super::files::{Target, There};
use super::flags::{refuse_flags, split, take};
use crate::cx::{Cx, Done, Refused, refuse};

const PROJECT: &str = "\
# What agents should know here

This file is read before every conversation in this directory. Keep it short: all of it is sent each time.

## What this is

One or two sentences.

## Building and testing

The commands, and how long they take.

## How the code is written

What a newcomer would get wrong.

## What to leave alone

Files and directories that nobody should change.
";

const PERSON: &str = "\
# What agents should know about me

This file is read before every conversation, in every directory. Keep it short: all of it is sent each time.
";

const CONFIGURATION: &str = "{}\n";

const FORCE: &str = "--force";

pub async fn init(cx: &Cx, rest: &str) -> Done {
    let mut words = split(rest)?;
    let is_forced = take(&mut words, FORCE);
    let is_global = take(&mut words, "--global");
    refuse_flags(&words)?;
    let outcome = match (words.as_slice(), is_global) {
        ([], true) => {
            let Some(home) = Environment::of_process().home else {
                return refuse("There is no home directory: set HOME or NEXUS3_HOME.");
            };
            global(&home, is_forced, FORCE)
        }
        ([], false) => project(&cx.making.cwd, "AGENTS.md", is_forced),
        ([file], false) => project(&cx.making.cwd, file, is_forced),
        _ => return refuse("Usage: /init [FILE] [--force], or /init --global [--force]"),
    };
    for line in outcome.map_err(Refused::Said)? {
        cx.note(line);
    }
    Ok(())
}

/// Writes the files of a project; says which. The error is a sentence, and then no file was written.
fn project(cwd: &Path, file: &str, is_forced: bool) -> Result<Vec<String>, String> {
    if Path::new(file).file_name() != Some(OsStr::new(file)) {
        return Err(format!("{file} is not the name of a file in this directory."));
    }
    let named = |shown: &str, error: io::Error| format!("{shown}: {error}");
    let instructions = Target::new(cwd, Path::new(file)).map_err(|error| named(file, error))?;
    let configuration =
        Target::within(cwd, ".nexus3", "config.json").map_err(|error| named(".nexus3", error))?;
    write(
        vec![
            (file.to_owned(), instructions, PROJECT),
            (".nexus3/config.json".to_owned(), configuration, CONFIGURATION),
        ],
        is_forced,
        FORCE,
    )
}

/// Writes the files of a person; says which. `force` is what the person would say to have those replaced that are
/// there.
pub fn global(home: &Path, is_forced: bool, force: &str) -> Result<Vec<String>, String> {
    let failed = |error: io::Error| format!("{}: {error}", home.display());
    let (Some(base), Some(directory)) =
        (home.parent(), home.file_name().and_then(|it| it.to_str()))
    else {
        return Err(format!("{} is no directory for this.", home.display()));
    };
    let mut files = Vec::new();
    for (name, text) in [("NEXUS.md", PERSON), ("config.json", CONFIGURATION)] {
        let place = Target::within(base, directory, name).map_err(failed)?;
        files.push((home.join(name).display().to_string(), place, text));
    }
    write(files, is_forced, force)
}

fn write(
    files: Vec<(String, Target, &str)>,
    is_forced: bool,
    force: &str,
) -> Result<Vec<String>, String> {
    let mut missing = Vec::new();
    let mut existing = Vec::new();
    for (shown, place, text) in files {
        match place.there().map_err(|error| format!("{shown}: {error}"))? {
            There::Other => return Err(format!("{shown} is there, and is no file.")),
            There::File if !is_forced => existing.push(shown),
            There::File | There::Nothing => missing.push((shown, place, text)),
        }
    }
    if missing.is_empty() {
        return Err(format!("There already: {}. {force} replaces.", existing.join(", ")));
    }
    let mut said = Vec::new();
    for (shown, place, text) in missing {
        let failed = |error: io::Error| format!("{shown}: {error}");
        let mut draft = place.draft(0o644).map_err(failed)?;
        draft.write_all(text.as_bytes()).map_err(failed)?;
        draft.keep(is_forced).map_err(failed)?;
        said.push(format!("Wrote {shown}."));
    }
    said.extend(existing.iter().map(|shown| format!("{shown} exists, and stays as it is.")));
    Ok(said)
}
