//! What the models of this server may call.

mod agents;
mod apart;
mod arrange;
pub mod attach;
mod change;
mod command;
mod edit;
pub mod environment;
mod file_tool;
mod files;
mod git;
mod memory;
mod outline;
mod patch;
mod plan;
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
pub use memory::memory_tools;
pub use plan::plan_tool;
use sandbox::Launcher;

/// Tools on files and directories. What may cost any time and memory they have done in a process of `launcher`. Images
/// are shown with at most `image_side_max` pixels a side.
pub fn file_tools(launcher: &Launcher, image_side_max: u32) -> Vec<Arc<dyn Tool>> {
    vec![
        file_tool::<read::ReadFile>(launcher, image_side_max),
        file_tool::<read::Tail>(launcher, image_side_max),
        file_tool::<read::FileInfo>(launcher, image_side_max),
        file_tool::<read::ListDirectory>(launcher, image_side_max),
        file_tool::<search::Glob>(launcher, image_side_max),
        file_tool::<search::SearchText>(launcher, image_side_max),
        file_tool::<outline::Outline>(launcher, image_side_max),
        file_tool::<edit::WriteFile>(launcher, image_side_max),
        file_tool::<edit::AppendFile>(launcher, image_side_max),
        file_tool::<edit::EditFile>(launcher, image_side_max),
        file_tool::<edit::EditLines>(launcher, image_side_max),
        file_tool::<edit::RegexReplace>(launcher, image_side_max),
        file_tool::<patch::Patch>(launcher, image_side_max),
        file_tool::<arrange::CopyFile>(launcher, image_side_max),
        file_tool::<arrange::Rename>(launcher, image_side_max),
        file_tool::<arrange::Mkdir>(launcher, image_side_max),
    ]
}
