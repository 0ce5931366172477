//! Google's `generateContent`.

use serde_json::{Value, json};

use super::{Frame, Saying, as_object, data, ended, text};
use crate::reply::{Step, StopSaid, signature_of};

pub(super) fn stream(saying: &Saying<'_>) -> Vec<Frame> {
    if is_blocked_prompt(saying) {
        return vec![data(&blocked_prompt(saying))];
    }
    let mut frames = Vec::new();
    let mut signatures = Signatures::default();
    for step in saying.steps.iter() {
        match step {
            Step::Text(_)
            | Step::Refusal(_)
            | Step::Thought { .. }
            | Step::Redacted(_)
            | Step::ToolCall { .. } => {
                if let Some(part) = signatures.part(step) {
                    frames.push(data(&chunk(saying, json!([part]), None)));
                }
            }
            Step::Ping => frames.push(data(&chunk_without_candidates(saying))),
            Step::Garbage => frames.push(text("data: {\"candidates\": [{\n\n")),
            Step::Error { kind, message } => {
                let code = status_of(kind);
                let error = json!({"code": code, "message": message, "status": kind});
                frames.push(data(&json!({"error": error})));
                return frames;
            }
            Step::Hang => return ended(frames, Frame::Hang),
            Step::Cut => return ended(frames, Frame::Cut),
            Step::Gate(gate) => frames.push(Frame::Wait(gate.clone())),
        }
    }
    let mut last = json!({"text": ""});
    if let Some(signature) = signatures.waiting.take() {
        last["thoughtSignature"] = json!(signature);
    }
    frames.push(data(&chunk(saying, json!([last]), Some(finish_reason(saying)))));
    frames
}

pub(super) fn document(saying: &Saying<'_>) -> Value {
    if is_blocked_prompt(saying) {
        return blocked_prompt(saying);
    }
    let mut signatures = Signatures::default();
    let mut parts: Vec<Value> =
        saying.content().iter().filter_map(|step| signatures.part(step)).collect();
    if let Some(signature) = signatures.waiting.take() {
        parts.push(json!({"text": "", "thoughtSignature": signature}));
    }
    chunk(saying, json!(parts), Some(finish_reason(saying)))
}

pub(super) fn error(
    message: &str,
    status: u16,
    code: Option<&str>,
    retry_after: Option<&str>,
) -> Value {
    let word = code.unwrap_or(match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    });
    let mut error = json!({"code": status, "message": message, "status": word});
    if let Some(seconds) = retry_after.filter(|value| in_seconds(value)) {
        error["details"] = json!([{
            "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s"),
        }]);
    }
    json!({"error": error})
}

/// Whether a time to wait can be said in the body, so that no header does.
pub(crate) fn in_seconds(retry_after: &str) -> bool {
    retry_after.parse::<f64>().is_ok()
}

/// Where signatures go: onto the first call of a step, or onto an empty text at its end.
#[derive(Default)]
pub(crate) struct Signatures {
    /// Of a thought that nothing was said after.
    waiting: Option<String>,
    has_called: bool,
}

impl Signatures {
    pub(crate) fn part(&mut self, step: &Step) -> Option<Value> {
        match step {
            Step::Text(said) | Step::Refusal(said) => Some(json!({"text": said})),
            Step::Thought { text, signature } => {
                self.waiting = Some(signature.clone()).filter(|it| !it.is_empty());
                (!text.is_empty()).then(|| json!({"text": text, "thought": true}))
            }
            Step::Redacted(hidden) => Some(json!({"text": "", "thoughtSignature": hidden})),
            Step::ToolCall { is_cut: true, .. } => None,
            Step::ToolCall { id, name, arguments, .. } => {
                let mut call = json!({"name": name, "args": as_object(arguments)});
                if !id.is_empty() {
                    call["id"] = json!(id);
                }
                let mut part = json!({"functionCall": call});
                if !self.has_called {
                    let own = || signature_of(&format!("{id} {name} {arguments}"));
                    part["thoughtSignature"] = json!(self.waiting.take().unwrap_or_else(own));
                }
                self.has_called = true;
                Some(part)
            }
            Step::Ping
            | Step::Garbage
            | Step::Error { .. }
            | Step::Hang
            | Step::Cut
            | Step::Gate(_) => None,
        }
    }
}

fn is_blocked_prompt(saying: &Saying<'_>) -> bool {
    saying.stop() == StopSaid::ContentFilter && saying.steps.is_empty()
}

fn blocked_prompt(saying: &Saying<'_>) -> Value {
    let mut chunk = chunk_without_candidates(saying);
    chunk["promptFeedback"] = json!({"blockReason": "PROHIBITED_CONTENT"});
    chunk
}

fn finish_reason(saying: &Saying<'_>) -> String {
    match saying.stop() {
        StopSaid::End => "STOP",
        StopSaid::MaxTokens | StopSaid::ContextWindow => "MAX_TOKENS",
        StopSaid::Refusal { .. } | StopSaid::ContentFilter => "SAFETY",
        StopSaid::Pause => "CONTINUATION",
        StopSaid::MalformedCall => "MALFORMED_FUNCTION_CALL",
        StopSaid::Raw(word) => return word,
    }
    .to_owned()
}

fn chunk(saying: &Saying<'_>, parts: Value, finish: Option<String>) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(reason) = finish {
        candidate["finishReason"] = json!(reason);
        if let StopSaid::Refusal { explanation: Some(words), .. } = saying.stop() {
            candidate["finishMessage"] = json!(words);
        }
    }
    let mut chunk = chunk_without_candidates(saying);
    chunk["candidates"] = json!([candidate]);
    chunk
}

fn chunk_without_candidates(saying: &Saying<'_>) -> Value {
    let usage = saying.usage;
    let mut counted = json!({
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output.saturating_sub(usage.reasoning),
        "totalTokenCount": usage.input + usage.output,
    });
    if usage.cache_read > 0 {
        counted["cachedContentTokenCount"] = json!(usage.cache_read);
    }
    if usage.reasoning > 0 {
        counted["thoughtsTokenCount"] = json!(usage.reasoning);
    }
    json!({"usageMetadata": counted, "modelVersion": "scripted", "responseId": "scripted"})
}

/// The HTTP status that belongs to a word of `google.rpc.Code`.
fn status_of(word: &str) -> u16 {
    match word {
        "INVALID_ARGUMENT" | "FAILED_PRECONDITION" => 400,
        "UNAUTHENTICATED" => 401,
        "PERMISSION_DENIED" => 403,
        "NOT_FOUND" => 404,
        "RESOURCE_EXHAUSTED" => 429,
        "UNAVAILABLE" => 503,
        "DEADLINE_EXCEEDED" => 504,
        _ => 500,
    }
}
