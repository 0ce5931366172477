//! What a tool asks of a person while it runs: a question of the server that carries it out.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
}

impl Inquiry {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let wants = match &self.wants {
            Wants::Form(schema) => schema.to_string().len(),
            Wants::Visit { url, host } => url.len() + host.len(),
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

/// Those who are asked for a call. What they are asked waits as an approval, and the call's time does not pass meanwhile.
#[async_trait]
pub trait People: Send + Sync {
    async fn ask(&self, asking: Asking) -> Reply;
}

/// Nobody is there.
#[async_trait]
impl People for () {
    async fn ask(&self, _: Asking) -> Reply {
        Reply::Decline
    }
}
