//! The loop of a turn: context → model → tool calls through the gate → again, until the model is done.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};

use futures_util::future::{BoxFuture, Fuse, FusedFuture as _, MaybeDone, maybe_done};
use futures_util::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio_util::sync::CancellationToken;

use super::slots::Admission;
use super::{EventSink, TurnError, TurnEvent, TurnInput, TurnOutcome};
use crate::agent::Agent;
use crate::approval::Announce;
use crate::context::INTERRUPTED_CALL;
use crate::engine::Engine;
use crate::gate::ToolOutcome;
use crate::message::{Message, Meta, Role, SharedMessage, ToolCall};
use crate::name::TurnId;
use crate::provider::{EventStream, Model, ModelCall, ProviderError, ProviderEvent, Usage};
use crate::store::{ApprovalRecord, Progress, StoreError};

pub(super) struct Turn {
    pub engine: Arc<Engine>,
    pub agent: Arc<Agent>,
    pub id: TurnId,
    pub cancel: CancellationToken,
}

impl Turn {
    pub async fn run(
        &self,
        mut input: TurnInput,
        line: Line,
        admission: &Admission,
    ) -> Result<TurnOutcome, TurnError> {
        let mut said = Said { text: String::new(), step_start: 0, sink: input.sink.take() };
        // First the agent's lock, then a slot: a turn that waits for its agent must not hold a slot.
        let waited = async {
            let lock = line.front().await;
            let slot = if input.nested { None } else { admission.slot().await };
            (lock, slot)
        };
        let Some(_held) = self.unless_cancelled(waited).await else {
            return Ok(TurnOutcome {
                content: String::new(),
                cancelled: true,
                halted_at_iteration_limit: false,
            });
        };
        self.steps(input, &mut said).await
    }

    async fn steps(&self, input: TurnInput, said: &mut Said) -> Result<TurnOutcome, TurnError> {
        let model = self.engine.parts.models.resolve(self.agent.model().as_deref())?;
        if self.agent.progress().should_shutdown {
            self.agent.mark(&*self.engine.parts.store, false).await?;
        }
        self.engine.make_room(&self.agent, &model, &input.content, &self.cancel).await?;
        let schema = input.schema.clone();
        let (mut unwritten, context) = self.opening(input)?;
        let mut call = self.model_call(&model, context, schema).await;
        let steps_max = self.engine.settings.max_tool_iterations;
        for count in 1..=steps_max {
            let progress = Progress { last_iteration_count: count, ..self.progress() };
            said.begin_step();
            // What was said is written down while the model already works; its answer waits for both.
            let opening = self.unless_cancelled(model.provider.stream(call.clone()));
            let (written, opened) =
                tokio::join!(self.write(std::mem::take(&mut unwritten), progress), opening);
            written?;
            let step = match opened {
                None => Step::cut(End::Cancelled),
                Some(Err(error)) => Step::cut(End::Failed(error)),
                Some(Ok(events)) => self.listen(events, said).await,
            };
            self.write_answer(said.step_text(), &step, progress).await?;
            match step.end {
                End::Cancelled => return Ok(self.outcome(said, true, false)),
                End::Failed(error) => return Err(error.into()),
                End::Done if step.tool_calls.is_empty() => {
                    return Ok(self.outcome(said, false, false));
                }
                End::Done => {}
            }
            self.call_tools(&step.tool_calls, said, progress, count == steps_max).await?;
            if self.cancel.is_cancelled() {
                return Ok(self.outcome(said, true, false));
            }
            // What tools return can fill the window too.
            self.engine.make_room(&self.agent, &model, "", &self.cancel).await?;
            call.messages =
                self.agent.with_conversation(|conversation| conversation.context().to_vec());
        }
        Ok(self.outcome(said, false, true))
    }

    /// What the turn writes down first, and what its first model call is shown.
    fn opening(
        &self,
        input: TurnInput,
    ) -> Result<(Vec<SharedMessage>, Vec<SharedMessage>), TurnError> {
        if !input.resume {
            let source = input.source;
            let meta = Meta { source, source_agent: input.source_agent, ..self.meta() };
            let user = Arc::new(Message::new(Role::User, input.content, meta));
            let context = self.agent.with_conversation(|it| it.context_with(&user));
            return Ok((vec![user], context));
        }
        self.agent.with_conversation(|conversation| {
            let unfinished = conversation.unfinished().filter(|it| it.turn == self.id);
            let unfinished = unfinished.ok_or_else(|| TurnError::NotResumable(self.id.clone()))?;
            // Never run again: the model is told that it is not known what became of them.
            let meta = Meta { interrupted: true, ..self.meta() };
            let result = |id| Arc::new(Message::tool_result(id, INTERRUPTED_CALL, meta.clone()));
            let results: Vec<_> = unfinished.open_calls.into_iter().map(result).collect();
            let context = conversation.resumed(&results);
            Ok((results, context))
        })
    }

    async fn model_call(
        &self,
        model: &Model,
        messages: Vec<SharedMessage>,
        schema: Option<Arc<Value>>,
    ) -> ModelCall {
        let (system, tools) = self.engine.briefing(&self.agent, model.brief).await;
        ModelCall {
            model_id: model.id.clone(),
            reasoning: model.reasoning,
            system,
            tools,
            messages,
            volatile: Some(format!(
                "Current time: {}",
                Timestamp::now().strftime("%Y-%m-%d %H:%M UTC")
            )),
            max_tokens: None,
            schema,
        }
    }

    /// Takes in one model call's events until its end, a failure or a cancel.
    async fn listen(&self, mut events: EventStream, said: &mut Said) -> Step {
        let mut step = Step::cut(End::Done);
        loop {
            let Some(event) = self.unless_cancelled(events.next()).await else {
                step.end = End::Cancelled;
                return step;
            };
            match event {
                Some(Ok(ProviderEvent::Text(piece))) => said.say(&piece),
                Some(Ok(ProviderEvent::ToolCall(call))) => {
                    said.tell(TurnEvent::ToolCall(&call));
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
            return self.note(Vec::new(), progress).await;
        }
        let meta = Meta { interrupted, ..self.meta() };
        let message = Arc::new(Message::new(Role::Assistant, text, meta).with_tool_calls(calls));
        self.write(vec![message], progress).await
    }

    /// Runs the calls of one step side by side. What a call came to is written down when it ends, whatever the others
    /// do: after a crash only those that had not ended are in doubt.
    async fn call_tools(
        &self,
        calls: &[ToolCall],
        said: &mut Said,
        progress: Progress,
        last_step: bool,
    ) -> Result<(), TurnError> {
        let (asked, mut announced) = mpsc::unbounded_channel();
        let announce: Announce =
            Arc::new(move |approval: &ApprovalRecord| drop(asked.send(approval.clone())));
        let run = |call: ToolCall| {
            let announce = announce.clone();
            async move {
                let cancel = self.cancel.child_token();
                let outcome = self.engine.call_tool(&self.agent, &call, cancel, announce).await;
                (call, outcome)
            }
        };
        let mut results = stream::iter(calls.to_vec())
            .map(run)
            .buffer_unordered(self.engine.settings.max_concurrent_tools);
        let (mut running, mut ended) = (calls.len(), Vec::new());
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
                written = &mut writing, if !writing.is_terminated() => written?,
                Some((call, outcome)) = results.next(), if running > 0 => {
                    let ToolOutcome { content, refused_by } = outcome;
                    said.tell(TurnEvent::ToolResult { id: &call.id, content: &content, refused_by });
                    ended.push(Arc::new(Message::tool_result(&call.id, content, self.meta())));
                    running -= 1;
                }
            }
        }
    }

    async fn write(
        &self,
        messages: Vec<SharedMessage>,
        progress: Progress,
    ) -> Result<(), TurnError> {
        if messages.is_empty() { Ok(()) } else { self.note(messages, progress).await }
    }

    /// Writes the progress also where there are no messages. A destroyed agent has nowhere to be written to.
    async fn note(
        &self,
        messages: Vec<SharedMessage>,
        progress: Progress,
    ) -> Result<(), TurnError> {
        if self.agent.ended.is_cancelled() {
            return Ok(());
        }
        let parts = &self.engine.parts;
        match self.agent.append(&*parts.store, &*parts.logs, messages, progress).await {
            Err(StoreError::Unknown(_)) => Ok(()),
            Err(_) if self.agent.ended.is_cancelled() => Ok(()),
            Err(error @ StoreError::LeaseLost(_)) => {
                self.engine.release_lost();
                Err(error.into())
            }
            written => Ok(written?),
        }
    }

    /// `None` as soon as the turn is cancelled, by its name or because the server stops.
    async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            () = self.engine.slots.cancel_all.cancelled() => None,
            done = work => Some(done),
        }
    }

    fn outcome(
        &self,
        said: &mut Said,
        cancelled: bool,
        halted_at_iteration_limit: bool,
    ) -> TurnOutcome {
        TurnOutcome {
            content: std::mem::take(&mut said.text),
            cancelled,
            halted_at_iteration_limit,
        }
    }

    fn progress(&self) -> Progress {
        Progress { halted_at_iteration_limit: false, ..self.agent.progress() }
    }

    fn meta(&self) -> Meta {
        Meta { at: crate::now(), turn: Some(self.id.clone()), ..Meta::default() }
    }
}

/// A place in the line of an agent's turns, taken when a turn comes and not when its worker first runs: workers begin in
/// any order.
pub(super) struct Line(MaybeDone<BoxFuture<'static, OwnedMutexGuard<()>>>);

impl Line {
    pub fn join(agent: &Agent) -> Self {
        let mut lock = maybe_done(agent.turn_lock.clone().lock_owned().boxed());
        // Whoever polls next, the worker, leaves its own waker.
        let _ = lock.poll_unpin(&mut Context::from_waker(Waker::noop()));
        Self(lock)
    }

    async fn front(mut self) -> Option<OwnedMutexGuard<()>> {
        (&mut self.0).await;
        Pin::new(&mut self.0).take_output()
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
    sink: Option<Box<dyn EventSink>>,
}

impl Said {
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
