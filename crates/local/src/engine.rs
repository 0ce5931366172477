//! The thread that runs the model, for everybody at once.
//!
//! Each step reads one token of every answer that is being written and a share of every prompt that is being read, all
//! in one pass over the weights. So nobody waits for another's answer to end, a long prompt holds nobody up for more
//! than a step, and a step for many costs little more than a step for one. Who hangs up is gone by the next step.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};

use nexus_core::provider::{ProviderError, ProviderEvent, Usage};
use tokio::sync::mpsc::UnboundedSender;

use crate::Fault;
use crate::forward::{Row, forward};
use crate::grammar::{Grammar, Grammars};
use crate::kernels::Machine;
use crate::kv::{Kv, Shelf};
use crate::sample::{Sampler, Sampling};
use crate::template::Template;
use crate::tokenizer::{Decoder, Vocabulary};
use crate::weights::{Shape, Weights};

/// Tokens of prompts that one step reads. A step is what everybody waits for and what a cancel takes: with this many
/// it lasts about a tenth of a second on one slow core, and reading is hardly slower than with more.
const PROMPT_ROWS_MAX: usize = 32;

/// Answers that are written at once; as many turns as a server runs unless it is told otherwise.
const ACTIVE_MAX: usize = 32;

/// Memory for keys and values, of answers being written and of conversations that may go on: some 11,000 tokens of the
/// default model, which are ten turns of each of sixteen agents.
pub const KV_BYTES_MAX: usize = 512 << 20;

/// Tokens in which an answer under a schema is brought to its end when its own have run out.
const HURRY_TOKENS: usize = 256;

/// Everything of a model that does not change.
pub struct Loaded {
    pub weights: Weights,
    pub vocabulary: Vocabulary,
    pub template: Template,
    pub grammars: OnceLock<Result<Grammars, String>>,
}

impl Loaded {
    /// A grammar for `schema`, at its start.
    pub fn grammar(&self, schema: &serde_json::Value) -> Result<Grammar, String> {
        match self.grammars.get_or_init(|| Grammars::new(&self.vocabulary)) {
            Ok(grammars) => grammars.start(schema),
            Err(error) => Err(error.clone()),
        }
    }
}

/// One answer that somebody wants.
pub struct Request {
    pub prompt: Vec<u32>,
    pub grammar: Option<Grammar>,
    pub tokens_max: usize,
    /// Closed by whoever wants no more.
    pub events: UnboundedSender<Result<ProviderEvent, ProviderError>>,
}

/// A running model. The thread ends with the last handle.
pub struct Engine {
    pub loaded: Arc<Loaded>,
    inbox: mpsc::Sender<Request>,
}

impl Engine {
    pub fn start(loaded: Loaded, threads: usize, sampling: Sampling) -> Result<Self, Fault> {
        let loaded = Arc::new(loaded);
        let (inbox, requests) = mpsc::channel();
        let unstartable = |error: String| Fault::Threads { reason: error };
        let machine = Machine::new(threads).map_err(|error| unstartable(error.to_string()))?;
        let scheduler = Scheduler {
            loaded: loaded.clone(),
            machine,
            sampling,
            waiting: VecDeque::new(),
            active: Vec::new(),
            shelf: Shelf::new(KV_BYTES_MAX),
        };
        std::thread::Builder::new()
            .name("local-model".into())
            .spawn(move || scheduler.run(&requests))
            .map_err(|error| unstartable(error.to_string()))?;
        Ok(Self { loaded, inbox })
    }

    /// Puts a request in line. It comes back when the thread is gone.
    pub fn submit(&self, request: Request) -> Result<(), Box<Request>> {
        self.inbox.send(request).map_err(|mpsc::SendError(request)| Box::new(request))
    }
}

struct Scheduler {
    loaded: Arc<Loaded>,
    machine: Machine,
    sampling: Sampling,
    waiting: VecDeque<Request>,
    active: Vec<Answer>,
    shelf: Shelf,
}

impl Scheduler {
    fn run(mut self, requests: &mpsc::Receiver<Request>) {
        loop {
            if self.active.is_empty() && self.waiting.is_empty() {
                match requests.recv() {
                    Ok(request) => self.waiting.push_back(request),
                    Err(mpsc::RecvError) => return,
                }
            }
            self.waiting.extend(requests.try_iter());
            self.let_go();
            self.admit();
            // Whoever was waited for may have hung up.
            if !self.active.is_empty() {
                self.step();
            }
        }
    }

    /// Forgets who hung up. What was read for them is kept: they may come back with the same conversation.
    fn let_go(&mut self) {
        self.waiting.retain(|request| !request.events.is_closed());
        for answer in self.active.extract_if(.., |answer| answer.events.is_closed()) {
            self.shelf.put(answer.kv);
        }
    }

    /// Lets in who waits, first come first served, as long as there is room to remember them.
    fn admit(&mut self) {
        let shape = &self.loaded.weights.shape;
        while self.active.len() < ACTIVE_MAX
            && let Some(request) = self.waiting.front()
        {
            let taken: usize = self.active.iter().map(|answer| answer.tokens.len()).sum();
            let bytes = (taken + request.prompt.len()) * Kv::token_bytes(shape);
            if bytes > KV_BYTES_MAX && !self.active.is_empty() {
                return;
            }
            if let Some(request) = self.waiting.pop_front() {
                let kv = self.shelf.take(shape, &request.prompt);
                self.active.push(Answer::new(request, kv, self.sampling));
            }
        }
    }

    fn step(&mut self) {
        let tokens: usize = self.active.iter().map(|answer| answer.tokens.len()).sum();
        let active_bytes = tokens * Kv::token_bytes(&self.loaded.weights.shape);
        self.shelf.limit(KV_BYTES_MAX.saturating_sub(active_bytes));
        let rows = plan(&self.active);
        let mut sequences: Vec<&mut Kv> =
            self.active.iter_mut().map(|answer| &mut answer.kv).collect();
        let logits = forward(&self.machine, &self.loaded.weights, &rows, &mut sequences);
        let asked = rows.iter().filter(|row| row.wants_next).map(|row| row.sequence);
        let mut ended = Vec::new();
        for (at, logits) in asked.zip(logits) {
            if self.active[at].advance(logits, &self.loaded) {
                ended.push(at);
            }
        }
        for at in ended.into_iter().rev() {
            self.shelf.put(self.active.remove(at).kv);
        }
    }
}

/// What the next step reads: the last token of each answer, and a fair share of each prompt.
fn plan(active: &[Answer]) -> Vec<Row> {
    let reading = active.iter().filter(|answer| answer.unread().len() > 1).count();
    let share = (PROMPT_ROWS_MAX / reading.max(1)).max(1);
    let mut rows = Vec::new();
    for (sequence, answer) in active.iter().enumerate() {
        let unread = answer.unread();
        let part = &unread[..unread.len().min(share)];
        let whole = part.len() == unread.len();
        rows.extend(part.iter().enumerate().map(|(at, &token)| Row {
            sequence,
            token,
            wants_next: whole && at + 1 == part.len(),
        }));
    }
    rows
}

/// An answer that is being written.
struct Answer {
    /// The prompt and what was written so far. Not all of it may have been read yet.
    tokens: Vec<u32>,
    prompt: usize,
    cached: usize,
    kv: Kv,
    grammar: Option<Grammar>,
    tokens_max: usize,
    sampler: Sampler,
    decoder: Decoder,
    events: UnboundedSender<Result<ProviderEvent, ProviderError>>,
}

impl Answer {
    fn new(request: Request, kv: Kv, sampling: Sampling) -> Self {
        Self {
            prompt: request.prompt.len(),
            tokens: request.prompt,
            cached: kv.len(),
            kv,
            grammar: request.grammar,
            tokens_max: request.tokens_max,
            sampler: Sampler::new(sampling),
            decoder: Decoder::default(),
            events: request.events,
        }
    }

    fn unread(&self) -> &[u32] {
        &self.tokens[self.kv.len()..]
    }

    /// Writes one token; true when that was the last.
    fn advance(&mut self, logits: Vec<f32>, loaded: &Loaded) -> bool {
        match self.write(logits, loaded) {
            Ok(false) => false,
            Ok(true) => {
                let rest = self.decoder.finish();
                self.say(ProviderEvent::Text(rest));
                let (input, output) =
                    (self.prompt as u64, (self.tokens.len() - self.prompt) as u64);
                let usage = Usage { input, output, cached: self.cached as u64 };
                let _ = self.events.send(Ok(ProviderEvent::Done(usage)));
                true
            }
            Err(reason) => {
                let _ = self.events.send(Err(ProviderError::Broken(reason)));
                true
            }
        }
    }

    fn write(&mut self, mut logits: Vec<f32>, loaded: &Loaded) -> Result<bool, String> {
        let written = self.tokens.len() - self.prompt;
        let window = loaded.weights.shape.window;
        let hard_max = (self.prompt + self.tokens_max + HURRY_TOKENS).min(window);
        let hurry = self.tokens.len() + HURRY_TOKENS >= hard_max;
        let said = &self.tokens[self.prompt..];
        let token = match &mut self.grammar {
            None => self.sampler.draw(logits, said),
            Some(grammar) => {
                grammar.restrict(&mut logits, hurry)?;
                let words: Vec<u32> =
                    said.iter().copied().filter(|&token| !grammar.is_form(token)).collect();
                self.sampler.draw(logits, &words)
            }
        };
        let stops = loaded.vocabulary.stops.contains(&token);
        if stops {
            let whole = self.grammar.as_mut().is_none_or(Grammar::complete);
            return if whole {
                Ok(true)
            } else {
                Err("the answer ended before it was whole".into())
            };
        }
        self.tokens.push(token);
        let text = self.decoder.push(loaded.vocabulary.bytes(token));
        self.say(ProviderEvent::Text(text));
        match &mut self.grammar {
            None => Ok(written + 1 >= self.tokens_max || self.tokens.len() >= window),
            Some(grammar) => {
                let whole = grammar.accept(token)?;
                if !whole && self.tokens.len() >= hard_max {
                    return if grammar.complete() {
                        Ok(true)
                    } else {
                        Err("the answer does not come to an end under its schema".into())
                    };
                }
                Ok(whole)
            }
        }
    }

    fn say(&self, event: ProviderEvent) {
        if event != ProviderEvent::Text(String::new()) {
            // Whoever hung up is let go at the next step.
            let _ = self.events.send(Ok(event));
        }
    }
}

/// Tokens of the longest prompt that leaves room for an answer, and the window it has to fit in.
pub fn room(shape: &Shape, prompt: usize) -> Option<usize> {
    shape.window.checked_sub(prompt).filter(|room| *room > 0)
}
