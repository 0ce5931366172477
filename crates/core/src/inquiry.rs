//! What the server that carries a tool out asks while it runs: of a person, and with their leave of the agent's model.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::Role;

/// A question to a person, as it is stored and shown. The words are a stranger's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inquiry {
    /// Who asks.
    pub server: String,
    pub message: String,
    pub wants: Wants,
}

/// What a person is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wants {
    /// Fill in a form, which has this schema.
    Form(Value),
    /// Open this address, which is of this host, and do there what is wanted.
    Visit { url: String, host: String },
    /// Let the server ask the agent's model what stands in the message.
    Sampling,
}

impl Inquiry {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let wants = match &self.wants {
            Wants::Form(schema) => schema.to_string().len(),
            Wants::Visit { url, host } => url.len() + host.len(),
            Wants::Sampling => 0,
        };
        self.message.len() + wants
    }
}

/// What a person said to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Yes, with what stands in the form.
    Accept(Map<String, Value>),
    Decline,
    /// Neither yes nor no: nobody answered, or nobody wanted to.
    Cancel,
}

/// Makes a form complete, or says what is wrong with it.
pub type Complete =
    Arc<dyn Fn(Map<String, Value>) -> Result<Map<String, Value>, String> + Send + Sync>;

/// A question, and how its answer is looked at.
#[derive(Clone)]
pub struct Asking {
    pub inquiry: Inquiry,
    pub complete: Complete,
}

/// What is to be said to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub system: String,
    /// By turns; the user begins and has the last word.
    pub said: Vec<(Role, String)>,
    pub max_tokens: u32,
}

/// What the model said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    pub text: String,
    pub model: String,
    /// It would have gone on, had it been let.
    pub is_cut: bool,
}

/// What a server is told that may not ask the model.
pub(crate) const NO_LEAVE: &str = "nobody gave leave to ask the model";

/// Those who are asked for a call. What they are asked waits as an approval, and the call's time does not pass meanwhile.
#[async_trait]
pub trait People: Send + Sync {
    async fn ask(&self, asking: Asking) -> Reply;

    /// Has the agent's model say something, once they gave leave for it as `asking` has it. An error says why not.
    async fn sample(&self, asking: Asking, sample: Sample) -> Result<Sampled, String>;
}

/// Nobody is there.
#[async_trait]
impl People for () {
    async fn ask(&self, _: Asking) -> Reply {
        Reply::Decline
    }

    async fn sample(&self, _: Asking, _: Sample) -> Result<Sampled, String> {
        Err(NO_LEAVE.into())
    }
}
