//! Agents that the first message makes.

use std::path::Path;

use nexus_client::{Api as _, CallError, Target};
use nexus_protocol::agent::{CreateAgent, CreateAgentParams};

use crate::link::Link;

/// Makes the agent under the name it was to have, or the first of `name-2`, `name-3`, … that is free.
pub(super) async fn create(
    link: &Link,
    params: CreateAgentParams,
    taken: Vec<String>,
) -> Result<String, CallError> {
    let wanted = params.agent_id.clone().unwrap_or_default();
    if wanted.starts_with('.') {
        return Ok(link.call::<CreateAgent>(&Target::Server, params).await?.agent_id);
    }
    let mut number = 1_u32;
    loop {
        let name = if number == 1 { wanted.clone() } else { format!("{wanted}-{number}") };
        number += 1;
        if taken.contains(&name) {
            continue;
        }
        let params = CreateAgentParams { agent_id: Some(name), ..again(&params) };
        match link.call::<CreateAgent>(&Target::Server, params).await {
            Ok(made) => return Ok(made.agent_id),
            // Somebody else's, or a saved session's.
            Err(CallError::Rpc(error)) if error.message.contains("exists") && number < 1_000 => {}
            Err(error) => return Err(error),
        }
    }
}

fn again(params: &CreateAgentParams) -> CreateAgentParams {
    CreateAgentParams {
        preset: params.preset.clone(),
        cwd: params.cwd.clone(),
        model: params.model.clone(),
        system_prompt: params.system_prompt.clone(),
        ..Default::default()
    }
}

/// The directory's name, as far as it can be an agent's.
pub(super) fn agent_name(cwd: &Path) -> String {
    let name = cwd.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let kept: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' })
        .take(40)
        .collect();
    match kept.trim_matches('-') {
        "" => "main".into(),
        name => name.into(),
    }
}
