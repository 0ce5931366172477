//! The MCP servers as one agent has them: who may see, connect and let go of which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use thiserror::Error;

use crate::agent::{Agent, Snapshot};
use crate::authority::{Denied, Requester};
use crate::kin::Kin;
use crate::mcp::{
    Accept, LoginState, Lookup, ServerError, ServerState, ServerStatus, ServerTool, ToolState,
};
use crate::permission::Permissions;
use crate::store::StoreError;
use crate::toolbox::{Offer, Toolbox};

pub struct Servers {
    pub(crate) kin: Arc<Kin>,
    pub(crate) toolbox: Arc<Toolbox>,
}

/// A server, and what of it an agent has.
pub struct ServerStanding {
    pub status: ServerStatus,
    /// The agent may use some tool of it.
    pub visible: bool,
    /// By the names that models call them.
    pub offered: Vec<String>,
    /// Those of `offered` that the model has to search for.
    pub deferred: BTreeSet<String>,
    /// Of what the model is told of the others.
    pub shown_bytes: usize,
}

#[derive(Debug, Clone, Error)]
pub enum ServersError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Servers {
    /// Starts those that are not to wait until they are needed.
    pub fn start(&self) {
        self.toolbox.source().start();
    }

    /// The servers there are. An agent is told of those that the asked one can use.
    pub async fn list(
        &self,
        requester: &Requester,
        agent: &Snapshot,
    ) -> Result<Vec<ServerStanding>, StoreError> {
        let permissions = self.kin.rights(agent).await?.effective;
        let servers = self.toolbox.source().servers().into_iter();
        let offer = self.toolbox.offer(&permissions);
        let standings = servers.map(|status| standing(status, &permissions, &offer));
        let seen = |it: &ServerStanding| it.visible || *requester == Requester::Administrator;
        Ok(standings.filter(seen).collect())
    }

    /// One of them.
    pub async fn get(
        &self,
        requester: &Requester,
        agent: &Snapshot,
        name: &str,
    ) -> Result<ServerStanding, ServersError> {
        let mut servers = self.list(requester, agent).await?.into_iter();
        let found = servers.find(|it| it.status.name == name);
        Ok(found.ok_or_else(|| ServerError::NotThere(name.into()))?)
    }

    /// What is known of the login at a server that was listed; `None` where nobody logs in.
    pub async fn login_state(&self, name: &str) -> Option<LoginState> {
        self.toolbox.source().login_state(name).await
    }

    /// Starts a server that the agent can use, and waits for it. Ancestors and the administrator may: it runs a program.
    pub async fn connect(
        &self,
        requester: &Requester,
        agent: &Agent,
        name: &str,
        wait: Duration,
    ) -> Result<ServerStanding, ServersError> {
        self.authorize(requester, agent)?;
        let now = agent.snapshot();
        let permissions = self.kin.rights(&now).await?.effective;
        if !permissions.mcp.reaches(name) {
            return Err(ServerError::NotThere(name.into()).into());
        }
        let status = self.toolbox.source().connect(name, &now.id, wait).await?;
        Ok(standing(status, &permissions, &self.toolbox.offer(&permissions)))
    }

    /// The agent has no more use for a server. False when there is none of that name, or it had none.
    pub async fn disconnect(
        &self,
        requester: &Requester,
        agent: &Agent,
        name: &str,
    ) -> Result<bool, ServersError> {
        self.authorize(requester, agent)?;
        Ok(self.toolbox.source().disconnect(name, &agent.id()).await)
    }

    /// Asks a server that the agent can see for what it has beside tools. Ancestors and the administrator may: an agent
    /// reads resources by its tool, for which it may be asked about.
    pub async fn look_up(
        &self,
        requester: &Requester,
        agent: &Agent,
        name: &str,
        lookup: &Lookup,
    ) -> Result<Value, ServersError> {
        self.authorize(requester, agent)?;
        let now = agent.snapshot();
        let visible = self.get(requester, &now, name).await?.visible;
        if !visible {
            return Err(ServerError::NotThere(name.into()).into());
        }
        Ok(self.toolbox.source().look_up(name, &now.id, lookup).await?)
    }

    /// The same of all such servers that run, by their names.
    pub async fn look_up_all(
        &self,
        requester: &Requester,
        agent: &Agent,
        lookup: &Lookup,
    ) -> Result<Vec<(String, Value)>, ServersError> {
        self.authorize(requester, agent)?;
        let now = agent.snapshot();
        let servers = self.list(requester, &now).await?.into_iter();
        let running = servers.filter(|it| it.visible && it.status.state == ServerState::Ready);
        let names: Vec<String> = running.map(|it| it.status.name).collect();
        let source = self.toolbox.source();
        let asked = names.iter().map(|name| source.look_up(name, &now.id, lookup));
        let found = join_all(asked).await;
        // One that fails hides nothing of the others; who wants to know why names it.
        Ok(names.into_iter().zip(found).filter_map(|(name, it)| Some((name, it.ok()?))).collect())
    }

    /// Takes tools as they are now, which somebody has looked at. Which those were.
    pub async fn review(
        &self,
        requester: &Requester,
        name: &str,
        accept: Accept,
    ) -> Result<Vec<String>, ServersError> {
        requester.administrator_only("accept changed tools of MCP servers")?;
        Ok(self.toolbox.source().review(name, accept).await?)
    }

    fn authorize(&self, requester: &Requester, agent: &Agent) -> Result<(), Denied> {
        match requester {
            Requester::Agent(id) if *id == agent.id() => Err(Denied::OwnServers(id.clone())),
            _ => Ok(()),
        }
    }
}

fn standing(status: ServerStatus, permissions: &Permissions, offer: &Offer) -> ServerStanding {
    let may = |tool: &&ServerTool| {
        tool.state == ToolState::Usable
            && permissions.mcp.allows(&status.name, &tool.tool)
            && !permissions.disabled_tools.contains(&tool.name)
    };
    let offered: Vec<String> =
        status.tools.iter().filter(may).map(|tool| tool.name.clone()).collect();
    let told: BTreeMap<&str, usize> =
        offer.tools.iter().map(|tool| (tool.name.as_str(), tool.text_bytes())).collect();
    let shown_bytes = offered.iter().filter_map(|name| told.get(name.as_str())).sum();
    let deferred = offered.iter().filter(|name| !told.contains_key(name.as_str())).cloned();
    ServerStanding {
        visible: permissions.mcp.reaches(&status.name),
        deferred: deferred.collect(),
        shown_bytes,
        offered,
        status,
    }
}
