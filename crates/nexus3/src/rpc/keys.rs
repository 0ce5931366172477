//! `nexus3 rpc keys`.

use anyhow::Result;
use nexus_client::Target;
use nexus_protocol::key::{CreateKey, ListKeys, RevokeKey};
use nexus_protocol::params::NoParams;
use serde_json::Value;

use super::args::ServerArgs;
use super::ask;
use crate::key::{KeyArgs, KeyCall};

pub async fn run(server: &ServerArgs, args: KeyArgs) -> Result<Value> {
    let target = &Target::Server;
    match args.command.into() {
        KeyCall::Create(params) => ask::<CreateKey>(server, target, params).await,
        KeyCall::List => ask::<ListKeys>(server, target, NoParams {}).await,
        KeyCall::Revoke(params) => ask::<RevokeKey>(server, target, params).await,
    }
}
