//! Other protocols on the server's port: `/mcp`.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::{Request, Response};
use nexus_config::{Config, Doors};
use nexus_core::Requester;
use nexus_core::store::Door as Kind;
use nexus_doors::mcp::{BODY_BYTES_MAX, Door as McpDoor, Exposed, Ground, HttpDoor, Visitor};
use nexus_server::transport::door::{Door, DoorBody, Visitor as Who};
use nexus_server::{DirectAgentApi, Dispatcher};
use tokio_util::sync::CancellationToken;

use crate::wiring::Wired;

/// The agent of whoever comes with the server's token and names no other.
const ADMINISTRATORS: &str = "door-mcp";

/// All that are open.
pub fn open(config: &Config, wired: &Wired, stop: &CancellationToken) -> Vec<Arc<dyn Door>> {
    if !config.doors.mcp {
        return Vec::new();
    }
    vec![Arc::new(Mcp {
        dispatcher: wired.dispatcher.clone(),
        preset: config.permissions.default_preset.clone(),
        exposed: exposed(&config.doors),
        hosts: HttpDoor::new(stop.clone()),
    })]
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

struct Mcp {
    dispatcher: Arc<Dispatcher>,
    preset: String,
    exposed: Arc<Exposed>,
    hosts: HttpDoor<McpDoor<DirectAgentApi>>,
}

impl Door for Mcp {
    fn path(&self) -> &'static str {
        "/mcp"
    }

    fn kind(&self) -> Kind {
        Kind::Mcp
    }

    fn body_bytes_max(&self) -> usize {
        BODY_BYTES_MAX
    }

    fn answer(&self, who: Who, request: Request<Bytes>) -> BoxFuture<'_, Response<DoorBody>> {
        let visitor = self.visitor(&who);
        let name = visitor.name.clone();
        let open = || direct(&self.dispatcher, who.requester, visitor, self.exposed.clone());
        async move { self.hosts.answer(&name, open, request).await }.boxed()
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
