//! What model calls used and cost, of agents and of trees.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use thiserror::Error;

use crate::agent::Snapshot;
use crate::authority::{Action, Denied, Requester};
use crate::directory::Directory;
use crate::kin::{AuthorizeError, Kin};
use crate::name::AgentId;
use crate::store::{SpendingBy, SpendingQuery, Spent, Store, StoreError};
use crate::usage::Bill;

pub struct Spending {
    pub(crate) directory: Arc<Directory>,
    pub(crate) kin: Arc<Kin>,
    pub(crate) store: Arc<dyn Store>,
}

/// What was used, together and by what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendingReport {
    pub total: Bill,
    /// The dearest first.
    pub rows: Vec<Spent>,
}

#[derive(Debug, Clone, Error)]
pub enum SpendingError {
    #[error("unknown agent: {0}")]
    Unknown(AgentId),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<AuthorizeError> for SpendingError {
    fn from(error: AuthorizeError) -> Self {
        match error {
            AuthorizeError::Denied(denied) => Self::Denied(denied),
            AuthorizeError::Store(error) => Self::Store(error),
        }
    }
}

impl Spending {
    /// The administrator sees everybody's, an agent its own and that of its descendants. Of all agents without a name.
    pub async fn report(
        &self,
        requester: &Requester,
        query: SpendingQuery,
    ) -> Result<SpendingReport, SpendingError> {
        match &query.of {
            Some(id) => {
                self.kin.authorize(requester, Action::Read, id).await?;
                let is_known = self.directory.peek(id).is_some()
                    || !id.is_temp() && !self.store.lineage(id).await?.is_empty();
                if !is_known {
                    return Err(SpendingError::Unknown(id.clone()));
                }
            }
            None if *requester == Requester::Administrator => {}
            None => return Err(Denied::AdministratorOnly("see what all agents used").into()),
        }
        let mut rows: BTreeMap<String, Bill> = BTreeMap::new();
        let stored = match &query.of {
            Some(id) if id.is_temp() && !query.tree => Vec::new(),
            _ => self.store.spending(query.clone()).await?,
        };
        for Spent { key, bill } in stored {
            *rows.entry(key).or_default() += bill;
        }
        for agent in self.temporary(&query) {
            for (key, bill) in spent(&agent, query.by, query.since) {
                *rows.entry(key).or_default() += bill;
            }
        }
        let mut rows: Vec<_> = rows.into_iter().map(|(key, bill)| Spent { key, bill }).collect();
        rows.retain(|row| !row.bill.is_empty());
        rows.sort_by_key(|row| std::cmp::Reverse((row.bill.cost, row.bill.usage.total())));
        let total = rows.iter().fold(Bill::default(), |sum, row| sum + row.bill);
        Ok(SpendingReport { total, rows })
    }

    /// The temporary agents among those that are asked for: the store does not know them.
    fn temporary(&self, query: &SpendingQuery) -> Vec<Arc<Snapshot>> {
        match &query.of {
            None => self.directory.temporary(None, usize::MAX).unwrap_or_default(),
            Some(id) if query.tree => {
                let family = self.directory.family(id).into_iter().map(|agent| agent.snapshot());
                family.filter(|agent| agent.id.is_temp()).collect()
            }
            Some(id) => {
                self.directory.peek(id).into_iter().filter(|agent| agent.id.is_temp()).collect()
            }
        }
    }

    /// Notes what was used in an agent's name and in no turn of it: with it, or the nearest ancestor that is stored.
    pub async fn charge(&self, agent: &AgentId, bill: Bill) {
        let mut heir = Some(agent.clone());
        while let Some(next) = heir.as_ref().filter(|id| id.is_temp()) {
            heir = self.directory.peek(next).and_then(|it| it.parent.clone());
        }
        let Some(heir) = heir.filter(|_| !bill.is_empty()) else { return };
        if let Err(error) = self.store.absorb(&heir, bill).await {
            tracing::warn!(%error, agent = %heir, "what was used in its name was not noted");
        }
    }

    /// Notes what temporary agents used before they are gone: with the nearest ancestor that is stored.
    pub(crate) async fn settle(&self, gone: &[Arc<Snapshot>]) {
        let mut heirs: BTreeMap<AgentId, Bill> = BTreeMap::new();
        for agent in gone.iter().filter(|agent| agent.id.is_temp() && !agent.bill.is_empty()) {
            let mut heir = agent.parent.clone();
            while let Some(next) = heir.as_ref().filter(|id| id.is_temp()) {
                heir = self.directory.peek(next).and_then(|it| it.parent.clone());
            }
            if let Some(heir) = heir {
                *heirs.entry(heir).or_default() += agent.bill;
            }
        }
        for (heir, bill) in heirs {
            if let Err(error) = self.store.absorb(&heir, bill).await {
                tracing::warn!(%error, agent = %heir, "what its temporary agents used was not noted");
            }
        }
    }
}

/// What a temporary agent used. All it said is in memory.
fn spent(
    agent: &Snapshot,
    by: SpendingBy,
    since: Option<Timestamp>,
) -> impl Iterator<Item = (String, Bill)> {
    let whole =
        (by == SpendingBy::Agent && since.is_none()).then(|| (agent.id.to_string(), agent.bill));
    let said = agent.conversation.history_from(0).filter(|_| whole.is_none());
    let said = said.filter(|it| since.is_none_or(|since| it.meta.at >= since));
    let said: Vec<_> = said
        .filter_map(|message| {
            let made = message.meta.made.as_ref()?;
            let key = match by {
                SpendingBy::Agent => agent.id.to_string(),
                SpendingBy::Model => format!("{}/{}", made.origin.provider, made.origin.model),
                SpendingBy::Day => day(message.meta.at),
            };
            Some((key, made.bill))
        })
        .collect();
    whole.into_iter().chain(said)
}

/// The day of a moment, in UTC.
pub fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}
