//! What model calls used; and what is asked of thinking, between the core's types and the wire's.

use nexus_core::model;
use nexus_core::spending::SpendingReport;
use nexus_core::store::{SpendingBy, SpendingQuery, Spent};
use nexus_core::usage;
use nexus_protocol::RpcError;
use nexus_protocol::usage::{
    Effort, GetUsage, GetUsageParams, GetUsageResult, ReasoningChoice, ReasoningDetails,
    ReasoningDisplay, Usage, UsageBy, UsageRow, UsageTotals,
};

use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;

/// Rows of one answer.
const ROWS_MAX: usize = 1_000;

pub fn register(table: &mut Table) {
    table.on::<GetUsage, _, _>(get);
}

async fn get(cx: Cx, params: GetUsageParams) -> Result<GetUsageResult, RpcError> {
    let since = params.since.map(|since| {
        since.parse().map_err(|_| {
            RpcError::invalid_param("/since", "since must be a moment in ISO 8601 with its offset")
        })
    });
    let query = SpendingQuery {
        of: params.agent_id.map(|name| super::agent_id("agent_id", &name)).transpose()?,
        tree: params.tree.unwrap_or(false),
        by: match params.by {
            None | Some(UsageBy::Agent) => SpendingBy::Agent,
            Some(UsageBy::Model) => SpendingBy::Model,
            Some(UsageBy::Day) => SpendingBy::Day,
        },
        since: since.transpose()?,
    };
    let report = cx.services().engine.spending.report(&cx.caller.requester, query);
    let SpendingReport { total, rows } = report.await.map_err(wire)?;
    let rows = params.by.map(|_| rows.iter().take(ROWS_MAX).map(row).collect());
    Ok(GetUsageResult {
        usage: usage_entry(&total.usage),
        cost_usd: cost_usd(&total),
        cost_unknown_calls: total.unknown_calls,
        calls: total.calls,
        rows,
    })
}

fn row(spent: &Spent) -> UsageRow {
    UsageRow {
        key: spent.key.clone(),
        usage: usage_entry(&spent.bill.usage),
        cost_usd: cost_usd(&spent.bill),
        cost_unknown_calls: spent.bill.unknown_calls,
        calls: spent.bill.calls,
    }
}

/// What an agent's model calls used, as lists show it.
pub fn totals(bill: &usage::Bill) -> UsageTotals {
    UsageTotals {
        tokens: bill.usage.total(),
        cost_usd: cost_usd(bill),
        cost_unknown_calls: bill.unknown_calls,
    }
}

pub fn usage_entry(usage: &usage::Usage) -> Usage {
    Usage {
        input: usage.input,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        output: usage.output,
        reasoning: usage.reasoning,
        discarded: Some(usage.discarded).filter(|discarded| *discarded > 0),
        estimated: usage.estimated,
    }
}

/// In dollars; `None` where no price is known.
pub fn cost_usd(bill: &usage::Bill) -> Option<f64> {
    bill.known_cost().map(usage::Cost::usd)
}

pub fn reasoning(choice: ReasoningChoice) -> model::Reasoning {
    match choice {
        ReasoningChoice::Switch(false) => model::Reasoning::Off,
        ReasoningChoice::Switch(true) => model::Reasoning::On,
        ReasoningChoice::Detailed(ReasoningDetails { effort, budget_tokens, display }) => {
            model::Reasoning::Asked {
                effort: effort.map(|effort| match effort {
                    Effort::None => model::Effort::None,
                    Effort::Minimal => model::Effort::Minimal,
                    Effort::Low => model::Effort::Low,
                    Effort::Medium => model::Effort::Medium,
                    Effort::High => model::Effort::High,
                    Effort::Xhigh => model::Effort::Xhigh,
                    Effort::Max => model::Effort::Max,
                }),
                budget_tokens: budget_tokens.map(Into::into),
                shown: display != Some(ReasoningDisplay::None),
            }
        }
    }
}

pub fn reasoning_entry(reasoning: model::Reasoning) -> ReasoningChoice {
    match reasoning {
        model::Reasoning::Off => ReasoningChoice::Switch(false),
        model::Reasoning::On => ReasoningChoice::Switch(true),
        model::Reasoning::Asked { effort, budget_tokens, shown } => {
            ReasoningChoice::Detailed(ReasoningDetails {
                effort: effort.map(|effort| match effort {
                    model::Effort::None => Effort::None,
                    model::Effort::Minimal => Effort::Minimal,
                    model::Effort::Low => Effort::Low,
                    model::Effort::Medium => Effort::Medium,
                    model::Effort::High => Effort::High,
                    model::Effort::Xhigh => Effort::Xhigh,
                    model::Effort::Max => Effort::Max,
                }),
                budget_tokens: budget_tokens.and_then(std::num::NonZeroU32::new),
                display: (!shown).then_some(ReasoningDisplay::None),
            })
        }
    }
}
