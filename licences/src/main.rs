//! `nexus-licences`: writes THIRD-PARTY.md, the licences of every crate that is compiled into the programs, from what
//! cargo says of them and the files that lie beside their code, and those of data that others gathered. With `--check` it
//! fails when the file is out of date.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

const PROGRAMS: [&str; 2] = ["nexus3", "ash"];
const FILE: &str = "THIRD-PARTY.md";

/// What else is in the program and not ours: what it is, and where the text of its licence lies.
const DATA: [(&str, &str); 1] = [(
    "the table of models, made from litellm's: MIT",
    "crates/models/src/catalogue/LICENSE-litellm",
)];

/// How a file is named whose text goes with the code.
const NAMES: [&str; 6] = ["license", "licence", "copying", "notice", "unlicense", "copyright"];

/// The licence that is chosen where a crate offers it beside others: its text is the same for all.
const CHOSEN: &str = "Apache-2.0";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    authors: Vec<String>,
    manifest_path: PathBuf,
    /// `None` for our own.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `None` for what is compiled into the program, as against what only builds or tests it.
    kind: Option<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let checks = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => bail!("{other} is no option: --check, or none"),
    };
    let text = document(&metadata()?)?;
    if !checks {
        fs::write(FILE, text)?;
    } else if fs::read_to_string(FILE).unwrap_or_default() != text {
        eprintln!("{FILE} is out of date: make third-party");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn metadata() -> anyhow::Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // One platform, so that the file is the same wherever it is written.
    let args = [
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform=x86_64-unknown-linux-gnu",
    ];
    let output = Command::new(cargo).args(args).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn document(metadata: &Metadata) -> anyhow::Result<String> {
    let crates = compiled_in(metadata)?;
    let mut chosen = Vec::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for package in crates {
        let (title, expression) = (title(package), package.license.as_deref().unwrap_or("unnamed"));
        let files = files(&package.manifest_path)?;
        if offers_chosen(expression) {
            chosen.push(format!("{title}: {expression}"));
            for (_, text) in files.iter().filter(|(name, _)| name.starts_with("notice")) {
                texts.entry(text.clone()).or_default().push(format!("{title}, its notice"));
            }
            continue;
        }
        if files.is_empty() {
            let authors = match package.authors.as_slice() {
                [] => "its authors".to_owned(),
                authors => authors.join(", "),
            };
            without.push(format!("{title}: {expression}, by {authors}"));
        }
        for (_, text) in files {
            texts.entry(text).or_default().push(format!("{title}: {expression}"));
        }
    }
    for (title, file) in DATA {
        let text = fs::read_to_string(file).with_context(|| file.to_owned())?;
        texts.entry(tidy(&text)).or_default().push(title.to_owned());
    }
    let mut out = format!(
        "# What is in the programs\n\nThe crates and the data that are compiled into `{}` for Linux, and their licences. \
         Written by `make third-party`; `make check` fails when it is out of date.\n\n",
        PROGRAMS.join("` and `")
    );
    section(&mut out, &format!("Used under {CHOSEN}"), &chosen);
    out.push_str("The text is LICENSE-APACHE beside this file.\n\n");
    section(&mut out, "Without a text in their package", &without);
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|(_, a), (_, b)| a.cmp(b));
    for (text, users) in texts {
        section(&mut out, "Under this text", &users);
        let _ = write!(out, "```text\n{text}\n```\n\n");
    }
    Ok(out)
}

fn section(out: &mut String, title: &str, lines: &[String]) {
    let _ = write!(out, "## {title}\n\n");
    for line in lines {
        let _ = writeln!(out, "- {line}");
    }
    out.push('\n');
}

fn title(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

/// Whether a licence expression lets one choose the chosen one alone.
fn offers_chosen(expression: &str) -> bool {
    let alternatives = expression.split([' ', '/', '(', ')']);
    !expression.contains(" AND ") && alternatives.into_iter().any(|word| word == CHOSEN)
}

/// Everything that the programs reach by dependencies that are linked into it, but ourselves, by name.
fn compiled_in(metadata: &Metadata) -> anyhow::Result<Vec<&Package>> {
    let nodes: BTreeMap<_, _> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let programs =
        metadata.packages.iter().filter(|package| PROGRAMS.contains(&package.name.as_str()));
    let mut ahead: Vec<_> = programs.map(|package| package.id.as_str()).collect();
    ensure!(ahead.len() == PROGRAMS.len(), "a program is not in this workspace");
    let mut reached = BTreeSet::new();
    while let Some(id) = ahead.pop() {
        if reached.insert(id) {
            let node = nodes.get(id).with_context(|| format!("{id} is not resolved"))?;
            let linked =
                node.deps.iter().filter(|it| it.dep_kinds.iter().any(|it| it.kind.is_none()));
            ahead.extend(linked.map(|dependency| dependency.pkg.as_str()));
        }
    }
    let foreign = |package: &&Package| package.source.is_some();
    let mut crates: Vec<_> = metadata
        .packages
        .iter()
        .filter(|it| reached.contains(it.id.as_str()))
        .filter(foreign)
        .collect();
    crates.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(crates)
}

/// The names, in small letters, and texts of the licence files of a crate.
fn files(manifest: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let dir = manifest.parent().context("a manifest lies in a directory")?;
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if NAMES.iter().any(|start| name.starts_with(start)) && entry.file_type()?.is_file() {
            let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
            found.push((name, tidy(&text)));
        }
    }
    found.sort();
    Ok(found)
}

/// Line ends and the space around them differ between packages that mean the same.
fn tidy(text: &str) -> String {
    text.trim().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
