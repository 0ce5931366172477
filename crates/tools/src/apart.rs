//! Work on the texts, patterns and images of strangers whose cost nobody can foretell: a grammar may want gigabytes for a
//! file of some kilobytes, a regular expression hours. It is done in a process of its own ([`sandbox`](crate::sandbox)), which
//! sees no file, which the kernel ends at a bound of memory or of processor time, and which ends with the call.

use serde::{Deserialize, Serialize};

use crate::attach;
use crate::edit::{self, Replace};
use crate::outline::{self, Source};

/// What is done apart.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    Outline(Source),
    Replace(Replace),
    Attach(attach::Source),
}

/// What came of an outline or a replacement.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub text: String,
    /// How many definitions the text shows, or how many matches were replaced in it.
    pub count: usize,
}

impl Work {
    /// Does it, and writes down what came of it, or why nothing did.
    pub fn run(self) -> serde_json::Result<Vec<u8>> {
        match self {
            Self::Outline(source) => serde_json::to_vec(&outline::outline(&source)),
            Self::Replace(replace) => serde_json::to_vec(&edit::replace(&replace)),
            Self::Attach(source) => serde_json::to_vec(&attach::prepare(&source)),
        }
    }

    /// The most memory it may take beside what it was told.
    pub fn memory_bytes_max(&self) -> u64 {
        match self {
            // Twice what the densest text takes of the greatest length that is outlined.
            Self::Outline(_) | Self::Replace(_) => 512 << 20,
            // What the pixels of the greatest image take, and as much again and again for a decoder that needs it.
            Self::Attach(_) => 768 << 20,
        }
    }
}
