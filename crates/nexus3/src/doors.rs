//! Other protocols on the server's port: `/mcp` and `/v1`.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::{Request, Response, StatusCode};
use nexus_config::{Config, Doors};
use nexus_core::Requester;
use nexus_core::store::Door as Kind;
use nexus_doors::mcp::{BODY_BYTES_MAX, Door as McpDoor, Exposed, Ground, HttpDoor, Visitor};
use nexus_doors::openai;
use nexus_protocol::RpcError;
use nexus_server::transport::door::{Door, DoorBody, Visitor as Who};
use nexus_server::{DirectAgentApi, Dispatcher};
use tokio_util::sync::CancellationToken;

use crate::bare::Bare;
use crate::wiring::Wired;

/// The agent of whoever comes with the server's token and names no other.
const ADMINISTRATORS: &str = "door-mcp";

/// All that are open.
pub fn open(config: &Config, wired: &Wired, stop: &CancellationToken) -> Vec<Arc<dyn Door>> {
    let mut doors: Vec<Arc<dyn Door>> = Vec::new();
    if config.doors.mcp {
        doors.push(Arc::new(Mcp {
            dispatcher: wired.dispatcher.clone(),
            preset: config.permissions.default_preset.clone(),
            exposed: exposed(&config.doors),
            hosts: HttpDoor::new(stop.clone()),
        }));
    }
    if config.doors.openai {
        doors.push(Arc::new(OpenAi {
            dispatcher: wired.dispatcher.clone(),
            door: openai::Door::new(Arc::new(Bare::new(wired.dispatcher.clone()))),
        }));
    }
    doors
}

/// Agents that are tools of their own.
pub fn exposed(doors: &Doors) -> Arc<Exposed> {
    let entries = doors.expose.iter();
    Arc::new(entries.map(|(id, purpose)| (id.to_string(), purpose.clone())).collect())
}

/// A door into this process. Approvals are answered for the person at the host, who is asked and not its model.
pub fn direct(
    dispatcher: &Arc<Dispatcher>,
    requester: Requester,
    visitor: Visitor,
    exposed: Arc<Exposed>,
) -> McpDoor<DirectAgentApi> {
    let api = DirectAgentApi::new(dispatcher.clone(), requester).through(Kind::Mcp);
    let person = DirectAgentApi::new(dispatcher.clone(), Requester::Administrator);
    let person = person.through(Kind::Mcp);
    McpDoor::new(api, person, visitor, exposed)
}

/// Whose share a caller takes of what doors keep for callers: agents share that of their tree.
fn tree(dispatcher: &Dispatcher, requester: &Requester) -> String {
    let Requester::Agent(id) = requester else { return "administrator".into() };
    match dispatcher.services().engine.agents.account_of(id) {
        Some(account) => format!("tree {}", account.number()),
        // It is not in memory, so that nobody knows its tree: it stands for itself.
        None => format!("agent {id}"),
    }
}

struct Mcp {
    dispatcher: Arc<Dispatcher>,
    preset: String,
    exposed: Arc<Exposed>,
    hosts: HttpDoor<McpDoor<DirectAgentApi>>,
}

impl Door for Mcp {
    fn has(&self, path: &str) -> bool {
        path == "/mcp"
    }

    fn kind(&self) -> Kind {
        Kind::Mcp
    }

    fn body_bytes_max(&self) -> usize {
        BODY_BYTES_MAX
    }

    fn answer(&self, who: Who, request: Request<Bytes>) -> BoxFuture<'_, Response<DoorBody>> {
        let visitor = self.visitor(&who);
        let (name, tree) = (visitor.name.clone(), tree(&self.dispatcher, &who.requester));
        let open = || direct(&self.dispatcher, who.requester, visitor, self.exposed.clone());
        async move { self.hosts.answer(&name, &tree, open, request).await }.boxed()
    }
}

impl Mcp {
    fn visitor(&self, who: &Who) -> Visitor {
        let source = who.key.as_ref().map_or("mcp".into(), |key| format!("mcp:{key}"));
        match &who.requester {
            Requester::Administrator => Visitor {
                name: "administrator".into(),
                source,
                ground: Ground::Made {
                    name: ADMINISTRATORS.into(),
                    preset: self.preset.clone(),
                    cwd: None,
                },
                has_person: true,
            },
            Requester::Agent(id) => Visitor {
                name: format!("agent {id} {source}"),
                source,
                ground: Ground::Agent(id.to_string()),
                has_person: who.key.is_some(),
            },
        }
    }
}

struct OpenAi {
    dispatcher: Arc<Dispatcher>,
    door: openai::Door<DirectAgentApi>,
}

impl Door for OpenAi {
    fn has(&self, path: &str) -> bool {
        openai::Door::<DirectAgentApi>::has(path)
    }

    fn kind(&self) -> Kind {
        Kind::OpenAi
    }

    fn body_bytes_max(&self) -> usize {
        openai::BODY_BYTES_MAX
    }

    fn refuse(&self, status: StatusCode, error: &RpcError) -> Option<(StatusCode, Bytes)> {
        let failure = openai::Failure::at_the_port(status, error);
        Some((failure.status, failure.to_bytes()))
    }

    fn answer(&self, who: Who, request: Request<Bytes>) -> BoxFuture<'_, Response<DoorBody>> {
        let source = who.key.as_ref().map_or("openai".into(), |key| format!("openai:{key}"));
        let (name, agent) = match &who.requester {
            Requester::Administrator => ("administrator".into(), None),
            Requester::Agent(id) => (format!("agent {id} {source}"), Some(id.to_string())),
        };
        let tree = tree(&self.dispatcher, &who.requester);
        let visitor = openai::Visitor { name, tree, source, agent, key: who.key };
        let api = DirectAgentApi::new(self.dispatcher.clone(), who.requester);
        let api = api.through(Kind::OpenAi);
        async move { self.door.answer(api, &visitor, request).await }.boxed()
    }
}
