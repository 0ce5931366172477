//! What an agent may do, as one value.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::mcp::{McpGrants, McpReach, Origin};

/// How much an agent is trusted, from least to most. The order is the order of rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Sandboxed,
    Trusted,
    Yolo,
}

/// Deepest nesting of agents: an agent without a parent has depth 0, its child 1. Five levels are more than people
/// use and stop a model that delegates for ever.
pub const DEPTH_MAX: u32 = 5;

/// What an agent may do. Two of these are compared and met, never merged: there is no operation that widens one.
///
/// Where it is kept, no field has a default that allows anything, and an unknown one is refused: what cannot be read whole
/// must not come back wider than it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permissions {
    pub level: Level,
    /// The preset this came from, for people.
    pub preset: String,
    /// Where it may read.
    pub read: Reach,
    /// Where it may write without asking.
    pub write: Reach,
    /// Never readable or writable, whatever `read` and `write` say.
    pub blocked: BTreeSet<PathBuf>,
    /// Tools that are switched off.
    pub disabled_tools: BTreeSet<String>,
    pub network: bool,
    pub commands: bool,
    pub agents: bool,
    /// Which tools of MCP servers it may use. A server's reach is not the agent's, so these are rights of their own.
    #[serde(default)]
    pub mcp: McpReach,
}

/// A set of places in the file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    Anywhere,
    /// These directories (or files) and what lies beneath them. Empty: nowhere.
    Beneath(BTreeSet<PathBuf>),
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandboxed => "sandboxed",
            Self::Trusted => "trusted",
            Self::Yolo => "yolo",
        }
    }

    /// The next lower level.
    pub fn below(self) -> Option<Self> {
        match self {
            Self::Sandboxed => None,
            Self::Trusted => Some(Self::Sandboxed),
            Self::Yolo => Some(Self::Trusted),
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Sandboxed, Self::Trusted, Self::Yolo].into_iter().find(|level| level.name() == name)
    }
}

impl Reach {
    pub fn nowhere() -> Self {
        Self::Beneath(BTreeSet::new())
    }

    /// This and what lies beneath `paths`.
    pub fn with(&self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        match self {
            Self::Anywhere => Self::Anywhere,
            Self::Beneath(roots) => Self::Beneath(roots.iter().cloned().chain(paths).collect()),
        }
    }

    pub fn beneath(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self::Beneath(paths.into_iter().collect())
    }

    /// Whether `path`, absolute and without `..`, lies in this reach.
    pub fn contains(&self, path: &Path) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Beneath(roots) => roots.iter().any(|root| path.starts_with(root)),
        }
    }

    /// What is left of `path` below each of the places that hold it.
    pub fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Path> {
        let (anywhere, roots) = match self {
            Self::Anywhere => (Some(path), None),
            Self::Beneath(roots) => (None, Some(roots)),
        };
        let beneath = roots.into_iter().flatten().filter_map(|root| path.strip_prefix(root).ok());
        anywhere.into_iter().chain(beneath)
    }

    /// Whether everything in `self` lies in `other`.
    pub fn within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Anywhere) => true,
            (Self::Anywhere, Self::Beneath(_)) => false,
            (Self::Beneath(roots), other) => roots.iter().all(|root| other.contains(root)),
        }
    }

    /// What lies in both: of two roots, one beneath the other, the deeper one.
    pub fn meet(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Anywhere, reach) | (reach, Self::Anywhere) => reach.clone(),
            (Self::Beneath(a), Self::Beneath(b)) => {
                let inside_b = a.iter().filter(|root| other.contains(root));
                let inside_a = b.iter().filter(|root| self.contains(root));
                Self::Beneath(inside_b.chain(inside_a).cloned().collect())
            }
        }
    }
}

impl Permissions {
    /// The widest value that is within both. The result keeps `self`'s preset name.
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            level: self.level.min(other.level),
            preset: self.preset.clone(),
            read: self.read.meet(&other.read),
            write: self.write.meet(&other.write),
            blocked: self.blocked.union(&other.blocked).cloned().collect(),
            disabled_tools: self.disabled_tools.union(&other.disabled_tools).cloned().collect(),
            network: self.network && other.network,
            commands: self.commands && other.commands,
            agents: self.agents && other.agents,
            mcp: self.mcp.meet(&other.mcp),
        }
    }

    /// About how much memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let reach = |reach: &Reach| match reach {
            Reach::Anywhere => 0,
            Reach::Beneath(roots) => paths_bytes(roots),
        };
        let tools: usize =
            self.disabled_tools.iter().map(|it| size_of::<String>() + it.len()).sum();
        let paths = reach(&self.read) + reach(&self.write) + paths_bytes(&self.blocked);
        size_of::<Self>() + self.preset.len() + tools + paths + self.mcp.memory_bytes()
    }

    /// The most a child of an agent with these permissions may ever hold: all of it, one level below. `None` when no
    /// level is below.
    pub fn for_child(&self) -> Option<Self> {
        let level = self.level.below()?;
        let trusted = level >= Level::Trusted;
        Some(Self {
            level,
            network: self.network && trusted,
            commands: self.commands && trusted,
            agents: self.agents && trusted,
            ..self.clone()
        })
    }

    /// Whether this value allows nothing that `ceiling` does not; if it does, the first rule that it breaks.
    pub fn within(&self, ceiling: &Self) -> Result<(), Exceeds> {
        let held = |ok: bool, rule: Exceeds| if ok { Ok(()) } else { Err(rule) };
        held(
            self.level <= ceiling.level,
            Exceeds::Level { asked: self.level, ceiling: ceiling.level },
        )?;
        held(self.read.within(&ceiling.read), Exceeds::Read)?;
        held(self.write.within(&ceiling.write), Exceeds::Write)?;
        held(self.blocked.is_superset(&ceiling.blocked), Exceeds::Blocked)?;
        held(self.disabled_tools.is_superset(&ceiling.disabled_tools), Exceeds::Tools)?;
        held(ceiling.network || !self.network, Exceeds::Network)?;
        held(ceiling.commands || !self.commands, Exceeds::Commands)?;
        held(ceiling.agents || !self.agents, Exceeds::Agents)?;
        held(self.mcp.within(&ceiling.mcp), Exceeds::Mcp)
    }
}

/// Additions that somebody with the right to gave an agent while it ran, each inside its ceiling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    pub write_paths: BTreeSet<PathBuf>,
    /// Tools that may run commands without asking, each in these directories.
    pub exec_dirs: BTreeMap<String, BTreeSet<PathBuf>>,
    /// Tools of MCP servers that may be called without asking.
    #[serde(default)]
    pub mcp: McpGrants,
}

impl Grants {
    /// About how much memory they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let commands = self.exec_dirs.iter().map(|(tool, dirs)| tool.len() + paths_bytes(dirs));
        paths_bytes(&self.write_paths) + commands.sum::<usize>() + self.mcp.memory_bytes()
    }

    pub fn extend(&mut self, other: Self) {
        self.write_paths.extend(other.write_paths);
        for (tool, dirs) in other.exec_dirs {
            self.exec_dirs.entry(tool).or_default().extend(dirs);
        }
        self.mcp.extend(other.mcp);
    }

    pub fn allows_command(&self, tool: &str, dir: &Path) -> bool {
        self.exec_dirs
            .get(tool)
            .is_some_and(|dirs| dirs.iter().any(|granted| dir.starts_with(granted)))
    }
}

fn paths_bytes(paths: &BTreeSet<PathBuf>) -> usize {
    paths.iter().map(|path| size_of::<PathBuf>() + path.as_os_str().len()).sum()
}

/// What a tool is for, as it says itself: which permissions it is of no use without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolClass {
    /// Of use to everybody.
    Look,
    /// Changes files, however it is called.
    Write,
    /// Runs commands of any kind.
    Command,
    /// Makes, watches and ends agents.
    Agents,
    /// A tool of an MCP server.
    Mcp,
}

impl ToolClass {
    pub fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Write => "write",
            Self::Command => "command",
            Self::Agents => "agents",
            Self::Mcp => "mcp",
        }
    }
}

impl Permissions {
    /// Whether a call of such a tool could ever be let through. Of those that come from servers, [`offers_of`](Self::offers_of)
    /// says that.
    pub fn offers(&self, tool: &str, class: ToolClass) -> bool {
        let of_use = match class {
            ToolClass::Look => true,
            ToolClass::Mcp => false,
            ToolClass::Write => self.level >= Level::Trusted || self.write != Reach::nowhere(),
            ToolClass::Command => self.commands,
            ToolClass::Agents => self.agents,
        };
        of_use && !self.disabled_tools.contains(tool)
    }

    /// The same of a tool that comes from a server.
    pub fn offers_of(&self, origin: &Origin, tool: &str) -> bool {
        self.mcp.allows(&origin.server, &origin.tool) && !self.disabled_tools.contains(tool)
    }
}

/// Which rule of the ceiling a set of permissions breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Exceeds {
    #[error("level {} is above the ceiling's {}", .asked.name(), .ceiling.name())]
    Level { asked: Level, ceiling: Level },
    #[error("a readable path lies outside the ceiling's")]
    Read,
    #[error("a writable path lies outside the ceiling's")]
    Write,
    #[error("a path the ceiling blocks is not blocked")]
    Blocked,
    #[error("a tool the ceiling disables is enabled")]
    Tools,
    #[error("the ceiling has no network")]
    Network,
    #[error("the ceiling allows no commands")]
    Commands,
    #[error("the ceiling allows no agent management")]
    Agents,
    #[error("a tool of an MCP server lies outside the ceiling's")]
    Mcp,
}

/// A named starting set, before it is applied to a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: String,
    /// The one that it narrows; none for those that are built in.
    pub extends: Option<String>,
    pub level: Level,
    /// Replaces the level's readable paths.
    pub allowed_paths: Option<BTreeSet<PathBuf>>,
    pub blocked_paths: BTreeSet<PathBuf>,
    pub disabled_tools: BTreeSet<String>,
    /// Every tool that changes files is disabled.
    pub writes_nothing: bool,
    /// Replaces what the level has of MCP servers: none when sandboxed, all otherwise.
    pub mcp: Option<McpReach>,
}

impl Preset {
    /// The preset a name means without any configuration.
    pub fn built_in(name: &str) -> Option<Self> {
        let level = match name {
            "yolo" => Level::Yolo,
            "trusted" => Level::Trusted,
            "sandboxed" | "worker" => Level::Sandboxed,
            _ => return None,
        };
        Some(Self {
            name: name.into(),
            extends: None,
            level,
            allowed_paths: None,
            blocked_paths: BTreeSet::new(),
            disabled_tools: BTreeSet::new(),
            writes_nothing: name == "worker",
            mcp: None,
        })
    }

    /// Replaces paths by where they really lie, as far as they exist. A blocked path stays blocked as it is written
    /// too. Touches the disk.
    pub fn resolve_links(&mut self) {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        self.allowed_paths =
            self.allowed_paths.take().map(|paths| paths.iter().map(real).collect());
        self.blocked_paths =
            self.blocked_paths.iter().flat_map(|path| [real(path), path.clone()]).collect();
    }

    /// The permissions this preset gives an agent that works in `cwd` and was given `write_paths`.
    pub fn apply(&self, cwd: &Path, write_paths: &[PathBuf]) -> Permissions {
        let trusted = self.level >= Level::Trusted;
        let read = match (&self.allowed_paths, trusted) {
            (Some(paths), _) => Reach::Beneath(paths.clone()),
            (None, true) => Reach::Anywhere,
            (None, false) => Reach::beneath([cwd.to_path_buf()]),
        };
        let write = match self.level {
            Level::Yolo => Reach::Anywhere,
            Level::Trusted => {
                Reach::beneath(write_paths.iter().cloned().chain([cwd.to_path_buf()]))
            }
            Level::Sandboxed => Reach::beneath(write_paths.iter().cloned()),
        };
        Permissions {
            level: self.level,
            preset: self.name.clone(),
            read,
            write,
            blocked: self.blocked_paths.clone(),
            disabled_tools: self.disabled_tools.clone(),
            network: trusted,
            commands: trusted,
            agents: trusted,
            mcp: match (&self.mcp, trusted) {
                (Some(named), _) => named.clone(),
                (None, true) => McpReach::Everything,
                (None, false) => McpReach::nothing(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reach() -> impl Strategy<Value = Reach> {
        let path = prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..4)
            .prop_map(|parts| parts.iter().fold(PathBuf::from("/"), |path, part| path.join(part)));
        prop_oneof![
            Just(Reach::Anywhere),
            prop::collection::btree_set(path, 0..4).prop_map(Reach::Beneath),
        ]
    }

    fn permissions() -> impl Strategy<Value = Permissions> {
        let level = prop::sample::select(vec![Level::Sandboxed, Level::Trusted, Level::Yolo]);
        let tools = prop::collection::btree_set(
            prop::sample::select(vec!["x".to_string(), "y".into()]),
            0..2,
        );
        let blocked = prop::collection::btree_set(
            prop::sample::select(vec![PathBuf::from("/e"), "/p".into()]),
            0..2,
        );
        (level, reach(), reach(), blocked, tools, any::<[bool; 3]>(), mcp()).prop_map(
            |(level, read, write, blocked, disabled_tools, [network, commands, agents], mcp)| {
                Permissions {
                    level,
                    preset: "p".into(),
                    read,
                    write,
                    blocked,
                    disabled_tools,
                    network,
                    commands,
                    agents,
                    mcp,
                }
            },
        )
    }

    fn mcp() -> impl Strategy<Value = McpReach> {
        let tools =
            prop::collection::vec(prop::sample::select(vec!["*".to_string(), "t".into()]), 0..2);
        let server = prop::sample::select(vec!["a".to_string(), "b".into()]);
        let named = prop::collection::btree_map(server, tools, 0..2);
        prop_oneof![
            Just(McpReach::Everything),
            named.prop_map(|named| McpReach::parse(named).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn the_meet_is_within_both_sides(a in permissions(), b in permissions()) {
            let met = a.meet(&b);
            prop_assert_eq!(met.within(&a), Ok(()));
            prop_assert_eq!(met.within(&b), Ok(()));
        }

        #[test]
        fn what_is_within_both_sides_is_within_the_meet(a in permissions(), b in permissions(), c in permissions()) {
            if c.within(&a).is_ok() && c.within(&b).is_ok() {
                prop_assert_eq!(c.within(&a.meet(&b)), Ok(()));
            }
        }

        #[test]
        fn a_path_in_the_meet_is_in_both_reaches(a in reach(), b in reach(), probe in "(/[abc]){1,5}") {
            let probe = Path::new(&probe);
            prop_assert_eq!(a.meet(&b).contains(probe), a.contains(probe) && b.contains(probe));
        }
    }

    #[test]
    fn a_sibling_directory_with_the_same_start_is_outside() {
        let reach = Reach::beneath([PathBuf::from("/srv/app")]);
        assert!(reach.contains(Path::new("/srv/app/x")));
        assert!(!reach.contains(Path::new("/srv/apple")));
    }

    #[test]
    fn a_sandboxed_agent_reads_its_directory_and_writes_nowhere() {
        let preset = Preset::built_in("sandboxed").unwrap();
        let permissions = preset.apply(Path::new("/w"), &[]);
        assert_eq!(permissions.read, Reach::beneath([PathBuf::from("/w")]));
        assert_eq!(permissions.write, Reach::nowhere());
        assert!(!permissions.network && !permissions.commands && !permissions.agents);
        assert!(permissions.mcp.is_nothing());
    }
}
