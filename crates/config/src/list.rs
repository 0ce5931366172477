//! What models there are, by page: those that the configuration names, or that were found, and then what their providers
//! have beside them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nexus_core::listing::{ListedModel, ModelPage, ModelQuery};
use nexus_core::provider::ModelError;
use nexus_models::catalogue::{Shop, id_of};

use super::models::ModelCatalog;
use super::{Backend, ModelEntry, ProviderEntry};

pub(super) fn page(catalog: &ModelCatalog, query: &ModelQuery) -> Result<ModelPage, ModelError> {
    let wanted = |provider: &ProviderEntry| {
        query.provider.as_ref().is_none_or(|name| *name == provider.name)
    };
    let providers: Vec<_> = catalog.providers().filter(|provider| wanted(provider)).collect();
    if let (Some(name), true) = (&query.provider, providers.is_empty()) {
        let known: Vec<_> = catalog.providers().map(|provider| provider.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(ModelError::UnknownProvider { name: name.clone(), known });
    }
    let mut models: Vec<(String, &ProviderEntry, Cow<'_, ModelEntry>)> = Vec::new();
    for provider in &providers {
        for model in &provider.models {
            let name = match catalog.has_twin(&model.alias) {
                false => model.alias.clone(),
                true => format!("{}/{}", provider.name, model.alias),
            };
            models.push((name, provider, Cow::Borrowed(model)));
        }
    }
    for provider in providers.iter().filter(|_| query.all) {
        for id in beside(catalog, provider) {
            let name = format!("{}/{id}", provider.name);
            models.push((name, provider, Cow::Owned(ModelEntry::named(id))));
        }
    }
    let hindrances: BTreeMap<&str, Option<String>> = providers
        .iter()
        .map(|provider| (provider.name.as_str(), catalog.hindrance(provider)))
        .collect();
    let unavailable = |provider: &ProviderEntry, model: &ModelEntry| {
        let of_all = hindrances.get(provider.name.as_str()).cloned().flatten();
        of_all.or_else(|| {
            let is_missing = catalog.is_to_be_pulled(provider, model);
            is_missing.then(|| "its weights are not here yet: nexus3 model pull".into())
        })
    };
    let total = models.len() as u64;
    let skip = usize::try_from(query.offset).unwrap_or(usize::MAX);
    let default_name = catalog.default_name().ok();
    let default = default_name.as_ref().and_then(|name| {
        let (service, model) = catalog.find(name).ok()?;
        Some((service.entry.name.clone(), model.id.clone(), model.alias.clone()))
    });
    let is_default = |provider: &ProviderEntry, model: &ModelEntry| {
        default.as_ref().is_some_and(|(of, id, alias)| {
            *of == provider.name && *id == model.id && *alias == model.alias
        })
    };
    // As the list has it, where it does: that can be longer than what the configuration says.
    let listed = models.iter().find(|(_, provider, model)| is_default(provider, model));
    let listed = listed.map(|(name, ..)| name.clone());
    let default_name = listed.or_else(|| default_name.map(Cow::into_owned));
    let on_page = models.into_iter().skip(skip).take(query.limit as usize);
    let listed = on_page.map(|(name, provider, model)| {
        let (figures, _) = catalog.figures(&name, provider, &model);
        ListedModel {
            info: Arc::new(figures.info),
            sources: figures.sources,
            tools: figures.tools,
            schemas: figures.schemas,
            wires: figures.wires,
            retires: figures.retires,
            unavailable: unavailable(provider, &model),
            key_set: catalog.has_key(provider),
            default: is_default(provider, &model),
        }
    });
    Ok(ModelPage { total, default: default_name, models: listed.collect() })
}

/// The ids of what a provider has beside the models that were named: as it said itself, or as the shipped table has it.
fn beside(catalog: &ModelCatalog, provider: &ProviderEntry) -> BTreeSet<String> {
    let Backend::Service(settings) = &provider.backend else { return BTreeSet::new() };
    let said = catalog.said().models(&provider.name, &settings.base_url);
    let shipped = Shop::of(settings.kind, &settings.base_url).models();
    let ids = said.chain(shipped).map(|entry| id_of(&entry.key).to_owned());
    let named = |id: &String| provider.models.iter().any(|model| model.id == *id);
    ids.filter(|id| !named(id)).collect()
}
