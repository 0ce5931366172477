//! Long results, kept so that a model can read on in them: in files without a name, which end with this process.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;

use crate::lock;

/// Of one result; what is longer is cut there.
pub const RESULT_BYTES_MAX: usize = 10 << 20;

/// Of one agent, and of all. What was kept longest goes first.
const AGENT_BYTES_MAX: u64 = 100 << 20;
const ALL_BYTES_MAX: u64 = 1 << 30;

/// Each is an open file, of which a process has not many.
const COUNT_MAX: usize = 256;

/// How they are called in what models read.
pub const SCHEME: &str = "mcp-result:";

/// What is read at once.
pub const PIECE_BYTES_MAX: usize = 50_000;

pub struct Results {
    dir: PathBuf,
    kept: Mutex<VecDeque<Kept>>,
}

struct Kept {
    id: String,
    /// When its agent was made: another of that name does not find it.
    born: Timestamp,
    file: Arc<File>,
    bytes: u64,
}

/// A piece of a text, and where it lies in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    pub from: u64,
    pub until: u64,
    pub bytes: u64,
}

impl Results {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, kept: Mutex::default() }
    }

    /// Keeps a text for an agent, and how it is called from now on. Touches the disk.
    pub fn keep(&self, born: Timestamp, text: &str) -> io::Result<String> {
        let text = &text[..text.floor_char_boundary(RESULT_BYTES_MAX)];
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let id = random.iter().fold(String::new(), |id, byte| format!("{id}{byte:02x}"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let place = self.dir.join(&id);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(&place)?;
        // From here on it goes with whoever has it open.
        fs::remove_file(&place)?;
        file.write_all(text.as_bytes())?;
        let kept = Kept { id: id.clone(), born, file: Arc::new(file), bytes: text.len() as u64 };
        let mut all = lock(&self.kept);
        all.push_back(kept);
        make_room(&mut all, born);
        Ok(format!("{SCHEME}{id}"))
    }

    /// A piece of what is kept for an agent. Touches the disk.
    pub fn read(&self, born: Timestamp, uri: &str, offset: u64) -> Result<Piece, String> {
        let id = uri.strip_prefix(SCHEME).unwrap_or_default();
        let found = lock(&self.kept)
            .iter()
            .find(|it| it.id == id && it.born == born)
            .map(|it| (it.file.clone(), it.bytes));
        let Some((file, bytes)) = found else {
            return Err(format!("{uri} is not kept any more: call the tool again"));
        };
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
}

/// Lets go of what was kept longest, of this agent and of all.
fn make_room(all: &mut VecDeque<Kept>, born: Timestamp) {
    let sum = |all: &VecDeque<Kept>, of: Option<Timestamp>| -> u64 {
        all.iter().filter(|it| of.is_none_or(|born| it.born == born)).map(|it| it.bytes).sum()
    };
    while sum(all, Some(born)) > AGENT_BYTES_MAX {
        let Some(oldest) = all.iter().position(|it| it.born == born) else { break };
        all.remove(oldest);
    }
    while sum(all, None) > ALL_BYTES_MAX || all.len() > COUNT_MAX {
        all.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn born(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_text_is_read_piece_by_piece_by_its_agent_alone() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::new(dir.path().join("results"));
        let text = format!("{}é{}", "a".repeat(PIECE_BYTES_MAX - 1), "b".repeat(10));
        let uri = results.keep(born(1), &text).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("results")).unwrap().count(), 0);
        let first = results.read(born(1), &uri, 0).unwrap();
        let end = PIECE_BYTES_MAX as u64 - 1;
        assert_eq!((first.from, first.until, first.bytes), (0, end, text.len() as u64));
        let rest = results.read(born(1), &uri, end).unwrap();
        assert_eq!((rest.text.as_str(), rest.until), ("ébbbbbbbbbb", text.len() as u64));
        // In the middle of a letter.
        assert_eq!(results.read(born(1), &uri, end + 1).unwrap().text, "b".repeat(10));
        assert_eq!(results.read(born(1), &uri, text.len() as u64).unwrap().text, "");
        assert!(results.read(born(1), &uri, text.len() as u64 + 1).is_err());
        assert!(results.read(born(2), &uri, 0).is_err(), "another agent");
        assert!(results.read(born(1), "mcp-result:", 0).is_err());
    }

    #[test]
    fn just_the_longest_is_kept_whole_and_the_oldest_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::new(dir.path().into());
        let bytes = |uri: &str| results.read(born(1), uri, 0).map(|piece| piece.bytes);
        let longest = "a".repeat(RESULT_BYTES_MAX);
        let first = results.keep(born(1), &longest).unwrap();
        assert_eq!(bytes(&first), Ok(RESULT_BYTES_MAX as u64));
        let longer = results.keep(born(1), &format!("{longest}b")).unwrap();
        assert_eq!(bytes(&longer), Ok(RESULT_BYTES_MAX as u64));
        for _ in 0..8 {
            results.keep(born(1), &longest).unwrap();
        }
        assert!(bytes(&first).is_ok(), "as much as there is room for");
        results.keep(born(2), "b").unwrap();
        assert!(bytes(&first).is_ok(), "another agent's");
        results.keep(born(1), "c").unwrap();
        assert!(bytes(&first).is_err() && bytes(&longer).is_ok());
    }

    #[test]
    fn no_more_files_are_open_than_there_is_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::new(dir.path().into());
        let first = results.keep(born(1), "a").unwrap();
        let second = results.keep(born(2), "b").unwrap();
        for _ in 2..COUNT_MAX {
            results.keep(born(3), "c").unwrap();
        }
        assert!(results.read(born(1), &first, 0).is_ok());
        results.keep(born(3), "c").unwrap();
        assert!(results.read(born(1), &first, 0).is_err());
        assert!(results.read(born(2), &second, 0).is_ok());
    }
}
