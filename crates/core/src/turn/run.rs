//! The loop of a turn: context → model → tool calls through the gate → again, until the model is done.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Fuse, FusedFuture as _};
use futures_util::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Job, TurnError, TurnInput, Turns};
use crate::account::MemoryShare;
use crate::agent::{Agent, Gone, Snapshot};
use crate::approval::Announce;
use crate::briefing::Briefed;
use crate::conversation::INTERRUPTED_CALL;
use crate::events::{EventSink, TurnEvent, TurnOutcome};
use crate::gate::{Refusal, ToolOutcome};
use crate::list::List;
use crate::message::{Message, Meta, Role, SharedMessage, ToolCall};
use crate::name::TurnId;
use crate::provider::{EventStream, Model, ModelCall, ProviderError, ProviderEvent, Usage};
use crate::store::{ApprovalRecord, Progress, StoreError};

/// Announcements of one step that may wait for the turn to pass them on. A turn that is this far behind has a sink that
/// takes no more; whoever watches finds the approvals in their list.
const ANNOUNCEMENTS_MAX: usize = 256;

/// What the models of one turn may say together, text and tool calls. A provider bounds each of its answers; a turn has
/// many, and all of them are kept until it ends.
const TURN_BYTES_MAX: usize = 32 << 20;

pub(super) struct Turn {
    pub turns: Arc<Turns>,
    pub agent: Agent,
    pub id: TurnId,
    pub cancel: CancellationToken,
}

/// A turn and what it begins with.
pub(super) struct Opening {
    pub turn: Turn,
    pub input: TurnInput,
    /// What is said counts as memory also while it waits.
    pub waiting: MemoryShare,
}

impl Job for Opening {
    type Outcome = TurnOutcome;

    async fn run(self) -> Result<TurnOutcome, TurnError> {
        let Self { turn, input, waiting } = self;
        drop(waiting);
        match turn.steps(input).await {
            // Nobody asked for it: it was stopped because another process has the agent.
            Ok(outcome) if outcome.cancelled && turn.agent.gone() == Some(Gone::Lost) => {
                Err(StoreError::LeaseLost.into())
            }
            ended => ended,
        }
    }

    fn cancelled() -> TurnOutcome {
        TurnOutcome { cancelled: true, ..TurnOutcome::default() }
    }
}

impl Turn {
    async fn steps(&self, mut input: TurnInput) -> Result<TurnOutcome, TurnError> {
        let mut said = Said::new(input.sink.take());
        let now = self.agent.snapshot();
        let model = self.turns.models.resolve(now.settings.model.as_deref())?;
        if now.progress.should_shutdown {
            self.agent.mark(false).await?;
        }
        let briefed = self.turns.briefing.of(&now, model.brief).await?;
        self.make_room(&model, &briefed, &input.content).await?;
        let schema = input.schema.clone();
        let (mut unwritten, context) = self.opening(input)?;
        let mut call = model_call(&model, briefed.clone(), context, schema);
        let steps_max = self.turns.limits.max_tool_iterations;
        for count in 1..=steps_max {
            self.agent.account().check_memory()?;
            let progress = Progress { last_iteration_count: count, ..self.progress() };
            said.begin_step();
            // What was said is written down while the model already works; its answer waits for both.
            let opening = self.cancel.run_until_cancelled(model.provider.stream(call.clone()));
            let (written, opened) =
                tokio::join!(self.write(std::mem::take(&mut unwritten), progress), opening);
            if written?.is_none() {
                // What was said is nowhere, so it must not look as if it had been heard.
                return Err(StoreError::Ended.into());
            }
            let step = match opened {
                None => Step::cut(End::Cancelled),
                Some(Err(error)) => Step::cut(End::Failed(error)),
                Some(Ok(events)) => self.listen(events, &mut said).await,
            };
            self.write_answer(said.step_text(), &step, progress).await?;
            match step.end {
                End::Cancelled => return Ok(said.outcome(true, false)),
                End::Failed(error) => return Err(error.into()),
                End::Done if step.tool_calls.is_empty() => return Ok(said.outcome(false, false)),
                End::Done => {}
            }
            self.call_tools(&step.tool_calls, &mut said, progress, count == steps_max).await?;
            if self.cancel.is_cancelled() {
                return Ok(said.outcome(true, false));
            }
            said.check()?;
            // What tools return can fill the window too.
            self.make_room(&model, &briefed, "").await?;
            call.messages = self.agent.look().conversation.context();
        }
        Ok(said.outcome(false, true))
    }

    async fn make_room(
        &self,
        model: &Model,
        briefed: &Briefed,
        next: &str,
    ) -> Result<(), TurnError> {
        let compactor = &self.turns.compactor;
        Ok(compactor.make_room(&self.agent, model, briefed, next, &self.cancel).await?)
    }

    /// What the turn writes down first, and what its first model call is shown.
    fn opening(
        &self,
        input: TurnInput,
    ) -> Result<(Vec<SharedMessage>, List<SharedMessage>), TurnError> {
        let now = self.agent.snapshot();
        if !input.resume {
            let source = input.source;
            let meta = Meta { source, source_agent: input.source_agent, ..self.meta() };
            let user = Arc::new(Message::new(Role::User, input.content, meta));
            let context = now.conversation.context_with(&user);
            return Ok((vec![user], context));
        }
        let unfinished = now.conversation.unfinished().filter(|it| it.turn == self.id);
        let unfinished = unfinished.ok_or_else(|| TurnError::NotResumable(self.id.clone()))?;
        // Never run again: the model is told that it is not known what became of them.
        let meta = Meta { interrupted: true, ..self.meta() };
        let result = |id| Arc::new(Message::tool_result(id, INTERRUPTED_CALL, meta.clone()));
        let results: Vec<_> = unfinished.open_calls.into_iter().map(result).collect();
        let context = now.conversation.resumed(&results);
        Ok((results, context))
    }

    /// Takes in one model call's events until its end, a failure or a cancel.
    async fn listen(&self, mut events: EventStream, said: &mut Said) -> Step {
        let mut step = Step::cut(End::Done);
        loop {
            let Some(event) = self.cancel.run_until_cancelled(events.next()).await else {
                step.end = End::Cancelled;
                return step;
            };
            match event {
                Some(Ok(ProviderEvent::Text(piece))) => said.say(&piece),
                Some(Ok(ProviderEvent::ToolCall(call))) => {
                    said.call(&call);
                    step.tool_calls.push(call);
                }
                Some(Ok(ProviderEvent::Done(usage))) => {
                    if usage != Usage::default() {
                        said.tell(TurnEvent::Usage(usage));
                    }
                    return step;
                }
                Some(Err(error)) => {
                    step.end = End::Failed(error);
                    return step;
                }
                None => {
                    step.end =
                        End::Failed(ProviderError::Broken("the stream ended too early".into()));
                    return step;
                }
            }
        }
    }

    /// Writes down what the model said in this step, whole or cut short. A step that was cut before the first word
    /// leaves no message; the calls of a step that did not end well were never begun, so they are not kept.
    async fn write_answer(
        &self,
        text: &str,
        step: &Step,
        progress: Progress,
    ) -> Result<(), TurnError> {
        let interrupted = !matches!(step.end, End::Done);
        let calls = if interrupted { Vec::new() } else { step.tool_calls.clone() };
        if text.is_empty() && interrupted {
            return self.note(Vec::new(), progress).await.map(drop);
        }
        let meta = Meta { interrupted, ..self.meta() };
        let message = Arc::new(Message::new(Role::Assistant, text, meta).with_tool_calls(calls));
        self.note(vec![message], progress).await.map(drop)
    }

    /// Runs the calls of one step side by side. What a call came to is written down when it ends, whatever the others
    /// do: after a crash only those that had not ended are in doubt. Calls beyond `max_calls_per_step` are each refused:
    /// every call has to have a result, and a model that is told why can go on.
    async fn call_tools(
        &self,
        calls: &[ToolCall],
        said: &mut Said,
        progress: Progress,
        last_step: bool,
    ) -> Result<(), TurnError> {
        let (asked, mut announced) = mpsc::channel(ANNOUNCEMENTS_MAX);
        let announce: Announce =
            Arc::new(move |approval: &ApprovalRecord| drop(asked.try_send(approval.clone())));
        let run = |call: ToolCall| {
            let announce = announce.clone();
            async move {
                let cancel = self.cancel.clone();
                let outcome = self.turns.gate.call(&self.agent, &call, cancel, announce).await;
                (call, outcome)
            }
        };
        let limits = &self.turns.limits;
        let (begun, surplus) = calls.split_at(calls.len().min(limits.max_calls_per_step));
        let mut results =
            stream::iter(begun.to_vec()).map(run).buffer_unordered(limits.max_concurrent_tools);
        let refused = surplus.iter().map(|call| (call, self.too_many_calls()));
        let mut ended: Vec<_> =
            refused.map(|(call, outcome)| self.result(call, outcome, said)).collect();
        let mut running = begun.len();
        let mut writing = pin!(Fuse::terminated());
        loop {
            if writing.is_terminated() && !ended.is_empty() {
                let halted = running == 0 && last_step && !self.cancel.is_cancelled();
                let progress = Progress { halted_at_iteration_limit: halted, ..progress };
                writing.set(self.write(std::mem::take(&mut ended), progress).fuse());
            }
            if writing.is_terminated() && running == 0 {
                return Ok(());
            }
            tokio::select! {
                biased;
                Some(approval) = announced.recv() => said.tell(TurnEvent::ApprovalRequested(&approval)),
                written = &mut writing, if !writing.is_terminated() => drop(written?),
                Some((call, outcome)) = results.next(), if running > 0 => {
                    ended.push(self.result(&call, outcome, said));
                    running -= 1;
                }
            }
        }
    }

    /// Tells what a call came to, and returns it as the message that is to be written down.
    fn result(&self, call: &ToolCall, outcome: ToolOutcome, said: &mut Said) -> SharedMessage {
        let ToolOutcome { content, refused_by } = outcome;
        said.tell(TurnEvent::ToolResult { id: &call.id, content: &content, refused_by });
        Arc::new(Message::tool_result(&call.id, content, self.meta()))
    }

    fn too_many_calls(&self) -> ToolOutcome {
        let refusal = Refusal::TooManyCalls(self.turns.limits.max_calls_per_step);
        refusal.into()
    }

    async fn write(
        &self,
        messages: Vec<SharedMessage>,
        progress: Progress,
    ) -> Result<Option<Arc<Snapshot>>, TurnError> {
        match messages.is_empty() {
            true => Ok(Some(self.agent.snapshot())),
            false => self.note(messages, progress).await,
        }
    }

    /// Writes the progress also where there are no messages. `None` when the agent was ended: that cancelled the turn, and
    /// there is nowhere to write to.
    async fn note(
        &self,
        messages: Vec<SharedMessage>,
        progress: Progress,
    ) -> Result<Option<Arc<Snapshot>>, TurnError> {
        match self.agent.append(messages, progress).await {
            Ok(now) => Ok(Some(now)),
            Err(StoreError::Ended) if self.cancel.is_cancelled() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn progress(&self) -> Progress {
        Progress { halted_at_iteration_limit: false, ..self.agent.look().progress }
    }

    fn meta(&self) -> Meta {
        Meta { at: crate::now(), turn: Some(self.id.clone()), ..Meta::default() }
    }
}

fn model_call(
    model: &Model,
    briefed: Briefed,
    messages: List<SharedMessage>,
    schema: Option<Arc<Value>>,
) -> ModelCall {
    ModelCall {
        model_id: model.id.clone(),
        reasoning: model.reasoning,
        system: briefed.system,
        tools: briefed.tools,
        messages,
        volatile: Some(format!(
            "Current time: {}",
            Timestamp::now().strftime("%Y-%m-%d %H:%M UTC")
        )),
        max_tokens: None,
        schema,
    }
}

/// One model call's yield.
struct Step {
    tool_calls: Vec<ToolCall>,
    end: End,
}

enum End {
    Done,
    Cancelled,
    Failed(ProviderError),
}

impl Step {
    fn cut(end: End) -> Self {
        Self { tool_calls: Vec::new(), end }
    }
}

/// The text of the turn so far, and who listens. The pieces told to the sink, joined, are the text.
struct Said {
    text: String,
    step_start: usize,
    /// Bytes of the tool calls.
    calls_bytes: usize,
    sink: Option<Box<dyn EventSink>>,
}

impl Said {
    fn new(sink: Option<Box<dyn EventSink>>) -> Self {
        Self { text: String::new(), step_start: 0, calls_bytes: 0, sink }
    }

    /// Whether the turn may go on.
    fn check(&self) -> Result<(), TurnError> {
        if self.text.len() + self.calls_bytes <= TURN_BYTES_MAX {
            return Ok(());
        }
        let reason =
            format!("its answers in this turn are together larger than {TURN_BYTES_MAX} bytes");
        Err(ProviderError::Broken(reason).into())
    }

    fn call(&mut self, call: &ToolCall) {
        self.calls_bytes += call.text_bytes();
        self.tell(TurnEvent::ToolCall(call));
    }

    /// What the turn came to.
    fn outcome(&mut self, cancelled: bool, halted_at_iteration_limit: bool) -> TurnOutcome {
        let content = std::mem::take(&mut self.text);
        TurnOutcome { content, cancelled, halted_at_iteration_limit }
    }

    fn begin_step(&mut self) {
        self.step_start = self.text.len();
    }

    fn step_text(&self) -> &str {
        &self.text[self.step_start..]
    }

    fn say(&mut self, piece: &str) {
        // The words of two steps would run together without a break between them.
        if self.step_start > 0 && self.step_start == self.text.len() {
            self.text.push_str("\n\n");
            self.step_start = self.text.len();
            self.tell(TurnEvent::Text("\n\n"));
        }
        self.text.push_str(piece);
        self.tell(TurnEvent::Text(piece));
    }

    fn tell(&mut self, event: TurnEvent<'_>) {
        if let Some(sink) = &mut self.sink
            && !sink.event(event)
        {
            self.sink = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_turn_may_say_just_under_and_just_over() {
        let mut said = Said::new(None);
        let call = ToolCall { id: "c".into(), name: "tool".into(), arguments: json!([1]) };
        said.call(&call);
        said.say(&"x".repeat(TURN_BYTES_MAX - "tool[1]".len()));
        assert!(said.check().is_ok());
        said.say("x");
        let error = said.check().unwrap_err().to_string();
        assert!(error.contains("are together larger than 33554432 bytes"), "{error}");
    }
}
