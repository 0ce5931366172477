//! What was sent before, kept in a file that all terminals of a home share.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const ENTRIES_MAX: usize = 10_000;
const FILE_BYTES_MAX: u64 = 4 << 20;

pub struct History {
    /// `None`: nothing is kept beyond this run.
    file: Option<PathBuf>,
    cwd: String,
    /// Oldest first.
    entries: Vec<Entry>,
    /// Which entry is shown, and what was written before the first was.
    at: Option<(usize, String)>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    text: String,
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    at: String,
}

impl History {
    /// What cannot be read is no history: a line that is damaged is passed over, a file that is not ours is left alone.
    pub fn open(file: Option<PathBuf>, cwd: String) -> Self {
        let file = file.filter(|file| is_ours(file));
        let entries = file.as_deref().map(read).unwrap_or_default();
        Self { file, cwd, entries, at: None }
    }

    /// Notes what was sent. What begins with a blank is not kept, nor what is said twice in a row.
    pub fn add(&mut self, text: &str) {
        self.at = None;
        let is_again = self.entries.last().is_some_and(|entry| entry.text == text);
        if text.starts_with([' ', '\t', '\n']) || text.is_empty() || is_again {
            return;
        }
        let entry = Entry {
            text: text.into(),
            cwd: self.cwd.clone(),
            at: jiff::Timestamp::now().to_string(),
        };
        if let Some(file) = &self.file {
            // A history that cannot be written is no reason to stop talking.
            let _ = append(file, &entry);
        }
        self.entries.push(entry);
    }

    /// The entry before the one that is shown; `present` is what stands in the input.
    pub fn older(&mut self, present: &str) -> Option<&str> {
        let (at, draft) = match self.at.take() {
            Some((at, draft)) => (at, draft),
            None => (self.entries.len(), present.to_owned()),
        };
        let next = at.checked_sub(1);
        self.at = Some((next.unwrap_or(at), draft));
        Some(&self.entries.get(next?)?.text)
    }

    /// The entry after it, and behind the last what was written before.
    pub fn newer(&mut self) -> Option<String> {
        let (at, draft) = self.at.take()?;
        match self.entries.get(at + 1) {
            Some(entry) => {
                let text = entry.text.clone();
                self.at = Some((at + 1, draft));
                Some(text)
            }
            None => Some(draft),
        }
    }

    /// Somebody wrote: browsing begins at the end again.
    pub fn leave(&mut self) {
        self.at = None;
    }

    /// The entries that contain `query`, newest first, those of this directory before the others; each text once.
    pub fn search(&self, query: &str) -> Vec<&str> {
        let query = query.to_lowercase();
        let (here, elsewhere): (Vec<&Entry>, Vec<&Entry>) = self
            .entries
            .iter()
            .rev()
            .filter(|entry| entry.text.to_lowercase().contains(&query))
            .partition(|entry| entry.cwd == self.cwd);
        let mut seen = std::collections::HashSet::new();
        let found = here.into_iter().chain(elsewhere).map(|entry| entry.text.as_str());
        found.filter(|text| seen.insert(*text)).collect()
    }
}

/// Whether the file is a plain one of this user's, or is not there yet. Through a link somebody else could be written to.
fn is_ours(file: &Path) -> bool {
    match std::fs::symlink_metadata(file) {
        Ok(found) => found.is_file() && found.uid() == rustix::process::geteuid().as_raw(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn read(path: &Path) -> Vec<Entry> {
    let Ok(mut file) = open(path, OpenOptions::new().read(true)) else { return Vec::new() };
    let length = file.metadata().map_or(0, |found| found.len());
    let mut bytes = Vec::new();
    // Only the end of a file that was never shortened.
    let _ = file.seek(SeekFrom::Start(length.saturating_sub(FILE_BYTES_MAX)));
    if file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let mut entries: Vec<Entry> = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let surplus = entries.len().saturating_sub(ENTRIES_MAX);
    entries.drain(..surplus);
    if length > FILE_BYTES_MAX || surplus > 0 {
        let _ = shorten(path, &entries);
    }
    entries
}

/// In one write, so that lines of two terminals never mix. What was cut off before is a line of its own, and spoils no other.
fn append(path: &Path, entry: &Entry) -> std::io::Result<()> {
    let mut file = open(path, OpenOptions::new().read(true).append(true).create(true))?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let mut line = if last == *b"\n" { Vec::new() } else { vec![b'\n'] };
    serde_json::to_writer(&mut line, entry)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// Keeps three quarters, so that it is not done at each start.
fn shorten(path: &Path, entries: &[Entry]) -> std::io::Result<()> {
    let mut kept = Vec::new();
    for entry in &entries[entries.len() / 4..] {
        serde_json::to_writer(&mut kept, entry)?;
        kept.push(b'\n');
    }
    let beside = path.with_extension(format!("{}", std::process::id()));
    open(&beside, OpenOptions::new().write(true).create_new(true))?.write_all(&kept)?;
    std::fs::rename(&beside, path)
}

fn open(path: &Path, options: &mut OpenOptions) -> std::io::Result<File> {
    let no_links = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    options.mode(0o600).custom_flags(no_links).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn history(file: &Path) -> History {
        History::open(Some(file.into()), "/here".into())
    }

    #[test]
    fn is_shared_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history");
        let (mut one, mut two) = (history(&file), history(&file));
        one.add("first\nwith two lines");
        two.add("second");
        one.add(" a secret");
        one.add("third");
        one.add("third");
        let mut read = history(&file);
        assert_eq!(read.older("draft").unwrap(), "third");
        assert_eq!(read.older("third").unwrap(), "second");
        assert_eq!(read.older("second").unwrap(), "first\nwith two lines");
        assert_eq!(read.older(""), None);
        assert_eq!(read.newer().unwrap(), "second");
        assert_eq!(read.newer().unwrap(), "third");
        assert_eq!(read.newer().unwrap(), "draft");
        assert_eq!(read.newer(), None);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn passes_over_what_is_damaged_and_leaves_links_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history");
        std::fs::write(&file, b"\xff\xfe\n{\"text\":1}\nnonsense\n{\"text\":\"good\"}\n{\"te")
            .unwrap();
        assert_eq!(history(&file).older("").unwrap(), "good");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut through = history(&link);
        assert_eq!(through.older(""), None);
        through.add("never");
        assert!(!std::fs::read_to_string(&file).is_ok_and(|text| text.contains("never")));
        // A directory in its place, too.
        let mut of_directory = history(dir.path());
        of_directory.add("x");
        assert_eq!(of_directory.older("").unwrap(), "x");
    }

    #[test]
    fn finds_what_was_said_here_first() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history");
        let mut there = History::open(Some(file.clone()), "/there".into());
        history(&file).add("make test");
        there.add("make Test again");
        let here = history(&file);
        assert_eq!(here.search("test"), ["make test", "make Test again"]);
    }

    #[test]
    fn is_shortened_over_its_limit_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history");
        let lines = |count: usize| {
            (0..count).map(|n| format!("{{\"text\":\"entry {n}\"}}\n")).collect::<String>()
        };
        std::fs::write(&file, lines(ENTRIES_MAX)).unwrap();
        history(&file);
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), ENTRIES_MAX);
        std::fs::write(&file, lines(ENTRIES_MAX + 1)).unwrap();
        let mut read = history(&file);
        assert_eq!(read.older("").unwrap(), format!("entry {ENTRIES_MAX}"));
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), ENTRIES_MAX * 3 / 4);
    }
}
