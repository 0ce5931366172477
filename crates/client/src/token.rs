//! Finding the token that a server on this machine left for its user.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::PORT_DEFAULT;

/// Names the token, before any file.
pub const API_KEY_VARIABLE: &str = "NEXUS3_API_KEY";
/// Names the directory of the token files, instead of `~/.nexus3`.
pub const HOME_VARIABLE: &str = "NEXUS3_HOME";

/// Largest token file that is read. A token has 47 characters; whatever is longer than this is something else.
const FILE_BYTES_MAX: u64 = 4096;

/// The token for the server on `port`: of the environment, else of the port's own file. The file of another port is no
/// way out: who listens here would be handed the token of the server there. A file that cannot be trusted is passed
/// over with a warning.
pub fn find(environment: &Environment, port: u16) -> Result<Lookup, Error> {
    let token = environment.api_key()?;
    match &environment.home {
        Some(home) if token.is_none() => of_port(home, port),
        _ => Ok(Lookup { token, source: API_KEY_VARIABLE.into(), warnings: Vec::new() }),
    }
}

/// The token in the file of this very port.
pub(crate) fn of_port(home: &Path, port: u16) -> Result<Lookup, Error> {
    let (path, mut warnings) = (home.join(file_name(port)), Vec::new());
    let token = read_file(&path, &mut warnings)?;
    Ok(Lookup { token, source: path.display().to_string(), warnings })
}

/// The name of the file in which the server on `port` keeps its token.
pub fn file_name(port: u16) -> String {
    if port == PORT_DEFAULT { "rpc.token".into() } else { format!("rpc-{port}.token") }
}

/// The part of the process's environment that matters here.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub api_key: Option<OsString>,
    pub home: Option<PathBuf>,
}

/// What was found, and what a person should be told about the search.
#[derive(Debug)]
pub struct Lookup {
    pub token: Option<Token>,
    /// Where the token was found, or was looked for last: a variable or a file.
    pub source: String,
    pub warnings: Vec<String>,
}

/// A secret that fits into an HTTP header. Not shown by `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

#[derive(Debug, thiserror::Error)]
#[error(
    "the token from {source_name} is not usable: a token has visible ASCII characters only, like nxk_7Ks9XmN2p…"
)]
pub struct Error {
    source_name: String,
}

impl Environment {
    pub fn of_process() -> Self {
        let home = std::env::var_os(HOME_VARIABLE)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .or_else(|| {
                let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
                Some(home?.join(".nexus3"))
            });
        Self { api_key: std::env::var_os(API_KEY_VARIABLE), home }
    }

    /// The token of the environment; an empty variable counts as none.
    pub(crate) fn api_key(&self) -> Result<Option<Token>, Error> {
        let Some(value) = &self.api_key else { return Ok(None) };
        Token::read(&value.to_string_lossy(), API_KEY_VARIABLE)
    }
}

impl Token {
    /// The token in `text`, without the white space around it; none when nothing else is there.
    pub(crate) fn read(text: &str, source_name: &str) -> Result<Option<Self>, Error> {
        match text.trim() {
            "" => Ok(None),
            text if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(Self(text.into()))),
            _ => Err(Error { source_name: source_name.into() }),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

fn read_file(path: &Path, warnings: &mut Vec<String>) -> Result<Option<Token>, Error> {
    match read_private(path) {
        Ok(text) => Token::read(&text, &path.display().to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            warnings.push(format!("token file {} skipped: {error}", path.display()));
            Ok(None)
        }
    }
}

/// The file's text, if it is ours and none but us may read it. Owner and mode are those of the opened file, so that no
/// other can be put in its place between the check and the reading.
fn read_private(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("it belongs to another user ({})", found.uid())));
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "others may read it (mode {mode:04o}); make it private with chmod 600"
        )));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Looks up a port among `files` (name, mode, text) and tells what was found.
    fn check(api_key: Option<&str>, files: &[(&str, u32, &str)], port: u16, expected: &str) {
        let home = tempfile::tempdir().unwrap();
        for (name, mode, text) in files {
            let path = home.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
        }
        let environment = Environment {
            api_key: api_key.map(OsString::from),
            home: Some(home.path().to_path_buf()),
        };
        let got = match find(&environment, port) {
            Ok(Lookup { token, warnings, .. }) => {
                let token = token.as_ref().map_or("none", Token::as_str);
                format!("{token} {}", warnings.join("; "))
            }
            Err(error) => error.to_string(),
        };
        let got = got.replace(&home.path().display().to_string(), "~");
        assert_eq!(got.trim(), expected);
    }

    #[test]
    fn order() {
        let files = [("rpc.token", 0o600, "default\n"), ("rpc-9000.token", 0o600, " nine ")];
        check(Some("key"), &files, 9000, "key");
        check(Some(" key\n"), &files, 9000, "key");
        check(Some(""), &files, 9000, "nine");
        check(None, &files, 9000, "nine");
        check(None, &files, 8765, "default");
        check(None, &files, 9001, "none");
        check(None, &[], 9001, "none");
        check(None, &[("rpc-8765.token", 0o600, "misnamed")], 8765, "none");
        check(None, &[("rpc-9000.token", 0o600, "\n"), files[0]], 9000, "none");
    }

    #[test]
    fn a_file_that_others_may_read_is_skipped() {
        for (mode, shown) in [(0o640, "0640"), (0o604, "0604"), (0o660, "0660")] {
            let files = [("rpc-9000.token", mode, "open"), ("rpc.token", 0o600, "default")];
            let warning = format!(
                "none token file ~/rpc-9000.token skipped: others may read it (mode {shown}); make it private with chmod 600"
            );
            check(None, &files, 9000, &warning);
        }
        check(None, &[("rpc.token", 0o400, "read-only")], 8765, "read-only");
    }

    #[test]
    fn a_token_is_visible_ascii() {
        let refusal = |source: &str| {
            format!(
                "the token from {source} is not usable: a token has visible ASCII characters only, like nxk_7Ks9XmN2p…"
            )
        };
        check(Some("schlüssel"), &[], 8765, &refusal("NEXUS3_API_KEY"));
        check(Some("two words"), &[], 8765, &refusal("NEXUS3_API_KEY"));
        check(None, &[("rpc.token", 0o600, "a\nb")], 8765, &refusal("~/rpc.token"));
    }

    #[test]
    fn a_token_is_not_shown() {
        let token = Token::read("nxk_secret", "test").unwrap().unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
