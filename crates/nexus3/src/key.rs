//! `nexus3 key`: keys of callers, to sign requests or to be let in at a door. No server is needed, and one may run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use nexus_client::Way;
use nexus_config::Config;
use nexus_core::keys::{DAYS_DEFAULT, Keys, NewKey};
use nexus_core::store::{AgentStore as _, KeyAgent};
use nexus_core::{AgentId, Requester};
use nexus_protocol::key::{
    CreateKey, CreateKeyParams, CreateKeyResult, Door, ListKeysResult, RevokeKey, RevokeKeyParams,
    RevokeKeyResult,
};
use nexus_protocol::params::Bounded;
use nexus_protocol::{Api as _, CallError, Target};
use nexus_server::{DirectAgentApi, key_entry, stored_door};
use nexus_store::SqliteStore;
use nexus_tools::sandbox::Launcher;
use serde::Serialize;

use crate::home::home_server;
use crate::output::print_json;
use crate::wiring::{self, Logs};
use crate::{rpc, serve};

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
        /// Makes a bearer token for this door instead, good across restarts: mcp, openai or websocket. May be given several times.
        #[arg(long = "door", value_name = "DOOR", value_parser = door, conflicts_with = "methods")]
        doors: Vec<Door>,
        /// A method it is for, or the beginning of some with a * behind it; may be given several times. All when absent.
        #[arg(long = "method", value_name = "METHOD")]
        methods: Vec<String>,
        /// Lets it act as this agent, and no more; with --door, one is made for it when absent, door-NAME.
        #[arg(long, value_name = "ID")]
        agent: Option<String>,
        /// Preset of the agent that is made.
        #[arg(long, value_name = "NAME", requires = "doors", conflicts_with = "agent")]
        preset: Option<String>,
        /// Its working directory.
        #[arg(long, value_name = "DIR", requires = "doors", conflicts_with = "agent")]
        cwd: Option<PathBuf>,
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
            KeyCommand::Create { name, doors, methods, agent, preset, cwd, days } => {
                Self::Create(CreateKeyParams {
                    name,
                    methods: Some(methods).filter(|methods| !methods.is_empty()),
                    doors: Some(doors).filter(|doors| !doors.is_empty()),
                    agent_id: agent,
                    preset,
                    cwd: cwd
                        .map(|cwd| std::path::absolute(&cwd).unwrap_or(cwd).display().to_string()),
                    expires_days: days.and_then(Bounded::new),
                })
            }
            KeyCommand::List => Self::List,
            KeyCommand::Revoke { name } => Self::Revoke(RevokeKeyParams { name }),
        }
    }
}

pub async fn run(args: KeyArgs) -> anyhow::Result<ExitCode> {
    let home = wiring::home()?;
    let call = match args.command.into() {
        KeyCall::Create(params) if params.doors.is_some() && params.agent_id.is_none() => {
            return with_agent(&home, params).await;
        }
        call => call,
    };
    let config = wiring::load_config(&home, None)?;
    if let KeyCall::Revoke(params) = &call
        && let Some(result) = revoked_by_server(&home, &config, params).await
    {
        return tell_revoked(result);
    }
    let mode = wiring::signing_mode(&config.hmac).name().to_owned();
    let store = Arc::new(SqliteStore::open(&home)?);
    let done = on_store(&store, call, mode).await;
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
                doors: params.doors.into_iter().flatten().map(stored_door).collect(),
                methods: params.methods,
                agent,
                days: params.expires_days.map_or(DAYS_DEFAULT, Bounded::get),
            };
            let made = keys.create(&requester, key).await?;
            say(&CreateKeyResult { entry: key_entry(&made.record), key: made.secret, mode })?;
        }
        KeyCall::List => {
            let keys = keys.list(&requester).await?.iter().map(key_entry).collect();
            say(&ListKeysResult { keys, mode })?;
        }
        KeyCall::Revoke(RevokeKeyParams { name }) => {
            let revoked = keys.revoke(&requester, &name).await?;
            return tell_revoked(RevokeKeyResult { revoked });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the server of this home says to it, if one runs: it ends at once what came with the key.
async fn revoked_by_server(
    home: &Path,
    config: &Config,
    params: &RevokeKeyParams,
) -> Option<RevokeKeyResult> {
    let params = RevokeKeyParams { name: params.name.clone() };
    let answered = match home_server(home, config).await? {
        Way::Unix(client) => client.call::<RevokeKey>(&Target::Server, params).await,
        Way::Http { client, .. } => client.call::<RevokeKey>(&Target::Server, params).await,
    };
    // What the server does not do is done without it, and it learns of that soon.
    answered.ok()
}

fn tell_revoked(result: RevokeKeyResult) -> anyhow::Result<ExitCode> {
    say(&result)?;
    Ok(if result.revoked { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A key whose agent has to be made, which needs more than the store.
async fn with_agent(home: &Path, params: CreateKeyParams) -> anyhow::Result<ExitCode> {
    let config = wiring::load_config(home, None)?;
    let wired = wiring::wire(home, &wiring::cwd()?, &config, Logs::none(), Launcher::own()).await?;
    let api = DirectAgentApi::new(wired.dispatcher.clone(), Requester::Administrator);
    let made = api.call::<CreateKey>(&Target::Server, params).await;
    serve::close(&wired, None).await?;
    match made {
        Ok(made) => say(&made).map(|()| ExitCode::SUCCESS),
        Err(CallError::Rpc(refused)) => bail!("{}", rpc::refusal(&refused)),
        Err(error) => bail!(error),
    }
}

fn door(name: &str) -> Result<Door, String> {
    serde_json::from_value(name.into())
        .map_err(|_| "the doors are mcp, openai and websocket".into())
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
