//! The core's `Provider` on models that run in this process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use nexus_core::provider::{EventStream, ModelCall, Provider, ProviderError};
use tokio::sync::{mpsc, oneshot};

use crate::engine::{Engine, Loaded, Request};
use crate::{Backend, Fault};

/// Tokens of an answer when nobody says otherwise: far more than such a model has to say, and little enough that one
/// that goes round in circles comes to an end.
const ANSWER_TOKENS_MAX: usize = 1024;

/// Models of this process, each loaded by its first call and then shared by all agents.
pub struct Local {
    /// Where a model that is named without a path lies.
    directory: PathBuf,
    backend: Backend,
    threads: usize,
    engines: Mutex<HashMap<PathBuf, Slot>>,
}

/// A model that is loaded or being loaded.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Engine>>>>;

impl Local {
    pub fn new(directory: PathBuf) -> Self {
        Self::on(Backend::default(), directory)
    }

    /// As [`Local::new`], with the arithmetic of one's choice.
    pub fn on(backend: Backend, directory: PathBuf) -> Self {
        Self { directory, backend, threads: threads(), engines: Mutex::default() }
    }

    /// The file of a model: its path, or its name among the installed ones.
    pub fn file(&self, model_id: &str) -> PathBuf {
        if model_id.contains('/') {
            return PathBuf::from(model_id);
        }
        let name = model_id.strip_suffix(".gguf").unwrap_or(model_id);
        self.directory.join(format!("{name}.gguf"))
    }

    async fn engine(&self, path: &Path) -> Result<Arc<Engine>, Fault> {
        let slot = self.slot(path);
        let mut slot = slot.lock().await;
        if let Some(engine) = &*slot {
            return Ok(engine.clone());
        }
        let (path, backend, threads) = (path.to_path_buf(), self.backend, self.threads);
        let engine = Arc::new(on_own_thread(move || load(&path, backend, threads)).await?);
        *slot = Some(engine.clone());
        Ok(engine)
    }

    /// Lets the next call load the model again: the thread of `gone` has ended.
    async fn forget(&self, path: &Path, gone: &Arc<Engine>) {
        let slot = self.slot(path);
        let mut slot = slot.lock().await;
        // Another caller may have been here already.
        slot.take_if(|engine| Arc::ptr_eq(engine, gone));
    }

    fn slot(&self, path: &Path) -> Slot {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines.entry(path.to_path_buf()).or_default().clone()
    }
}

#[async_trait]
impl Provider for Local {
    async fn stream(&self, call: ModelCall) -> Result<EventStream, ProviderError> {
        let path = self.file(&call.model.id);
        let engine = self.engine(&path).await?;
        let (events, stream) = mpsc::unbounded_channel();
        let loaded = engine.loaded.clone();
        let prepared = tokio::task::spawn_blocking(move || request(&loaded, &call, events)).await;
        let request = prepared.map_err(|_| crashed())??;
        if engine.submit(request).is_err() {
            self.forget(&path, &engine).await;
            return Err(crashed());
        }
        let stream =
            futures_util::stream::unfold((stream, engine), async |(mut stream, engine)| {
                stream.recv().await.map(|event| (event, (stream, engine)))
            });
        Ok(stream.boxed())
    }
}

/// Cores for the model: all but one, so that the rest of the machine, this server first, stays awake. Threads that have
/// to share a core wait for each other at every step.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

fn load(path: &Path, backend: Backend, threads: usize) -> Result<Engine, Fault> {
    let started = std::time::Instant::now();
    // The server does without; weights are read from end to end for every word, a tenth faster from huge pages.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    let engine = backend.load(path, threads)?;
    tracing::info!(
        model = %path.display(),
        backend = backend.name(),
        threads,
        duration_ms = started.elapsed().as_millis() as u64,
        "the local model is loaded"
    );
    Ok(engine)
}

/// Loads on a thread of its own, and turns a panic into a fault: the file is somebody else's, and so is its reader.
async fn on_own_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let (answer, answered) = oneshot::channel();
    let spawned = std::thread::Builder::new().name("local-load".into()).spawn(move || {
        let _ = answer.send(work());
    });
    spawned.map_err(|error| Fault::Threads { reason: error.to_string() })?;
    answered.await.unwrap_or(Err(Fault::Panicked))
}

fn request(
    loaded: &Loaded,
    call: &ModelCall,
    events: mpsc::UnboundedSender<Result<nexus_core::provider::ProviderEvent, ProviderError>>,
) -> Result<Request, ProviderError> {
    let Loaded { template, vocabulary, said, .. } = loaded;
    let prompt = template
        .tokens(vocabulary, said, call, &|| events.is_closed())
        .map_err(ProviderError::Rejected)?;
    let room = loaded.window.checked_sub(prompt.len()).filter(|room| *room > 0);
    let Some(room) = room else {
        return Err(ProviderError::TooLong {
            message: format!(
                "the prompt has {} tokens and the window of the local model is {}",
                prompt.len(),
                loaded.window
            ),
            window: u32::try_from(loaded.window).ok(),
        });
    };
    let grammar = call.schema.as_deref().map(|schema| loaded.grammar(schema)).transpose();
    let grammar = grammar.map_err(|error| {
        ProviderError::Rejected(format!("the response schema is not supported: {error}"))
    })?;
    let wanted = call.max_tokens.map_or(ANSWER_TOKENS_MAX, |tokens| tokens as usize);
    Ok(Request { prompt, grammar, tokens_max: wanted.clamp(1, room), events })
}

fn crashed() -> ProviderError {
    ProviderError::Broken("the local model stopped; the next call starts it again".into())
}

impl From<Fault> for ProviderError {
    fn from(fault: Fault) -> Self {
        Self::Unavailable(fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use nexus_core::model::ModelInfo;

    use super::*;
    use crate::template::Template;
    use crate::tokenizer::{Plain, Vocabulary};

    struct Nothing;

    impl Plain for Nothing {
        fn encode(&self, _: &str, _: &mut Vec<u32>) {}
    }

    #[test]
    fn nobody_waits_for_the_prompt_of_a_turn_that_is_gone() {
        let template = Template::new(Some("Hi".into()), String::new(), String::new()).unwrap();
        let vocabulary =
            Vocabulary::new(Box::new(Nothing), Vec::new(), Vec::new(), Vec::new(), None);
        let loaded = Loaded::new(1000, vocabulary, template);
        let call = ModelCall::of(Arc::new(ModelInfo::undescribed("local", "local", "m")), []);
        let (events, turn) = mpsc::unbounded_channel();
        assert!(request(&loaded, &call, events.clone()).is_ok());
        drop(turn);
        let refused = request(&loaded, &call, events).map(drop).unwrap_err();
        assert_eq!(refused, ProviderError::Rejected("the call was cancelled".into()));
    }
}
