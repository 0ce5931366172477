//! The terminal: a conversation with agents. It knows of them what it learned over the same interface as any program.

mod app;
pub mod code;
mod commands;
mod compose;
mod cx;
mod editor;
mod figures;
mod focus;
mod follow;
mod fuzzy;
mod guard;
mod history;
pub mod keymap;
mod keys;
mod link;
mod links;
pub mod markdown;
pub mod options;
mod plain;
mod screen;
mod session;
pub mod shown;
mod start;
pub mod style;
#[cfg(test)]
mod testing;
mod toolview;
mod tty;
mod view;

use std::path::Path;

use options::Options;

/// Talks with the person at this terminal until he leaves; the exit code.
pub async fn run(options: Options) -> std::io::Result<u8> {
    match options.settings.plain {
        true => plain::run(options).await,
        false => app::run(options).await,
    }
}

/// Writes what a person's home begins with, as `/init --global` does; says what was written, or why nothing was. `force`
/// is the flag by which files are replaced that are there.
pub fn init_global(home: &Path, is_forced: bool, force: &str) -> Result<Vec<String>, String> {
    commands::init::global(home, is_forced, force)
}

/// How each command is used, for whoever describes them.
pub fn command_usages() -> impl Iterator<Item = &'static str> {
    commands::COMMANDS.iter().map(|command| command.usage)
}
