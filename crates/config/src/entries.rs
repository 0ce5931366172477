//! The models of a provider as the configuration names them, checked.

use nexus_core::model::{Effort, Inputs, Reasoning};
use nexus_core::usage::Prices;
use nexus_models::Wire;
use nexus_models::catalogue::{Price, Rate};
use serde_json::{Map, Value};

use super::models::usual_model;
use super::value::{Dollars, Json, Object, Switch, Text};
use super::{Fault, ModelEntry, ProviderEntry, schema};

/// Aliases are stored with agents and shown in lists.
const ALIAS_BYTES_MAX: usize = 128;

/// Each is a service that was tried in vain while somebody waited.
const FALLBACKS_MAX: usize = 8;

/// It goes out with every call.
const EXTRA_BODY_BYTES_MAX: usize = 16 * 1024;

/// `wire` is what the provider speaks, if it is a service.
pub(super) fn resolve(
    provider: &str,
    wire: Option<Wire>,
    alias: String,
    written: schema::Model,
) -> Result<ModelEntry, Fault> {
    let fault = |key: &str, reason: String| {
        Err(Fault::new(&["providers", provider, "models", &alias, key], reason))
    };
    if !is_alias(&alias) {
        let reason = format!("an alias is one line of 1 to {ALIAS_BYTES_MAX} bytes");
        return Err(Fault::new(&["providers", provider, "models", &alias], reason));
    }
    let of_services =
        [("extra_body", written.extra_body.is_some()), ("input", written.input.is_some())];
    if let (None, Some((key, _))) = (wire, of_services.into_iter().find(|(_, set)| *set)) {
        return fault(key, "has no meaning for a provider of type local".into());
    }
    let extra_body = written.extra_body.map_or_else(Map::new, |Json(members)| members);
    if let Err(reason) = check_extra_body(wire, &extra_body) {
        return fault("extra_body", reason);
    }
    let fallback: Vec<String> = written.fallback.into_iter().flatten().map(|it| it.0).collect();
    if fallback.len() > FALLBACKS_MAX {
        return fault("fallback", format!("more than {FALLBACKS_MAX} names"));
    }
    if written.fallback_on_refusal.is_some() && fallback.is_empty() {
        return fault("fallback_on_refusal", "has no effect without fallback".into());
    }
    let prices = match written.price.map(|Object(price)| prices(&price)) {
        Some(Err(reason)) => return fault("price", reason),
        Some(Ok(prices)) => Some(prices),
        None => None,
    };
    Ok(ModelEntry {
        id: written.id.map_or_else(|| alias.clone(), |Text(id)| id),
        context_window: written.context_window.map(|it| it.0),
        max_output_tokens: written.max_output_tokens.map(|it| it.0),
        reasoning: written.reasoning.map_or(Reasoning::Off, reasoning),
        inputs: written.input.map(|taken| Inputs {
            image: taken.iter().any(|it| it.0 == "image"),
            pdf: taken.iter().any(|it| it.0 == "pdf"),
        }),
        prices,
        fallback,
        fallback_on_refusal: written.fallback_on_refusal.unwrap_or(false),
        extra_body,
        alias,
    })
}

fn is_alias(alias: &str) -> bool {
    !alias.trim().is_empty()
        && alias.len() <= ALIAS_BYTES_MAX
        && !alias.chars().any(char::is_control)
}

fn reasoning(written: Switch<schema::Reasoning>) -> Reasoning {
    match written {
        Switch::Plain(false) => Reasoning::Off,
        Switch::Plain(true) => Reasoning::On,
        Switch::Options(options) => Reasoning::Asked {
            effort: options.effort.and_then(|word| Effort::parse(word.0)),
            budget_tokens: options.budget_tokens.map(|it| it.0),
            shown: options.display.is_none_or(|word| word.0 != "none"),
        },
    }
}

fn prices(written: &schema::Price) -> Result<Prices, String> {
    let (Some(Dollars(input)), Some(Dollars(output))) = (written.input, written.output) else {
        return Err("needs input and output".into());
    };
    let rate = Rate {
        input,
        output,
        cache_read: written.cache_read.map(|it| it.0),
        cache_write: written.cache_write.map(|it| it.0),
    };
    let price = Price { base: rate, above: Vec::new() };
    price.prices().ok_or_else(|| "is no price".into())
}

/// What we write ourselves would stand there twice, and services differ in which of two they take.
fn check_extra_body(wire: Option<Wire>, members: &Map<String, Value>) -> Result<(), String> {
    let own = wire.map_or(&[][..], Wire::own_members);
    if let Some(name) = members.keys().find(|name| own.contains(&name.as_str())) {
        return Err(format!("{name} is written by the program itself"));
    }
    let bytes = serde_json::to_string(members).map_or(0, |text| text.len());
    if bytes > EXTRA_BODY_BYTES_MAX {
        return Err(format!("is larger than {EXTRA_BODY_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// Whether each model that is to take another's place is there, and is another. The list of the model that an agent has is
/// the only one that is gone through, so lists that name each other are fine.
pub(super) fn check_fallbacks(providers: &[ProviderEntry]) -> Result<(), Fault> {
    for provider in providers {
        for model in &provider.models {
            let mut known = Vec::new();
            for name in &model.fallback {
                let found = find(providers, name).and_then(|found| {
                    if found == (provider.name.as_str(), model.alias.as_str()) {
                        return Err(format!("{name:?} is the model itself"));
                    }
                    match known.contains(&found) {
                        true => Err(format!("{name:?} is named twice")),
                        false => Ok(found),
                    }
                });
                known.push(found.map_err(|reason| {
                    let key = ["providers", &provider.name, "models", &model.alias, "fallback"];
                    Fault::new(&key, reason)
                })?);
            }
        }
    }
    Ok(())
}

/// The provider and the alias, or id, that a name means.
fn find<'a>(providers: &'a [ProviderEntry], name: &'a str) -> Result<(&'a str, &'a str), String> {
    let has = |provider: &ProviderEntry| {
        let named = provider.models.iter().any(|model| model.alias == name);
        let usual = || usual_model(&provider.backend).is_some_and(|model| model.alias == name);
        named || (provider.models.is_empty() && usual())
    };
    let having: Vec<_> = providers.iter().filter(|provider| has(provider)).collect();
    match having.as_slice() {
        [provider] => return Ok((&provider.name, name)),
        [] => {}
        several => {
            let names: Vec<_> = several.iter().map(|it| format!("{}/{name}", it.name)).collect();
            return Err(format!(
                "several providers have a model {name:?}; say {}",
                names.join(" or ")
            ));
        }
    }
    let (provider, rest) = name.split_once('/').unwrap_or((name, ""));
    let found = providers.iter().find(|it| it.name == provider && !rest.is_empty());
    found.map(|it| (it.name.as_str(), rest)).ok_or_else(|| {
        format!("there is no model {name:?}; it is an alias, provider/alias or provider/id")
    })
}
