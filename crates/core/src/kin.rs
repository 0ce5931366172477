//! Who descends from whom, and what follows from it: who may do what to which agent, and how much of its permissions an
//! agent can use. Asked of what is live here first, and of the store for the rest, which other processes may change.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::agent::Snapshot;
use crate::authority::{Action, Denied, Requester, authorize};
use crate::directory::Directory;
use crate::mcp::{OwnServer, OwnServers};
use crate::name::AgentId;
use crate::permission::{Level, Permissions};
use crate::store::{Store, StoreError};

pub(crate) struct Kin {
    pub directory: Arc<Directory>,
    pub store: Arc<dyn Store>,
    /// Whether agents below `yolo` may have the network at all.
    pub network: bool,
    /// Closed to every agent, whatever the server protected that made it.
    pub protected: BTreeSet<PathBuf>,
}

/// An ancestor as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Ancestor {
    pub id: AgentId,
    pub permissions: Permissions,
    /// The MCP servers that it was connected to.
    pub servers: Vec<OwnServer>,
}

/// What an agent may do at one moment: all that a decision rests on.
pub(crate) struct Rights {
    /// Without asking: what it holds and was granted, met with what its ancestors hold and what the server allows. So
    /// whoever narrows an agent narrows its descendants with it.
    pub effective: Permissions,
    /// What it may be given leave for; `None` when there is no bound.
    pub ceiling: Option<Permissions>,
    /// Its parent and those above it.
    pub ancestors: Vec<Ancestor>,
    /// Those of its MCP servers that are in no configuration.
    pub servers: OwnServers,
}

impl Kin {
    /// The agent's ancestors, nearest first. Those that are not live here are read from the store each time: the process
    /// that has them may have narrowed them a moment ago.
    pub async fn ancestors(&self, id: &AgentId) -> Result<Vec<Ancestor>, StoreError> {
        self.above(id, 1).await
    }

    /// The agent and its ancestors, itself first. Empty when there is no such agent.
    pub async fn line(&self, id: &AgentId) -> Result<Vec<Ancestor>, StoreError> {
        self.above(id, 0).await
    }

    /// The agent's line without the first `passed_over`, none or one.
    async fn above(&self, id: &AgentId, passed_over: usize) -> Result<Vec<Ancestor>, StoreError> {
        let lineage = self.directory.lineage(id);
        let live = lineage.live.iter().skip(passed_over).map(|(id, snapshot)| Ancestor {
            id: id.clone(),
            permissions: snapshot.settings.permissions.clone(),
            servers: snapshot.settings.servers.clone(),
        });
        let mut ancestors: Vec<_> = live.collect();
        let Some(next) = lineage.next else { return Ok(ancestors) };
        // By the last one that is here, whose row knows its parent's name; a temporary agent has none.
        let (from, mut skipped) = match lineage.live.last() {
            Some((id, _)) if !id.is_temp() => (id, 1),
            Some(_) => (&next, 0),
            None => (&next, passed_over),
        };
        if from.is_temp() {
            return Ok(ancestors);
        }
        let mut stored = self.store.lineage(from).await?;
        if stored.is_empty() && *from != next {
            // It is being renamed, and has its new name in the store already; its parent is who it was.
            (stored, skipped) = (self.store.lineage(&next).await?, 0);
        }
        if stored.is_empty() && !lineage.live.is_empty() {
            // A parent that is gone leaves nothing that its child may use.
            return Err(StoreError::Ended);
        }
        let stored = stored.into_iter().skip(skipped);
        ancestors.extend(stored.map(|record| Ancestor {
            id: record.id,
            permissions: record.settings.permissions,
            servers: record.settings.servers,
        }));
        Ok(ancestors)
    }

    pub async fn authorize(
        &self,
        requester: &Requester,
        action: Action,
        target: &AgentId,
    ) -> Result<(), AuthorizeError> {
        let Requester::Agent(own) = requester else { return Ok(()) };
        let ids = |ancestors: Vec<Ancestor>| ancestors.into_iter().map(|it| it.id).collect();
        let ancestors: Vec<_> = self.ancestors(target).await.map(ids)?;
        let own_parent = match action {
            Action::Send => self.ancestors(own).await?.into_iter().next().map(|it| it.id),
            Action::Read | Action::Manage => None,
        };
        Ok(authorize(requester, action, target, &ancestors, own_parent.as_ref())?)
    }

    pub async fn rights(&self, agent: &Snapshot) -> Result<Rights, StoreError> {
        let ancestors = self.ancestors(&agent.id).await?;
        let below = |permissions: Permissions| {
            ancestors.iter().fold(permissions, |met, ancestor| met.meet(&ancestor.permissions))
        };
        let mut own = agent.settings.permissions.clone();
        own.write = own.write.with(agent.settings.grants.write_paths.iter().cloned());
        own.network &= self.network || own.level == Level::Yolo;
        own.blocked.extend(self.protected.iter().cloned());
        Ok(Rights {
            effective: below(own),
            ceiling: agent.ceiling.as_deref().cloned().map(below),
            servers: servers(agent, &ancestors),
            ancestors,
        })
    }
}

/// The agent's own servers, and those of its ancestors that it was handed by name. Of one name, the nearest.
fn servers(agent: &Snapshot, ancestors: &[Ancestor]) -> OwnServers {
    let handed = |it: &&OwnServer| agent.settings.permissions.mcp.names(&it.name);
    let above = ancestors.iter().flat_map(|ancestor| &ancestor.servers).filter(handed);
    let mut found: Vec<OwnServer> = Vec::new();
    for server in agent.settings.servers.iter().chain(above) {
        if !found.iter().any(|nearer| nearer.name == server.name) {
            found.push(server.clone());
        }
    }
    found.into()
}

/// Why something is not done to an agent.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum AuthorizeError {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Store(#[from] StoreError),
}
