//! What can be said with a `/` before it. Each command is made of methods that any client has.

use std::pin::Pin;

use crate::cx::{Cx, Done, Refused};
use crate::figures::rows;
use crate::style::{Colour, Line, Style};

/// One command: what it is called, what it says of itself, and what it does.
pub struct Command {
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// How it is used, a form to a line.
    pub usage: &'static str,
    /// What it does, in a sentence or a few.
    pub help: &'static str,
    /// What its first word is, for whoever completes it.
    pub argument: Argument,
    run: fn(Cx, String) -> Running,
}

/// What can stand behind the name of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Nothing, or nothing that could be listed.
    None,
    Agent,
    Session,
    Model,
    Preset,
    Command,
    Path,
}

type Running = Pin<Box<dyn Future<Output = Done> + Send>>;

/// Makes the entry of a command: `command!("list", [], None, "/list", "All agents…", agents::list)`.
macro_rules! command {
    ($name:literal, [$($alias:literal),*], $argument:ident, $usage:literal, $help:literal, $run:path $(,)?) => {
        Command {
            argument: Argument::$argument,
            name: $name,
            aliases: &[$($alias),*],
            usage: $usage,
            help: $help,
            run: |cx, rest| Box::pin(async move { $run(&cx, &rest).await }),
        }
    };
}

mod agents;
mod approvals;
mod ending;
mod export;
mod files;
mod flags;
mod forks;
pub mod init;
mod leaving;
mod mcp;
mod messages;
mod permissions;
mod rpc;
mod sessions;
mod settings;
mod status;
mod table;
mod talk;
#[cfg(test)]
mod tests;
mod tools;
mod tree;

pub use table::COMMANDS;

/// What a line of input is.
pub enum Said<'a> {
    /// To the agent.
    Text(String),
    Command(&'a str, &'a str),
}

/// Text that begins with `/` and whose first word has no further `/` is a command; `//` sends a `/`.
pub fn read(input: &str) -> Said<'_> {
    if let Some(rest) = input.strip_prefix("//") {
        return Said::Text(format!("/{rest}"));
    }
    let Some(rest) = input.strip_prefix('/') else { return Said::Text(input.into()) };
    let (name, rest) = rest.split_once([' ', '\t', '\n']).unwrap_or((rest, ""));
    match name.contains('/') {
        true => Said::Text(input.into()),
        false => Said::Command(name, rest.trim()),
    }
}

/// Runs a command to its end, and says why where it refuses.
pub async fn run(cx: Cx, name: &str, rest: &str) {
    let done = match find(name) {
        Some(command) if asks_for_help(rest) => {
            cx.say_all(describe(command, cx.width));
            Ok(())
        }
        Some(command) => (command.run)(cx.clone(), rest.to_owned()).await,
        None => Err(unknown(name)),
    };
    if let Err(refused) = done {
        cx.say(Line::styled(refused.to_string(), Style::colour(Colour::Red)));
    }
}

fn asks_for_help(rest: &str) -> bool {
    matches!(rest, "--help" | "-h" | "help")
}

pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name || command.aliases.contains(&name))
}

fn unknown(name: &str) -> Refused {
    let names = COMMANDS.iter().flat_map(|command| command.aliases.iter().chain([&command.name]));
    let near = names.map(|known| (distance(known, name), known)).min();
    let hint = match near {
        Some((distance, known)) if distance <= 2 => format!(" Did you mean /{known}?"),
        _ => String::new(),
    };
    Refused::Said(format!("Unknown command: /{name}. Use /help for available commands.{hint}"))
}

/// How many letters differ (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, c) in one.chars().enumerate() {
        let mut corner = row[0];
        row[0] = at + 1;
        for (column, &o) in other.iter().enumerate() {
            let swapped = corner + usize::from(o != c);
            corner = row[column + 1];
            row[column + 1] = swapped.min(row[column] + 1).min(corner + 1);
        }
    }
    row[other.len()]
}

fn describe(command: &Command, width: usize) -> Vec<Line> {
    let usages = command.usage.lines().map(|usage| Line::styled(usage, Style::BOLD));
    usages.chain(rows(command.help, width).into_iter().map(Line::plain)).collect()
}

/// A command in the list of all: beside how it is used what it does, or below it where there is no room.
fn summary(command: &Command, width: usize) -> Vec<Line> {
    let usage = command.usage.lines().next().unwrap_or(command.name);
    let first = command.help.split_inclusive(". ").next().unwrap_or_default();
    let is_beside = width >= 2 * USAGE_COLUMNS && usage.len() < USAGE_COLUMNS;
    let indent = if width >= 2 * USAGE_COLUMNS { USAGE_COLUMNS } else { 2 };
    let said = rows(first, width.saturating_sub(indent)).into_iter();
    let mut said = said.map(|row| format!("{:indent$}{row}", ""));
    let head = Line::styled(usage, Style::BOLD);
    let head = match is_beside.then(|| said.next()).flatten() {
        Some(first) => head.with(&first[usage.len()..], Style::PLAIN),
        None => head,
    };
    [head].into_iter().chain(said.map(Line::plain)).collect()
}

/// Columns for how commands are used.
const USAGE_COLUMNS: usize = 37;

/// What there is, or how one command is used.
async fn help(cx: &Cx, rest: &str) -> Done {
    if !rest.is_empty() {
        let name = rest.trim_start_matches('/');
        let Some(command) = find(name) else { return Err(unknown(name)) };
        cx.say_all(describe(command, cx.width));
        return Ok(());
    }
    cx.say_all(COMMANDS.iter().flat_map(|command| summary(command, cx.width)).collect());
    Ok(())
}

/// The original had it.
async fn gitlab(cx: &Cx, _: &str) -> Done {
    cx.note(
        "GitLab is left to MCP: a server of the Model Context Protocol for it brings its tools.",
    );
    Ok(())
}

#[cfg(test)]
mod layout {
    use super::*;

    #[test]
    fn help_is_broken_at_words() {
        let texts = |name: &str, width| -> Vec<String> {
            summary(find(name).unwrap(), width).iter().map(Line::text).collect()
        };
        let beside = " ".repeat(USAGE_COLUMNS - "/list".len());
        let said = "All agents: model, level, messages,";
        let below = format!("{}directory, state.", " ".repeat(USAGE_COLUMNS));
        assert_eq!(texts("list", 80), [format!("/list{beside}{said}"), below]);
        assert_eq!(
            texts("list", 37),
            ["/list", "  All agents: model, level, messages,", "  directory, state."]
        );
        for width in [40, 80, 100] {
            let usage =
                |line: &Line| line.spans.first().is_some_and(|span| span.style == Style::BOLD);
            let rows = COMMANDS
                .iter()
                .flat_map(|command| [summary(command, width), describe(command, width)].concat());
            for line in rows.filter(|line| line.width() > width) {
                assert!(usage(&line) && line.spans.len() == 1, "{}", line.text());
            }
        }
    }
}
