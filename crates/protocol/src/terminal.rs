//! What only the terminal asks that started the server, over the channel that the two share. Everywhere else there are no
//! such methods, and they stand in no list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method;
use crate::params::NoParams;

method! {
    /// How this server is reached by others.
    TerminalHello = "terminal.hello", Server Read, NoParams => TerminalHelloResult
}

method! {
    /// Lets the server run on when the terminal is gone.
    TerminalStay = "terminal.stay", Server Control, NoParams => TerminalDone
}

method! {
    /// The terminal leaves. The server stops when nobody else watches and no turn runs.
    TerminalLeave = "terminal.leave", Server Control, TerminalLeaveParams => TerminalDone
}

/// How a server that a terminal started ends when another one of its home runs already, as the shell's `EX_TEMPFAIL`:
/// the terminal is to attach to that one.
pub const ANOTHER_RUNS: u8 = 75;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TerminalHelloResult {
    pub url: String,
    pub port: u16,
    /// Null where no token is needed.
    pub token_file: Option<String>,
    /// Null where there is none.
    pub socket: Option<String>,
    pub pid: u32,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalLeaveParams {
    /// What becomes of turns that run or wait.
    pub turns: LeftTurns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeftTurns {
    Finish,
    Cancel,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TerminalDone {}
