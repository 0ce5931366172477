//! What the server tells by itself: a watch, carried to whoever shows it.

use std::sync::Arc;
use std::time::Duration;

use nexus_client::{CallError, DiscoveredServer, WatchItem};
use nexus_protocol::agent::AgentEntry;
use nexus_protocol::conversation::{InterruptedTurn, MessageEntry};
use nexus_protocol::error::UNAVAILABLE;
use nexus_protocol::shared::Shared;
use nexus_protocol::turn::{RequestId, SendResult};
use nexus_protocol::watch::{Event, Happened, Piece, WatchParams};
use tokio::sync::mpsc::Sender;

use crate::link::Link;

/// Something from the server.
pub enum News {
    /// Of the watch of all agents.
    All(Box<Happened>),
    /// Of the watch of the agent that is shown; the number tells one that was shown before.
    Shown(u64, Box<Happened>),
    /// The reader was too slow; what it missed comes now.
    CaughtUp(u64),
    /// The end of the conversation, when an agent is shown.
    Recent(u64, Recent),
    /// The turn that was cut off while there was no connection.
    Interrupted(u64, InterruptedTurn),
    /// Of the agent that is shown: tokens in its context, and its window.
    Tokens(String, u64, u64),
    /// What can be completed.
    Names(crate::session::Names),
    /// The agent for the first message.
    Made(Result<String, CallError>),
    /// A message of this terminal was answered, or could not be.
    Answered {
        id: RequestId,
        whispered_to: Option<String>,
        sent: Box<Result<SendResult, CallError>>,
    },
    /// The server ends, since somebody stopped it. Either watch may be the first to hear of it.
    Stopping,
    /// The agent that is to be shown cannot be: another process has it, or it is gone.
    Unshown(u64, CallError),
    /// The connection is lost, or the server refuses.
    Lost(CallError),
    /// Servers to choose from.
    Servers(Vec<DiscoveredServer>),
    /// There is a server again.
    Back(Box<crate::start::Found>),
    /// A server could not be reached for good.
    NoServer(String),
}

pub struct Recent {
    /// What there is, and so what this agent is, where it is the first that is shown.
    pub agents: Option<Shared<Vec<AgentEntry>>>,
    pub messages: Vec<MessageEntry>,
    pub total: u64,
    pub interrupted: Option<InterruptedTurn>,
}

/// Between two tries to have what another process has, and how often. A server that ends gives its agents back only when
/// their last calls are answered, and the next one is there by then.
const AGAIN: Duration = Duration::from_millis(200);
const TRIES_MAX: u32 = 50;

/// Tries again while another process has the agent.
pub async fn soon<T, F>(mut call: impl FnMut() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    for _ in 1..TRIES_MAX {
        match call().await {
            Err(CallError::Rpc(error)) if error.code == UNAVAILABLE => {
                tokio::time::sleep(AGAIN).await;
            }
            done => return done,
        }
    }
    call().await
}

/// Which of the two watches.
#[derive(Clone, Copy)]
pub enum Of {
    All,
    Shown(u64),
}

/// Watches until the connection is lost or nothing is left to watch. A gap is filled by watching again.
pub async fn follow(link: Arc<Link>, mut params: WatchParams, of: Of, news: Sender<News>) {
    loop {
        match watch(&link, &mut params, of, &news).await {
            Ok(Ended::Gap) => {
                if let Of::Shown(generation) = of {
                    let _ = news.send(News::CaughtUp(generation)).await;
                }
            }
            Ok(Ended::Stopping) => {
                let _ = news.send(News::Stopping).await;
                return;
            }
            Ok(Ended::Over) => return,
            // It was there before a connection was lost, and the next server does not have it.
            Err(error @ CallError::Rpc(_)) if let Of::Shown(generation) = of => {
                let _ = news.send(News::Unshown(generation, error)).await;
                return;
            }
            Err(error) => {
                let _ = news.send(News::Lost(error)).await;
                return;
            }
        }
    }
}

enum Ended {
    Gap,
    /// Somebody stops the server.
    Stopping,
    /// Nobody listens, or nothing is left.
    Over,
}

async fn watch(
    link: &Link,
    params: &mut WatchParams,
    of: Of,
    news: &Sender<News>,
) -> Result<Ended, CallError> {
    let mut stream = soon(|| link.watch(again(params))).await?;
    while let Some(item) = stream.next().await {
        let event = match item? {
            WatchItem::Event(event) => event.happened,
            WatchItem::Unknown(_) => continue,
            WatchItem::Done(result) if result.reason == "gap" => return Ok(Ended::Gap),
            WatchItem::Done(result) if result.reason == "stopping" => return Ok(Ended::Stopping),
            WatchItem::Done(_) => return Ok(Ended::Over),
        };
        if let (Event::Message { index, .. }, Some(agent)) = (&event.event, &event.agent_id)
            && let Some(at) = params.after.as_mut().and_then(|after| after.get_mut(agent))
        {
            *at = *index as i64;
        }
        for event in parts(event) {
            let told = match of {
                Of::All => News::All(Box::new(event)),
                Of::Shown(generation) => News::Shown(generation, Box::new(event)),
            };
            if news.send(told).await.is_err() {
                return Ok(Ended::Over);
            }
        }
    }
    Ok(Ended::Over)
}

/// A text that is longer is shown in parts: lines take many times its memory, and those of one part are printed before the
/// next is looked at. To whoever is slow the server says in one piece what came meanwhile.
const PART_BYTES_MAX: usize = 8 << 10;

fn parts(happened: Happened) -> Vec<Happened> {
    let Event::Delta(mut piece) = happened.event else { return vec![happened] };
    let mut parts = Vec::new();
    loop {
        let rest = piece.text.split_off(piece.text.floor_char_boundary(PART_BYTES_MAX));
        let offset = piece.offset + piece.text.chars().count() as u64;
        let next = Piece { step: piece.step, offset, text: rest };
        parts.push(Happened {
            agent_id: happened.agent_id.clone(),
            request_id: happened.request_id.clone(),
            at: happened.at.clone(),
            event: Event::Delta(piece),
        });
        if next.text.is_empty() {
            return parts;
        }
        piece = next;
    }
}

fn again(params: &WatchParams) -> WatchParams {
    WatchParams {
        agents: params.agents.clone(),
        descendants: params.descendants,
        deltas: params.deltas,
        after: params.after.clone(),
        approver: params.approver,
        name: params.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_text_is_shown_in_parts_that_follow_each_other() {
        for text in ["", "short", &"é".repeat(PART_BYTES_MAX), &"a".repeat(PART_BYTES_MAX)] {
            let event = json!({"type": "delta", "step": 2, "offset": 7, "text": text});
            let told = json!({"agent_id": "a", "at": "", "event": event});
            let (mut said, mut offset) = (String::new(), 7);
            for part in parts(serde_json::from_value(told).unwrap()) {
                let Event::Delta(piece) = part.event else { panic!("it is no piece") };
                assert_eq!((piece.step, piece.offset), (2, offset));
                assert!(piece.text.len() <= PART_BYTES_MAX);
                offset += piece.text.chars().count() as u64;
                said.push_str(&piece.text);
            }
            assert_eq!(said, text);
        }
        let other = json!({"agent_id": "a", "at": "", "event": {"type": "agent_ended"}});
        assert_eq!(parts(serde_json::from_value(other).unwrap()).len(), 1);
    }
}
