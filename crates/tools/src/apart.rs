//! Work on the text and the patterns of strangers whose cost nobody can foretell: a grammar may want gigabytes for a file
//! of some kilobytes, a regular expression hours. It is done in a process of its own ([`sandbox`](crate::sandbox)), which
//! sees no file, which the kernel ends at a bound of memory or of processor time, and which ends with the call.

use serde::{Deserialize, Serialize};

use crate::edit::{self, Replace};
use crate::outline::{self, Source};

/// What is done apart.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    Outline(Source),
    Replace(Replace),
}

/// What came of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub text: String,
    /// How many definitions the text shows, or how many matches were replaced in it.
    pub count: usize,
}

impl Work {
    pub fn run(self) -> Result<Done, String> {
        match self {
            Self::Outline(source) => outline::outline(&source),
            Self::Replace(replace) => edit::replace(&replace),
        }
    }
}
