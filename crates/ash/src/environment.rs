//! What the environment says: where the host listens, who calls, how long to wait.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nexus_signing::SigningKey;

use crate::client::CallError;

const SOCKET: &str = "ASH_RPC_SOCKET";
const TIMEOUT: &str = "ASH_RPC_TIMEOUT";
const USER: &str = "ASH_USER_ID";
const CHAT: &str = "ASH_CHAT_ID";
const TOKEN: &str = "ASH_CONTEXT_TOKEN";
const SIGNING_KEY: &str = "NEXUS3_SIGNING_KEY";
const RUNTIME_DIRECTORY: &str = "XDG_RUNTIME_DIR";

const SOCKET_DEFAULT: &str = "/run/ash/rpc.sock";

/// Below the runtime directory, where a server listens that cannot have the default.
const SOCKET_IN_RUNTIME_DIRECTORY: &str = "ash/rpc.sock";

/// Room for a server that takes a while, and an end to waiting for one that hangs.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// A day: more is a slip of the pen.
const TIMEOUT_SECONDS_MAX: f64 = 86_400.0;

/// What is blank is as good as absent.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Where to look for the socket, in this order.
    pub(crate) sockets: Vec<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) chat: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) signing_key: Option<SigningKey>,
    /// For connecting, for sending and for each message of the answer.
    pub(crate) timeout: Duration,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Result<Self, CallError> {
        Self::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// The environment that `variable` knows.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, CallError> {
        let set = |name| variable(name).filter(|value| !value.trim().is_empty());
        let sockets = match (set(SOCKET), set(RUNTIME_DIRECTORY)) {
            (Some(path), _) => vec![path.into()],
            (None, Some(directory)) => {
                vec![SOCKET_DEFAULT.into(), Path::new(&directory).join(SOCKET_IN_RUNTIME_DIRECTORY)]
            }
            (None, None) => vec![SOCKET_DEFAULT.into()],
        };
        let timeout = set(TIMEOUT).map_or(Ok(TIMEOUT_DEFAULT), |value| seconds(&value))?;
        let token = set(TOKEN).map(|token| token.trim().to_owned());
        let signing_key = set(SIGNING_KEY).map(|key| SigningKey::parse(&key)).transpose();
        let signing_key = signing_key.map_err(|_| CallError::Environment {
            name: SIGNING_KEY,
            expected: "ID:SECRET, or :SECRET for the server's own",
        })?;
        Ok(Self { sockets, user: set(USER), chat: set(CHAT), token, signing_key, timeout })
    }
}

fn seconds(value: &str) -> Result<Duration, CallError> {
    match value.trim().parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= TIMEOUT_SECONDS_MAX => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(CallError::Environment {
            name: TIMEOUT,
            expected: "a number of seconds above 0 and up to 86400",
        }),
    }
}
