//! What goes with an agent that ends: those beneath it, and the turns they run.

use nexus_protocol::agent::AgentEntry;

use crate::figures::counted;

/// An agent's descendants, nearest first.
pub fn descendants<'a>(agents: &'a [AgentEntry], name: &str) -> Vec<&'a AgentEntry> {
    let mut found = children(agents, name);
    let mut next = 0;
    while let Some(agent) = found.get(next).copied() {
        let mut new = children(agents, &agent.agent_id);
        // A server that named them in a circle must not keep us here.
        new.retain(|child| found.iter().all(|it| it.agent_id != child.agent_id));
        found.extend(new);
        next += 1;
    }
    found
}

fn children<'a>(agents: &'a [AgentEntry], name: &str) -> Vec<&'a AgentEntry> {
    agents.iter().filter(|agent| agent.parent_agent_id.as_deref() == Some(name)).collect()
}

/// What a person has to know before this agent ends: `with a, b (2 turns run)`. `None` when nothing else goes.
pub fn consequences(agents: &[AgentEntry], agent: &AgentEntry) -> Option<String> {
    let with = descendants(agents, &agent.agent_id);
    let is_busy = |agent: &&AgentEntry| agent.running_request_id.is_some();
    let running = with.iter().copied().chain([agent]).filter(is_busy).count() as u64;
    let names: Vec<_> = with.iter().map(|agent| agent.agent_id.as_str()).collect();
    let verb = if running == 1 { "runs" } else { "run" };
    let turns = format!("({} {verb})", counted(running, "turn"));
    match (names.is_empty(), running) {
        (true, 0) => None,
        (true, _) => Some(turns),
        (false, 0) => Some(format!("with {}", names.join(", "))),
        (false, _) => Some(format!("with {} {turns}", names.join(", "))),
    }
}
