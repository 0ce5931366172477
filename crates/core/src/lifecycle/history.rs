//! What agents said, page by page.

use super::Lifecycle;
use crate::agent::Agent;
use crate::message::SharedMessage;
use crate::store::StoreError;

/// A part of what was said.
pub struct HistoryPage {
    /// How many messages there are in all.
    pub total: u64,
    pub messages: Vec<SharedMessage>,
}

impl Lifecycle {
    /// A page of what was said. What is not in memory any more is read from the store, about `bytes_max` of it.
    pub async fn history(
        &self,
        agent: &Agent,
        offset: u64,
        limit: u32,
        bytes_max: usize,
    ) -> Result<HistoryPage, StoreError> {
        let now = agent.snapshot();
        let first = now.conversation.first();
        let mut messages = match now.lease {
            Some(lease) if offset < first => {
                let limit = u64::from(limit).min(first - offset);
                let limit = u32::try_from(limit).unwrap_or(u32::MAX);
                self.store.messages(lease.agent, offset, limit, bytes_max).await?
            }
            _ => Vec::new(),
        };
        let total = now.conversation.len();
        let read = offset.saturating_add(messages.len() as u64);
        // Before that something is missing: the page ended early, by its bytes.
        if now.lease.is_none() || read >= first {
            let rest = limit as usize - messages.len();
            messages.extend(now.conversation.history_from(read.max(first)).take(rest).cloned());
        }
        Ok(HistoryPage { total, messages })
    }
}
