//! Model calls beside the steps of a turn, and what they used. All of it was paid for, whatever became of the answers.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;

use crate::lock;
use crate::name::AgentId;
use crate::observe::{CallEnd, Observer, RunningCall};
use crate::provider::{Answer, Model, ModelCall, ProviderError, ProviderEvent};
use crate::usage::{Bill, Usage};

/// A byte of text is about this part of a token.
const BYTES_PER_TOKEN: u64 = 4;

#[derive(Default)]
pub(crate) struct Ledger(Mutex<Sums>);

#[derive(Default)]
struct Sums {
    /// Of answers that may come to be part of the summary.
    kept: Bill,
    lost: Bill,
}

impl Ledger {
    /// What was heard so far leads nowhere.
    pub fn discard(&self) {
        let mut sums = lock(&self.0);
        let kept = std::mem::take(&mut sums.kept);
        sums.lost += thrown_away(kept);
    }

    pub fn total(&self) -> Bill {
        let sums = lock(&self.0);
        sums.kept + sums.lost
    }
}

/// One call that its provider has begun to answer. It is written down when it goes, also when nobody listens any more.
pub(crate) struct Tally<'a> {
    ledger: &'a Ledger,
    call: &'a ModelCall,
    pub answer: Answer,
    /// Bytes of the answer that were heard.
    heard: usize,
    /// Whether the provider came to its end.
    ended: bool,
    pub kept: bool,
    running: RunningCall,
}

impl<'a> Tally<'a> {
    /// Makes a call in the name of an agent, and waits for the whole answer.
    pub async fn ask(
        ledger: &'a Ledger,
        observer: Arc<dyn Observer>,
        agent: AgentId,
        model: &Model,
        call: &'a ModelCall,
    ) -> Result<Self, ProviderError> {
        let mut running = RunningCall::begin(observer, model.info.clone(), agent, None);
        let mut events = match model.provider.stream(call.clone()).await {
            Ok(events) => events,
            Err(error) => {
                running.end = CallEnd::Failed(error.name());
                return Err(error);
            }
        };
        let answer = Answer::default();
        let mut tally = Self { ledger, call, answer, heard: 0, ended: false, kept: false, running };
        while !tally.ended {
            match events.next().await {
                Some(Ok(ProviderEvent::Text(piece) | ProviderEvent::Reasoning(piece))) => {
                    tally.heard += piece.len();
                    tally.running.heard();
                }
                Some(Ok(ProviderEvent::Usage(usage))) => tally.answer.usage = usage,
                Some(Ok(ProviderEvent::Logprobs(_))) => {}
                Some(Ok(ProviderEvent::Done(answer))) => {
                    tally.answer = *answer;
                    tally.ended = true;
                    tally.running.heard();
                    tally.running.end = CallEnd::Done;
                }
                broken => {
                    let early = || ProviderError::Broken("the stream ended too early".into());
                    let error = broken.and_then(Result::err).unwrap_or_else(early);
                    tally.running.end = CallEnd::Failed(error.name());
                    return Err(error);
                }
            }
        }
        Ok(tally)
    }

    fn usage(&self) -> Usage {
        let mut usage = self.answer.usage;
        if self.ended {
            return usage;
        }
        let written = self.heard as u64 / BYTES_PER_TOKEN;
        if usage.input == 0 {
            let tools = self.call.tools.iter().map(|tool| tool.text_bytes()).sum::<usize>();
            let messages = self.call.messages.iter().map(|it| it.text_bytes()).sum::<usize>();
            usage.input = (self.call.system.len() + tools + messages) as u64 / BYTES_PER_TOKEN;
            usage.estimated = true;
        }
        if usage.output < written {
            usage.output = written;
            usage.estimated = true;
        }
        usage
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        let usage = self.usage();
        // What nobody has counted has no price.
        let prices = self.call.model.prices.as_ref().filter(|_| !usage.is_empty());
        let priced = || prices.map(|prices| prices.cost(&usage));
        let bill = Bill::of(usage, self.answer.cost.or_else(priced));
        self.running.bill = bill;
        let mut sums = lock(&self.ledger.0);
        match self.kept {
            true => sums.kept += bill,
            false => sums.lost += thrown_away(bill),
        }
    }
}

fn thrown_away(bill: Bill) -> Bill {
    Bill { usage: bill.usage.thrown_away(), ..bill }
}
