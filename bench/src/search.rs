//! `search_text` against `rg` over the same tree, both with everything in the page cache.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::Bench;
use crate::stats::{median, ms};
use crate::table::{Row, Table};
use crate::tools::Workshop;
use crate::turns::time;

const FILE_BYTES: usize = 50_000;
const FILES_PER_DIRECTORY: usize = 50;
/// Of so many files one has a line that is looked for.
const FILES_PER_NEEDLE: usize = 40;
const NEEDLE: &str = "needle_";

/// One that a search for a word finds its way by, and one that has to be tried everywhere.
const PATTERNS: [&str; 2] = ["needle_[0-9]+", "[a-z]{6}_?[0-9]{4}"];

pub async fn run(bench: &Bench, table: &mut Table, workshop: &Workshop) -> anyhow::Result<()> {
    let megabytes = if bench.quick { 20 } else { 200 };
    let files = megabytes * 1_000_000 / FILE_BYTES;
    let tree = workshop.place.cwd().join("tree");
    make_tree(&tree, files)?;
    let rg = rg_is_installed().await?;
    for pattern in PATTERNS {
        let arguments = json!({"pattern": pattern, "path": "tree"});
        let search = async || {
            let found = workshop.call("search_text", &arguments).await?;
            check("search_text", files, &found)
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first of each only warms up.
        for round in 0..=2 * bench.rounds() {
            let took = time(search()).await?;
            let rg_took = if rg { Some(time(run_rg(pattern, &tree, files)).await?) } else { None };
            if round > 0 {
                ours.push(ms(took));
                theirs.extend(rg_took.map(ms));
            }
        }
        let row = Row::new(format!("search_text {pattern} in {megabytes} MB, {files} files"));
        let row = row.measured(format!("{:.0} ms", median(ours.clone())));
        table.add(if rg {
            let ratio = median(ours.iter().zip(&theirs).map(|(ours, rg)| ours / rg));
            row.baseline(format!("{:.0} ms rg", median(theirs)))
                .ratio(ratio)
                .reach("≤ 1.5", ratio <= 1.5)
        } else {
            row.baseline("rg is not installed")
        });
    }
    fs::remove_dir_all(&tree)?;
    Ok(())
}

async fn rg_is_installed() -> anyhow::Result<bool> {
    let mut command = tokio::process::Command::new("rg");
    match command.arg("--version").stdin(Stdio::null()).output().await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("rg"),
    }
}

async fn run_rg(pattern: &str, tree: &Path, files: usize) -> anyhow::Result<()> {
    let mut command = tokio::process::Command::new("rg");
    command.args(["--no-config", "--line-number", "--heading", pattern, "."]);
    let done = command.current_dir(tree).stdin(Stdio::null()).output().await?;
    check("rg", files, &String::from_utf8_lossy(&done.stdout))
}

/// Both find all there is, or their times say nothing.
fn check(who: &str, files: usize, answer: &str) -> anyhow::Result<()> {
    let found = answer.lines().filter(|line| line.contains(NEEDLE)).count();
    let hidden = files.div_ceil(FILES_PER_NEEDLE);
    ensure!(found == hidden, "{who} found {found} of {hidden} lines");
    Ok(())
}

/// Files of words in lines of ordinary length, the same in every run.
fn make_tree(tree: &Path, files: usize) -> anyhow::Result<()> {
    const WORDS: [&str; 16] = [
        "the", "function", "returns", "a", "value", "when", "server", "answers", "with", "message",
        "needless", "index", "of", "(self)", "let", "= 42;",
    ];
    const LINE_BYTES: usize = 72;
    let mut random = 1_u64;
    for index in 0..files {
        let directory = tree.join(format!("part{}", index / FILES_PER_DIRECTORY));
        if index % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        let mut text = String::with_capacity(FILE_BYTES + LINE_BYTES);
        if index % FILES_PER_NEEDLE == 0 {
            writeln!(text, "here lies {NEEDLE}{:04}", index % 10_000)?;
        }
        let mut line_start = text.len();
        while text.len() < FILE_BYTES {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(WORDS[(random >> 60) as usize]);
            let full = text.len() - line_start >= LINE_BYTES;
            text.push(if full { '\n' } else { ' ' });
            line_start = if full { text.len() } else { line_start };
        }
        fs::write(directory.join(format!("file{index}.txt")), text)?;
    }
    Ok(())
}
