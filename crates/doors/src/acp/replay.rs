//! A conversation that was written down, as updates of its session.

use std::path::Path;

use agent_client_protocol_schema::v1::SessionUpdate;
use nexus_protocol::conversation::{GetMessagesParams, MessageEntry};
use nexus_protocol::params::Bounded;
use nexus_protocol::turn::RequestId;
use nexus_protocol::{Api, CallError};

use super::client::Client;
use super::told::{Told, chunks};

/// Tells all of it, from the first message on.
pub async fn replay<A: Api>(
    api: &A,
    client: &Client,
    agent: &str,
    cwd: &Path,
) -> Result<(), CallError> {
    let mut turn: Option<(String, Told)> = None;
    let mut offset = 0;
    loop {
        let params = GetMessagesParams {
            offset: Some(offset),
            limit: Bounded::new(2_000),
            include_reasoning: Some(true),
            ..GetMessagesParams::default()
        };
        let page = api.for_agent(agent).get_messages(params).await?;
        offset += page.messages.len() as u64;
        for message in &page.messages {
            let name = turn_of(message);
            let told = match &mut turn {
                Some((of, told)) if *of == name => told,
                _ => &mut turn.insert((name.clone(), Told::new(name, cwd.into()))).1,
            };
            for update in updates(told, message) {
                client.update(agent, update).await;
            }
        }
        if page.messages.is_empty() || offset >= page.total {
            return Ok(());
        }
    }
}

/// The turn that a message belongs to.
pub fn turn_of(message: &MessageEntry) -> String {
    match message.meta.as_ref().and_then(|meta| meta.request_id.as_ref()) {
        Some(RequestId::Text(name)) => name.clone(),
        Some(RequestId::Number(number)) => number.to_string(),
        None => "earlier".into(),
    }
}

fn updates(told: &mut Told, message: &MessageEntry) -> Vec<SessionUpdate> {
    if message.role == "user" {
        let attached = message.attachments.iter().map(|it| {
            let name = it.name.as_deref().unwrap_or(&it.mime_type);
            format!("[{}: {name}]", it.r#type)
        });
        let said = std::iter::once(message.content.clone()).chain(attached);
        let chunks =
            said.flat_map(|text| chunks(message.index.to_string(), &text).collect::<Vec<_>>());
        return chunks.map(SessionUpdate::UserMessageChunk).collect();
    }
    let thought = message.reasoning.as_deref().unwrap_or_default();
    let mut updates = told.thought(thought);
    updates.extend(told.message(message));
    updates
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_told_with_what_was_thought_and_attached() {
        let mut told = Told::new("t".into(), "/".into());
        let mut shown = |message| {
            let message: MessageEntry = serde_json::from_value(message).unwrap();
            let said = |update| {
                let update = json!(update);
                let kind = update["sessionUpdate"].as_str().unwrap().to_owned();
                (kind, update["content"]["text"].as_str().unwrap().to_owned())
            };
            updates(&mut told, &message).into_iter().map(said).collect::<Vec<_>>()
        };
        let check = |kind: &str, text: &str| (kind.to_owned(), text.to_owned());
        let image = json!([{"type": "image", "mime_type": "image/png", "name": "a.png"}]);
        let user = json!({"index": 0, "role": "user", "content": "see", "attachments": image});
        let expected = ["see", "[image: a.png]"].map(|it| check("user_message_chunk", it));
        assert_eq!(shown(user), expected);
        let answer = json!({"index": 1, "role": "assistant", "content": "so", "reasoning": "hm"});
        let expected = [check("agent_thought_chunk", "hm"), check("agent_message_chunk", "so")];
        assert_eq!(shown(answer), expected);
        assert_eq!(shown(json!({"index": 2, "role": "system", "content": "summary"})), []);
    }
}
