//! Listing models.

use nexus_core::listing::{ListedModel, ModelQuery, Sources};
use nexus_core::model::{Inputs, ModelInfo, ThinkingKind};
use nexus_core::usage::{Cost, Prices, Rates};
use nexus_protocol::RpcError;
use nexus_protocol::model::{
    ListModels, ListModelsParams, ListModelsResult, ModelEntry, ModelPrice, ModelPriceAbove,
    ModelRates, ModelReasoning, ModelSources,
};

use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;

/// Models on a page when the caller names no number.
const PAGE_MODELS: u32 = 100;

pub fn register(table: &mut Table) {
    table.on::<ListModels, _, _>(list);
}

async fn list(cx: Cx, params: ListModelsParams) -> Result<ListModelsResult, RpcError> {
    let offset = params.offset.unwrap_or(0);
    let limit = params.limit.map_or(PAGE_MODELS, |limit| limit.get());
    let all = params.all.unwrap_or(false);
    let query = ModelQuery { provider: params.provider, all, offset, limit };
    let page = cx.services().engine.models.list(&query).map_err(wire)?;
    let models = page.models.into_iter().map(entry).collect();
    Ok(ListModelsResult { total: page.total, offset, limit, default: page.default, models })
}

/// A model as the wire has it; the program's own list is made of it too.
pub fn entry(model: ListedModel) -> ModelEntry {
    let ListedModel {
        info,
        sources,
        tools,
        schemas,
        wires,
        retires,
        unavailable,
        key_set,
        default,
    } = model;
    ModelEntry {
        alias: info.alias.clone(),
        provider: info.provider_name.clone(),
        id: info.id.clone(),
        wire: info.wire.to_owned(),
        context_window: info.context_window,
        max_output_tokens: output(&info),
        input: inputs(info.inputs),
        reasoning: reasoning(&info),
        capabilities: capabilities(&info, tools, schemas),
        price: info.prices.as_ref().map(price),
        tools,
        schemas,
        wires,
        retires,
        sources: named(sources),
        available: unavailable.is_none(),
        reason: unavailable,
        key_set,
        default,
    }
}

/// The most the model can, and no more than it may.
fn output(info: &ModelInfo) -> Option<u32> {
    match (info.max_output, info.output_limit) {
        (Some(own), Some(limit)) => Some(own.min(limit)),
        (own, limit) => own.or(limit),
    }
}

fn inputs(inputs: Inputs) -> Vec<String> {
    let taken = [("text", true), ("image", inputs.image), ("pdf", inputs.pdf)];
    taken.into_iter().filter(|(_, taken)| *taken).map(|(name, _)| name.to_owned()).collect()
}

fn capabilities(info: &ModelInfo, tools: Option<bool>, schemas: Option<bool>) -> Vec<String> {
    let known = [
        ("image", info.inputs.image),
        ("pdf", info.inputs.pdf),
        ("reasoning", info.thinking.kind != ThinkingKind::None),
        ("schemas", schemas == Some(true)),
        ("tools", tools == Some(true)),
    ];
    known.into_iter().filter(|(_, can)| *can).map(|(name, _)| name.to_owned()).collect()
}

fn reasoning(info: &ModelInfo) -> ModelReasoning {
    let kind = match info.thinking.kind {
        ThinkingKind::None => "none",
        ThinkingKind::Budget => "budget",
        ThinkingKind::Effort => "effort",
    };
    ModelReasoning {
        kind: kind.to_owned(),
        efforts: info.thinking.efforts.iter().map(|effort| effort.name().to_owned()).collect(),
        always_on: info.thinking.always_on,
        asked: !info.reasoning.is_off(),
        effort: info.reasoning.effort().map(|effort| effort.name().to_owned()),
        budget_tokens: info.reasoning.budget_tokens(),
    }
}

fn price(prices: &Prices) -> ModelPrice {
    let above = prices.tiers.iter();
    ModelPrice {
        rates: rates(&prices.base),
        above: above
            .map(|(tokens, of)| ModelPriceAbove { tokens: *tokens, rates: rates(of) })
            .collect(),
    }
}

fn rates(rates: &Rates) -> ModelRates {
    let dollars = |nanos: u64| Cost(nanos).usd();
    ModelRates {
        input: dollars(rates.input),
        output: dollars(rates.output),
        cache_read: rates.cache_read.map(dollars),
        cache_write: rates.cache_write.map(dollars),
    }
}

fn named(sources: Sources) -> ModelSources {
    ModelSources {
        context_window: sources.context_window.name().to_owned(),
        max_output_tokens: sources.max_output.name().to_owned(),
        input: sources.inputs.name().to_owned(),
        reasoning: sources.thinking.name().to_owned(),
        price: sources.prices.name().to_owned(),
    }
}
