//! What Google's `generateContent` refuses.

use serde_json::Value;

use super::{Given, Rejection};
use crate::prompt;
use crate::reply::Step;
use crate::wire::Signatures;

/// What stands for a signature that is not there, as for a call that another model made.
const FOREIGN: &str = "skip_thought_signature_validator";

pub(super) fn check(given: &Given, body: &Value) -> Result<(), Rejection> {
    let contents: Vec<&Value> = prompt::pieces(&body["contents"]).collect();
    for (index, content) in contents.iter().enumerate() {
        let calls: Vec<&Value> = having(content, "functionCall").collect();
        if let Some(first) = calls.first() {
            check_signature(given, first, index)?;
            let results =
                contents.get(index + 1).map_or(0, |next| having(next, "functionResponse").count());
            if results != calls.len() {
                let message = "Please ensure that the number of function response parts is equal to the number of \
                               function call parts of the function call turn.";
                return Err(message.into());
            }
        }
        for part in prompt::pieces(&content["parts"]) {
            let signature = part["thoughtSignature"].as_str();
            if !signature.is_none_or(|it| it == FOREIGN || given.signatures.contains(it)) {
                return Err("Corrupted thought signature.".into());
            }
        }
    }
    Ok(())
}

/// The first call of a step has the signature that it was given out with, or says that it has none.
fn check_signature(given: &Given, part: &Value, position: usize) -> Result<(), Rejection> {
    let call = &part["functionCall"];
    let own = call["id"].as_str().and_then(|id| given.signature_of_call.get(id));
    let is_right = match (part["thoughtSignature"].as_str(), own) {
        (None, _) => false,
        (Some(FOREIGN), _) => true,
        (Some(signature), own) => own.is_none_or(|own| own == signature),
    };
    if is_right {
        return Ok(());
    }
    let name = call["name"].as_str().unwrap_or_default();
    let message = format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, \
         and missing thought_signature may lead to degraded model performance. Additional data, function call \
         `default_api:{name}`, position {position}."
    );
    Err(message.into())
}

pub(super) fn remember(given: &mut Given, content: &[Step]) {
    let mut signatures = Signatures::default();
    for part in content.iter().filter_map(|step| signatures.part(step)) {
        let Some(signature) = part["thoughtSignature"].as_str() else { continue };
        given.signatures.insert(signature.to_owned());
        if let Some(id) = part["functionCall"]["id"].as_str() {
            given.signature_of_call.insert(id.to_owned(), signature.to_owned());
        }
    }
}

fn having<'a>(content: &'a Value, key: &'a str) -> impl Iterator<Item = &'a Value> {
    prompt::pieces(&content["parts"]).filter(move |part| part.get(key).is_some())
}
