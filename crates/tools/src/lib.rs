//! What the models of this server may call.

mod agents;
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

/// Tools on files and directories.
pub fn file_tools() -> Vec<Arc<dyn Tool>> {
    vec![
        file_tool::<read::ReadFile>(),
        file_tool::<read::Tail>(),
        file_tool::<read::FileInfo>(),
        file_tool::<read::ListDirectory>(),
        file_tool::<search::Glob>(),
        file_tool::<search::SearchText>(),
        file_tool::<outline::Outline>(),
        file_tool::<edit::WriteFile>(),
        file_tool::<edit::AppendFile>(),
        file_tool::<edit::EditFile>(),
        file_tool::<edit::EditLines>(),
        file_tool::<edit::RegexReplace>(),
        file_tool::<patch::Patch>(),
        file_tool::<arrange::CopyFile>(),
        file_tool::<arrange::Rename>(),
        file_tool::<arrange::Mkdir>(),
    ]
}
