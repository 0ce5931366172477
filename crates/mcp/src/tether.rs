//! What holds a server while it is used: its process, or nothing where somebody else runs it.

use nexus_tools::sandbox::{End, LaunchError, Leash};

pub enum Tether {
    Process(Leash),
    Remote,
}

impl Tether {
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Process(leash) => leash.pid,
            Self::Remote => None,
        }
    }

    /// How the process ended, once it has. Of one elsewhere that is never known.
    pub async fn ended(&mut self) -> Result<End, LaunchError> {
        match self {
            Self::Process(leash) => leash.ended().await,
            Self::Remote => std::future::pending().await,
        }
    }

    /// Ends the process with all that it started.
    pub async fn end(self) {
        if let Self::Process(leash) = self {
            // However it ended, it has.
            let _ = leash.end().await;
        }
    }
}
