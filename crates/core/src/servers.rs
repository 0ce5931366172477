//! The MCP servers as one agent has them: who may see, connect and let go of which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::agent::Agent;
use crate::authority::{Denied, Requester};
use crate::detached;
use crate::kin::{Kin, Rights};
use crate::mcp::{
    Accept, LoginState, Lookup, OWN_BYTES_MAX, OwnServer, SERVERS_MAX, ServerError, ServerSource,
    ServerState, ServerStatus, ServerTool, ToolState,
};
use crate::permission::Permissions;
use crate::store::StoreError;
use crate::tool::ServerUser;
use crate::toolbox::{Offer, Toolbox};

#[derive(Clone)]
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
    /// What is wrong with an entry that was given.
    #[error("{0}")]
    Config(String),
    #[error("{0} is the name of a server of the configuration, which the agent uses by that name")]
    Configured(String),
    #[error("the agent has a connection {0} already, which is another")]
    Connected(String),
    #[error("the agent may not use tools of {0}: its permissions (mcp) do not name it")]
    Beyond(String),
    #[error("an agent has at most {SERVERS_MAX} servers, those of the configuration included")]
    TooMany,
}

/// A server that is to be connected to one agent alone.
pub struct OwnConnection {
    /// [`Agent`](ServerSource::Agent) or [`Client`](ServerSource::Client).
    pub source: ServerSource,
    /// With its name.
    pub config: Map<String, Value>,
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
        agent: &Agent,
    ) -> Result<Vec<ServerStanding>, StoreError> {
        let Rights { effective: permissions, servers: own, .. } =
            self.kin.rights(&agent.snapshot()).await?;
        let user = ServerUser { agent, permissions: &permissions, own: &own };
        let servers = self.toolbox.source().servers(user).await.into_iter();
        let offer = self.toolbox.offer(&permissions, &own);
        let standings = servers.map(|status| standing(status, &permissions, &offer));
        let seen = |it: &ServerStanding| it.visible || *requester == Requester::Administrator;
        Ok(standings.filter(seen).collect())
    }

    /// One of them.
    pub async fn get(
        &self,
        requester: &Requester,
        agent: &Agent,
        name: &str,
    ) -> Result<ServerStanding, ServersError> {
        let mut servers = self.list(requester, agent).await?.into_iter();
        let found = servers.find(|it| it.status.name == name);
        Ok(found.ok_or_else(|| ServerError::NotThere(name.into()))?)
    }

    /// What is known of the login at a server that was listed; `None` where nobody logs in.
    pub async fn login_state(
        &self,
        agent: &Agent,
        name: &str,
    ) -> Result<Option<LoginState>, StoreError> {
        let own = self.kin.rights(&agent.snapshot()).await?.servers;
        Ok(self.toolbox.source().login_state(name, &own).await)
    }

    /// Starts a server that the agent can use, and waits for it. Ancestors and the administrator may: it runs a program.
    pub async fn connect(
        &self,
        requester: &Requester,
        agent: &Agent,
        name: &str,
        shared: Option<bool>,
        wait: Duration,
    ) -> Result<ServerStanding, ServersError> {
        self.authorize(requester, agent)?;
        let Rights { effective: permissions, servers: own, .. } =
            self.kin.rights(&agent.snapshot()).await?;
        if !permissions.mcp.reaches(name) {
            return Err(ServerError::NotThere(name.into()).into());
        }
        let user = ServerUser { agent, permissions: &permissions, own: &own };
        let status = self.toolbox.source().connect(name, user, shared, wait).await?;
        Ok(standing(status, &permissions, &self.toolbox.offer(&permissions, &own)))
    }

    /// Connects the agent to a server that is in no configuration, and waits for it. It is the agent's from then on; one
    /// that cannot be started never was. Nobody's going away leaves it in between.
    pub async fn connect_own(
        &self,
        requester: &Requester,
        agent: &Agent,
        asked: OwnConnection,
        wait: Duration,
    ) -> Result<ServerStanding, ServersError> {
        requester.administrator_only("connect agents to MCP servers that are not configured")?;
        let bytes = serde_json::to_string(&asked.config).map_or(usize::MAX, |text| text.len());
        if bytes > OWN_BYTES_MAX {
            return Err(ServersError::Config(format!("it has more than {OWN_BYTES_MAX} bytes")));
        }
        let source = self.toolbox.source();
        let own = source.own(asked.source, asked.config).map_err(ServersError::Config)?;
        if source.is_configured(&own.name) {
            return Err(ServersError::Configured(own.name));
        }
        let rights = self.kin.rights(&agent.snapshot()).await?;
        if !rights.effective.mcp.reaches(&own.name) {
            return Err(ServersError::Beyond(own.name));
        }
        let (this, agent) = (self.clone(), agent.clone());
        detached(async move { this.connect_noted(&agent, own, wait).await }).await
    }

    async fn connect_noted(
        &self,
        agent: &Agent,
        own: OwnServer,
        wait: Duration,
    ) -> Result<ServerStanding, ServersError> {
        let (name, others) = (own.name.clone(), self.count(agent).await?);
        let noted = agent.change(move |settings, _| {
            match settings.servers.iter().find(|it| it.name == own.name) {
                Some(known) if known.is_like(&own) => return Ok(()),
                Some(_) => return Err(ServersError::Connected(own.name)),
                None if others + settings.servers.len() >= SERVERS_MAX => {
                    return Err(ServersError::TooMany);
                }
                None => settings.servers.push(own),
            }
            Ok(())
        });
        let noted = noted.await?;
        let noted = noted.settings.servers.iter().find(|it| it.name == name);
        let Some(noted) = noted.cloned() else {
            return Err(ServerError::NotThere(name).into());
        };
        let connected = self.connect(&Requester::Administrator, agent, &name, None, wait).await;
        if let Err(ServersError::Server(ServerError::Unavailable { .. })) = &connected {
            self.drop_own(agent, noted).await?;
        }
        connected
    }

    /// How many servers the agent has beside those that it was connected to itself.
    async fn count(&self, agent: &Agent) -> Result<usize, StoreError> {
        let now = agent.snapshot();
        let Rights { effective, servers, .. } = self.kin.rights(&now).await?;
        let user = ServerUser { agent, permissions: &effective, own: &servers };
        let all = self.toolbox.source().servers(user).await.len();
        Ok(all.saturating_sub(now.settings.servers.len()))
    }

    /// Takes a server from the agent that it was connected to, and ends its processes.
    async fn drop_own(&self, agent: &Agent, own: OwnServer) -> Result<(), StoreError> {
        let id = own.id;
        let dropped = agent.change(move |settings, _| {
            settings.servers.retain(|it| it.id != id);
            Ok::<_, StoreError>(())
        });
        dropped.await?;
        self.toolbox.source().forget(&own).await;
        Ok(())
    }

    /// The agent has no more use for a server. False when there is none of that name, or it had none.
    pub async fn disconnect(
        &self,
        requester: &Requester,
        agent: &Agent,
        name: &str,
    ) -> Result<bool, ServersError> {
        self.authorize(requester, agent)?;
        let own = agent.look().settings.servers.iter().find(|it| it.name == name).cloned();
        if let Some(own) = own {
            let (this, agent) = (self.clone(), agent.clone());
            detached(async move { this.drop_own(&agent, own).await }).await?;
            return Ok(true);
        }
        let Rights { effective, servers, .. } = self.kin.rights(&agent.snapshot()).await?;
        let user = ServerUser { agent, permissions: &effective, own: &servers };
        Ok(self.toolbox.source().disconnect(name, user).await)
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
        if !self.get(requester, agent, name).await?.visible {
            return Err(ServerError::NotThere(name.into()).into());
        }
        let Rights { effective, servers, .. } = self.kin.rights(&agent.snapshot()).await?;
        let user = ServerUser { agent, permissions: &effective, own: &servers };
        Ok(self.toolbox.source().look_up(name, user, lookup).await?)
    }

    /// The same of all such servers that run, by their names.
    pub async fn look_up_all(
        &self,
        requester: &Requester,
        agent: &Agent,
        lookup: &Lookup,
    ) -> Result<Vec<(String, Value)>, ServersError> {
        self.authorize(requester, agent)?;
        let servers = self.list(requester, agent).await?.into_iter();
        let running = servers.filter(|it| it.visible && it.status.state == ServerState::Ready);
        let names: Vec<String> = running.map(|it| it.status.name).collect();
        let Rights { effective, servers, .. } = self.kin.rights(&agent.snapshot()).await?;
        let user = ServerUser { agent, permissions: &effective, own: &servers };
        let source = self.toolbox.source();
        let asked = names.iter().map(|name| source.look_up(name, user, lookup));
        let found = join_all(asked).await;
        // One that fails hides nothing of the others; who wants to know why names it.
        Ok(names.into_iter().zip(found).filter_map(|(name, it)| Some((name, it.ok()?))).collect())
    }

    /// Takes tools as they are now, which somebody has looked at. Which those were.
    pub async fn review(
        &self,
        requester: &Requester,
        agent: &Agent,
        name: &str,
        accept: Accept,
    ) -> Result<Vec<String>, ServersError> {
        requester.administrator_only("accept changed tools of MCP servers")?;
        let own = self.kin.rights(&agent.snapshot()).await?.servers;
        Ok(self.toolbox.source().review(name, &own, accept).await?)
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
