//! The thread that runs the model, for everybody at once.
//!
//! Each step reads one token of every answer that is being written and a share of every prompt that is being read, all
//! in one pass over the weights. So nobody waits for another's answer to end, a long prompt holds nobody up for more
//! than a step, and a step for many costs little more than a step for one. Who hangs up is gone by the next step.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};

use nexus_core::message::{Part, StopReason};
use nexus_core::provider::{self, ProviderError, ProviderEvent};
use nexus_core::usage::{Cost, Usage};
use tokio::sync::mpsc::UnboundedSender;

use crate::Fault;
use crate::arithmetic::{Arithmetic, Memory, Row};
use crate::grammar::{Grammar, Grammars};
use crate::kv::Shelf;
use crate::said::Said;
use crate::sample::{Sampler, Sampling};
use crate::template::Template;
use crate::tokenizer::{Decoder, Vocabulary};

/// Tokens of prompts that one step reads. A step is what everybody waits for and what a cancel takes: with this many
/// it lasts about a tenth of a second on one slow core, and reading is hardly slower than with more.
const PROMPT_ROWS_MAX: usize = 32;

/// Answers that are written at once; as many turns as a server runs unless it is told otherwise.
const ACTIVE_MAX: usize = 32;

/// Rows that one step reads at most: each prompt gets at least one of its share, each answer has one.
#[cfg(feature = "llama-cpp")]
pub const ROWS_MAX: usize = PROMPT_ROWS_MAX + ACTIVE_MAX;

/// Tokens in which an answer under a schema is brought to its end when its own have run out.
const HURRY_TOKENS: usize = 256;

/// What all answers of a model share, but what it is computed with.
pub struct Loaded {
    /// Most tokens that a conversation may have.
    pub window: usize,
    pub vocabulary: Vocabulary,
    pub template: Template,
    /// How the last answers were written.
    pub said: Said,
    grammars: OnceLock<Result<Grammars, String>>,
}

impl Loaded {
    pub fn new(window: usize, vocabulary: Vocabulary, template: Template) -> Self {
        Self { window, vocabulary, template, said: Said::default(), grammars: OnceLock::new() }
    }

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
    /// Starts the thread. `work` makes there what the model is computed with, and serves with it.
    pub fn start(
        loaded: Loaded,
        sampling: Sampling,
        work: impl FnOnce(Desk) -> Result<(), Fault> + Send + 'static,
    ) -> Result<Self, Fault> {
        let loaded = Arc::new(loaded);
        let (inbox, requests) = mpsc::channel();
        let (ready, started) = mpsc::channel();
        let failed = ready.clone();
        let desk = Desk { loaded: loaded.clone(), sampling, requests, ready };
        std::thread::Builder::new()
            .name("local-model".into())
            .spawn(move || {
                if let Err(fault) = work(desk) {
                    let _ = failed.send(Err(fault));
                }
            })
            .map_err(|error| Fault::Threads { reason: error.to_string() })?;
        started.recv().unwrap_or(Err(Fault::Panicked))?;
        Ok(Self { loaded, inbox })
    }

    /// Puts a request in line. It comes back when the thread is gone.
    pub fn submit(&self, request: Request) -> Result<(), Box<Request>> {
        self.inbox.send(request).map_err(|mpsc::SendError(request)| Box::new(request))
    }
}

/// Where requests come in, on the model's thread.
pub struct Desk {
    loaded: Arc<Loaded>,
    sampling: Sampling,
    requests: mpsc::Receiver<Request>,
    ready: mpsc::Sender<Result<(), Fault>>,
}

impl Desk {
    /// Answers requests until nobody is left who could make one.
    pub fn serve(self, arithmetic: impl Arithmetic) {
        let active_max = ACTIVE_MAX.min(arithmetic.sequences_max() / 2).max(1);
        // One that is let in may need a sequence of its own beside all that are kept.
        let kept_max = arithmetic.sequences_max().saturating_sub(active_max);
        let scheduler = Scheduler {
            shelf: Shelf::new(arithmetic.tokens_max(), kept_max),
            arithmetic,
            loaded: self.loaded,
            sampling: self.sampling,
            waiting: VecDeque::new(),
            active: Vec::new(),
            active_max,
        };
        let _ = self.ready.send(Ok(()));
        scheduler.run(&self.requests);
    }
}

struct Scheduler<A: Arithmetic> {
    arithmetic: A,
    loaded: Arc<Loaded>,
    sampling: Sampling,
    waiting: VecDeque<Answer>,
    active: Vec<Active<A::Memory>>,
    active_max: usize,
    shelf: Shelf<A::Memory>,
}

/// An answer that is being written, and what was read for it.
struct Active<M> {
    answer: Answer,
    memory: M,
}

impl<M: Memory> Active<M> {
    fn unread(&self) -> &[u32] {
        &self.answer.tokens[self.memory.tokens().len()..]
    }
}

impl<A: Arithmetic> Scheduler<A> {
    fn run(mut self, requests: &mpsc::Receiver<Request>) {
        loop {
            if self.active.is_empty() && self.waiting.is_empty() {
                match requests.recv() {
                    Ok(request) => self.waiting.push_back(Answer::new(request, self.sampling)),
                    Err(mpsc::RecvError) => return,
                }
            }
            let asked = requests.try_iter().map(|request| Answer::new(request, self.sampling));
            self.waiting.extend(asked);
            self.let_go();
            self.admit();
            self.make_room();
            // Whoever was waited for may have hung up.
            if !self.active.is_empty() {
                self.step();
            }
        }
    }

    /// Forgets who hung up. What was read for them is kept: they may come back with the same conversation.
    fn let_go(&mut self) {
        self.waiting.retain(|answer| !answer.events.is_closed());
        for gone in self.active.extract_if(.., |active| active.answer.events.is_closed()) {
            gone.answer.note(&self.loaded);
            self.shelf.put(gone.memory);
        }
    }

    /// Lets in who waits, first come first served, as long as there is room to remember them.
    fn admit(&mut self) {
        while self.active.len() < self.active_max
            && let Some(answer) = self.waiting.front()
        {
            let tokens = self.tokens() + answer.tokens.len();
            if tokens > self.arithmetic.tokens_max() && !self.active.is_empty() {
                return;
            }
            if let Some(mut answer) = self.waiting.pop_front() {
                let kept = self.shelf.take(&answer.tokens);
                let memory = kept.unwrap_or_else(|| self.arithmetic.begin());
                answer.cached.get_or_insert(memory.tokens().len());
                self.active.push(Active { answer, memory });
            }
        }
    }

    /// Sends who came last back to the front of the line when all together have grown too long to be remembered. They
    /// go on where they were as soon as others have ended; what they have written stays written.
    fn make_room(&mut self) {
        while self.active.len() > 1
            && self.tokens() > self.arithmetic.tokens_max()
            && let Some(last) = self.active.pop()
        {
            self.shelf.put(last.memory);
            self.waiting.push_front(last.answer);
        }
    }

    /// Tokens that have to be remembered for all answers that are being written, with those the next step reads.
    fn tokens(&self) -> usize {
        self.active.iter().map(|active| active.answer.tokens.len()).sum()
    }

    fn step(&mut self) {
        self.shelf.limit(self.arithmetic.tokens_max().saturating_sub(self.tokens()));
        let rows = plan(&self.active);
        let mut memories: Vec<&mut A::Memory> =
            self.active.iter_mut().map(|active| &mut active.memory).collect();
        let logits = match self.arithmetic.forward(&rows, &mut memories) {
            Ok(logits) => logits,
            Err(reason) => {
                for failed in self.active.drain(..) {
                    failed.answer.fail(reason.clone());
                }
                return;
            }
        };
        let asked = rows.iter().filter(|row| row.wants_next).map(|row| row.sequence);
        let mut ended = Vec::new();
        for (at, logits) in asked.zip(logits) {
            if self.active[at].answer.advance(logits, &self.loaded) {
                ended.push(at);
            }
        }
        for at in ended.into_iter().rev() {
            self.shelf.put(self.active.remove(at).memory);
        }
    }
}

/// What the next step reads: the last token of each answer, and a fair share of each prompt.
fn plan<M: Memory>(active: &[Active<M>]) -> Vec<Row> {
    let reading = active.iter().filter(|active| active.unread().len() > 1).count();
    let share = (PROMPT_ROWS_MAX / reading.max(1)).max(1);
    let mut rows = Vec::new();
    for (sequence, active) in active.iter().enumerate() {
        let unread = active.unread();
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

/// An answer that is wanted.
struct Answer {
    /// The prompt and what was written so far. Not all of it may have been read yet.
    tokens: Vec<u32>,
    prompt: usize,
    /// Tokens of the prompt that were remembered when it was first let in.
    cached: Option<usize>,
    grammar: Option<Grammar>,
    tokens_max: usize,
    sampler: Sampler,
    decoder: Decoder,
    text: String,
    /// Why it is over, once it is.
    stop: StopReason,
    events: UnboundedSender<Result<ProviderEvent, ProviderError>>,
}

impl Answer {
    fn new(request: Request, sampling: Sampling) -> Self {
        Self {
            prompt: request.prompt.len(),
            tokens: request.prompt,
            cached: None,
            grammar: request.grammar,
            tokens_max: request.tokens_max,
            sampler: Sampler::new(sampling),
            decoder: Decoder::default(),
            text: String::new(),
            stop: StopReason::EndTurn,
            events: request.events,
        }
    }

    /// Notes how it was written, before anybody can come back with it. What is not whole letters is cut anew when it is
    /// read.
    fn note(&self, loaded: &Loaded) {
        let written = &self.tokens[self.prompt..];
        let bytes: Vec<u8> =
            written.iter().flat_map(|&token| loaded.vocabulary.bytes(token)).copied().collect();
        if let Ok(text) = String::from_utf8(bytes)
            && !text.trim().is_empty()
        {
            loaded.said.put(text.trim().into(), written);
        }
    }

    /// Writes one token; true when that was the last.
    fn advance(&mut self, logits: Vec<f32>, loaded: &Loaded) -> bool {
        match self.write(logits, loaded) {
            Ok(false) => false,
            Ok(true) => {
                let rest = self.decoder.finish();
                self.say(rest);
                self.note(loaded);
                let usage = Usage {
                    input: self.prompt as u64,
                    cache_read: self.cached.unwrap_or(0) as u64,
                    output: (self.tokens.len() - self.prompt) as u64,
                    ..Usage::default()
                };
                let answer = provider::Answer {
                    parts: vec![Part::Text(std::mem::take(&mut self.text))],
                    stop: self.stop.into(),
                    usage,
                    cost: Some(Cost::default()),
                };
                let _ = self.events.send(Ok(ProviderEvent::Done(Box::new(answer))));
                true
            }
            Err(reason) => {
                self.fail(reason);
                true
            }
        }
    }

    fn fail(&self, reason: String) {
        let _ = self.events.send(Err(ProviderError::Broken(reason)));
    }

    fn write(&mut self, mut logits: Vec<f32>, loaded: &Loaded) -> Result<bool, String> {
        // Who hung up meanwhile has what was written before.
        if self.events.is_closed() {
            return Ok(true);
        }
        let written = self.tokens.len() - self.prompt;
        let window = loaded.window;
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
        self.say(text);
        match &mut self.grammar {
            None => {
                let full = written + 1 >= self.tokens_max || self.tokens.len() >= window;
                if full {
                    self.stop = StopReason::MaxTokens;
                }
                Ok(full)
            }
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

    fn say(&mut self, text: String) {
        if !text.is_empty() {
            self.text.push_str(&text);
            // Whoever hung up is let go at the next step.
            let _ = self.events.send(Ok(ProviderEvent::Text(text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use crate::tokenizer::Plain;

    /// Says after each sequence what the sum of its tokens is, and holds no more than it may.
    struct Sums {
        tokens_max: usize,
        held: Rc<Cell<usize>>,
    }

    struct Held {
        tokens: Vec<u32>,
        held: Rc<Cell<usize>>,
    }

    const LETTERS: u32 = 26;

    impl Arithmetic for Sums {
        type Memory = Held;

        fn tokens_max(&self) -> usize {
            self.tokens_max
        }

        fn sequences_max(&self) -> usize {
            16
        }

        fn begin(&self) -> Held {
            Held { tokens: Vec::new(), held: self.held.clone() }
        }

        fn forward(
            &mut self,
            rows: &[Row],
            memories: &mut [&mut Held],
        ) -> Result<Vec<Vec<f32>>, String> {
            let mut logits = Vec::new();
            for row in rows {
                let memory = &mut *memories[row.sequence];
                memory.tokens.push(row.token);
                self.held.set(self.held.get() + 1);
                if row.wants_next {
                    let next = memory.tokens.iter().sum::<u32>() % LETTERS;
                    logits.push((0..LETTERS).map(|at| f32::from(at == next)).collect());
                }
            }
            match self.held.get() {
                held if held > self.tokens_max => Err(format!("{held} tokens are held")),
                _ => Ok(logits),
            }
        }
    }

    impl Memory for Held {
        fn tokens(&self) -> &[u32] {
            &self.tokens
        }

        fn copied(&self, length: usize) -> Self {
            self.held.set(self.held.get() + length);
            Self { tokens: self.tokens[..length].to_vec(), held: self.held.clone() }
        }

        fn truncate(&mut self, length: usize) {
            self.held.set(self.held.get() + length - self.tokens.len());
            self.tokens.truncate(length);
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            self.held.set(self.held.get() - self.tokens.len());
        }
    }

    struct Nothing;

    impl Plain for Nothing {
        fn encode(&self, _: &str, _: &mut Vec<u32>) {}
    }

    fn engine(tokens_max: usize) -> Engine {
        let letters = (b'a'..=b'z').map(|letter| vec![letter]).collect();
        let vocabulary = Vocabulary::new(Box::new(Nothing), letters, Vec::new(), Vec::new(), None);
        let template = Template::new(None, String::new(), String::new()).unwrap();
        let cold = Sampling { temperature: 0.0, repetition_penalty: 1.0, ..Sampling::default() };
        Engine::start(Loaded::new(1000, vocabulary, template), cold, move |desk| {
            desk.serve(Sums { tokens_max, held: Rc::default() });
            Ok(())
        })
        .unwrap()
    }

    type Events = UnboundedReceiver<Result<ProviderEvent, ProviderError>>;

    fn ask(engine: &Engine, prompt: &[u32], tokens_max: usize) -> Events {
        let (events, answer) = unbounded_channel();
        let request = Request { prompt: prompt.to_vec(), grammar: None, tokens_max, events };
        engine.submit(request).ok().unwrap();
        answer
    }

    fn text(mut answer: Events) -> String {
        let mut text = String::new();
        while let Some(event) = answer.blocking_recv() {
            if let ProviderEvent::Text(piece) = event.unwrap() {
                text.push_str(&piece);
            }
        }
        text
    }

    #[test]
    fn who_does_not_fit_with_the_others_waits_and_goes_on_where_it_was() {
        let prompts: Vec<Vec<u32>> = (1..=6).map(|at| vec![at, 2 * at, 7]).collect();
        let alone: Vec<_> =
            prompts.iter().map(|prompt| text(ask(&engine(1000), prompt, 40))).collect();
        assert!(alone.iter().all(|text| text.len() == 40));
        // Six answers of 43 tokens, where two and a half have room.
        let narrow = engine(110);
        let asked: Vec<_> = prompts.iter().map(|prompt| ask(&narrow, prompt, 40)).collect();
        let together: Vec<_> = asked.into_iter().map(text).collect();
        assert_eq!(together, alone);
    }

    #[test]
    fn a_step_that_fails_is_the_end_of_its_answers_and_not_of_the_model() {
        let engine = engine(20);
        // Alone an answer may grow past the room: then it is up to the arithmetic, and this one refuses.
        let mut answer = ask(&engine, &[1, 2, 3], 40);
        let last = std::iter::from_fn(|| answer.blocking_recv()).last().unwrap();
        let reason = last.unwrap_err().to_string();
        assert!(reason.contains("21 tokens are held"), "{reason}");
        assert_eq!(text(ask(&engine, &[1, 2, 3], 5)).len(), 5);
    }
}
