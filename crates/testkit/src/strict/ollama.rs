//! What Ollama refuses.

use serde_json::Value;

use super::Rejection;
use crate::prompt;

/// The window of a server on a small machine that was not told otherwise.
const CONTEXT_TOKENS: u64 = 4096;

pub(super) fn check(body: &Value) -> Result<(), Rejection> {
    let window = body["options"]["num_ctx"].as_u64().unwrap_or(CONTEXT_TOKENS);
    let pieces = ["tools", "messages"].into_iter().flat_map(|name| prompt::pieces(&body[name]));
    let bytes: usize = pieces.map(|piece| prompt::canonical(piece).len()).sum();
    if body["truncate"] == false && prompt::tokens(bytes) > window {
        return Err("the input length exceeds the context length".into());
    }
    Ok(())
}
