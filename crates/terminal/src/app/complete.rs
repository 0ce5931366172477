//! The list that helps to write a word: commands, what stands behind them, agents, files.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::commands::{self, Argument, COMMANDS, Command};
use crate::editor::Editor;
use crate::fuzzy::Files;
use crate::session::Session;
use crate::style::{Line, Style};

/// Rows of the list.
const ROWS_MAX: usize = 8;

/// While a walk through a directory begins, its first hits come in.
const WALK: Duration = Duration::from_secs(2);

pub struct Completion {
    /// Where the word begins.
    from: usize,
    items: Vec<Item>,
    at: usize,
}

struct Item {
    text: String,
    says: String,
}

/// The files of the agent's directory, once somebody asked for one.
#[derive(Default)]
pub struct Walk {
    files: Files,
    of: Option<(PathBuf, bool)>,
    began: Option<Instant>,
}

impl Walk {
    /// Whether more may be found in a moment.
    pub fn is_young(&self) -> bool {
        self.began.is_some_and(|began| began.elapsed() < WALK)
    }

    fn best(&mut self, root: PathBuf, heed: bool, query: &str) -> Vec<String> {
        let wanted = Some((root, heed));
        if self.of != wanted
            && let Some((root, heed)) = &wanted
        {
            self.files.walk(root, *heed);
            self.began = Some(Instant::now());
            self.of = wanted;
        }
        self.files.best(query, ROWS_MAX)
    }

    /// Nobody asks any more; the next time the directory may have changed.
    pub fn forget(&mut self) {
        if self.of.take().is_some() {
            self.files.forget();
            self.began = None;
        }
    }
}

impl Completion {
    /// The list that opens by itself: commands, agents behind those that want one, and files.
    pub fn of(editor: &Editor, session: Option<&Session>, walk: &mut Walk) -> Option<Self> {
        let (from, word) = editor.word();
        let is_command = from == 0 && word.starts_with('/') && !word.starts_with("//");
        if is_command || word.starts_with('@') {
            return Self::asked(editor, session, walk);
        }
        walk.forget();
        let is_agents = from > 0
            && editor.raw().starts_with('/')
            && command_before(editor.raw()).is_some_and(|it| it.argument == Argument::Agent);
        let list = Self::asked(editor, session, walk).filter(|_| is_agents)?;
        // A name that is written out needs no help.
        (!list.items.iter().any(|item| item.text.trim_end() == word)).then_some(list)
    }

    /// The list that Tab asks for: what stands behind a command, and names of agents, too.
    pub fn asked(editor: &Editor, session: Option<&Session>, walk: &mut Walk) -> Option<Self> {
        let (from, word) = editor.word();
        let items = if let Some(name) = word.strip_prefix('/').filter(|_| from == 0) {
            names_of_commands(name, "/")
        } else if let Some(query) = word.strip_prefix('@') {
            let (query, heed) = match query.strip_prefix('!') {
                Some(query) => (query, false),
                None => (query, true),
            };
            let session = session?;
            let root = session.mark().map(|mark| PathBuf::from(&mark.agent.cwd));
            let root = root.unwrap_or_else(|| session.making.cwd.clone());
            let found = walk.best(root, heed, query);
            found
                .into_iter()
                .map(|path| Item { text: quoted(&path), says: String::new() })
                .collect()
        } else {
            behind(argument(editor.raw()), word, session?)
        };
        (!items.is_empty()).then_some(Self { from, items, at: 0 })
    }

    pub fn is_single(&self) -> bool {
        self.items.len() == 1
    }

    pub fn step(&mut self, down: bool) {
        let count = self.items.len();
        self.at = if down { (self.at + 1) % count } else { (self.at + count - 1) % count };
    }

    /// What is put in the place of the word, and where that begins.
    pub fn chosen(self) -> Option<(usize, String)> {
        let item = self.items.into_iter().nth(self.at)?;
        Some((self.from, item.text))
    }

    /// The part of the list in which the chosen item is.
    pub fn rows(&self, rows_max: usize) -> Vec<Line> {
        let rows_max = rows_max.min(ROWS_MAX);
        let first = (self.at + 1).saturating_sub(rows_max);
        let items = self.items.iter().enumerate().skip(first).take(rows_max);
        let rows = items.map(|(at, item)| {
            let style = if at == self.at { Style::BOLD } else { Style::PLAIN };
            Line::styled(format!("{:<16}", item.text), style).with(item.says.as_str(), Style::DIM)
        });
        rows.collect()
    }
}

/// What the word behind the command is; an agent where there is none.
fn argument(text: &str) -> Argument {
    command_before(text).map_or(Argument::Agent, |command| command.argument)
}

/// The command that a text begins with.
fn command_before(text: &str) -> Option<&'static Command> {
    let name = text.strip_prefix('/')?.split([' ', '\t', '\n']).next()?;
    commands::find(name)
}

fn behind(argument: Argument, word: &str, session: &Session) -> Vec<Item> {
    let item = |name: &str, says: &str| Item { text: format!("{name} "), says: says.to_owned() };
    let names = |names: &[String]| -> Vec<Item> {
        names.iter().filter(|name| name.starts_with(word)).map(|name| item(name, "")).collect()
    };
    match argument {
        Argument::Agent => {
            let agents = session.agents.iter().map(|mark| &mark.agent);
            let agents = agents.filter(|agent| agent.agent_id.starts_with(word));
            agents.map(|agent| item(&agent.agent_id, &agent.status)).collect()
        }
        Argument::Session => names(&session.names.sessions),
        Argument::Model => names(&session.names.models),
        Argument::Preset => names(&session.names.presets),
        Argument::Command => names_of_commands(word, ""),
        Argument::Path | Argument::None => Vec::new(),
    }
}

fn names_of_commands(name: &str, mark: &str) -> Vec<Item> {
    let commands = COMMANDS.iter();
    let commands = commands.filter(|it| it.name.starts_with(name) && it.name != name);
    let items = commands.map(|command| Item {
        text: format!("{mark}{} ", command.name),
        says: command.help.split_inclusive('.').next().unwrap_or_default().to_owned(),
    });
    items.collect()
}

/// A path that would be several words is put in quotes.
fn quoted(path: &str) -> String {
    match path.contains(char::is_whitespace) {
        true => format!("\"{path}\" "),
        false => format!("{path} "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a list opens by itself, without a server, and the rows that it then has.
    fn rows(text: &str, rows_max: usize) -> Option<Vec<String>> {
        let mut editor = Editor::default();
        editor.set(text);
        let list = Completion::of(&editor, None, &mut Walk::default())?;
        Some(list.rows(rows_max).iter().map(Line::text).collect())
    }

    #[test]
    fn a_slash_opens_the_list_of_commands() {
        let all = rows("/", 20).unwrap();
        assert_eq!(all.len(), ROWS_MAX);
        assert!(rows("/dest", 20).unwrap()[0].starts_with("/destroy "));
        for nothing in ["", "hello", "//", "a /b", "/nothing"] {
            assert_eq!(rows(nothing, 20), None, "{nothing:?}");
        }
    }

    #[test]
    fn the_chosen_item_is_in_the_rows_that_there_are() {
        let mut editor = Editor::default();
        editor.set("/");
        let mut list = Completion::of(&editor, None, &mut Walk::default()).unwrap();
        for _ in 0..5 {
            list.step(true);
        }
        let rows = list.rows(3);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[2].spans[0].style, Style::BOLD);
    }
}
