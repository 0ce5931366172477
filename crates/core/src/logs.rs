//! The readable log of each agent.

use crate::message::SharedMessage;
use crate::name::AgentId;

/// Where what agents say is written down for people. Never slow and never failing for the caller: a log that cannot
/// be written must not stop a turn.
///
/// Provider traffic reaches the same place another way: providers emit tracing events with the target
/// [`RAW_TARGET`], and the turn's span (named [`TURN_SPAN`], with the field `agent_id`) says whose they are.
pub trait AgentLogs: Send + Sync {
    fn messages(&self, agent: &AgentId, messages: &[SharedMessage]);

    /// An agent has another name from here on; its log goes with it.
    fn renamed(&self, from: &AgentId, to: &AgentId);
}

/// For who wants no log.
impl AgentLogs for () {
    fn messages(&self, _: &AgentId, _: &[SharedMessage]) {}

    fn renamed(&self, _: &AgentId, _: &AgentId) {}
}

/// The span around everything a turn does. Says whose the provider traffic inside it is.
pub(crate) fn turn_span(agent: &AgentId) -> tracing::Span {
    tracing::info_span!(target: "nexus3::turn", "turn", agent_id = agent.as_str())
}

/// Name of the tracing span around everything a turn does.
pub const TURN_SPAN: &str = "turn";

/// Target of the events that carry raw provider traffic: fields `kind` (`request`, `response` or `chunk`),
/// `endpoint`, `status` and `body`.
pub const RAW_TARGET: &str = "nexus3::provider::raw";
