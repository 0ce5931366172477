//! llama.cpp behind [`Arithmetic`]: the same scheduler, template, sampler and grammars, with its files, its vocabulary
//! and its products of matrices.
//!
//! One context holds all sequences, in cells that any of them may use; a conversation that begins as another did shares
//! the cells of the beginning. What conversations may take together is fixed when the context is made: llama.cpp takes
//! that memory at once.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroU32;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llama_cpp_2::LogOptions;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::gguf::GgufContext;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token_type::LlamaTokenAttr;
use llama_cpp_2::vocab::LlamaVocab;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;

use crate::arithmetic::{Arithmetic, Memory, Row};
use crate::engine::{Engine, Loaded, ROWS_MAX};
use crate::sample::Sampling;
use crate::template::Template;
use crate::tokenizer::{Plain, Vocabulary};
use crate::weights::Gguf;
use crate::{Fault, ModelFile, memory};

/// Memory for keys and values that every model gets: some 11,000 tokens of the default one.
const CELL_BYTES: u64 = 256 << 20;

/// Memory for keys and values of a model whose window is larger than that.
const CELL_BYTES_MAX: u64 = 2 << 30;

/// Windows that are held at once at most. Small models would get millions of cells, and each costs when they are looked
/// through.
const WINDOWS_MAX: u64 = 16;

/// With less than this no conversation is possible.
const WINDOW_MIN: u64 = 512;

/// Sequences of a context: those being written, and as many more that are kept. llama.cpp aborts when they are more than
/// the rows of a batch, and each costs it the logits of one token.
const SEQUENCES_MAX: u32 = ROWS_MAX as u32;

/// As above, where each sequence has a state of its own, of megabytes.
const STATES_MAX: u32 = 8;

/// llama.cpp itself, which a process starts once. It says nothing on standard error; its warnings go to the log.
pub fn backend() -> Result<&'static LlamaBackend, Fault> {
    static BACKEND: OnceLock<Result<LlamaBackend, String>> = OnceLock::new();
    let started = BACKEND.get_or_init(|| {
        fit()?;
        llama_cpp_2::send_logs_to_tracing(LogOptions::default());
        LlamaBackend::init().map_err(|error| error.to_string())
    });
    started.as_ref().map_err(|reason| Fault::Machine { reason: reason.clone() })
}

/// llama.cpp is compiled for processors of the last ten years; on an older one it would end the whole program.
#[cfg(target_arch = "x86_64")]
fn fit() -> Result<(), String> {
    let has = [
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("FMA", is_x86_feature_detected!("fma")),
        ("F16C", is_x86_feature_detected!("f16c")),
        ("BMI2", is_x86_feature_detected!("bmi2")),
    ];
    match has.iter().find(|(_, has)| !has) {
        Some((name, _)) => Err(format!("its processor has no {name}")),
        None => Ok(()),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fit() -> Result<(), String> {
    Ok(())
}

/// Reads a file and starts an engine that runs it.
pub fn load(path: &Path, threads: usize) -> Result<Engine, Fault> {
    let bytes = readable(path)?;
    memory::check(bytes, memory::available())?;
    let model = open(path, LlamaModelParams::default().with_n_gpu_layers(0))?;
    let head = Head { model: &model, path };
    head.check()?;
    let template = head.template()?;
    let vocabulary = vocabulary(&model);
    let token_bytes = head.token_bytes();
    // The weights lie in the file's own pages: they are needed, whether they count as taken by now or not.
    let available = memory::available().map_or(u64::MAX, |free| free.saturating_sub(bytes));
    let cells = cells(u64::from(model.n_ctx_train()), token_bytes, available)?;
    memory::check(bytes.saturating_add(cells * token_bytes), memory::available())?;
    let window = cells.min(u64::from(model.n_ctx_train())) as usize;
    let loaded = Loaded::new(window, vocabulary, template);
    Engine::start(loaded, Sampling::default(), move |desk| {
        desk.serve(LlamaCpp::new(&model, cells, threads)?);
        Ok(())
    })
}

/// Checks that llama.cpp knows how to run a file.
pub fn inspect(path: &Path) -> Result<ModelFile, Fault> {
    readable(path)?;
    let model = open(path, LlamaModelParams::default().with_vocab_only(true))?;
    let head = Head { model: &model, path };
    head.check()?;
    head.template()?;
    let window = head.number("context_length").unwrap_or(0) as usize;
    Ok(ModelFile { name: model.meta_val_str("general.name").ok(), window })
}

/// How a file writes conversations down, without what it computes with them.
#[cfg(test)]
pub fn words(path: &Path) -> Result<(Vocabulary, Template), Fault> {
    let model = open(path, LlamaModelParams::default().with_vocab_only(true))?;
    Ok((vocabulary(&model), Head { model: &model, path }.template()?))
}

/// The length of a file that can be read and begins as a GGUF file does.
fn readable(path: &Path) -> Result<u64, Fault> {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Fault::NoWeights { path: path.into() },
        _ => Fault::Unreadable { path: path.into(), reason: error.to_string() },
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let mut magic = [0; 4];
    if file.read_exact(&mut magic).is_err() || &magic != b"GGUF" {
        return Err(Fault::Damaged { path: path.into(), reason: "it begins otherwise".into() });
    }
    Ok(length)
}

fn open(path: &Path, params: LlamaModelParams) -> Result<Arc<LlamaModel>, Fault> {
    let backend = backend()?;
    sound(path)?;
    // Without a callback llama.cpp draws its progress in dots.
    let params = params.with_progress_callback(|_| true);
    let complaints = Complaints::default();
    let model = tracing::subscriber::with_default(complaints.clone(), || {
        LlamaModel::load_from_file(backend, path, &params)
    });
    model.map(Arc::new).map_err(|error| {
        // The sentence goes to callers, whom the server's directories do not concern.
        let reason = complaints.first().unwrap_or_else(|| error.to_string());
        let reason = reason.replace(&path.display().to_string(), "the file");
        match architecture(path) {
            Some(architecture) if !reason.contains("corrupted") => Fault::Unsupported {
                path: path.into(),
                reason: format!("its architecture is {architecture:?}, and {reason}"),
            },
            _ => Fault::Damaged { path: path.into(), reason },
        }
    })
}

/// The architecture that a file names; `None` when its head cannot be read.
fn architecture(path: &Path) -> Option<String> {
    let head = GgufContext::from_file(path)?;
    let name = text_at(&head, "general.architecture").unwrap_or("unknown");
    Some(name.to_owned())
}

/// Refuses numbers that llama.cpp would not answer with an error: it ends the whole program where they make no sense.
fn sound(path: &Path) -> Result<(), Fault> {
    // What cannot be read at all it refuses by itself.
    let Some(head) = GgufContext::from_file(path) else { return Ok(()) };
    let Some(architecture) = text_at(&head, "general.architecture") else { return Ok(()) };
    let number = |key: &str| number_at(&head, &format!("{architecture}.{key}"));
    let experts = number("expert_count").unwrap_or(0);
    let bounds = [
        ("block_count", 1, LAYERS_MAX),
        ("context_length", 1, SIDE_MAX),
        ("embedding_length", 1, SIDE_MAX),
        ("feed_forward_length", 0, SIDE_MAX),
        ("attention.head_count", 1, SIDE_MAX),
        ("attention.head_count_kv", 1, number("attention.head_count").unwrap_or(SIDE_MAX)),
        ("attention.key_length", 1, SIDE_MAX),
        ("attention.value_length", 1, SIDE_MAX),
        ("expert_count", 0, EXPERTS_MAX),
        ("expert_used_count", u64::from(experts > 0), experts),
    ];
    let damaged = |reason: String| Err(Fault::Damaged { path: path.into(), reason });
    for (key, least, most) in bounds {
        if let Some(number) = number(key).filter(|number| !(least..=most).contains(number)) {
            return damaged(format!("its {architecture}.{key} is {number}"));
        }
    }
    // Only our own reader shows the list; it does not know the rarest formats of weights.
    let tokens = Gguf::open(path);
    let tokens = tokens.as_ref().ok().and_then(|gguf| gguf.strings("tokenizer.ggml.tokens").ok());
    let mut seen = HashSet::new();
    let mut named = tokens.into_iter().flatten().filter(|token| !token.is_empty());
    if named.any(|token| !seen.insert(token)) {
        return damaged("two of its tokens are the same".into());
    }
    Ok(())
}

/// The most layers and experts that llama.cpp has room for.
const LAYERS_MAX: u64 = 512;
const EXPERTS_MAX: u64 = 1024;

/// No model has a dimension larger than this.
const SIDE_MAX: u64 = 1 << 24;

fn number_at(head: &GgufContext, key: &str) -> Option<u64> {
    let at = head.find_key(key);
    // By GGUF's numbering: reading a value as what it is not ends the program too.
    match (at >= 0).then(|| head.kv_type(at))? {
        4 => Some(head.val_u32(at).into()),
        5 => Some(u64::try_from(head.val_i32(at)).unwrap_or(u64::MAX)),
        10 => Some(head.val_u64(at)),
        _ => None,
    }
}

fn text_at<'a>(head: &'a GgufContext, key: &str) -> Option<&'a str> {
    let at = head.find_key(key);
    let is_text = at >= 0 && head.kv_type(at) == 8;
    is_text.then(|| head.val_str(at)).flatten()
}

/// What llama.cpp says when it cannot load a file; its functions return no more than that they failed.
#[derive(Clone, Default)]
struct Complaints(Arc<Mutex<Vec<String>>>);

impl Complaints {
    fn first(&self) -> Option<String> {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = said.iter().find_map(|line| line.split_once("error loading model: "));
        reason.map(|(_, reason)| reason.to_owned()).or_else(|| said.first().cloned())
    }
}

impl tracing::Subscriber for Complaints {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::ERROR)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.0.trim().to_owned());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.0.push_str(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// What the head of a file says.
struct Head<'a> {
    model: &'a LlamaModel,
    path: &'a Path,
}

impl Head<'_> {
    fn architecture(&self) -> String {
        self.model.meta_val_str("general.architecture").unwrap_or_default()
    }

    /// A number that stands under the architecture's name.
    fn number(&self, key: &str) -> Option<u64> {
        let key = format!("{}.{key}", self.architecture());
        self.model.meta_val_str(&key).ok()?.parse().ok()
    }

    /// Refuses what llama.cpp can load but what writes no text.
    fn check(&self) -> Result<(), Fault> {
        let architecture = self.architecture();
        let causal = self.model.meta_val_str(&format!("{architecture}.attention.causal")).ok();
        let encodes = ["bert", "t5"].iter().any(|kind| architecture.contains(kind));
        if encodes || causal.as_deref() == Some("false") || self.model.n_vocab() < 1 {
            return Err(self.unsupported(format!(
                "its architecture is {architecture:?}, and it does not write text"
            )));
        }
        Ok(())
    }

    fn template(&self) -> Result<Template, Fault> {
        let source = self.model.chat_template(None).ok().and_then(|it| it.to_string().ok());
        let vocab = self.model.vocab();
        // llama.cpp has a number for these even where the file has none; it then stands for some letter.
        let control = |token: LlamaToken| {
            let is_control = token.0 >= 0 && vocab.is_control(token);
            if is_control { text(&vocab, token) } else { String::new() }
        };
        let (bos, eos) = (control(vocab.bos()), control(vocab.eos()));
        Template::new(source, bos, eos).map_err(|reason| self.unsupported(reason))
    }

    /// Bytes that the keys and values of one token take, as numbers of sixteen bits.
    fn token_bytes(&self) -> u64 {
        let heads = u64::from(self.model.n_head().max(1));
        let kv_heads = match u64::from(self.model.n_head_kv()) {
            0 => heads,
            kv_heads => kv_heads,
        };
        let width = u64::from(self.model.n_embd().unsigned_abs()) / heads;
        let key = self.number("attention.key_length").unwrap_or(width);
        let value = self.number("attention.value_length").unwrap_or(width);
        (u64::from(self.model.n_layer()) * kv_heads * (key + value) * 2).max(1)
    }

    fn unsupported(&self, reason: String) -> Fault {
        Fault::Unsupported { path: self.path.into(), reason }
    }
}

/// Tokens that all conversations together may have, with so many free bytes.
fn cells(window: u64, token_bytes: u64, available: u64) -> Result<u64, Fault> {
    let wanted = (CELL_BYTES / token_bytes).clamp(window, window.saturating_mul(WINDOWS_MAX));
    let bytes_max = CELL_BYTES_MAX.min(available / 2);
    let cells = wanted.min(bytes_max / token_bytes);
    let least = window.min(WINDOW_MIN);
    if cells < least {
        return Err(Fault::Memory {
            needed_mib: (2 * least * token_bytes).div_ceil(1 << 20),
            available_mib: available >> 20,
        });
    }
    Ok(cells)
}

/// The vocabulary of a model, with its own tokenizer.
fn vocabulary(model: &Arc<LlamaModel>) -> Vocabulary {
    let vocab = model.vocab();
    let template = model.chat_template(None).ok().and_then(|it| it.to_string().ok());
    let mut bytes = Vec::new();
    let (mut special, mut stops, mut spelled) = (Vec::new(), Vec::new(), Vec::new());
    for token in vocab.tokens() {
        let attributes = vocab.attr(token);
        let is_stop = vocab.is_eog(token);
        let mut is_special = is_stop
            || attributes.intersects(
                LlamaTokenAttr::Control | LlamaTokenAttr::Unused | LlamaTokenAttr::Unknown,
            );
        if attributes.contains(LlamaTokenAttr::UserDefined) {
            // Some files call the marks of their turns so, and the tokenizer finds these in every text.
            let text = text(&vocab, token);
            let is_mark = (text.starts_with('<') && text.ends_with('>'))
                || (text.starts_with('[') && text.ends_with(']'));
            is_special |= is_mark && template.as_ref().is_some_and(|it| it.contains(&text));
            if is_special {
                spelled.push(text);
            }
        }
        let id = token.0.unsigned_abs();
        if is_stop {
            stops.push(id);
        }
        if is_special {
            special.push((text(&vocab, token), id));
            bytes.push(Vec::new());
        } else {
            bytes.push(vocab.token_to_piece(token, false, None));
        }
    }
    special.retain(|(text, _)| !text.is_empty());
    let bos = vocab.bos();
    let bos = (vocab.should_add_bos() && bos.0 >= 0).then(|| bos.0.unsigned_abs());
    let plain = Tokenizer { model: model.clone(), spelled };
    Vocabulary::new(Box::new(plain), bytes, special, stops, bos)
}

fn text(vocab: &LlamaVocab<'_>, token: LlamaToken) -> String {
    vocab.text(token).map_or_else(String::new, |text| text.to_string_lossy().into_owned())
}

/// The tokenizer of a model.
struct Tokenizer {
    model: Arc<LlamaModel>,
    /// What shapes a conversation and would be found in plain text too.
    spelled: Vec<String>,
}

impl Plain for Tokenizer {
    fn encode(&self, mut text: &str, out: &mut Vec<u32>) {
        // What is spelled out is cut behind its first character, which no such token survives.
        while let Some(at) = self.spelled.iter().filter_map(|it| text.find(it.as_str())).min() {
            let behind = at + text[at..].chars().next().map_or(0, char::len_utf8);
            self.encode_whole(&text[..behind], out);
            text = &text[behind..];
        }
        self.encode_whole(text, out);
    }
}

impl Tokenizer {
    fn encode_whole(&self, text: &str, out: &mut Vec<u32>) {
        if !text.is_empty() {
            let tokens = self.model.vocab().tokenize(text.as_bytes(), false, false);
            out.extend(tokens.into_iter().map(|token| token.0.unsigned_abs()));
        }
    }
}

/// A context of llama.cpp. Memories share it: each takes a number when it begins and gives it back at its end.
struct LlamaCpp<'model> {
    context: Rc<RefCell<Context<'model>>>,
    cells: usize,
    sequences_max: usize,
}

struct Context<'model> {
    inner: LlamaContext<'model>,
    batch: LlamaBatch<'static>,
    /// Numbers of sequences that nobody has.
    free: Vec<i32>,
}

impl<'model> LlamaCpp<'model> {
    fn new(model: &'model LlamaModel, cells: u64, threads: usize) -> Result<Self, Fault> {
        let has_states = model.is_recurrent() || model.is_hybrid();
        let sequences_max = if has_states { STATES_MAX } else { SEQUENCES_MAX };
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        let params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(u32::try_from(cells).unwrap_or(u32::MAX)))
            .with_n_batch(ROWS_MAX as u32)
            .with_n_ubatch(ROWS_MAX as u32)
            .with_n_seq_max(sequences_max)
            .with_kv_unified(true)
            .with_n_threads(threads)
            .with_n_threads_batch(threads);
        let inner = model
            .new_context(backend()?, params)
            .map_err(|error| Fault::Machine { reason: error.to_string() })?;
        let context = Context {
            inner,
            batch: LlamaBatch::new(ROWS_MAX, 1),
            free: (0..sequences_max.cast_signed()).rev().collect(),
        };
        Ok(Self {
            context: Rc::new(RefCell::new(context)),
            cells: usize::try_from(cells).unwrap_or(usize::MAX),
            sequences_max: sequences_max as usize,
        })
    }
}

impl<'model> Arithmetic for LlamaCpp<'model> {
    type Memory = Sequence<'model>;

    fn tokens_max(&self) -> usize {
        self.cells
    }

    fn sequences_max(&self) -> usize {
        self.sequences_max
    }

    fn begin(&self) -> Sequence<'model> {
        Sequence::new(self.context.clone())
    }

    fn forward(
        &mut self,
        rows: &[Row],
        memories: &mut [&mut Sequence<'model>],
    ) -> Result<Vec<Vec<f32>>, String> {
        let mut context = self.context.borrow_mut();
        let Context { inner, batch, .. } = &mut *context;
        batch.clear();
        for row in rows {
            let sequence = &mut *memories[row.sequence];
            let id = sequence.id.ok_or("llama.cpp has no sequence left")?;
            let (token, position) = (row.token.cast_signed(), sequence.tokens.len() as i32);
            batch
                .add(LlamaToken(token), position, &[id], row.wants_next)
                .map_err(|error| format!("llama.cpp cannot read so much at once: {error}"))?;
            sequence.tokens.push(row.token);
        }
        inner.decode(batch).map_err(|error| format!("llama.cpp cannot go on: {error}"))?;
        let asked = (0..).zip(rows).filter(|(_, row)| row.wants_next);
        Ok(asked.map(|(at, _)| inner.get_logits_ith(at).to_vec()).collect())
    }
}

/// A sequence of a context.
struct Sequence<'model> {
    context: Rc<RefCell<Context<'model>>>,
    /// `None` when there were too many.
    id: Option<i32>,
    tokens: Vec<u32>,
}

impl<'model> Sequence<'model> {
    fn new(context: Rc<RefCell<Context<'model>>>) -> Self {
        let id = context.borrow_mut().free.pop();
        Self { context, id, tokens: Vec::new() }
    }

    /// Removes what comes behind `length` tokens from the context; false where the model cannot go back.
    fn remove(&self, length: usize) -> bool {
        let (Some(id), Ok(length)) = (self.id, u32::try_from(length)) else { return false };
        let mut context = self.context.borrow_mut();
        let from = (length > 0).then_some(length);
        context.inner.clear_kv_cache_seq(Some(id.unsigned_abs()), from, None).unwrap_or(false)
    }
}

impl Memory for Sequence<'_> {
    fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    fn copied(&self, length: usize) -> Self {
        let mut copy = Self::new(self.context.clone());
        if let (Some(from), Some(to)) = (self.id, copy.id) {
            let mut context = self.context.borrow_mut();
            if context.inner.copy_kv_cache_seq(from, to, None, None).is_ok() {
                copy.tokens.clone_from(&self.tokens);
            }
        }
        copy.truncate(length);
        copy
    }

    fn truncate(&mut self, length: usize) {
        if length < self.tokens.len() {
            if self.remove(length) {
                self.tokens.truncate(length);
            } else {
                self.remove(0);
                self.tokens.clear();
            }
        }
    }
}

impl Drop for Sequence<'_> {
    fn drop(&mut self) {
        self.remove(0);
        self.context.borrow_mut().free.extend(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_fit_the_model_and_the_machine() {
        let gib = 1 << 30;
        // The default model, an eight-billion one with a huge window, a toy.
        assert_eq!(cells(8192, 23_040, 16 * gib).unwrap(), 11_650);
        assert_eq!(cells(131_072, 131_072, 16 * gib).unwrap(), 16_384);
        assert_eq!(cells(512, 128, 16 * gib).unwrap(), 8192);
        // With little memory the window shrinks, and then the model is refused.
        assert_eq!(cells(131_072, 131_072, gib).unwrap(), 4096);
        assert_eq!(cells(131_072, 131_072, gib / 8).unwrap(), 512);
        let refused = cells(131_072, 131_072, gib / 8 - 1).unwrap_err().to_string();
        assert!(refused.contains("128 MiB") && refused.contains("127 MiB"), "{refused}");
    }
}
