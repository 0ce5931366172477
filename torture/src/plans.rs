//! Plans on servers that are killed at any moment: what was seen done stays done, is never begun again, and in the end all
//! of it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use nexus_testkit::{Reply, last_user_text};
use serde_json::{Value, json};

use crate::fault::Fault;
use crate::observe;
use crate::place::{Place, Server};
use crate::report::Tally;

/// Tasks of each plan, in layers that depend on the one before.
const LAYERS: usize = 3;
const WIDTH: usize = 4;

/// A server lives up to this long before it is killed: from one that has hardly begun to one that is done.
const LIFE_MICROS_MAX: u64 = 150_000;

/// How often a task was begun, by its id.
type Begun = Arc<Mutex<BTreeMap<String, u32>>>;

pub async fn run(place: &Place, seed: u64, kills: u64) -> anyhow::Result<Tally> {
    let mut rng = Rng::with_seed(seed);
    let begun = Begun::default();
    let counted = begun.clone();
    place.model.set_script(move |request| script(request, &counted));
    let mut server = place.start("server", Fault::None).await?;
    let mut tally = Tally::default().kills(kills);
    let mut plan = Plan::make(&server, &begun).await?;
    for kill in 1..=kills {
        let life = Duration::from_micros(rng.u64(..LIFE_MICROS_MAX));
        let running = tokio::spawn({
            let (mut caller, params) = (server.caller(), plan.params());
            // What became of it is seen in the plan.
            async move { caller.ok("run_plan", &params).await.is_ok() }
        });
        tokio::time::sleep(life).await;
        server.kill().await?;
        tally.acknowledged += u64::from(running.await?);
        server = place.start("server", Fault::None).await?;
        plan.check(place, &server).await.with_context(|| format!("after kill {kill}"))?;
        if plan.is_done() {
            plan = Plan::make(&server, &begun).await?;
        }
    }
    let ran = server.caller().ok("run_plan", &plan.params()).await?;
    ensure!(ran["status"] == "success", "what is left of the plan is not done: {ran}");
    plan.check(place, &server).await?;
    ensure!(plan.is_done(), "the plan says that it is done, and is not");
    server.kill().await?;
    observe::check_database(&place.home())?;
    let begun = lock(&begun).values().map(|count| u64::from(*count)).sum::<u64>();
    Ok(Tally { cut: begun.saturating_sub((LAYERS * WIDTH) as u64), ..tally })
}

/// A plan under way, and what was seen of it.
struct Plan {
    id: String,
    begun: Begun,
    /// Tasks that were seen done, and how often they had been begun by then.
    done: BTreeMap<String, u32>,
}

impl Plan {
    async fn make(server: &Server, begun: &Begun) -> anyhow::Result<Self> {
        lock(begun).clear();
        let made = server.caller().ok("create_plan", &json!({"user_request": "plan it"})).await?;
        let id = made["plan"]["plan_id"].as_str().context("a plan's id")?.to_owned();
        Ok(Self { id, begun: begun.clone(), done: BTreeMap::new() })
    }

    fn params(&self) -> Value {
        json!({"plan_id": self.id, "options": {"write": true, "timeout_ms": 60_000}})
    }

    fn is_done(&self) -> bool {
        self.done.len() == LAYERS * WIDTH
    }

    async fn check(&mut self, place: &Place, server: &Server) -> anyhow::Result<()> {
        let stands = server.caller().ok("get_plan", &json!({"plan_id": self.id})).await?;
        ensure!(stands["status"] != "running", "it runs, and nobody runs it: {stands}");
        let tasks = stands["tasks"].as_object().context("tasks")?;
        let status = |id: &str| tasks.get(id).map(|task| &task["status"]);
        let done = tasks.iter().filter(|(_, task)| task["status"] == "success");
        let done: BTreeSet<String> = done.map(|(id, _)| id.clone()).collect();
        let begun = lock(&self.begun).clone();
        for (id, count) in &self.done {
            ensure!(done.contains(id), "{id} was done, and is {:?}", status(id));
            ensure!(begun.get(id) == Some(count), "{id} was done, and was begun again");
        }
        for id in done {
            let needed = needs(&id);
            let kept = needed.iter().all(|id| status(id).is_some_and(|it| it == "success"));
            ensure!(kept, "{id} is done before what it depends on");
            let written = std::fs::read_to_string(place.work().join(format!("{id}.txt")));
            ensure!(written.is_ok_and(|text| text == id), "{id} is done and its file is not there");
            let count = begun.get(&id).copied().unwrap_or_default();
            self.done.entry(id).or_insert(count);
        }
        Ok(())
    }
}

fn task(layer: usize, place: usize) -> String {
    format!("t{layer}-{place}")
}

/// What a task depends on: two of the layer before it.
fn needs(id: &str) -> Vec<String> {
    let numbers: Vec<usize> =
        id.trim_start_matches('t').split('-').filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [layer, place] if layer > 0 => {
            vec![task(layer - 1, place), task(layer - 1, (place + 1) % WIDTH)]
        }
        _ => Vec::new(),
    }
}

/// The model: the plan to a planner; to an executor a file to write, and then that it is done.
fn script(request: &Value, begun: &Begun) -> Reply {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if messages.last().is_some_and(|message| message["role"] == "tool") {
        return Reply::text("done");
    }
    let asked = last_user_text(request).unwrap_or_default();
    if asked.ends_with("plan it") {
        let all = (0..LAYERS).flat_map(|layer| (0..WIDTH).map(move |place| task(layer, place)));
        let tasks = all.map(|id| {
            json!({"id": id, "type": "code_generation", "description": format!("task {id}"),
                   "dependencies": needs(&id), "priority": 1})
        });
        let tasks: Vec<Value> = tasks.collect();
        let plan = json!({"explanation": "", "estimated_time_seconds": 1, "tasks": tasks});
        return Reply::text(plan.to_string());
    }
    let id = asked.rsplit(' ').next().unwrap_or_default();
    *lock(begun).entry(id.to_owned()).or_default() += 1;
    Reply::tool_call("write_file", json!({"path": format!("{id}.txt"), "content": id}))
}

fn lock(begun: &Begun) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
    begun.lock().unwrap_or_else(PoisonError::into_inner)
}
