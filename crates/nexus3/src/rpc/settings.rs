//! `nexus3 rpc cwd`, `permissions`, `prompt` and `model`: each prints a setting, or changes it when it is given one.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use nexus_client::Target;
use nexus_protocol::params::NoParams;
use nexus_protocol::permission::{GetPermissions, SetPermissions, SetPermissionsParams};
use nexus_protocol::settings::{
    GetModel, GetSystemPrompt, SetCwd, SetCwdParams, SetModel, SetModelParams, SetSystemPrompt,
    SetSystemPromptParams,
};
use serde_json::{Value, json};

use super::args::ServerArgs;
use super::{absolute, ask, text_or_stdin};

#[derive(Debug, Subcommand)]
pub enum SettingsCommand {
    /// Prints an agent's working directory, or changes it.
    Cwd {
        /// Name of the agent.
        id: String,
        /// The new directory, relative to yours.
        directory: Option<PathBuf>,
    },
    /// Prints what an agent may do, or changes it, never above its ceiling.
    Permissions(PermissionsArgs),
    /// Prints an agent's system prompt, or replaces it.
    Prompt {
        /// Name of the agent.
        id: String,
        /// The new prompt; "-" reads it from stdin. Put "--" before one that starts with "-".
        text: Option<String>,
    },
    /// Prints an agent's model, or changes it.
    Model {
        /// Name of the agent.
        id: String,
        /// The new model, by alias or as provider/model-id.
        model: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct PermissionsArgs {
    /// Name of the agent.
    id: String,
    /// Permission preset to switch to.
    #[arg(long)]
    preset: Option<String>,
    /// Tool to switch off. May be given several times.
    #[arg(long = "disable", value_name = "TOOL")]
    disable_tools: Vec<String>,
    /// Tool to switch on again. May be given several times.
    #[arg(long = "enable", value_name = "TOOL")]
    enable_tools: Vec<String>,
}

pub async fn run(server: &ServerArgs, command: SettingsCommand) -> anyhow::Result<Value> {
    let agent = Target::Agent;
    match command {
        SettingsCommand::Cwd { id, directory: Some(directory) } => {
            let params = SetCwdParams { cwd: absolute(&directory)?, additional_directories: None };
            ask::<SetCwd>(server, &agent(id), params).await
        }
        SettingsCommand::Cwd { id, directory: None } => {
            let held = ask::<GetPermissions>(server, &agent(id), NoParams {}).await?;
            Ok(json!({"cwd": held["policy"]["cwd"]}))
        }
        SettingsCommand::Permissions(args) => permissions(server, args).await,
        SettingsCommand::Prompt { id, text: Some(text) } => {
            let params = SetSystemPromptParams { system_prompt: text_or_stdin(text)? };
            ask::<SetSystemPrompt>(server, &agent(id), params).await
        }
        SettingsCommand::Prompt { id, text: None } => {
            ask::<GetSystemPrompt>(server, &agent(id), NoParams {}).await
        }
        SettingsCommand::Model { id, model: Some(model) } => {
            ask::<SetModel>(server, &agent(id), SetModelParams { model, reasoning: None }).await
        }
        SettingsCommand::Model { id, model: None } => {
            ask::<GetModel>(server, &agent(id), NoParams {}).await
        }
    }
}

async fn permissions(server: &ServerArgs, args: PermissionsArgs) -> anyhow::Result<Value> {
    let PermissionsArgs { id, preset, disable_tools, enable_tools } = args;
    let target = Target::Agent(id);
    if preset.is_none() && disable_tools.is_empty() && enable_tools.is_empty() {
        return ask::<GetPermissions>(server, &target, NoParams {}).await;
    }
    let named = |tools: Vec<String>| (!tools.is_empty()).then_some(tools);
    let params = SetPermissionsParams {
        preset,
        disable_tools: named(disable_tools),
        enable_tools: named(enable_tools),
    };
    ask::<SetPermissions>(server, &target, params).await
}
