//! The process that puts the terminal in order when this one is killed.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The hidden argument under which the program is a guard.
const ARGUMENT: &str = "__guard";

/// It looks at the other end of a pair of sockets: an end without a word means that this process was killed.
pub struct Guard {
    word: UnixStream,
    child: Child,
}

impl Guard {
    pub fn start(program: &Path) -> io::Result<Self> {
        let (word, theirs) = UnixStream::pair()?;
        let child = Command::new(program)
            .arg(ARGUMENT)
            .stdin(Stdio::inherit())
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { word, child })
    }

    /// All is in order.
    pub fn dismiss(mut self) {
        let _ = self.word.write_all(b".");
        let _ = self.child.wait();
    }
}
