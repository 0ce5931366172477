//! Watching agents: who may see what, and how things stand when they begin.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use thiserror::Error;

use crate::agent::{LiveTurn, TurnCard};
use crate::approval::Approvals;
use crate::authority::{Action, Denied, Requester};
use crate::lifecycle::{AccessError, Card, Lifecycle, ListQuery, Status};
use crate::name::AgentId;
use crate::store::{ApprovalRecord, StoreError};
use crate::watch::{Cut, Interest, Known, Owner, Scope, TooMany, Watch, Watches};

/// Opens watches.
pub struct Watching {
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) watches: Arc<Watches>,
}

/// What somebody wants to watch.
pub struct WatchSpec {
    /// These; all that the caller may read when absent, later ones included.
    pub agents: Option<Vec<AgentId>>,
    /// Those that descend from them, too.
    pub descendants: bool,
    pub interest: Interest,
}

/// How things stand. What is told later joins it without a gap, and says nothing again.
pub struct Outset {
    pub agents: Vec<WatchedAgent>,
    /// What waits for leave.
    pub approvals: Vec<ApprovalRecord>,
    /// The names that watchers gave; none for agents.
    pub watchers: Vec<String>,
}

pub struct WatchedAgent {
    pub card: Card,
    /// The turn that runs, if one does, and those that wait.
    pub turns: Vec<(TurnCard, LiveTurn)>,
}

#[derive(Debug, Clone, Error)]
pub enum WatchError {
    #[error(transparent)]
    TooMany(#[from] TooMany),
    #[error(transparent)]
    Access(#[from] AccessError),
}

impl From<Denied> for WatchError {
    fn from(denied: Denied) -> Self {
        Self::Access(denied.into())
    }
}

impl From<StoreError> for WatchError {
    fn from(error: StoreError) -> Self {
        Self::Access(error.into())
    }
}

impl Watching {
    pub fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// Begins to watch, and says how things stand.
    pub async fn open(&self, owner: Owner, spec: WatchSpec) -> Result<(Watch, Outset), WatchError> {
        let requester = owner.requester.clone();
        let WatchSpec { agents, descendants, interest } = spec;
        if interest.approver {
            requester.administrator_only("watch as one who shows approvals to a person")?;
        }
        for id in agents.iter().flatten() {
            self.check(&requester, id).await?;
        }
        // Before anything is looked at: what happens from now on is kept.
        let mut watch = self.watches.open(owner, interest)?;
        let opened = self.watches.moment();
        let (cards, scope) = self.scope(&requester, agents, descendants).await?;
        // What is live is here, and nobody needs to be asked.
        let stored = cards.iter().filter(|card| card.status == Status::Stored);
        let stored: Vec<AgentId> = stored.map(|card| card.record.id.clone()).collect();
        let elsewhere = match stored.is_empty() {
            true => HashSet::new(),
            false => self.lifecycle.store.elsewhere(stored).await?,
        };
        let mut cuts = HashMap::with_capacity(cards.len());
        let mut agents = Vec::with_capacity(cards.len());
        for mut card in cards {
            if elsewhere.contains(&card.record.id) && card.status == Status::Stored {
                card.status = Status::Elsewhere;
            }
            let seen = match self.lifecycle.directory.agent(&card.record.id) {
                Some(agent) => agent.see().await,
                None => None,
            };
            let (moment, watched) = match seen {
                None => (opened, WatchedAgent { card, turns: Vec::new() }),
                Some(seen) => {
                    let now = self.lifecycle.live_card(&seen.snapshot);
                    let card = Card { child_count: card.child_count, ..now };
                    let turns = seen.snapshot.turns.iter().cloned().zip(seen.turns).collect();
                    (seen.moment, WatchedAgent { card, turns })
                }
            };
            let record = &watched.card.record;
            cuts.insert(record.id.clone(), Cut { moment, message_count: record.message_count });
            agents.push(watched);
        }
        // After the agents: whatever they had asked by then is in this list, or answered.
        let mut approvals = self.approvals.list_here(&requester).await?;
        if let Scope::Some { seen, .. } = &scope {
            let mut shown = Vec::new();
            for record in approvals {
                let line = self.lifecycle.kin.line(&record.agent).await?;
                if line.iter().any(|it| seen.contains(&it.id)) {
                    shown.push(record);
                }
            }
            approvals = shown;
        }
        let watchers = match requester {
            Requester::Administrator => self.watches.names(),
            Requester::Agent(_) => Vec::new(),
        };
        let asked = approvals.iter().map(|record| record.id.clone()).collect();
        watch.admit(scope, Known { cuts, asked });
        Ok((watch, Outset { agents, approvals, watchers }))
    }

    async fn check(&self, requester: &Requester, id: &AgentId) -> Result<(), WatchError> {
        match requester {
            Requester::Agent(_) => {
                let authorized = self.lifecycle.kin.authorize(requester, Action::Read, id).await;
                Ok(authorized.map_err(AccessError::from)?)
            }
            Requester::Administrator => match self.lifecycle.born(id).await? {
                Some(_) => Ok(()),
                None => Err(AccessError::Unknown(id.clone()).into()),
            },
        }
    }

    /// The agents to watch, and whom that makes visible from now on.
    async fn scope(
        &self,
        requester: &Requester,
        agents: Option<Vec<AgentId>>,
        descendants: bool,
    ) -> Result<(Vec<Card>, Scope), WatchError> {
        let list = async |requester: &Requester| {
            Ok::<_, AccessError>(self.lifecycle.list(requester, ListQuery::default()).await?.cards)
        };
        let Some(agents) = agents else {
            let cards = list(requester).await?;
            let Requester::Agent(own) = requester else { return Ok((cards, Scope::All)) };
            let seen = cards.iter().map(|card| card.record.id.clone()).collect();
            let families = HashSet::from([own.clone()]);
            return Ok((cards, Scope::Some { seen, families }));
        };
        let (mut cards, mut seen) = (Vec::new(), HashSet::new());
        for id in &agents {
            // What an agent can see of itself and its kin, but for those above it.
            let line = list(&Requester::Agent(id.clone())).await?;
            let above: HashSet<_> =
                self.lifecycle.kin.ancestors(id).await?.into_iter().map(|it| it.id).collect();
            let wanted = |card: &Card| match descendants {
                true => !above.contains(&card.record.id),
                false => card.record.id == *id,
            };
            for card in line.into_iter().filter(wanted) {
                if seen.insert(card.record.id.clone()) {
                    cards.push(card);
                }
            }
        }
        let families = if descendants { agents.into_iter().collect() } else { HashSet::new() };
        Ok((cards, Scope::Some { seen, families }))
    }
}
