//! What the models of this server may call.

mod agents;
mod apart;
mod arrange;
mod command;
mod edit;
mod environment;
mod file_tool;
mod files;
mod git;
mod outline;
mod patch;
mod read;
pub mod sandbox;
mod search;
mod text;
mod typed;
mod walk;
mod words;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use nexus_core::tool::Tool;

pub use agents::agent_tools;
pub use command::{CommandSettings, command_tools};
use file_tool::file_tool;
use sandbox::Launcher;

/// Tools on files and directories. What may cost any time and memory they have done in a process of `launcher`.
pub fn file_tools(launcher: &Launcher) -> Vec<Arc<dyn Tool>> {
    vec![
        file_tool::<read::ReadFile>(launcher),
        file_tool::<read::Tail>(launcher),
        file_tool::<read::FileInfo>(launcher),
        file_tool::<read::ListDirectory>(launcher),
        file_tool::<search::Glob>(launcher),
        file_tool::<search::SearchText>(launcher),
        file_tool::<outline::Outline>(launcher),
        file_tool::<edit::WriteFile>(launcher),
        file_tool::<edit::AppendFile>(launcher),
        file_tool::<edit::EditFile>(launcher),
        file_tool::<edit::EditLines>(launcher),
        file_tool::<edit::RegexReplace>(launcher),
        file_tool::<patch::Patch>(launcher),
        file_tool::<arrange::CopyFile>(launcher),
        file_tool::<arrange::Rename>(launcher),
        file_tool::<arrange::Mkdir>(launcher),
    ]
}
