//! An agent's directory, prompt and model, and the short account of all agents.

use nexus_core::authority::Action;
use nexus_core::lifecycle::{Card, ListQuery};
use nexus_protocol::RpcError;
use nexus_protocol::params::NoParams;
use nexus_protocol::settings::{
    AgentSummary, GetAgentSummaries, GetAgentSummariesParams, GetAgentSummariesResult, GetModel,
    GetModelResult, GetSystemPrompt, GetSystemPromptResult, SetCwd, SetCwdParams, SetCwdResult,
    SetModel, SetModelParams, SetModelResult, SetSystemPrompt, SetSystemPromptParams,
    SetSystemPromptResult, SummaryTokens,
};

use super::usage::{reasoning, reasoning_entry, totals};
use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;

pub fn register(table: &mut Table) {
    table.on::<GetAgentSummaries, _, _>(summaries);
    table.on::<SetCwd, _, _>(set_cwd);
    table.on::<GetSystemPrompt, _, _>(get_system_prompt);
    table.on::<SetSystemPrompt, _, _>(set_system_prompt);
    table.on::<GetModel, _, _>(get_model);
    table.on::<SetModel, _, _>(set_model);
}

async fn summaries(
    cx: Cx,
    params: GetAgentSummariesParams,
) -> Result<GetAgentSummariesResult, RpcError> {
    let engine = &cx.services().engine;
    let default_model = engine.models.resolve(None).ok().map(|model| model.alias.clone());
    let mut agents = Vec::new();
    let page = engine.agents.list(&cx.caller.requester, ListQuery::default()).await;
    for card in page.map_err(wire)?.cards {
        let tokens = match params.include_tokens {
            Some(true) => tokens(&cx, &card).await?,
            _ => None,
        };
        let record = card.record;
        agents.push(AgentSummary {
            agent_id: record.id.to_string(),
            message_count: record.message_count,
            cwd: record.settings.cwd.display().to_string(),
            permission_level: record.settings.permissions.level.name().into(),
            model: record.settings.model.or_else(|| default_model.clone()),
            halted_at_iteration_limit: record.progress.halted_at_iteration_limit,
            last_action_at: record.last_action_at.map(|at| at.to_string()),
            usage: totals(&record.bill),
            tokens,
        });
    }
    Ok(GetAgentSummariesResult { agents })
}

/// Counting would have to read the conversation of an agent that is not in memory.
async fn tokens(cx: &Cx, card: &Card) -> Result<Option<SummaryTokens>, RpcError> {
    let engine = &cx.services().engine;
    let Some(agent) = engine.agents.live(&card.record.id) else { return Ok(None) };
    let count = engine.compactor.count(&agent.snapshot()).await.map_err(wire)?;
    Ok(Some(SummaryTokens { total: count.total(), budget: count.budget }))
}

async fn set_cwd(cx: Cx, params: SetCwdParams) -> Result<SetCwdResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let tuning = &cx.services().engine.tuning;
    let SetCwdParams { cwd, additional_directories } = params;
    let cwd = tuning.set_cwd(&cx.caller.requester, &agent, cwd, additional_directories).await;
    let cwd = cwd.map_err(wire)?;
    Ok(SetCwdResult { cwd: cwd.display().to_string() })
}

async fn get_system_prompt(cx: Cx, _: NoParams) -> Result<GetSystemPromptResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let prompt = cx.services().engine.tuning.system_prompt(&agent).await;
    Ok(GetSystemPromptResult {
        system_prompt: prompt.text.to_string(),
        system_prompt_path: prompt.source.map(|path| path.display().to_string()),
    })
}

async fn set_system_prompt(
    cx: Cx,
    params: SetSystemPromptParams,
) -> Result<SetSystemPromptResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    cx.services()
        .engine
        .tuning
        .set_system_prompt(&agent, params.system_prompt)
        .await
        .map_err(wire)?;
    Ok(SetSystemPromptResult { updated: true })
}

async fn get_model(cx: Cx, _: NoParams) -> Result<GetModelResult, RpcError> {
    let agent = cx.agent(Action::Read).await?;
    let model = cx.services().engine.tuning.model(&agent).map_err(wire)?;
    Ok(GetModelResult {
        model: model.alias.clone(),
        provider: model.provider_name.clone(),
        reasoning: reasoning_entry(agent.look().settings.reasoning.unwrap_or(model.reasoning)),
    })
}

async fn set_model(cx: Cx, params: SetModelParams) -> Result<SetModelResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let reasoning = params.reasoning.map(reasoning);
    let tuning = &cx.services().engine.tuning;
    let model = tuning.set_model(&agent, params.model, reasoning).await.map_err(wire)?;
    Ok(SetModelResult { updated: true, model: model.alias.clone() })
}
