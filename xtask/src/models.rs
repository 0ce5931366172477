//! `cargo xtask models`: makes the shipped table of models from the one that the Python package litellm brings along.
//!
//! What is taken of it: the models that one talks to, of services that this program can reach or soon will, and of each
//! what the program asks about. [`reduce`] turns an entry of theirs into one of ours, [`corrections`] mends what is
//! known to be wrong or missing there.

mod corrections;
mod reduce;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};

/// The version that is taken, and the day it was looked at.
const VERSION: &str = "1.108.4";
const TAKEN_ON: &str = "2026-11-16";

const TABLE: &str = "litellm/model_prices_and_context_window_backup.json";
const LICENCE: &str = "licenses/LICENSE";

pub fn make() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the root")?;
    let package = package(&root.join("target/catalogue"))?;
    let mut archive = zip::ZipArchive::new(File::open(&package)?)?;
    let theirs: Map<String, Value> = serde_json::from_str(&text(&mut archive, TABLE)?)?;
    let licence = text(&mut archive, LICENCE)?;

    let mut ours = BTreeMap::new();
    for (name, value) in &theirs {
        if let Some(entry) = reduce::entry(name, value) {
            ours.insert(entry.key.clone(), entry);
        }
    }
    corrections::apply(&mut ours)?;

    let first =
        json!({"source": format!("litellm {VERSION}"), "taken_on": TAKEN_ON, "models": ours.len()});
    let mut lines = format!("{first}\n");
    for entry in ours.values() {
        lines += &serde_json::to_string(entry)?;
        lines += "\n";
    }
    let directory = root.join("crates/models/src/catalogue");
    fs::write(directory.join("models.jsonl"), &lines)?;
    fs::write(directory.join("LICENSE-litellm"), licence)?;
    println!("{} models, {} bytes", ours.len(), lines.len());
    Ok(())
}

/// The package, fetched by the ordinary Python client unless it is there already.
fn package(directory: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let there = |directory: &Path| -> anyhow::Result<Option<PathBuf>> {
        let start = format!("litellm-{VERSION}-");
        let paths = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path()));
        let mut found = None;
        for path in paths {
            let path = path?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(&start) && name.ends_with(".whl") {
                found = Some(path);
            }
        }
        Ok(found)
    };
    if let Some(package) = there(directory)? {
        return Ok(package);
    }
    let status = Command::new("python3")
        .args(["-m", "pip", "download", "--no-deps", "--quiet", "--dest"])
        .arg(directory)
        .arg(format!("litellm=={VERSION}"))
        .status()
        .context("python3 cannot be started")?;
    ensure!(status.success(), "pip could not fetch litellm {VERSION}");
    there(directory)?.context("pip said it fetched the package, but there is none")
}

fn text(archive: &mut zip::ZipArchive<File>, end: &str) -> anyhow::Result<String> {
    let name = archive.file_names().find(|name| name.ends_with(end)).map(String::from);
    let name = name.with_context(|| format!("the package has no {end}"))?;
    let mut text = String::new();
    archive.by_name(&name)?.read_to_string(&mut text)?;
    Ok(text)
}
