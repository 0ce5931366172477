//! The one server of a home that terminals find. Two that are started at once would both look, find nobody, and be two.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nexus_client::{Api as _, NexusClient, Target, token};
use nexus_protocol::params::NoParams;
use nexus_protocol::server::{ServerInfo, ServerInfoResult};
use nexus_protocol::terminal::TerminalHelloResult;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Locked by the server that has the place; in it stands how that one is reached.
const FILE: &str = "terminal.lock";

/// Longest that is read of it.
const BYTES_MAX: u64 = 8 * 1024;

/// How long whoever has the usual port may take to say whether it is a server of this home.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// How long whoever has the place may have said nothing: it has just taken it, or is about to leave it.
const SILENT_MAX: Duration = Duration::from_secs(1);

/// Another server of this home runs or starts; this one is not needed.
#[derive(Debug, thiserror::Error)]
#[error("another server is there already: {0}")]
pub struct AnotherRuns(String);

impl AnotherRuns {
    pub fn at_socket(path: &Path) -> Self {
        Self(format!("it listens on {}", path.display()))
    }
}

/// The place, held until this is dropped or the process ends.
pub struct Place(File);

impl Place {
    pub fn take(home: &Path) -> anyhow::Result<Self> {
        let path = home.join(FILE);
        let open = || -> io::Result<File> {
            DirBuilder::new().recursive(true).mode(0o700).create(home)?;
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32).open(&path)
        };
        let file = open().with_context(|| path.display().to_string())?;
        let silent_until = Instant::now() + SILENT_MAX;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
            let said = said_in(&file);
            if !said.is_empty() {
                return Err(AnotherRuns(said).into());
            }
            if Instant::now() > silent_until {
                return Err(AnotherRuns("it does not say where".into()).into());
            }
            std::thread::sleep(SILENT_MAX / 100);
        }
        let mut place = Self(file);
        place.say(&format!("process {}, which is about to start", std::process::id()));
        Ok(place)
    }

    /// Writes down how this server is reached.
    pub fn tell(&mut self, hello: &TerminalHelloResult) {
        let socket = hello.socket.as_ref().map(|path| format!(", {path}")).unwrap_or_default();
        self.say(&format!("process {}, {}{socket}", hello.pid, hello.url));
    }

    /// For people, and only as good as the disk: the lock is what counts.
    fn say(&mut self, text: &str) {
        let file = &mut self.0;
        let said =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{text}"));
        if let Err(error) = said {
            tracing::warn!(%error, "the place of this server is not written down");
        }
    }
}

/// What stands in the file of the one who has the place.
fn said_in(mut file: &File) -> String {
    let mut said = String::new();
    let _ = file.rewind().and_then(|()| file.take(BYTES_MAX).read_to_string(&mut said));
    said.trim().to_owned()
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.0.set_len(0);
    }
}

/// The server of this home that has the port, if one has.
pub async fn server_of(home: &Path, port: u16) -> Option<AnotherRuns> {
    let builder =
        NexusClient::builder().url(format!("http://127.0.0.1:{port}")).timeout(ANSWER_MAX);
    let token = std::fs::read_to_string(home.join(token::file_name(port)));
    let client = match token {
        Ok(token) => builder.token(token.trim()),
        Err(_) => builder.without_token(),
    };
    let asked = client.build().ok()?.call::<ServerInfo>(&Target::Server, NoParams {}).await;
    let ServerInfoResult { home: theirs, pid, .. } = asked.ok()?;
    let same = |path: &Path| path.canonicalize().ok();
    (same(theirs.as_ref()) == Some(same(home)?))
        .then(|| AnotherRuns(format!("process {pid}, http://127.0.0.1:{port}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_place_and_the_others_are_told_who() {
        let home = tempfile::tempdir().unwrap();
        let refused = || {
            let error = Place::take(home.path()).err().unwrap();
            assert!(error.is::<AnotherRuns>());
            error.to_string()
        };
        let mut place = Place::take(home.path()).unwrap();
        let own = std::process::id();
        assert!(refused().contains(&format!("process {own}, which is about to start")));
        place.tell(&TerminalHelloResult {
            url: "http://127.0.0.1:1".into(),
            port: 1,
            token_file: None,
            socket: Some("/s".into()),
            pid: own,
        });
        assert!(refused().ends_with(&format!("process {own}, http://127.0.0.1:1, /s")));
        drop(place);
        drop(Place::take(home.path()).unwrap());
    }

    #[test]
    fn one_that_is_leaving_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let leaving = Place::take(home.path()).unwrap();
        leaving.0.set_len(0).unwrap();
        let next = std::thread::scope(|both| {
            let next = both.spawn(|| Place::take(home.path()).map(drop));
            drop(leaving);
            next.join().unwrap()
        });
        next.unwrap();
    }

    #[test]
    fn a_link_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("target");
        std::fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, home.path().join(FILE)).unwrap();
        assert!(Place::take(home.path()).is_err());
        assert_eq!(std::fs::read(target).unwrap(), b"kept");
    }
}
