//! Makes spans of what the core tells.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nexus_core::AgentId;
use nexus_core::observe::{
    CallEnd, EndedModelCall, EndedToolCall, EndedTurn, Observer, ToolEnd, TurnEnd, TurnRun,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::Dropped;
use super::names::*;
use super::span::{Attribute, Kind, Span, real, short, text, whole};

/// The clock of the wall is read anew when it is off by more than this: it was set, or the machine slept.
const CLOCK_STEP_MAX: Duration = Duration::from_millis(100);

/// An observer that puts spans into a queue and never waits for it.
pub struct Spans {
    /// The share of traces that is sent.
    ratio: f64,
    nonce: [u8; 16],
    /// Spans that belong to no turn's number.
    made: AtomicU64,
    clock: Clock,
    queue: mpsc::Sender<Span>,
    dropped: Arc<Dropped>,
}

/// The names of a span. They are a hash of a number and of the process, so a call knows those of its turn before the
/// turn has ended, and nothing has to be kept.
struct Ids {
    trace: [u8; 16],
    span: [u8; 8],
}

/// What of a span is the same for all.
struct Outline {
    ids: Ids,
    parent: Option<[u8; 8]>,
    kind: Kind,
    began: Instant,
    lasted: Duration,
    failed: bool,
}

impl Spans {
    pub fn new(
        ratio: f64,
        nonce: &[u8; 16],
        queue: mpsc::Sender<Span>,
        dropped: Arc<Dropped>,
    ) -> Self {
        let (made, clock) = (AtomicU64::new(0), Clock::default());
        Self { ratio, nonce: *nonce, made, clock, queue, dropped }
    }

    fn ids(&self, of: &str, number: u64) -> Ids {
        let hash = Sha256::new()
            .chain_update(self.nonce)
            .chain_update(of)
            .chain_update(number.to_be_bytes())
            .finalize();
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&hash[..16]);
        span.copy_from_slice(&hash[16..24]);
        Ids { trace, span }
    }

    fn of_turn(&self, turn: &TurnRun) -> Ids {
        self.ids("turn", turn.number)
    }

    /// The names of a span within a turn, or of one that is a trace of its own; and its parent's.
    fn within(&self, turn: Option<&TurnRun>) -> (Ids, Option<[u8; 8]>) {
        let own = self.ids("span", self.made.fetch_add(1, Ordering::Relaxed));
        match turn.map(|turn| self.of_turn(turn)) {
            Some(turn) => (Ids { trace: turn.trace, ..own }, Some(turn.span)),
            None => (own, None),
        }
    }

    fn put(&self, outline: Outline, name: String, attributes: Vec<Attribute>) {
        let Outline { ids, parent, kind, began, lasted, failed } = outline;
        let began_nanos = self.clock.nanos(began);
        let lasted = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX);
        let span = Span {
            trace: ids.trace,
            id: ids.span,
            parent,
            name,
            kind,
            began_nanos,
            ended_nanos: began_nanos.saturating_add(lasted),
            attributes,
            failed,
        };
        if self.queue.try_send(span).is_err() {
            self.dropped.add(1);
        }
    }
}

impl Observer for Spans {
    fn turn_ended(&self, turn: &EndedTurn<'_>) {
        let ids = self.of_turn(turn.turn);
        if !is_sampled(self.ratio, &ids.trace) {
            return;
        }
        let mut attributes = about(INVOKE_AGENT, turn.agent);
        let outcome = match turn.end {
            TurnEnd::Done => "done",
            TurnEnd::Cancelled => "cancelled",
            TurnEnd::Halted => "halted",
            TurnEnd::Failed => "failed",
        };
        attributes.extend([
            text(PROVIDER, THIS_PROVIDER),
            text(TURN_ID, &turn.turn.id.to_string()),
            text(OUTCOME, outcome),
        ]);
        let failed = turn.end == TurnEnd::Failed;
        attributes.extend(failed.then(|| text(ERROR_TYPE, OTHER_ERROR)));
        let (kind, parent) = (Kind::Internal, None);
        let outline = Outline { ids, parent, kind, began: turn.began, lasted: turn.lasted, failed };
        self.put(outline, format!("{INVOKE_AGENT} {}", short(turn.agent.as_str())), attributes);
    }

    fn model_call_ended(&self, call: &EndedModelCall<'_>) {
        let (ids, parent) = self.within(call.turn);
        if !is_sampled(self.ratio, &ids.trace) {
            return;
        }
        let mut attributes = about(CHAT, call.agent);
        let (outcome, error) = match call.end {
            CallEnd::Done => ("done", None),
            CallEnd::Cancelled => ("cancelled", None),
            CallEnd::Failed(error) => ("failed", Some(error)),
        };
        attributes.extend([
            text(PROVIDER, &call.model.provider_name),
            text(REQUEST_MODEL, &call.model.id),
            text(OUTCOME, outcome),
        ]);
        attributes.extend(call.first_token.map(|after| real(FIRST_CHUNK, after.as_secs_f64())));
        if call.bill.calls > 0 {
            let usage = &call.bill.usage;
            let parts = [
                (CACHE_READ_TOKENS, usage.cache_read),
                (CACHE_WRITE_TOKENS, usage.cache_write),
                (REASONING_TOKENS, usage.reasoning),
            ];
            attributes.push(whole(INPUT_TOKENS, usage.input));
            attributes.push(whole(OUTPUT_TOKENS, usage.output));
            let parts = parts.into_iter().filter(|(_, tokens)| *tokens > 0);
            attributes.extend(parts.map(|(key, tokens)| whole(key, tokens)));
            if call.bill.unknown_calls == 0 {
                attributes.push(real(COST_USD, call.bill.cost.usd()));
            }
        }
        attributes.extend(error.map(|error| text(ERROR_TYPE, error)));
        let (kind, failed) = (Kind::Client, error.is_some());
        let outline = Outline { ids, parent, kind, began: call.began, lasted: call.lasted, failed };
        self.put(outline, format!("{CHAT} {}", short(&call.model.id)), attributes);
    }

    fn tool_call_ended(&self, call: &EndedToolCall<'_>) {
        let (ids, parent) = self.within(Some(call.turn));
        if !is_sampled(self.ratio, &ids.trace) {
            return;
        }
        let mut attributes = about(EXECUTE_TOOL, call.agent);
        let (outcome, error) = match call.end {
            ToolEnd::Done => ("done", None),
            ToolEnd::Cancelled => ("cancelled", None),
            ToolEnd::Failed => ("failed", Some(OTHER_ERROR)),
            ToolEnd::Refused(_) => ("refused", Some("refused")),
        };
        attributes.extend([text(TOOL_TYPE, FUNCTION), text(OUTCOME, outcome)]);
        attributes.extend(call.tool.map(|tool| text(TOOL_NAME, tool)));
        if let ToolEnd::Refused(rule) = call.end {
            attributes.push(text(RULE, rule));
        }
        attributes.extend(error.map(|error| text(ERROR_TYPE, error)));
        let name = match call.tool {
            Some(tool) => format!("{EXECUTE_TOOL} {}", short(tool)),
            None => EXECUTE_TOOL.to_owned(),
        };
        let (kind, failed) = (Kind::Internal, error.is_some());
        let outline = Outline { ids, parent, kind, began: call.began, lasted: call.lasted, failed };
        self.put(outline, name, attributes);
    }
}

/// What every span says: an agent has one conversation, and it has the agent's name.
fn about(operation: &str, agent: &AgentId) -> Vec<Attribute> {
    let agent = agent.as_str();
    vec![
        text(OPERATION, operation),
        text(AGENT_ID, agent),
        text(AGENT_NAME, agent),
        text(CONVERSATION_ID, agent),
    ]
}

/// Decided by the trace, so that all spans of one come or none does.
fn is_sampled(ratio: f64, trace: &[u8; 16]) -> bool {
    let [.., a, b, c, d, e, f, g, h] = *trace;
    let place = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
    place < (ratio * (1_u64 << 63) as f64) as u64
}

/// Tells moments of the wall's clock. One pair of moments serves for all spans, so that those of a turn fit together to
/// the nanosecond.
struct Clock(Mutex<(Instant, SystemTime)>);

impl Default for Clock {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), SystemTime::now())))
    }
}

impl Clock {
    fn nanos(&self, at: Instant) -> u64 {
        self.nanos_as_of(at, Instant::now(), SystemTime::now())
    }

    fn nanos_as_of(&self, at: Instant, now: Instant, wall: SystemTime) -> u64 {
        let mut pair = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = pair.1 + now.saturating_duration_since(pair.0);
        let off = match wall.duration_since(expected) {
            Ok(ahead) => ahead,
            Err(behind) => behind.duration(),
        };
        if off > CLOCK_STEP_MAX {
            *pair = (now, wall);
        }
        let (instant, wall) = *pair;
        let at = match at.checked_duration_since(instant) {
            Some(after) => wall + after,
            None => wall - instant.duration_since(at),
        };
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The seconds since the start at which something happened `at` seconds after it, told at second `now` while the
    /// clock of the wall is ahead by so much.
    fn check(clock: &Clock, at: u32, now: u32, ahead: Duration, expected: Duration) {
        let (start, wall) = (Instant::now() - 100 * SECOND, UNIX_EPOCH + 1_000 * SECOND);
        *clock.0.lock().unwrap() = (start, wall);
        let told = clock.nanos_as_of(
            start + at * SECOND,
            start + now * SECOND,
            wall + now * SECOND + ahead,
        );
        assert_eq!(u128::from(told), (1_000 * SECOND + expected).as_nanos());
    }

    #[test]
    fn moments_fit_together_until_the_clock_is_set() {
        let clock = Clock::default();
        check(&clock, 3, 5, Duration::ZERO, 3 * SECOND);
        check(&clock, 3, 5, CLOCK_STEP_MAX, 3 * SECOND);
        let step = CLOCK_STEP_MAX + Duration::from_nanos(1);
        check(&clock, 3, 5, step, 3 * SECOND + step);
        check(&clock, 3, 5, 60 * SECOND, 63 * SECOND);
    }

    #[test]
    fn the_ratio_is_of_traces() {
        let low = [0; 16];
        let high = [0xff; 16];
        let half = [[0; 8], [0x80, 0, 0, 0, 0, 0, 0, 0]].concat().try_into().unwrap();
        for (ratio, expected) in [
            (0.0, [false, false, false]),
            (0.5, [true, false, false]),
            (0.500_001, [true, true, false]),
            (1.0, [true, true, true]),
        ] {
            assert_eq!(
                [low, half, high].map(|trace| is_sampled(ratio, &trace)),
                expected,
                "{ratio}"
            );
        }
    }
}
