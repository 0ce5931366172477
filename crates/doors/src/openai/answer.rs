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

    /// A piece of one, for those who want to know at the end what it took, or for others.
    pub fn chunk<'a>(&'a self, index: usize, delta: Delta<'a>, include_usage: bool) -> Chunk<'a> {
        let choice = ChunkChoice { index, delta, logprobs: None, finish_reason: None };
        Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.model,
            choices: [choice],
            usage: include_usage.then_some(()),
            nexus_event: None,
        }
    }

    /// The last piece, for those who want to know what it took.
    pub fn usage_chunk(&self, usage: &Usage) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": [], "usage": usage_entry(usage),
        })
    }
}

/// A piece of an answer. There are many of them, so it is written as it is.
#[derive(Serialize)]
pub struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [ChunkChoice<'a>; 1],
    /// `null`, where it comes at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nexus_event: Option<&'a Value>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: usize,
    delta: Delta<'a>,
    logprobs: Option<Logprobs<'a>>,
    finish_reason: Option<Finish>,
}

/// What is new in it.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Delta<'a> {
    Begin { role: &'static str, content: &'static str },
    Text { content: &'a str },
    Call { tool_calls: [Value; 1] },
    Nothing {},
}

impl Delta<'_> {
    pub const BEGIN: Self = Self::Begin { role: "assistant", content: "" };
}

impl<'a> Chunk<'a> {
    pub fn logprobs(mut self, entries: &'a [Value]) -> Self {
        self.choices[0].logprobs = logprobs_entry(entries);
        self
    }

    /// Nothing of the answer comes after it.
    pub fn finish(mut self, finish: Finish) -> Self {
        self.choices[0].finish_reason = Some(finish);
        self
    }

    pub fn event(mut self, event: &'a Value) -> Self {
        self.nexus_event = Some(event);
        self
    }
}

#[derive(Serialize)]
struct Logprobs<'a> {
    content: &'a [Value],
    /// `null`: nothing is said of it.
    refusal: Option<()>,
}

fn logprobs_entry(entries: &[Value]) -> Option<Logprobs<'_>> {
    (!entries.is_empty()).then_some(Logprobs { content: entries, refusal: None })
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
