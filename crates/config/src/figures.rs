//! What is known of a model, each figure from the strongest who says it: the configuration, what a provider enforced, what
//! it said, the shipped table, its line of a relative, and what is assumed of everybody.

use nexus_core::listing::{Lesson, Source, Sources};
use nexus_core::model::{Effort, Inputs, ModelInfo, Reasoning, Thinking, ThinkingKind};
use nexus_core::usage::Prices;
use nexus_models::catalogue::said::Said;
use nexus_models::catalogue::{By, Entry, Shop};
use nexus_models::{Kind, ProviderSettings, Wire};

use super::{Backend, ModelEntry, ProviderEntry};

/// What is assumed of a model that runs here: the window of the built-in one.
const LOCAL_WINDOW: u32 = 8192;

/// The most that an Ollama is asked to keep in memory unless somebody says so: the whole window of a current model takes
/// more than most machines have.
const OLLAMA_WINDOW_MAX: u32 = 32_768;

/// What the wire of models in this process is called.
const LOCAL_WIRE: &str = "local";

#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub info: ModelInfo,
    pub sources: Sources,
    pub tools: Option<bool>,
    pub schemas: Option<bool>,
    pub wires: Vec<String>,
    pub retires: Option<String>,
}

/// Gathers what is known of `model`, which is asked for by `name`. `learned` is what its provider enforced.
pub(super) fn gather(
    name: &str,
    provider: &ProviderEntry,
    model: &ModelEntry,
    said: &Said,
    learned: Lesson,
) -> Figures {
    let (told, usual) = match &provider.backend {
        Backend::Service(settings) => (
            Told::of(&provider.name, settings, &model.id, said),
            ModelInfo::undescribed(&provider.name, settings.wire.name(), &model.id),
        ),
        Backend::Local => {
            let usual = ModelInfo::undescribed(&provider.name, LOCAL_WIRE, &model.id);
            let usual = ModelInfo { context_window: LOCAL_WINDOW, brief: true, ..usual };
            (Told(Vec::new()), usual)
        }
    };
    let (context_window, window_source) =
        window(model, learned.window, &told, &provider.backend, usual.context_window);
    let (max_output, output_source) = told.first(|entry| entry.output);
    let output_source = match model.max_output_tokens {
        Some(_) => Source::Configuration,
        None => output_source,
    };
    let (inputs, inputs_source) = match model.inputs {
        Some(inputs) => (inputs, Source::Configuration),
        None => told.or(Inputs::default(), Entry::inputs),
    };
    let (mut thinking, thinking_source) = thinking(model, &told, &provider.backend);
    thinking.replayed_always |= learned.thoughts_always;
    let (prices, prices_source) = prices(model, &told, &provider.backend);
    let info = ModelInfo {
        alias: name.to_owned(),
        context_window,
        max_output,
        output_limit: model.max_output_tokens,
        inputs,
        thinking,
        reasoning: model.reasoning,
        cache_minimum: told.or(usual.cache_minimum, |entry| entry.cache_minimum).0,
        prices,
        fallback: model.fallback.clone(),
        fallback_on_refusal: model.fallback_on_refusal,
        extra_body: model.extra_body.clone(),
        ..usual
    };
    let sources = Sources {
        context_window: window_source,
        max_output: output_source,
        inputs: inputs_source,
        thinking: thinking_source,
        prices: prices_source,
    };
    Figures {
        info,
        sources,
        tools: told.first(|entry| entry.tools).0,
        schemas: told.first(|entry| entry.schemas).0,
        wires: told.0.iter().flat_map(|(_, entry)| entry.wires.clone()).collect(),
        retires: told.first(|entry| entry.retires.clone()).0,
    }
}

/// What others than the configuration say of a model, the strongest first.
struct Told(Vec<(Source, Entry)>);

impl Told {
    fn of(provider: &str, settings: &ProviderSettings, id: &str, said: &Said) -> Self {
        let base_url = &settings.base_url;
        let asked = said.find(provider, base_url, id).map(|entry| (Source::Provider, entry));
        let known = Shop::of(settings.kind, base_url).known(id).map(|known| {
            let source = match known.by {
                By::Name => Source::Catalogue,
                By::Family => Source::Family,
            };
            (source, known.entry)
        });
        Self(asked.into_iter().chain(known).collect())
    }

    /// The strongest figure, and whose it is.
    fn first<T>(&self, of: impl Fn(&Entry) -> Option<T>) -> (Option<T>, Source) {
        let mut found = self.0.iter().filter_map(|(source, entry)| Some((of(entry)?, *source)));
        match found.next() {
            Some((figure, source)) => (Some(figure), source),
            None => (None, Source::Assumed),
        }
    }

    /// The same, or what is assumed.
    fn or<T>(&self, assumed: T, of: impl Fn(&Entry) -> Option<T>) -> (T, Source) {
        let (figure, source) = self.first(of);
        (figure.unwrap_or(assumed), source)
    }
}

fn window(
    model: &ModelEntry,
    learned: Option<u32>,
    told: &Told,
    backend: &Backend,
    assumed: u32,
) -> (u32, Source) {
    if let Some(window) = model.context_window {
        return (window, Source::Configuration);
    }
    if let Some(window) = learned {
        return (window, Source::Learned);
    }
    let (window, source) = told.or(assumed, |entry| entry.window);
    match backend {
        Backend::Service(settings) if settings.kind == Kind::Ollama => {
            (window.min(OLLAMA_WINDOW_MAX), source)
        }
        _ => (window, source),
    }
}

/// How the model thinks, as its wire can ask for it. Where only the configuration says that it does, it is asked as newer
/// models are.
fn thinking(model: &ModelEntry, told: &Told, backend: &Backend) -> (Thinking, Source) {
    let (mut thinking, source) = told.or(Thinking::default(), Entry::thinking);
    let Backend::Service(settings) = backend else { return (thinking, source) };
    let kind = match model.reasoning {
        Reasoning::Asked { effort: None, budget_tokens: Some(_), .. } => ThinkingKind::Budget,
        Reasoning::Asked { .. } => ThinkingKind::Effort,
        // To a server that nobody knows there is no word for it.
        Reasoning::On if source == Source::Assumed && settings.wire != Wire::Chat => {
            ThinkingKind::Effort
        }
        Reasoning::On | Reasoning::Off => ThinkingKind::None,
    };
    if thinking.kind == ThinkingKind::None && kind != ThinkingKind::None {
        return (Thinking { kind, ..thinking }, Source::Configuration);
    }
    if thinking.kind == ThinkingKind::None {
        return (thinking, source);
    }
    if settings.kind == Kind::OpenRouter {
        // It takes one word for everybody, and turns it into what each of them takes.
        let efforts = Effort::ALL.into_iter().filter(|effort| *effort != Effort::Max);
        let can_rest = !thinking.always_on;
        thinking.efforts = efforts.filter(|it| can_rest || *it != Effort::None).collect();
        thinking.kind = ThinkingKind::Effort;
    } else if thinking.kind == ThinkingKind::Budget
        && matches!(settings.wire, Wire::Chat | Wire::Responses)
    {
        // These wires have no word for a budget; who stands behind them makes one of the effort.
        thinking.efforts = vec![Effort::Low, Effort::Medium, Effort::High];
        thinking.kind = ThinkingKind::Effort;
    }
    (thinking, source)
}

fn prices(model: &ModelEntry, told: &Told, backend: &Backend) -> (Option<Prices>, Source) {
    if let Some(prices) = &model.prices {
        return (Some(prices.clone()), Source::Configuration);
    }
    let runs_at_home = match backend {
        Backend::Local => true,
        // What Ollama runs elsewhere is paid for there.
        Backend::Service(settings) => settings.kind == Kind::Ollama && !model.id.ends_with("cloud"),
    };
    if runs_at_home {
        return (Some(Prices::default()), Source::Catalogue);
    }
    told.first(Entry::prices)
}
