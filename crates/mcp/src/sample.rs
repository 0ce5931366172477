//! What a server wants the agent's model to say, on its way there, and the answer back.

#![expect(deprecated, reason = "servers still ask for sampling")]

use std::sync::Arc;

use nexus_core::inquiry::{Asking, Inquiry, Sample, Sampled, Wants};
use nexus_core::message::Role;
use nexus_core::sampling::SAMPLE_TOKENS_MAX;
use rmcp::model::{
    self, CreateMessageRequestParams, CreateMessageResult, SamplingMessage,
    SamplingMessageContentBlock,
};

use crate::clean::is_seen;
use crate::elicit::check_length;

/// Texts at which the answer is to end.
const STOPS_MAX: usize = 16;

/// What is asked of the model, and of the people before it is.
pub struct Wanted {
    pub asking: Asking,
    pub sample: Sample,
    pub stops: Vec<String>,
}

impl Wanted {
    /// Reads what a server wants. People are shown all of it, so it is not longer than what they are shown otherwise.
    pub fn of(server: &str, params: CreateMessageRequestParams) -> Result<Self, String> {
        if params.tools.is_some_and(|tools| !tools.is_empty()) || params.tool_choice.is_some() {
            return Err("the model is asked without tools".into());
        }
        if params.max_tokens == 0 {
            return Err("maxTokens is at least 1".into());
        }
        let stops = params.stop_sequences.unwrap_or_default();
        if stops.len() > STOPS_MAX || stops.iter().any(String::is_empty) {
            return Err(format!("stopSequences are at most {STOPS_MAX} texts, none of them empty"));
        }
        let system = seen(&params.system_prompt.unwrap_or_default());
        let mut said: Vec<(Role, String)> = Vec::new();
        for message in params.messages {
            let (role, text) = read(message)?;
            match said.last_mut() {
                Some((last, words)) if *last == role => {
                    words.push('\n');
                    words.push_str(&text);
                }
                _ => said.push((role, text)),
            }
        }
        let is_users =
            |it: Option<&(Role, String)>| it.is_some_and(|(role, _)| *role == Role::User);
        if !is_users(said.first()) || !is_users(said.last()) {
            return Err(
                "the user has the first and the last word of what the model is asked".into()
            );
        }
        let max_tokens = params.max_tokens.min(SAMPLE_TOKENS_MAX);
        let message = shown(&system, &said, max_tokens);
        check_length(&message)?;
        let inquiry = Inquiry { server: server.into(), message, wants: Wants::Sampling };
        let asking = Asking {
            inquiry,
            complete: Arc::new(|form| match form.is_empty() {
                true => Ok(form),
                false => Err("there is nothing to fill in".into()),
            }),
        };
        Ok(Self { asking, sample: Sample { system, said, max_tokens }, stops })
    }
}

/// The model's words as the server is told them.
pub fn answer(stops: &[String], sampled: Sampled) -> CreateMessageResult {
    let Sampled { mut text, model, is_cut } = sampled;
    let at = stops.iter().filter_map(|stop| text.find(stop.as_str())).min();
    let reason = match at {
        Some(at) => {
            text.truncate(at);
            CreateMessageResult::STOP_REASON_END_SEQUENCE
        }
        None if is_cut => CreateMessageResult::STOP_REASON_END_MAX_TOKEN,
        None => CreateMessageResult::STOP_REASON_END_TURN,
    };
    let said = SamplingMessage::assistant_text(text);
    CreateMessageResult::new(said, model).with_stop_reason(reason)
}

/// One message, which is text.
fn read(message: SamplingMessage) -> Result<(Role, String), String> {
    let role = match message.role {
        model::Role::User => Role::User,
        model::Role::Assistant => Role::Assistant,
    };
    let texts = message.content.into_vec().into_iter().map(|block| match block {
        SamplingMessageContentBlock::Text(text) => Ok(seen(&text.text)),
        _ => Err("the model is asked with texts only".to_owned()),
    });
    let text = texts.collect::<Result<Vec<_>, _>>()?.join("\n");
    match text.trim().is_empty() {
        true => Err("a message says nothing".into()),
        false => Ok((role, text)),
    }
}

fn seen(text: &str) -> String {
    text.chars().filter(|c| is_seen(*c)).collect()
}

/// As people read it.
fn shown(system: &str, said: &[(Role, String)], max_tokens: u32) -> String {
    let system = Some(("system", system)).filter(|(_, text)| !text.is_empty());
    let who = |role: &Role| if *role == Role::Assistant { "assistant" } else { "user" };
    let said = said.iter().map(|(role, text)| (who(role), text.as_str()));
    let lines: Vec<_> =
        system.into_iter().chain(said).map(|(who, text)| format!("{who}: {text}")).collect();
    format!("{}\n(at most {max_tokens} tokens)", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::elicit::MESSAGE_BYTES_MAX;

    fn wanted(params: Value) -> Result<Wanted, String> {
        Wanted::of("s", serde_json::from_value(params).unwrap())
    }

    fn says(role: &str, text: &str) -> Value {
        json!({"role": role, "content": {"type": "text", "text": text}})
    }

    #[test]
    fn people_are_shown_what_the_model_is_asked() {
        let wanted = wanted(json!({
            "systemPrompt": "Be\u{200b} brief",
            "messages": [says("user", "one"), says("user", "two\u{202e}"), says("assistant", "x"), says("user", "y")],
            "maxTokens": 9_000,
        }));
        let wanted = wanted.unwrap();
        let message = &wanted.asking.inquiry.message;
        assert_eq!(
            message,
            "system: Be brief\nuser: one\ntwo\nassistant: x\nuser: y\n(at most 4096 tokens)"
        );
        let said = [(Role::User, "one\ntwo"), (Role::Assistant, "x"), (Role::User, "y")];
        let said = said.map(|(role, text)| (role, text.to_owned()));
        let system = "Be brief".into();
        assert_eq!(wanted.sample, Sample { system, said: said.into(), max_tokens: 4_096 });
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let with = |key: &str, value: Value| {
            let mut params = json!({"messages": [says("user", "a")], "maxTokens": 10});
            params[key] = value;
            wanted(params).err()
        };
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
        let many = |count: usize| json!(vec!["x"; count]);
        assert_eq!(with("maxTokens", json!(1)), None);
        assert_eq!(with("stopSequences", many(STOPS_MAX)), None);
        assert_eq!(with("tools", json!([])), None);
        for (key, value, words) in [
            ("maxTokens", json!(0), "maxTokens"),
            ("stopSequences", many(STOPS_MAX + 1), "stopSequences"),
            ("stopSequences", json!([""]), "stopSequences"),
            ("tools", json!([tool]), "without tools"),
            ("toolChoice", json!({"mode": "auto"}), "without tools"),
            ("messages", json!([]), "first and the last"),
            ("messages", json!([says("assistant", "a"), says("user", "b")]), "first and the last"),
            ("messages", json!([says("user", "a"), says("assistant", "b")]), "first and the last"),
            ("messages", json!([says("user", "\u{200b} ")]), "says nothing"),
            ("messages", json!([{"role": "user", "content": image}]), "texts only"),
        ] {
            let refused = with(key, value).unwrap_or_default();
            assert!(refused.contains(words), "{key}: {refused:?}");
        }
        let room = MESSAGE_BYTES_MAX - "user: \n(at most 10 tokens)".len();
        assert_eq!(with("messages", json!([says("user", &"a".repeat(room))])), None);
        assert!(with("messages", json!([says("user", &"a".repeat(room + 1))])).is_some());
    }

    #[test]
    fn an_answer_ends_where_it_is_to_end() {
        let answer = |text: &str, is_cut: bool| {
            let sampled = Sampled { text: text.into(), model: "m".into(), is_cut };
            serde_json::to_value(super::answer(&["END".into(), "XX".into()], sampled)).unwrap()
        };
        let expected = |text: &str, reason: &str| {
            json!({"role": "assistant", "model": "m", "stopReason": reason,
                "content": {"type": "text", "text": text}})
        };
        assert_eq!(answer("a b", false), expected("a b", "endTurn"));
        assert_eq!(answer("a b", true), expected("a b", "maxTokens"));
        assert_eq!(answer("aXXbENDc", true), expected("a", "stopSequence"));
    }
}
