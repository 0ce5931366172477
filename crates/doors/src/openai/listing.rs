//! What can be named as a model: agents, presets, and models.

use jiff::Timestamp;
use nexus_protocol::params::NoParams;
use nexus_protocol::permission::ListPresets;
use nexus_protocol::{Api, Target};
use serde_json::{Value, json};

use super::failure::Failure;
use crate::models;

pub const AGENT: &str = "agent:";
pub const NEW: &str = "new:";

/// Everything that this caller can name.
pub async fn all<A: Api>(api: &A, embedder: &str, since: i64) -> Result<Vec<Value>, Failure> {
    let agents = api.list_agents().await?;
    let agents = agents.agents.iter().filter(|agent| !agent.is_temp).map(|agent| {
        let created = agent.created_at.parse::<Timestamp>().map_or(since, |at| at.as_second());
        entry(&format!("{AGENT}{}", agent.agent_id), created, "nexus3")
    });
    let presets = api.call::<ListPresets>(&Target::Server, NoParams {}).await?.presets;
    let presets = presets.iter().map(|it| entry(&format!("{NEW}{}", it.name), since, "nexus3"));
    let models = models::configured(api).await?;
    let models =
        models.iter().flat_map(|model| model.names().map(|id| entry(&id, since, &model.provider)));
    let embedder = entry(embedder, since, "nexus3");
    Ok(agents.chain(presets).chain(models).chain([embedder]).collect())
}

fn entry(id: &str, created: i64, owner: &str) -> Value {
    json!({"id": id, "object": "model", "created": created, "owned_by": owner})
}
