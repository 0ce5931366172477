//! The providers section, checked as far as it can be without calling anybody.

use std::path::Path;

use nexus_models::Kind;

use super::value::{Object, Table, Text};
use super::{Backend, Fault, ModelEntry, ProviderEntry};
use super::{entries, presets, schema, service};

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
            return resolve_local(name, provider, user_home);
        }
        let kind = kind(&name, provider.r#type.as_ref())
            .map_err(|reason| Fault::new(&["providers", &name, "type"], reason))?;
        if provider.path.is_some() {
            let reason = format!("has no meaning but for a provider of type {LOCAL}");
            return Err(Fault::new(&["providers", &name, "path"], reason));
        }
        service::resolve(name, kind, provider, user_home)
    };
    let providers: Vec<_> = entries.map(resolve_one).collect::<Result<_, _>>()?;
    entries::check_fallbacks(&providers)?;
    Ok(providers)
}

fn resolve_local(
    name: String,
    written: schema::Provider,
    user_home: Option<&Path>,
) -> Result<ProviderEntry, Fault> {
    let of_services = [
        ("wire", written.wire.is_some()),
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
        ("first_event_timeout", written.first_event_timeout.is_some()),
        ("idle_timeout", written.idle_timeout.is_some()),
        ("queue_timeout", written.queue_timeout.is_some()),
        ("max_concurrent_calls", written.max_concurrent_calls.is_some()),
        ("requests_per_minute", written.requests_per_minute.is_some()),
        ("tokens_per_minute", written.tokens_per_minute.is_some()),
        ("cache_ttl", written.cache_ttl.is_some()),
        ("keep_alive", written.keep_alive.is_some()),
        ("routing", written.routing.is_some()),
        ("ca_file", written.ca_file.is_some()),
        ("proxy", written.proxy.is_some()),
        ("insecure_http", written.insecure_http.is_some()),
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
        let alias = alias.unwrap_or_else(|| name.clone());
        models.push(ModelEntry { id, ..ModelEntry::named(alias) });
    }
    for (alias, Object(model)) in written.models.into_iter().flat_map(Table::into_entries) {
        let mut entry = entries::resolve(&name, None, alias, model)?;
        if entry.id.contains('/') {
            entry.id = place(&["providers", &name, "models", &entry.alias, "id"], &entry.id)?;
        }
        models.push(entry);
    }
    Ok(ProviderEntry { name, backend: Backend::Local, key_env: None, key_required: false, models })
}

/// A provider named after a kind needs no type.
fn kind(name: &str, written: Option<&Text>) -> Result<Kind, String> {
    let known = || format!("{}, {LOCAL}", Kind::ALL.map(Kind::name).join(", "));
    match written {
        Some(Text(kind)) => {
            Kind::parse(kind).ok_or_else(|| format!("{kind:?} is not one of {}", known()))
        }
        None => Kind::parse(name).ok_or_else(|| format!("is missing; it is one of {}", known())),
    }
}

/// A slash would make `provider/model` ambiguous.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}
