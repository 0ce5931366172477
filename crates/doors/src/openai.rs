//! OpenAI's HTTP interface: programs that are written against it talk to agents and to models.

mod answer;
mod ask;
mod bare;
mod chat;
mod conversations;
mod door;
mod embeddings;
mod failure;
mod listing;
mod repeats;
mod responses;
mod stops;
mod stream;
mod turns;

pub use ask::{Message, Part, Role, Tool, ToolCall};
pub use bare::{Begin, Call, Completion, Models, Pieces, Ready, SAMPLING, Said, ToolChoice};
pub use door::{BODY_BYTES_MAX, Door};
pub use failure::Failure;

/// Who came through the door.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// Tells callers apart: what one began another does not find.
    pub name: String,
    /// Whose share of what is kept for callers it takes.
    pub tree: String,
    /// Goes into the history as the source of what is said.
    pub source: String,
    /// In whose name it acts; `None` for the administrator.
    pub agent: Option<String>,
    /// The name of the key that was shown.
    pub key: Option<String>,
}

#[cfg(test)]
impl Visitor {
    /// One of a tree.
    fn sample(name: &str, tree: &str) -> Self {
        Self { name: name.into(), tree: tree.into(), source: "x".into(), agent: None, key: None }
    }
}
