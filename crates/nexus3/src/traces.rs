//! Whether traces are sent, in a build that can and in one that cannot.

use std::sync::Arc;

use nexus_core::observe::Observer;
use nexus_server::metrics::Figures;

pub use sending::Traces;

#[cfg(feature = "traces")]
mod sending {
    use super::*;

    pub struct Traces(Option<nexus_traces::Traces>);

    impl Traces {
        /// Starts sending, where the environment asks for it.
        pub fn start(figures: &Arc<Figures>) -> Self {
            let figures = figures.clone();
            let dropped = move |spans| figures.spans_dropped(spans);
            Self(nexus_traces::Traces::start(&|name| std::env::var(name).ok(), dropped))
        }

        /// Counts, and makes spans if they are sent.
        pub fn observer(&self, figures: Arc<Figures>) -> Arc<dyn Observer> {
            match &self.0 {
                Some(traces) => Arc::new((figures, traces.observer())),
                None => figures,
            }
        }

        /// Sends what waits, for two seconds at most.
        pub async fn close(&self) {
            if let Some(traces) = &self.0 {
                traces.close().await;
            }
        }
    }
}

#[cfg(not(feature = "traces"))]
mod sending {
    use super::*;

    pub struct Traces;

    impl Traces {
        pub fn start(_: &Arc<Figures>) -> Self {
            Self
        }

        pub fn observer(&self, figures: Arc<Figures>) -> Arc<dyn Observer> {
            figures
        }

        pub async fn close(&self) {}
    }
}
