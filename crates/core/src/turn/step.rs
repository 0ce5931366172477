//! One step of a turn: a model is asked until it says something that can be kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use tokio::sync::mpsc;

use super::TurnError;
use super::run::Turn;
use super::said::Said;
use super::talk::Talk;
use crate::events::TurnEvent;
use crate::listing::Lesson;
use crate::message::{Part, Stop, StopReason};
use crate::observe::{CallEnd, RunningCall};
use crate::provider::{Answer, EventStream, ProviderError, ProviderEvent, Waiting};
use crate::usage::{Bill, Cost, Usage};

/// How often a step is tried again when the stream breaks off or falls silent before its first word.
const BROKEN_MAX: u32 = 2;

/// Waits of one call that a turn hears of. Further ones say nothing new.
const WAITS_MAX: usize = 8;

/// A service that wants to be left alone for longer than this is not waited for while another may answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A byte of text is about this part of a token.
const BYTES_PER_TOKEN: u64 = 4;

/// What a step came to.
pub(super) struct Step {
    pub answer: Answer,
    pub end: End,
    /// What was used, answers that were thrown away included.
    pub bill: Bill,
    /// Why the stream broke off in the middle of the answer.
    pub broke: Option<ProviderError>,
}

pub(super) enum End {
    Done,
    Cancelled,
    Failed(TurnError),
}

/// One call of a model, before anybody judged it.
struct Attempt {
    answer: Answer,
    end: AttemptEnd,
    /// The provider had begun to answer.
    opened: bool,
}

enum AttemptEnd {
    Done,
    Cancelled,
    Failed(ProviderError),
}

enum Verdict {
    Keep,
    Again,
}

/// Says of an agent that it waits, until this is dropped.
struct Waits(Arc<AtomicBool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A call that was sent, and what came of that; `None` when the turn was cancelled.
pub(super) struct Opened {
    call: RunningCall,
    events: Option<Result<EventStream, ProviderError>>,
}

impl Turn {
    /// Sends a call. While the provider lets it wait, the turn holds no slot.
    pub(super) async fn open(&self, talk: &Talk, said: &mut Said) -> Opened {
        let (tell, mut told) = mpsc::channel::<Waiting>(WAITS_MAX);
        let mut call = talk.call.clone();
        call.asker.waiting = Some(Arc::new(move |waiting| drop(tell.try_send(waiting))));
        let elsewhere = talk.may_go_elsewhere(&*self.turns.models, || self.needed(talk));
        call.asker.wait_max = elsewhere.then_some(PATIENCE);
        let observer = self.turns.observer.clone();
        call.asker.observer = Some(observer.clone());
        let (agent, turn) = (self.agent.id(), Some(self.run.clone()));
        let running = RunningCall::begin(observer, talk.model.info.clone(), agent, turn);
        let waits = Waits(self.agent.snapshot().waits_for_provider.clone());
        let opening = self.cancel.run_until_cancelled(talk.model.provider.stream(call));
        tokio::pin!(opening);
        loop {
            tokio::select! {
                biased;
                opened = &mut opening => {
                    drop((told, waits));
                    let entered = self.cancel.run_until_cancelled(self.standing.enter()).await;
                    let events = entered.and(opened);
                    return Opened { call: running, events };
                }
                Some(waiting) = told.recv() => {
                    self.standing.leave();
                    waits.0.store(true, Ordering::Relaxed);
                    said.tell(TurnEvent::Waiting(&waiting));
                }
            }
        }
    }

    /// Hears a call that was opened, and asks again for as long as there is a point in it.
    pub(super) async fn hear(&self, talk: &mut Talk, mut opened: Opened, said: &mut Said) -> Step {
        let mut lost = Bill::default();
        loop {
            let Opened { mut call, events } = opened;
            let mut attempt = match events {
                None => Attempt::ended(AttemptEnd::Cancelled),
                Some(Err(error)) => Attempt::ended(AttemptEnd::Failed(error)),
                Some(Ok(events)) => self.listen(events, &mut call, said).await,
            };
            self.count(talk, &mut attempt, said);
            attempt.heed_filter(&said.step_text());
            let bill = bill(talk, &attempt);
            call.bill = bill;
            call.end = match &attempt.end {
                AttemptEnd::Done => CallEnd::Done,
                AttemptEnd::Cancelled => CallEnd::Cancelled,
                AttemptEnd::Failed(error) => CallEnd::Failed(error.name()),
            };
            drop(call);
            let verdict = match self.judge(talk, &mut attempt, said).await {
                Ok(verdict) => verdict,
                Err(error) => {
                    let end = End::Failed(error);
                    return Step { answer: attempt.answer, end, bill: lost + bill, broke: None };
                }
            };
            match verdict {
                Verdict::Keep => return attempt.kept(lost + bill, &said.step_text()),
                Verdict::Again => {
                    lost += Bill { usage: bill.usage.thrown_away(), ..bill };
                    opened = self.open(talk, said).await;
                }
            }
        }
    }

    /// Takes in one model call's events until its end, a failure or a cancel.
    async fn listen(
        &self,
        mut events: EventStream,
        call: &mut RunningCall,
        said: &mut Said,
    ) -> Attempt {
        let mut attempt = Attempt { opened: true, ..Attempt::ended(AttemptEnd::Done) };
        loop {
            let Some(event) = self.cancel.run_until_cancelled(events.next()).await else {
                attempt.end = AttemptEnd::Cancelled;
                return attempt;
            };
            if !matches!(event, None | Some(Err(_) | Ok(ProviderEvent::Usage(_)))) {
                call.heard();
            }
            match event {
                Some(Ok(ProviderEvent::Text(piece))) => said.say(&piece),
                Some(Ok(ProviderEvent::Reasoning(piece))) => said.think(&piece),
                Some(Ok(ProviderEvent::Usage(usage))) => attempt.answer.usage = usage,
                // No turn asks for them.
                Some(Ok(ProviderEvent::Logprobs(_))) => {}
                Some(Ok(ProviderEvent::Done(answer))) => {
                    attempt.answer = *answer;
                    return attempt;
                }
                Some(Err(error)) => {
                    attempt.end = AttemptEnd::Failed(error);
                    return attempt;
                }
                None => {
                    let error = ProviderError::Broken("the stream ended too early".into());
                    attempt.end = AttemptEnd::Failed(error);
                    return attempt;
                }
            }
            if let Some(room) = said.crowded() {
                let _ = self.cancel.run_until_cancelled(room).await;
            }
        }
    }

    /// Makes up for what a provider did not come to say of a call that it had begun to answer.
    fn count(&self, talk: &Talk, attempt: &mut Attempt, said: &mut Said) {
        let ended = !matches!(attempt.end, AttemptEnd::Done);
        let usage = &mut attempt.answer.usage;
        if attempt.opened && ended {
            let written = said.step_bytes() as u64 / BYTES_PER_TOKEN;
            if usage.input == 0 {
                let bytes = talk.brief.bytes()
                    + talk.call.messages.iter().map(|it| it.text_bytes()).sum::<usize>();
                usage.input = bytes as u64 / BYTES_PER_TOKEN;
                usage.estimated = true;
            }
            if usage.output < written {
                usage.output = written;
                usage.estimated = true;
            }
        }
        said.end_thinking(usage.reasoning);
    }

    /// Decides whether what came is kept, and makes ready for another attempt if it is not.
    async fn judge(
        &self,
        talk: &mut Talk,
        attempt: &mut Attempt,
        said: &mut Said,
    ) -> Result<Verdict, TurnError> {
        match &attempt.end {
            AttemptEnd::Cancelled => Ok(Verdict::Keep),
            AttemptEnd::Failed(_) if said.step_bytes() > 0 => Ok(Verdict::Keep),
            AttemptEnd::Failed(error) => {
                let error = error.clone();
                self.after_failure(talk, error, attempt.opened, said).await
            }
            AttemptEnd::Done => self.after_answer(talk, &mut attempt.answer, said).await,
        }
    }

    /// A call failed before its first word.
    async fn after_failure(
        &self,
        talk: &mut Talk,
        error: ProviderError,
        opened: bool,
        said: &mut Said,
    ) -> Result<Verdict, TurnError> {
        match &error {
            ProviderError::TooLong { message, window } => {
                self.shorten(talk, message, *window).await?;
                return Ok(Verdict::Again);
            }
            ProviderError::Thoughts { message, missed } if !talk.tried.thoughts => {
                talk.tried.thoughts = true;
                if *missed {
                    tracing::warn!(
                        reason = message,
                        "the model wants all back that it had thought"
                    );
                    self.turns.models.learn(&talk.model, Lesson::thoughts_always());
                    talk.recall_thoughts();
                } else {
                    tracing::warn!(
                        reason = message,
                        "the model goes on without what it had thought"
                    );
                    talk.forget_thoughts();
                }
                return Ok(Verdict::Again);
            }
            _ => {}
        }
        if opened && breaks(&error) && talk.tried.broken < BROKEN_MAX {
            talk.tried.broken += 1;
            return Ok(Verdict::Again);
        }
        if error.may_fall_back() && self.fall_back(talk, &error.to_string(), said).await {
            return Ok(Verdict::Again);
        }
        Ok(Verdict::Keep)
    }

    /// The model has answered.
    async fn after_answer(
        &self,
        talk: &mut Talk,
        answer: &mut Answer,
        said: &mut Said,
    ) -> Result<Verdict, TurnError> {
        let truncated = talk.overflows == 0 && self.is_truncated(talk, answer).await;
        talk.overflows = 0;
        if truncated {
            let reason = "the provider has read less than half of the conversation";
            tracing::warn!(model = talk.model.alias, reason, "the conversation was cut in silence");
            let read = u32::try_from(answer.usage.input).unwrap_or(u32::MAX);
            if said.step_bytes() > 0 {
                talk.full = Some(read);
            } else if self.compact(talk, read).await? {
                talk.overflows = 1;
                return Ok(Verdict::Again);
            }
        }
        let says = |part: &Part| match part {
            Part::Text(text) => !text.trim().is_empty(),
            Part::Call(_) | Part::Attachment(_) => true,
            Part::Context(_) | Part::Thought(_) => false,
        };
        let silent = !answer.parts.iter().any(says);
        if silent && left_no_room(answer) {
            answer.stop.reason = StopReason::ContextWindow;
        }
        match answer.stop.reason {
            StopReason::MaxTokens if silent && talk.asked_max.is_none() && !talk.tried.larger => {
                if let Some(larger) = self.larger_limit(talk).await {
                    talk.tried.larger = true;
                    talk.call.max_tokens = Some(larger);
                    return Ok(Verdict::Again);
                }
            }
            StopReason::ContextWindow if !talk.tried.window => {
                talk.tried.window = true;
                if silent {
                    self.shorten(talk, "the model's window was full", None).await?;
                    return Ok(Verdict::Again);
                }
                talk.full = Some(u32::MAX);
            }
            StopReason::EndTurn | StopReason::Empty | StopReason::Other if silent => {
                if talk.tried.empty == 0 {
                    talk.tried.empty += 1;
                    return Ok(Verdict::Again);
                }
                answer.stop.reason = StopReason::Empty;
            }
            reason
                if reason.is_refused()
                    && talk.model.fallback_on_refusal
                    && said.step_bytes() == 0
                    && self.fall_back(talk, reason.name(), said).await =>
            {
                return Ok(Verdict::Again);
            }
            _ => {}
        }
        self.say_rest(answer, said);
        Ok(Verdict::Keep)
    }

    /// The model's own limit on an answer, as far as the window leaves room for it, where that is more than the call had.
    async fn larger_limit(&self, talk: &Talk) -> Option<u32> {
        let (own, had) = (talk.model.max_output?, talk.call.max_tokens?);
        if own <= had {
            return None;
        }
        let (now, compactor) = (self.agent.snapshot(), &self.turns.compactor);
        let larger = compactor.answer_within(&now, &talk.model, &talk.brief, own).await;
        (larger > had).then_some(larger)
    }

    /// Whether the provider has left out much of the conversation without a word.
    async fn is_truncated(&self, talk: &Talk, answer: &Answer) -> bool {
        let (now, messages) = (self.agent.snapshot(), &talk.call.messages);
        let compactor = &self.turns.compactor;
        compactor.is_truncated(&now, messages, &talk.model, &talk.brief, &answer.usage).await
    }

    /// Tells what is in an answer and was not streamed: the words of a refusal, which might have been taken back.
    fn say_rest(&self, answer: &Answer, said: &mut Said) {
        let whole: String = answer
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        if let Some(rest) = whole.strip_prefix(&said.step_text())
            && !rest.is_empty()
        {
            said.say(rest);
        }
    }

    async fn fall_back(&self, talk: &mut Talk, reason: &str, said: &mut Said) -> bool {
        let needed = self.needed(talk);
        let Some(from) = talk.fall_back(&*self.turns.models, needed) else { return false };
        let (now, compactor) = (self.agent.snapshot(), &self.turns.compactor);
        talk.bound_answer(compactor.answer_max(&now, &talk.model, &talk.brief).await);
        tracing::warn!(from, to = talk.model.alias, reason, "another model takes over");
        let to = talk.model.alias.clone();
        said.tell(TurnEvent::Fallback { from: &from, to: &to, reason });
        true
    }

    /// About how many tokens a model has to take.
    fn needed(&self, talk: &Talk) -> u64 {
        let bytes = talk.brief.bytes() + self.agent.look().conversation.context_bytes();
        bytes as u64 / BYTES_PER_TOKEN
    }
}

/// Whether an answer was cut before its first token, by all that its provider has counted: then the window was full, which
/// some services call by the word for the limit on an answer.
fn left_no_room(answer: &Answer) -> bool {
    let Usage { input, output, estimated, .. } = answer.usage;
    let has_thought = answer.parts.iter().any(|part| matches!(part, Part::Thought(_)));
    answer.stop.reason == StopReason::MaxTokens
        && input > 0
        && output == 0
        && !estimated
        && !has_thought
}

/// Whether a stream that was begun has ended in a way that may pass.
fn breaks(error: &ProviderError) -> bool {
    matches!(
        error,
        ProviderError::Broken(_) | ProviderError::Timeout | ProviderError::Unavailable(_)
    )
}

/// What one attempt used and costs.
fn bill(talk: &Talk, attempt: &Attempt) -> Bill {
    let Answer { usage, cost, .. } = &attempt.answer;
    if !attempt.opened && usage.is_empty() {
        return Bill::default();
    }
    let priced = |usage: &Usage| -> Option<Cost> {
        talk.model.prices.as_ref().map(|prices| prices.cost(usage))
    };
    // What nobody has counted has no price.
    Bill::of(*usage, cost.or_else(|| priced(usage).filter(|_| !usage.is_empty())))
}

impl Attempt {
    fn ended(end: AttemptEnd) -> Self {
        Self { answer: Answer::default(), end, opened: false }
    }

    /// What a filter stopped has been answered, as by a refusal: it would be stopped again. `text` is what was streamed.
    fn heed_filter(&mut self, text: &str) {
        if let AttemptEnd::Failed(ProviderError::Filtered(why)) = &self.end {
            let details = Some(json!({ "explanation": why }));
            self.answer.stop = Stop { reason: StopReason::ContentFilter, details };
            self.answer.parts = vec![Part::text(text)];
            self.end = AttemptEnd::Done;
        }
    }

    /// `text` is what was streamed.
    fn kept(self, bill: Bill, text: &str) -> Step {
        let Self { mut answer, end, .. } = self;
        let (end, broke) = match end {
            AttemptEnd::Done => (End::Done, None),
            AttemptEnd::Cancelled => (End::Cancelled, None),
            // What was streamed cannot be taken back, so it is an answer that was cut.
            AttemptEnd::Failed(error) if breaks(&error) && !text.is_empty() => {
                answer.parts = vec![Part::text(text)];
                answer.stop = Stop::from(StopReason::Broken);
                (End::Done, Some(error))
            }
            AttemptEnd::Failed(error) => (End::Failed(error.into()), None),
        };
        Step { answer, end, bill, broke }
    }
}
