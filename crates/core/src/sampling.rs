//! What an MCP server has the agent's model say for it: without tools, without the conversation, and counted as the agent's.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::inquiry::{Sample, Sampled};
use crate::ledger::{Ledger, Tally};
use crate::message::{Message, Meta, Part, StopReason};
use crate::observe::Observer;
use crate::provider::{Asker, Model, ModelCall, Models, Recurs, Urgency};

/// Of one answer, whatever the server asks for.
pub const SAMPLE_TOKENS_MAX: u32 = 4_096;

pub(crate) struct Sampler {
    pub models: Arc<dyn Models>,
    pub observer: Arc<dyn Observer>,
}

impl Sampler {
    /// Has an agent's model say something; or why it did not. What it used is noted also when nobody waits any more.
    pub async fn sample(
        self: &Arc<Self>,
        agent: &Agent,
        sample: Sample,
        cancel: &CancellationToken,
    ) -> Result<Sampled, String> {
        let model = self.models.resolve(agent.look().settings.model.as_deref());
        let model = model.map_err(|error| error.to_string())?;
        let (own, agent, sampler) = (cancel.child_token(), agent.clone(), self.clone());
        // The model is not kept at work for somebody who is gone.
        let _gone = own.clone().drop_guard();
        let asked = tokio::spawn(async move {
            let call = sampler.call(&agent, &model, sample);
            let ledger = Ledger::default();
            let asking = sampler.ask(&agent, &model, &call, &ledger);
            let said = own.run_until_cancelled(asking).await;
            if let Err(error) = agent.spend(ledger.total()).await {
                tracing::warn!(%error, "what a server had the model say was not counted");
            }
            said.unwrap_or_else(|| Err("cancelled".into()))
        });
        asked.await.unwrap_or_else(|_| Err("the model's answer was lost".into()))
    }

    fn call(&self, agent: &Agent, model: &Model, sample: Sample) -> ModelCall {
        let message = |(role, text)| Arc::new(Message::new(role, text, Meta::default()));
        let most = sample.max_tokens.min(SAMPLE_TOKENS_MAX);
        let asker = agent.look().asker(agent.account(), Urgency::Usual);
        ModelCall {
            system: sample.system.into(),
            max_tokens: Some(model.info.answer_max().map_or(most, |max| max.min(most))),
            asker: Asker { observer: Some(self.observer.clone()), ..asker },
            recurs: Recurs::Nothing,
            ..ModelCall::of(model.info.clone(), sample.said.into_iter().map(message))
        }
    }

    async fn ask(
        &self,
        agent: &Agent,
        model: &Model,
        call: &ModelCall,
        ledger: &Ledger,
    ) -> Result<Sampled, String> {
        let asked = Tally::ask(ledger, self.observer.clone(), agent.id(), model, call).await;
        let mut tally = asked.map_err(|error| error.to_string())?;
        let answer = &tally.answer;
        let is_cut = answer.stop.reason.is_cut();
        match answer.stop.reason {
            StopReason::EndTurn | StopReason::Other => {}
            _ if is_cut => {}
            reason => return Err(format!("the model stopped: {}", reason.name())),
        }
        let text = answer.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        let sampled = Sampled { text: text.collect(), model: model.info.id.to_string(), is_cut };
        tally.kept = true;
        Ok(sampled)
    }
}
