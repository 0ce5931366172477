//! The arguments and the answers of tools.

use nexus_protocol::CallError;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::sentence::sentence;

/// Why a tool has no answer, in a sentence for the model.
pub struct Failure(pub String);

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self(sentence(&error))
    }
}

impl From<Failure> for CallToolResult {
    fn from(failure: Failure) -> Self {
        Self::error(vec![ContentBlock::text(failure.0)])
    }
}

/// What a tool was given.
pub fn arguments<T: DeserializeOwned>(given: Option<JsonObject>) -> Result<T, Failure> {
    let given = Value::Object(given.unwrap_or_default());
    serde_json::from_value(given).map_err(|error| Failure(format!("invalid arguments: {error}")))
}

/// An answer that programs read, and models as its text.
pub fn structured(answer: &impl Serialize) -> Result<CallToolResult, Failure> {
    let value = serde_json::to_value(answer).map_err(|error| Failure(error.to_string()))?;
    Ok(CallToolResult::structured(value))
}
