//! The conversation on a terminal, seen from its screen. `screen` says how.

mod approvals;
mod deaths;
mod first;
mod floods;
mod lobby;
mod plain;
mod screen;
mod servers;
mod tmux;
mod xterm;
