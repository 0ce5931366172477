//! What happens to agents, as those who watch are told.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;

use crate::message::{Content, SharedMessage, StopReason, ToolCall};
use crate::name::{AgentId, TurnId};
use crate::observe::TurnEnd;
use crate::preview::FileChange;
use crate::progress::ToolProgress;
use crate::provider::Waiting;
use crate::store::{AgentRecord, ApprovalRecord};
use crate::usage::{Bill, Usage};

/// Text that is joined is no longer than this: whoever takes it needs room for several copies of it.
pub(super) const JOINED_BYTES_MAX: usize = 64 << 10;

/// Something that happened. Made once, however many watch.
#[derive(Clone, Debug)]
pub struct Happening {
    /// `None` for what concerns the server as a whole.
    pub agent: Option<AgentId>,
    pub turn: Option<TurnId>,
    pub at: Timestamp,
    pub event: Event,
    /// As it travels: made by the first who sends it, for all the others.
    pub encoded: OnceLock<Box<[u8]>>,
}

#[derive(Clone, Debug)]
pub enum Event {
    TurnQueued {
        asked: Arc<Asked>,
        /// How many wait before it, the one that runs included.
        position: usize,
    },
    TurnStarted {
        asked: Arc<Asked>,
        /// As the agent's settings name it.
        model: Option<String>,
    },
    Delta(Piece),
    Reasoning(Piece),
    /// Written down, and in the store where there is one.
    Message {
        index: u64,
        message: SharedMessage,
    },
    ToolCall(ToolCall),
    /// It was let through, or is asked about.
    ToolStarted {
        id: String,
    },
    /// A piece of what the call prints.
    ToolOutput {
        id: String,
        text: String,
    },
    /// How far the call is.
    ToolProgress {
        id: String,
        progress: ToolProgress,
    },
    ToolResult {
        id: String,
        content: String,
        failed: bool,
        lasted: Duration,
        refused_by: Option<&'static str>,
        change: Option<FileChange>,
    },
    /// Also told to those who watch an agent above: its turn may wait for it.
    ApprovalRequested {
        record: Box<ApprovalRecord>,
    },
    ApprovalDecided {
        record: Box<ApprovalRecord>,
    },
    Waiting(Waiting),
    Fallback {
        from: String,
        to: String,
        reason: String,
    },
    /// What one step used.
    Usage(Usage),
    TurnEnded {
        ended: Ended,
        message_count: u64,
        lasted: Duration,
    },
    Compacted {
        before: u64,
        after: u64,
    },
    AgentCreated {
        record: Box<AgentRecord>,
        lineage: Vec<AgentId>,
    },
    AgentEnded,
    AgentRenamed {
        to: AgentId,
    },
    /// Its settings.
    AgentChanged {
        record: Box<AgentRecord>,
    },
    /// Another process has it by now.
    AgentElsewhere,
    AgentLeftMemory,
    /// Who watches, by the names they gave.
    Watchers(Vec<String>),
    ServerStopping {
        grace: Duration,
    },
}

/// A piece of what a model says or thinks.
#[derive(Clone, Debug)]
pub struct Piece {
    /// From 1.
    pub step: u32,
    /// Where it begins in the text of its step, in characters.
    pub offset: u64,
    /// Where it ends.
    pub end: u64,
    pub text: String,
}

/// What a turn was asked.
#[derive(Debug, Default)]
pub struct Asked {
    pub content: Arc<Content>,
    pub source: Option<String>,
    pub source_agent: Option<AgentId>,
    /// It goes on with one that was cut off.
    pub resumed: bool,
}

/// How a turn ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub end: TurnEnd,
    /// Why the last model call stopped, where the turn did not fail.
    pub stop: Option<StopReason>,
    pub error: Option<Arc<dyn Error + Send + Sync>>,
    pub bill: Bill,
}

impl Ended {
    /// Of a turn that came to nothing.
    pub fn empty(end: TurnEnd) -> Self {
        Self { end, stop: None, error: None, bill: Bill::default() }
    }
}

impl Event {
    /// Whether it is told only to who wants pieces as they come.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::ToolOutput { .. }) || self.piece().is_some()
    }

    /// A piece of something that a message holds in the end.
    pub(super) fn piece(&self) -> Option<&Piece> {
        match self {
            Self::Delta(piece) | Self::Reasoning(piece) => Some(piece),
            _ => None,
        }
    }

    fn piece_mut(&mut self) -> Option<&mut Piece> {
        match self {
            Self::Delta(piece) | Self::Reasoning(piece) => Some(piece),
            _ => None,
        }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        const FRAME: usize = 256;
        let text = match self {
            Self::TurnQueued { asked, .. } | Self::TurnStarted { asked, .. } => {
                asked.content.memory_bytes()
            }
            Self::Delta(piece) | Self::Reasoning(piece) => piece.text.len(),
            Self::Message { message, .. } => message.text_bytes(),
            Self::ToolCall(call) => call.text_bytes(),
            Self::ToolOutput { text, .. } => text.len(),
            Self::ToolProgress { progress, .. } => progress.bytes(),
            Self::ToolResult { content, change, .. } => {
                content.len() + change.as_ref().map_or(0, |change| change.diff.len())
            }
            Self::ApprovalRequested { record } | Self::ApprovalDecided { record } => {
                let shown = record.preview.as_ref().map_or(0, |preview| preview.bytes());
                let asked = record.inquiry.as_ref().map_or(0, |inquiry| inquiry.bytes());
                record.reason.len() + record.arguments.to_string().len() + shown + asked
            }
            Self::Fallback { reason, .. } => reason.len(),
            Self::Watchers(names) => names.iter().map(String::len).sum(),
            _ => 0,
        };
        FRAME + text
    }
}

impl Happening {
    /// Adds `next` to this where both are pieces of the same text, one behind the other. Whether they are.
    pub(super) fn join(&mut self, next: &Happening) -> bool {
        let follows = self.is_followed_by(next);
        if let (true, Some(piece), Some(more)) =
            (follows, self.event.piece_mut(), next.event.piece())
        {
            piece.text.push_str(&more.text);
            piece.end = more.end;
            self.encoded = OnceLock::new();
        }
        follows
    }

    pub(super) fn is_followed_by(&self, next: &Happening) -> bool {
        let follows = match (&self.event, &next.event) {
            (Event::Delta(piece), Event::Delta(more))
            | (Event::Reasoning(piece), Event::Reasoning(more)) => {
                piece.step == more.step
                    && piece.end == more.offset
                    && piece.text.len() + more.text.len() <= JOINED_BYTES_MAX
            }
            _ => false,
        };
        follows && self.turn == next.turn && self.agent == next.agent
    }
}
