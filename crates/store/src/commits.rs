//! The seam at which the fault harness (`torture/`) breaks the store: in each write, and around each commit.

use nexus_core::store::StoreError;

/// Asked on the writer's thread. Commits and jobs are counted from 1, each by itself. The program itself has none.
pub trait Commits: Send {
    /// When all jobs of the group have been run and nothing is on disk yet.
    fn before(&mut self, number: u64) -> Verdict;

    /// When the group is on disk, or was said to be, and nobody was answered yet.
    fn after(&mut self, number: u64);

    /// When all statements of one job have been run: with an error, as if the last of them had failed. What they wrote is
    /// undone, the job's caller is told, and the other jobs of the group go on.
    fn fail_job(&mut self, _number: u64) -> Option<StoreError> {
        None
    }
}

/// What becomes of a commit.
pub enum Verdict {
    Commit,
    /// As a disk that refuses: nothing is written, and every caller is told this.
    Fail(StoreError),
    /// As a disk that forgets what it was told to flush: nothing is written, and every caller is told that it was.
    Lie,
}
