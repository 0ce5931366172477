//! How a terminal is started, and how it looks.

use std::path::PathBuf;

use crate::keymap::Keymap;

/// What the command line and the configuration say.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the home of nexus3 is.
    pub home: PathBuf,
    /// The directory that agents of this terminal are given.
    pub cwd: PathBuf,
    /// Whether the command line named it.
    pub has_cwd: bool,
    /// This program, to start servers and guards with.
    pub program: PathBuf,
    /// Unix sockets at which a server of this home is looked for first.
    pub sockets: Vec<PathBuf>,
    /// Ports where one is looked for then.
    pub ports: Vec<u16>,
    /// What a server that this terminal starts is told, after `serve --terminal`.
    pub server_arguments: Vec<String>,
    pub server: ServerChoice,
    pub session: SessionChoice,
    /// For agents that this terminal makes.
    pub model: Option<String>,
    pub preset: Option<String>,
    /// The system prompt of an agent that is made.
    pub system_prompt: Option<String>,
    pub settings: Settings,
}

/// Which server to talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerChoice {
    /// One of this home that runs, else an own one.
    Any,
    /// An own one, whatever runs, on this port or a free one.
    Own { port: Option<u16> },
    /// That one and no other.
    At { url: String, token: Option<String> },
    /// One of those that are found; these ports are looked at, too.
    Found { ports: Vec<u16>, token: Option<String> },
}

/// Which agent to begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChoice {
    /// Let the person choose, where there is something to choose.
    Lobby,
    Fresh {
        is_temporary: bool,
    },
    /// The one that changed last.
    Last,
    Named(String),
}

/// The section `terminal` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub preset: String,
    pub theme: String,
    /// Break prose at words; otherwise that is left to the emulator.
    pub wrap_words: bool,
    pub width_max: usize,
    pub tool_lines: usize,
    pub diff_lines: usize,
    pub reasoning: Reasoning,
    pub motion: bool,
    pub plain: bool,
    pub colours: bool,
    pub bell_approval: bool,
    pub bell_turn: bool,
    pub title: bool,
    pub editor: Option<String>,
    pub pager: Option<String>,
    pub history: bool,
    pub keys: Keymap,
    /// The characters that the locale names, where these are not UTF-8.
    pub charset: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// How long it was thought.
    Time,
    /// What was thought.
    Text,
    Off,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            preset: "trusted".into(),
            theme: "ansi".into(),
            wrap_words: true,
            width_max: 100,
            tool_lines: 6,
            diff_lines: 40,
            reasoning: Reasoning::Time,
            motion: true,
            plain: false,
            colours: true,
            bell_approval: false,
            bell_turn: false,
            title: true,
            editor: None,
            pager: None,
            history: true,
            keys: Keymap::default(),
            charset: None,
        }
    }
}
