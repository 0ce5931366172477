//! MCP servers as the core knows them: which of their tools an agent may use, and how a server stands.

mod entry;
mod grants;
mod own;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use entry::{Auth, Defer, Eligibility, Pins, Program, Remote, Sandbox, ServerEntry, Way};
pub use grants::McpGrants;
pub use own::{OWN_BYTES_MAX, OwnServer, OwnServers};
pub(crate) use own::{keep, keeps_none};
pub use status::{
    Accept, Asks, LoginState, Lookup, Origin, ServerError, ServerSource, ServerState, ServerStatus,
    ServerTool, ToolChange, ToolState,
};

/// Which tools of which servers an agent may use. As with paths, two of these are compared and met, never merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpReach {
    /// Every server there is, and will be.
    Everything,
    /// These servers and no other. Empty: none.
    Named(BTreeMap<String, ServerTools>),
}

/// Which tools of one server. Their names are the server's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerTools {
    All,
    Some(BTreeSet<String>),
}

/// Servers of one configuration, and so the most that can be named: each may be a process.
pub const SERVERS_MAX: usize = 64;

/// Tools of one server.
pub const SERVER_TOOLS_MAX: usize = 2_000;

/// Longest name of a server, so that tools keep most of their 64 characters.
pub const SERVER_NAME_MAX: usize = 24;

/// Longer than any tool's own name that means something.
const TOOL_NAME_BYTES_MAX: usize = 256;

/// What stands for all servers, or all tools of one, where they are named.
pub const ALL: &str = "*";

/// Nothing, so that what was stored before there were servers does not come back wider than it was.
impl Default for McpReach {
    fn default() -> Self {
        Self::nothing()
    }
}

impl McpReach {
    pub fn nothing() -> Self {
        Self::Named(BTreeMap::new())
    }

    /// Reads what people write: tools by server, `*` for all of either.
    pub fn parse(written: BTreeMap<String, Vec<String>>) -> Result<Self, String> {
        if let Some(tools) = written.get(ALL) {
            return match written.len() == 1 && *tools == [ALL] {
                true => Ok(Self::Everything),
                false => Err(format!("{ALL:?} stands alone, as in {{\"*\": [\"*\"]}}")),
            };
        }
        if written.len() > SERVERS_MAX {
            return Err(format!("at most {SERVERS_MAX} servers can be named"));
        }
        let mut named = BTreeMap::new();
        for (server, tools) in written {
            if !is_server_name(&server) {
                return Err(format!("{server:?} is no name of a server: {SERVER_NAME_RULE}"));
            }
            if tools.len() > SERVER_TOOLS_MAX {
                return Err(format!("{server}: at most {SERVER_TOOLS_MAX} tools can be named"));
            }
            if tools.iter().any(|tool| tool.is_empty() || tool.len() > TOOL_NAME_BYTES_MAX) {
                return Err(format!(
                    "{server}: a tool has a name of 1 to {TOOL_NAME_BYTES_MAX} bytes"
                ));
            }
            let all = tools.iter().any(|tool| tool == ALL);
            let tools = match all {
                true => ServerTools::All,
                false => ServerTools::Some(tools.into_iter().collect()),
            };
            if tools != ServerTools::Some(BTreeSet::new()) {
                named.insert(server, tools);
            }
        }
        Ok(Self::Named(named))
    }

    /// As [`parse`](Self::parse) reads it.
    pub fn written(&self) -> BTreeMap<String, Vec<String>> {
        match self {
            Self::Everything => BTreeMap::from([(ALL.into(), vec![ALL.into()])]),
            Self::Named(servers) => {
                let entry = |(server, tools): (&String, &ServerTools)| {
                    let tools = match tools {
                        ServerTools::All => vec![ALL.into()],
                        ServerTools::Some(tools) => tools.iter().cloned().collect(),
                    };
                    (server.clone(), tools)
                };
                servers.iter().map(entry).collect()
            }
        }
    }

    pub fn allows(&self, server: &str, tool: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Named(servers) => match servers.get(server) {
                None => false,
                Some(ServerTools::All) => true,
                Some(ServerTools::Some(tools)) => tools.contains(tool),
            },
        }
    }

    /// Whether any tool of the server could be used.
    pub fn reaches(&self, server: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Named(servers) => servers
                .get(server)
                .is_some_and(|tools| *tools != ServerTools::Some(BTreeSet::new())),
        }
    }

    /// Whether the server is among those that are named, in so many words.
    pub fn names(&self, server: &str) -> bool {
        matches!(self, Self::Named(servers) if servers.contains_key(server))
    }

    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Named(servers) if servers.is_empty())
    }

    /// Whether everything in `self` lies in `other`.
    pub fn within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Everything) => true,
            (Self::Everything, Self::Named(_)) => false,
            (Self::Named(own), other) => own.iter().all(|(server, tools)| match tools {
                ServerTools::All => other.has_all_of(server),
                ServerTools::Some(tools) => tools.iter().all(|tool| other.allows(server, tool)),
            }),
        }
    }

    /// What lies in both.
    pub fn meet(&self, other: &Self) -> Self {
        let (own, theirs) = match (self, other) {
            (Self::Everything, reach) | (reach, Self::Everything) => return reach.clone(),
            (Self::Named(own), Self::Named(theirs)) => (own, theirs),
        };
        let mut met = BTreeMap::new();
        for (server, tools) in own {
            let both = match (tools, theirs.get(server)) {
                (_, None) => continue,
                (ServerTools::All, Some(tools)) | (tools, Some(ServerTools::All)) => tools.clone(),
                (ServerTools::Some(a), Some(ServerTools::Some(b))) => {
                    ServerTools::Some(a.intersection(b).cloned().collect())
                }
            };
            if both != ServerTools::Some(BTreeSet::new()) {
                met.insert(server.clone(), both);
            }
        }
        Self::Named(met)
    }

    fn has_all_of(&self, server: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Named(servers) => servers.get(server) == Some(&ServerTools::All),
        }
    }

    /// About how much memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let text = |text: &String| size_of::<String>() + text.len();
        match self {
            Self::Everything => 0,
            Self::Named(servers) => servers
                .iter()
                .map(|(server, tools)| match tools {
                    ServerTools::All => text(server),
                    ServerTools::Some(tools) => {
                        text(server) + tools.iter().map(text).sum::<usize>()
                    }
                })
                .sum(),
        }
    }
}

/// How a server may be called.
pub const SERVER_NAME_RULE: &str =
    "it has 1 to 24 of the characters a-z, 0-9 and '-', and does not begin with '-'";

/// Without `_`, so that the name of a tool, `mcp_SERVER_TOOL`, has one reading.
pub fn is_server_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=SERVER_NAME_MAX).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('-')
}

/// The name that another spelling stands for: other tools allow capitals, blanks and `_`. `None` where nothing is left.
pub fn server_name(written: &str) -> Option<String> {
    let mapped: String = written
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .collect();
    let mapped = mapped.trim_matches('-');
    is_server_name(mapped).then(|| mapped.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub fn reach() -> impl Strategy<Value = McpReach> {
        let name = || prop::sample::select(vec!["a".to_string(), "b".into(), "c".into()]);
        let tools = prop_oneof![
            Just(ServerTools::All),
            prop::collection::btree_set(name(), 1..3).prop_map(ServerTools::Some),
        ];
        prop_oneof![
            Just(McpReach::Everything),
            prop::collection::btree_map(name(), tools, 0..3).prop_map(McpReach::Named),
        ]
    }

    proptest! {
        #[test]
        fn what_is_in_the_meet_is_in_both(a in reach(), b in reach(), server in "[abc]", tool in "[abc]") {
            let met = a.meet(&b);
            prop_assert!(met.within(&a) && met.within(&b));
            prop_assert_eq!(met.allows(&server, &tool), a.allows(&server, &tool) && b.allows(&server, &tool));
        }

        #[test]
        fn what_is_within_both_is_within_the_meet(a in reach(), b in reach(), c in reach()) {
            if c.within(&a) && c.within(&b) {
                prop_assert!(c.within(&a.meet(&b)));
            }
        }

        #[test]
        fn what_is_written_is_read_back(a in reach()) {
            prop_assert_eq!(McpReach::parse(a.written()), Ok(a));
        }
    }

    #[test]
    fn some_tools_are_not_all_of_them() {
        let named = |tools: &[&str]| {
            let tools = tools.iter().map(|it| it.to_string()).collect();
            McpReach::parse(BTreeMap::from([("git".into(), tools)])).unwrap()
        };
        assert!(named(&["log"]).within(&named(&["log", "diff"])));
        assert!(named(&["log"]).within(&named(&["*"])));
        assert!(!named(&["*"]).within(&named(&["log", "diff"])));
        assert!(!named(&["*"]).within(&McpReach::nothing()));
        assert!(McpReach::nothing().within(&named(&["log"])));
        assert!(!named(&["log"]).allows("other", "log"));
        assert!(named(&[]).is_nothing() && !named(&["log"]).reaches("other"));
    }

    #[test]
    fn names_of_servers_leave_one_reading() {
        for name in ["git", "a", "0", "my-server-2", &"a".repeat(24)] {
            assert!(is_server_name(name), "{name}");
            assert_eq!(server_name(name).as_deref(), Some(name));
        }
        for name in ["", "-a", "a_b", "Git", "a b", "ä", &"a".repeat(25)] {
            assert!(!is_server_name(name), "{name}");
        }
        assert_eq!(server_name("My Server_2").as_deref(), Some("my-server-2"));
        assert_eq!(server_name("___"), None);
        let error = McpReach::parse(BTreeMap::from([("a_b".into(), vec![])])).unwrap_err();
        assert!(error.contains("a_b"), "{error}");
        let error = McpReach::parse(BTreeMap::from([("*".into(), vec!["x".into()])])).unwrap_err();
        assert!(error.contains("stands alone"), "{error}");
    }
}
