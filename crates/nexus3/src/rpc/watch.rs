//! `nexus3 rpc watch`: what happens to agents, as lines of JSON.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use nexus_client::WatchItem;
use nexus_protocol::watch::{Event, WatchEvent, WatchParams};

use super::args::ServerArgs;
use super::client;
use super::output::Output;

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Name of the agent; all agents when absent.
    id: Option<String>,
    /// The agents beneath it, too.
    #[arg(long, requires = "id")]
    descendants: bool,
    /// Leaves out text and thoughts as they come: states and whole messages only.
    #[arg(long)]
    no_deltas: bool,
    /// Sends what was said behind this message first; -1 for everything.
    #[arg(long, value_name = "INDEX", requires = "id", allow_negative_numbers = true)]
    after: Option<i64>,
}

/// Prints events until the server stops or nothing is left to watch. A reader that was too slow is told what it has missed.
pub async fn run<W: Write>(
    server: &ServerArgs,
    args: WatchArgs,
    output: &mut Output<W>,
) -> anyhow::Result<ExitCode> {
    let client = client(server, None)?;
    let mut after = BTreeMap::new();
    if let (Some(id), Some(index)) = (&args.id, args.after) {
        after.insert(id.clone(), index);
    }
    loop {
        let params = WatchParams {
            agents: args.id.clone().map(|id| vec![id]),
            descendants: args.descendants.then_some(true),
            deltas: args.no_deltas.then_some(false),
            after: (!after.is_empty()).then(|| after.clone()),
            ..WatchParams::default()
        };
        let mut watch = client.watch(params).await?;
        let ended = loop {
            let Some(item) = watch.next().await else { return Ok(ExitCode::SUCCESS) };
            match item? {
                WatchItem::Event(event) => {
                    note(&mut after, *event);
                    output.line(watch.raw()?)?;
                }
                WatchItem::Unknown(raw) => output.line(&raw)?,
                WatchItem::Done(result) => break result,
            }
        };
        if ended.reason != "gap" {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Keeps in mind what was said last, so that a gap can be filled.
pub fn note(after: &mut BTreeMap<String, i64>, event: WatchEvent) {
    let happened = event.happened;
    match (happened.event, happened.agent_id) {
        (Event::Message { index, .. }, Some(agent)) => {
            after.insert(agent, i64::try_from(index).unwrap_or(i64::MAX - 1));
        }
        (Event::Snapshot(snapshot), _) => {
            for watched in snapshot.agents {
                let last = i64::try_from(watched.agent.message_count).unwrap_or(i64::MAX) - 1;
                after.entry(watched.agent.agent_id).or_insert(last);
            }
        }
        (Event::AgentRenamed { to }, Some(from)) => {
            if let Some(index) = after.remove(&from) {
                after.insert(to, index);
            }
        }
        (Event::AgentEnded {}, Some(agent)) => drop(after.remove(&agent)),
        _ => {}
    }
}
