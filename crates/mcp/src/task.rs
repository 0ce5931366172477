//! Work that a server goes on with after it answered a call: it is asked now and then how far it is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolResult, DetailedTask, NumberOrString, ProgressNotificationParam, ProgressToken,
    TaskPayload,
};

use crate::connection::{CallError, Called, Connection, PollError, ServerCall};
use crate::elicit::Inquiries;
use crate::hub::Offer;
use crate::server::{Counted, Server};

/// Longer names are no names.
const ID_BYTES_MAX: usize = 1_024;

/// How often a server is asked, unless it says so itself; and the bounds of what it may say.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// So often in a row it may be out of reach.
const FAULTS_MAX: u32 = 5;

/// Whether the name of a task can be kept.
fn check(id: &str) -> Result<(), CallError> {
    match id.len() {
        1..=ID_BYTES_MAX => Ok(()),
        0 => Err(CallError::Refused("the server's task has no name".into())),
        _ => Err(CallError::Refused(format!(
            "the name of the server's task has more than {ID_BYTES_MAX} bytes"
        ))),
    }
}

impl Server {
    /// Makes a call and waits for what comes of it, or goes on waiting for a task that it had begun. `keep` is told of a task
    /// before it is asked for, so that after a crash it is asked for again and not begun again.
    pub async fn call(
        self: &Arc<Self>,
        mut call: ServerCall<'_>,
        keep: impl AsyncFnOnce(&str),
        mut show: impl FnMut(ProgressNotificationParam),
    ) -> Result<CallToolResult, CallError> {
        if let Some(task) = call.ticket {
            return self.follow(&call, task, show).await;
        }
        match self.begin_call(&mut call, &mut show).await? {
            Called::Done(result) => Ok(result),
            Called::Task(task) => {
                check(&task)?;
                keep(&task).await;
                self.follow(&call, &task, show).await
            }
        }
    }

    /// Waits for the end of a task, and answers what the server wants to know for it. A server that is out of reach for a
    /// while is asked again: the task is its own, and asking changes nothing.
    async fn follow(
        self: &Arc<Self>,
        call: &ServerCall<'_>,
        task: &str,
        show: impl FnMut(ProgressNotificationParam),
    ) -> Result<CallToolResult, CallError> {
        let following = self.follow_on(call, task, show);
        match call.cancel.run_until_cancelled(following).await {
            Some(done) => done,
            None => {
                if let Ok(connection) = self.ready().await {
                    connection.cancel_task(task).await;
                }
                Err(CallError::Cancelled)
            }
        }
    }

    async fn follow_on(
        self: &Arc<Self>,
        call: &ServerCall<'_>,
        task: &str,
        mut show: impl FnMut(ProgressNotificationParam),
    ) -> Result<CallToolResult, CallError> {
        let _counted = Counted::new(self, call.user);
        let offer = Offer::of(&self.entry);
        let inquiries = Inquiries::new(&self.entry.name, &offer, call.people);
        let mut heard = Heard::default();
        let mut answered = BTreeSet::new();
        let mut faults = 0;
        loop {
            let (connection, now) = match self.poll(task).await {
                Ok(polled) => polled,
                Err(PollError::Refused(why)) => {
                    return Err(CallError::Refused(format!(
                        "what became of the task that the call began is not known: {why}"
                    )));
                }
                Err(PollError::Unreached(error)) if faults == FAULTS_MAX => return Err(error),
                Err(PollError::Unreached(_)) => {
                    faults += 1;
                    tokio::time::sleep(PAUSE * 2_u32.pow(faults - 1)).await;
                    continue;
                }
            };
            faults = 0;
            if let Some(said) = heard.news(&now) {
                show(said);
            }
            match now.payload {
                TaskPayload::Completed { result } => {
                    let result = serde_json::from_value(result.into());
                    return result.map_err(|error| {
                        CallError::Refused(format!("the task's result is none of a tool: {error}"))
                    });
                }
                TaskPayload::Failed { error } => {
                    let why = error.get("message").and_then(|it| it.as_str());
                    let why = why.unwrap_or("it does not say why");
                    return Err(CallError::Refused(format!("the server's task failed: {why}")));
                }
                TaskPayload::Cancelled => {
                    return Err(CallError::Refused("the server cancelled its task".into()));
                }
                // What was answered may still be listed: the server takes it in when it comes to it.
                TaskPayload::InputRequired { mut input_requests } => {
                    input_requests.retain(|key, _| !answered.contains(key));
                    if !input_requests.is_empty() {
                        inquiries.count().map_err(CallError::Refused)?;
                        answered.extend(input_requests.keys().cloned());
                        let answers = inquiries.answer_all(input_requests).await;
                        let answers = answers.map_err(CallError::Refused)?;
                        connection.answer_task(task, answers, self.entry.timeout).await?;
                        continue;
                    }
                }
                _ => {}
            }
            let pause = now.task.poll_interval_ms.map_or(PAUSE, Duration::from_millis);
            tokio::time::sleep(pause.clamp(PAUSE_MIN, PAUSE_MAX)).await;
        }
    }

    async fn poll(
        self: &Arc<Self>,
        task: &str,
    ) -> Result<(Arc<Connection>, DetailedTask), PollError> {
        let connection = self.ready().await.map_err(|why| {
            let why = format!("the MCP server {} cannot be had: {why}", self.entry.name);
            PollError::Unreached(CallError::Refused(why))
        })?;
        let now = connection.get_task(task, self.entry.timeout).await?;
        Ok((connection, now))
    }
}

/// What a server said last of its task.
#[derive(Default)]
struct Heard {
    words: Option<String>,
    times: u32,
}

impl Heard {
    /// What it says now, if that is something else.
    fn news(&mut self, now: &DetailedTask) -> Option<ProgressNotificationParam> {
        let words =
            now.task.status_message.as_ref().filter(|it| Some(*it) != self.words.as_ref())?;
        self.words = Some(words.clone());
        self.times += 1;
        let nobodys = ProgressToken(NumberOrString::Number(0));
        let said = ProgressNotificationParam::new(nobodys, f64::from(self.times));
        Some(said.with_message(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_kept_is_none() {
        assert!(check("").is_err());
        assert!(check(&"t".repeat(ID_BYTES_MAX)).is_ok());
        assert!(check(&"t".repeat(ID_BYTES_MAX + 1)).is_err());
    }
}
