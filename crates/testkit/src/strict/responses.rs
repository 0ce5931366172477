//! What OpenAI's responses refuse.

use std::collections::HashSet;

use serde_json::Value;

use super::{Given, Rejection};
use crate::prompt;

pub(super) fn check(given: &Given, body: &Value) -> Result<(), Rejection> {
    let items: Vec<&Value> =
        prompt::pieces(&body["input"]).filter(|item| item.is_object()).collect();
    if body["store"] == false
        && let Some(id) = items.iter().find_map(|item| item["id"].as_str())
    {
        let message = format!(
            "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` \
             set to true, or remove this item from your input."
        );
        return Err(message.into());
    }
    let of = |kind: &str| -> Vec<&str> {
        let items = items.iter().filter(|item| item["type"] == kind);
        items.filter_map(|item| item["call_id"].as_str()).collect()
    };
    let (calls, outputs) = (of("function_call"), of("function_call_output"));
    let (asked, answered): (HashSet<&str>, HashSet<&str>) =
        (calls.iter().copied().collect(), outputs.iter().copied().collect());
    if let Some(stray) = outputs.iter().find(|id| !asked.contains(*id)) {
        let message = format!("No tool call found for function call output with call_id {stray}.");
        return Err(message.into());
    }
    if let Some(open) = calls.iter().find(|id| !answered.contains(*id)) {
        return Err(format!("No tool output found for function call {open}.").into());
    }
    for (index, item) in items.iter().enumerate().filter(|(_, item)| item["type"] == "reasoning") {
        let encrypted = item["encrypted_content"].as_str().unwrap_or_default();
        if !given.signatures.contains(encrypted) {
            return Err(Rejection {
                message: "The encrypted content could not be verified. Reason: Encrypted content could not be decrypted or \
                          parsed."
                    .to_owned(),
                code: Some("invalid_encrypted_content"),
            });
        }
        if !items.get(index + 1).is_some_and(|next| is_of_model(next)) {
            let message = format!(
                "Item {index} of type 'reasoning' was provided without its required following item."
            );
            return Err(message.into());
        }
    }
    Ok(())
}

fn is_of_model(item: &Value) -> bool {
    matches!(item["type"].as_str(), Some("reasoning" | "function_call"))
        || item["role"] == "assistant"
}
