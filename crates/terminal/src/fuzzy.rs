//! Files by a few letters of their paths, found while they are typed.

mod needle;
#[cfg(test)]
mod tests;

use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ignore::WalkBuilder;

use self::needle::Needle;

/// Paths that are kept of one walk.
pub const PATHS_MAX: usize = 200_000;
/// Paths that are handed over at once, so that the first are there soon and the lock is seldom taken.
const BATCH: usize = 256;

/// The files of a directory, as far as they are known. A walk runs on a thread and ends when the next begins, or when the
/// last handle is gone.
#[derive(Clone, Default)]
pub struct Files {
    found: Arc<Mutex<Found>>,
}

#[derive(Default)]
struct Found {
    /// Which walk fills it.
    walk: u64,
    /// One after the other: so many strings would take three times the memory.
    paths: String,
    ends: Vec<usize>,
}

impl Files {
    /// Looks at this directory from now on; with what `.gitignore` names only when it is not heeded.
    pub fn walk(&self, root: &Path, heed: bool) {
        let (number, root) = (self.begin(), root.to_owned());
        let found = Arc::downgrade(&self.found);
        let give = move |batch: Vec<String>| {
            found.upgrade().is_some_and(|found| lock(&found).add(number, batch, PATHS_MAX))
        };
        // Without a thread there is nothing to complete.
        let _ = thread::Builder::new().name("files".into()).spawn(move || visit(&root, heed, give));
    }

    /// The best of those that are known so far, best first. Without letters: what lies nearest.
    pub fn best(&self, query: &str, count: usize) -> Vec<String> {
        let needle = Needle::new(query);
        let mut letters = Vec::new();
        let found = lock(&self.found);
        let mut best = BinaryHeap::new();
        for path in found.paths() {
            let Some(score) = needle.score(path, &mut letters) else { continue };
            let depth = if needle.is_empty() { path.matches('/').count() } else { 0 };
            best.push((-score, depth, path.len(), path));
            if best.len() > count {
                best.pop();
            }
        }
        best.into_sorted_vec().into_iter().map(|(_, _, _, path)| path.to_owned()).collect()
    }

    /// Ends the walk and gives back the memory.
    pub fn forget(&self) {
        self.begin();
    }

    fn begin(&self) -> u64 {
        let mut found = lock(&self.found);
        *found = Found { walk: found.walk + 1, ..Found::default() };
        found.walk
    }
}

impl Found {
    /// Whether this walk shall go on.
    fn add(&mut self, walk: u64, batch: Vec<String>, paths_max: usize) -> bool {
        if walk != self.walk {
            return false;
        }
        let room = paths_max.saturating_sub(self.ends.len());
        for path in batch.into_iter().take(room) {
            self.paths.push_str(&path);
            self.ends.push(self.paths.len());
        }
        self.ends.len() < paths_max
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.paths[start..end])
    }
}

/// Gives paths relative to the root, in batches, for as long as they are wanted. Links are not followed. Names that are not
/// UTF-8 cannot be typed.
fn visit(root: &Path, heed: bool, mut give: impl FnMut(Vec<String>) -> bool) {
    let mut walk = WalkBuilder::new(root);
    walk.standard_filters(heed).hidden(false).require_git(false);
    walk.filter_entry(|entry| entry.file_name() != ".git");
    let mut batch = Vec::new();
    for entry in walk.build().flatten() {
        if entry.file_type().is_some_and(|kind| kind.is_dir()) {
            // Deep trees of few files end as soon as others.
            if batch.is_empty() && !give(Vec::new()) {
                return;
            }
            continue;
        }
        let path = entry.path().strip_prefix(root).map(PathBuf::from);
        if let Some(path) = path.ok().and_then(|path| path.into_os_string().into_string().ok()) {
            batch.push(path);
        }
        if batch.len() == BATCH && !give(std::mem::take(&mut batch)) {
            return;
        }
    }
    give(batch);
}

/// What others left is whole at any time.
fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}
