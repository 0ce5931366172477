//! The one place where errors of the domain learn their wire code.

use std::time::Duration;

use nexus_core::account::Exceeded;
use nexus_core::approval::RespondError;
use nexus_core::attach::AttachError;
use nexus_core::authority::Denied;
use nexus_core::code::CheckError;
use nexus_core::keys::KeyError;
use nexus_core::lifecycle::{AccessError, CreateError};
use nexus_core::mcp::ServerError;
use nexus_core::memory::MemoryError;
use nexus_core::plans::PlansError;
use nexus_core::provider::{ModelError, ProviderError};
use nexus_core::servers::ServersError;
use nexus_core::session::SessionError;
use nexus_core::settings::SettingsError;
use nexus_core::shared_context::ContextError;
use nexus_core::spending::SpendingError;
use nexus_core::store::{ContextRefusal, Holder, StoreError};
use nexus_core::turn::TurnError;
use nexus_core::watching::WatchError;
use nexus_protocol::RpcError;
use nexus_protocol::params::BLANK;
use serde_json::{Value, json};

/// How long a caller should wait before it tries again when the server is full. Turns take seconds.
const OVERLOAD_RETRY_MS: u64 = 1_000;

/// Whose limit it was when it was the provider's: the turn had begun, so nobody repeats the call by itself.
const UPSTREAM: &str = "upstream";

/// As above, when it was a write in the middle of the call.
const STORE: &str = "store";

/// What is done about a name that a saved session has.
const SAVED: &str = "load_session makes an agent of it, delete_session frees the name";

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

impl WireError for WatchError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Access(error) => error.to_rpc(),
            Self::TooMany(too_many) => RpcError::unavailable(
                "There are too many watches",
                sentence(too_many),
                &["End watches that are not needed: hang up, or call unwatch."],
            ),
        }
    }
}

impl WireError for ServersError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Server(error) => error.to_rpc(),
            Self::Denied(denied) => denied.to_rpc(),
            Self::Store(error) => error.to_rpc(),
            Self::Config(why) => RpcError::invalid_param("/config", format!("config: {why}")),
            Self::Configured(_) => RpcError::invalid_param("/config/name", sentence(self)),
            Self::Connected(_) => {
                RpcError::invalid_param("/config/name", advised(self, "mcp_disconnect ends it"))
            }
            Self::TooMany => RpcError::invalid_param("/config", sentence(self)),
            Self::Beyond(_) => RpcError::not_allowed(self.to_string()),
        }
    }
}

impl WireError for ServerError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::NotThere(_) => RpcError::invalid_param("/server", sentence(self)),
            Self::NotShared(_) => RpcError::invalid_param("/shared", sentence(self)),
            Self::Unknown { login, .. } => {
                let login =
                    format!("Log in ({login}), or mend headers.Authorization of its entry.");
                RpcError::unavailable("The MCP server wants a login", sentence(self), &[&login])
            }
            Self::Unavailable { .. } => RpcError::failed(
                "EXECUTION_ERROR",
                sentence(self),
                &["Try it by hand: nexus3 mcp test NAME says what is missing."],
            ),
            Self::Failed { .. } => RpcError::failed("EXECUTION_ERROR", sentence(self), &[]),
        }
    }
}

impl WireError for Exceeded {
    fn to_rpc(&self) -> RpcError {
        let (message, advice) = match self {
            // Others end, and then there is room.
            Self::Turns { .. } => {
                let overloaded = RpcError::overloaded(sentence(self), OVERLOAD_RETRY_MS);
                return overloaded.with("limit", self.setting().into());
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
        let error = RpcError::unavailable(message, sentence(self), &[advice]);
        error.with("limit", self.setting().into())
    }
}

impl WireError for SpendingError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Unknown(id) => AccessError::Unknown(id.clone()).to_rpc(),
            Self::Denied(denied) => denied.to_rpc(),
            Self::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for CheckError {
    fn to_rpc(&self) -> RpcError {
        let at = |path: &str| RpcError::invalid_param(path, self.to_string());
        match self {
            Self::UnknownLanguage { .. } => at("/language"),
            Self::TooLong | Self::Nul => at("/code"),
            Self::TooManyRules => at("/rules"),
            Self::Rule(index) => at(&format!("/rules/{index}")),
            Self::TimedOut(_) => RpcError::timeout(sentence(self)),
            Self::TooSlow(_) | Self::TooLarge(_) | Self::TooDeep => RpcError::failed(
                "EXECUTION_ERROR",
                sentence(self),
                &["Check the code in smaller parts."],
            ),
            Self::Broke => RpcError::failed("EXECUTION_ERROR", sentence(self), &[]),
            Self::Full(_) => RpcError::overloaded(sentence(self), OVERLOAD_RETRY_MS),
            Self::NotStarted(_) => {
                tracing::error!(error = %self, "code cannot be checked");
                RpcError::internal("The server cannot start what checks code")
            }
        }
    }
}

impl WireError for CreateError {
    fn to_rpc(&self) -> RpcError {
        let at = |path: &str| RpcError::invalid_param(path, sentence(self));
        match self {
            Self::Name(_) | Self::Exists(_) | Self::OutlivesParent => at("/agent_id"),
            Self::Saved(_) => RpcError::invalid_param("/agent_id", advised(self, SAVED)),
            Self::UnknownParent(_) | Self::TooDeep => at("/parent_agent_id"),
            Self::UnknownPreset { .. } | Self::Yolo | Self::LevelNotBelow(_) => at("/preset"),
            Self::Turns | Self::HistoryOfPermanent => at("/history"),
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
            Self::UnknownProvider { .. } => {
                return RpcError::invalid_param("/provider", sentence(self));
            }
            Self::NoneConfigured => &[
                "Get the built-in model with: nexus3 model pull",
                "Set ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENROUTER_API_KEY or GEMINI_API_KEY and start the server again.",
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
                let wait = retry_after.map_or(OVERLOAD_RETRY_MS, milliseconds);
                RpcError::rate_limited(sentence(self), UPSTREAM, wait)
            }
            Self::Crowded(_) => RpcError::rate_limited(sentence(self), UPSTREAM, OVERLOAD_RETRY_MS),
            Self::Resting { retry_after, .. } => RpcError::unavailable(
                "The provider is not asked for now",
                sentence(self),
                &["Try again after retry_after_ms, or use a model of another provider."],
            )
            .with("scope", json!(UPSTREAM))
            .with("retry_after_ms", json!(milliseconds(*retry_after))),
            Self::Credentials(_)
            | Self::Rejected(_)
            | Self::Filtered(_)
            | Self::TooLong { .. }
            | Self::Thoughts { .. }
            | Self::Unavailable(_)
            | Self::Broken(_)
            | Self::Timeout => RpcError::internal(sentence(self)),
        }
    }
}

impl WireError for StoreError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Exists(_) => RpcError::invalid_param("/agent_id", sentence(self)),
            Self::Saved(_) => RpcError::invalid_param("/agent_id", advised(self, SAVED)),
            Self::UnknownParent(_) => RpcError::invalid_param("/parent_agent_id", sentence(self)),
            Self::Ended => RpcError::invalid_param("/agent_id", sentence(self)),
            Self::HeldElsewhere { holder, .. } => live_elsewhere(self).with("owner", owner(holder)),
            Self::LeaseLost => live_elsewhere(self).with("scope", json!(STORE)),
            Self::Closed => stopping(),
            Self::Busy => RpcError::unavailable(
                sentence(self),
                "another process on the same home has been writing for too long; it may be stopped",
                &["Let that process go on, or end it; then call again."],
            )
            .with("scope", json!(STORE)),
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
            SessionError::Exists(_)
            | SessionError::Temporary(_)
            | SessionError::Permanent(_)
            | SessionError::Live(_) => at(target),
            SessionError::PastEnd { .. } | SessionError::BetweenCalls(_) => at("upto"),
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
            Self::Directory(_) | Self::DirectoryOutside(_) | Self::Directories => {
                at("/additional_directories")
            }
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
            Self::Unfit { .. } => RpcError::invalid_param("/decision", sentence(self)),
            Self::NoServer(_) => RpcError::invalid_param("/scope", sentence(self)),
            Self::Form(fault) => RpcError::invalid_param("/content", fault.as_str()),
            Self::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for MemoryError {
    fn to_rpc(&self) -> RpcError {
        let at = |name: &str| RpcError::invalid_param(format!("/{name}"), self.to_string());
        match self {
            Self::Blank { what } | Self::TooLong { what, .. } => at(what),
            Self::Subjects(_) => at("subjects"),
            Self::Expiry(_) => at("expires_days"),
            Self::NoChat => at("shared"),
            Self::ShortId(_) | Self::Ambiguous => at("memory_id"),
            Self::Temporary => RpcError::not_allowed(sentence(self)),
            Self::Full => RpcError::unavailable(
                "There are too many memories",
                sentence(self),
                &["Delete memories that are not needed."],
            ),
            Self::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for PlansError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Unknown(_) => RpcError::invalid_param("/plan_id", sentence(self)),
            Self::Access(error) => error.to_rpc(),
            Self::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for ContextError {
    fn to_rpc(&self) -> RpcError {
        let at = |path: &str| RpcError::invalid_param(path, self.to_string());
        match self {
            Self::Missing(what) | Self::Blank(what) | Self::Control(what) => {
                at(&format!("/data/{what}"))
            }
            Self::NotText { what, .. } | Self::TooLong { what, .. } => at(&format!("/data/{what}")),
            Self::Outside => at("/data/path"),
            Self::Nul | Self::Unknown(_) => at("/data"),
            // The same call again cannot succeed, so it is none of the errors after which clients repeat it.
            Self::Refused(refusal @ ContextRefusal::Version { current, .. }) => {
                RpcError::invalid_param("/if_version", refusal.to_string())
                    .with("context_version", json!(current))
            }
            Self::Refused(refusal) => RpcError::invalid_param("/data", sentence(refusal)),
            Self::Denied(denied) => denied.to_rpc(),
            Self::Store(error) => error.to_rpc(),
        }
    }
}

impl WireError for KeyError {
    fn to_rpc(&self) -> RpcError {
        match self {
            Self::Name(_) => RpcError::invalid_param("/name", sentence(self)),
            Self::Exists(_) => {
                RpcError::invalid_param("/name", advised(self, "revoke_key frees the name"))
            }
            Self::NoMethods | Self::Methods(_) | Self::Method(_) => {
                RpcError::invalid_param("/methods", self.to_string())
            }
            Self::DoorsAndMethods | Self::NoAgent => {
                RpcError::invalid_param("/doors", sentence(self))
            }
            Self::Full => RpcError::invalid_params(advised(self, "revoke_key makes room")),
            Self::Denied(denied) => denied.to_rpc(),
            Self::Agent(error) => error.to_rpc(),
            Self::Store(error) => error.to_rpc(),
            Self::Random(error) => {
                tracing::error!(%error, "no random bytes");
                RpcError::internal(sentence(self))
            }
        }
    }
}

impl WireError for AttachError {
    fn to_rpc(&self) -> RpcError {
        let at = |at: &usize, said| RpcError::invalid_param(format!("/content/{at}"), said);
        // What begins with a path, which is as it was named.
        let named = |part: &usize| at(part, self.to_string());
        match self {
            Self::Nothing => RpcError::invalid_param("/content", format!("content {BLANK}")),
            Self::TooMany { .. } | Self::TooLarge { .. } => {
                RpcError::invalid_param("/content", sentence(self))
            }
            Self::Refused { at: part, refusal } => named(part).with("rule", json!(refusal.rule())),
            Self::NotTaken { at: part, .. } | Self::Address { at: part, .. } => named(part),
            Self::Input { at: part, .. } => at(part, sentence(self)),
            Self::Model(error) => error.to_rpc(),
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
            Self::ContextTooLong { .. } | Self::Attached { .. } => {
                RpcError::invalid_param("/content", sentence(self))
            }
            Self::Overflow { .. } => RpcError::internal(sentence(self)),
            Self::Model(error) => error.to_rpc(),
            Self::Provider(error) => error.to_rpc(),
            Self::Store(error) => error.to_rpc(),
            Self::Panicked => RpcError::internal(sentence(self)),
        }
    }
}

/// A call has the key of another; `path` is where the key stands.
pub fn other_params(path: &str) -> RpcError {
    let said = "The same idempotency_key came with other parameters: a key is for one call";
    RpcError::invalid_param(path, said)
}

/// The call is under way in another process of the home.
pub fn under_way(holder: &Holder) -> RpcError {
    let details = "The call of this idempotency_key is under way in another process.";
    RpcError::overloaded(details, OVERLOAD_RETRY_MS).with("owner", owner(holder))
}

/// The call was begun, and nobody knows what came of it.
pub fn cut_off() -> RpcError {
    RpcError::failed(
        "EXECUTION_ERROR",
        "The call of this idempotency_key was under way when the server stopped; it is not carried out again.",
        &[
            "See what was done: get_messages has the steps of a turn, list_agents the agents.",
            "resume_turn goes on with a turn that was cut off.",
            "To have it done anew, call with a new idempotency_key.",
        ],
    )
}

pub fn no_room_for_answers() -> RpcError {
    let details =
        "The answers of too many calls with an idempotency_key are kept; each is for 10 minutes.";
    RpcError::overloaded(details, OVERLOAD_RETRY_MS)
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

/// Rounded up: who waits for less finds nothing changed.
fn milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// An error of the domain, and the methods by which its caller gets on: the domain knows none.
fn advised(error: &impl std::fmt::Display, advice: &str) -> String {
    format!("{}: {advice}", sentence(error))
}

/// An error's own sentence, with a capital.
pub fn sentence(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: ProviderError, code: i32, retry_after_ms: Option<u64>) {
        let rpc = error.to_rpc();
        assert_eq!((rpc.code, rpc.retry_after_ms()), (code, retry_after_ms), "{error}");
        let scope = rpc.data.map(|data| data["scope"].clone());
        assert_eq!(scope, retry_after_ms.map(|_| json!("upstream")), "{error}");
    }

    #[test]
    fn errors_of_a_provider_have_their_codes() {
        let text = || "m".to_owned();
        let limited = |retry_after| ProviderError::RateLimited { message: text(), retry_after };
        check(limited(Some(Duration::from_secs(7))), -32002, Some(7000));
        check(limited(None), -32002, Some(OVERLOAD_RETRY_MS));
        check(ProviderError::Crowded(text()), -32002, Some(OVERLOAD_RETRY_MS));
        let retry_after = Duration::from_micros(14_000_001);
        check(ProviderError::Resting { message: text(), retry_after }, -32001, Some(14_001));
        for error in [
            ProviderError::Credentials(text()),
            ProviderError::Rejected(text()),
            ProviderError::Filtered(text()),
            ProviderError::TooLong { message: text(), window: None },
            ProviderError::Thoughts { message: text(), missed: false },
            ProviderError::Unavailable(text()),
            ProviderError::Broken(text()),
            ProviderError::Timeout,
        ] {
            check(error, -32603, None);
        }
    }
}
