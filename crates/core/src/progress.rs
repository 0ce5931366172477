//! How far a call is that is under way, for those who look on.

use serde_json::Number;

/// In the numbers of whoever carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolProgress {
    pub progress: Number,
    /// What it goes up to, where that is known.
    pub total: Option<Number>,
    pub message: Option<String>,
}

impl ToolProgress {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.message.as_ref().map_or(0, String::len)
    }
}
