//! The names that the semantic conventions of OpenTelemetry give to what agents do, as of 1.41, and our own beside them.
//! Those of generative AI are still in development there: they are written here and nowhere else.

pub const OPERATION: &str = "gen_ai.operation.name";
pub const PROVIDER: &str = "gen_ai.provider.name";
pub const AGENT_ID: &str = "gen_ai.agent.id";
pub const AGENT_NAME: &str = "gen_ai.agent.name";
pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// In seconds.
pub const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
pub const TOOL_NAME: &str = "gen_ai.tool.name";
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
pub const ERROR_TYPE: &str = "error.type";

/// Operations, and the first words of the names of their spans.
pub const INVOKE_AGENT: &str = "invoke_agent";
pub const CHAT: &str = "chat";
pub const EXECUTE_TOOL: &str = "execute_tool";

/// What an agent is provided by.
pub const THIS_PROVIDER: &str = "nexus3";
/// A tool that is called with arguments.
pub const FUNCTION: &str = "function";
/// An error of no kind that has a name.
pub const OTHER_ERROR: &str = "_OTHER";

pub const SERVICE_NAME: &str = "service.name";
pub const SERVICE_VERSION: &str = "service.version";
pub const SERVICE_INSTANCE: &str = "service.instance.id";
pub const SDK_NAME: &str = "telemetry.sdk.name";
pub const SDK_LANGUAGE: &str = "telemetry.sdk.language";
pub const SDK_VERSION: &str = "telemetry.sdk.version";

/// Our own: the `request_id` of a turn, how something ended, the rule that refused a tool call, and what a call costs.
pub const TURN_ID: &str = "nexus.turn.id";
pub const OUTCOME: &str = "nexus.outcome";
pub const RULE: &str = "nexus.rule";
pub const COST_USD: &str = "nexus.cost_usd";
