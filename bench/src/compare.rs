//! Two servers side by side: the same groups on one and on the other in turns, and the medians of what they came to.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::USAGE;
use crate::stats::median;

const RUNS: usize = 5;

/// What a run of one server printed: its rows by name, in their order.
type Run = Vec<(String, Numbers)>;

struct Numbers {
    /// The first number of what was measured.
    measured: f64,
    unit: String,
    ratio: Option<f64>,
}

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let [old, new, groups @ ..] = args else { bail!(USAGE) };
    ensure!(groups.iter().any(|group| !group.starts_with("--")), USAGE);
    let (mut olds, mut news) = (Vec::new(), Vec::new());
    for run in 1..=RUNS {
        eprintln!("run {run} of {RUNS}");
        olds.push(measure(old, groups)?);
        news.push(measure(new, groups)?);
    }
    println!(
        "| {:<64} | {:>10} | {:>10} | {:<8} | {:>7} | ratio to its baseline, old and new |",
        "what", "old", "new", "unit", "new/old"
    );
    println!("|{:-<66}|{:-<12}|{:-<12}|{:-<10}|{:-<9}|{:-<36}|", "", "", "", "", "", "");
    let (old, new) = (by_name(&olds), by_name(&news));
    for (name, Numbers { unit, .. }) in news.first().context("no run")? {
        let (Some(old), Some(new)) = (old.get(name.as_str()), new.get(name.as_str())) else {
            println!("| {name:<64} | not in both");
            continue;
        };
        let middle = |numbers: &[&Numbers]| median(numbers.iter().map(|it| it.measured));
        let ratio = |numbers: &[&Numbers]| median(numbers.iter().filter_map(|it| it.ratio));
        let (before, after) = (middle(old), middle(new));
        let (ratio_before, ratio_after) = (ratio(old), ratio(new));
        let ratios = match ratio_before.is_nan() || ratio_after.is_nan() {
            true => String::new(),
            false => format!("{ratio_before:.2} {ratio_after:.2}"),
        };
        println!(
            "| {name:<64} | {before:>10.3} | {after:>10.3} | {unit:<8} | {:>7.2} | {ratios:<34} |",
            after / before
        );
    }
    Ok(())
}

fn by_name(runs: &[Run]) -> BTreeMap<&str, Vec<&Numbers>> {
    let mut rows: BTreeMap<&str, Vec<&Numbers>> = BTreeMap::new();
    for (name, numbers) in runs.iter().flatten() {
        rows.entry(name).or_default().push(numbers);
    }
    rows
}

/// Runs this program once on a server, and reads the table it prints.
fn measure(server: &str, groups: &[String]) -> anyhow::Result<Run> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(groups).args(["--server", server]).stderr(Stdio::inherit());
    let output = command.output()?;
    ensure!(output.status.success(), "{server} could not be measured");
    let text = String::from_utf8(output.stdout)?;
    // The table's head has no numbers, and so is no row.
    Ok(text.lines().filter_map(row).collect())
}

fn row(line: &str) -> Option<(String, Numbers)> {
    let cells: Vec<_> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let [what, measured, _, ratio, ..] = cells.as_slice() else { return None };
    let digits = |it: char| it.is_ascii_digit() || it == '.' || it == '-';
    let end = measured.find(|it| !digits(it)).unwrap_or(measured.len());
    let (number, rest) = measured.split_at(end);
    let unit = rest.trim_start().split([' ', ',', ';']).next().unwrap_or_default();
    let numbers = Numbers {
        measured: number.parse().ok()?,
        unit: unit.to_owned(),
        ratio: ratio.parse().ok(),
    };
    Some(((*what).to_owned(), numbers))
}
