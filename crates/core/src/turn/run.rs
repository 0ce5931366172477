//! The loop of a turn: context → model → tool calls through the gate → again, until the model is done.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{Fuse, FusedFuture as _};
use futures_util::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::said::{Said, Watched, WatchedCall};
use super::step::{End, Step};
use super::talk::{Talk, Wishes};
use super::{Job, Standing, TurnError, TurnInput, Turns};
use crate::account::MemoryShare;
use crate::agent::{Agent, Entry, Gone, Live, Snapshot};
use crate::approval::{Announce, Person};
use crate::brief::Brief;
use crate::conversation::INTERRUPTED_CALL;
use crate::events::{TurnEvent, TurnOutcome};
use crate::footprint::Footprint;
use crate::gate::{Errand, Refusal, ToolOutcome};
use crate::list::List;
use crate::listing::Lesson;
use crate::mcp::OwnServers;
use crate::message::{
    Content, Made, Message, Meta, Part, Role, SharedMessage, Stop, StopReason, ToolCall,
};
use crate::name::TurnId;
use crate::observe::{EndedToolCall, RunningTurn, ToolEnd, TurnEnd, TurnRun};
use crate::provider::{Model, Urgency};
use crate::store::{ApprovalRecord, Progress, StoreError};
use crate::tool::CALL_TOOL;
use crate::toolbox::Toolbox;
use crate::usage::Bill;
use crate::watch::{Asked, Ended, Event};

/// Announcements of one step that may wait for the turn to pass them on. A turn that is this far behind has a sink that
/// takes no more; whoever watches finds the approvals in their list.
const ANNOUNCEMENTS_MAX: usize = 256;

/// The same for how far calls are, which nobody misses that gets the next.
const REPORTS_MAX: usize = 64;

/// How often in a row a model is told to go on with an answer that was cut.
const GO_ON_MAX: u32 = 3;

/// So many steps in a row whose calls are cut end the turn.
const CUT_CALLS_MAX: u32 = 3;

/// How often in a turn a provider may ask for its own words back.
const PAUSES_MAX: u32 = 5;

/// What the model is told of a call that panicked.
const PANICKED_CALL: &str =
    "Failed: the tool broke inside the server. What it did until then is not known.";

const GO_ON: &str =
    "Go on exactly where it ended. Do not repeat anything, and do not mention the break.";

pub(super) struct Turn {
    pub turns: Arc<Turns>,
    pub agent: Agent,
    pub run: TurnRun,
    pub cancel: CancellationToken,
    pub asked: Arc<Asked>,
    /// Where others see what it says.
    pub live: Arc<Live>,
    pub watched: Arc<Watched>,
    /// Its place among those that run.
    pub standing: Arc<Standing>,
    /// Told of the files that its tools change.
    pub footprint: Option<Arc<Footprint>>,
    /// Answers what it asks.
    pub person: Option<Person>,
}

/// A turn that is to begin.
pub(super) struct Opening {
    pub turns: Arc<Turns>,
    pub agent: Agent,
    pub id: TurnId,
    pub cancel: CancellationToken,
    pub asked: Arc<Asked>,
    pub live: Arc<Live>,
    pub input: TurnInput,
    /// What is said counts as memory also while it waits.
    pub waiting: MemoryShare,
}

impl Job for Opening {
    type Outcome = TurnOutcome;

    async fn run(self, standing: Arc<Standing>) -> Result<TurnOutcome, TurnError> {
        let Self { turns, agent, id, cancel, asked, live, mut input, waiting } = self;
        drop(waiting);
        let (footprint, person) = (input.footprint.take(), input.person.take());
        let run = TurnRun::begin(id);
        let mut running = RunningTurn::begin(turns.observer.clone(), agent.id(), run.clone());
        let of = agent.clone();
        let watched = Arc::new(Watched {
            watches: turns.watches.clone(),
            agent: Box::new(move || of.id()),
            turn: run.id.clone(),
        });
        let turn =
            Turn { turns, agent, run, cancel, asked, live, watched, standing, footprint, person };
        let ended = match turn.steps(input).await {
            // Nobody asked for it: it was stopped because another process has the agent.
            Ok(outcome) if outcome.cancelled && turn.agent.gone() == Some(Gone::Lost) => {
                Err(StoreError::LeaseLost.into())
            }
            ended => ended,
        };
        running.end = match &ended {
            Ok(outcome) if outcome.cancelled => TurnEnd::Cancelled,
            Ok(outcome) if outcome.halted_at_iteration_limit => TurnEnd::Halted,
            Ok(_) => TurnEnd::Done,
            Err(_) => TurnEnd::Failed,
        };
        turn.live.end(match &ended {
            Ok(outcome) => Ended {
                stop: Some(outcome.stop.reason),
                bill: outcome.bill,
                ..Ended::empty(running.end)
            },
            Err(error) => {
                Ended { error: Some(Arc::new(error.clone())), ..Ended::empty(running.end) }
            }
        });
        ended
    }

    fn cancelled() -> TurnOutcome {
        let stop = StopReason::Cancelled.into();
        TurnOutcome { cancelled: true, stop, ..TurnOutcome::default() }
    }
}

impl Turn {
    async fn steps(&self, mut input: TurnInput) -> Result<TurnOutcome, TurnError> {
        let now = self.agent.snapshot();
        let model = self.turns.models.resolve(now.settings.model.as_deref())?;
        let shown = now.settings.reasoning.unwrap_or(model.reasoning).is_shown();
        let mut said = Said::new(self.live.clone(), self.watched.clone(), input.sink.take(), shown);
        if now.progress.should_shutdown {
            self.agent.mark(false).await?;
        }
        let wishes = Wishes {
            schema: input.schema.take(),
            max_output_tokens: input.max_output_tokens,
            urgency: if said.is_watched() { Urgency::Watched } else { Urgency::Usual },
        };
        let prepared = self.turns.briefing.prepare(&self.agent, &model);
        self.cancel.run_until_cancelled(prepared).await.transpose()?;
        if self.asked.resumed {
            self.redeem(&mut said).await?;
        }
        let now = self.agent.snapshot();
        let mut epoch = self.turns.briefing.epoch(&now, &model).await?;
        let recalled = match self.asked.resumed {
            true => None,
            false => self.recall(&self.asked.content).await,
        };
        let mut asked = self.asked(epoch.news, recalled.clone());
        if self.make_room(&model, &epoch.brief, asked.as_ref()).await? {
            epoch = self.turns.briefing.epoch(&self.agent.snapshot(), &model).await?;
            asked = self.asked(epoch.news, recalled);
        }
        let (mut unwritten, context) = self.opening(asked)?;
        let now = self.agent.snapshot();
        let mut talk = Talk::new(model, epoch.brief, &now, self.agent.account(), context, wishes);
        let mut turn_bill = Bill::default();
        let (mut cuts, mut pauses) = (0, 0);
        let mut joins = false;
        let steps_max = self.turns.limits.max_tool_iterations;
        for count in 1..=steps_max {
            self.agent.account().check_memory()?;
            let progress = Progress { last_iteration_count: count, ..self.progress() };
            said.begin_step(joins);
            let now = self.agent.snapshot();
            talk.begin_step(self.turns.compactor.answer_max(&now, &talk.model, &talk.brief).await);
            // What was said is written down while the model already works; its answer waits for both.
            let writing = self.write(std::mem::take(&mut unwritten), progress);
            let (written, opened) = tokio::join!(writing, self.open(&talk, &mut said));
            if written?.is_none() {
                // What was said is nowhere, so it must not look as if it had been heard.
                return Err(StoreError::Ended.into());
            }
            let mut step = self.hear(&mut talk, opened, &mut said).await;
            if step.calls_by_name() {
                let own = self.turns.gate.own_servers(&self.agent.snapshot()).await?;
                step.name_calls(&self.turns.gate.toolbox, &own);
            }
            turn_bill += step.bill;
            let cut = step.is_cut();
            cuts = if cut { cuts + 1 } else { 0 };
            // A model too small for much is cut because it goes round in circles.
            let bounded = talk.asked_max.is_some() || talk.model.brief;
            let own_limit = bounded && step.answer.stop.reason == StopReason::MaxTokens;
            let goes_on = cut && !own_limit && step.calls().next().is_none() && cuts <= GO_ON_MAX;
            let calls: Vec<ToolCall> = step.calls().cloned().collect();
            calls.iter().for_each(|call| said.call(call));
            if !step.bill.usage.is_empty() {
                said.tell(TurnEvent::Usage(step.bill.usage));
            }
            self.write_answer(&said.step_text(), &step, &talk, goes_on, progress).await?;
            let outcome = |said: &mut Said, stop: Stop| TurnOutcome {
                content: said.take_text(),
                cancelled: stop.reason == StopReason::Cancelled,
                halted_at_iteration_limit: stop.reason == StopReason::IterationLimit,
                stop,
                bill: turn_bill,
                model: talk.model.alias.clone(),
                steps: count,
            };
            let stop = step.answer.stop;
            match step.end {
                End::Cancelled => return Ok(outcome(&mut said, StopReason::Cancelled.into())),
                End::Failed(error) => return Err(error),
                End::Done => {}
            }
            joins = goes_on;
            if stop.reason.is_refused() {
                return Ok(outcome(&mut said, stop));
            }
            if stop.reason == StopReason::Pause {
                pauses += 1;
                if pauses > PAUSES_MAX {
                    return Ok(outcome(&mut said, stop));
                }
            } else if calls.is_empty() && !goes_on {
                let ended = match step.broke {
                    Some(error) => Err(error.into()),
                    None => Ok(outcome(&mut said, stop)),
                };
                if let Some(window) = talk.full.take() {
                    self.compact(&mut talk, window).await?;
                }
                return ended;
            }
            let limit = talk.call.max_tokens;
            let has_called = !calls.is_empty();
            let calls = calls.into_iter().map(|call| (call, None)).collect();
            self.call_tools(calls, limit, &mut said, progress, count == steps_max).await?;
            if self.cancel.is_cancelled() {
                return Ok(outcome(&mut said, StopReason::Cancelled.into()));
            }
            if cut && has_called && cuts >= CUT_CALLS_MAX {
                // Some services say that the model was done, and its caller must not believe it.
                let told = stop.reason.is_cut();
                let stop = if told { stop } else { StopReason::MaxTokens.into() };
                return Ok(outcome(&mut said, stop));
            }
            if own_limit && !goes_on {
                return Ok(outcome(&mut said, stop));
            }
            said.check()?;
            if count == steps_max {
                return Ok(outcome(&mut said, StopReason::IterationLimit.into()));
            }
            // What tools return can fill the window too.
            self.go_on(&mut talk).await?;
        }
        // Only when no step is allowed at all.
        Ok(TurnOutcome { halted_at_iteration_limit: true, ..TurnOutcome::default() })
    }

    /// Makes room for the next step, and shows the model all that was said by now.
    async fn go_on(&self, talk: &mut Talk) -> Result<(), TurnError> {
        if let Some(window) = talk.full.take()
            && self.compact(talk, window).await?
        {
            return Ok(());
        }
        let compacted = self.make_room(&talk.model, &talk.brief, None).await?;
        let now = self.agent.snapshot();
        talk.show(now.conversation.context());
        if compacted {
            talk.renew(self.turns.briefing.epoch(&now, &talk.model).await?.brief);
        }
        Ok(())
    }

    /// Makes sure that `next` fits behind the conversation. Whether it was summarised for that.
    async fn make_room(
        &self,
        model: &Model,
        brief: &Arc<Brief>,
        next: Option<&SharedMessage>,
    ) -> Result<bool, TurnError> {
        let compactor = &self.turns.compactor;
        Ok(compactor.make_room(&self.agent, model, brief, next, &self.cancel).await?)
    }

    /// The conversation was too long for the model, whatever we thought: summarises it, once between two answers.
    pub(super) async fn shorten(
        &self,
        talk: &mut Talk,
        reason: &str,
        window: Option<u32>,
    ) -> Result<(), TurnError> {
        talk.overflows += 1;
        let compactor = &self.turns.compactor;
        tracing::warn!(
            model = talk.model.alias,
            reason,
            "the conversation is too long for the model"
        );
        if let Some(window) = window {
            self.turns.models.learn(&talk.model, Lesson::window(window));
        }
        let now = self.agent.snapshot();
        let window = window.unwrap_or(u32::MAX);
        let compacted = talk.overflows == 1 && self.compact(talk, window).await?;
        // One that is cancelled ends as such.
        if !compacted && !self.cancel.is_cancelled() {
            let count = compactor.count(&now).await?;
            return Err(TurnError::Overflow {
                reason: reason.to_owned(),
                system: count.system,
                tools: count.tools,
                messages: count.messages,
                last: compactor.last_message_tokens(&now).await,
            });
        }
        Ok(())
    }

    /// Summarises a conversation that was too long for a window of this size, and goes on with that. Whether there was
    /// anything to summarise.
    pub(super) async fn compact(&self, talk: &mut Talk, window: u32) -> Result<bool, TurnError> {
        let compactor = &self.turns.compactor;
        let now = self.agent.snapshot();
        // Whatever the model takes, it is less than this.
        let tokens = compactor.weigh(&now, &talk.model, &talk.brief).await;
        let left = talk.narrow(&*self.turns.models, tokens.min(window.into()));
        if !compactor.shorten(&self.agent, &talk.model, &talk.brief, &self.cancel).await? {
            talk.model = left;
            return Ok(false);
        }
        let now = self.agent.snapshot();
        talk.show(now.conversation.context());
        talk.renew(self.turns.briefing.epoch(&now, &talk.model).await?.brief);
        talk.bound_answer(compactor.answer_max(&now, &talk.model, &talk.brief).await);
        Ok(true)
    }

    /// What the user says, and what the model is told along with it. `None` when a turn goes on that was cut off.
    fn asked(&self, news: Option<String>, recalled: Option<String>) -> Option<SharedMessage> {
        let Asked { source, source_agent, content, resumed } = &*self.asked;
        if *resumed {
            return None;
        }
        let (source, source_agent) = (source.clone(), source_agent.clone());
        let meta = Meta { source, source_agent, ..self.meta() };
        let time = Timestamp::now().strftime("Current time: %Y-%m-%d %H:%M UTC").to_string();
        let context = [Some(time), news, recalled].into_iter().flatten().map(Part::Context);
        let parts = context.chain(content.parts().iter().cloned()).collect();
        Some(Arc::new(Message::of_parts(Role::User, parts, meta)))
    }

    /// The memories that have most to do with what the user says, in words, where the configuration wants them. A turn goes
    /// on without them.
    async fn recall(&self, content: &Content) -> Option<String> {
        if self.turns.recall == 0 {
            return None;
        }
        let memories = &self.turns.memories;
        match memories.recall(&self.agent.id(), &content.text(), self.turns.recall).await {
            Ok(recalled) => recalled,
            Err(error) => {
                tracing::warn!(%error, "nothing was recalled for a turn");
                None
            }
        }
    }

    /// Goes on with what calls of a turn that was cut off began elsewhere, and waits for what comes of it.
    async fn redeem(&self, said: &mut Said) -> Result<(), TurnError> {
        let now = self.agent.snapshot();
        let conversation = &now.conversation;
        let is_ours = conversation.unfinished().is_some_and(|it| it.turn == self.run.id);
        let Some(step) = conversation.open_step().filter(|_| is_ours) else { return Ok(()) };
        let ticket = |call: &ToolCall| {
            let kept = now.settings.tickets.iter().find(|it| it.step == step && it.call == call.id);
            kept.map(|it| (call.clone(), Some(it.what.clone())))
        };
        let begun: Vec<_> = conversation.open_calls().filter_map(ticket).collect();
        begun.iter().for_each(|(call, _)| said.call(call));
        self.call_tools(begun, None, said, self.progress(), false).await
    }

    /// What the turn writes down first, and what its first model call is shown.
    fn opening(
        &self,
        asked: Option<SharedMessage>,
    ) -> Result<(Vec<SharedMessage>, List<SharedMessage>), TurnError> {
        let now = self.agent.snapshot();
        if let Some(asked) = asked {
            let context = now.conversation.context_with(&asked);
            return Ok((vec![asked], context));
        }
        let unfinished = now.conversation.unfinished().filter(|it| it.turn == self.run.id);
        let unfinished = unfinished.ok_or_else(|| TurnError::NotResumable(self.run.id.clone()))?;
        // Never run again: the model is told that it is not known what became of them.
        let meta = Meta { interrupted: true, failed: true, ..self.meta() };
        let result = |id| Arc::new(Message::tool_result(id, INTERRUPTED_CALL, meta.clone()));
        let results: Vec<_> = unfinished.open_calls.into_iter().map(result).collect();
        let context = now.conversation.resumed(&results);
        Ok((results, context))
    }

    /// Writes down what the model said in this step, whole or cut short, with what it cost, and that it is to go on if it
    /// is. A step that was cut before the first word leaves no message; the calls of a step that did not end well were
    /// never begun, so they are not kept.
    async fn write_answer(
        &self,
        text: &str,
        step: &Step,
        talk: &Talk,
        goes_on: bool,
        progress: Progress,
    ) -> Result<(), TurnError> {
        let whole = matches!(step.end, End::Done);
        let parts = match whole {
            true => step.answer.parts.clone(),
            false => vec![Part::text(text)],
        };
        let made = Made {
            origin: talk.model.origin(),
            briefing: talk.brief.digest,
            stop: match step.end {
                End::Done => step.answer.stop.clone(),
                End::Cancelled => StopReason::Cancelled.into(),
                End::Failed(_) => StopReason::Broken.into(),
            },
            bill: step.bill,
        };
        // One that broke off and does not go on can be resumed.
        let interrupted = !whole || (step.broke.is_some() && !goes_on);
        let meta = Meta { interrupted, made: Some(Arc::new(made)), ..self.meta() };
        let answer = Message::of_parts(Role::Assistant, parts, meta);
        // One that was refused is, also without a word: it says that its turn is not to be shown again.
        let refused = whole && step.answer.stop.reason.is_refused();
        if answer.parts.is_empty() && !refused {
            let entry = Entry { progress, spent: step.bill, ..Entry::default() };
            return self.note(entry).await.map(drop);
        }
        let mut messages = vec![Arc::new(answer)];
        if goes_on {
            let why = match step.answer.stop.reason {
                StopReason::Broken => "The connection broke off in the middle of your answer.",
                _ => "Your answer was cut off by the limit on its length.",
            };
            let words = format!("{why} {GO_ON}");
            let on = Message::of_parts(Role::User, vec![Part::Context(words)], self.meta());
            messages.push(Arc::new(on));
        }
        let entry =
            Entry { messages, progress, brief: Some(talk.brief.clone()), ..Entry::default() };
        self.note(entry).await.map(drop)
    }

    /// Runs the calls of one step side by side. What a call came to is written down when it ends, whatever the others
    /// do: after a crash only those that had not ended are in doubt. Calls beyond `max_calls_per_step` are each refused:
    /// every call has to have a result, and a model that is told why can go on. A call may come with what it had begun
    /// elsewhere; answers were bounded by `limit` tokens. When something cannot be written, the calls that still run are
    /// told to end and waited for, as by a cancel.
    async fn call_tools(
        &self,
        calls: Vec<(ToolCall, Option<String>)>,
        limit: Option<u32>,
        said: &mut Said,
        progress: Progress,
        last_step: bool,
    ) -> Result<(), TurnError> {
        let (asked, mut announced) = mpsc::channel(ANNOUNCEMENTS_MAX);
        let tell = move |approval: &ApprovalRecord| drop(asked.try_send(approval.clone()));
        let announce = Announce::new(tell, self.person.clone());
        let (reports, mut reported) = mpsc::channel(REPORTS_MAX);
        let streamed = said.is_watched();
        // Their own: they are to end also when the turn cannot go on.
        let cancel = self.cancel.child_token();
        let run = |(call, ticket): (ToolCall, Option<String>)| {
            let (announce, reports) = (announce.clone(), reports.clone());
            let cancel = cancel.clone();
            async move {
                let errand = Errand {
                    turn: &self.run.id,
                    cancel,
                    announce,
                    footprint: self.footprint.as_ref(),
                    onlookers: Arc::new(WatchedCall {
                        watched: self.watched.clone(),
                        id: call.id.clone(),
                        streamed,
                        reports,
                    }),
                    ticket,
                };
                let began = Instant::now();
                self.watched.tell(|| Event::ToolStarted { id: call.id.clone() });
                // The others of its step know nothing of a tool that panics, and end as they would.
                let called = AssertUnwindSafe(self.turns.gate.call(&self.agent, &call, errand));
                let outcome = called.catch_unwind().await.unwrap_or_else(|_| {
                    tracing::error!(turn = %self.run.id, tool = call.name, "a tool panicked");
                    ToolOutcome::failed(PANICKED_CALL)
                });
                (call, began, outcome)
            }
        };
        let limits = &self.turns.limits;
        let (mut begun, cut): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|(call, _)| call.cut.is_none());
        let surplus = begun.split_off(begun.len().min(limits.max_calls_per_step));
        let mut running = begun.len();
        let mut results =
            stream::iter(begun).map(run).buffer_unordered(limits.max_concurrent_tools);
        let surplus = surplus.into_iter().map(|(call, _)| (call, self.too_many_calls()));
        let now = Instant::now();
        let cut = cut.into_iter().map(|(call, _)| {
            let outcome = cut_call(&call, limit);
            (call, outcome)
        });
        let mut ended: Vec<_> = surplus
            .chain(cut)
            .map(|(call, outcome)| self.result(&call, now, outcome, said))
            .collect();
        let mut writing = pin!(Fuse::terminated());
        let mut unwritten = None;
        loop {
            if unwritten.is_none() && writing.is_terminated() && !ended.is_empty() {
                let halted = running == 0 && last_step && !self.cancel.is_cancelled();
                let progress = Progress { halted_at_iteration_limit: halted, ..progress };
                writing.set(self.write(std::mem::take(&mut ended), progress).fuse());
            }
            if writing.is_terminated() && running == 0 {
                return unwritten.map_or(Ok(()), Err);
            }
            tokio::select! {
                biased;
                Some(approval) = announced.recv() => said.tell(TurnEvent::ApprovalRequested(&approval)),
                Some(report) = reported.recv() => said.progress(&report),
                written = &mut writing, if !writing.is_terminated() => if let Err(error) = written {
                    // The turn is over when the tools are that still run: a command must not write while the next turn does.
                    cancel.cancel();
                    unwritten = Some(error);
                },
                Some((call, began, outcome)) = results.next(), if running > 0 => {
                    // What was said of a call on its way is told before its end.
                    while let Ok(report) = reported.try_recv() {
                        said.progress(&report);
                    }
                    ended.push(self.result(&call, began, outcome, said));
                    running -= 1;
                }
            }
        }
    }

    /// Tells what a call came to, and returns it as the message that is to be written down.
    fn result(
        &self,
        call: &ToolCall,
        began: Instant,
        outcome: ToolOutcome,
        said: &mut Said,
    ) -> SharedMessage {
        let lasted = began.elapsed();
        said.result(call, &outcome, lasted);
        let ToolOutcome { content, attachments, refused_by, failed, .. } = outcome;
        let own: OwnServers = self.agent.look().settings.servers.as_slice().into();
        self.turns.observer.tool_call_ended(&EndedToolCall {
            tool: self.turns.gate.toolbox.get(&call.name, &own).map(|_| &*call.name),
            agent: &self.agent.id(),
            turn: &self.run,
            began,
            lasted,
            end: match refused_by {
                Some(rule) => ToolEnd::Refused(rule),
                None if failed && self.cancel.is_cancelled() => ToolEnd::Cancelled,
                None if failed => ToolEnd::Failed,
                None => ToolEnd::Done,
            },
        });
        let meta = Meta { failed, ..self.meta() };
        let result = Message::tool_result(&call.id, content, meta);
        Arc::new(result.with_attachments(attachments))
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
            false => self.note(Entry { messages, progress, ..Entry::default() }).await,
        }
    }

    /// Writes the progress also where there are no messages. `None` when the agent was ended: that cancelled the turn, and
    /// there is nowhere to write to.
    async fn note(&self, entry: Entry) -> Result<Option<Arc<Snapshot>>, TurnError> {
        match self.agent.append(entry).await {
            Ok(now) => Ok(Some(now)),
            Err(StoreError::Ended) if self.cancel.is_cancelled() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn progress(&self) -> Progress {
        Progress { halted_at_iteration_limit: false, ..self.agent.look().progress }
    }

    fn meta(&self) -> Meta {
        Meta { at: crate::now(), turn: Some(self.run.id.clone()), ..Meta::default() }
    }
}

/// What the model is told of a call that its answer ended in the middle of.
fn cut_call(call: &ToolCall, limit: Option<u32>) -> ToolOutcome {
    let came = call.cut.unwrap_or_default();
    let limit = limit.map_or_else(String::new, |limit| format!(" of {limit} tokens"));
    let content = format!(
        "Not run: your answer ended in the middle of this call, after {came} bytes of its arguments, at the limit{limit} on \
         its length. Make it in parts: several calls, each with a smaller piece."
    );
    ToolOutcome::failed(content)
}

impl Step {
    /// Whether it calls tools that it was not shown.
    fn calls_by_name(&self) -> bool {
        let by_name = |part: &Part| matches!(part, Part::Call(call) if call.name == CALL_TOOL);
        self.answer.parts.iter().any(by_name)
    }

    /// Puts tools that were called by their names in their places. Everybody sees them as themselves.
    fn name_calls(&mut self, toolbox: &Toolbox, own: &OwnServers) {
        for part in &mut self.answer.parts {
            let Part::Call(call) = part else { continue };
            if call.name != CALL_TOOL || call.cut.is_some() {
                continue;
            }
            let named = call.arguments.get("tool").and_then(Value::as_str);
            let tool = named.and_then(|name| toolbox.get(name, own));
            let Some(tool) = tool.filter(|tool| tool.origin().is_some()) else { continue };
            let arguments = call.arguments.get_mut("arguments").map(Value::take);
            call.arguments = arguments.filter(Value::is_object).unwrap_or_else(|| json!({}));
            call.name.clone_from(&tool.spec().name);
        }
    }

    /// The calls of an answer that ended well.
    fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        let whole = matches!(self.end, End::Done) && !self.answer.stop.reason.is_refused();
        let parts = if whole { &self.answer.parts[..] } else { &[] };
        parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }

    /// Whether the model would have said more, whatever its provider says of that.
    fn is_cut(&self) -> bool {
        self.answer.stop.reason.is_cut() || self.calls().any(|call| call.cut.is_some())
    }
}
