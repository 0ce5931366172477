//! What happens in a turn, and what it comes to.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::message::{Stop, ToolCall};
use crate::preview::FileChange;
use crate::progress::ToolProgress;
use crate::provider::Waiting;
use crate::store::ApprovalRecord;
use crate::usage::{Bill, Usage};

/// Something that happened in a turn.
#[derive(Debug)]
pub enum TurnEvent<'a> {
    Text(&'a str),
    /// A piece of what the model thinks.
    Reasoning(&'a str),
    /// It has thought, about so many tokens where its provider counts them.
    ReasoningEnd {
        tokens: Option<u64>,
    },
    ToolCall(&'a ToolCall),
    /// How far a call is.
    ToolProgress {
        id: &'a str,
        progress: &'a ToolProgress,
    },
    /// `refused_by` names the rule of the gate that refused the call.
    ToolResult {
        id: &'a str,
        content: &'a str,
        failed: bool,
        lasted: Duration,
        refused_by: Option<&'static str>,
        change: Option<&'a FileChange>,
    },
    ApprovalRequested(&'a ApprovalRecord),
    /// The model's provider lets the turn wait.
    Waiting(&'a Waiting),
    /// Another model takes over.
    Fallback {
        from: &'a str,
        to: &'a str,
        reason: &'a str,
    },
    /// What one step used.
    Usage(Usage),
}

/// Takes the events of one turn. Must not block: a reader that cannot keep up is the sink's own problem.
pub trait EventSink: Send {
    /// False when the sink takes no more; it is then dropped and the turn goes on without it.
    fn event(&mut self, event: TurnEvent<'_>) -> bool;

    /// A wait for a reader that has much to take, and takes it. A model may be quicker than whoever reads along: it is
    /// heard no faster then.
    fn crowded(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// How a turn ended, when it did not fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnOutcome {
    /// The text of all steps, joined as it was streamed.
    pub content: String,
    pub cancelled: bool,
    pub halted_at_iteration_limit: bool,
    pub stop: Stop,
    /// All that the turn used.
    pub bill: Bill,
    /// The model that answered last.
    pub model: String,
    /// How often a model was asked and its answer kept.
    pub steps: u32,
}
