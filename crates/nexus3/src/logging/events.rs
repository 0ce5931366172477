//! All other lines: events of `tracing`, with the fields of the spans around them.

use std::fmt;

use jiff::Timestamp;
use nexus_core::visible;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::time_for_people;
use crate::cli::LogFormat;

/// Makes a line of an event.
pub struct Lines(pub LogFormat);

impl<S> FormatEvent<S, Members> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        cx: &FmtContext<'_, S, Members>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut around = Map::new();
        for span in cx.event_scope().into_iter().flat_map(|spans| spans.from_root()) {
            if let Some(fields) = span.extensions().get::<FormattedFields<Members>>() {
                around.extend(parse(&fields.fields));
            }
        }
        let mut data = Map::new();
        event.record(&mut Fields(&mut data));
        let message = data.shift_remove("message").unwrap_or_default();
        let message = message.as_str().unwrap_or_default();
        // What the event says of itself counts more than what is around it.
        for (name, value) in around {
            data.entry(name).or_insert(value);
        }
        let level = event.metadata().level().as_str();
        match self.0 {
            LogFormat::Json => {
                let timestamp = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
                let (message, data) = (Value::from(message), Value::from(data));
                let line = format!(
                    r#"{{"timestamp":"{timestamp}","level":"{level}","message":{message},"data":{data}}}"#
                );
                writeln!(out, "{}", visible::json(&line))
            }
            LogFormat::Text => {
                write!(out, "{} {level:5} {}", time_for_people(), visible::line(message))?;
                for (name, value) in &data {
                    match value {
                        Value::String(text) => write!(out, " {name}={}", visible::line(text))?,
                        other => write!(out, " {name}={other}")?,
                    }
                }
                writeln!(out)
            }
        }
    }
}

/// Keeps the fields of spans as JSON objects.
pub struct Members;

impl<'w> FormatFields<'w> for Members {
    fn format_fields<R: RecordFields>(&self, mut out: Writer<'w>, fields: R) -> fmt::Result {
        let mut members = Map::new();
        fields.record(&mut Fields(&mut members));
        write!(out, "{}", Value::from(members))
    }

    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        let mut members = parse(&current.fields);
        fields.record(&mut Fields(&mut members));
        current.fields = Value::from(members).to_string();
        Ok(())
    }
}

fn parse(fields: &str) -> Map<String, Value> {
    serde_json::from_str(fields).unwrap_or_default()
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().into(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
