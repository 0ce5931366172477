//! The one place where errors of the domain learn their wire code.

use nexus_core::account::Exceeded;
use nexus_core::approval::RespondError;
use nexus_core::authority::Denied;
use nexus_core::lifecycle::{AccessError, CreateError};
use nexus_core::provider::{ModelError, ProviderError};
use nexus_core::session::SessionError;
use nexus_core::settings::SettingsError;
use nexus_core::store::{Holder, StoreError};
use nexus_core::turn::TurnError;
use nexus_protocol::RpcError;
use serde_json::{Value, json};

/// How long a caller should wait before it tries again when the server is full. Turns take seconds.
const OVERLOAD_RETRY_MS: u64 = 1_000;

/// The error that travels for an error of the domain. What only the log should know is logged here.
pub fn wire(error: impl WireError) -> RpcError {
    error.to_rpc()
}

pub trait WireError {
    fn to_rpc(&self) -> RpcError;
}

impl WireError for Denied {
    fn to_rpc(&self) -> RpcError {
        RpcError::not_allowed(self.to_string())
    }
}

impl WireError for AccessError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Unknown(id) => {
                RpcError::invalid_param("/agent_id", format!("Unknown agent: {id}"))
            }
            Self::Denied(denied) => denied.to_rpc(),
            Self::Exceeded(exceeded) => exceeded.to_rpc(),
            Self::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for Exceeded {
    fn to_rpc(&self) -> RpcError {
        let (message, advice) = match self {
            // Others end, and then there is room.
            Self::Turns { .. } => {
                return RpcError::overloaded(sentence(self), OVERLOAD_RETRY_MS);
            }
            Self::Children { .. } | Self::Agents { .. } => (
                "There are too many agents",
                "End agents and delete sessions that are not needed, or raise the setting.",
            ),
            Self::Memory { .. } => (
                "The agents take too much memory",
                "Compact conversations, end agents that are not needed, or raise the setting.",
            ),
        };
        RpcError::unavailable(message, sentence(self), &[advice])
    }
}

impl WireError for CreateError {
    fn to_rpc(&self) -> RpcError {
        let at = |path: &str| RpcError::invalid_param(path, sentence(self));
        match self {
            Self::Name(_) | Self::Exists(_) | Self::Saved(_) | Self::OutlivesParent => {
                at("/agent_id")
            }
            Self::UnknownParent(_) | Self::TooDeep => at("/parent_agent_id"),
            Self::UnknownPreset { .. } | Self::Yolo | Self::LevelNotBelow(_) => at("/preset"),
            Self::Cwd(_) => at("/cwd"),
            Self::WritePath(_) => at("/allowed_write_paths"),
            Self::TooMany { what, .. } | Self::NoTool { what } => at(&format!("/{what}")),
            Self::Ceiling(_) | Self::PathOutside(_) => RpcError::invalid_params(sentence(self)),
            Self::Model(_) => at("/model"),
            Self::Access(error) => error.to_rpc(),
            Self::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for ModelError {
    fn to_rpc(&self) -> RpcError {
        let suggestions: &[&str] = match self {
            Self::NoneConfigured => &[
                "Get the built-in model with: nexus3 model pull",
                "Set ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENROUTER_API_KEY and start the server again.",
                "Or name a provider in config.json in the server's home, NEXUS3_HOME or ~/.nexus3 (docs/configuration.md).",
            ],
            Self::Unknown { .. } => &["Name one of the known models, or provider/model-id."],
            Self::Unusable { .. } => &[
                "Mend the provider's settings in config.json in the server's home, NEXUS3_HOME or ~/.nexus3.",
            ],
        };
        RpcError::unavailable(sentence(self), sentence(self), suggestions)
    }
}

impl WireError for ProviderError {
    fn to_rpc(&self) -> RpcError {
        tracing::warn!(error = %self, "a model call failed");
        match self {
            Self::RateLimited { retry_after, .. } => {
                let wait = retry_after.map_or(OVERLOAD_RETRY_MS, |wait| wait.as_millis() as u64);
                RpcError::rate_limited(sentence(self), "upstream", wait)
            }
            _ => RpcError::internal(sentence(self)),
        }
    }
}

impl WireError for StoreError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Exists(_) | Self::Saved(_) => {
                RpcError::invalid_param("/agent_id", sentence(self))
            }
            Self::UnknownParent(_) => RpcError::invalid_param("/parent_agent_id", sentence(self)),
            Self::Ended => RpcError::invalid_param("/agent_id", sentence(self)),
            Self::HeldElsewhere { holder, .. } => live_elsewhere(self).with("owner", owner(holder)),
            Self::LeaseLost => live_elsewhere(self),
            Self::Closed => stopping(),
            Self::Busy => RpcError::unavailable(
                sentence(self),
                "another process on the same home has been writing for too long; it may be stopped",
                &["Let that process go on, or end it; then call again."],
            ),
            Self::DiskFull | Self::ReadOnly => RpcError::internal(sentence(self)),
            Self::Failed(detail) => {
                tracing::error!(detail, "the store failed");
                RpcError::internal(sentence(self))
            }
        }
    }
}

/// The error of a method on sessions, which knows what its parameters are called: the one that names what is there, and
/// the one that names what is to be.
pub fn session(source: &'static str, target: &'static str) -> impl Fn(SessionError) -> RpcError {
    move |error| {
        let at = |name: &str| RpcError::invalid_param(format!("/{name}"), sentence(&error));
        match &error {
            SessionError::Unknown(_) | SessionError::OutlivesParent(..) => at(source),
            SessionError::Exists(_) | SessionError::Temporary(_) | SessionError::Live(_) => {
                at(target)
            }
            SessionError::Override(error) => error.to_rpc(),
            SessionError::Settings(error) => error.to_rpc(),
            SessionError::Access(error) => error.to_rpc(),
            SessionError::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for SettingsError {
    fn to_rpc(&self) -> RpcError {
        let at = |path: &str| RpcError::invalid_param(path, sentence(self));
        match self {
            Self::Cwd(_) | Self::Outside(_) | Self::Ceiling(_) => at("/cwd"),
            Self::Model(_) | Self::Window { .. } => at("/model"),
            Self::Exceeded(exceeded) => exceeded.to_rpc(),
            Self::Denied(denied) => denied.to_rpc(),
            Self::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for RespondError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Unknown(_) | Self::Decided(_) | Self::TooMuch(_) => {
                RpcError::invalid_param("/approval_id", sentence(self))
            }
            Self::Deciding(_) => RpcError::unavailable(
                sentence(self),
                "Another answer came first and is being written down.",
                &["Look at the approval again with list_approvals."],
            ),
            Self::Elsewhere { holder, .. } => RpcError::unavailable(
                "The approval waits elsewhere",
                sentence(self),
                &["Answer it at the process that has it."],
            )
            .with("owner", owner(holder)),
            Self::Own => RpcError::not_allowed(sentence(self)),
            Self::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for TurnError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Duplicate(_) | Self::NotResumable(_) => {
                RpcError::invalid_param("/request_id", sentence(self))
            }
            Self::Overloaded => RpcError::overloaded(sentence(self), OVERLOAD_RETRY_MS),
            Self::Exceeded(exceeded) => exceeded.to_rpc(),
            Self::Stopping => stopping(),
            Self::Timeout => RpcError::timeout(sentence(self)),
            Self::ContextTooLong { .. } => RpcError::invalid_param("/content", sentence(self)),
            Self::Model(error) => error.to_rpc(),
            Self::Provider(error) => error.to_rpc(),
            Self::Store(error) => error.to_rpc(),
            Self::Panicked => RpcError::internal(sentence(self)),
        }
    }
}

fn live_elsewhere(error: &StoreError) -> RpcError {
    let advice = &["Call the process that has it."];
    RpcError::unavailable("The agent is live elsewhere", sentence(error), advice)
}

/// The process that has something, for programs that want to call it.
fn owner(holder: &Holder) -> Value {
    let mut owner = json!({"pid": holder.pid});
    if let Some(url) = &holder.contact.url {
        owner["url"] = json!(url);
    }
    if let Some(socket) = &holder.contact.socket {
        owner["socket"] = json!(socket);
    }
    owner
}

fn stopping() -> RpcError {
    RpcError::unavailable(
        "The server is stopping",
        "No new work is taken.",
        &["Start the server again."],
    )
}

/// An error's own sentence, with a capital.
fn sentence(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
