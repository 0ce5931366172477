//! What a command may touch: an agent's permissions in the form the kernel is told.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nexus_core::permission::{Level, Permissions, Reach};
use serde::{Deserialize, Serialize};

use super::strength::Strength;

/// The most a command may do. Paths are absolute and free of symlinks; one that is neither is not granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// These directories (or files) and what lies beneath them. What every program needs to run at all is added.
    pub read: BTreeSet<PathBuf>,
    /// Also readable.
    pub write: BTreeSet<PathBuf>,
    /// Neither, whatever the others say.
    pub blocked: BTreeSet<PathBuf>,
    /// Directories that were made for the program itself: it may write there although they lie in what is blocked.
    pub own: BTreeSet<PathBuf>,
    /// The only programs it may start. `None`: whatever it may read.
    pub programs: Option<BTreeSet<PathBuf>>,
    pub network: bool,
    /// Refuse to run it where the kernel cannot hold all of this. Otherwise, hold what can be held: somebody approved
    /// of running it so.
    pub required: bool,
}

impl Policy {
    /// The policy of an agent's command; `hidden` is blocked for all of them. `None` at the level that has no bounds.
    pub fn of(
        permissions: &Permissions,
        hidden: &BTreeSet<PathBuf>,
        strength: Strength,
    ) -> Option<Self> {
        (permissions.level < Level::Yolo).then(|| Self {
            write: roots(&permissions.write),
            network: permissions.network,
            programs: None,
            ..Self::to_look(permissions, hidden, BTreeSet::new(), strength)
        })
    }

    /// The policy of a program that only looks: it reads what the agent may read, changes nothing, reaches no network
    /// and starts nothing beside `programs`, at every level.
    pub fn to_look(
        permissions: &Permissions,
        hidden: &BTreeSet<PathBuf>,
        programs: BTreeSet<PathBuf>,
        strength: Strength,
    ) -> Self {
        let mut read = roots(&permissions.read);
        read.extend(roots(&permissions.write));
        Self {
            read,
            write: BTreeSet::new(),
            blocked: permissions.blocked.union(hidden).cloned().collect(),
            own: BTreeSet::new(),
            programs: Some(programs),
            network: false,
            required: strength.sufficient(),
        }
    }

    /// The policy of work that is handed all it looks at. It is held as far as the kernel can.
    pub(super) fn nothing() -> Self {
        Self {
            read: BTreeSet::new(),
            write: BTreeSet::new(),
            blocked: BTreeSet::new(),
            own: BTreeSet::new(),
            programs: Some(BTreeSet::new()),
            network: false,
            required: false,
        }
    }

    /// Whether it could open `path`, as far as the path says.
    pub fn reads(&self, path: &Path) -> bool {
        let within = |roots: &BTreeSet<PathBuf>| roots.iter().any(|root| path.starts_with(root));
        (within(&self.read) || within(&self.write)) && !within(&self.blocked)
    }
}

fn roots(reach: &Reach) -> BTreeSet<PathBuf> {
    match reach {
        Reach::Anywhere => BTreeSet::from([PathBuf::from("/")]),
        Reach::Beneath(roots) => roots.clone(),
    }
}
