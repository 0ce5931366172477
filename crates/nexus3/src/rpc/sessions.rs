//! `nexus3 rpc sessions`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, Subcommand, value_parser};
use nexus_client::Target;
use nexus_protocol::params::Bounded;
use nexus_protocol::session::{
    CloneSession, CloneSessionParams, DeleteSession, DeleteSessionParams, ListSessions,
    ListSessionsParams, LoadSession, LoadSessionParams, RenameSession, RenameSessionParams,
    SaveSession, SaveSessionParams,
};

use super::args::ServerArgs;
use super::ask;
use super::output::Output;

#[derive(Debug, Args)]
pub struct SessionsArgs {
    #[command(subcommand)]
    command: SessionsCommand,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// Lists sessions, the most recently changed first.
    List {
        /// Leaves so many out from the start.
        #[arg(long, value_name = "COUNT")]
        offset: Option<u64>,
        /// Most sessions to print, 1 to 1000; 50 when absent.
        #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=1000))]
        limit: Option<u32>,
        /// Lists live temporary agents too.
        #[arg(long)]
        temp: bool,
    },
    /// Saves an agent under a name.
    ///
    /// A temporary agent becomes permanent under the name. Of a permanent agent this makes a saved copy, which a later
    /// save of the same agent replaces; under the agent's own name its session stays when the agent is destroyed.
    Save {
        /// Name of the agent.
        id: String,
        /// Name of the session.
        name: String,
    },
    /// Makes an agent of a session, with all it had.
    Load {
        /// Name of the session.
        name: String,
        /// Name of the agent; then the session stays and the agent is a copy. The session's own name when absent.
        #[arg(long = "as", value_name = "ID")]
        agent: Option<String>,
        /// Permission preset instead of what the session had; never above its ceiling.
        #[arg(long)]
        preset: Option<String>,
        /// Model instead of the session's.
        #[arg(short, long)]
        model: Option<String>,
    },
    /// Makes a saved copy of a session; the two share their past and go on apart.
    Clone {
        /// Name of the session.
        name: String,
        /// Name of the copy.
        new_name: String,
        /// Index of the last message that the copy keeps; all when absent.
        #[arg(long, value_name = "INDEX")]
        upto: Option<u64>,
    },
    /// Gives a session another name. A live agent follows it, running turns included.
    Rename {
        /// Name of the session.
        name: String,
        /// Its new name.
        new_name: String,
    },
    /// Removes a session for good, and ends the agent that works on it.
    ///
    /// Exit code 1 when there is no such session.
    Delete {
        /// Name of the session.
        name: String,
    },
}

pub async fn run<W: Write>(
    server: &ServerArgs,
    args: SessionsArgs,
    output: &mut Output<W>,
) -> anyhow::Result<ExitCode> {
    let at = &Target::Server;
    let answer = match args.command {
        SessionsCommand::List { offset, limit, temp } => {
            let limit = limit.and_then(Bounded::new);
            let params = ListSessionsParams { offset, limit, include_temp: temp.then_some(true) };
            ask::<ListSessions>(server, at, params).await?
        }
        SessionsCommand::Save { id, name } => {
            let params = SaveSessionParams { agent_id: id, session_name: name };
            ask::<SaveSession>(server, at, params).await?
        }
        SessionsCommand::Load { name, agent, preset, model } => {
            let params = LoadSessionParams { session_name: name, agent_id: agent, preset, model };
            ask::<LoadSession>(server, at, params).await?
        }
        SessionsCommand::Clone { name, new_name, upto } => {
            let params = CloneSessionParams { src_session: name, dest_session: new_name, upto };
            ask::<CloneSession>(server, at, params).await?
        }
        SessionsCommand::Rename { name, new_name } => {
            let params = RenameSessionParams { old_name: name, new_name };
            ask::<RenameSession>(server, at, params).await?
        }
        SessionsCommand::Delete { name } => {
            let params = DeleteSessionParams { session_name: name.clone() };
            let answer = ask::<DeleteSession>(server, at, params).await?;
            output.json(&answer)?;
            ensure!(answer["deleted"] == true, "there is no session {name}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    output.json(&answer)?;
    Ok(ExitCode::SUCCESS)
}
