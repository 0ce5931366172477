//! `nexus3 rpc approvals`.

use anyhow::Result;
use clap::{Args, Subcommand};
use nexus_client::Target;
use nexus_protocol::permission::{
    ApprovalDecision, ListApprovals, ListApprovalsParams, RespondApproval, RespondApprovalParams,
};
use serde_json::Value;

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
    },
    /// Denies it.
    Deny {
        /// Name of the approval.
        approval: String,
        /// What the agent's model is told beside it.
        #[arg(long, short)]
        message: Option<String>,
    },
}

pub async fn run(server: &ServerArgs, args: ApprovalsArgs) -> Result<Value> {
    let (approval, decision, message) = match args.command {
        ApprovalsCommand::List { id, all } => {
            let params = ListApprovalsParams { agent_id: id, include_decided: all.then_some(true) };
            return ask::<ListApprovals>(server, &Target::Server, params).await;
        }
        ApprovalsCommand::Allow { approval, session: false } => {
            (approval, ApprovalDecision::AllowOnce, None)
        }
        ApprovalsCommand::Allow { approval, session: true } => {
            (approval, ApprovalDecision::AllowSession, None)
        }
        ApprovalsCommand::Deny { approval, message } => (approval, ApprovalDecision::Deny, message),
    };
    let params = RespondApprovalParams { approval_id: approval, decision, message };
    ask::<RespondApproval>(server, &Target::Server, params).await
}
