//! One provider that is a service, from what is written of it.

use std::path::Path;
use std::time::Duration;

use nexus_models::{
    self as providers, AuthMethod, BuildError, CacheTtl, Kind, ProviderSettings, Wire,
};

use super::value::{Json, Object, Table, Text};
use super::{Backend, Fault, ProviderEntry};
use super::{entries, presets, schema};

/// It goes out with every call.
const ROUTING_BYTES_MAX: usize = 4096;

/// A key of the provider, and what is wrong with it.
type Wrong = (&'static str, String);

pub(super) fn resolve(
    name: String,
    kind: Kind,
    mut written: schema::Provider,
    user_home: Option<&Path>,
) -> Result<ProviderEntry, Fault> {
    let models = written.models.take();
    let fault = |(key, reason): Wrong| Fault::new(&["providers", &name, key], reason);
    let key = key(kind, &written).map_err(fault)?;
    check_kind(kind, &written).map_err(fault)?;
    let settings = settings(kind, key.method, written, user_home).map_err(fault)?;
    check_build(&settings, key.required).map_err(fault)?;

    let models = models.into_iter().flat_map(Table::into_entries);
    let models = models
        .map(|(alias, Object(model))| entries::resolve(&name, Some(settings.wire), alias, model))
        .collect::<Result<_, _>>()?;
    let Key { variable: key_env, required: key_required, .. } = key;
    let backend = Backend::Service(Box::new(settings));
    Ok(ProviderEntry { name, backend, key_env, key_required, models })
}

/// How a provider is shown who calls.
struct Key {
    method: AuthMethod,
    variable: Option<String>,
    required: bool,
}

fn key(kind: Kind, written: &schema::Provider) -> Result<Key, Wrong> {
    let method = match &written.auth_method {
        Some(Text(method)) => Some(AuthMethod::parse(method).ok_or_else(|| {
            let known = AuthMethod::ALL.map(AuthMethod::name).join(", ");
            ("auth_method", format!("{method:?} is not one of {known}"))
        })?),
        None => None,
    };
    let usual = kind.default_auth_method();
    let own_variable = written.api_key_env.as_ref().map(|Text(variable)| variable.clone());
    let method = match (method, &own_variable) {
        (Some(AuthMethod::None), Some(_)) => {
            return Err(("api_key_env", "has no effect with auth_method none".into()));
        }
        (Some(method), _) => method,
        // A key was named, so it is meant to be sent, also where none is usual.
        (None, Some(_)) if usual == AuthMethod::None => AuthMethod::Bearer,
        (None, _) => usual,
    };
    let own_address = written.base_url.is_some() && kind == Kind::OpenAi;
    let required = method != AuthMethod::None && (own_variable.is_some() || !own_address);
    let variable = own_variable.or_else(|| kind.default_key_env().map(String::from));
    let variable = variable.filter(|_| method != AuthMethod::None);
    if required && variable.is_none() {
        return Err(("auth_method", "needs api_key_env, the variable that holds the key".into()));
    }
    Ok(Key { method, variable, required })
}

/// Where caches keep what is marked.
const MARKED: &[Kind] = &[Kind::Anthropic, Kind::OpenRouter];

/// Refuses what would have no effect on a service of this kind.
fn check_kind(kind: Kind, written: &schema::Provider) -> Result<(), Wrong> {
    let of_some_kinds: [(_, _, &[Kind]); 4] = [
        ("prompt_caching", written.prompt_caching.is_some(), MARKED),
        ("cache_ttl", written.cache_ttl.is_some(), MARKED),
        ("keep_alive", written.keep_alive.is_some(), &[Kind::Ollama]),
        ("routing", written.routing.is_some(), &[Kind::OpenRouter]),
    ];
    match of_some_kinds.into_iter().find(|(_, set, of)| *set && !of.contains(&kind)) {
        Some((key, _, of)) => {
            let kinds: Vec<_> = of.iter().map(|kind| kind.name()).collect();
            let kinds = kinds.join(" or ");
            Err((key, format!("has an effect only on providers of the type {kinds}")))
        }
        None if written.cache_ttl.is_some() && written.prompt_caching == Some(false) => {
            Err(("cache_ttl", "has no effect without prompt_caching".into()))
        }
        None => Ok(()),
    }
}

fn settings(
    kind: Kind,
    auth_method: AuthMethod,
    written: schema::Provider,
    user_home: Option<&Path>,
) -> Result<ProviderSettings, Wrong> {
    let usual = ProviderSettings::new(kind);
    let base_url = written.base_url.map_or(usual.base_url.clone(), |Text(url)| url);
    let wire = match written.wire {
        Some(Text(word)) => wire(kind, &word)?,
        None => Wire::usual(kind, &base_url),
    };
    let ca_file = written.ca_file.map(|Text(path)| presets::expand(&path, user_home)).transpose();
    // What was one limit is two by now, and both are as it was where it was set.
    let both = written.request_timeout.map(|it| it.0);
    let timeout = |own: Option<Duration>, usual: Duration| own.or(both).unwrap_or(usual);
    let first_event = written.first_event_timeout.map(|it| it.0);
    let headers = written.extra_headers.into_iter().flat_map(Table::into_entries);
    Ok(ProviderSettings {
        base_url,
        wire,
        auth_method,
        extra_headers: headers.map(|(header, Text(value))| (header, value)).collect(),
        api_version: written.api_version.map(|Text(version)| version),
        deployment: written.deployment.map(|Text(deployment)| deployment),
        first_event_timeout: timeout(first_event, usual.first_event_timeout),
        idle_timeout: timeout(written.idle_timeout.map(|it| it.0), usual.idle_timeout),
        queue_timeout: written.queue_timeout.map_or(usual.queue_timeout, |it| it.0),
        max_concurrent_calls: written
            .max_concurrent_calls
            .map_or(usual.max_concurrent_calls, |it| it.0),
        requests_per_minute: written.requests_per_minute.map(|it| it.0),
        tokens_per_minute: written.tokens_per_minute.map(|it| it.0),
        max_retries: written.max_retries.map_or(usual.max_retries, |it| it.0),
        retry_backoff: written.retry_backoff.map_or(usual.retry_backoff, |it| it.0),
        prompt_caching: written.prompt_caching.unwrap_or(usual.prompt_caching),
        cache_ttl: match written.cache_ttl.map(|it| it.0) {
            Some("1h") => CacheTtl::OneHour,
            _ => CacheTtl::FiveMinutes,
        },
        keep_alive: written.keep_alive.map(|Text(time)| keep_alive(time, wire)).transpose()?,
        routing: written.routing.map(routing).transpose()?,
        ca_file: ca_file.map_err(|reason| ("ca_file", reason))?,
        proxy: written.proxy.map(|Text(url)| url),
        insecure_http: written.insecure_http.unwrap_or(false),
        ..usual
    })
}

/// The wire of this name, if services of the kind speak it.
fn wire(kind: Kind, word: &str) -> Result<Wire, Wrong> {
    let spoken = Wire::spoken_by(kind);
    spoken.iter().copied().find(|wire| wire.name() == word).ok_or_else(|| {
        let names: Vec<_> = spoken.iter().map(|wire| wire.name()).collect();
        let (kind, names) = (kind.name(), names.join(", "));
        ("wire", format!("{word:?} is not spoken by providers of the type {kind}, but {names}"))
    })
}

fn keep_alive(time: String, wire: Wire) -> Result<String, Wrong> {
    let wrong = |reason: &str| Err(("keep_alive", reason.to_owned()));
    if wire != Wire::Ollama {
        return wrong(&format!("cannot be said over the wire {}", wire.name()));
    }
    if !is_time_with_unit(&time) {
        return wrong("is a time with its unit, such as 30m or 24h; -1s is for ever");
    }
    Ok(time)
}

/// Whether a time is written as Ollama reads it: `1h30m`, `-1s`.
fn is_time_with_unit(time: &str) -> bool {
    let mut rest = time.strip_prefix('-').unwrap_or(time);
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let behind_number = rest.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.');
        let behind_unit = behind_number.trim_start_matches(|it: char| it.is_ascii_alphabetic());
        let number = &rest[..rest.len() - behind_number.len()];
        let unit = &behind_number[..behind_number.len() - behind_unit.len()];
        if number.parse::<f64>().is_err() || !["ms", "s", "m", "h"].contains(&unit) {
            return false;
        }
        rest = behind_unit;
    }
    true
}

fn routing(Json(members): Json) -> Result<serde_json::Map<String, serde_json::Value>, Wrong> {
    let bytes = serde_json::to_string(&members).map_or(0, |text| text.len());
    if bytes > ROUTING_BYTES_MAX {
        return Err(("routing", format!("is larger than {ROUTING_BYTES_MAX} bytes")));
    }
    Ok(members)
}

/// A wrong address or header is better found now than in the first turn. The key is not looked at yet: what stands for it
/// shows whether one could be sent.
fn check_build(settings: &ProviderSettings, sends_key: bool) -> Result<(), Wrong> {
    let proxy = settings.proxy.as_deref().map(|url| ("proxy", url));
    let addresses = [Some(("base_url", settings.base_url.as_str())), proxy];
    for (key, url) in addresses.into_iter().flatten() {
        if !has_scheme(url) {
            let reason =
                format!("{url:?} does not begin with http:// or https://; write http://{url}");
            return Err((key, reason));
        }
    }
    let api_key = sends_key.then(|| "key".to_owned());
    let Err(error) = providers::build(&ProviderSettings { api_key, ..settings.clone() }) else {
        return Ok(());
    };
    let key = match &error {
        BuildError::NoBaseUrl(_) | BuildError::BaseUrl(_) | BuildError::PlainHttp => "base_url",
        BuildError::Header(_) => "extra_headers",
        BuildError::ApiVersion => "api_version",
        BuildError::Proxy(_) => "proxy",
        BuildError::ApiKey => "api_key_env",
        BuildError::Unsupported { setting, .. } => setting,
    };
    Err((key, error.to_string()))
}

/// Whether an address says how it is spoken to. One without is mostly a host and port that somebody copied; an empty one
/// stands for the service's own.
fn has_scheme(url: &str) -> bool {
    let start = url.trim().to_ascii_lowercase();
    start.is_empty() || start.starts_with("http://") || start.starts_with("https://")
}
