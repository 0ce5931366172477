//! Starting and stopping turns.

use std::num::NonZeroU64;
use std::time::Duration;

use nexus_core::approval::Person;
use nexus_core::authority::Action;
use nexus_core::events::TurnOutcome;
use nexus_core::turn::{TurnHandle, TurnInput};
use nexus_core::{Agent, AgentId, Requester, TurnId};
use nexus_protocol::RpcError;
use nexus_protocol::turn::{
    Cancel, CancelParams, CancelResult, ResumeTurn, ResumeTurnParams, Send, SendParams, SendResult,
    TurnApprovals,
};
use tokio_util::sync::DropGuard;

use super::usage::{cost_usd, usage_entry};
use super::{agent_id, content, request_id, schema, turn_id};
use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::errors::wire;
use crate::stream::{Stream, follow};

pub fn register(table: &mut Table) {
    table.on::<Send, _, _>(send);
    table.on::<ResumeTurn, _, _>(resume);
    table.on::<Cancel, _, _>(cancel);
}

async fn send(cx: Cx, params: SendParams) -> Result<SendResult, RpcError> {
    let agent = cx.agent(Action::Send).await?;
    let source_agent = source_agent(&cx.caller.requester, params.source_agent_id.as_deref())?;
    let (person, _is_there) = person(&cx, &params)?.unzip();
    let schema = params.response_schema.map(schema::checked).transpose()?;
    let id = params.request_id.map(turn_id).transpose()?;
    let input = TurnInput {
        content: content::taken(&cx, &agent, params.content).await?,
        id,
        source: params.source,
        source_agent,
        asked_by: (&cx.caller.requester).into(),
        schema,
        max_output_tokens: params.max_output_tokens.map(Into::into),
        person,
        ..TurnInput::default()
    };
    take_turn(&cx, &agent, input, params.stream, params.timeout_ms).await
}

/// Whoever answers what the turn asks, there for as long as the guard is. A caller who could go away and leave the turn
/// behind would leave its questions to nobody.
fn person(cx: &Cx, params: &SendParams) -> Result<Option<(Person, DropGuard)>, RpcError> {
    if params.approvals != Some(TurnApprovals::Ask) {
        return Ok(None);
    }
    let requester = &cx.caller.requester;
    requester.administrator_only("have its turns asked about").map_err(wire)?;
    if params.stream != Some(true) || params.idempotency_key.is_some() {
        let why = "approvals goes with stream, and without idempotency_key: whoever answers takes the turn along when they hang up";
        return Err(RpcError::invalid_param("/approvals", why));
    }
    Ok(Some(Person::new()))
}

async fn resume(cx: Cx, params: ResumeTurnParams) -> Result<SendResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let unfinished = agent.look().conversation.unfinished().map(|it| it.turn);
    let none = || RpcError::invalid_params("No turn of this agent was cut off");
    let id = params.request_id.map(turn_id).transpose()?.or(unfinished).ok_or_else(none)?;
    let schema = params.response_schema.map(schema::checked).transpose()?;
    let asked_by = (&cx.caller.requester).into();
    let input = TurnInput { resume: true, id: Some(id), schema, asked_by, ..TurnInput::default() };
    take_turn(&cx, &agent, input, params.stream, params.timeout_ms).await
}

/// Starts a turn and waits for its end.
async fn take_turn(
    cx: &Cx,
    agent: &Agent,
    mut input: TurnInput,
    stream: Option<bool>,
    timeout_ms: Option<NonZeroU64>,
) -> Result<SendResult, RpcError> {
    let stream = Stream::wanted(cx, stream);
    input.sink = stream.as_ref().and_then(Stream::boxed_sink);
    let timeout = timeout_ms.map(|ms| Duration::from_millis(ms.get()));
    let turn = match cx.services().engine.turns.start(agent, input).await {
        Ok(turn) => turn,
        Err(error) => {
            if let Some(stream) = stream {
                stream.end();
            }
            return Err(wire(error));
        }
    };
    match stream {
        None => finish(turn, timeout).await,
        Some(_) => follow(stream, turn.cancel.clone(), finish(turn, timeout)).await,
    }
}

async fn finish(turn: TurnHandle, timeout: Option<Duration>) -> Result<SendResult, RpcError> {
    let id = turn.id.clone();
    Ok(send_result(id, turn.wait(timeout).await.map_err(wire)?))
}

async fn cancel(cx: Cx, params: CancelParams) -> Result<CancelResult, RpcError> {
    let agent = cx.agent(Action::Manage).await?;
    let cancelled = agent.cancel(&turn_id(params.request_id.clone())?).await;
    let reason = (!cancelled).then(|| "not_found_or_completed".into());
    Ok(CancelResult { cancelled, request_id: params.request_id, reason })
}

pub fn send_result(id: TurnId, outcome: TurnOutcome) -> SendResult {
    SendResult {
        content: outcome.content,
        request_id: request_id(&id),
        halted_at_iteration_limit: outcome.halted_at_iteration_limit,
        cancelled: outcome.cancelled,
        stop_reason: outcome.stop.reason.name().into(),
        stop_details: outcome.stop.details,
        usage: usage_entry(&outcome.bill.usage),
        cost_usd: cost_usd(&outcome.bill),
        model: outcome.model,
        steps: outcome.steps,
    }
}

/// Which agent a message is from. An agent cannot speak in another's name.
pub fn source_agent(
    requester: &Requester,
    claimed: Option<&str>,
) -> Result<Option<AgentId>, RpcError> {
    match requester {
        Requester::Agent(id) => Ok(Some(id.clone())),
        Requester::Administrator => {
            claimed.map(|name| agent_id("source_agent_id", name)).transpose()
        }
    }
}
