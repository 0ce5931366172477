//! The server's log on standard error: one line per event, JSON unless a person watches.

mod calls;
mod events;
mod panics;
mod queue;

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use jiff::Timestamp;
use nexus_core::logs::RAW_TARGET;
use nexus_server::calls::CallLog;
use nexus_store::agent_logs::AgentLogFiles;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::LogFormat;
use calls::Calls;
use queue::Queue;

/// Starts logging.
pub fn init(format: Option<LogFormat>, verbose: bool, agent_logs: &AgentLogFiles) -> Log {
    let format = format.unwrap_or_else(|| match io::stderr().is_terminal() {
        true => LogFormat::Text,
        false => LogFormat::Json,
    });
    let queue = Queue::start();
    let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let ours = [
        "nexus3",
        "nexus_check",
        "nexus_config",
        "nexus_core",
        "nexus_doors",
        "nexus_local",
        "nexus_mcp",
        "nexus_models",
        "nexus_server",
        "nexus_store",
        "nexus_tools",
        "nexus_traces",
    ]
    .map(|target| (target, level));
    let filter = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets(ours)
        // It writes down what servers say, and how they stand is told elsewhere.
        .with_target("rmcp", LevelFilter::OFF)
        .with_target(RAW_TARGET, LevelFilter::OFF);
    let out = queue.clone();
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(events::Members)
        .event_format(events::Lines(format))
        .with_writer(move || Out(out.clone()))
        .with_filter(filter);
    tracing_subscriber::registry().with(lines).with(agent_logs.raw_layer()).init();
    panics::log_them();
    Log { format, queue }
}

/// The log of this program. Dropped last, it writes what is still waiting.
pub struct Log {
    format: LogFormat,
    queue: Arc<Queue>,
}

impl Log {
    /// Waits until what was logged is written, or nobody seems to read it.
    pub fn flush(&self) {
        self.queue.flush();
    }

    /// Where the lines of calls go.
    pub fn calls(&self) -> Arc<dyn CallLog> {
        Arc::new(Calls { format: self.format, queue: self.queue.clone() })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The queue as something to write lines to.
struct Out(Arc<Queue>);

impl io::Write for Out {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn time_for_people() -> impl fmt::Display {
    Timestamp::now().strftime("%H:%M:%S").to_string()
}
