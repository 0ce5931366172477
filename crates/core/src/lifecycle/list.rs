//! Who there is, by page.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{AccessError, Lifecycle};
use crate::agent::Snapshot;
use crate::authority::Requester;
use crate::kin::Ancestor;
use crate::name::{AgentId, TurnId};
use crate::store::{AgentQuery, AgentRecord, ListedAgent, StoreError};

/// Agents that are read from the store at once.
const PAGE: u32 = 1_000;

/// An agent as a list shows it.
pub struct Card {
    pub record: AgentRecord,
    pub status: Status,
    pub child_count: u64,
    /// The turn that runs.
    pub running: Option<TurnId>,
    /// How many wait behind it.
    pub queued: usize,
}

impl Card {
    /// Of an agent that was made just now.
    pub fn fresh(record: AgentRecord) -> Self {
        Self { record, status: Status::Idle, child_count: 0, running: None, queued: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Idle,
    Running,
    /// The turn that runs waits until its provider takes a call.
    WaitingProvider,
    Stored,
    /// Another process has it.
    Elsewhere,
}

#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Only those behind this one, which must be in the list itself.
    pub after: Option<AgentId>,
    /// All without one.
    pub limit: Option<u32>,
}

pub struct CardPage {
    pub cards: Vec<Card>,
    /// There are more behind the last.
    pub more: bool,
}

impl Lifecycle {
    /// The agents `requester` may see: all for the administrator, its own line for an agent. Permanent ones come first, in
    /// the order in which they were made, then the temporary ones.
    pub async fn list(
        &self,
        requester: &Requester,
        query: ListQuery,
    ) -> Result<CardPage, AccessError> {
        self.release_lost();
        if let Some(after) = &query.after
            && !self.is_listed(requester, after).await?
        {
            // Whoever walks the pages must not take the end of this one for the end of the list.
            return Err(AccessError::Unknown(after.clone()));
        }
        let line_of = match requester {
            Requester::Administrator => None,
            Requester::Agent(own) => Some(own.clone()),
        };
        let limit = query.limit.map_or(usize::MAX, |limit| limit as usize);
        let mut cards = Vec::new();
        let mut after = query.after;
        let mut more = after.as_ref().is_none_or(|after| !after.is_temp());
        while more && cards.len() < limit {
            let room = u32::try_from(limit - cards.len()).unwrap_or(PAGE).min(PAGE);
            let asked = AgentQuery {
                after: after.take(),
                limit: room,
                line_of: line_of.clone(),
                working: false,
            };
            let page = self.store.agents(asked).await?;
            more = page.more;
            after = page.agents.last().map(|agent| agent.record.id.clone());
            cards.extend(page.agents.into_iter().map(|agent| self.card(agent)));
        }
        if !more {
            let after = after.filter(AgentId::is_temp);
            let room = limit - cards.len();
            let (temporary, left) = match &line_of {
                None => self.temporary_page(after, room)?,
                Some(own) => self.temporary_of_line(own, after.as_ref(), room).await?,
            };
            cards.extend(temporary.iter().map(|agent| self.live_card(agent)));
            more = left;
        }
        Ok(CardPage { cards, more })
    }

    async fn is_listed(&self, requester: &Requester, id: &AgentId) -> Result<bool, StoreError> {
        if self.born(id).await?.is_none() {
            return Ok(false);
        }
        let Requester::Agent(own) = requester else { return Ok(true) };
        let descends = |line: &[Ancestor], from: &AgentId| line.iter().any(|it| it.id == *from);
        Ok(own == id
            || descends(&self.kin.ancestors(id).await?, own)
            || descends(&self.kin.ancestors(own).await?, id))
    }

    /// A stored agent as it is now: the store is behind what is live here by nothing, but does not know what runs.
    fn card(&self, listed: ListedAgent) -> Card {
        let ListedAgent { record, child_count } = listed;
        let child_count = child_count + self.directory.temporary_children(&record.id);
        match self.directory.peek(&record.id) {
            Some(agent) => Card { child_count, ..self.live_card(&agent) },
            None => Card { status: Status::Stored, child_count, ..Card::fresh(record) },
        }
    }

    /// At most `limit` of all temporary agents, in the order in which they were made, and whether some are left.
    fn temporary_page(
        &self,
        after: Option<AgentId>,
        limit: usize,
    ) -> Result<(Vec<Arc<Snapshot>>, bool), AccessError> {
        let page = self.directory.temporary(after.as_ref(), limit.saturating_add(1));
        let Some(mut page) = page else {
            // It ended since it was looked for.
            return Err(after.map_or(StoreError::Ended.into(), AccessError::Unknown));
        };
        let more = page.len() > limit;
        page.truncate(limit);
        Ok((page, more))
    }

    /// The same of one line.
    async fn temporary_of_line(
        &self,
        own: &AgentId,
        after: Option<&AgentId>,
        limit: usize,
    ) -> Result<(Vec<Arc<Snapshot>>, bool), AccessError> {
        let mut line = self.temporary(Some(own)).await?;
        line.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        let behind = after.and_then(|after| line.iter().position(|it| it.id == *after));
        let mut rest = line.into_iter().skip(behind.map_or(0, |place| place + 1));
        let page = rest.by_ref().take(limit).collect();
        Ok((page, rest.next().is_some()))
    }

    /// The temporary agents, of one line where one is named.
    pub(crate) async fn temporary(
        &self,
        line_of: Option<&AgentId>,
    ) -> Result<Vec<Arc<Snapshot>>, StoreError> {
        let Some(own) = line_of else {
            return Ok(self.directory.temporary(None, usize::MAX).unwrap_or_default());
        };
        let beneath = self.directory.family(own).into_iter().map(|agent| agent.snapshot());
        let above = self.kin.ancestors(own).await?.into_iter();
        let above = above.filter_map(|it| self.directory.peek(&it.id));
        Ok(beneath.chain(above).filter(|agent| agent.id.is_temp()).collect())
    }

    /// An agent that is live here, with its children that are not stored.
    pub(crate) fn live_card(&self, agent: &Snapshot) -> Card {
        let status = match agent.turns.is_empty() {
            true => Status::Idle,
            false if agent.waits_for_provider.load(Ordering::Relaxed) => Status::WaitingProvider,
            false => Status::Running,
        };
        let child_count = self.directory.temporary_children(&agent.id);
        let running = agent.turns.iter().find(|card| card.running).map(|card| card.id.clone());
        let queued = agent.turns.iter().filter(|card| !card.running).count();
        Card { record: agent.record(), status, child_count, running, queued }
    }

    /// Whether there is an agent and every one was told to shut down.
    pub(crate) async fn all_shut_down(&self) -> Result<bool, StoreError> {
        let live = self.directory.agents();
        if live.iter().any(|agent| !agent.look().progress.should_shutdown) {
            return Ok(false);
        }
        let working = AgentQuery { after: None, limit: 1, line_of: None, working: true };
        let working = self.store.agents(working).await?;
        Ok(working.agents.is_empty())
    }
}
