//! The formats that requests and answers travel in, and who speaks which.

use reqwest::Url;

use super::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// Anthropic's messages.
    Messages,
    /// Chat completions, which most services and servers speak.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Gemini's own.
    GenerateContent,
    /// Ollama's own.
    Ollama,
}

impl Wire {
    pub const ALL: [Self; 5] =
        [Self::Messages, Self::Chat, Self::Responses, Self::GenerateContent, Self::Ollama];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::GenerateContent => "generate_content",
            Self::Ollama => "ollama",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.name() == name)
    }

    /// What services of a kind speak.
    pub const fn spoken_by(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::Anthropic => &[Self::Messages],
            Kind::OpenAi | Kind::Azure => &[Self::Responses, Self::Chat],
            Kind::OpenRouter => &[Self::Chat],
            Kind::Gemini => &[Self::GenerateContent],
            Kind::Ollama => &[Self::Ollama, Self::Chat],
        }
    }

    /// What a service is spoken to in when nobody says: its best. Whoever imitates OpenAI imitates its chat completions,
    /// and Azure has the newer interface at an address of its own.
    pub fn usual(kind: Kind, base_url: &str) -> Self {
        let address = match base_url.trim() {
            "" => kind.default_base_url().unwrap_or_default(),
            address => address,
        };
        let url = Url::parse(address).ok();
        let own_openai = || url.as_ref().and_then(Url::host_str) == Some("api.openai.com");
        let new_azure = || {
            url.as_ref().is_some_and(|url| url.path().trim_end_matches('/').ends_with("/openai/v1"))
        };
        match kind {
            Kind::OpenAi if !own_openai() => Self::Chat,
            Kind::Azure if !new_azure() => Self::Chat,
            kind => Self::spoken_by(kind)[0],
        }
    }

    /// The members of a request that are written here, and so cannot be written by a configuration as well.
    pub const fn own_members(self) -> &'static [&'static str] {
        match self {
            Self::Messages => &[
                "model",
                "system",
                "messages",
                "tools",
                "max_tokens",
                "stream",
                "thinking",
                "output_config",
            ],
            Self::Chat => &[
                "model",
                "messages",
                "tools",
                "max_tokens",
                "max_completion_tokens",
                "stream",
                "stream_options",
                "reasoning",
                "reasoning_effort",
                "response_format",
                "prompt_cache_key",
                "provider",
            ],
            Self::Responses => &[
                "model",
                "instructions",
                "input",
                "tools",
                "max_output_tokens",
                "stream",
                "stream_options",
                "reasoning",
                "text",
                "store",
                "include",
                "prompt_cache_key",
            ],
            Self::GenerateContent => {
                &["contents", "systemInstruction", "tools", "toolConfig", "generationConfig"]
            }
            Self::Ollama => &[
                "model",
                "messages",
                "tools",
                "stream",
                "format",
                "think",
                "keep_alive",
                "options",
                "truncate",
                "shift",
            ],
        }
    }
}

/// How long a provider keeps what it has cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheTtl {
    #[default]
    FiveMinutes,
    OneHour,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_spoken_to_in_its_newest_format_at_its_own_address() {
        for (kind, base_url, expected) in [
            (Kind::OpenAi, "https://api.openai.com/v1", Wire::Responses),
            (Kind::OpenAi, "https://api.openai.com/v1/", Wire::Responses),
            (Kind::OpenAi, "", Wire::Responses),
            (Kind::OpenAi, " https://API.openai.com ", Wire::Responses),
            (Kind::OpenAi, "no address", Wire::Chat),
            (Kind::Azure, "", Wire::Chat),
            (Kind::OpenAi, "http://127.0.0.1:8000/v1", Wire::Chat),
            (Kind::OpenAi, "https://api.openai.com.example/v1", Wire::Chat),
            (Kind::Azure, "https://x.openai.azure.com/openai/v1/", Wire::Responses),
            (Kind::Azure, "https://x.openai.azure.com", Wire::Chat),
            (Kind::Anthropic, "https://proxy.example", Wire::Messages),
            (Kind::OpenRouter, "https://openrouter.ai/api/v1", Wire::Chat),
            (Kind::Gemini, "", Wire::GenerateContent),
            (Kind::Ollama, "http://127.0.0.1:11434", Wire::Ollama),
        ] {
            assert_eq!(Wire::usual(kind, base_url), expected, "{kind:?} {base_url}");
        }
    }

    #[test]
    fn every_wire_is_known_by_its_name() {
        for wire in Wire::ALL {
            assert_eq!(Wire::parse(wire.name()), Some(wire));
        }
        assert_eq!(Wire::parse("Chat"), None);
        for kind in Kind::ALL {
            let spoken = Wire::spoken_by(kind);
            assert!(spoken.contains(&Wire::usual(kind, "https://x.example/v1")), "{kind:?}");
        }
    }
}
