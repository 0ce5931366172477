//! The seam at which the fault harness (`torture/`) breaks the store: around each commit of the writer.

use nexus_core::store::StoreError;

/// Asked around each commit of a group, on the writer's thread, with the commit's number counted from 1. The program
/// itself has none.
pub trait Commits: Send {
    /// When all jobs of the group have been run and nothing is on disk yet.
    fn before(&mut self, number: u64) -> Verdict;

    /// When the group is on disk, or was said to be, and nobody was answered yet.
    fn after(&mut self, number: u64);
}

/// What becomes of a commit.
pub enum Verdict {
    Commit,
    /// As a disk that refuses: nothing is written, and every caller is told this.
    Fail(StoreError),
    /// As a disk that forgets what it was told to flush: nothing is written, and every caller is told that it was.
    Lie,
}
