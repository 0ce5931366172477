//! The conversation on a terminal, seen from its screen. `screen` says how.

mod agents;
mod approvals;
mod deaths;
mod first;
mod floods;
mod lobby;
mod outside;
mod plain;
mod screen;
mod servers;
mod tmux;
mod xterm;
