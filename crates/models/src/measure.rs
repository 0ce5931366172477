//! Pieces of a model call by themselves, for who measures what each costs. Production has none without the others.

use std::sync::Arc;

use nexus_core::provider::{Asker, ModelCall, ProviderError};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::{CacheTtl, ProviderSettings, lane, wires};

/// Tokens of a call of ordinary length.
const TOKENS: u64 = 10_000;

/// The lane of a provider to whom nobody else talks.
pub struct Lane(Arc<lane::Lane>);

impl Lane {
    pub fn new(settings: &ProviderSettings) -> Self {
        Self(Arc::new(lane::Lane::new(settings, &settings.base_url)))
    }

    /// All that the lane does for a call that need not wait and goes well.
    pub async fn pass(&self, asker: &Asker, model: &str) -> Result<(), ProviderError> {
        let mut permit = self.0.place(asker, model, TOKENS).pass().await?;
        permit.told(StatusCode::OK, &HeaderMap::new());
        permit.heard();
        permit.finished();
        Ok(())
    }
}

/// What is sent for a call on the wire `messages`, with its marks for the cache.
pub fn messages_body(call: &ModelCall) -> serde_json::Result<Vec<u8>> {
    Ok(wires::messages::request_body(call, Some(CacheTtl::default()))?.bytes)
}
