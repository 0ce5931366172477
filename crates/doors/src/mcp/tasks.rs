//! A turn as a task: its name is that of the stored turn, so that it is found after a restart too.

use nexus_protocol::WatchApi;
use nexus_protocol::conversation::{GetMessagesParams, MessageEntry};
use nexus_protocol::params::Bounded;
use nexus_protocol::turn::RequestId;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, DetailedTask, JsonObject, Task, TaskPayload, TaskStatus};
use serde_json::{Value, json};

use super::approve::input_requests;
use super::handler::Door;
use super::send::{result, said};
use super::turns::Turn;

/// How often a host asks.
const POLL_MS: u64 = 1_000;

/// Messages at the end of a conversation among which a turn is looked for.
const LOOKED_AT: u32 = 2_000;

/// Names the turn of an agent.
pub fn task_id(turn: &Turn) -> String {
    format!("{}:{}", turn.agent, turn.id)
}

/// A turn that has just become a task.
pub fn working(turn: &Turn) -> Task {
    describe(task_id(turn), TaskStatus::Working, &turn.began.to_string())
}

fn describe(id: String, status: TaskStatus, began: &str) -> Task {
    let now = jiff::Timestamp::now().to_string();
    Task::new(id, status, began, now).with_poll_interval_ms(POLL_MS)
}

/// The agent and the turn that a task's name has.
pub fn parts(task_id: &str) -> Result<(&str, &str), ErrorData> {
    task_id.split_once(':').ok_or_else(|| unknown(task_id))
}

fn unknown(task_id: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no task {task_id}"), None)
}

impl<A: WatchApi + Clone + Send + 'static> Door<A> {
    /// How a task stands: as this process knows it, or else as the store has it.
    pub(super) async fn task(&self, task_id: &str) -> Result<DetailedTask, ErrorData> {
        let (agent, id) = parts(task_id)?;
        let Some(turn) = self.turns.find(agent, id) else {
            return self.stored(task_id, agent, id).await;
        };
        let state = turn.now();
        let payload = match &state.outcome {
            Some(outcome) if matches!(&**outcome, Ok(answer) if answer.cancelled) => {
                TaskPayload::Cancelled
            }
            Some(outcome) => completed(result(&turn, &state, outcome)),
            None => match self.asked_of(&turn) {
                asked if asked.is_empty() => TaskPayload::Working,
                asked => TaskPayload::InputRequired { input_requests: input_requests(&asked) },
            },
        };
        let mut task = working(&turn);
        if !state.doing.is_empty() && state.outcome.is_none() {
            task = task.with_status_message(format!("step {}: {}", state.steps, state.doing));
        }
        Ok(DetailedTask::new(task, payload))
    }

    async fn stored(
        &self,
        task_id: &str,
        agent: &str,
        id: &str,
    ) -> Result<DetailedTask, ErrorData> {
        let scope = self.api.for_agent(agent);
        let request = RequestId::Text(id.into());
        let of_turn = |message: &MessageEntry| {
            message.meta.as_ref().is_some_and(|meta| meta.request_id.as_ref() == Some(&request))
        };
        // One that may not be read is none that there is.
        let context = scope.get_context().await.map_err(|_| unknown(task_id))?;
        let page = GetMessagesParams {
            from_end: Some(true),
            limit: Bounded::new(LOOKED_AT),
            ..GetMessagesParams::default()
        };
        let messages = scope.get_messages(page).await.map_err(|_| unknown(task_id))?.messages;
        let of_turn: Vec<_> = messages.iter().filter(|message| of_turn(message)).collect();
        let began = of_turn.first().and_then(|message| message.meta.as_ref());
        let began = began.map(|meta| meta.at.clone()).unwrap_or_default();
        let is_cut_off =
            context.interrupted_turn.as_ref().is_some_and(|turn| turn.request_id == request);
        let is_whole = |last: &&&MessageEntry| {
            let is_cut = last.meta.as_ref().is_some_and(|meta| meta.interrupted);
            last.role == "assistant" && last.tool_calls.is_empty() && !is_cut
        };
        let last = of_turn.last().filter(is_whole);
        let payload = match last {
            _ if context.turns.iter().any(|turn| turn.request_id == request) => {
                TaskPayload::Working
            }
            _ if is_cut_off => failed(&format!(
                "the turn {id} of {agent} was cut off: resume_turn goes on with it"
            )),
            Some(last) => {
                // What the agent says of itself is of its last turn.
                let is_latest = messages.last().is_some_and(|it| it.index == last.index);
                let halted = is_latest && context.halted_at_iteration_limit;
                completed(said((agent, id), &last.content, halted, &[]))
            }
            None if of_turn.is_empty() => return Err(unknown(task_id)),
            None => failed(&format!("the turn {id} of {agent} ended without an answer")),
        };
        Ok(DetailedTask::new(describe(task_id.into(), payload.status(), &began), payload))
    }
}

fn completed(result: CallToolResult) -> TaskPayload {
    let result = match serde_json::to_value(result) {
        Ok(Value::Object(result)) => result,
        _ => JsonObject::new(),
    };
    TaskPayload::Completed { result }
}

fn failed(why: &str) -> TaskPayload {
    let error = json!({"code": -32000, "message": why});
    TaskPayload::Failed { error: error.as_object().cloned().unwrap_or_default() }
}
