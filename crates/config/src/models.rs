//! The models a configuration names, ready to be called.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use nexus_core::listing::{Learned, Lesson, ModelPage, ModelQuery};
use nexus_core::model::ModelInfo;
use nexus_core::provider::{Model, ModelError, Models, Pauses, Provider};
use nexus_models::catalogue::said::Said;
use nexus_models::ollama::Ollama;
use nexus_models::{self as providers, BuildError, Kind, ProviderSettings, Wire};

use super::{Backend, Config, ModelEntry, ProviderEntry, figures, list};

/// Where environment variables are looked up.
pub type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// All models by name. A provider is built when its first model is asked for; its key is read then, so that a server
/// starts without the keys of providers nobody uses.
pub struct ModelCatalog {
    default_model: Option<String>,
    services: Vec<Service>,
    env: Env,
    local: Option<BuiltIn>,
    origin: Origin,
    said: Said,
    learned: Option<Arc<dyn Learned>>,
    pauses: Option<Arc<dyn Pauses>>,
    /// What was found by a name, so that most look-ups find it at once. A name that means nothing is looked up again.
    found: RwLock<HashMap<String, Found>>,
}

/// A model, and what was learned of it by then.
struct Found {
    model: Model,
    learned: Lesson,
}

/// Names that are kept. Callers make names up; the configuration has fewer.
const FOUND_MAX: usize = 1024;

/// Where the first provider comes from.
enum Origin {
    Configured,
    /// The variable that holds its key.
    Key(&'static str),
    Ollama,
    BuiltIn,
}

/// What answers when no provider is configured and no key is set.
pub struct Fallbacks<'a> {
    /// Asked only if it comes to that.
    pub ollama: &'a dyn Fn() -> Option<Ollama>,
    pub built_in: Option<BuiltIn>,
}

impl Fallbacks<'_> {
    /// Nothing does.
    pub fn none() -> Self {
        Self { ollama: &|| None, built_in: None }
    }
}

/// The models that run in this process, from whoever has them: the libraries they need are large.
#[derive(Clone)]
pub struct BuiltIn {
    pub provider: Arc<dyn Provider>,
    /// Whether the weights of the default one are there, which may change while the server runs. Whoever has them keeps
    /// it: a look at the disk would make every look-up of a model wait for it.
    pub installed: Arc<AtomicBool>,
}

/// Name and file of the model that runs here unless another is named.
pub const BUILT_IN: (&str, &str) = ("smollm2-135m", "SmolLM2-135M-Instruct.Q4_1");

pub(super) struct Service {
    pub entry: ProviderEntry,
    built: OnceLock<Arc<dyn Provider>>,
}

/// Looked for, in this order, when no provider is configured: kind, variable of the key, variable of the address.
const IMPLICIT: [(Kind, &str, Option<&str>); 4] = [
    (Kind::Anthropic, "ANTHROPIC_API_KEY", Some("ANTHROPIC_BASE_URL")),
    (Kind::OpenAi, "OPENAI_API_KEY", Some("OPENAI_BASE_URL")),
    (Kind::OpenRouter, "OPENROUTER_API_KEY", None),
    (Kind::Gemini, "GEMINI_API_KEY", None),
];

impl ModelCatalog {
    pub fn new(config: &Config, env: Env, fallbacks: Fallbacks<'_>) -> Self {
        let mut origin = Origin::Configured;
        let mut entries = config.providers.clone();
        for entry in entries.iter_mut().filter(|entry| entry.models.is_empty()) {
            entry.models.extend(usual_model(&entry.backend));
        }
        let local = fallbacks.built_in;
        if entries.is_empty()
            && let Some((entry, found)) = found(&env, fallbacks.ollama, local.is_some())
        {
            origin = found;
            entries.push(entry);
        }
        let services =
            entries.into_iter().map(|entry| Service { entry, built: OnceLock::new() }).collect();
        let found = RwLock::default();
        let default_model = config.default_model.clone();
        Self {
            default_model,
            services,
            env,
            local,
            origin,
            said: Said::default(),
            learned: None,
            pauses: None,
            found,
        }
    }

    /// The same with what services said of their models.
    pub fn with_said(self, said: Said) -> Self {
        Self { said, ..self }
    }

    /// The same with a memory of what providers enforce.
    pub fn with_learned(self, learned: Arc<dyn Learned>) -> Self {
        Self { learned: Some(learned), ..self }
    }

    /// The same with a memory of when providers want to be left alone, which other processes share.
    pub fn with_pauses(self, pauses: Arc<dyn Pauses>) -> Self {
        Self { pauses: Some(pauses), ..self }
    }

    /// The providers there are, with the models that were named or found.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderEntry> {
        self.services.iter().map(|service| &service.entry)
    }

    /// The settings of a provider that is a service, with its key.
    pub fn settings(&self, entry: &ProviderEntry) -> Option<ProviderSettings> {
        let Backend::Service(settings) = &entry.backend else { return None };
        let api_key = entry.key_env.as_deref().and_then(|variable| value_of(&self.env, variable));
        let key_variable = entry.key_env.clone();
        let pauses = self.pauses.clone();
        let settings = ProviderSettings { api_key, key_variable, pauses, ..(**settings).clone() };
        // A server of one's own on plain HTTP is not shown a key that nobody said it wants.
        let in_the_clear = || matches!(providers::build(&settings), Err(BuildError::PlainHttp));
        Some(match !entry.key_required && in_the_clear() {
            true => ProviderSettings { api_key: None, ..settings },
            false => settings,
        })
    }

    /// Whether a provider can be called as far as its key is concerned.
    pub(super) fn has_key(&self, entry: &ProviderEntry) -> bool {
        let is_set = |variable: &str| value_of(&self.env, variable).is_some();
        !entry.key_required || entry.key_env.as_deref().is_none_or(is_set)
    }

    /// Why no turn could have the models of a provider now.
    pub(super) fn hindrance(&self, entry: &ProviderEntry) -> Option<String> {
        if !self.has_key(entry) {
            return Some(format!("the key of {} is not set", entry.name));
        }
        match self.settings(entry) {
            Some(settings) => providers::build(&settings).err().map(|error| error.to_string()),
            None if self.local.is_none() => Some(NOTHING_RUNS_HERE.into()),
            None => None,
        }
    }

    /// Whether a model is the built-in one, and its weights are not here.
    pub(super) fn is_to_be_pulled(&self, entry: &ProviderEntry, model: &ModelEntry) -> bool {
        matches!(entry.backend, Backend::Local) && model.id == BUILT_IN.1 && self.lacks_built_in()
    }

    fn lacks_built_in(&self) -> bool {
        self.local.as_ref().is_some_and(|local| !local.installed.load(Ordering::Relaxed))
    }

    pub(super) fn said(&self) -> &Said {
        &self.said
    }

    /// What was found by this name before, unless something was learned since.
    fn found(&self, name: &str) -> Option<Model> {
        let all = self.found.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(name)?;
        let model = &found.model;
        (self.learned(&model.provider_name, &model.id) == found.learned).then(|| model.clone())
    }

    fn learned(&self, provider: &str, id: &str) -> Lesson {
        self.learned.as_ref().map(|it| it.known(provider, id)).unwrap_or_default()
    }

    /// What is known of a model that is asked for by `name`.
    pub(super) fn figures(
        &self,
        name: &str,
        provider: &ProviderEntry,
        model: &ModelEntry,
    ) -> (figures::Figures, Lesson) {
        let learned = self.learned(&provider.name, &model.id);
        (figures::gather(name, provider, model, &self.said, learned), learned)
    }

    /// One or a few lines for the start of the program: which model answers when none is named and why, or what to
    /// do when there is none. `home` is where the user's configuration lies.
    pub fn describe(&self, home: &Path) -> String {
        let why = match self.origin {
            Origin::Configured => "as configured".into(),
            Origin::Key(variable) => format!("because {variable} is set"),
            Origin::Ollama => "because an Ollama answers here".into(),
            Origin::BuiltIn => "built in, because no key is set and no Ollama answers".into(),
        };
        match self.resolve(None).map(|model| model.info) {
            Ok(model) if model.alias == model.id => {
                format!("model {} of {}, {why}", model.id, model.provider_name)
            }
            Ok(model) => {
                format!("model {} ({} of {}), {why}", model.alias, model.id, model.provider_name)
            }
            Err(ModelError::NoneConfigured) => self.what_to_do(home),
            Err(error) => error.to_string(),
        }
    }

    fn what_to_do(&self, home: &Path) -> String {
        let pull = match &self.local {
            Some(_) => "Get the built-in one (98 MB): nexus3 model pull\n",
            None => "",
        };
        format!(
            "no model is configured: agents cannot answer yet.\n{pull}\
             Set ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENROUTER_API_KEY or GEMINI_API_KEY and start again,\n\
             or name a provider in {}, for example a local Ollama:\n\
             {{\"providers\": {{\"ollama\": {{\"models\": {{\"llama3.2\": {{}}}}}}}}}}",
            home.join("config.json").display()
        )
    }

    /// How many names are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.found.read().map_or(usize::MAX, |found| found.len())
    }

    #[cfg(test)]
    pub(super) fn default_settings(&self) -> &ProviderSettings {
        match &self.services[0].entry.backend {
            Backend::Service(settings) => settings,
            Backend::Local => panic!("the first provider runs here"),
        }
    }

    /// The name of the model that answers when none is named.
    pub(super) fn default_name(&self) -> Result<Cow<'_, str>, ModelError> {
        if let Some(name) = &self.default_model {
            return Ok(name.into());
        }
        if matches!(self.origin, Origin::BuiltIn) && self.lacks_built_in() {
            return Err(ModelError::NoneConfigured);
        }
        let (service, model) = self.all().next().ok_or_else(|| self.without_models())?;
        Ok(match self.has_twin(&model.alias) {
            false => (&model.alias).into(),
            true => format!("{}/{}", service.entry.name, model.alias).into(),
        })
    }

    /// Whether several providers have a model of this name.
    pub(super) fn has_twin(&self, alias: &str) -> bool {
        self.all().filter(|(_, model)| model.alias == alias).nth(1).is_some()
    }

    /// What is missing where no model was named anywhere.
    fn without_models(&self) -> ModelError {
        let Some(service) = self.services.first() else { return ModelError::NoneConfigured };
        let provider = &service.entry.name;
        let reason = format!(
            "provider {provider} names no models; name one under providers.{provider}.models, as in {{\"llama3.2\": {{}}}}, \
             or ask for {provider}/ID"
        );
        ModelError::Unusable { name: "default".into(), reason }
    }

    pub(super) fn find(&self, name: &str) -> Result<(&Service, Cow<'_, ModelEntry>), ModelError> {
        let matches: Vec<_> = self.all().filter(|(_, model)| model.alias == name).collect();
        match matches.as_slice() {
            [(service, model)] => return Ok((service, Cow::Borrowed(*model))),
            [] => {}
            several => {
                let names: Vec<_> =
                    several.iter().map(|(it, _)| format!("{}/{name}", it.entry.name)).collect();
                let reason = format!(
                    "several providers have a model of this name; say {}",
                    names.join(" or ")
                );
                return Err(ModelError::Unusable { name: name.into(), reason });
            }
        }
        let (provider, rest) = name.split_once('/').unwrap_or((name, ""));
        match self
            .services
            .iter()
            .find(|service| service.entry.name == provider && !rest.is_empty())
        {
            Some(service) => {
                let ProviderEntry { models, backend, .. } = &service.entry;
                match models.iter().find(|model| model.alias == rest) {
                    Some(model) => Ok((service, Cow::Borrowed(model))),
                    // Whoever may call the server names models; the files it opens are named by its owner.
                    None if matches!(backend, Backend::Local) && rest.contains('/') => {
                        Err(path_of_caller(name, provider))
                    }
                    None => Ok((service, Cow::Owned(ModelEntry::named(rest)))),
                }
            }
            None if self.services.is_empty() => Err(ModelError::NoneConfigured),
            None => Err(ModelError::Unknown { name: name.into(), known: self.known() }),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Service, &ModelEntry)> {
        self.services
            .iter()
            .flat_map(|service| service.entry.models.iter().map(move |model| (service, model)))
    }

    /// What can be asked for, as far as it fits in a sentence.
    fn known(&self) -> String {
        let aliases = self.all().map(|(_, model)| model.alias.clone());
        let providers = self.services.iter().map(|service| format!("{}/ID", service.entry.name));
        aliases.chain(providers).take(KNOWN_MAX).collect::<Vec<_>>().join(", ")
    }

    fn provider(&self, service: &Service, name: &str) -> Result<Arc<dyn Provider>, ModelError> {
        if let Some(provider) = service.built.get() {
            return Ok(provider.clone());
        }
        let unusable = |reason: String| ModelError::Unusable { name: name.into(), reason };
        let entry = &service.entry;
        let Some(settings) = self.settings(entry) else {
            let local = self.local.as_ref();
            let built_in = local.ok_or_else(|| unusable(NOTHING_RUNS_HERE.into()))?;
            return Ok(built_in.provider.clone());
        };
        if let (false, Some(variable)) = (self.has_key(entry), &entry.key_env) {
            return Err(unusable(format!(
                "the environment variable {variable} (key of {}) is not set; set it and start again",
                entry.name
            )));
        }
        let built = providers::build(&settings).map_err(|error| unusable(error.to_string()))?;
        Ok(service.built.get_or_init(|| built).clone())
    }
}

fn path_of_caller(name: &str, provider: &str) -> ModelError {
    let reason = format!(
        "the file of a model is named in the configuration alone: give it an alias under providers.{provider}.models, \
         as in {{\"mine\": {{\"id\": \"/path/to/model.gguf\"}}}}, and ask for that"
    );
    ModelError::Unusable { name: name.into(), reason }
}

const NOTHING_RUNS_HERE: &str = "no model can run here";

/// Names listed when an unknown one was asked for.
const KNOWN_MAX: usize = 20;

impl Models for ModelCatalog {
    fn resolve(&self, name: Option<&str>) -> Result<Model, ModelError> {
        let name = match name {
            Some(name) => name.into(),
            None => self.default_name()?,
        };
        if let Some(model) = self.found(&name) {
            return Ok(model);
        }
        let (service, entry) = self.find(&name)?;
        let provider = self.provider(service, &name)?;
        let (figures, learned) = self.figures(&name, &service.entry, &entry);
        let model = Model { info: Arc::new(figures.info), provider };
        let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
        if found.len() < FOUND_MAX || found.contains_key(&*name) {
            found.insert(name.into_owned(), Found { model: model.clone(), learned });
        }
        Ok(model)
    }

    fn learn(&self, model: &ModelInfo, lesson: Lesson) {
        tracing::warn!(model = model.id, ?lesson, "the provider enforces what nobody said of it");
        if let Some(learned) = &self.learned {
            learned.learn(&model.provider_name, &model.id, lesson);
        }
    }

    fn list(&self, query: &ModelQuery) -> Result<ModelPage, ModelError> {
        list::page(self, query)
    }
}

/// The first that answers of what there is without configuration.
fn found(
    env: &Env,
    ollama: &dyn Fn() -> Option<Ollama>,
    runs_here: bool,
) -> Option<(ProviderEntry, Origin)> {
    if let Some((entry, key)) = implicit(env) {
        return Some((entry, Origin::Key(key)));
    }
    if let Some(Ollama { base_url, model }) = ollama() {
        let settings = ProviderSettings { base_url, ..ProviderSettings::new(Kind::Ollama) };
        let backend = Backend::Service(Box::new(settings));
        let models = vec![ModelEntry::named(model)];
        return Some((keyless("ollama", backend, models), Origin::Ollama));
    }
    let models = usual_model(&Backend::Local).into_iter().collect();
    runs_here.then(|| (keyless("local", Backend::Local, models), Origin::BuiltIn))
}

fn keyless(name: &str, backend: Backend, models: Vec<ModelEntry>) -> ProviderEntry {
    ProviderEntry { name: name.into(), backend, key_env: None, key_required: false, models }
}

fn implicit(env: &Env) -> Option<(ProviderEntry, &'static str)> {
    let (kind, key, address) =
        IMPLICIT.into_iter().find(|(_, key, _)| value_of(env, key).is_some())?;
    let mut settings = ProviderSettings::new(kind);
    let own_address = address.and_then(|variable| value_of(env, variable));
    if let Some(url) = &own_address {
        settings.wire = Wire::usual(kind, url);
    }
    let models = usual_of(&settings).into_iter().collect();
    if let Some(url) = own_address {
        settings.base_url = if kind == Kind::Anthropic { with_version(&url) } else { url };
    }
    let (name, key_env) = (kind.name().to_string(), Some(key.to_string()));
    let backend = Backend::Service(Box::new(settings));
    Some((ProviderEntry { name, backend, key_env, key_required: true, models }, key))
}

/// By convention `ANTHROPIC_BASE_URL` stops before the version, and `OPENAI_BASE_URL` includes it.
fn with_version(url: &str) -> String {
    let url = url.trim_end_matches('/');
    if url.ends_with("/v1") { url.into() } else { format!("{url}/v1") }
}

/// A variable's value; one that is empty counts as not set.
fn value_of(env: &Env, variable: &str) -> Option<String> {
    env(variable).map(|value| value.trim().to_string()).filter(|value| !value.is_empty())
}

/// The model of a provider for which none was named: a middle one that is good at using tools. A server at an
/// address of one's own has models that only its owner knows.
pub(super) fn usual_model(backend: &Backend) -> Option<ModelEntry> {
    match backend {
        Backend::Service(settings) => usual_of(settings),
        Backend::Local => {
            let (alias, id) = BUILT_IN;
            Some(ModelEntry { alias: alias.into(), ..ModelEntry::named(id) })
        }
    }
}

fn usual_of(settings: &ProviderSettings) -> Option<ModelEntry> {
    let own_address = settings.kind.default_base_url() != Some(settings.base_url.as_str());
    let id = match settings.kind {
        Kind::Azure => settings.deployment.as_deref()?,
        _ if own_address => return None,
        Kind::Anthropic => "claude-sonnet-5-5",
        Kind::OpenAi if settings.wire == Wire::Responses => "gpt-6.1-sol",
        // Newer ones take no tools over chat completions.
        Kind::OpenAi => "gpt-5.2",
        Kind::OpenRouter => "openrouter/auto",
        Kind::Gemini => "gemini-3.8-flash",
        Kind::Ollama => return None,
    };
    Some(ModelEntry::named(id))
}
