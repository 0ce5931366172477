//! Lists of tools on disk, so that agents see the tools of servers that do not run. A file for each server in the home,
//! which is closed to agents and servers.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nexus_core::mcp::ServerEntry;
use serde::{Deserialize, Serialize};

use crate::listing::{About, Listing, Said};
use crate::pins::Pinned;

/// Of one file. What is longer was not written here.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Kept<T> {
    /// Of what was started.
    digest: String,
    /// As it listed them last.
    tools: T,
    /// As they were when somebody agreed to them.
    pinned: T,
    #[serde(flatten)]
    about: About,
}

/// The tools that the server had when it ran last, if it is the same server still. Touches the disk.
pub fn read(home: &Path, entry: &ServerEntry) -> Option<Listing> {
    let file = place(home, entry);
    if fs::metadata(&file).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    let kept: Kept<Vec<Said>> = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
    let listing =
        || Listing::new(entry, kept.tools, Some(Pinned::new(kept.pinned))).with(kept.about);
    (kept.digest == entry.digest()).then(listing)
}

/// Keeps them. Touches the disk.
pub fn write(home: &Path, entry: &ServerEntry, listing: &Listing) -> io::Result<()> {
    let tools: Vec<&Said> = listing.said.iter().collect();
    let kept = Kept {
        digest: entry.digest(),
        tools,
        pinned: listing.pinned.tools(),
        about: listing.about.clone(),
    };
    replace(&place(home, entry), &serde_json::to_vec(&kept)?)
}

/// Puts a file that only we read in the place of what was there, as a whole. Touches the disk.
pub fn replace(file: &Path, contents: &[u8]) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    // Another process of this home may write the same, and so may a like server of another agent in this one.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let new = file.with_extension(format!("{}-{number}.new", std::process::id()));
    let write = || {
        let mut options = OpenOptions::new();
        let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        written.write_all(contents)?;
        written.sync_all()?;
        fs::rename(&new, file)
    };
    // On a full disk half a file would be in the way of the next, and it may be half a secret.
    write().inspect_err(|_| drop(fs::remove_file(&new)))
}

fn place(home: &Path, entry: &ServerEntry) -> PathBuf {
    // Those of one name that are in no configuration may be anything: each has its own.
    let name = match entry.is_own() {
        true => format!("{}@{}.json", entry.name, entry.digest()),
        false => format!("{}.json", entry.name),
    };
    home.join("mcp").join("lists").join(name)
}

#[cfg(test)]
mod tests {
    use nexus_core::mcp::{Remote, Way};

    use super::*;
    use crate::server::tests::entry;

    #[test]
    fn what_is_put_at_one_place_by_several_is_whole() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("lists").join("s.json");
        let contents = |who: u8| vec![who; 20_000];
        std::thread::scope(|scope| {
            for who in 0..4 {
                let (file, contents) = (&file, contents(who));
                scope.spawn(move || (0..20).for_each(|_| replace(file, &contents).unwrap()));
            }
        });
        let left = fs::read(&file).unwrap();
        assert!((0..4).any(|who| left == contents(who)));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_list_holds_for_the_server_that_gave_it() {
        let home = tempfile::tempdir().unwrap();
        let entry = entry("s");
        assert!(read(home.path(), &entry).is_none());
        let said = Said {
            name: "a".into(),
            title: None,
            description: "d".into(),
            input_schema: Default::default(),
            output_schema: None,
            annotations: None,
        };
        write(home.path(), &entry, &Listing::new(&entry, vec![said.clone()], None)).unwrap();
        let found = read(home.path(), &entry).unwrap();
        assert_eq!((&found.said[..], found.pinned), (&[said.clone()][..], Pinned::new([said])));
        let mut other = entry.clone();
        other.way = Way::Remote(Remote {
            url: "https://example.com/mcp".into(),
            headers: Default::default(),
            private: false,
            auth: Default::default(),
        });
        assert!(read(home.path(), &other).is_none());
        fs::write(place(home.path(), &entry), "{").unwrap();
        assert!(read(home.path(), &entry).is_none());
    }

    #[test]
    fn what_could_not_be_written_leaves_nothing_behind() {
        let home = tempfile::tempdir().unwrap();
        // A directory is in its place.
        let file = home.path().join("a.json");
        fs::create_dir(&file).unwrap();
        assert!(replace(&file, b"{}").is_err());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
