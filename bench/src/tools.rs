//! Tools: the gate before them, and what they cost against doing the same without a server.

use std::fs;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use nexus_core::approval::Announce;
use nexus_core::gate::Ruling;
use nexus_core::lifecycle::AgentSpec;
use nexus_core::tool::Invocation;
use nexus_core::{Agent, Requester};
use nexus_testkit::Reply;
use nexus_tools::sandbox::{self, Launcher};
use nexus3::wiring::{self, Logs, Wired};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::model::Model;
use crate::search;
use crate::server::{Place, Server, binary, config, config_without_model};
use crate::stats::{Latencies, median, ms, us};
use crate::table::{Row, Table};
use crate::turns::{send_request, time};

const PARALLEL: usize = 10;

/// Longest wait for an MCP server.
const CONNECT_MAX: Duration = Duration::from_secs(10);

pub async fn run(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let workshop = Arc::new(Workshop::open(&config_without_model()).await?);
    gate(bench, table, &workshop).await?;
    search::run(bench, table, &workshop).await?;
    table.add(read_file(bench, &workshop).await?);
    parallel(bench, table).await?;
    table.add(sandboxed_exec(bench, &workshop).await?);
    workshop.close().await
}

/// An engine in this process, as the server wires it, and a trusted agent in it.
pub struct Workshop {
    pub place: Place,
    wired: Wired,
    agent: Agent,
}

impl Workshop {
    pub async fn open(config: &Value) -> anyhow::Result<Self> {
        let place = Place::new(config)?;
        let config = wiring::load_config(&place.home(), None)?;
        let launcher = Launcher::new(binary()?);
        let wired =
            wiring::wire(&place.home(), &place.cwd(), &config, Logs::none(), launcher).await?;
        let spec = AgentSpec { preset: Some("trusted".into()), ..AgentSpec::default() };
        let agent = wired.engine.agents.create(&Requester::Administrator, spec).await?;
        Ok(Self { place, wired, agent })
    }

    /// Starts an MCP server, and waits until it is ready.
    pub async fn connect(&self, server: &str) -> anyhow::Result<()> {
        let administrator = Requester::Administrator;
        let servers = &self.wired.engine.servers;
        servers.connect(&administrator, &self.agent, server, None, CONNECT_MAX).await?;
        Ok(())
    }

    pub async fn close(&self) -> anyhow::Result<()> {
        Ok(self.wired.engine.close().await?)
    }

    /// Calls a tool through the gate. Whatever has to be asked for is granted.
    pub async fn call(&self, name: &str, arguments: &Value) -> anyhow::Result<String> {
        let gate = &self.wired.engine.gate;
        let (tool, ruling) = gate.decide(&self.agent.snapshot(), name, arguments).await?;
        let (Ruling::Allowed(access) | Ruling::Ask { access, .. }) = ruling;
        let call = Invocation {
            id: String::new(),
            ticket: None,
            agent: self.agent.clone(),
            arguments: arguments.clone(),
            access,
            cancel: CancellationToken::new(),
            announce: Announce::new(|_| {}, None),
            onlookers: Arc::new(()),
            people: Arc::new(()),
            colleagues: self.wired.engine.colleagues.clone(),
            memories: self.wired.engine.memories.clone(),
        };
        let output = tool.run(call).await.map_err(|failure| anyhow!("{name}: {failure}"))?;
        Ok(output.text)
    }
}

/// The decision alone, for a file a few directories below the agent's own.
async fn gate(bench: &Bench, table: &mut Table, workshop: &Arc<Workshop>) -> anyhow::Result<()> {
    let path = "src/parts/one.rs";
    let file = workshop.place.cwd().join(path);
    fs::create_dir_all(workshop.place.cwd().join("src/parts"))?;
    fs::write(&file, "fn main() {}\n")?;
    let calls = bench.count(20_000);
    for (tool, arguments) in [
        ("read_file", json!({"path": path})),
        ("write_file", json!({"path": path, "content": "fn main() { println!(\"Hello\") }\n"})),
    ] {
        let mut times = Vec::new();
        for _ in 0..bench.rounds() {
            let (workshop, arguments) = (workshop.clone(), arguments.clone());
            let deciding =
                tokio::spawn(async move { decide(&workshop, tool, &arguments, calls).await });
            times.push(deciding.await??);
        }
        let micros = median(times);
        table.add(
            Row::new(format!("the gate's decision on {tool} within the agent's directory"))
                .measured(format!("{micros:.1} µs"))
                .reach("< 20 µs", micros < 20.0),
        );
    }
    Ok(())
}

/// Microseconds of one decision.
async fn decide(
    workshop: &Workshop,
    tool: &str,
    arguments: &Value,
    calls: usize,
) -> anyhow::Result<f64> {
    let started = Instant::now();
    for _ in 0..calls {
        let gate = &workshop.wired.engine.gate;
        let (_, case) = gate.case(&workshop.agent.snapshot(), tool, arguments).await?;
        ensure!(matches!(case.decide()?, Ruling::Allowed(_)), "{tool} is not allowed");
    }
    Ok(us(started.elapsed()) / calls as f64)
}

/// `read_file`, gate and all, against reading the same bytes on a thread for blocking work.
async fn read_file(bench: &Bench, workshop: &Arc<Workshop>) -> anyhow::Result<Row> {
    const LINE: &str = "A line of text as there are many, sixty-four bytes with its end\n";
    let file = workshop.place.cwd().join("mebibyte.txt");
    fs::write(&file, LINE.repeat((1 << 20) / LINE.len()))?;
    let (workshop, count) = (workshop.clone(), bench.count(500));
    let working = tokio::spawn(async move {
        let arguments = json!({"path": "mebibyte.txt"});
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..count {
            ours.push(time(workshop.call("read_file", &arguments)).await?);
            let file = file.clone();
            let read = async { Ok(tokio::task::spawn_blocking(|| fs::read(file)).await??) };
            plain.push(time(read).await?);
        }
        anyhow::Ok((Latencies::new(ours).p50(), Latencies::new(plain).p50()))
    });
    let (ours, plain) = working.await??;
    Ok(Row::new("read_file of 1 MiB in process, p50")
        .measured(format!("{:.0} µs", us(ours)))
        .baseline(format!("{:.0} µs only reading it", us(plain)))
        .ratio(us(ours) / us(plain)))
}

/// Turns in which the model asks for ten calls at once against turns in which it asks for one.
async fn parallel(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::instant(Reply::text("That is all.")).await?;
    let server = Server::start(&config(&model.url())).await?;
    fs::write(server.place.cwd().join("a.txt"), "A line of a small file.\n".repeat(170))?;
    for (tool, what, arguments, answer, count) in [
        ("sleep", "sleep of 100 ms", json!({"seconds": 0.1}), "Waited", bench.count(20)),
        ("read_file", "read_file of 4 KB", json!({"path": "a.txt"}), "A line", bench.count(100)),
    ] {
        let asking = |calls: usize| {
            let first = Reply::tool_call(tool, arguments.clone());
            (1..calls).fold(first, |reply, _| reply.then_tool_call(tool, arguments.clone()))
        };
        server.create_agents(tool, count).await?;
        let mut connection = server.connect().await?;
        let (mut one, mut ten) = (Vec::new(), Vec::new());
        for index in 0..count {
            let agent = format!("{tool}{index}");
            let send = send_request(&server, &agent);
            // The first turn makes the agent's prompt.
            connection.result(&send).await?;
            // Neither always has the shorter conversation.
            let order = if index % 2 == 0 { [1, PARALLEL] } else { [PARALLEL, 1] };
            for calls in order {
                model.push(asking(calls));
                let took = time(connection.result(&send)).await?;
                if calls == 1 { &mut one } else { &mut ten }.push(took);
            }
            let get = server.request(&format!("/agent/{agent}"), "get_messages", &json!({}));
            let all = connection.result(&get).await?;
            let done = answered(&all, answer);
            ensure!(done == PARALLEL + 1, "{done} of {} calls went well: {all}", PARALLEL + 1);
        }
        let (one, ten) = (ms(Latencies::new(one).p50()), ms(Latencies::new(ten).p50()));
        table.add(
            Row::new(format!("a turn with {PARALLEL} parallel calls: {what}, p50"))
                .measured(format!("{ten:.2} ms"))
                .baseline(format!("{one:.2} ms with one call"))
                .ratio(ten / one)
                .reach("≤ 2", ten / one <= 2.0),
        );
    }
    Ok(())
}

/// How many results of tools begin as they should.
fn answered(conversation: &Value, answer: &str) -> usize {
    let messages = conversation["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let results = messages.iter().filter(|message| message["role"] == "tool");
    let texts = results.filter_map(|message| message["content"].as_str());
    texts.filter(|text| text.starts_with(answer)).count()
}

/// What `exec` runs for a trusted agent, as the tool runs it.
async fn sandboxed_exec(bench: &Bench, workshop: &Arc<Workshop>) -> anyhow::Result<Row> {
    let (workshop, arguments) = (workshop.clone(), json!({"argv": ["/bin/true"]}));
    let held = async move || {
        let answer = workshop.call("exec", &arguments).await?;
        ensure!(answer.starts_with("exit 0"), "exec: {answer}");
        Ok(())
    };
    spawn_row("exec of /bin/true by a trusted agent", bench.count(200), held).await
}

/// A held command against a plain spawn, both waited for.
async fn spawn_row(
    what: &str,
    count: usize,
    held: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<Row> {
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..count {
        ours.push(time(held()).await?);
        plain.push(time(spawn_plainly()).await?);
    }
    let (ours, plain) = (ms(Latencies::new(ours).p50()), ms(Latencies::new(plain).p50()));
    let added = ours - plain;
    Ok(Row::new(format!("{what} ({}), p50", sandbox::strength()))
        .measured(format!("{added:.2} ms more ({ours:.2} ms)"))
        .baseline(format!("{plain:.2} ms a plain spawn"))
        .ratio(ours / plain)
        .reach("≤ 10 ms more", added <= 10.0))
}

async fn spawn_plainly() -> anyhow::Result<()> {
    let mut command = tokio::process::Command::new("/bin/true");
    let done = command.stdin(Stdio::null()).output().await?;
    ensure!(done.status.success(), "/bin/true: {}", done.status);
    Ok(())
}
