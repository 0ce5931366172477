//! Summaries by models: who is asked, how, and what is taken for an answer.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::plan::Plan;
use super::transcript::{entries, pieces};
use super::weigh::{Shown, is_truncated, scaled};
use super::{Compactor, Task, answer_room, margin};
use crate::briefing::earlier;
use crate::ledger::{Ledger, Tally};
use crate::listing::Lesson;
use crate::message::{ATTACHED_BYTES_MAX, Message, Meta, Origin, Part, Role, StopReason};
use crate::on_thread;
use crate::provider::{Asker, Model, ModelCall, ProviderError, Recurs, Urgency};
use crate::redact::redact;

/// The part of a summariser's window that one piece may take: the rest is for its answer and for errors in counting.
const PIECE_PART: f64 = 0.6;

/// Pieces smaller than this would cost more in instructions than they say.
const PIECE_LEAST: u64 = 128;

/// How often what was summarised is summarised again.
const LEVELS_MAX: usize = 3;

/// Pieces that are summarised at the same time.
const PIECES_AT_ONCE: usize = 4;

/// The length that is asked for, in tokens: longer ones are not better, and each call reads them again.
const WANTED_MAX: u64 = 4_096;
const WANTED_LEAST: u64 = 64;

/// Bytes by which a message is recognised.
const BEGINNING_BYTES: usize = 80;

const WHAT_TO_KEEP: &str = "Keep decisions, facts, names, file paths, numbers, what was asked and what is still to be done. Leave \
out greetings and whatever was superseded.";

/// A summary, and who wrote it.
pub(super) struct Summary {
    pub text: String,
    pub origin: Origin,
}

/// How a model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// At the end of the conversation as it stands, so that the provider reads it from its cache.
    InPlace,
    /// With the conversation as a text, in as many pieces as it takes.
    Transcript,
}

/// Asks one model after the other, until one gives a summary that will do.
pub(super) struct Ladder<'a> {
    pub compactor: &'a Compactor,
    pub task: &'a Task<'a>,
    pub plan: &'a Plan,
    pub ledger: &'a Ledger,
}

impl Ladder<'_> {
    pub async fn climb(&self) -> Option<Summary> {
        for (model, way) in self.rungs() {
            let asked = match way {
                Way::InPlace => match self.call_in_place(&model).await {
                    Some((call, tokens)) => self.by_call(&model, call, tokens).await,
                    None => continue,
                },
                Way::Transcript => self.by_transcript(&model).await,
            };
            match asked {
                Ok(text) => return Some(Summary { text, origin: model.origin() }),
                Err(reason) => {
                    self.ledger.discard();
                    tracing::warn!(model = model.alias, ?way, reason, "a summary failed");
                }
            }
        }
        None
    }

    fn rungs(&self) -> Vec<(Model, Way)> {
        let Compactor { models, settings, .. } = self.compactor;
        let own = self.task.model;
        let resolve = |name: &String| match models.resolve(Some(name)) {
            Ok(model) => Some(model),
            Err(error) => {
                tracing::warn!(%error, "a model that was to summarise is not there");
                None
            }
        };
        let configured = settings.model.as_ref().and_then(resolve);
        let configured = configured.filter(|model| !model.is_same(own));
        let mut rungs = Vec::new();
        if configured.is_none() && !self.task.rejected {
            rungs.push((own.clone(), Way::InPlace));
        }
        let fallbacks = own.fallback.iter().filter_map(resolve);
        for model in configured.into_iter().chain([own.clone()]).chain(fallbacks) {
            let same =
                |(other, way): &(Model, Way)| *way == Way::Transcript && other.is_same(&model);
            if !rungs.iter().any(same) {
                rungs.push((model, Way::Transcript));
            }
        }
        rungs
    }

    /// The call that asks for it at the end of the conversation as it stands, and what it weighs, if there is room for it.
    async fn call_in_place(&self, model: &Model) -> Option<(ModelCall, u64)> {
        let Task { now, brief, .. } = self.task;
        let mut words = format!(
            "Stop here, call no tool, and write a summary of this conversation from which you can go on without it. \
             {WHAT_TO_KEEP} Answer with the summary alone, in at most {} words.",
            in_words(self.wanted())
        );
        if let Some(kept) = &self.plan.first_kept {
            let text = kept.text();
            let beginning = &text[..text.floor_char_boundary(BEGINNING_BYTES)];
            words.push_str(&format!(
                " What was said from the message on that begins with {beginning:?} stays as it is: leave that out."
            ));
        }
        // What a provider has refused must not stand before this, or it would be refused as well.
        let last = now.conversation.context().last().cloned();
        let refused =
            |it: &Message| it.meta.made.as_ref().is_some_and(|made| made.stop.reason.is_refused());
        let turn = last.filter(|it| !refused(it)).and_then(|it| it.meta.turn.clone());
        let meta = Meta { turn, ..Meta::default() };
        let asked = Arc::new(Message::of_parts(Role::User, vec![Part::Context(words)], meta));
        let shown = Shown::of(&now.conversation, Some(&asked));
        let messages = shown.messages().clone();
        let tokens = self.compactor.scales.weigh(shown, model, brief).await;
        let attached = now.conversation.attached_bytes();
        if tokens + answer_room(model) > u64::from(model.context_window)
            || attached > ATTACHED_BYTES_MAX
        {
            return None;
        }
        let call = ModelCall {
            model: model.info.clone(),
            reasoning: now.settings.reasoning.unwrap_or(model.reasoning),
            system: brief.system.clone(),
            tools: brief.tools.clone(),
            earlier: earlier(&messages, model, brief),
            messages,
            max_tokens: left_for_answer(model, tokens),
            schema: None,
            strict: false,
            asker: self.asker(),
            recurs: Recurs::Beginning,
        };
        Some((call, tokens))
    }

    async fn by_call(&self, model: &Model, call: ModelCall, tokens: u64) -> Result<String, String> {
        let heard = self.ask(model, &call).await?;
        heard.check_read(model, tokens)?;
        self.checked(heard.text).await
    }

    async fn by_transcript(&self, model: &Model) -> Result<String, String> {
        let older = self.plan.older.clone();
        let mut texts = on_thread(move || entries(&older)).await;
        for _ in 0..LEVELS_MAX {
            let Level { shown, summaries } = self.level(model, texts).await?;
            let joined = summaries.join("\n\n");
            let tokens = self.count(joined.clone()).await;
            if tokens <= self.plan.most {
                return self.checked(joined).await;
            }
            if tokens >= shown {
                break;
            }
            texts = summaries;
        }
        Err("what it wrote is too long".into())
    }

    /// Summarises each piece of a text.
    async fn level(&self, model: &Model, texts: Vec<String>) -> Result<Level, String> {
        let scales = self.compactor.scales.clone();
        let ratio = scales.ratio(model);
        let room = (f64::from(model.context_window) * PIECE_PART / ratio) as u64;
        // The numbers in it are a few letters more or less.
        let instructions = self.count(transcript_words(WANTED_MAX)).await;
        let most = room.saturating_sub(instructions);
        if most < PIECE_LEAST {
            return Err("its window is too small".into());
        }
        let pieces = on_thread(move || pieces(texts, most, |text| scales.text(text))).await;
        let shown = pieces.iter().map(|(_, tokens)| tokens).sum();
        let wanted = (self.wanted() / pieces.len().max(1) as u64).max(WANTED_LEAST);
        let asked = stream::iter(pieces)
            .map(|(piece, tokens)| self.piece(model, piece, tokens + instructions, wanted));
        let summaries = asked.buffered(PIECES_AT_ONCE).try_collect().await?;
        Ok(Level { shown, summaries })
    }

    /// Summarises a piece that has so many tokens with its instructions.
    async fn piece(
        &self,
        model: &Model,
        piece: String,
        tokens: u64,
        wanted: u64,
    ) -> Result<String, String> {
        let scales = &self.compactor.scales;
        let weight = scaled(tokens, scales.ratio(model));
        let message = Arc::new(Message::new(Role::User, piece, Meta::default()));
        let call = ModelCall {
            system: transcript_words(wanted).into(),
            max_tokens: left_for_answer(model, weight),
            asker: self.asker(),
            recurs: Recurs::Nothing,
            ..ModelCall::of(model.info.clone(), [message])
        };
        let heard = self.ask(model, &call).await?;
        heard.check_read(model, weight)?;
        if let Some(input) = heard.input {
            scales.learn(model, input, tokens, crate::now());
        }
        Ok(heard.text)
    }

    /// The whole answer to a call, if it is one.
    async fn ask(&self, model: &Model, call: &ModelCall) -> Result<Heard, String> {
        let (observer, agent) = (self.compactor.observer.clone(), self.task.now.id.clone());
        let asked = Tally::ask(self.ledger, observer, agent, model, call).await;
        let mut tally = asked.map_err(|error| self.failed(model, error))?;
        let answer = &tally.answer;
        match answer.stop.reason {
            StopReason::EndTurn | StopReason::Other => {}
            reason => return Err(format!("it stopped: {}", reason.name())),
        }
        let mut text = String::new();
        for part in &answer.parts {
            match part {
                Part::Text(piece) => text.push_str(piece),
                Part::Call(_) => return Err("it called a tool instead".into()),
                Part::Context(_) | Part::Thought(_) | Part::Attachment(_) => {}
            }
        }
        if text.trim().is_empty() {
            return Err("it was empty".into());
        }
        let input = Some(answer.usage).filter(|usage| !usage.estimated && usage.input > 0);
        let input = input.map(|usage| usage.input);
        tally.kept = true;
        Ok(Heard { text, input })
    }

    fn failed(&self, model: &Model, error: ProviderError) -> String {
        if let ProviderError::TooLong { window: Some(window), .. } = error {
            self.compactor.models.learn(model, Lesson::window(window));
        }
        error.to_string()
    }

    /// A summary as it may be kept, if it is short enough.
    async fn checked(&self, summary: String) -> Result<String, String> {
        let summary = redact(summary.trim());
        match self.count(summary.clone()).await <= self.plan.most {
            true => Ok(summary),
            false => Err("what it wrote is too long".into()),
        }
    }

    async fn count(&self, text: String) -> u64 {
        let scales = self.compactor.scales.clone();
        on_thread(move || scales.text(&text)).await
    }

    /// How many tokens are asked for.
    fn wanted(&self) -> u64 {
        (self.plan.most / 2).min(WANTED_MAX)
    }

    fn asker(&self) -> Asker {
        let observer = Some(self.compactor.observer.clone());
        let asker = self.task.now.asker(self.task.agent.account(), Urgency::Background);
        Asker { observer, ..asker }
    }
}

/// What was shown in pieces, in tokens, and what came of each.
struct Level {
    shown: u64,
    summaries: Vec<String>,
}

/// What a model has answered, and what its provider has counted for the question.
struct Heard {
    text: String,
    input: Option<u64>,
}

impl Heard {
    /// Refuses what was said of a half that was read in silence.
    fn check_read(&self, model: &Model, weight: u64) -> Result<(), String> {
        let window = model.context_window.into();
        match self.input.is_some_and(|input| is_truncated(input, weight, window)) {
            true => Err("less than half of it was read".into()),
            false => Ok(()),
        }
    }
}

fn transcript_words(wanted: u64) -> String {
    format!(
        "You are shown a part of a conversation between a user and an assistant. Summarise it so that the assistant can go on \
         without it. {WHAT_TO_KEEP} Answer with the summary alone, in at most {} words.",
        in_words(wanted)
    )
}

/// About how many words so many tokens are.
fn in_words(tokens: u64) -> u64 {
    (tokens * 3 / 4).max(1)
}

/// The bound on the answer to a call that weighs so much.
fn left_for_answer(model: &Model, tokens: u64) -> Option<u32> {
    let left = u64::from(model.context_window).saturating_sub(tokens + margin(model));
    let left = u32::try_from(left).unwrap_or(u32::MAX).max(1);
    model.answer_max().map(|most| most.min(left))
}
