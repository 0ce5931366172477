//! What a piece of work changes on disk, kept apart from what others change beside it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

use crate::lock;

/// Files of a directory that is moved. Each is looked at.
const MOVED_FILES_MAX: usize = 10_000;

/// What is read of files before a change of them, all that one change concerns together: less than a second's work. Of
/// what is beyond, length and stamps say whether it was changed.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Where several pieces of work change files, and which of them changed which.
#[derive(Debug, Default)]
pub struct Ground {
    changed_by: Mutex<HashMap<PathBuf, Arc<str>>>,
}

impl Ground {
    /// What was changed before.
    pub fn with(changed: impl IntoIterator<Item = (PathBuf, Arc<str>)>) -> Arc<Self> {
        Arc::new(Self { changed_by: Mutex::new(changed.into_iter().collect()) })
    }
}

/// The files that one piece of work changed. Asked before each change.
#[derive(Debug)]
pub struct Footprint {
    ground: Arc<Ground>,
    name: Arc<str>,
    /// Whose changes this work knows of, and may change again.
    follows: BTreeSet<Arc<str>>,
    /// As they were before the first change.
    before: Mutex<BTreeMap<PathBuf, Option<Contents>>>,
    refused: Mutex<Option<String>>,
}

/// What a file holds, as far as it is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Contents {
    /// So many bytes, with this digest.
    Read { bytes: u64, digest: [u8; 32] },
    /// What changes when somebody writes the file or puts another in its place: device, inode, length, and when it was
    /// written last.
    Stamped([u64; 3], [i64; 2]),
}

/// How contents are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// As long as so many bytes are enough.
    Reads {
        bytes_max: u64,
    },
    Stamps,
}

/// How files differ from what they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    pub created: Vec<PathBuf>,
    pub modified: Vec<PathBuf>,
    pub deleted: Vec<PathBuf>,
}

impl FileChanges {
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    pub fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.created.iter().chain(&self.modified).chain(&self.deleted)
    }
}

impl Footprint {
    pub fn new(
        ground: Arc<Ground>,
        name: &str,
        follows: impl IntoIterator<Item = Arc<str>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            ground,
            name: name.into(),
            follows: follows.into_iter().collect(),
            before: Mutex::default(),
            refused: Mutex::default(),
        })
    }

    /// Says that the file at `path`, or what lies in the directory there, is about to be changed. Refused when other work
    /// changed it that this one was not told of: what that wrote would be lost. Touches the disk, until `stop`.
    pub fn claim(&self, path: &Path, stop: &AtomicBool) -> Result<(), String> {
        let files = files_at(path).map_err(|error| format!("{}: {error}", path.display()))?;
        self.claim_files(files, stop)
    }

    /// As [`Self::claim`] for a move: all that lies at `from`, and the places it will have.
    pub fn claim_move(&self, from: &Path, to: &Path, stop: &AtomicBool) -> Result<(), String> {
        let files = files_at(from).map_err(|error| format!("{}: {error}", from.display()))?;
        let target = |file: &PathBuf| match file.strip_prefix(from) {
            Ok(below) if below.as_os_str().is_empty() => to.to_path_buf(),
            Ok(below) => to.join(below),
            Err(_) => to.to_path_buf(),
        };
        let targets: Vec<_> = files.iter().map(target).collect();
        self.claim_files([files, targets].concat(), stop)
    }

    fn claim_files(&self, files: Vec<PathBuf>, stop: &AtomicBool) -> Result<(), String> {
        // Before they are claimed: a call that is stopped here changes nothing, and must stand in nobody's way. And before
        // any lock is taken: a file may be long.
        let looked_at = self.look_at(&files, stop)?;
        let mut changed_by = lock(&self.ground.changed_by);
        let foreign = files.iter().find_map(|file| {
            let other = changed_by.get(file)?;
            let known = *other == self.name || self.follows.contains(other);
            (!known).then(|| (file, other.clone()))
        });
        if let Some((file, other)) = foreign {
            let refusal = format!(
                "{} was changed by task {other} beside this one, on which this one does not depend: leave it as it is",
                file.display()
            );
            lock(&self.refused).get_or_insert_with(|| refusal.clone());
            return Err(refusal);
        }
        changed_by.extend(files.into_iter().map(|file| (file, self.name.clone())));
        let mut before = lock(&self.before);
        for (file, contents) in looked_at {
            before.entry(file).or_insert(contents);
        }
        Ok(())
    }

    /// Those of the files that this work has not changed before, as they are.
    fn look_at(
        &self,
        files: &[PathBuf],
        stop: &AtomicBool,
    ) -> Result<Vec<(PathBuf, Option<Contents>)>, String> {
        let (mut left, mut looked_at) = (READ_BYTES_MAX, Vec::new());
        for file in files {
            if stop.load(Ordering::Relaxed) {
                return Err("the call was cancelled".into());
            }
            if lock(&self.before).contains_key(file) {
                continue;
            }
            let contents = contents(file, Look::Reads { bytes_max: left }, stop)?;
            if let Some(Contents::Read { bytes, .. }) = contents {
                left -= bytes.min(left);
            }
            looked_at.push((file.clone(), contents));
        }
        Ok(looked_at)
    }

    /// The first change that was refused.
    pub fn refused(&self) -> Option<String> {
        lock(&self.refused).clone()
    }

    /// What has changed by now. Touches the disk.
    pub fn changes(&self) -> FileChanges {
        let before = lock(&self.before).clone();
        let mut changes = FileChanges::default();
        for (path, before) in before {
            let look = match before {
                Some(Contents::Stamped(..)) => Look::Stamps,
                // What is longer by now is another.
                Some(Contents::Read { bytes, .. }) => Look::Reads { bytes_max: bytes },
                None => Look::Reads { bytes_max: 0 },
            };
            let now = contents(&path, look, &AtomicBool::new(false)).unwrap_or_default();
            match (before, now) {
                (None, Some(_)) => changes.created.push(path),
                (Some(_), None) => changes.deleted.push(path),
                (Some(before), Some(now)) if before != now => changes.modified.push(path),
                _ => {}
            }
        }
        changes
    }
}

/// The file at `path`, whether or not there is one, or all files beneath it. Links are not followed.
fn files_at(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![path.to_path_buf()];
    while let Some(path) = open.pop() {
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                for entry in fs::read_dir(&path)? {
                    open.push(entry?.path());
                }
            }
            _ => files.push(path),
        }
        if files.len() + open.len() > MOVED_FILES_MAX {
            return Err(io::Error::other(format!("has more than {MOVED_FILES_MAX} files")));
        }
    }
    Ok(files)
}

/// `Ok(None)` where there is no file that can be read. An error when it is to stop.
fn contents(path: &Path, look: Look, stop: &AtomicBool) -> Result<Option<Contents>, String> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(None) };
    if found.is_symlink() {
        let Ok(target) = fs::read_link(path) else { return Ok(None) };
        let digest = Sha256::digest(target.as_os_str().as_encoded_bytes()).into();
        return Ok(Some(Contents::Read { bytes: 0, digest }));
    }
    // Opened without waiting: by now it may be a pipe, which would wait for its writer.
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let opened = match found.is_file() {
        true => File::options().read(true).custom_flags(flags).open(path),
        false => return Ok(None),
    };
    let Ok(file) = opened else { return Ok(None) };
    match file.metadata() {
        Ok(found) if found.is_file() => read(file, &found, look, stop),
        _ => Ok(None),
    }
}

fn read(
    file: File,
    found: &fs::Metadata,
    look: Look,
    stop: &AtomicBool,
) -> Result<Option<Contents>, String> {
    let by_stamps = || {
        let what = [found.dev(), found.ino(), found.len()];
        Ok(Some(Contents::Stamped(what, [found.mtime(), found.mtime_nsec()])))
    };
    let bytes_max = match look {
        Look::Reads { bytes_max } if found.len() <= bytes_max => bytes_max,
        _ => return by_stamps(),
    };
    let (mut digest, mut bytes) = (Sha256::new(), 0);
    // One byte more, to see whether it has grown meanwhile.
    let mut rest = file.take(bytes_max + 1);
    let mut piece = vec![0; 64 << 10];
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err("the call was cancelled".into());
        }
        match rest.read(&mut piece) {
            Ok(0) if bytes > bytes_max => return by_stamps(),
            Ok(0) => {
                let digest = digest.finalize().into();
                return Ok(Some(Contents::Read { bytes, digest }));
            }
            Ok(read) => {
                digest.update(&piece[..read]);
                bytes += read as u64;
            }
            Err(_) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn work(ground: &Arc<Ground>, name: &str, follows: &[&str]) -> Arc<Footprint> {
        Footprint::new(ground.clone(), name, follows.iter().map(|name| Arc::from(*name)))
    }

    #[test]
    fn what_was_changed_is_what_differs_in_the_end() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for name in ["same", "other", "gone", "back"] {
            fs::write(at(name), name).unwrap();
        }
        let own = work(&Arc::default(), "a", &[]);
        for name in ["same", "other", "gone", "back", "new", "brief"] {
            own.claim(&at(name), &GO_ON).unwrap();
        }
        fs::write(at("same"), "same").unwrap();
        fs::write(at("other"), "another").unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::write(at("back"), "x").unwrap();
        fs::write(at("back"), "back").unwrap();
        fs::write(at("new"), "new").unwrap();
        let changes = own.changes();
        assert_eq!(changes.created, [at("new")]);
        assert_eq!(changes.modified, [at("other")]);
        assert_eq!(changes.deleted, [at("gone")]);
        assert!(!changes.is_empty());
    }

    #[test]
    fn nobody_changes_what_others_changed_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("f");
        let ground = Arc::default();
        let first = work(&ground, "first", &[]);
        first.claim(&file, &GO_ON).unwrap();
        first.claim(&file, &GO_ON).unwrap();
        let beside = work(&ground, "beside", &[]);
        let refused = beside.claim(&file, &GO_ON).unwrap_err();
        assert!(refused.contains("task first"), "{refused}");
        assert_eq!(beside.refused(), Some(refused));
        assert!(beside.changes().is_empty());
        let after = work(&ground, "after", &["first"]);
        after.claim(&file, &GO_ON).unwrap();
        // It is the later one's now.
        assert!(first.claim(&file, &GO_ON).is_err());
    }

    #[test]
    fn a_directory_is_all_that_lies_in_it() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("d/e")).unwrap();
        fs::write(at("d/e/f"), "f").unwrap();
        let own = work(&Arc::default(), "a", &[]);
        own.claim_move(&at("d"), &at("x"), &GO_ON).unwrap();
        fs::rename(at("d"), at("x")).unwrap();
        let changes = own.changes();
        assert_eq!((changes.created, changes.deleted), (vec![at("x/e/f")], vec![at("d/e/f")]));
    }

    #[test]
    fn no_more_than_10_000_files_are_moved() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("d");
        fs::create_dir(&dir).unwrap();
        for number in 0..MOVED_FILES_MAX {
            File::create(dir.join(number.to_string())).unwrap();
        }
        assert_eq!(files_at(&dir).unwrap().len(), MOVED_FILES_MAX);
        File::create(dir.join("one more")).unwrap();
        let refused = work(&Arc::default(), "a", &[]).claim(&dir, &GO_ON).unwrap_err();
        assert!(refused.contains("more than 10000 files"), "{refused}");
    }

    /// As long as it would take to read it, nobody else could write.
    #[test]
    fn of_a_long_file_length_and_stamps_tell() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for name in ["same", "longer", "just"] {
            let bytes = if name == "just" { READ_BYTES_MAX } else { 1 << 40 };
            File::create(at(name)).unwrap().set_len(bytes).unwrap();
        }
        let own = work(&Arc::default(), "a", &[]);
        for name in ["same", "longer", "just"] {
            own.claim(&at(name), &GO_ON).unwrap();
        }
        let is_read = |name: &str| {
            let before = lock(&own.before);
            matches!(before[&at(name)], Some(Contents::Read { .. }))
        };
        assert_eq!(["same", "longer", "just"].map(is_read), [false, false, true]);
        File::options().write(true).open(at("longer")).unwrap().set_len(2 << 40).unwrap();
        File::options().write(true).open(at("just")).unwrap().set_len(READ_BYTES_MAX + 1).unwrap();
        assert_eq!(own.changes().modified, [at("just"), at("longer")]);
    }

    #[test]
    fn files_of_one_move_are_read_within_one_bound() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("d");
        fs::create_dir(&dir).unwrap();
        for number in 0..3 {
            let file = File::create(dir.join(number.to_string())).unwrap();
            file.set_len(READ_BYTES_MAX / 2).unwrap();
        }
        let own = work(&Arc::default(), "a", &[]);
        own.claim(&dir, &GO_ON).unwrap();
        let before = lock(&own.before);
        let read = before.values().filter(|it| matches!(it, Some(Contents::Read { .. })));
        assert_eq!(read.count(), 2);
    }

    #[test]
    fn whoever_is_to_stop_reads_no_further() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("f");
        fs::write(&file, "f").unwrap();
        let own = work(&Arc::default(), "a", &[]);
        let refused = own.claim(&file, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(refused, "the call was cancelled");
        let look = Look::Reads { bytes_max: 1 };
        assert!(contents(&file, look, &AtomicBool::new(true)).is_err());
    }

    #[test]
    fn whoever_changed_nothing_stands_in_nobodys_way() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let ground = Arc::default();
        let [first, beside] = ["first", "beside"].map(|name| work(&ground, name, &[]));
        // Stopped.
        first.claim(&at("f"), &AtomicBool::new(true)).unwrap_err();
        beside.claim(&at("f"), &GO_ON).unwrap();
        // Refused for where it would go.
        fs::write(at("from"), "x").unwrap();
        first.claim_move(&at("from"), &at("f"), &GO_ON).unwrap_err();
        beside.claim(&at("from"), &GO_ON).unwrap();
        fs::remove_file(at("from")).unwrap();
        assert!(first.changes().is_empty());
    }
}
