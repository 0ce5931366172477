//! The figures in the text that Prometheus reads.

use std::fmt;

use nexus_protocol::metrics::{Bucket, Metric, MetricKind, Sample, Spread};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

/// What [`text`] is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub fn text(metrics: Vec<Metric>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Gathered(metrics)));
    let mut text = String::new();
    // Writing to memory does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Gathered(Vec<Metric>);

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for Metric { name, kind, help, samples } in &self.0 {
            let kind = match kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            // The encoder adds the end of a counter's name to its samples, and help and type go without.
            let name = name.strip_suffix("_total").unwrap_or(name);
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for sample in samples {
                let labels = sample.labels.iter();
                let labels: Vec<(&str, &str)> =
                    labels.map(|(name, value)| (&**name, &**value)).collect();
                match labels.is_empty() {
                    true => write(&mut metric, kind, sample)?,
                    false => write(&mut metric.encode_family(&labels)?, kind, sample)?,
                }
            }
        }
        Ok(())
    }
}

fn write(metric: &mut MetricEncoder<'_>, kind: MetricType, sample: &Sample) -> fmt::Result {
    let none = None::<&Exemplar<NoLabelSet, f64>>;
    match (kind, sample.value, &sample.spread) {
        (MetricType::Counter, Some(value), _) => metric.encode_counter(&value, none),
        (_, Some(value), _) => metric.encode_gauge(&value),
        (_, None, Some(spread)) => {
            let Spread { count, sum, buckets } = spread;
            let mut before = 0;
            // Each bucket by itself: the encoder adds up.
            let own = |Bucket { le, count }: &Bucket| {
                let own = count - before;
                before = *count;
                (le.unwrap_or(f64::INFINITY), own)
            };
            let buckets: Vec<_> = buckets.iter().map(own).collect();
            metric.encode_histogram::<NoLabelSet>(*sum, *count, &buckets, None)
        }
        (_, None, None) => Ok(()),
    }
}
