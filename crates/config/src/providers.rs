//! The providers section, checked as far as it can be without calling anybody.

use std::path::Path;

use super::value::{Object, Table, Text};
use super::{Backend, Fault, ModelEntry, ProviderEntry};
use super::{presets, schema};
use nexus_models::{self as providers, AuthMethod, BuildError, Kind, ProviderSettings};

/// What is assumed of a model nobody described: every current one of the large services has at least this.
pub(super) const CONTEXT_WINDOW: u32 = 128_000;

/// What is assumed of a model that runs here: the window of the built-in one.
pub(super) const LOCAL_CONTEXT_WINDOW: u32 = 8192;

/// The type of a provider whose models run in this process.
const LOCAL: &str = "local";

pub(super) fn resolve(
    written: Option<Table<Object<schema::Provider>>>,
    user_home: Option<&Path>,
) -> Result<Vec<ProviderEntry>, Fault> {
    let entries = written.into_iter().flat_map(Table::into_entries);
    let resolve_one = |(name, Object(provider)): (String, Object<schema::Provider>)| {
        if !is_name(&name) {
            let reason = "a provider's name may hold only letters, digits, '.', '_' and '-'".into();
            return Err(Fault::new(&["providers", &name], reason));
        }
        if provider.r#type.as_ref().map_or(name.as_str(), |Text(kind)| kind.as_str()) == LOCAL {
            resolve_local(name, provider, user_home)
        } else {
            resolve_service(name, provider)
        }
    };
    entries.map(resolve_one).collect()
}

fn resolve_local(
    name: String,
    written: schema::Provider,
    user_home: Option<&Path>,
) -> Result<ProviderEntry, Fault> {
    let of_services = [
        ("api_key_env", written.api_key_env.is_some()),
        ("base_url", written.base_url.is_some()),
        ("auth_method", written.auth_method.is_some()),
        ("extra_headers", written.extra_headers.is_some()),
        ("api_version", written.api_version.is_some()),
        ("deployment", written.deployment.is_some()),
        ("request_timeout", written.request_timeout.is_some()),
        ("max_retries", written.max_retries.is_some()),
        ("retry_backoff", written.retry_backoff.is_some()),
        ("prompt_caching", written.prompt_caching.is_some()),
    ];
    if let Some((key, _)) = of_services.into_iter().find(|(_, set)| *set) {
        let reason = format!("has no meaning for a provider of type {LOCAL}");
        return Err(Fault::new(&["providers", &name, key], reason));
    }
    let place = |key: &[&str], path: &str| {
        let path = presets::expand(path, user_home).map_err(|reason| Fault::new(key, reason))?;
        Ok::<_, Fault>(path.display().to_string())
    };
    let mut models = Vec::new();
    if let Some(Text(path)) = written.path {
        let id = place(&["providers", &name, "path"], &path)?;
        let alias = Path::new(&id).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        models.push(ModelEntry {
            alias: alias.unwrap_or_else(|| name.clone()),
            id,
            context_window: LOCAL_CONTEXT_WINDOW,
            reasoning: false,
        });
    }
    for (alias, Object(model)) in written.models.into_iter().flat_map(Table::into_entries) {
        let mut entry = resolve_model(&name, alias, model, LOCAL_CONTEXT_WINDOW)?;
        if entry.id.contains('/') {
            entry.id = place(&["providers", &name, "models", &entry.alias, "id"], &entry.id)?;
        }
        models.push(entry);
    }
    Ok(ProviderEntry { name, backend: Backend::Local, key_env: None, key_required: false, models })
}

fn resolve_service(name: String, written: schema::Provider) -> Result<ProviderEntry, Fault> {
    let fault = |key: &str, reason: String| Fault::new(&["providers", &name, key], reason);
    let kind = kind(&name, written.r#type).map_err(|reason| fault("type", reason))?;
    if written.path.is_some() {
        return Err(fault("path", format!("has no meaning but for a provider of type {LOCAL}")));
    }
    let usual = ProviderSettings::new(kind);
    let method = match written.auth_method {
        Some(Text(method)) => Some(AuthMethod::parse(&method).ok_or_else(|| {
            let known = AuthMethod::ALL.map(AuthMethod::name).join(", ");
            fault("auth_method", format!("{method:?} is not one of {known}"))
        })?),
        None => None,
    };
    let own_key_env = written.api_key_env.map(|Text(variable)| variable);
    let auth_method = match (method, &own_key_env) {
        (Some(AuthMethod::None), Some(_)) => {
            return Err(fault("api_key_env", "has no effect with auth_method none".into()));
        }
        (Some(method), _) => method,
        // A key was named, so it is meant to be sent, also where none is usual.
        (None, Some(_)) if usual.auth_method == AuthMethod::None => AuthMethod::Bearer,
        (None, _) => usual.auth_method,
    };
    let own_address = written.base_url.is_some() && kind == Kind::OpenAi;
    let key_required = auth_method != AuthMethod::None && (own_key_env.is_some() || !own_address);
    let key_env = own_key_env.or_else(|| kind.default_key_env().map(String::from));
    let key_env = key_env.filter(|_| auth_method != AuthMethod::None);
    if key_required && key_env.is_none() {
        return Err(fault(
            "auth_method",
            "needs api_key_env, the variable that holds the key".into(),
        ));
    }

    if written.prompt_caching.is_some() && kind != Kind::Anthropic {
        let reason = "has an effect only on providers of the type anthropic";
        return Err(fault("prompt_caching", reason.into()));
    }

    let headers = written.extra_headers.into_iter().flat_map(Table::into_entries);
    let settings = ProviderSettings {
        base_url: written.base_url.map_or(usual.base_url.clone(), |Text(url)| url),
        auth_method,
        extra_headers: headers.map(|(header, Text(value))| (header, value)).collect(),
        api_version: written.api_version.map(|Text(version)| version),
        deployment: written.deployment.map(|Text(deployment)| deployment),
        request_timeout: written.request_timeout.map_or(usual.request_timeout, |it| it.0),
        max_retries: written.max_retries.map_or(usual.max_retries, |it| it.0),
        retry_backoff: written.retry_backoff.map_or(usual.retry_backoff, |it| it.0),
        prompt_caching: written.prompt_caching.unwrap_or(usual.prompt_caching),
        ..usual
    };
    if !has_scheme(&settings.base_url) {
        let url = &settings.base_url;
        let reason = format!("{url:?} does not begin with http:// or https://; write http://{url}");
        return Err(fault("base_url", reason));
    }
    // Built only to be checked: a wrong address or header is better found now than in the first turn.
    if let Err(error) = providers::build(&settings) {
        let key = match &error {
            BuildError::NoBaseUrl(_) | BuildError::BaseUrl(_) => "base_url",
            BuildError::Header(_) => "extra_headers",
            BuildError::ApiVersion => "api_version",
            BuildError::ApiKey => "api_key_env",
            BuildError::Unsupported { setting, .. } => setting,
        };
        return Err(fault(key, error.to_string()));
    }

    let models = written.models.into_iter().flat_map(Table::into_entries);
    let models = models
        .map(|(alias, Object(model))| resolve_model(&name, alias, model, CONTEXT_WINDOW))
        .collect::<Result<_, _>>()?;
    Ok(ProviderEntry { name, backend: Backend::Service(settings), key_env, key_required, models })
}

/// Whether an address says how it is spoken to. One without is mostly a host and port that somebody copied; an empty one
/// stands for the service's own.
fn has_scheme(url: &str) -> bool {
    let start = url.trim().to_ascii_lowercase();
    start.is_empty() || start.starts_with("http://") || start.starts_with("https://")
}

/// A provider named after a kind needs no type.
fn kind(name: &str, written: Option<Text>) -> Result<Kind, String> {
    let known = || format!("{}, {LOCAL}", Kind::ALL.map(Kind::name).join(", "));
    match written {
        Some(Text(kind)) => {
            Kind::parse(&kind).ok_or_else(|| format!("{kind:?} is not one of {}", known()))
        }
        None => Kind::parse(name).ok_or_else(|| format!("is missing; it is one of {}", known())),
    }
}

fn resolve_model(
    provider: &str,
    alias: String,
    written: schema::Model,
    window: u32,
) -> Result<ModelEntry, Fault> {
    if alias.trim().is_empty()
        || alias.len() > ALIAS_BYTES_MAX
        || alias.chars().any(char::is_control)
    {
        let reason = format!("an alias is one line of 1 to {ALIAS_BYTES_MAX} bytes");
        return Err(Fault::new(&["providers", provider, "models", &alias], reason));
    }
    Ok(ModelEntry {
        id: written.id.map_or_else(|| alias.clone(), |Text(id)| id),
        context_window: written.context_window.map_or(window, |it| it.0),
        reasoning: written.reasoning.unwrap_or(false),
        alias,
    })
}

/// Aliases are stored with agents and shown in lists.
const ALIAS_BYTES_MAX: usize = 128;

/// A slash would make `provider/model` ambiguous.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}
