//! What a signature adds to a call, within the process.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use nexus_core::keys::NewKey;
use nexus_core::{Hand, Requester};
use nexus_server::auth::AgentTokens;
use nexus_server::dispatcher::ANSWER_BYTES_MAX;
use nexus_server::signing::{Configured, Mode, Signatures};
use nexus_server::{Caller, Dispatcher, Services, Signer, Target};
use nexus_signing::SigningKey;
use nexus_tools::sandbox::Launcher;
use nexus3::wiring::{self, Logs, Wired};
use serde_json::json;

use crate::Bench;
use crate::server::{Place, config_without_model};
use crate::stats::median;
use crate::table::{Row, Table};

/// Microseconds that a signature may add.
const GOAL: f64 = 15.0;

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let place = Place::new(&config_without_model())?;
    let config = wiring::load_config(&place.home(), None)?;
    let wired =
        wiring::wire(&place.home(), &place.cwd(), &config, Logs::none(), Launcher::own()).await?;
    let new =
        NewKey { name: "bench".into(), doors: Vec::new(), methods: None, agent: None, days: 1 };
    let key = wired.engine.keys.create(&Requester::Administrator, new).await?;
    let key = SigningKey::parse(&format!("bench:{}", key.secret))?;
    let (mut plain, mut signed) = (Vec::new(), Vec::new());
    let calls = bench.count(50_000);
    for _ in 0..bench.rounds() {
        let requests: Vec<_> = (0..calls).map(request).collect();
        plain.push(time(wired.dispatcher.clone(), &requests).await?);
        let requests = requests.iter().map(|request| key.sign(request));
        let requests = requests.collect::<Result<Vec<_>, _>>()?;
        signed.push(time(checking(&wired)?, &requests).await?);
    }
    let added = median(signed.iter().zip(&plain).map(|(signed, plain)| signed - plain));
    let row = Row::new("a signed call in process (bytes)")
        .measured(format!("{added:.1} µs more, {:.1} µs", median(signed)))
        .baseline(format!("{:.1} µs unsigned", median(plain)))
        .reach(format!("≤ {GOAL:.0} µs more"), added <= GOAL);
    table.add(row);
    wired.engine.close().await?;
    Ok(())
}

fn request(id: usize) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "rpc.version", "params": {}}).to_string()
}

/// A dispatcher of the same engine that takes signed calls alone.
fn checking(wired: &Wired) -> anyhow::Result<Arc<Dispatcher>> {
    let signatures = Signatures::new(Mode::Required, Configured::default(), Timestamp::UNIX_EPOCH);
    let services = Services::new(wired.engine.clone(), AgentTokens::new()?, Arc::new(()));
    Ok(nexus_server::dispatcher(services.with_signatures(signatures)))
}

/// Microseconds of one call.
async fn time(dispatcher: Arc<Dispatcher>, requests: &[String]) -> anyhow::Result<f64> {
    let caller = Caller {
        requester: Requester::Administrator,
        signer: Signer::Nobody,
        hand: Hand::Program,
        target: Target::Server,
        peer: None,
        behalf: None,
        door: None,
        answer_bytes_max: ANSWER_BYTES_MAX,
    };
    let started = Instant::now();
    for request in requests {
        let reply = dispatcher.handle(caller.clone(), request.as_bytes()).await;
        let answer = reply.body.context("no answer")?;
        ensure!(!answer.windows(9).any(|it| it == b"\"error\":{"), "it was refused");
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / requests.len() as f64)
}
