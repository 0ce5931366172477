//! What the server and its launcher say to each other: one line of JSON each way.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::{Bound, Limits};
use super::policy::Policy;
use crate::apart::Work;

/// How long processes have between being asked to end and being killed.
pub(super) const GRACE: Duration = Duration::from_millis(500);

/// What a launcher is told. The server has what it says by reference, the launcher by value.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order<C = Command, W = Work> {
    Run(C),
    /// Answered with the outcome of the work instead of a [`Report`].
    Apart(W),
}

/// What to run, and within what.
#[derive(Debug, Serialize, Deserialize)]
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// All of it: nothing is inherited.
    pub env: BTreeMap<String, String>,
    pub stdin: Stdin,
    /// Without one, the command is only watched over.
    pub policy: Option<Policy>,
    /// Where to make its private directory for temporary files, if it is to have one: its `TMPDIR`, and its `HOME` if
    /// it was given none.
    pub tmp: Option<PathBuf>,
    pub limits: Limits,
    /// The server keeps the time.
    #[serde(skip)]
    pub timeout: Duration,
}

/// What the command reads.
#[derive(Debug, Default, Serialize, Deserialize)]
pub enum Stdin {
    #[default]
    Empty,
    Text(String),
    /// What comes through a pipe, one end of which travels with the order.
    Live,
}

impl From<Option<String>> for Stdin {
    fn from(text: Option<String>) -> Self {
        text.map_or(Self::Empty, Self::Text)
    }
}

/// What became of it. Said once nothing of the command is left.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    Exited(i32),
    Killed(i32),
    /// It was ended for taking more than this.
    Exceeded(Bound),
    /// The kernel did not take what the policy demands. Nothing ran.
    NotConfined(String),
    NotStarted(String),
}
