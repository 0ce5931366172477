//! What a call would do, and what one did to a file, as a person is shown it.

use serde::{Deserialize, Serialize};

use crate::permission::Grants;

/// Most of a diff that is shown, in bytes. Nobody judges a longer one line by line.
pub const DIFF_BYTES_MAX: usize = 64 << 10;

/// What a call would do, as far as that could be seen when leave was asked for it. It decides nothing: what the call may
/// touch is looked at anew when it is let through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Preview {
    Diff(FileChange),
    Command {
        program: Program,
        cwd: String,
        /// What would hold it within the agent's permissions.
        sandbox: String,
    },
    /// Another agent would be told this.
    Agent {
        target: String,
        content: String,
    },
    /// A file would be written whose text cannot be compared with what is there.
    Write {
        path: String,
        bytes: u64,
    },
}

impl Preview {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Diff(change) => change.path.len() + change.diff.len(),
            Self::Command { program: Program::Argv(words), .. } => {
                words.iter().map(String::len).sum()
            }
            Self::Command { program: Program::Line(text) | Program::Python(text), .. } => {
                text.len()
            }
            Self::Agent { content, .. } => content.len(),
            Self::Write { path, .. } => path.len(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A program and its arguments.
    Argv(Vec<String>),
    /// A line for a shell.
    Line(String),
    Python(String),
}

/// What becomes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Absolute, and without links.
    pub path: String,
    /// The hunks of a unified diff, at most [`DIFF_BYTES_MAX`].
    pub diff: String,
    /// Lines that come, and lines that go, whatever of them `diff` shows.
    pub added: u64,
    pub removed: u64,
    /// `diff` is not all of it.
    pub truncated: bool,
}

/// The one thing that leave for a whole session adds to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Grant {
    Write { path: String },
    Command { tool: String, dir: String },
    Mcp { server: String, tool: String },
}

impl Grant {
    /// `None` where it is several things: to show one of them would hide the others.
    pub(crate) fn only(of: &Grants) -> Option<Self> {
        let writes = of.write_paths.iter().map(|path| Self::Write { path: shown(path) });
        let commands = of.exec_dirs.iter().flat_map(|(tool, dirs)| {
            dirs.iter().map(|dir| Self::Command { tool: tool.clone(), dir: shown(dir) })
        });
        let servers = of.mcp.reach().written().into_iter().flat_map(|(server, tools)| {
            tools.into_iter().map(move |tool| Self::Mcp { server: server.clone(), tool })
        });
        let mut all = writes.chain(commands).chain(servers);
        all.next().filter(|_| all.next().is_none())
    }
}

fn shown(path: &std::path::Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Asks, McpGrants, Origin};

    fn grants(paths: &[&str], dirs: &[&str]) -> Grants {
        let dirs = dirs.iter().map(Into::into).collect();
        Grants {
            write_paths: paths.iter().map(Into::into).collect(),
            exec_dirs: [("exec".into(), dirs)].into(),
            ..Grants::default()
        }
    }

    #[test]
    fn one_thing_is_shown_and_several_are_not() {
        let write = Grant::Write { path: "/a".into() };
        assert_eq!(Grant::only(&grants(&["/a"], &[])), Some(write));
        let command = Grant::Command { tool: "exec".into(), dir: "/a".into() };
        assert_eq!(Grant::only(&grants(&[], &["/a"])), Some(command));
        assert_eq!(Grant::only(&grants(&["/a"], &["/a"])), None);
        assert_eq!(Grant::only(&grants(&["/a", "/b"], &[])), None);
        assert_eq!(Grant::only(&Grants::default()), None);
        let mcp = |tools: &[&str]| {
            let mut mcp = McpGrants::default();
            for tool in tools {
                mcp.extend(McpGrants::one(&Origin {
                    server: "git".into(),
                    tool: (*tool).into(),
                    asks: Asks::Once,
                    pin: "1".into(),
                    defer: crate::mcp::Defer::Auto,
                    quarantined: false,
                }));
            }
            Grant::only(&Grants { mcp, ..Grants::default() })
        };
        let status = Grant::Mcp { server: "git".into(), tool: "status".into() };
        assert_eq!(mcp(&["status"]), Some(status));
        assert_eq!(mcp(&["status", "log"]), None);
    }
}
