//! What OpenAI's clients are answered.

use nexus_protocol::usage::Usage;
use serde::Serialize;
use serde_json::{Value, json};

/// What all answers and chunks of one request have in common.
#[derive(Clone, Debug)]
pub struct Head {
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
    /// As it was asked for.
    pub model: String,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    Length,
    ToolCalls,
    ContentFilter,
}

impl Finish {
    /// By the stop reason of a turn or of a model.
    pub fn of(reason: &str) -> Self {
        match reason {
            "max_tokens" | "context_window" | "iteration_limit" | "budget" => Self::Length,
            "refusal" | "content_filter" => Self::ContentFilter,
            _ => Self::Stop,
        }
    }
}

/// One of the answers to a request.
#[derive(Clone, Debug)]
pub struct Choice {
    pub text: String,
    /// How likely its tokens were, where that is known.
    pub logprobs: Vec<Value>,
    /// Calls of the caller's tools, in OpenAI's shape.
    pub calls: Vec<Value>,
    pub finish: Finish,
}

impl Head {
    /// A whole answer.
    pub fn completion(&self, choices: &[Choice], usage: &Usage) -> Value {
        let choices = choices.iter().enumerate().map(|(index, choice)| {
            let is_silent = choice.text.is_empty() && !choice.calls.is_empty();
            let content = if is_silent { Value::Null } else { choice.text.as_str().into() };
            let mut message = json!({"role": "assistant", "content": content, "refusal": null});
            if !choice.calls.is_empty() {
                message["tool_calls"] = choice.calls.clone().into();
            }
            json!({"index": index, "message": message, "logprobs": logprobs_entry(&choice.logprobs),
                "finish_reason": choice.finish})
        });
        json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": choices.collect::<Vec<_>>(), "usage": usage_entry(usage),
        })
    }

    /// A piece of one.
    pub fn chunk(&self, index: usize, delta: Value, finish: Option<Finish>) -> Value {
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish});
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": [choice],
        })
    }

    /// The last piece, for those who want to know what it took.
    pub fn usage_chunk(&self, usage: &Usage) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": [], "usage": usage_entry(usage),
        })
    }
}

pub fn logprobs_entry(entries: &[Value]) -> Value {
    if entries.is_empty() { Value::Null } else { json!({"content": entries, "refusal": null}) }
}

pub fn usage_entry(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}
