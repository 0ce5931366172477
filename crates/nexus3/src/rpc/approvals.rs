//! `nexus3 rpc approvals`.

use anyhow::Result;
use clap::{Args, Subcommand};
use nexus_client::Target;
use nexus_protocol::permission::{
    ApprovalDecision, ListApprovals, ListApprovalsParams, RespondApproval, RespondApprovalParams,
};
use serde_json::{Map, Value};

use super::args::ServerArgs;
use super::ask;

#[derive(Debug, Args)]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// Lists what waits for somebody's leave, the oldest first.
    List {
        /// Only this agent's.
        id: Option<String>,
        /// Those that were decided too.
        #[arg(long)]
        all: bool,
    },
    /// Allows it, this once.
    Allow {
        /// Name of the approval: what list prints as approval_id.
        approval: String,
        /// Allows the like of it for as long as the agent lives.
        #[arg(long)]
        session: bool,
        /// With --session: allows all tools of the MCP server, as they are now.
        #[arg(long, requires = "session")]
        server: bool,
    },
    /// Denies it.
    Deny {
        /// Name of the approval.
        approval: String,
        /// What the agent's model is told beside it.
        #[arg(long, short)]
        message: Option<String>,
    },
    /// Answers a question of an MCP server.
    Accept {
        /// Name of the approval.
        approval: String,
        /// What stands in the form, as JSON; what is left out has its default.
        #[arg(value_parser = object, default_value = "{}")]
        content: Map<String, Value>,
    },
    /// Says no to a question of an MCP server.
    Decline {
        /// Name of the approval.
        approval: String,
    },
    /// Leaves a question of an MCP server unanswered.
    Cancel {
        /// Name of the approval.
        approval: String,
    },
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("it is no object in JSON: {error}"))
}

pub async fn run(server: &ServerArgs, args: ApprovalsArgs) -> Result<Value> {
    let params = match args.command {
        ApprovalsCommand::List { id, all } => {
            let params = ListApprovalsParams { agent_id: id, include_decided: all.then_some(true) };
            return ask::<ListApprovals>(server, &Target::Server, params).await;
        }
        ApprovalsCommand::Allow { approval, server: true, .. } => {
            RespondApprovalParams::allow_server(approval)
        }
        ApprovalsCommand::Allow { approval, session: false, .. } => {
            RespondApprovalParams::new(approval, ApprovalDecision::AllowOnce)
        }
        ApprovalsCommand::Allow { approval, session: true, .. } => {
            RespondApprovalParams::new(approval, ApprovalDecision::AllowSession)
        }
        ApprovalsCommand::Deny { approval, message } => {
            let params = RespondApprovalParams::new(approval, ApprovalDecision::Deny);
            RespondApprovalParams { message, ..params }
        }
        ApprovalsCommand::Accept { approval, content } => {
            let params = RespondApprovalParams::new(approval, ApprovalDecision::Accept);
            RespondApprovalParams { content: Some(content), ..params }
        }
        ApprovalsCommand::Decline { approval } => {
            RespondApprovalParams::new(approval, ApprovalDecision::Decline)
        }
        ApprovalsCommand::Cancel { approval } => {
            RespondApprovalParams::new(approval, ApprovalDecision::Cancel)
        }
    };
    ask::<RespondApproval>(server, &Target::Server, params).await
}
