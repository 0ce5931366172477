//! Long results, kept so that a model can read on in them: a file for each, for as long as its agent is there. They lie in
//! the home, which is closed to agents and servers.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use nexus_core::Agent;

use crate::lock;
use crate::seat::is_gone;

/// Of one result; what is longer is cut there.
pub const RESULT_BYTES_MAX: usize = 10 << 20;

/// Of one agent, and of all. What was kept longest goes first.
const AGENT_BYTES_MAX: u64 = 100 << 20;
const ALL_BYTES_MAX: u64 = 1 << 30;

/// How they are called in what models read.
pub const SCHEME: &str = "mcp-result:";

/// What is read at once.
pub const PIECE_BYTES_MAX: usize = 50_000;

pub struct Results {
    dir: PathBuf,
    /// Those whose end is waited for.
    followed: Mutex<BTreeSet<Keeper>>,
    /// One at a time makes room, or two would let go of the same.
    room: Mutex<()>,
}

/// Whose a result is. Another agent of the same name does not find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keeper {
    /// When the agent was made.
    born: Timestamp,
    /// It ends with this process.
    is_temp: bool,
}

/// A piece of a text, and where it lies in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    pub from: u64,
    pub until: u64,
    pub bytes: u64,
}

impl Keeper {
    pub fn of(agent: &Agent) -> Self {
        let snapshot = agent.snapshot();
        Self { born: snapshot.created_at, is_temp: snapshot.id.is_temp() }
    }

    /// The name of its directory.
    fn dir(self) -> String {
        let born = self.born.as_nanosecond();
        if self.is_temp { format!("{born}.{}", std::process::id()) } else { born.to_string() }
    }
}

impl Results {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, followed: Mutex::default(), room: Mutex::default() }
    }

    /// Sees to it that what is kept for an agent goes when the agent ends.
    pub fn follow(self: &Arc<Self>, agent: &Agent) {
        let keeper = Keeper::of(agent);
        if !lock(&self.followed).insert(keeper) {
            return;
        }
        let (this, agent) = (self.clone(), agent.clone());
        tokio::spawn(async move {
            agent.going().cancelled().await;
            lock(&this.followed).remove(&keeper);
            if agent.has_ended() || keeper.is_temp {
                let _ = tokio::task::spawn_blocking(move || this.forget(&keeper.dir())).await;
            }
        });
    }

    /// Keeps a text for an agent, and how it is called from now on. Touches the disk.
    pub fn keep(&self, keeper: Keeper, text: &str) -> io::Result<String> {
        let text = &text[..text.floor_char_boundary(RESULT_BYTES_MAX)];
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        // The oldest come first in the order of their names.
        let id = format!("{:016x}{:08x}", nanoseconds(), u32::from_ne_bytes(random));
        let dir = self.dir.join(keeper.dir());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let place = dir.join(&id);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&place)?;
        // Half of one would be taken for the whole.
        file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(&place)))?;
        self.make_room(&dir)?;
        Ok(format!("{SCHEME}{id}"))
    }

    /// A piece of what is kept for an agent. Touches the disk.
    pub fn read(&self, keeper: Keeper, uri: &str, offset: u64) -> Result<Piece, String> {
        let id = uri.strip_prefix(SCHEME).unwrap_or_default();
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let found = is_id.then(|| File::open(self.dir.join(keeper.dir()).join(id)));
        let Some(Ok(file)) = found else {
            return Err(format!("{uri} is not kept any more: call the tool again"));
        };
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        if offset > bytes {
            return Err(format!("it has only {bytes} bytes"));
        }
        let wanted = (bytes - offset).min(PIECE_BYTES_MAX as u64) as usize;
        let mut piece = vec![0; wanted];
        file.read_exact_at(&mut piece, offset).map_err(|error| error.to_string())?;
        // No letter is cut in two, nor begun in its middle.
        let skipped = piece.iter().take_while(|byte| **byte & 0xc0 == 0x80).count();
        let whole = &piece[skipped..];
        let text = match std::str::from_utf8(whole) {
            Ok(text) => text,
            Err(cut) => std::str::from_utf8(&whole[..cut.valid_up_to()]).unwrap_or_default(),
        };
        let from = offset + skipped as u64;
        Ok(Piece { text: text.into(), from, until: from + text.len() as u64, bytes })
    }

    /// When the agents were made for which something is kept that the store may know. What processes left that are not
    /// there any more goes now. Touches the disk.
    pub fn keepers(&self) -> Vec<Timestamp> {
        let mut born = Vec::new();
        for name in names(&self.dir) {
            match name.split_once('.') {
                Some((_, pid)) if pid.parse().is_ok_and(is_gone) => self.forget(&name),
                Some(_) => {}
                None => born.extend(name.parse().ok().map(Timestamp::from_nanosecond)),
            }
        }
        born.into_iter().flatten().collect()
    }

    /// Removes what is kept for an agent that the store does not know. Touches the disk.
    pub fn forget_stored(&self, born: Timestamp) {
        self.forget(&Keeper { born, is_temp: false }.dir());
    }

    fn forget(&self, dir: &str) {
        if let Err(error) = fs::remove_dir_all(self.dir.join(dir))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "results of an agent that has ended were not removed");
        }
    }

    /// Lets go of what was kept longest, of this agent and of all.
    fn make_room(&self, own: &Path) -> io::Result<()> {
        let _one = lock(&self.room);
        trim(&files(own), AGENT_BYTES_MAX)?;
        let all: Vec<_> =
            names(&self.dir).iter().flat_map(|name| files(&self.dir.join(name))).collect();
        trim(&all, ALL_BYTES_MAX)
    }
}

/// Since 1970.
fn nanoseconds() -> u64 {
    u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or_default()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// With their sizes. Others may remove some meanwhile.
fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let paths = names(dir).into_iter().map(|name| dir.join(name));
    paths.filter_map(|path| Some((path.clone(), fs::metadata(path).ok()?.len()))).collect()
}

/// Removes the oldest of these until the others are no more than this.
fn trim(files: &[(PathBuf, u64)], bytes_max: u64) -> io::Result<()> {
    let mut bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    if bytes <= bytes_max {
        return Ok(());
    }
    let mut oldest: Vec<_> = files.iter().collect();
    oldest.sort_by_key(|(path, _)| path.file_name());
    for (path, size) in oldest {
        if bytes <= bytes_max {
            break;
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => bytes -= size,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(second: i64) -> Keeper {
        Keeper { born: Timestamp::from_second(second).unwrap(), is_temp: false }
    }

    #[test]
    fn a_text_is_read_piece_by_piece_by_its_agent_alone() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::new(dir.path().join("results"));
        let text = format!("{}é{}", "a".repeat(PIECE_BYTES_MAX - 1), "b".repeat(10));
        let uri = results.keep(keeper(1), &text).unwrap();
        let first = results.read(keeper(1), &uri, 0).unwrap();
        let end = PIECE_BYTES_MAX as u64 - 1;
        assert_eq!((first.from, first.until, first.bytes), (0, end, text.len() as u64));
        // As it is after a restart.
        let results = Results::new(dir.path().join("results"));
        let rest = results.read(keeper(1), &uri, end).unwrap();
        assert_eq!((rest.text.as_str(), rest.until), ("ébbbbbbbbbb", text.len() as u64));
        // In the middle of a letter.
        assert_eq!(results.read(keeper(1), &uri, end + 1).unwrap().text, "b".repeat(10));
        assert_eq!(results.read(keeper(1), &uri, text.len() as u64).unwrap().text, "");
        assert!(results.read(keeper(1), &uri, text.len() as u64 + 1).is_err());
        assert!(results.read(keeper(2), &uri, 0).is_err(), "another agent");
        fs::write(dir.path().join("a"), "x").unwrap();
        for wrong in ["mcp-result:", "mcp-result:../../a", "mcp-result:.", "a"] {
            assert!(results.read(keeper(1), wrong, 0).is_err(), "{wrong}");
        }
    }

    #[test]
    fn just_the_longest_is_kept_whole_and_the_oldest_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::new(dir.path().into());
        let bytes = |uri: &str| results.read(keeper(1), uri, 0).map(|piece| piece.bytes);
        let longest = "a".repeat(RESULT_BYTES_MAX);
        let first = results.keep(keeper(1), &longest).unwrap();
        assert_eq!(bytes(&first), Ok(RESULT_BYTES_MAX as u64));
        let longer = results.keep(keeper(1), &format!("{longest}b")).unwrap();
        assert_eq!(bytes(&longer), Ok(RESULT_BYTES_MAX as u64));
        for _ in 0..8 {
            results.keep(keeper(1), &longest).unwrap();
        }
        assert!(bytes(&first).is_ok(), "as much as there is room for");
        results.keep(keeper(2), "b").unwrap();
        assert!(bytes(&first).is_ok(), "another agent's");
        results.keep(keeper(1), "c").unwrap();
        assert!(bytes(&first).is_err() && bytes(&longer).is_ok());
    }

    #[test]
    fn of_all_agents_the_oldest_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let file = |agent: &str, name: &str, bytes: u64| {
            let place = dir.path().join(agent).join(name);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(&place, vec![b'a'; bytes as usize]).unwrap();
            (place, bytes)
        };
        let all = [file("x", "2", 4), file("y", "1", 3), file("z", "3", 3)];
        let left = || all.each_ref().map(|(path, _)| path.exists());
        trim(&all, 10).unwrap();
        assert_eq!(left(), [true; 3]);
        trim(&all, 9).unwrap();
        assert_eq!(left(), [true, false, true]);
    }

    #[test]
    fn what_nobody_has_any_more_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::new(dir.path().into());
        let temporary = Keeper { is_temp: true, ..keeper(3) };
        let kept = results.keep(keeper(1), "a").unwrap();
        let gone = results.keep(keeper(2), "b").unwrap();
        let own = results.keep(temporary, "c").unwrap();
        fs::create_dir(dir.path().join("4000000000.4294967295")).unwrap();
        let mut born = results.keepers();
        born.sort();
        assert_eq!(born, [keeper(1).born, keeper(2).born]);
        results.forget_stored(keeper(2).born);
        assert!(results.read(keeper(1), &kept, 0).is_ok());
        assert!(results.read(keeper(2), &gone, 0).is_err());
        assert!(results.read(temporary, &own, 0).is_ok());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
