//! Tools of MCP servers that somebody let an agent call without asking.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{McpReach, Origin, ServerTools};

/// By server and tool, each as it was when somebody allowed it: a tool that says something else of itself is another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct McpGrants(BTreeMap<String, BTreeMap<String, String>>);

impl McpGrants {
    /// This tool, as it is.
    pub fn one(origin: &Origin) -> Self {
        let tool = BTreeMap::from([(origin.tool.clone(), origin.pin.clone())]);
        Self(BTreeMap::from([(origin.server.clone(), tool)]))
    }

    pub fn allows(&self, origin: &Origin) -> bool {
        let tools = self.0.get(&origin.server);
        tools.and_then(|tools| tools.get(&origin.tool)).is_some_and(|pin| *pin == origin.pin)
    }

    /// Whether any tool of the server is among them.
    pub fn names(&self, server: &str) -> bool {
        self.0.contains_key(server)
    }

    pub fn extend(&mut self, other: Self) {
        for (server, tools) in other.0 {
            self.0.entry(server).or_default().extend(tools);
        }
    }

    /// The tools that were granted, whatever became of them since.
    pub fn reach(&self) -> McpReach {
        let some =
            |tools: &BTreeMap<String, String>| ServerTools::Some(tools.keys().cloned().collect());
        let servers = self.0.iter();
        McpReach::Named(servers.map(|(server, tools)| (server.clone(), some(tools))).collect())
    }

    /// About how much memory they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let text = |text: &String| size_of::<String>() + text.len();
        let tools = |tools: &BTreeMap<String, String>| -> usize {
            tools.iter().map(|(tool, pin)| text(tool) + text(pin)).sum()
        };
        self.0.iter().map(|(server, granted)| text(server) + tools(granted)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Asks;

    #[test]
    fn a_grant_holds_for_the_tool_as_it_was() {
        let origin = |tool: &str, pin: &str| Origin {
            server: "s".into(),
            tool: tool.into(),
            asks: Asks::Once,
            pin: pin.into(),
            defer: crate::mcp::Defer::Auto,
            quarantined: false,
        };
        let mut grants = McpGrants::one(&origin("a", "1"));
        grants.extend(McpGrants::one(&origin("b", "2")));
        assert!(grants.allows(&origin("a", "1")) && grants.allows(&origin("b", "2")));
        assert!(!grants.allows(&origin("a", "2")) && !grants.allows(&origin("c", "1")));
        grants.extend(McpGrants::one(&origin("a", "3")));
        assert!(grants.allows(&origin("a", "3")) && !grants.allows(&origin("a", "1")));
        assert_eq!(
            grants.reach().written(),
            [("s".to_string(), vec!["a".into(), "b".into()])].into()
        );
    }
}
