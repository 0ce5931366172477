//! Who may do what to which agent. Decided here for every way in: RPC, the in-process API and an agent's own tools.

use thiserror::Error;

use crate::name::AgentId;

/// On whose behalf an operation runs. The server says who that is, never the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    /// Whoever holds the server token, or runs the server in process.
    Administrator,
    Agent(AgentId),
}

impl Requester {
    /// Refuses agents what is the administrator's alone.
    pub fn administrator_only(&self, what: &'static str) -> Result<(), Denied> {
        match self {
            Self::Administrator => Ok(()),
            Self::Agent(_) => Err(Denied::AdministratorOnly(what)),
        }
    }
}

/// By what hand a request is made. Only a person at the terminal that started the server gives `yolo`: whoever has a
/// token, or may connect, does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hand {
    #[default]
    Program,
    /// At the terminal that started this server, over the channel that the two share.
    Person,
}

impl Hand {
    /// Whether it gives `yolo` when it acts for `requester`. What acts for an agent never does, wherever it came from.
    pub fn gives_yolo(self, requester: &Requester) -> bool {
        self == Self::Person && *requester == Requester::Administrator
    }
}

/// On whose share something is that many ask for: what agents ask for never takes the administrator's places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AskedBy {
    #[default]
    Administrator,
    /// An agent, with its token or by a tool.
    Agent,
}

impl From<&Requester> for AskedBy {
    fn from(requester: &Requester) -> Self {
        match requester {
            Requester::Administrator => Self::Administrator,
            Requester::Agent(_) => Self::Agent,
        }
    }
}

/// What is to be done to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// See its conversation and state.
    Read,
    /// Give it a message.
    Send,
    /// Cancel, compact, mark, end it, or act in its name.
    Manage,
}

/// A refusal that names its rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denied {
    #[error("agent {requester} may not {} agent {target}: {}", verb(*.action), rule(*.action))]
    Action { requester: AgentId, target: AgentId, action: Action },
    #[error("agent {0} may not make agents: its permissions exclude agent management")]
    Create(AgentId),
    #[error(
        "agent {0} may not give a session a new name: its permissions exclude agent management"
    )]
    NewName(AgentId),
    #[error("agent {0} may not load a copy of itself, which would stand beside it")]
    OwnCopy(AgentId),
    #[error(
        "agent {0} may move itself only to where it may already read and, if it writes there, write"
    )]
    OwnDirectory(AgentId),
    #[error("agent {0} may make agents only beneath itself")]
    Parent(AgentId),
    #[error("agent {0} may not change its own permissions")]
    OwnPermissions(AgentId),
    #[error("agent {0} may hand down only such tools of MCP servers as it may use without asking")]
    HandedDown(AgentId),
    #[error("agent {0} may not connect itself to MCP servers")]
    OwnServers(AgentId),
    #[error("only the administrator may {0}")]
    AdministratorOnly(&'static str),
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Read => "read",
        Action::Send => "message",
        Action::Manage => "manage",
    }
}

fn rule(action: Action) -> &'static str {
    match action {
        Action::Read | Action::Manage => {
            "only the agent itself, its ancestors and the administrator may"
        }
        Action::Send => {
            "only the agent itself, its ancestors, its children and the administrator may"
        }
    }
}

/// Decides whether `requester` may do `action` to `target`, whose ancestors are `ancestors`, nearest first.
/// `own_parent` is the requester's parent.
pub fn authorize(
    requester: &Requester,
    action: Action,
    target: &AgentId,
    ancestors: &[AgentId],
    own_parent: Option<&AgentId>,
) -> Result<(), Denied> {
    let Requester::Agent(agent) = requester else { return Ok(()) };
    let above = agent == target || ancestors.contains(agent);
    if above || (action == Action::Send && own_parent == Some(target)) {
        return Ok(());
    }
    Err(Denied::Action { requester: agent.clone(), target: target.clone(), action })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yolo_is_given_by_a_person_for_himself_alone() {
        let agent = Requester::Agent(AgentId::parse("a").unwrap());
        for (hand, requester, expected) in [
            (Hand::Person, &Requester::Administrator, true),
            (Hand::Program, &Requester::Administrator, false),
            (Hand::Person, &agent, false),
            (Hand::Program, &agent, false),
        ] {
            assert_eq!(hand.gives_yolo(requester), expected, "{hand:?} {requester:?}");
        }
        assert_eq!(Hand::default(), Hand::Program);
    }

    #[test]
    fn rights_follow_the_line_of_descent() {
        // root → parent → {child, sibling}
        let id = |name: &str| AgentId::parse(name).unwrap();
        let parent_of = |name: &str| match name {
            "child" | "sibling" => Some("parent"),
            "parent" => Some("root"),
            _ => None,
        };
        let may = |who: &str, action, target: &str| {
            let ancestors: Vec<_> =
                std::iter::successors(parent_of(target), |n| parent_of(n)).map(id).collect();
            let own_parent = parent_of(who).map(id);
            authorize(
                &Requester::Agent(id(who)),
                action,
                &id(target),
                &ancestors,
                own_parent.as_ref(),
            )
            .is_ok()
        };
        for action in [Action::Read, Action::Send, Action::Manage] {
            assert!(may("child", action, "child"));
            assert!(may("parent", action, "child"));
            assert!(may("root", action, "child"));
            assert!(!may("sibling", action, "child"));
            assert!(!may("child", action, "root"));
            assert!(!may("child", action, "stranger"));
        }
        assert!(may("child", Action::Send, "parent"));
        assert!(!may("child", Action::Read, "parent"));
        assert!(!may("child", Action::Manage, "parent"));
    }
}
