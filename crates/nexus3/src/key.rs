//! `nexus3 key`: keys by which callers sign their requests, straight from the store; no server is needed, and one may run.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use nexus_core::keys::{DAYS_DEFAULT, Keys, NewKey};
use nexus_core::store::{AgentStore as _, KeyAgent};
use nexus_core::{AgentId, Requester};
use nexus_protocol::key::{
    CreateKeyParams, CreateKeyResult, ListKeysResult, RevokeKeyParams, RevokeKeyResult,
};
use nexus_protocol::params::Bounded;
use nexus_server::key_entry;
use nexus_store::SqliteStore;
use serde::Serialize;

use crate::output::print_json;
use crate::wiring;

#[derive(Debug, Args)]
pub struct KeyArgs {
    #[command(subcommand)]
    pub command: KeyCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Makes a key and prints it, with its secret, which is never shown again.
    Create {
        /// What requests call it (auth.key_id): letters, digits, '.', '_' and '-'.
        name: String,
        /// A method it is for, or the beginning of some with a * behind it; may be given several times. All when absent.
        #[arg(long = "method", value_name = "METHOD")]
        methods: Vec<String>,
        /// Lets it act as this agent, and no more.
        #[arg(long, value_name = "ID")]
        agent: Option<String>,
        /// Days until it ends; 90 when absent.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: Option<u32>,
    },
    /// Lists the keys, without their secrets.
    List,
    /// Ends a key at once.
    ///
    /// Exit code 0 when there was one of this name, 1 when not.
    Revoke {
        /// Name of the key.
        name: String,
    },
}

/// A command as the parameters of its method.
pub enum KeyCall {
    Create(CreateKeyParams),
    List,
    Revoke(RevokeKeyParams),
}

impl From<KeyCommand> for KeyCall {
    fn from(command: KeyCommand) -> Self {
        match command {
            KeyCommand::Create { name, methods, agent, days } => Self::Create(CreateKeyParams {
                name,
                methods: Some(methods).filter(|methods| !methods.is_empty()),
                agent_id: agent,
                expires_days: days.and_then(Bounded::new),
            }),
            KeyCommand::List => Self::List,
            KeyCommand::Revoke { name } => Self::Revoke(RevokeKeyParams { name }),
        }
    }
}

pub async fn run(args: KeyArgs) -> anyhow::Result<ExitCode> {
    let home = wiring::home()?;
    let mode = wiring::signing_mode(&wiring::load_config(&home, None)?.hmac).name().to_owned();
    let store = Arc::new(SqliteStore::open(&home)?);
    let done = on_store(&store, args.command.into(), mode).await;
    store.close().await?;
    done
}

async fn on_store(
    store: &Arc<SqliteStore>,
    call: KeyCall,
    mode: String,
) -> anyhow::Result<ExitCode> {
    let (keys, requester) = (Keys::new(store.clone()), Requester::Administrator);
    match call {
        KeyCall::Create(params) => {
            let agent = match &params.agent_id {
                None => None,
                Some(name) => Some(agent(store, name).await?),
            };
            let key = NewKey {
                name: params.name,
                methods: params.methods,
                agent,
                days: params.expires_days.map_or(DAYS_DEFAULT, Bounded::get),
            };
            let made = keys.create(&requester, key).await?;
            say(&CreateKeyResult { entry: key_entry(&made), key: made.secret, mode })?;
        }
        KeyCall::List => {
            let keys = keys.list(&requester).await?.iter().map(key_entry).collect();
            say(&ListKeysResult { keys, mode })?;
        }
        KeyCall::Revoke(RevokeKeyParams { name }) => {
            let revoked = keys.revoke(&requester, &name).await?;
            say(&RevokeKeyResult { revoked })?;
            return Ok(if revoked { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn agent(store: &SqliteStore, name: &str) -> anyhow::Result<KeyAgent> {
    let id = AgentId::parse(name).context("--agent")?;
    let lineage = store.lineage(&id).await?;
    let record = lineage.first().with_context(|| format!("--agent: unknown agent: {id}"))?;
    Ok(KeyAgent { id, born: record.born })
}

fn say(result: &impl Serialize) -> anyhow::Result<()> {
    print_json(format!("{}\n", serde_json::to_string(result)?))
}
