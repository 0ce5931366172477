//! The providers section, checked as far as it can be without calling anybody.

use super::schema;
use super::value::{Object, Table, Text};
use super::{Fault, ModelEntry, ProviderEntry};
use crate::providers::{self, AuthMethod, Kind, ProviderSettings};

/// What is assumed of a model nobody described: every current one of the large services has at least this.
pub(super) const CONTEXT_WINDOW: u32 = 128_000;

pub(super) fn resolve(
    written: Option<Table<Object<schema::Provider>>>,
) -> Result<Vec<ProviderEntry>, Fault> {
    let entries = written.into_iter().flat_map(Table::into_entries);
    entries.map(|(name, Object(provider))| resolve_one(name, provider)).collect()
}

fn resolve_one(name: String, written: schema::Provider) -> Result<ProviderEntry, Fault> {
    let fault = |key: &str, reason: String| Fault::new(&["providers", &name, key], reason);
    if !is_name(&name) {
        let reason = "a provider's name may hold only letters, digits, '.', '_' and '-'".into();
        return Err(Fault::new(&["providers", &name], reason));
    }
    let kind = kind(&name, written.r#type).map_err(|reason| fault("type", reason))?;
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
    // Built only to be checked: a wrong address or header is better found now than in the first turn.
    if let Err(error) = providers::build(&settings) {
        return Err(Fault::new(&["providers", &name], error.to_string()));
    }

    let models = written.models.into_iter().flat_map(Table::into_entries);
    let models = models
        .map(|(alias, Object(model))| resolve_model(&name, alias, model))
        .collect::<Result<_, _>>()?;
    Ok(ProviderEntry { name, settings, key_env, key_required, models })
}

/// A provider named after a kind needs no type.
fn kind(name: &str, written: Option<Text>) -> Result<Kind, String> {
    let known = || Kind::ALL.map(Kind::name).join(", ");
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
        context_window: written.context_window.map_or(CONTEXT_WINDOW, |it| it.0),
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
