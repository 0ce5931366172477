//! What can be said to a session instead of to its model: `/compact`, `/status`, `/mcp`.

use agent_client_protocol_schema::v1::AvailableCommand;
use nexus_protocol::mcp::{McpListServers, McpListServersParams};
use nexus_protocol::params::NoParams;
use nexus_protocol::permission::GetPermissions;
use nexus_protocol::settings::GetModel;
use nexus_protocol::{Api, CallError, Target};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Compact,
    Status,
    Mcp,
}

const ALL: [(Command, &str, &str); 3] = [
    (Command::Compact, "compact", "Summarise the older part of the conversation"),
    (Command::Status, "status", "Show model, permissions, directory and context"),
    (Command::Mcp, "mcp", "List the MCP servers that this agent sees"),
];

pub fn available() -> Vec<AvailableCommand> {
    ALL.map(|(_, name, purpose)| AvailableCommand::new(name, purpose)).into()
}

impl Command {
    /// The command that a text is, and nothing else is in it.
    pub fn of(text: &str) -> Option<Self> {
        let name = text.trim().strip_prefix('/')?;
        ALL.into_iter().find_map(|(command, known, _)| (known == name).then_some(command))
    }

    /// What it has to say.
    pub async fn run<A: Api>(self, api: &A, agent: &str) -> Result<String, CallError> {
        match self {
            Self::Compact => {
                let done = api.for_agent(agent).compact().await?;
                Ok(match (done.compacted, done.tokens_before, done.tokens_after) {
                    (true, Some(before), Some(after)) => {
                        format!("Compacted: {before} tokens before, {after} after.")
                    }
                    (true, ..) => "Compacted.".into(),
                    (false, ..) => {
                        let why = done.reason.unwrap_or_else(|| "there is nothing to do".into());
                        format!("Not compacted: {why}.")
                    }
                })
            }
            Self::Status => status(api, agent).await,
            Self::Mcp => servers(api, agent).await,
        }
    }
}

async fn status<A: Api>(api: &A, agent: &str) -> Result<String, CallError> {
    let target = Target::Agent(agent.into());
    let permissions = api.call::<GetPermissions>(&target, NoParams {}).await?;
    let tokens = api.for_agent(agent).get_tokens().await?;
    let context = api.for_agent(agent).get_context().await?;
    let model = match api.call::<GetModel>(&target, NoParams {}).await {
        Ok(model) => model.model,
        Err(_) => "none".into(),
    };
    Ok(format!(
        "- agent: {agent}\n- model: {model}\n- permissions: {}\n- directory: {}\n- messages: {}\n- context: {} of {} tokens",
        permissions.preset,
        permissions.policy.cwd,
        context.message_count,
        tokens.total,
        tokens.budget,
    ))
}

async fn servers<A: Api>(api: &A, agent: &str) -> Result<String, CallError> {
    let params = McpListServersParams::default();
    let listed = api.call::<McpListServers>(&Target::Agent(agent.into()), params).await?;
    let line = |it: &nexus_protocol::mcp::McpServerEntry| {
        format!("- {}: {}, {} tools", it.name, it.state, it.tool_count)
    };
    let lines: Vec<_> = listed.servers.iter().filter(|it| it.visible).map(line).collect();
    Ok(match lines.is_empty() {
        true => "This agent sees no MCP servers.".into(),
        false => lines.join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_stands_alone() {
        assert_eq!(Command::of(" /compact\n"), Some(Command::Compact));
        assert_eq!(Command::of("/status"), Some(Command::Status));
        for text in ["compact", "/compact it", "/Compact", "/", "/etc/passwd", "say /status"] {
            assert_eq!(Command::of(text), None, "{text}");
        }
    }
}
