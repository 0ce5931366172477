//! Spans of what agents do, sent to a receiver of OpenTelemetry where the usual variables ask for it.
//!
//! [`settings`] reads the variables. [`Spans`](spans::Spans) is an `Observer` of the core that makes a span of each turn,
//! model call and tool call, by the [`names`] of the semantic conventions, and puts it into a bounded queue. The
//! [`export`] task takes them from there in batches, which [`otlp`] writes, and is the only one who waits for the
//! receiver. No span has anything that was said: no prompt, no answer, no argument, no result.

mod export;
mod names;
mod otlp;
mod settings;
mod span;
mod spans;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nexus_core::observe::Observer;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::export::Exporter;
use self::settings::Reading;
use self::spans::Spans;

/// What sends spans while the program runs.
pub struct Traces {
    spans: Arc<Spans>,
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Traces {
    /// Starts sending if the variables ask for it; `None`, and no task, if they do not. `dropped` is told how many spans
    /// were lost, whenever some are.
    pub fn start(
        env: &dyn Fn(&str) -> Option<String>,
        dropped: impl Fn(u64) + Send + Sync + 'static,
    ) -> Option<Self> {
        let Reading { settings, warnings } = settings::read(env);
        for warning in warnings {
            tracing::warn!("traces: {warning}");
        }
        let settings = settings?;
        tracing::info!(to = settings.shown(), "sending traces");
        let dropped = Arc::new(Dropped { unsaid: AtomicU64::new(0), tell: Box::new(dropped) });
        let (queue, waiting) = mpsc::channel(settings.queue_max);
        let spans = Arc::new(Spans::new(settings.ratio, &settings.nonce, queue, dropped.clone()));
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let exporter = Exporter::new(settings, waiting, dropped, stop.clone());
        let over = ended.clone().drop_guard();
        tokio::spawn(async move {
            exporter.run().await;
            drop(over);
        });
        Some(Self { spans, stop, ended })
    }

    /// Makes spans of what it is told.
    pub fn observer(&self) -> Arc<impl Observer + use<>> {
        self.spans.clone()
    }

    /// Sends what waits, for [`export::FLUSH_MAX`] at most.
    pub async fn close(&self) {
        self.stop.cancel();
        self.ended.cancelled().await;
    }
}

/// Spans that were lost.
struct Dropped {
    /// Those that no line of the log was written of yet.
    unsaid: AtomicU64,
    tell: Box<dyn Fn(u64) + Send + Sync>,
}

impl Dropped {
    fn add(&self, spans: u64) {
        if spans > 0 {
            self.unsaid.fetch_add(spans, Ordering::Relaxed);
            (self.tell)(spans);
        }
    }
}
