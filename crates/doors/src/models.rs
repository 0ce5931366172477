//! The models that the configuration names, as doors offer them.

use nexus_protocol::model::{ListModels, ListModelsParams, ModelEntry};
use nexus_protocol::params::Bounded;
use nexus_protocol::{Api, CallError, Target};

/// On one page, which is all of them in any configuration that was ever seen.
const MODELS_MAX: u32 = 1_000;

pub async fn configured<A: Api>(api: &A) -> Result<Vec<ModelEntry>, CallError> {
    let params = ListModelsParams { limit: Bounded::new(MODELS_MAX), ..Default::default() };
    Ok(api.call::<ListModels>(&Target::Server, params).await?.models)
}
