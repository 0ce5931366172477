//! What the server counts and measures: the names, and where each figure comes from.
//!
//! Calls are noted in the method table ([`MethodFigures`]), on a path that has no lock and makes nothing. What happens in the
//! core is told to [`Figures`], which is an `Observer`; it is rare enough for a lock. What is state is asked of the engine
//! when somebody looks. No label has a value that callers can make up without end.

mod histogram;
pub mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use nexus_core::Engine;
use nexus_core::engine::Load;
use nexus_core::model::ModelInfo;
use nexus_core::observe::{
    CallEnd, EndedCommit, EndedModelCall, EndedToolCall, EndedTurn, Observer, ToolEnd, TurnEnd,
};
use nexus_core::store::Door;
use nexus_core::usage::Usage;
use nexus_protocol::error::{
    EXECUTION, FORBIDDEN, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND,
    PARSE_ERROR, RATE_LIMITED, UNAVAILABLE,
};
use nexus_protocol::metrics::{Metric, MetricKind, Sample, Spread};

use self::histogram::{BYTES, CALLS, COMMITS, Histogram, WORK};

/// A metric, before anything was counted.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

macro_rules! names {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(const $id: Name = Name {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// Every metric there is, in the order in which they are shown.
        pub const NAMES: &[Name] = &[$($id),*];
    };
}

names! {
    BUILD = Gauge "nexus_build_info" ["version"] "Always 1; the label says which version runs";
    STARTED = Gauge "nexus_start_time_seconds" [] "When the server started, in seconds since 1970";
    CALL_DURATION = Histogram "nexus_rpc_duration_seconds" ["method", "door"] "How long calls took, by method; their count is that of the calls";
    CALL_ERRORS = Counter "nexus_rpc_errors_total" ["method", "code", "door"] "Calls that were answered with an error, by its code";
    MESSAGE_BYTES = Histogram "nexus_rpc_message_bytes" ["direction"] "Sizes of messages, uncompressed; a batch is one";
    TURNS_IN_FLIGHT = Gauge "nexus_turns_in_flight" [] "Turns that run or wait";
    TURNS_QUEUED = Gauge "nexus_turns_queued" [] "Turns that wait: behind another turn of their agent, or for a slot";
    TURNS = Counter "nexus_turns_total" ["outcome"] "Turns that ran and are over";
    TURN_DURATION = Histogram "nexus_turn_duration_seconds" [] "How long turns ran";
    MODEL_CALLS = Counter "nexus_model_calls_total" ["model", "outcome"] "Calls of models, by how they ended";
    MODEL_DURATION = Histogram "nexus_model_call_duration_seconds" ["model"] "How long calls of models took, waits for the provider included";
    FIRST_TOKEN = Histogram "nexus_model_first_token_seconds" ["model"] "How long it took until a model said or thought something";
    MODEL_RETRIES = Counter "nexus_model_retries_total" ["model", "reason"] "Calls of models that were sent again";
    PREFIX_BREAKS = Counter "nexus_prefix_breaks_total" ["model"] "Requests that changed what the one before them in their conversation had said, which should never happen";
    TOKENS = Counter "nexus_model_tokens_total" ["model", "kind"] "Tokens of models, each counted in one kind";
    COST = Counter "nexus_model_cost_usd_total" ["model"] "What calls of models cost, where their price is known";
    UNPRICED = Counter "nexus_model_unpriced_calls_total" ["model"] "Calls of models whose price is not known";
    TOOL_CALLS = Counter "nexus_tool_calls_total" ["tool", "outcome"] "Tool calls that models made, by what became of them";
    TOOL_DURATION = Histogram "nexus_tool_duration_seconds" ["tool"] "How long tool calls took, waits for approval included";
    APPROVALS = Gauge "nexus_approvals_waiting" [] "Questions that somebody has to answer before a tool is run";
    AGENTS = Gauge "nexus_agents_live" [] "Agents in memory";
    COMMIT_DURATION = Histogram "nexus_store_commit_duration_seconds" [] "How long the store took to bring a group of writes to disk";
    COMMIT_WRITES = Counter "nexus_store_writes_total" [] "Writes that the store was given";
    COMMIT_FAILURES = Counter "nexus_store_commit_failures_total" [] "Groups of writes that did not come to disk";
    SPANS_DROPPED = Counter "nexus_spans_dropped_total" [] "Spans for OpenTelemetry that were not taken by their receiver";
    SANDBOX = Gauge "nexus_sandbox_sufficient" ["strength"] "1 where the kernel can hold commands within an agent's permissions, else 0; the label says what it has";
}

/// Stands for every method that there is not, and for messages that are no request.
const UNKNOWN: &str = "unknown";

/// Stands for whatever has no name of its own here.
const OTHER: &str = "other";

/// Models that are told apart, which is more than a configuration names; further ones, which callers may make up, are
/// counted together. Their names may have so many bytes.
const MODELS_MAX: usize = 64;
const MODEL_NAME_BYTES_MAX: usize = 128;

/// The codes of errors.
const CODES: [i32; 9] = [
    PARSE_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    INVALID_PARAMS,
    INTERNAL_ERROR,
    EXECUTION,
    UNAVAILABLE,
    RATE_LIMITED,
    FORBIDDEN,
];

/// The calls of one method, by how they came.
#[derive(Default)]
pub struct MethodFigures {
    plain: CallFigures,
    doors: [CallFigures; Door::ALL.len()],
}

impl MethodFigures {
    pub fn of(&self, door: Option<Door>) -> &CallFigures {
        match door {
            None => &self.plain,
            Some(Door::Mcp) => &self.doors[0],
            Some(Door::OpenAi) => &self.doors[1],
            Some(Door::WebSocket) => &self.doors[2],
            Some(Door::Acp) => &self.doors[3],
        }
    }

    /// With what stands in the label: nothing for our own protocol.
    fn by_door(&self) -> impl Iterator<Item = (&'static str, &CallFigures)> {
        let doors = Door::ALL.into_iter().map(|door| (door.name(), self.of(Some(door))));
        std::iter::once(("", &self.plain)).chain(doors)
    }
}

pub struct CallFigures {
    duration: Histogram,
    /// By the place of their code; those of no code last.
    errors: [AtomicU64; CODES.len() + 1],
}

impl Default for CallFigures {
    fn default() -> Self {
        Self { duration: Histogram::new(CALLS), errors: Default::default() }
    }
}

impl CallFigures {
    pub fn note(&self, duration: Duration, error: Option<i32>) {
        self.duration.note_duration(duration);
        if let Some(code) = error {
            let place = CODES.iter().position(|known| *known == code).unwrap_or(CODES.len());
            self.errors[place].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What is counted beside the calls.
pub struct Figures {
    started: Timestamp,
    received: Histogram,
    sent: Histogram,
    commits: Histogram,
    writes: AtomicU64,
    commit_failures: AtomicU64,
    spans_dropped: AtomicU64,
    turns: Histogram,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    turns: BTreeMap<&'static str, u64>,
    models: BTreeMap<String, ModelFigures>,
    tools: BTreeMap<String, ToolFigures>,
}

struct ModelFigures {
    calls: BTreeMap<&'static str, u64>,
    retries: BTreeMap<&'static str, u64>,
    tokens: BTreeMap<&'static str, u64>,
    cost_usd: f64,
    unpriced: u64,
    prefix_breaks: u64,
    duration: Histogram,
    first_token: Histogram,
}

struct ToolFigures {
    calls: BTreeMap<&'static str, u64>,
    duration: Histogram,
}

impl Default for ModelFigures {
    fn default() -> Self {
        Self {
            calls: BTreeMap::new(),
            retries: BTreeMap::new(),
            tokens: BTreeMap::new(),
            cost_usd: 0.0,
            unpriced: 0,
            prefix_breaks: 0,
            duration: Histogram::new(WORK),
            first_token: Histogram::new(WORK),
        }
    }
}

impl Default for ToolFigures {
    fn default() -> Self {
        Self { calls: BTreeMap::new(), duration: Histogram::new(WORK) }
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            started: Timestamp::now(),
            received: Histogram::new(BYTES),
            sent: Histogram::new(BYTES),
            commits: Histogram::new(COMMITS),
            writes: AtomicU64::new(0),
            commit_failures: AtomicU64::new(0),
            spans_dropped: AtomicU64::new(0),
            turns: Histogram::new(WORK),
            inside: Mutex::default(),
        }
    }
}

impl Figures {
    /// A message came, and this is its answer.
    pub fn carried(&self, received_bytes: usize, sent_bytes: Option<usize>) {
        self.received.note(received_bytes as u64);
        if let Some(bytes) = sent_bytes {
            self.sent.note(bytes as u64);
        }
    }

    /// Spans that were to be sent will not be.
    pub fn spans_dropped(&self, spans: u64) {
        self.spans_dropped.fetch_add(spans, Ordering::Relaxed);
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn model(&mut self, model: &ModelInfo) -> &mut ModelFigures {
        let known = self.models.contains_key(&model.alias);
        let room = self.models.len() < MODELS_MAX && model.alias.len() <= MODEL_NAME_BYTES_MAX;
        let name = if known || room { &*model.alias } else { OTHER };
        self.models.entry(name.to_owned()).or_default()
    }
}

impl Observer for Figures {
    fn turn_ended(&self, turn: &EndedTurn<'_>) {
        self.turns.note_duration(turn.lasted);
        let outcome = match turn.end {
            TurnEnd::Done => "done",
            TurnEnd::Cancelled => "cancelled",
            TurnEnd::Halted => "halted",
            TurnEnd::Failed => "failed",
        };
        add(&mut self.inside().turns, outcome, 1);
    }

    fn model_call_ended(&self, call: &EndedModelCall<'_>) {
        let mut inside = self.inside();
        let figures = inside.model(call.model);
        let outcome = match call.end {
            CallEnd::Done => "done",
            CallEnd::Cancelled => "cancelled",
            CallEnd::Failed(error) => error,
        };
        add(&mut figures.calls, outcome, 1);
        figures.duration.note_duration(call.lasted);
        if let Some(lasted) = call.first_token {
            figures.first_token.note_duration(lasted);
        }
        let Usage { input, cache_read, cache_write, output, reasoning, .. } = call.bill.usage;
        let kinds = [
            ("input", input.saturating_sub(cache_read.saturating_add(cache_write))),
            ("cache_read", cache_read),
            ("cache_write", cache_write),
            ("output", output.saturating_sub(reasoning)),
            ("reasoning", reasoning),
        ];
        for (kind, tokens) in kinds {
            add(&mut figures.tokens, kind, tokens);
        }
        figures.cost_usd += call.bill.cost.usd();
        figures.unpriced += call.bill.unknown_calls;
    }

    fn model_call_retried(&self, model: &ModelInfo, why: &'static str) {
        add(&mut self.inside().model(model).retries, why, 1);
    }

    fn prefix_broken(&self, model: &ModelInfo) {
        self.inside().model(model).prefix_breaks += 1;
    }

    fn tool_call_ended(&self, call: &EndedToolCall<'_>) {
        let mut inside = self.inside();
        let figures = inside.tools.entry(call.tool.unwrap_or(OTHER).to_owned()).or_default();
        let outcome = match call.end {
            ToolEnd::Done => "done",
            ToolEnd::Failed => "failed",
            ToolEnd::Cancelled => "cancelled",
            ToolEnd::Refused(_) => "refused",
        };
        add(&mut figures.calls, outcome, 1);
        figures.duration.note_duration(call.lasted);
    }

    fn commit_ended(&self, commit: &EndedCommit) {
        self.commits.note_duration(commit.lasted);
        self.writes.fetch_add(commit.writes as u64, Ordering::Relaxed);
        self.commit_failures.fetch_add(u64::from(!commit.committed), Ordering::Relaxed);
    }
}

fn add(counts: &mut BTreeMap<&'static str, u64>, key: &'static str, more: u64) {
    *counts.entry(key).or_default() += more;
}

/// All figures as they are now. `calls` are those of each method that there is, and `unknown` of all others.
pub(crate) fn gather<'a>(
    engine: &Engine,
    figures: &Figures,
    calls: impl Iterator<Item = (&'static str, &'a MethodFigures)>,
    unknown: &'a MethodFigures,
) -> Vec<Metric> {
    let mut sheet = Sheet::default();
    sheet.calls(calls.chain([(UNKNOWN, unknown)]));
    sheet.figures(figures);
    sheet.state(engine);
    sheet.value(BUILD, &[env!("CARGO_PKG_VERSION")], 1.0);
    sheet.into_metrics()
}

/// The samples of each metric, as they are put together.
#[derive(Default)]
struct Sheet(BTreeMap<&'static str, Vec<Sample>>);

impl Sheet {
    fn calls<'a>(&mut self, calls: impl Iterator<Item = (&'static str, &'a MethodFigures)>) {
        let by_door = |(method, figures): (&'static str, &'a MethodFigures)| {
            figures.by_door().map(move |(door, figures)| (method, door, figures))
        };
        for (method, door, figures) in calls.flat_map(by_door) {
            let spread = figures.duration.spread();
            if spread.count == 0 {
                continue;
            }
            self.spread(CALL_DURATION, &[method, door], spread);
            let codes = CODES.map(|code| code.to_string());
            let codes = codes.iter().map(|code| &**code).chain([OTHER]);
            for (code, count) in codes.zip(&figures.errors) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    self.value(CALL_ERRORS, &[method, code, door], count as f64);
                }
            }
        }
    }

    fn figures(&mut self, figures: &Figures) {
        let started = figures.started.as_millisecond() as f64 / 1e3;
        self.value(STARTED, &[], started);
        self.spread(MESSAGE_BYTES, &["received"], figures.received.spread());
        self.spread(MESSAGE_BYTES, &["sent"], figures.sent.spread());
        self.spread(COMMIT_DURATION, &[], figures.commits.spread());
        self.value(COMMIT_WRITES, &[], figures.writes.load(Ordering::Relaxed) as f64);
        let failures = figures.commit_failures.load(Ordering::Relaxed);
        self.value(COMMIT_FAILURES, &[], failures as f64);
        self.value(SPANS_DROPPED, &[], figures.spans_dropped.load(Ordering::Relaxed) as f64);
        self.spread(TURN_DURATION, &[], figures.turns.spread());
        let inside = figures.inside();
        for (outcome, count) in &inside.turns {
            self.value(TURNS, &[outcome], *count as f64);
        }
        for (model, figures) in &inside.models {
            self.spread(MODEL_DURATION, &[model], figures.duration.spread());
            self.spread(FIRST_TOKEN, &[model], figures.first_token.spread());
            self.counts(MODEL_CALLS, model, &figures.calls);
            self.counts(MODEL_RETRIES, model, &figures.retries);
            self.value(PREFIX_BREAKS, &[model], figures.prefix_breaks as f64);
            self.counts(TOKENS, model, &figures.tokens);
            self.value(COST, &[model], figures.cost_usd);
            self.value(UNPRICED, &[model], figures.unpriced as f64);
        }
        for (tool, figures) in &inside.tools {
            self.counts(TOOL_CALLS, tool, &figures.calls);
            self.spread(TOOL_DURATION, &[tool], figures.duration.spread());
        }
    }

    fn state(&mut self, engine: &Engine) {
        let Load { agents, turns, turns_queued, approvals } = engine.load();
        self.value(AGENTS, &[], agents as f64);
        self.value(TURNS_IN_FLIGHT, &[], turns as f64);
        self.value(TURNS_QUEUED, &[], turns_queued as f64);
        self.value(APPROVALS, &[], approvals as f64);
        let confined = if engine.commands_confined() { 1.0 } else { 0.0 };
        self.value(SANDBOX, &[&engine.sandbox], confined);
    }

    fn counts(&mut self, name: Name, first: &str, counts: &BTreeMap<&'static str, u64>) {
        for (second, count) in counts {
            self.value(name, &[first, second], *count as f64);
        }
    }

    fn value(&mut self, name: Name, labels: &[&str], value: f64) {
        self.put(name, labels, Sample { value: Some(value), ..Sample::default() });
    }

    fn spread(&mut self, name: Name, labels: &[&str], spread: Spread) {
        self.put(name, labels, Sample { spread: Some(spread), ..Sample::default() });
    }

    fn put(&mut self, name: Name, labels: &[&str], sample: Sample) {
        debug_assert_eq!(name.labels.len(), labels.len(), "{}", name.name);
        let own = |text: &&str| (*text).to_owned();
        // A label that says nothing is left out: to Prometheus that is the same series.
        let labels = name.labels.iter().zip(labels).filter(|(_, value)| !value.is_empty());
        let labels = labels.map(|(name, value)| (own(name), own(value))).collect();
        self.0.entry(name.name).or_default().push(Sample { labels, ..sample });
    }

    /// Every metric there is, also those of which there is nothing to show yet.
    fn into_metrics(mut self) -> Vec<Metric> {
        let metric = |name: &Name| Metric {
            name: name.name.to_owned(),
            kind: name.kind,
            help: name.help.to_owned(),
            samples: self.0.remove(name.name).unwrap_or_default(),
        };
        NAMES.iter().map(metric).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use nexus_core::usage::{Bill, Cost};

    use super::*;

    fn call(figures: &Figures, model: &str) {
        figures.model_call_retried(&ModelInfo::undescribed("p", "w", model), "timeout");
    }

    fn models(figures: &Figures) -> Vec<(String, u64)> {
        let inside = figures.inside();
        let retries = |it: &ModelFigures| it.retries.values().sum();
        inside.models.iter().map(|(name, it)| (name.clone(), retries(it))).collect()
    }

    #[test]
    fn so_many_models_are_told_apart_and_the_rest_is_one() {
        let figures = Figures::default();
        let names: Vec<String> = (0..MODELS_MAX).map(|n| format!("model-{n:03}")).collect();
        names.iter().for_each(|name| call(&figures, name));
        assert_eq!(models(&figures), names.iter().map(|it| (it.clone(), 1)).collect::<Vec<_>>());
        for n in 0..10 {
            call(&figures, &format!("one-more-{n}"));
        }
        // Those that are known stay so.
        call(&figures, &names[7]);
        let counted = models(&figures);
        assert_eq!(counted.len(), MODELS_MAX + 1);
        assert_eq!(counted[7], (names[7].clone(), 2));
        assert_eq!(counted[MODELS_MAX], (OTHER.to_owned(), 10));
    }

    #[test]
    fn a_long_name_is_not_kept() {
        let figures = Figures::default();
        let longest = "x".repeat(MODEL_NAME_BYTES_MAX);
        call(&figures, &longest);
        call(&figures, &format!("{longest}x"));
        assert_eq!(models(&figures), [(OTHER.to_owned(), 1), (longest, 1)]);
    }

    #[test]
    fn a_code_that_is_none_of_the_table_is_other() {
        let calls = MethodFigures::default();
        for code in CODES.into_iter().chain([7, -32_099]) {
            calls.of(None).note(Duration::ZERO, Some(code));
        }
        calls.of(None).note(Duration::ZERO, None);
        let mut sheet = Sheet::default();
        sheet.calls([("send", &calls)].into_iter());
        let errors = &sheet.0[CALL_ERRORS.name];
        assert_eq!(errors.len(), CODES.len() + 1);
        let last = errors.last().unwrap();
        assert_eq!((&*last.labels["code"], last.value), (OTHER, Some(2.0)));
        let all = sheet.0[CALL_DURATION.name][0].spread.as_ref().unwrap().count;
        assert_eq!(all, CODES.len() as u64 + 3);
    }

    #[test]
    fn calls_through_a_door_are_rows_of_their_own_and_others_have_no_such_label() {
        let calls = MethodFigures::default();
        calls.of(None).note(Duration::ZERO, None);
        calls.of(Some(Door::Mcp)).note(Duration::ZERO, Some(INVALID_PARAMS));
        let mut sheet = Sheet::default();
        sheet.calls([("send", &calls)].into_iter());
        let labels = |name: Name| -> Vec<Vec<String>> {
            let labels = sheet.0[name.name].iter().map(|sample| &sample.labels);
            labels
                .map(|all| all.iter().map(|(name, it)| format!("{name}={it}")).collect())
                .collect()
        };
        assert_eq!(labels(CALL_DURATION), [vec!["method=send"], vec!["door=mcp", "method=send"]]);
        assert_eq!(labels(CALL_ERRORS), [["code=-32602", "door=mcp", "method=send"]]);
    }

    #[test]
    fn each_token_is_of_one_kind_and_money_adds_up() {
        let figures = Figures::default();
        let usage = Usage {
            input: 100,
            cache_read: 60,
            cache_write: 30,
            output: 50,
            reasoning: 20,
            ..Usage::default()
        };
        let agent = nexus_core::AgentId::parse("a").unwrap();
        for bill in [Bill::of(usage, Some(Cost(1_500_000_000))), Bill::of(usage, None)] {
            figures.model_call_ended(&EndedModelCall {
                model: &ModelInfo::undescribed("p", "w", "m"),
                agent: &agent,
                turn: None,
                began: Instant::now(),
                lasted: Duration::from_secs(2),
                first_token: Some(Duration::from_secs(1)),
                end: CallEnd::Done,
                bill,
            });
        }
        let inside = figures.inside();
        let model = &inside.models["m"];
        let kinds = [
            ("input", 20),
            ("cache_read", 120),
            ("cache_write", 60),
            ("output", 60),
            ("reasoning", 40),
        ];
        assert_eq!(model.tokens, kinds.into());
        assert_eq!((model.cost_usd, model.unpriced), (1.5, 1));
        assert_eq!(model.first_token.spread().sum, 2.0);
    }

    #[test]
    fn what_is_in_a_label_cannot_leave_it() {
        let mut sheet = Sheet::default();
        sheet.value(COST, &["a\"} 1\nnexus_x 2 \\"], 0.5);
        let text = text::text(sheet.into_metrics());
        let line =
            text.lines().find(|line| line.starts_with("nexus_model_cost_usd_total")).unwrap();
        assert_eq!(line, r#"nexus_model_cost_usd_total{model="a\"} 1\nnexus_x 2 \\"} 0.5"#);
        assert!(text.ends_with("# EOF\n"));
    }
}
