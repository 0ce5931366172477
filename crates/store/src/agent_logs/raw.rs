//! Provider traffic, to the log of the agent that caused it.
//!
//! Many agents share one provider, which knows nothing of agents. Everything a turn does runs inside its span, on
//! whatever thread; the layer finds the span around an event and with it the agent.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use nexus_core::AgentId;
use nexus_core::logs::{RAW_TARGET, TURN_SPAN};
use nexus_core::visible;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::{Entry, Queue};

/// Takes the events of [`RAW_TARGET`] inside a turn's span. Events outside every turn belong to no agent and are
/// not kept.
pub struct RawLayer {
    queue: Arc<Queue>,
}

impl RawLayer {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self { queue }
    }

    /// The layer behind a filter, so that all other events cost it nothing. Every span passes: a task that runs in a
    /// span inside the turn's would lose its way to the turn if that span were switched off.
    pub(super) fn filtered<S>(self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        self.with_filter(filter_fn(|metadata| {
            metadata.is_span() || metadata.target() == RAW_TARGET
        }))
    }
}

fn is_turn(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.name() == TURN_SPAN
}

/// Whose turn a span is; kept with the span.
struct Owner(AgentId);

impl<S> Layer<S> for RawLayer
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if is_turn(attributes.metadata()) {
            let mut found = OwnerVisitor(None);
            attributes.record(&mut found);
            keep_owner(found, id, &context);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if context.span(id).is_some_and(|span| is_turn(span.metadata())) {
            let mut found = OwnerVisitor(None);
            values.record(&mut found);
            keep_owner(found, id, &context);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() != RAW_TARGET {
            return;
        }
        let owner = context.event_scope(event).and_then(|mut spans| {
            spans
                .find_map(|span| span.extensions().get::<Owner>().map(|Owner(agent)| agent.clone()))
        });
        if let Some(agent) = owner {
            let mut fields = FieldVisitor(Map::new());
            event.record(&mut fields);
            self.queue.push(Entry::Raw {
                agent,
                event: Event { at: Timestamp::now(), fields: fields.0 },
            });
        }
    }
}

fn keep_owner<S>(found: OwnerVisitor, id: &Id, context: &Context<'_, S>)
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    if let (Some(agent), Some(span)) = (found.0, context.span(id)) {
        span.extensions_mut().replace(Owner(agent));
    }
}

/// One event, not yet formatted: that is the writing thread's work.
pub(super) struct Event {
    at: Timestamp,
    fields: Map<String, Value>,
}

impl Event {
    pub fn bytes(&self) -> usize {
        self.fields.values().map(|value| value.as_str().map_or(8, str::len)).sum()
    }

    /// One line of JSON. A body that is JSON itself stands there as JSON, so that tools need not unpack it twice.
    pub fn into_line(mut self) -> String {
        if let Some(body) = self.fields.get_mut("body")
            && let Some(Ok(inner @ (Value::Object(_) | Value::Array(_)))) =
                body.as_str().map(serde_json::from_str)
        {
            *body = inner;
        }
        let mut line = Map::from_iter([("at".to_string(), Value::from(format!("{:.3}", self.at)))]);
        line.extend(self.fields);
        let text = Value::Object(line).to_string();
        format!("{}\n", visible::json(&text))
    }
}

/// Reads the agent's name from a turn's span.
struct OwnerVisitor(Option<AgentId>);

impl Visit for OwnerVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "agent_id" {
            self.0 = AgentId::parse(value).ok();
        }
    }

    /// How values arrive that were given by `Display` (`%agent_id`).
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

struct FieldVisitor(Map<String, Value>);

impl FieldVisitor {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_string(), value.into());
    }
}

impl Visit for FieldVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
