//! Methods that start and stop turns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::content::Content;
use crate::method;
use crate::once::{IdempotencyKey, Once};
use crate::schema::Name;
use crate::usage::Usage;

method! {
    /// Sends a message to the agent and returns its answer. Turns of one agent run one after another. With
    /// `stream: true` (over HTTP also `Accept: text/event-stream`) the answer arrives in pieces before the response.
    Send = "send", Agent Turn, SendParams => SendResult, once |params| Some(Once {
        key: params.idempotency_key.as_ref()?,
        path: "/idempotency_key",
        text: (params.stream == Some(true)).then_some("/content"),
    })
}

method! {
    /// Cancels a turn that runs or waits. The turn's own call answers with what had been generated.
    Cancel = "cancel", Agent Control, CancelParams => CancelResult
}

method! {
    /// Goes on with the turn that was cut off last, by a restart, a cancel, its iteration limit or a provider that
    /// failed, from its last finished step. A tool call whose effect is not known is not run again; the model is told
    /// so. Answers as `send`.
    ResumeTurn = "resume_turn", Agent Turn, ResumeTurnParams => SendResult
}

/// Names a turn: a string that is not blank, or an integer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RequestId {
    Number(i64),
    /// Not blank, which the server checks: a type that did would make a name from an older store unreadable.
    Text(#[schemars(length(min = 1), regex(pattern = r"\S"))] String),
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendParams {
    /// What is said: a text that is not blank, or parts, with at most 20 images and files among them.
    pub content: Content,
    /// Names the turn for `cancel`; generated when absent. Refused while a turn of this name is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Where the message comes from, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    pub source_agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// JSON Schema of the answer: `content` is then JSON that satisfies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Map<String, Value>>,
    /// The most tokens of one answer. One that is cut by it is answered as it is, with the stop reason `max_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_output_tokens: Option<std::num::NonZeroU32>,
    /// Cancels the turn and answers -32000 when it takes longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<std::num::NonZeroU64>,
    /// Names the call for whoever makes it again: it is carried out once, and its answer given again for 10 minutes. At
    /// most 255 bytes. With it, who hangs up does not cancel the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// `ask`: somebody is there who answers `list_approvals`, so what needs leave is asked for whatever
    /// `permissions.approvals` says, in this turn and in the turns of other agents that it waits for. Administrator only,
    /// with `stream` and without `idempotency_key`: who hangs up takes the turn along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<TurnApprovals>,
}

/// What is done with what needs leave, in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnApprovals {
    Ask,
}

impl SendParams {
    /// The message and nothing else.
    pub fn new(content: impl Into<Content>) -> Self {
        Self {
            content: content.into(),
            request_id: None,
            source: None,
            source_agent_id: None,
            stream: None,
            response_schema: None,
            max_output_tokens: None,
            timeout_ms: None,
            idempotency_key: None,
            approvals: None,
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeTurnParams {
    /// The turn that is expected to be unfinished, as `get_context` names it. Another is not resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// JSON Schema of the answer, as for `send`: it is not kept with the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Map<String, Value>>,
    /// Cancels the turn and answers -32000 when it takes longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<std::num::NonZeroU64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SendResult {
    pub content: String,
    pub request_id: RequestId,
    pub halted_at_iteration_limit: bool,
    /// Present and true when the turn was cancelled; `content` is what had been generated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// Why the model stopped: `end_turn`, `max_tokens`, `context_window`, `refusal`, `content_filter`, `empty`, `pause`; or
    /// why the turn did: `iteration_limit`, `cancelled`. `other` when its provider gave a reason that is not known.
    pub stop_reason: String,
    /// What the provider says of that: a refusal's category and explanation, or in `raw` the word that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_details: Option<Value>,
    /// All that the turn used.
    pub usage: Usage,
    /// What that costs; null where a price is not known.
    pub cost_usd: Option<f64>,
    /// The model that answered last.
    pub model: String,
    /// How often a model was asked, not counting answers that were thrown away.
    pub steps: u32,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelParams {
    pub request_id: RequestId,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CancelResult {
    pub cancelled: bool,
    pub request_id: RequestId,
    /// `not_found_or_completed` when nothing was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
