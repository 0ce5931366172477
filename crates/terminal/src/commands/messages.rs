//! A conversation read from its end, for whoever looks for what was said last.

use nexus_protocol::conversation::{GetMessages, GetMessagesParams, MessageEntry};
use nexus_protocol::params::Bounded;

use crate::cx::{Cx, Refused};

/// Messages of a page. What is looked for is mostly on the first.
const PAGE: u32 = 200;

/// The messages of an agent, the last page first. Each message is there once, also when more are said meanwhile.
pub struct Backwards<'a> {
    cx: &'a Cx,
    agent: &'a str,
    /// How many at the end were read already.
    read: u64,
    /// The index of the first that was read; `None` before the first page.
    first: Option<u64>,
}

impl<'a> Backwards<'a> {
    pub fn new(cx: &'a Cx, agent: &'a str) -> Self {
        Self { cx, agent, read: 0, first: None }
    }

    /// The page before, oldest message first; `None` when the conversation's beginning was reached.
    pub async fn next(&mut self) -> Result<Option<Vec<MessageEntry>>, Refused> {
        while self.first != Some(0) {
            let params = GetMessagesParams {
                offset: Some(self.read),
                from_end: Some(true),
                limit: Bounded::new(PAGE),
                include_reasoning: None,
            };
            let page = self.cx.of::<GetMessages>(self.agent, params).await?;
            let before = self.first;
            let is_new = |message: &MessageEntry| before.is_none_or(|first| message.index < first);
            let messages: Vec<_> = page.messages.into_iter().filter(is_new).collect();
            let first = messages.first().map(|message| message.index);
            // A page that holds nothing is the last one, whatever was counted.
            let first = first.or(before.filter(|_| page.offset > 0)).unwrap_or(0);
            let read = page.total.saturating_sub(first);
            let is_stuck = messages.is_empty() && read <= self.read;
            self.first = Some(if is_stuck { 0 } else { first });
            self.read = read;
            if !messages.is_empty() {
                return Ok(Some(messages));
            }
        }
        Ok(None)
    }
}
