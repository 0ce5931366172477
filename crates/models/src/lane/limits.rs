//! What a provider says is left of its limits, for each of its models, and the limits that are configured. A call that
//! would run into one waits instead.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nexus_core::provider::ProviderError;
use reqwest::header::{HeaderMap, HeaderName};
use tokio::time::Instant;

use super::bucket::Bucket;
use crate::errors::wait;

/// Models whose figures are kept; the one unheard of for longest goes.
const MODELS_MAX: usize = 64;

/// How long a figure is believed. Every answer brings new ones.
const FIGURES_MAX: Duration = Duration::from_secs(60);

/// How long a refusal is believed that asks for more than anybody waits. After it one call asks again.
const REFUSAL_MAX: Duration = Duration::from_secs(15 * 60);

/// Conversations of which it is known how much was sent, for as long as providers keep it in their caches.
const CONVERSATIONS_MAX: usize = 1024;
const CACHED: Duration = Duration::from_secs(5 * 60);

/// Headers of one limit: what it is in all, what is left, and when it is whole again.
struct Names {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
    /// What a call takes of it.
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Calls,
    /// What a call reads.
    Tokens,
    /// What it writes, which nobody knows before: something has to be left.
    Output,
}

const fn names(
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
    unit: Unit,
) -> Names {
    Names {
        limit: HeaderName::from_static(limit),
        remaining: HeaderName::from_static(remaining),
        reset: HeaderName::from_static(reset),
        unit,
    }
}

const LIMIT_COUNT: usize = 6;

static LIMITS: [Names; LIMIT_COUNT] = [
    names(
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
        Unit::Calls,
    ),
    names(
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
        Unit::Tokens,
    ),
    names(
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
        Unit::Tokens,
    ),
    names(
        "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-remaining",
        "anthropic-ratelimit-output-tokens-reset",
        Unit::Output,
    ),
    names(
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        Unit::Calls,
    ),
    names(
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
        Unit::Tokens,
    ),
];

pub(super) struct Limits {
    models: HashMap<Arc<str>, Figures>,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    /// What was sent of a conversation, and when; where what is cached is not counted.
    conversations: Option<HashMap<Arc<str>, (u64, Instant)>>,
}

/// What is known of one model.
#[derive(Default)]
struct Figures {
    gauges: [Option<Gauge>; LIMIT_COUNT],
    /// Calls sent so far: figures in an answer do not know of those sent after its own.
    sent: u64,
    refusal: Option<RateRefusal>,
    heard_of: Option<Instant>,
}

struct Gauge {
    left: Left,
    /// Then it is forgotten.
    until: Instant,
}

enum Left {
    /// It fills steadily.
    Filling(Bucket),
    /// All of it comes back when the gauge is forgotten.
    Count(u64),
}

struct RateRefusal {
    error: ProviderError,
    /// When the provider would have the model asked again.
    ends: Instant,
    /// Until when that is believed.
    until: Instant,
}

impl Limits {
    pub fn new(
        requests_per_minute: Option<u32>,
        tokens_per_minute: Option<u32>,
        counts_cached: bool,
        now: Instant,
    ) -> Self {
        let bucket = |count: Option<u32>| count.map(|count| Bucket::per_minute(count, now));
        Self {
            models: HashMap::new(),
            requests: bucket(requests_per_minute),
            tokens: bucket(tokens_per_minute),
            conversations: (!counts_cached).then(HashMap::new),
        }
    }

    /// What a call that reads `tokens` takes of the limits: what the provider has in its cache it may not count.
    pub fn taken(&mut self, conversation: &Arc<str>, tokens: u64, now: Instant) -> u64 {
        let Some(known) = &mut self.conversations else { return tokens };
        if let Some((sent, at)) = known.get_mut(conversation) {
            let cached = if now - *at < CACHED { *sent } else { 0 };
            (*sent, *at) = (tokens, now);
            // One that became shorter was told anew.
            return if cached <= tokens { tokens - cached } else { tokens };
        }
        if known.len() >= CONVERSATIONS_MAX {
            known.retain(|_, (_, at)| now - *at < CACHED);
            if known.len() >= CONVERSATIONS_MAX {
                known.clear();
            }
        }
        known.insert(conversation.clone(), (tokens, now));
        tokens
    }

    /// Until when the provider's own figures say that a call to `model` has to wait.
    pub fn figures_wait(&mut self, model: &str, tokens: u64, now: Instant) -> Option<Instant> {
        let figures = self.models.get_mut(model)?;
        let waits = figures.gauges.iter_mut().zip(&LIMITS).filter_map(|(slot, names)| {
            let gauge = slot.as_mut().filter(|gauge| now < gauge.until)?;
            let need = names.unit.of_call(tokens);
            match &mut gauge.left {
                Left::Filling(bucket) => bucket.ready_at(need, now).map(|at| at.min(gauge.until)),
                Left::Count(left) => (*left < need).then_some(gauge.until),
            }
        });
        waits.max()
    }

    /// Until when the configured limits say so.
    pub fn configured_wait(&mut self, tokens: u64, now: Instant) -> Option<Instant> {
        let requests = self.requests.as_mut().and_then(|bucket| bucket.ready_at(1, now));
        let tokens = self.tokens.as_mut().and_then(|bucket| bucket.ready_at(tokens, now));
        requests.max(tokens)
    }

    /// A call is sent now. Its number among those of its model.
    pub fn sent(&mut self, model: &Arc<str>, tokens: u64, now: Instant) -> u64 {
        if let Some(bucket) = &mut self.requests {
            bucket.take(1, now);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.take(tokens, now);
        }
        let figures = self.figures(model, now);
        figures.sent += 1;
        for (slot, names) in figures.gauges.iter_mut().zip(&LIMITS) {
            if let Some(gauge) = slot {
                gauge.take(names.unit.of_call(tokens), now);
            }
        }
        figures.sent
    }

    /// What the answer to the call of this number says.
    pub fn told(&mut self, model: &Arc<str>, number: u64, headers: &HeaderMap, now: Instant) {
        if !LIMITS.iter().any(|names| headers.contains_key(&names.remaining)) {
            return;
        }
        let figures = self.figures(model, now);
        let sent_since = figures.sent.saturating_sub(number);
        for (slot, names) in figures.gauges.iter_mut().zip(&LIMITS) {
            if let Some(mut gauge) = Gauge::read(headers, names, now) {
                if names.unit == Unit::Calls {
                    gauge.take(sent_since, now);
                }
                *slot = Some(gauge);
            }
        }
    }

    /// The provider does not want this model to be asked for longer than anybody waits.
    pub fn refuse(&mut self, model: &Arc<str>, error: ProviderError, wait: Duration, now: Instant) {
        let until = now + wait.min(REFUSAL_MAX);
        self.figures(model, now).refusal = Some(RateRefusal { error, ends: now + wait, until });
    }

    /// What a call to `model` is answered at once, without being sent.
    pub fn refusal(&mut self, model: &str, now: Instant) -> Option<ProviderError> {
        let figures = self.models.get_mut(model)?;
        let refusal = figures.refusal.as_ref().filter(|refusal| now < refusal.until)?;
        let mut error = refusal.error.clone();
        if let ProviderError::RateLimited { retry_after, .. } = &mut error {
            *retry_after = Some(refusal.ends - now);
        }
        Some(error)
    }

    fn figures(&mut self, model: &Arc<str>, now: Instant) -> &mut Figures {
        if self.models.len() >= MODELS_MAX && !self.models.contains_key(model) {
            let oldest = self.models.iter().min_by_key(|(_, figures)| figures.heard_of);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.models.remove(&oldest);
            }
        }
        let figures = self.models.entry(model.clone()).or_default();
        figures.heard_of = Some(now);
        figures
    }
}

impl Unit {
    fn of_call(self, tokens: u64) -> u64 {
        match self {
            Self::Calls | Self::Output => 1,
            Self::Tokens => tokens,
        }
    }
}

impl Gauge {
    fn read(headers: &HeaderMap, names: &Names, now: Instant) -> Option<Self> {
        // Some services write -1 for what they do not know.
        let count = |name: &HeaderName| wait::value(headers, name)?.parse::<u64>().ok();
        let remaining = count(&names.remaining)?;
        let reset = wait::value(headers, &names.reset).and_then(|text| {
            let date = || text.parse().ok().map(|at| wait::until(at, Timestamp::now()));
            wait::written(text).or_else(date)
        })?;
        // The reset is when all of it is back; a part is back sooner.
        Some(match count(&names.limit).filter(|limit| *limit > 0) {
            Some(limit) => Self {
                left: Left::Filling(Bucket::filling(limit, remaining, reset, now)),
                until: now + FIGURES_MAX,
            },
            None => Self { left: Left::Count(remaining), until: now + reset.min(FIGURES_MAX) },
        })
    }

    fn take(&mut self, count: u64, now: Instant) {
        match &mut self.left {
            Left::Filling(bucket) => bucket.take(count, now),
            Left::Count(left) => *left = left.saturating_sub(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits::new(None, None, true, Instant::now())
    }

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        given.iter().map(pair).collect()
    }

    /// How long a call that takes so many tokens waits after an answer with these headers.
    #[track_caller]
    fn check(given: &[(&'static str, &str)], tokens: u64, expected: Option<Duration>) {
        let (mut limits, now, model) = (limits(), Instant::now(), "m".into());
        let number = limits.sent(&model, 0, now);
        limits.told(&model, number, &headers(given), now);
        let got = limits.figures_wait("m", tokens, now).map(|at| at - now);
        let close = |got: Duration, expected: Duration| {
            got + SECOND / 100 > expected && got < expected + SECOND / 100
        };
        let fits = match (got, expected) {
            (Some(got), Some(expected)) => close(got, expected),
            (got, expected) => got == expected,
        };
        assert!(fits, "{given:?}: {got:?}, not {expected:?}");
        assert_eq!(limits.figures_wait("another", tokens, now), None);
        assert_eq!(limits.figures_wait("m", tokens, now + FIGURES_MAX), None, "they grow old");
    }

    #[test]
    fn what_is_used_up_is_waited_for() {
        let requests = "x-ratelimit-remaining-requests";
        let reset = ("x-ratelimit-reset-requests", "2s");
        check(&[], 5, None);
        check(&[(requests, "0"), reset], 5, Some(2 * SECOND));
        check(&[(requests, "1"), reset], 5, None);
        check(&[(requests, "-1"), reset], 5, None);
        check(&[(requests, "0")], 5, None);
        check(&[(requests, "0"), ("x-ratelimit-reset-requests", "6m0s")], 5, Some(FIGURES_MAX));
        check(&[(requests, "0"), ("x-ratelimit-reset-requests", "12ms")], 5, Some(SECOND / 80));
        // Forty are whole again in two seconds, so one is there much sooner.
        check(
            &[(requests, "0"), ("x-ratelimit-limit-requests", "40"), reset],
            5,
            Some(SECOND / 20),
        );
    }

    #[test]
    fn tokens_are_waited_for_when_fewer_are_left_than_the_call_takes() {
        let (left, reset) = ("x-ratelimit-remaining-tokens", ("x-ratelimit-reset-tokens", "3s"));
        check(&[(left, "99"), reset], 100, Some(3 * SECOND));
        check(&[(left, "100"), reset], 100, None);
        check(&[(left, "0"), ("x-ratelimit-limit-tokens", "300"), reset], 100, Some(SECOND));
        check(&[(left, "0"), ("x-ratelimit-limit-tokens", "300"), reset], 900, Some(3 * SECOND));
    }

    #[test]
    fn each_limit_of_the_other_service_counts() {
        let soon = (Timestamp::now() + SECOND * 5).to_string();
        for (remaining, reset, tokens_left) in [
            ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset", "0"),
            ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset", "99"),
            (
                "anthropic-ratelimit-input-tokens-remaining",
                "anthropic-ratelimit-input-tokens-reset",
                "99",
            ),
            (
                "anthropic-ratelimit-output-tokens-remaining",
                "anthropic-ratelimit-output-tokens-reset",
                "0",
            ),
        ] {
            let (mut limits, now, model) = (limits(), Instant::now(), "m".into());
            limits.told(&model, 0, &headers(&[(remaining, tokens_left), (reset, &soon)]), now);
            let wait = limits.figures_wait("m", 100, now).unwrap() - now;
            assert!(wait > 4 * SECOND && wait <= 5 * SECOND, "{remaining}: {wait:?}");
            limits.told(&model, 0, &headers(&[(remaining, "100"), (reset, &soon)]), now);
            assert_eq!(limits.figures_wait("m", 100, now), None, "{remaining}");
        }
    }

    #[test]
    fn calls_that_were_sent_since_are_taken_off() {
        let (mut limits, now, model) = (limits(), Instant::now(), "m".into());
        let figures = headers(&[
            ("x-ratelimit-remaining-requests", "2"),
            ("x-ratelimit-reset-requests", "9s"),
        ]);
        let first = limits.sent(&model, 0, now);
        limits.told(&model, first, &figures, now);
        limits.sent(&model, 0, now);
        assert_eq!(limits.figures_wait("m", 0, now), None);
        limits.sent(&model, 0, now);
        assert!(limits.figures_wait("m", 0, now).is_some(), "both are taken");
        limits.told(&model, first, &figures, now);
        assert!(limits.figures_wait("m", 0, now).is_some(), "the answer does not know of them");
        limits.told(&model, first + 2, &figures, now);
        assert_eq!(limits.figures_wait("m", 0, now), None);
    }

    #[test]
    fn what_is_configured_is_kept() {
        let start = Instant::now();
        let mut limits = Limits::new(Some(2), Some(100), true, start);
        let model = "m".into();
        assert_eq!(limits.configured_wait(50, start), None);
        limits.sent(&model, 50, start);
        assert_eq!(limits.configured_wait(50, start), None);
        assert!(limits.configured_wait(51, start).is_some());
        limits.sent(&model, 50, start);
        assert!(limits.configured_wait(0, start).is_some(), "two calls a minute");
        assert_eq!(limits.configured_wait(50, start + 31 * SECOND), None);
        assert!(limits.configured_wait(100, start + 31 * SECOND).is_some());
        assert_eq!(limits.configured_wait(100, start + 61 * SECOND), None);
    }

    #[test]
    fn a_long_refusal_concerns_its_model_and_is_not_believed_for_ever() {
        let (mut limits, now, model) = (limits(), Instant::now(), "m".into());
        let limited =
            |retry_after| ProviderError::RateLimited { message: "429".into(), retry_after };
        limits.refuse(&model, limited(None), 3600 * SECOND, now);
        assert_eq!(limits.refusal("m", now + SECOND), Some(limited(Some(3599 * SECOND))));
        assert_eq!(limits.refusal("another", now), None);
        assert!(limits.refusal("m", now + REFUSAL_MAX - SECOND).is_some());
        assert_eq!(limits.refusal("m", now + REFUSAL_MAX), None);
    }

    #[test]
    fn what_is_cached_is_not_taken_where_it_does_not_count() {
        let start = Instant::now();
        let mut limits = Limits::new(None, None, false, start);
        let conversation = "c".into();
        assert_eq!(limits.taken(&conversation, 1000, start), 1000);
        assert_eq!(limits.taken(&conversation, 1100, start + SECOND), 100);
        assert_eq!(limits.taken(&conversation, 500, start + SECOND), 500, "after a summary");
        assert_eq!(limits.taken(&conversation, 600, start + CACHED + SECOND), 600, "too late");
        assert_eq!(limits.taken(&"d".into(), 600, start), 600);
        let mut counting = Limits::new(None, None, true, start);
        assert_eq!(counting.taken(&conversation, 1000, start), 1000);
        assert_eq!(counting.taken(&conversation, 1100, start), 1100);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let start = Instant::now();
        let mut limits = Limits::new(None, None, false, start);
        for count in 0..2 * MODELS_MAX {
            limits.sent(&count.to_string().into(), 0, start + SECOND * count as u32);
        }
        assert_eq!(limits.models.len(), MODELS_MAX);
        assert!(limits.models.contains_key("127") && !limits.models.contains_key("0"));
        for count in 0..2 * CONVERSATIONS_MAX {
            limits.taken(&count.to_string().into(), 1, start);
        }
        assert!(limits.conversations.unwrap().len() <= CONVERSATIONS_MAX);
    }
}
