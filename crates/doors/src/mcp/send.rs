//! A turn for a host that waits for it.

use std::sync::Arc;
use std::time::Duration;

use nexus_protocol::WatchApi;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult, InputRequiredResult,
    ProgressNotificationParam,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::json;

use super::approve::{Ask, Questions, input_requests};
use super::handler::Door;
use super::tasks::{task_id, working};
use super::turns::{Outcome, State, Turn, Turns};
use crate::sentence::sentence;

/// A turn that takes longer is a task, for a host that knows tasks.
const AT_ONCE: Duration = Duration::from_secs(2);

impl<A: WatchApi + Clone + Send + 'static> Door<A> {
    /// Waits for a turn as this host can: to its end, until a person is asked, or until it is a task.
    pub(super) async fn follow(
        &self,
        turn: Arc<Turn>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_task = knows_tasks(&context);
        let ask = Ask::of(&self.visitor, &context);
        let abandoned = Abandoned { turns: self.turns.clone(), turn: Some(turn.clone()) };
        let mut state = turn.watch();
        let mut questions = Questions::default();
        let mut told = 0;
        let deadline = tokio::time::sleep(AT_ONCE);
        tokio::pin!(deadline);
        loop {
            let now = state.borrow_and_update().clone();
            if let Some(outcome) = &now.outcome {
                abandoned.leave();
                return Ok(result(&turn, &now, outcome).into());
            }
            if now.steps > told {
                told = now.steps;
                progress(&context, &now).await;
            }
            match ask {
                Ask::Never => {}
                // A task says so when it is asked for.
                _ if now.asked.is_empty() || is_task => {}
                Ask::Request => questions.ask(&self.person, &context.peer, &now.asked),
                Ask::Input => {
                    abandoned.leave();
                    let wanted = input_requests(&now.asked);
                    return Ok(InputRequiredResult::new(Some(wanted), Some(task_id(&turn))).into());
                }
            }
            tokio::select! {
                changed = state.changed() => if changed.is_err() {
                    return Err(ErrorData::internal_error("the turn is gone", None));
                },
                () = &mut deadline, if is_task => {
                    abandoned.leave();
                    return Ok(CreateTaskResult::new(working(&turn)).into());
                }
                () = context.ct.cancelled() => {
                    return Err(ErrorData::internal_error("the call was cancelled", None));
                }
            }
        }
    }
}

pub fn knows_tasks(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

/// What a turn came to.
pub fn result(turn: &Turn, state: &State, outcome: &Outcome) -> CallToolResult {
    match outcome {
        Err(error) => CallToolResult::error(vec![ContentBlock::text(sentence(error))]),
        Ok(answer) => {
            let halted = answer.halted_at_iteration_limit;
            let mut result = said((&turn.agent, &turn.id), &answer.content, halted, &state.denied);
            if let (true, Some(structured)) = (answer.cancelled, &mut result.structured_content) {
                structured["cancelled"] = true.into();
            }
            result
        }
    }
}

/// What an agent said in a turn.
pub fn said(
    (agent, id): (&str, &str),
    content: &str,
    halted: bool,
    denied: &[String],
) -> CallToolResult {
    let mut result = CallToolResult::structured(json!({
        "agent_id": agent,
        "request_id": id,
        "content": content,
        "halted_at_iteration_limit": halted,
        "denied": denied,
    }));
    result.content = vec![ContentBlock::text(content)];
    result
}

/// Tells a host that wants to know how far its call is.
async fn progress(context: &RequestContext<RoleServer>, state: &State) {
    let Some(token) = context.meta.get_progress_token() else { return };
    let mut told = ProgressNotificationParam::new(token, f64::from(state.steps));
    told.message = Some(state.doing.clone());
    // Who does not take it is told the end.
    let _ = context.peer.notify_progress(told).await;
}

/// Cancels the turn of a host that is gone.
struct Abandoned<A: WatchApi + Clone + Send + 'static> {
    turns: Arc<Turns<A>>,
    turn: Option<Arc<Turn>>,
}

impl<A: WatchApi + Clone + Send + 'static> Abandoned<A> {
    /// The turn goes on, or is over.
    fn leave(mut self) {
        self.turn = None;
    }
}

impl<A: WatchApi + Clone + Send + 'static> Drop for Abandoned<A> {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let turns = self.turns.clone();
        tokio::spawn(async move { turns.cancel(&turn.agent, &turn.id).await });
    }
}
